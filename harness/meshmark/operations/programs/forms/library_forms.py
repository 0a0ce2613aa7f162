# SPDX-License-Identifier: Apache-2.0
"""Functions of `jax.scipy`, functions of linear algebra and Fourier transforms that no other operation has, and seldom
used options of functions, on arrays that are sharded over the mesh axes. One program has many functions.

The program is that of `programs.forms.base`: f(x) = x * s(x). `forms.definitions` has the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.definitions import (
    Pairs,
    each,
    matrices,
    named,
    points,
    regular,
    sides,
    together,
)
from meshmark.operations.programs.forms.lax_options import LAX_OPTIONS
from meshmark.operations.programs.forms.library_functions import MORE_FUNCTIONS
from meshmark.operations.programs.forms.numpy_options import NUMPY_OPTIONS
from meshmark.operations.programs.forms.scipy_options import SCIPY_OPTIONS


def _special(mesh, a, x):
    """Special functions of two or more arguments. Those of one argument are in `elementwise`."""
    from scipy import special

    ours = jax.scipy.special
    pairs = named(ours, special, "gammainc", "kl_div", "rel_entr", "xlog1py")
    pairs |= {
        "betainc": (lambda y, z: ours.betainc(y, z, y / 4), lambda y, z: special.betainc(y, z, y / 4)),
        "zeta": (lambda y, z: ours.zeta(y + 1.5, z), lambda y, z: special.zeta(y + 1.5, z)),
        "multigammaln": (
            lambda y, z: ours.multigammaln(y + 2, 3),
            lambda y, z: special.multigammaln(y + 2, 3),
        ),
        "logsumexp": (
            lambda y, z: ours.logsumexp(y, 0, b=z - 1.5, return_sign=True),
            lambda y, z: special.logsumexp(y, 0, b=z - 1.5, return_sign=True),
        ),
    }  # fmt: skip
    together(mesh, pairs, points(mesh), *sides(mesh))
    return jax.jit(over(mesh, a))(x)


def _densities(mesh, a, x):
    """Log densities and probabilities of distributions, and ranks."""
    from scipy import stats

    ours = jax.scipy.stats
    pairs: Pairs = {
        "norm": (lambda y, z: ours.norm.logpdf(y, z, 1.5), lambda y, z: stats.norm.logpdf(y, z, 1.5)),
        "logistic": (lambda y, z: ours.logistic.sf(y, z), lambda y, z: stats.logistic.sf(y, z)),
    }
    for name in ("gamma", "t", "pareto"):
        if hasattr(ours, name):
            mine, right, more = getattr(ours, name), getattr(stats, name), 1.0 * (name == "pareto")
            pairs[name] = (
                lambda y, z, g=mine, m=more: g.logpdf(y + m * 0.95, z),
                lambda y, z, g=right, m=more: g.logpdf(y + m * 0.95, z),
            )
    pairs |= {
        "beta": (
            lambda y, z: ours.beta.logpdf(y / 4, z, y + 1),
            lambda y, z: stats.beta.logpdf(y / 4, z, y + 1),
        ),
        "poisson": (
            lambda y, z: ours.poisson.logpmf(jnp.floor(y), z),
            lambda y, z: stats.poisson.logpmf(np.floor(y), z),
        ),
        "binom": (
            lambda y, z: ours.binom.logpmf(jnp.floor(y), 4, z / 4),
            lambda y, z: stats.binom.logpmf(np.floor(y), 4, z / 4),
        ),
        "truncnorm": (
            lambda y, z: ours.truncnorm.logpdf(y / 2, -1, z + 1),
            lambda y, z: stats.truncnorm.logpdf(y / 2, -1, z + 1),
        ),
        "multivariate_normal": (
            lambda y, z: ours.multivariate_normal.logpdf(y[:, :2], z[0, :2], jnp.array([[2, 0.5], [0.5, 1]])),
            lambda y, z: stats.multivariate_normal.logpdf(y[:, :2], z[0, :2], [[2, 0.5], [0.5, 1]]),
        ),
        "rankdata": (lambda y, z: ours.rankdata(y, axis=1), lambda y, z: stats.rankdata(y, axis=1)),
    }
    together(mesh, pairs, points(mesh), *sides(mesh))
    return jax.jit(over(mesh, a))(x)


def _signals(mesh, a, x):
    """Convolutions, transforms of signals, and shifted images."""
    from scipy import fft, ndimage, signal

    ours, count = jax.scipy.signal, 2 * max(mesh.devices.size, 2)
    pairs: Pairs = {}
    for name, mode in (
        ("convolve2d", "same"),
        ("convolve2d", "valid"),
        ("convolve", "same"),
        ("convolve", "valid"),
        ("correlate2d", "full"),
        ("fftconvolve", "full"),
    ):
        mine, right = getattr(ours, name), getattr(signal, name)
        pairs[f"{name} {mode}"] = (
            lambda y, z, f=mine, m=mode: f(y, z[:3, :3], mode=m),
            lambda y, z, f=right, m=mode: f(y, z[:3, :3], mode=m),
        )
    pairs |= {
        "detrend": (lambda y, z: ours.detrend(y, axis=1), lambda y, z: signal.detrend(y, axis=1)),
        "dct": (lambda y, z: jax.scipy.fft.dct(y, axis=1), lambda y, z: fft.dct(y, axis=1)),
        "dctn": (
            lambda y, z: jax.scipy.fft.dctn(y, norm="ortho"),
            lambda y, z: fft.dctn(y, norm="ortho"),
        ),
        "idct": (
            lambda y, z: jax.scipy.fft.idct(y, axis=0, norm="ortho"),
            lambda y, z: fft.idct(y, axis=0, norm="ortho"),
        ),
        "ifft": (
            lambda y, z: jnp.fft.ifft(y, axis=1, norm="ortho"),
            lambda y, z: np.fft.ifft(y, axis=1, norm="ortho"),
        ),
        "hfft": (lambda y, z: jnp.fft.hfft(y, axis=0), lambda y, z: np.fft.hfft(y, axis=0)),
        "ihfft": (lambda y, z: jnp.fft.ihfft(y, axis=1), lambda y, z: np.fft.ihfft(y, axis=1)),
        "irfft": (
            lambda y, z: jnp.fft.irfft(y, 2 * count - 3, axis=1),
            lambda y, z: np.fft.irfft(y, 2 * count - 3, axis=1),
        ),
        "moved": (
            lambda y, z: jax.image.scale_and_translate(
                y, y.shape, (0, 1), jnp.ones(2), jnp.array([1.0, 2.0]), "linear"
            ),
            lambda y, z: np.pad(y[:-1, :-2], ((1, 0), (2, 0))),
        ),
    }
    for mode in ("wrap", "mirror"):
        there = {"wrap": "grid-wrap"}.get(mode, mode)
        at_half = np.stack(np.meshgrid(np.arange(count) - 1.0, np.arange(count) + 2.0, indexing="ij"))
        pairs[f"coordinates {mode}"] = (
            lambda y, z, c=at_half, m=mode: jax.scipy.ndimage.map_coordinates(y, list(c), 1, m),
            lambda y, z, c=at_half, m=there: ndimage.map_coordinates(y, c, order=1, mode=m),
        )
    together(mesh, pairs, points(mesh), *sides(mesh))
    return jax.jit(over(mesh, a))(x)


def _matrices(mesh, a, x):
    """Less common functions of linear algebra, on a stack of matrices that is sharded along the stack, and on sharded
    matrices."""
    from scipy import linalg

    ours = jax.scipy.linalg
    pairs: Pairs = {
        "expm": (lambda y: ours.expm(y / 4), each(lambda m: linalg.expm(m / 4))),
        "pinv": (lambda y: jnp.linalg.pinv(y[:, :, :3]), lambda y: np.linalg.pinv(y[:, :, :3])),
        "inverse power": (
            lambda y: jnp.linalg.matrix_power(regular(jnp, y), -2),
            lambda y: np.linalg.matrix_power(regular(np, y), -2),
        ),
        "factor alone": (
            lambda y: jnp.abs(jnp.linalg.qr(regular(jnp, y), mode="r")),
            lambda y: np.abs(np.linalg.qr(regular(np, y), mode="r")),
        ),
        "eigvalsh": (
            lambda y: jnp.linalg.eigvalsh(y + y.mT),
            lambda y: np.linalg.eigvalsh(y + np.swapaxes(y, 1, 2)),
        ),
        "upper": (
            lambda y: jnp.linalg.cholesky(regular(jnp, y) @ regular(jnp, y).mT, upper=True),
            lambda y: np.swapaxes(
                np.linalg.cholesky(regular(np, y) @ np.swapaxes(regular(np, y), 1, 2)), 1, 2
            ),
        ),
        "slogdet": (
            lambda y: jnp.linalg.slogdet(-regular(jnp, y[:, :3, :3])),
            lambda y: tuple(np.linalg.slogdet(-regular(np, y[:, :3, :3]))),
        ),
        "cond": (
            lambda y: jnp.linalg.cond(regular(jnp, y), 1),
            lambda y: np.linalg.cond(regular(np, y), 1),
        ),
        "rank": (
            lambda y: jnp.linalg.matrix_rank(jnp.concatenate([y[:, :1]] * 2 + [y[:, :2]], 1)),
            lambda y: np.linalg.matrix_rank(np.concatenate([y[:, :1]] * 2 + [y[:, :2]], 1)),
        ),
        "nuclear norm": (
            lambda y: jnp.linalg.norm(y, "nuc", (1, 2)),
            lambda y: np.linalg.norm(y, "nuc", (1, 2)),
        ),
        "vector norm": (
            lambda y: jnp.linalg.norm(y, 3, 2, keepdims=True),
            lambda y: np.linalg.norm(y, 3, 2, keepdims=True),
        ),
        "tridiagonal": (
            lambda y: lax.linalg.tridiagonal_solve(
                y[:, 0].at[:, 0].set(0), y[:, 1] + 9, y[:, 2].at[:, -1].set(0), y
            ),
            each(
                lambda m: np.linalg.solve(
                    np.diag(m[0, 1:], -1) + np.diag(m[1] + 9) + np.diag(m[2, :-1], 1), m
                )
            ),
        ),
        "transposed triangle": (
            lambda y: lax.linalg.triangular_solve(regular(jnp, y), y, lower=True, transpose_a=True),
            each(lambda m: m @ np.linalg.inv(np.tril(regular(np, m)).T)),
        ),
        "unit triangle": (
            lambda y: lax.linalg.triangular_solve(y / 4, y, left_side=True, lower=True, unit_diagonal=True),
            each(lambda m: np.linalg.solve(np.tril(m / 4, -1) + np.eye(len(m)), m)),
        ),
        "cho_solve": (
            lambda y: ours.cho_solve((regular(jnp, y) * 0 + 3 * jnp.eye(4), True), y),
            lambda y: y / 9,
        ),
    }
    n = mesh.devices.size
    stack = matrices(n, -1, 1)
    together(mesh, pairs, (stack,), (*mesh.axis_names,))
    rows = {
        "multi_dot": (
            lambda y, z: jnp.linalg.multi_dot([y, z, y.T]),
            lambda y, z: np.linalg.multi_dot([y, z, y.T]),
        ),
        "lstsq": (
            lambda y, z: jnp.linalg.lstsq(y[:, :3], z[:, :2])[0],
            lambda y, z: np.linalg.lstsq(y[:, :3], z[:, :2])[0],
        ),
        "toeplitz": (lambda y, z: ours.toeplitz(y[0, :4], z[0, :3] * 0 + y[0, 0]),
                     lambda y, z: linalg.toeplitz(y[0, :4], z[0, :3] * 0 + y[0, 0])),
        "block_diag": (
            lambda y, z: ours.block_diag(y[:3, :2], z[:1]),
            lambda y, z: linalg.block_diag(y[:3, :2], z[:1]),
        ),
        "hilbert": (lambda y, z: ours.hilbert(4), lambda y, z: linalg.hilbert(4)),
        "solve_triangular": (
            lambda y, z: ours.solve_triangular(regular(jnp, y), z, trans=1, lower=True),
            lambda y, z: linalg.solve_triangular(regular(np, y), z, trans=1, lower=True),
        ),
        "solve": (
            lambda y, z: ours.solve(y @ y.T + 9 * jnp.eye(len(y)), z, assume_a="pos"),
            lambda y, z: linalg.solve(y @ y.T + 9 * np.eye(len(y)), z),
        ),
        "conjugate gradients": (
            lambda y, z: jax.scipy.sparse.linalg.cg(y @ y.T / 9 + 9 * jnp.eye(len(y)), z[:, 0], maxiter=40)[0],
            lambda y, z: linalg.solve(y @ y.T / 9 + 9 * np.eye(len(y)), z[:, 0]),
        ),
    }  # fmt: skip
    together(mesh, rows, points(mesh, -1, 1), *sides(mesh))
    return jax.jit(over(mesh, a))(x)


LIBRARY: dict[str, Callable[..., Any]] = {
    "special": _special,
    "densities": _densities,
    "signals": _signals,
    "matrices": _matrices,
    **MORE_FUNCTIONS,
    **NUMPY_OPTIONS,
    **LAX_OPTIONS,
    **SCIPY_OPTIONS,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class LibraryForm(ProgramForm):
    """One sharded program, with checks of a family of functions of `jax.scipy`, or of options of functions."""

    name = "library_form"
    forms = LIBRARY
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return LIBRARY[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
