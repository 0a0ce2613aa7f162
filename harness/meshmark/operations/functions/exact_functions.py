# SPDX-License-Identifier: Apache-2.0
"""Functions of `jax.numpy` and `jax.lax` whose results on small whole numbers are exact: reductions, products,
polynomials, sets, orders, counts and predicates. One program computes a group of functions of whole arrays."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.operations.functions.catalogue import Catalogue, Groups, Member, in_jax, in_numpy, newer
from meshmark.operations.functions.whole_numbers import BITS, NUMBERS, QUESTIONS, SCATTERED, wrapped

SMALL = 3
"""Rows or columns of the pieces that stay small on every mesh."""


def same(name: str, *more: Any, **options: Any) -> Member:
    """A member from a function of x that has the same name and options in NumPy and in jax.numpy."""
    return (
        lambda x, y: getattr(jnp, name)(x, *more, **options),
        lambda x, y: getattr(np, name)(x, *more, **options),
    )


def signs(x):
    """1 or -1 for each element. Products of them are exact."""
    return 1 - 2 * (x > 4)


def filled(found, size, fill=-1):
    """The first `size` of the found values, padded to `size` with the fill value."""
    found = np.asarray(found)[:size]
    return np.concatenate([found, np.full(size - len(found), fill)])


def convolved(a, b):
    """The full convolution of two sequences, by its definition."""
    done = np.zeros(len(a) + len(b) - 1, a.dtype)
    for i, value in enumerate(b):
        done[i : i + len(a)] += value * a
    return done


def polynomial_at(p, x):
    """The value at x of the polynomial with coefficients p. The coefficient of the highest power comes first."""
    total = np.zeros_like(x)
    for c in p:
        total = total * x + c
    return total


def kth(x, k):
    """The k-th smallest element of each row, and True: a partition must have the other elements on the right sides."""
    return np.sort(x, axis=1)[:, k], np.ones(x.shape[0], bool)


def parted(found, k):
    """The k-th element of each row of a partition, and whether the other elements are on the right sides of it."""
    middle = found[:, k : k + 1]
    return found[:, k], (found[:, :k] <= middle).all(axis=1) & (found[:, k:] >= middle).all(axis=1)


def taken(x, order):
    """The elements of each row in the order of these indices."""
    return jnp.take_along_axis(x, order, axis=1)


def counted(x, y, bins):
    """The number of pairs (x, y) in each cell of a two-dimensional histogram: [bins, bins]."""
    return np.array(
        [
            [
                ((x >= a) & (x < a + 1 + (a == bins - 1)) & (y >= b) & (y < b + 1 + (b == bins - 1))).sum()
                for b in range(bins)
            ]
            for a in range(bins)
        ]
    )


def uniques(x):
    """The distinct values, the flat index of the first of each, their counts, and for each element the index of its
    value."""
    kinds = np.array(sorted(set(x.ravel().tolist())))
    flat = x.reshape(-1)
    first = np.array([np.argmax(flat == k) for k in kinds])
    counts = np.array([(flat == k).sum() for k in kinds])
    return kinds, first, counts, np.searchsorted(kinds, flat).reshape(x.shape)


def bitwise(kind, combine, dim):
    """A member from a bitwise reduction of int32 numbers along a dimension."""
    return (
        lambda x, y: getattr(lax, f"reduce_{kind}")(x.astype(jnp.int32), (dim,)),
        lambda x, y: combine.reduce(x.astype(np.int32), axis=dim),
    )


def two_dimensional(f):
    """A convolution of `lax`, applied to the first row of x and three taps of y. The result is a vector."""
    return lambda x, y: f(x[None, :1], y[None, :1, :SMALL])[0, 0]


CONV = ("NCH", "OIH", "NCH")
BINS = 9
SETS = 12
EDGES = tuple(range(BINS + 1))

REDUCED: dict[str, Member] = {
    "amax": same("amax", axis=0),
    "amin": same("amin", axis=1),
    "ptp": same("ptp", axis=0),
    "nanargmin": (
        lambda x, y: jnp.nanargmin(x, axis=0),
        lambda x, y: np.argmin(x, axis=0),
    ),
    "nanprod": (lambda x, y: jnp.nanprod(signs(x), axis=0), lambda x, y: np.prod(signs(x), axis=0)),
    "lax.reduce_sum": (lambda x, y: lax.reduce_sum(x, (0,)), lambda x, y: x.sum(axis=0)),
    "lax.reduce_max": (lambda x, y: lax.reduce_max(x, (1,)), lambda x, y: x.max(axis=1)),
    "lax.reduce_min": (lambda x, y: lax.reduce_min(x, (0, 1)), lambda x, y: x.min()),
    "lax.reduce_prod": (
        lambda x, y: lax.reduce_prod(signs(x), (1,)),
        lambda x, y: np.prod(signs(x), axis=1),
    ),
    "lax.reduce_and": (lambda x, y: lax.reduce_and(x < 8, (0,)), lambda x, y: (x < 8).all(axis=0)),
    "lax.reduce_or": (lambda x, y: lax.reduce_or(x > 7, (1,)), lambda x, y: (x > 7).any(axis=1)),
    "lax.reduce": (
        lambda x, y: lax.reduce(x, np.array(0, x.dtype), lax.add, (1,)),
        lambda x, y: x.sum(axis=1),
    ),
    "lax.argmax": (lambda x, y: lax.argmax(x, 1, jnp.int32), lambda x, y: x.argmax(axis=1)),
    "lax.argmin": (lambda x, y: lax.argmin(x, 0, jnp.int32), lambda x, y: x.argmin(axis=0)),
}

BITWISE: dict[str, Member] = {
    "lax.reduce_xor": bitwise("xor", np.bitwise_xor, 0),
    "lax.reduce_and": bitwise("and", np.bitwise_and, 1),
    "lax.reduce_or": bitwise("or", np.bitwise_or, 0),
}

RUNNING: dict[str, Member] = {
    "cumulative_sum": (lambda x, y: jnp.cumulative_sum(x, axis=1), lambda x, y: np.cumsum(x, axis=1)),
    "cumulative_prod": (
        lambda x, y: jnp.cumulative_prod(signs(x), axis=0),
        lambda x, y: np.cumprod(signs(x), axis=0),
    ),
    "cumsum": same("cumsum", axis=0),
    "cumprod": (
        lambda x, y: jnp.cumprod(signs(y), axis=1),
        lambda x, y: np.cumprod(signs(y), axis=1),
    ),
    "nancumsum": (lambda x, y: jnp.nancumsum(x, axis=0), lambda x, y: np.cumsum(x, axis=0)),
    "nancumprod": (
        lambda x, y: jnp.nancumprod(signs(x), axis=1),
        lambda x, y: np.cumprod(signs(x), axis=1),
    ),
    "diff": same("diff", axis=0),
    "ediff1d": (lambda x, y: jnp.ediff1d(x), lambda x, y: np.diff(x.reshape(-1))),
    "gradient": (
        lambda x, y: jnp.gradient(x, axis=1),
        lambda x, y: np.concatenate(
            (x[:, 1:2] - x[:, :1], (x[:, 2:] - x[:, :-2]) / 2, x[:, -1:] - x[:, -2:-1]), axis=1
        ),
    ),
    "trapezoid": (
        lambda x, y: jnp.trapezoid(x, axis=1),
        lambda x, y: (x[:, 1:] + x[:, :-1]).sum(axis=1) / 2,
    ),
    "median": (lambda x, y: jnp.median(x, axis=0), lambda x, y: np.median(x, axis=0)),
    "nanmedian": (lambda x, y: jnp.nanmedian(x, axis=1), lambda x, y: np.median(x, axis=1)),
    "percentile": (
        lambda x, y: jnp.percentile(x, 50, axis=1, method="lower"),
        lambda x, y: np.sort(x, axis=1)[:, (x.shape[1] - 1) // 2],
    ),
    "nanpercentile": (
        lambda x, y: jnp.nanpercentile(x, 50, axis=0, method="higher"),
        lambda x, y: np.sort(x, axis=0)[x.shape[0] // 2],
    ),
    "nanquantile": (
        lambda x, y: jnp.nanquantile(x, 0.5, axis=0, method="lower"),
        lambda x, y: np.sort(x, axis=0)[(x.shape[0] - 1) // 2],
    ),
}

PRODUCTS: dict[str, Member] = {
    "dot": (lambda x, y: jnp.dot(x, y.T, precision="highest"), lambda x, y: x @ y.T),
    "vdot": (lambda x, y: jnp.vdot(x, y, precision="highest"), lambda x, y: (x * y).sum()),
    "inner": (lambda x, y: jnp.inner(x, y, precision="highest"), lambda x, y: x @ y.T),
    "tensordot": (
        lambda x, y: jnp.tensordot(x, y, axes=((0,), (0,)), precision="highest"),
        lambda x, y: x.T @ y,
    ),
    "matvec": (lambda x, y: jnp.matvec(x, y[0]), lambda x, y: x @ y[0]),
    "vecmat": (lambda x, y: jnp.vecmat(x[:, 0], y), lambda x, y: x[:, 0] @ y),
    "vecdot": (lambda x, y: jnp.vecdot(x, y), lambda x, y: (x * y).sum(axis=1)),
    "lax.dot": (lambda x, y: lax.dot(x, y.T, precision="highest"), lambda x, y: x @ y.T),
    "lax.batch_matmul": (
        lambda x, y: lax.batch_matmul(x[:, :, None], y[:, None, :SMALL], precision="highest"),
        lambda x, y: x[:, :, None] * y[:, None, :SMALL],
    ),
    "polyadd": (
        lambda x, y: jnp.polyadd(x[0], y[0, :SMALL]),
        lambda x, y: x[0] + np.pad(y[0, :SMALL], (x.shape[1] - SMALL, 0)),
    ),
    "polysub": (
        lambda x, y: jnp.polysub(x[0], y[0, :SMALL]),
        lambda x, y: x[0] - np.pad(y[0, :SMALL], (x.shape[1] - SMALL, 0)),
    ),
    "polymul": (
        lambda x, y: jnp.polymul(x[0], y[0, :SMALL]),
        lambda x, y: convolved(x[0], y[0, :SMALL]),
    ),
    "polyder": (
        lambda x, y: jnp.polyder(x[0]),
        lambda x, y: x[0, :-1] * np.arange(x.shape[1] - 1, 0, -1),
    ),
    "poly": (
        lambda x, y: jnp.poly(x[0, :SMALL].astype(jnp.float32)),
        lambda x, y: convolved(
            convolved(np.array([1.0, -x[0, 0]]), np.array([1.0, -x[0, 1]])), np.array([1.0, -x[0, 2]])
        ),
    ),
    "convolve": (
        lambda x, y: jnp.convolve(x[0], y[0, :SMALL], precision="highest"),
        lambda x, y: convolved(x[0], y[0, :SMALL]),
    ),
    "correlate": (
        lambda x, y: jnp.correlate(x[0], y[0, :SMALL], mode="full", precision="highest"),
        lambda x, y: convolved(x[0], y[0, :SMALL][::-1]),
    ),
    "lax.conv": (
        two_dimensional(lambda a, b: lax.conv(a, b, (1,), "VALID", precision="highest")),
        lambda x, y: convolved(x[0], y[0, :SMALL][::-1])[SMALL - 1 : 1 - SMALL],
    ),
    "lax.conv_with_general_padding": (
        two_dimensional(
            lambda a, b: lax.conv_with_general_padding(a, b, (1,), [(2, 2)], None, None, precision="highest")
        ),
        lambda x, y: convolved(x[0], y[0, :SMALL][::-1]),
    ),
    "lax.conv_transpose": (
        two_dimensional(
            lambda a, b: lax.conv_transpose(a, b, (1,), [(2, 2)], dimension_numbers=CONV, precision="highest")
        ),
        lambda x, y: convolved(x[0], y[0, :SMALL][::-1]),
    ),
    "lax.conv_general_dilated_patches": (
        lambda x, y: lax.conv_general_dilated_patches(
            x[:, None], (SMALL,), (1,), "VALID", precision=lax.Precision.HIGHEST
        ),
        lambda x, y: np.stack([x[:, i : x.shape[1] - SMALL + 1 + i] for i in range(SMALL)], axis=1),
    ),
    "lax.conv_general_dilated_local": (
        lambda x, y: lax.conv_general_dilated_local(
            x[:, None], local_kernel(y, x.shape[1] - 1), (1,), "VALID", (2,), precision=lax.Precision.HIGHEST
        )[:, 0],
        lambda x, y: x[:, :-1] * y[0, :-1] + x[:, 1:] * y[1, :-1],
    ),
}


def local_kernel(y, width):
    """Two taps per place of a row: [1, 2, width]."""
    return y[None, :2, :width]


ORDERS: dict[str, Member] = {
    "lexsort": (
        lambda x, y: jnp.lexsort((x, y), axis=1),
        lambda x, y: np.lexsort((x, y), axis=1),
    ),
    "argpartition": (
        lambda x, y: parted(taken(x, jnp.argpartition(x, 2, axis=1)), 2),
        lambda x, y: kth(x, 2),
    ),
    "partition": (lambda x, y: parted(jnp.partition(x, 2, axis=1), 2), lambda x, y: kth(x, 2)),
    "digitize": (
        lambda x, y: jnp.digitize(x, np.array([2, 4, 6])),
        lambda x, y: (x[..., None] >= np.array([2, 4, 6])).sum(axis=-1),
    ),
    "lax.sort_key_val": (
        lambda x, y: lax.sort_key_val(x, y, dimension=1),
        lambda x, y: tuple(np.take_along_axis(a, np.argsort(x, axis=1, kind="stable"), 1) for a in (x, y)),
    ),
    "lax.approx_max_k": (
        lambda x, y: lax.approx_max_k(x.astype(jnp.float32), 2, recall_target=1.0)[0],
        lambda x, y: -np.sort(-x, axis=1)[:, :2].astype(float),
    ),
    "lax.approx_min_k": (
        lambda x, y: lax.approx_min_k(x.astype(jnp.float32), 2, recall_target=1.0)[0],
        lambda x, y: np.sort(x, axis=1)[:, :2].astype(float),
    ),
    "histogram2d": (
        lambda x, y: jnp.histogram2d(x.reshape(-1), y.reshape(-1), [jnp.array(EDGES)] * 2)[0],
        lambda x, y: counted(x, y, BINS).astype(float),
    ),
    "histogramdd": (
        lambda x, y: jnp.histogramdd(jnp.stack((x, y), -1).reshape(-1, 2), [jnp.array(EDGES)] * 2)[0],
        lambda x, y: counted(x, y, BINS).astype(float),
    ),
    "histogram_bin_edges": (
        lambda x, y: jnp.histogram_bin_edges(x, bins=8, range=(0, 8)),
        lambda x, y: np.arange(9.0),
    ),
    "argwhere": (
        lambda x, y: jnp.argwhere(x > 7, size=5, fill_value=-1),
        lambda x, y: np.stack([filled(a, 5) for a in np.nonzero(x > 7)], axis=1),
    ),
    "flatnonzero": (
        lambda x, y: jnp.flatnonzero(x > 7, size=5, fill_value=-1),
        lambda x, y: filled(np.nonzero(x.reshape(-1) > 7)[0], 5),
    ),
}

SETTLED: dict[str, Member] = {
    "setdiff1d": (
        lambda x, y: jnp.setdiff1d(x, y[0, :SMALL], size=SETS, fill_value=-1),
        lambda x, y: filled(sorted(set(x.ravel().tolist()) - set(y[0, :SMALL].tolist())), SETS),
    ),
    "union1d": (
        lambda x, y: jnp.union1d(x, y + 1, size=SETS, fill_value=-1),
        lambda x, y: filled(sorted({*x.ravel().tolist(), *(y + 1).ravel().tolist()}), SETS),
    ),
    "intersect1d": (
        lambda x, y: jnp.intersect1d(x, y + 5, size=SETS, fill_value=-1),
        lambda x, y: filled(sorted(set(x.ravel().tolist()) & set((y + 5).ravel().tolist())), SETS),
    ),
    "setxor1d": (
        lambda x, y: jnp.setxor1d(x, y + 5, size=SETS, fill_value=-1),
        lambda x, y: filled(sorted(set(x.ravel().tolist()) ^ set((y + 5).ravel().tolist())), SETS),
    ),
    "isin": (
        lambda x, y: jnp.isin(x, y[0, :2]),
        lambda x, y: (x[..., None] == y[0, :2]).any(axis=-1),
    ),
    "unique_values": (
        lambda x, y: jnp.unique_values(x, size=SETS, fill_value=-1),
        lambda x, y: filled(uniques(x)[0], SETS),
    ),
    "unique_counts": (
        lambda x, y: jnp.unique_counts(x, size=SETS, fill_value=-1),
        lambda x, y: (filled(uniques(x)[0], SETS), filled(uniques(x)[2], SETS, 0)),
    ),
    "unique_inverse": (
        lambda x, y: jnp.unique_inverse(x, size=SETS, fill_value=99),
        lambda x, y: (filled(uniques(x)[0], SETS, 99), uniques(x)[3]),
    ),
    "unique_all": (
        lambda x, y: jnp.unique_all(x, size=SETS, fill_value=99)[2:],
        lambda x, y: (uniques(x)[3], filled(uniques(x)[2], SETS, 0)),
    ),
}

NEWER: dict[str, dict[str, Member]] = {
    "minmax": {
        "minmax": (
            lambda x, y: newer(jnp, "minmax")(x, axis=0),
            lambda x, y: (x.min(axis=0), x.max(axis=0)),
        )
    },
    "top_k": {
        "top_k": (
            lambda x, y: newer(jnp, "top_k")(x, 2, axis=1)[0],
            lambda x, y: -np.sort(-x, axis=1)[:, :2],
        )
    },
    "one_minus_square": {
        "lax.one_minus_square": (
            lambda x, y: newer(lax, "one_minus_square")(x.astype(jnp.float32)),
            lambda x, y: 1.0 - x * x,
        )
    },
    "polynomial": {
        "lax.polynomial": (
            lambda x, y: newer(lax, "polynomial")(x.astype(jnp.float32), (3.0, 2.0, 1.0)),
            lambda x, y: 3.0 + 2.0 * x + x * x,
        )
    },
    "polyval": {
        "polyval": (
            lambda x, y: (jnp.polyval(x[0, :SMALL], y), jnp.polyval(x[0, :SMALL], 2)),
            lambda x, y: (polynomial_at(x[0, :SMALL], y), polynomial_at(x[0, :SMALL], np.array(2))),
        )
    },
    "mulhi": {
        "lax.mulhi": (
            lambda x, y: lax.mulhi(x.astype(jnp.int32) * 2**28, y.astype(jnp.int32) * 2**27),
            lambda x, y: wrapped(x, 28) * wrapped(y, 27) // 2**32,
        )
    },
}
"""Functions that some release or backend lacks, each in a group of its own."""

EXACT: Groups = {
    "reduced": REDUCED,
    "bitwise": BITWISE,
    "running": RUNNING,
    "products": PRODUCTS,
    "orders": ORDERS,
    "sets": SETTLED,
    "bits": BITS,
    "numbers": NUMBERS,
    "questions": QUESTIONS,
    "scattered": SCATTERED,
    **NEWER,
}


class ExactFunctions(Catalogue):
    """Reductions, products, sets, orders, counts and predicates of whole numbers, whose results are exact."""

    name = "exact_functions"
    family = "reductions"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")
    groups = EXACT
    rare = tuple(NEWER)
    fill: ClassVar[Any] = (values.tokens, {"below": 9})

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        return in_jax(EXACT[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(EXACT[group], x, y, names)
