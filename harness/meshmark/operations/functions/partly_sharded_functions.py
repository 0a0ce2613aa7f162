# SPDX-License-Identifier: Apache-2.0
"""Functions of one matrix for `partly_sharded`, each in JAX and in NumPy. The results are exact.

The elements of the matrix are distinct: whole numbers, or whole numbers plus a half. It has at least five rows and five
columns. No function relies on sizes that the devices divide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def both(function: Callable[..., Any]) -> Pair:
    """(JAX function, NumPy function) from one function whose first argument is the module."""
    return lambda x: function(jnp, x), lambda x: function(np, x)


def signs(m: Any, x: Any) -> Any:
    """1, -1 or 2 for each element. Products of them are exact."""
    return m.where(x % 5 == 0, 2.0, m.where(x % 3 == 0, -1.0, 1.0))


# Cumulative functions.


def affine(x: Any) -> Any:
    """The maps y -> a y + b of the rows, composed from the first row on by an associative scan. a is 1 - 2 (x mod 2),
    and b is x mod 7."""

    def then(f, g):
        return f[0] * g[0], f[1] * g[0] + g[1]

    return lax.associative_scan(then, (1 - 2 * (x % 2), x % 7))[1]


def affine_loop(x: Any) -> Any:
    """`affine` in NumPy, row by row."""
    found, total = [], np.zeros(x.shape[1])
    for row in x:
        total = total * (1 - 2 * (row % 2)) + row % 7
        found.append(total)
    return np.stack(found)


def halved_sums(x: Any) -> Any:
    """Running sums of numbers below three, in bfloat16. Each row has the sum of the rows before it."""
    small = (x % 3).astype(jnp.bfloat16)
    return lax.scan(lambda c, row: (c + row, c), 0 * small[0], small)[1].astype(jnp.float32)


RUNNING: dict[str, Pair] = {
    "cumsum_back": (
        lambda x: lax.cumsum(x, axis=0, reverse=True),
        lambda x: np.cumsum(x[::-1], axis=0)[::-1],
    ),
    "cumsum_columns": both(lambda m, x: m.cumsum(x, axis=1)),
    "cumprod_back": (
        lambda x: lax.cumprod(signs(jnp, x) % 3 - 1, axis=0, reverse=True),
        lambda x: np.cumprod((signs(np, x) % 3 - 1)[::-1], axis=0)[::-1],
    ),
    "cummax_back": (
        lambda x: lax.cummax(x % 11, axis=1, reverse=True),
        lambda x: np.maximum.accumulate((x % 11)[:, ::-1], axis=1)[:, ::-1],
    ),
    "cummin": (lambda x: lax.cummin(x, axis=0), lambda x: np.minimum.accumulate(x, axis=0)),
    "associative_scan": (
        lambda x: lax.associative_scan(lax.add, x, axis=0, reverse=True),
        lambda x: np.cumsum(x[::-1], axis=0)[::-1],
    ),
    "associative_columns": (
        lambda x: lax.associative_scan(lax.max, x, axis=1),
        lambda x: np.maximum.accumulate(x, axis=1),
    ),
    "affine": (affine, affine_loop),
    "halved_sums": (halved_sums, lambda x: np.cumsum(x % 3, axis=0) - x % 3),
    "diff": both(lambda m, x: m.diff(x, n=2, axis=0)),
    "flat_cumsum": both(lambda m, x: m.cumsum(x % 16)),
    "trapezoid": both(lambda m, x: m.trapezoid(2 * x, axis=0)),
    "scan": (
        lambda x: lax.scan(lambda c, row: (2 * row - c, c + row), x[0], x, reverse=True)[1],
        lambda x: running_back(x),
    ),
    "nancumsum": both(lambda m, x: m.nancumsum(m.where(x % 4 == 0, m.nan, x), axis=0)),
}
"""Along each dimension, in both directions."""


def running_back(x: Any) -> Any:
    """The reversed `scan` in NumPy: a loop from the last row to the first."""
    carried, found = x[0], []
    for row in x[::-1]:
        found.append(carried + row)
        carried = 2 * row - carried
    return np.stack(found[::-1])


# Orders.


def tied(m: Any, x: Any) -> Any:
    """Numbers with many ties."""
    return x % 4


def two_keys(x: Any) -> Any:
    """Each column of x sorted by `tied` and then by descending row: the keys, the rows and the elements."""
    row = lax.broadcasted_iota(jnp.float32, x.shape, 0)
    first, second, third = lax.sort((tied(jnp, x), -row, x), dimension=0, num_keys=2)
    return first, -second, third


def two_keys_in_numpy(x: Any) -> Any:
    """`two_keys` in NumPy."""
    row = np.broadcast_to(np.arange(len(x))[:, None], x.shape)
    order = np.lexsort((-row, tied(np, x)), axis=0)
    return tuple(np.take_along_axis(a, order, axis=0) for a in (tied(np, x), row, x))


def largest(x: Any, k: int, dim: int) -> Any:
    """The k largest elements along a dimension, the largest first, and their indices."""
    order = np.argsort(-x, axis=dim, kind="stable").take(range(k), axis=dim)
    return np.take_along_axis(x, order, axis=dim), order


def largest_rows(x: Any) -> Any:
    """The three largest elements of each column, and their rows."""
    values, places = lax.top_k(x.T, 3)
    return values.T, places.T


ORDERS: dict[str, Pair] = {
    "sort": both(lambda m, x: m.sort(x, axis=0)),
    "sort_downward": (
        lambda x: jnp.sort(x, axis=1, descending=True),
        lambda x: -np.sort(-x, axis=1),
    ),
    "argsort_downward": (
        lambda x: jnp.argsort(tied(jnp, x), axis=0, stable=True, descending=True),
        lambda x: np.argsort(-tied(np, x), axis=0, kind="stable"),
    ),
    "two_keys": (two_keys, two_keys_in_numpy),
    "top_k": (lambda x: lax.top_k(x, 3), lambda x: largest(x, 3, 1)),
    "top_rows": (largest_rows, lambda x: largest(x, 3, 0)),
    "argmax": both(lambda m, x: m.argmax(tied(m, x), axis=0)),
    "argmin": both(lambda m, x: m.argmin(tied(m, x), axis=1)),
    "argmax_of_all": both(lambda m, x: m.argmax(x)),
    "median": both(lambda m, x: m.median(x, axis=0)),
    "percentile": both(lambda m, x: m.percentile(x, 35, axis=0, method="lower")),
    "quantile_of_all": both(lambda m, x: m.quantile(x, 0.65, method="nearest")),
    "lexsort": both(lambda m, x: m.lexsort((x[:, 1], tied(m, x[:, 0])))),
    "searchsorted": both(lambda m, x: m.searchsorted(m.sort(x[:, 0]), x[:, 1])),
    "digitize": both(lambda m, x: m.digitize(x, m.array([3.0, 9.0, 27.0, 81.0]))),
    "unique": (
        lambda x: jnp.unique(x % 9, size=12, fill_value=-1),
        lambda x: np.pad(np.unique(x % 9), (0, 12 - len(np.unique(x % 9))), constant_values=-1),
    ),
    "in_order": both(lambda m, x: x[m.argsort(x[:, 0])]),
    "partition": (
        lambda x: jnp.sort(jnp.partition(x, 2, axis=0)[:3], axis=0),
        lambda x: np.sort(x, axis=0)[:3],
    ),
}
"""Sorts, places, ranks and quantiles."""


# Reductions.


def first_largest(x: Any) -> Any:
    """The largest element of each column and its first row, by a reduction of two operands."""
    row = lax.broadcasted_iota(jnp.int32, x.shape, 0)

    def of_two(p, q):
        before = (p[0] > q[0]) | ((p[0] == q[0]) & (p[1] < q[1]))
        return jnp.where(before, p[0], q[0]), jnp.where(before, p[1], q[1])

    return lax.reduce((tied(jnp, x), row), (np.float32(-1), np.int32(999)), of_two, (0,))


def windows_of_two(x: Any) -> Any:
    """The largest element of each window of three rows, and the element of 2 x + 1 there, by a reduction of two
    operands."""
    other = 2 * x + 1

    def of_two(p, q):
        return jnp.where(p[0] >= q[0], p[0], q[0]), jnp.where(p[0] >= q[0], p[1], q[1])

    return lax.reduce_window(
        (x, other), (np.float32(-1), np.float32(-1)), of_two, (3, 1), (1, 1), ((1, 1), (0, 0))
    )


def window_maxima(x: Any) -> Any:
    """`windows_of_two` in NumPy."""
    wide = np.pad(x, ((1, 1), (0, 0)), constant_values=-1)
    found = np.max([wide[:-2], wide[1:-1], wide[2:]], axis=0)
    return found, 2 * found + 1


def holed(m: Any, x: Any) -> Any:
    """x with NaN where x mod 7 is 1."""
    return m.where(x % 7 == 1, m.nan, x)


def narrow(m: Any, x: Any) -> Any:
    """x - 60 as int8, of x modulo 128: what lies beyond the dtype has no defined cast."""
    return (x % 128 - 60).astype(m.int8)


REDUCED: dict[str, Pair] = {
    "two_operands": (
        first_largest,
        lambda x: (tied(np, x).max(axis=0), tied(np, x).argmax(axis=0)),
    ),
    "windows_of_two": (windows_of_two, window_maxima),
    "sums_of_windows": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 3), (1, 1), ((1, 0), (0, 2))),
        lambda x: sums_of_windows(x),
    ),
    "nansum": both(lambda m, x: m.nansum(holed(m, x), axis=0)),
    "nanmax": both(lambda m, x: m.nanmax(holed(m, x), axis=1)),
    "nanargmax": both(lambda m, x: m.nanargmax(holed(m, x), axis=0)),
    "sum_int8": both(lambda m, x: m.sum(narrow(m, x), axis=0, dtype=m.int8)),
    "max_uint8": both(lambda m, x: m.max((2 * x % 256).astype(m.uint8), axis=0)),
    "min_int8": both(lambda m, x: m.min(narrow(m, x), axis=1)),
    "all": both(lambda m, x: m.all(x > 3, axis=0)),
    "any": both(lambda m, x: m.any(x % 17 == 0, axis=1)),
    "count_nonzero": both(lambda m, x: m.count_nonzero(x % 3, axis=0)),
    "prod": both(lambda m, x: m.prod(signs(m, x), axis=1)),
    "ptp": both(lambda m, x: m.ptp(x, axis=0)),
    "sum_where": both(lambda m, x: m.sum(x, axis=0, where=x % 2 == 0, initial=5)),
    "max_where": both(lambda m, x: m.max(x, axis=1, where=x < 40, initial=-3)),
    "sum_bfloat16": (
        lambda x: jnp.sum((x % 2).astype(jnp.bfloat16), axis=0).astype(jnp.float32),
        lambda x: (x % 2).sum(axis=0),
    ),
    "norm": both(lambda m, x: m.linalg.norm(x, ord=1)),
}
"""By one and two operands, of few bits, with masks and windows."""


def sums_of_windows(x: Any) -> Any:
    """The sums of windows [2, 3] in NumPy, with padding before the first row and after the last column."""
    wide = np.pad(x, ((1, 0), (0, 2)))
    rows = wide[:-1] + wide[1:]
    return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]


# Reads.


def ends(m: Any, x: Any) -> Any:
    """A row index per row, which depends on the data. Some rows may occur twice."""
    return (x[:, 0] % len(x)).astype(m.int32)


def columns_of(m: Any, x: Any) -> Any:
    """A column index per element, which depends on the data."""
    return (x % x.shape[1]).astype(m.int32)


def batched_read(x: Any) -> Any:
    """Two elements of each row, by a gather with the rows as batch dimension."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(1,),
        collapsed_slice_dims=(),
        start_index_map=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )
    return lax.gather(x, columns_of(jnp, x)[:, :1], numbers, (1, 2), mode="clip")


