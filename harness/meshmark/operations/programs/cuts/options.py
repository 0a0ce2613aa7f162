# SPDX-License-Identifier: Apache-2.0
"""More calls of `jax.numpy` whose spelling is NumPy's: options together, several keys, complex numbers, places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshmark.operations.programs.cuts.calls import Call, form_of, reshape_to_cube, with_nan
from meshmark.operations.programs.cuts.slopes import slopes_form_of

BINS = np.array([-5, -1, 3, 11], np.float32)
PLACES = np.array([0, 1, 3, 4, 8, 9], np.float32)
KERNEL = np.array([1j, 2, 1 + 1j, -3], np.complex64)


def _times(d):
    return np.arange(1, len(d["v"]) + 1)


OPTIONS: dict[str, Call] = {
    "cov with both weights": lambda xp, d: xp.cov(
        d["a"][:, :3], rowvar=False, fweights=_times(d), aweights=d["b"][:, 0]
    ),
    "cov of two": lambda xp, d: xp.cov(d["a"][:, :2], d["b"][:, :2], rowvar=False, bias=True),
    "corrcoef of two": lambda xp, d: xp.corrcoef(d["v"], d["s"]),
    "average of both, kept": lambda xp, d: xp.average(d["a"], (0, 1), d["b"], keepdims=True),
    "std along both, ddof 2": lambda xp, d: xp.std(reshape_to_cube(d["a"]), (0, 2), ddof=2),
    "nanmedian of columns": lambda xp, d: xp.nanmedian(with_nan(xp, d), 1, keepdims=True),
    "nanmedian of all": lambda xp, d: xp.nanmedian(with_nan(xp, d)),
    "nanpercentile of two": lambda xp, d: xp.nanpercentile(with_nan(xp, d), np.array([20, 65]), 0),
    "quantile of three": lambda xp, d: xp.quantile(d["a"], np.array([0.1, 0.5, 0.85]), (0, 1)),
    "quantile nearest": lambda xp, d: xp.quantile(d["a"], 0.35, 1, method="nearest"),
    "median of an even number": lambda xp, d: xp.median(d["a"], 1),
    "nancumprod": lambda xp, d: xp.nancumprod(xp.where(d["m"], d["b"] / 8, xp.nan), 1),
    "cumprod of columns": lambda xp, d: xp.cumprod(d["b"] / 8, 1),
    "histogram, density and weights": lambda xp, d: xp.histogram(
        d["v"], BINS, weights=d["b"][:, 0], density=True
    ),
    "histogramdd": lambda xp, d: xp.histogramdd(d["a"][:, :2], [BINS, BINS - 1], weights=d["b"][:, 0])[0],
    "lexsort of three": lambda xp, d: xp.lexsort((d["v"], d["a"][:, 0] // 5, d["a"][:, 1] // 9)),
    "lexsort along 0": lambda xp, d: xp.lexsort((d["a"], d["b"] // 4), axis=0),
    "argsort downward": lambda xp, d: xp.argsort(-(d["a"] // 4), 1, stable=True),
    "sort of booleans": lambda xp, d: xp.sort(d["m"], 0),
    "sort of uint8": lambda xp, d: xp.sort(d["u"], 1),
    "take_along_axis from the end": lambda xp, d: xp.take_along_axis(
        d["a"], np.arange(len(d["v"]))[:, None] % 3 - 3, 1
    ),
    "take_along_axis of rows": lambda xp, d: xp.take_along_axis(
        d["a"], xp.argsort(d["b"], 0, stable=True), 0
    ),
}
"""Statistics and orders, by name: a call of NumPy or of `jax.numpy`."""

PLACED: dict[str, Call] = {
    "extract by where": lambda xp, d: xp.where(d["a"] > 0, d["a"], xp.where(d["m"], -1, d["b"])),
    "gradient over places": lambda xp, d: xp.gradient(d["a"], PLACES, axis=1),
    "gradient along both": lambda xp, d: xp.gradient(d["a"], 2.0, 3.0),
    "diff with append": lambda xp, d: xp.diff(d["a"], 2, 1, append=d["b"][:, :1]),
    "ediff1d with an end": lambda xp, d: xp.ediff1d(d["a"], to_end=np.float32(4)),
    "trapezoid along the last": lambda xp, d: xp.trapezoid(d["a"], PLACES, axis=-1),
    "unwrap by its own step": lambda xp, d: xp.unwrap(d["a"], discont=3, axis=0, period=4),
    "interp with a period and ends": lambda xp, d: xp.interp(
        d["v"] / 3 - 2, np.array([5, 1, 3], np.float32), np.array([5, 2, 8], np.float32), period=6
    ),
    "correlate of complex numbers": lambda xp, d: xp.correlate(d["c"][:, 0], KERNEL, "same"),
    "correlate of complex numbers, full": lambda xp, d: xp.correlate(d["c"][:, 0], KERNEL[:3], "full"),
    "convolve of complex numbers": lambda xp, d: xp.convolve(d["c"][:, 1], KERNEL, "valid"),
    "convolve by the longer one": lambda xp, d: xp.convolve(KERNEL[:2].real, d["v"], "same"),
    "polyval of complex numbers": lambda xp, d: xp.polyval(KERNEL[:3], d["c"] / 8),
    "polyadd": lambda xp, d: xp.polyadd(d["v"], np.array([1, 2, 3], np.float32)),
    "polysub": lambda xp, d: xp.polysub(np.array([1, 2], np.float32), d["v"]),
    "array_split of rows": lambda xp, d: xp.array_split(d["a"], 3, 0),
    "roll of a cube": lambda xp, d: xp.roll(reshape_to_cube(d["a"]), (3, -1, 1), (0, 1, 2)),
    "repeat of rows": lambda xp, d: xp.repeat(d["a"][:3], np.array([2, 0, 3]), 0),
    "tile of more dimensions": lambda xp, d: xp.tile(d["v"], (2, 1, 3)),
    "squeeze of two": lambda xp, d: xp.squeeze(d["a"][None, :, None], (0, 2)),
    "insert of several rows": lambda xp, d: xp.insert(d["a"], np.array([0, 2, 2]), d["q"][:3], 0),
    "delete by a slice": lambda xp, d: xp.delete(d["a"], slice(1, None, 2), 1),
    "apply_over_axes": lambda xp, d: xp.apply_over_axes(xp.sum, reshape_to_cube(d["a"]), (0, 2)),
    "einsum of three, another order": lambda xp, d: xp.einsum("ki,lj,jk->il", d["q"], d["a"], d["q"]),
    "einsum with a sum": lambda xp, d: xp.einsum(
        "rij,rj->i", reshape_to_cube(d["a"]), reshape_to_cube(d["b"])[:, 0]
    ),
    "tensordot of two pairs": lambda xp, d: xp.tensordot(
        reshape_to_cube(d["a"]), reshape_to_cube(d["b"]), ((0, 2), (0, 2))
    ),
    "matvec": lambda xp, d: xp.matvec(d["a"], d["q"][0]),
    "vecmat": lambda xp, d: xp.vecmat(d["v"], d["a"]),
    "norm of half an order": lambda xp, d: xp.linalg.norm(d["b"], 0.5, axis=1),
    "norm 2 of a batch": lambda xp, d: xp.linalg.norm(reshape_to_cube(d["a"]), 2, axis=(1, 2)),
    "cross of two and three": lambda xp, d: xp.cross(d["b"][:, :3], d["a"][:, :3], axis=-1)[:, ::-1],
    "nextafter": lambda xp, d: xp.nextafter(d["a"], d["b"]) - d["a"],
    "remainder of negative numbers": lambda xp, d: xp.remainder(-d["a"], d["b"]),
    "float_power of integers": lambda xp, d: xp.float_power(abs(d["i"]) % 5, 2),
    "clip of integers": lambda xp, d: xp.clip(d["i"], -3, 5),
    "bitwise_count": lambda xp, d: xp.bitwise_count(d["i"]),
    "invert of uint8": lambda xp, d: xp.bitwise_invert(d["u"]),
    "round of halves": lambda xp, d: xp.round(d["a"] / 2),
    "isclose with NaN": lambda xp, d: xp.isclose(with_nan(xp, d), with_nan(xp, d), equal_nan=True),
    "maximum of NaN": lambda xp, d: xp.fmax(with_nan(xp, d), d["b"]),
    "real of complex numbers": lambda xp, d: xp.real(d["c"] ** 2) + xp.imag(d["c"]),
}
"""By name: a call of NumPy or of `jax.numpy`."""

CUT_OPTIONS: dict[str, Callable[..., None]] = {
    "numpy_options": form_of(OPTIONS),
    "numpy_placed": form_of(PLACED),
    "slopes_options": slopes_form_of(OPTIONS),
    "slopes_placed": slopes_form_of(PLACED),
}