def two_from(x: Any) -> Any:
    """`batched_read` in NumPy. The first index is clipped."""
    first = np.clip(columns_of(np, x)[:, 0], 0, x.shape[1] - 2)
    return np.take_along_axis(x, first[:, None] + np.arange(2), axis=1)


READS: dict[str, Pair] = {
    "rows": both(lambda m, x: x[ends(m, x)]),
    "elements": both(lambda m, x: x[ends(m, x), columns_of(m, x)[:, 0]]),
    "take_along_rows": both(lambda m, x: m.take_along_axis(x, columns_of(m, x), axis=1)),
    "take_along_columns": both(lambda m, x: m.take_along_axis(x, (x[::-1] % len(x)).astype(m.int32), axis=0)),
    "clip": (
        lambda x: jnp.take(x, ends(jnp, x) * 2 - 3, axis=0, mode="clip"),
        lambda x: np.take(x, ends(np, x) * 2 - 3, axis=0, mode="clip"),
    ),
    "wrap": both(lambda m, x: m.take(x, ends(m, x) * 2 - 3, axis=0, mode="wrap")),
    "fill": (
        lambda x: x.at[ends(jnp, x) * 2].get(mode="fill", fill_value=-7),
        lambda x: np.where(
            (ends(np, x) * 2 < len(x))[:, None], x[np.minimum(ends(np, x) * 2, len(x) - 1)], -7
        ),
    ),
    "negative": both(lambda m, x: x[-1 - ends(m, x)]),
    "batched": (batched_read, two_from),
    "of_a_batch": (
        lambda x: jax.vmap(lambda row, k: lax.dynamic_slice(row, (k,), (2,)))(x, columns_of(jnp, x)[:, 0]),
        two_from,
    ),
    "dynamic_slice": (
        lambda x: lax.dynamic_slice(x, (ends(jnp, x)[0] % 3, 1), (3, 3)),
        lambda x: x[ends(np, x)[0] % 3 :][:3, 1:4],
    ),
    "dynamic_row": (
        lambda x: lax.dynamic_index_in_dim(x, ends(jnp, x)[1], axis=0, keepdims=False),
        lambda x: x[ends(np, x)[1]],
    ),
    "rolled_by_data": both(lambda m, x: m.roll(x, -ends(m, x)[2], axis=0)),
    "rolled_back": both(lambda m, x: m.roll(x, (-3, 2), axis=(0, 1))),
    "every_third": both(lambda m, x: x[1::3]),
    "downward": both(lambda m, x: x[::-2, ::-1]),
    "diagonal": both(lambda m, x: m.diagonal(x, 1)),
    "triangle": both(lambda m, x: m.where(m.tri(*x.shape, 1) > 0, x, -x)),
    "choose": both(lambda m, x: m.where(x % 2 == 0, x[::-1], m.roll(x, 1, axis=1))),
    "select_n": (
        lambda x: lax.select_n(x.astype(jnp.int32) % 3, x, -x, x[::-1]),
        lambda x: np.choose(x.astype(np.int64) % 3, (x, -x, x[::-1])),
    ),
    "compress": (
        lambda x: jnp.compress(np.arange(5) % 2 == 0, x, axis=0, size=3),
        lambda x: np.compress(np.arange(5) % 2 == 0, x, axis=0),
    ),
    "extract": (
        lambda x: jnp.extract(x % 3 == 0, x, size=9, fill_value=-1),
        lambda x: np.pad(x[x % 3 == 0], (0, 9), constant_values=-1)[:9],
    ),
    "nonzero": (
        lambda x: jnp.nonzero(x % 5 == 0, size=7, fill_value=-1),
        lambda x: tuple(np.pad(p, (0, 7), constant_values=-1)[:7] for p in np.nonzero(x % 5 == 0)),
    ),
}
"""By places that follow from the data, in each mode; slices in both directions; choices."""

Functions = Mapping[str, Pair]
