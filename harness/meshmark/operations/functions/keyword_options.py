# SPDX-License-Identifier: Apache-2.0
"""Options of functions of whole arrays that have no other case: kept dimensions, masks and initial values of
reductions, dtypes of results, axes, orders, edge cases, promises about indices, numbers of few bits. One program
computes a group (`catalogue`).

A fault of one option shows only in a case that sets that option. `python -m tests.studies.options` traces the programs
of the table and lists the options of public functions that no program sets.

Arguments are whole numbers from 0 to 8. Results are exact: whole numbers, or quotients by powers of two. If a function
divides by another number, the program rounds a multiple of its result to the nearest whole number.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.operations.functions.catalogue import Catalogue, Groups, Member, both, in_jax, in_numpy


def holed(m: Any, x: Any) -> Any:
    """x with NaN in place of 3. The first row has no NaN."""
    return m.where((x == 3) & (m.arange(len(x)) > 0)[:, None], m.nan, x)


def signs(m: Any, x: Any) -> Any:
    """1 for even elements of x, -1 for odd ones."""
    return 1 - 2 * (x % 2)


def rank(m: Any, x: Any) -> Any:
    """Numbers of the shape of x that differ within each row and column: the flat indices times 5, modulo the size."""
    rows, columns = x.shape
    return (m.arange(rows * columns) * 5 % (rows * columns)).reshape(x.shape) + 0 * x


# Dimensions that reductions keep.


KEPT: dict[str, Member] = {
    "all": both(lambda m, x, y: m.all(x > 0, axis=0, keepdims=True)),
    "any": both(lambda m, x, y: m.any(x > 7, axis=1, keepdims=True)),
    "argmax": both(lambda m, x, y: m.argmax(x, axis=0, keepdims=True)),
    "argmin": both(lambda m, x, y: m.argmin(x, axis=-1, keepdims=True)),
    "nanargmax": both(lambda m, x, y: m.nanargmax(holed(m, x), axis=0, keepdims=True)),
    "nanargmin": both(lambda m, x, y: m.nanargmin(holed(m, x), axis=0, keepdims=True)),
    "count_nonzero": both(lambda m, x, y: m.count_nonzero(x, axis=(0, 1), keepdims=True)),
    "median": both(lambda m, x, y: m.median(x, axis=0, keepdims=True)),
    "nanmedian": both(lambda m, x, y: m.nanmedian(holed(m, x)[:1], axis=0, keepdims=True)),
    "nanmax": both(lambda m, x, y: m.nanmax(holed(m, x), axis=0, keepdims=True)),
    "nanmin": both(lambda m, x, y: m.nanmin(holed(m, x), axis=-2, keepdims=True)),
    "nansum": both(lambda m, x, y: m.nansum(holed(m, x), axis=1, keepdims=True)),
    "nanprod": both(lambda m, x, y: m.nanprod(holed(m, signs(m, x)), axis=0, keepdims=True)),
    "nanmean": both(
        lambda m, x, y: m.nanmean(m.where(m.arange(len(x)) < 4, x.T, m.nan), axis=1, keepdims=True)
    ),
    "ptp": both(lambda m, x, y: m.ptp(x, axis=0, keepdims=True)),
    "quantile": both(lambda m, x, y: m.quantile(x, 0.65, axis=0, method="nearest", keepdims=True)),
    "percentile": both(lambda m, x, y: m.percentile(x, 35, axis=0, method="lower", keepdims=True)),
    "norm": both(lambda m, x, y: m.linalg.norm(x, ord=1, axis=0, keepdims=True)),
    "average": both(lambda m, x, y: m.average(x[:, :4], axis=1, keepdims=True)),
    "average_and_weight": both(lambda m, x, y: m.average(x[:, :4], axis=1, returned=True)),
    "logsumexp": (
        lambda x, y: jax.nn.logsumexp(
            jnp.where(x == 3, -jnp.inf, 0.0 * x)[:1] + y[:1, :1], axis=0, keepdims=True
        ),
        lambda x, y: np.where(x == 3, -np.inf, 0.0 * x)[:1] + y[:1, :1],
    ),
}


# Masks, initial values and dtypes.


def varied(m: Any, x: Any) -> Any:
    """The first five columns."""
    return x[:, :5]


FILTERED: dict[str, Member] = {
    "all": both(lambda m, x, y: m.all(x > 2, axis=1, where=y > 6)),
    "amax": both(lambda m, x, y: m.amax(x, axis=0, where=y > 4, initial=-3)),
    "amin": both(lambda m, x, y: m.amin(x, axis=1, where=y > 4, initial=77)),
    "prod": both(lambda m, x, y: m.prod(signs(m, x), axis=0, where=y > 4, initial=-3)),
    "nanmax": both(lambda m, x, y: m.nanmax(holed(m, x), axis=0, where=y > 4, initial=-3)),
    "nanmin": both(lambda m, x, y: m.nanmin(holed(m, x), axis=1, where=y > 4, initial=77)),
    "nansum": both(lambda m, x, y: m.nansum(holed(m, x), axis=1, where=y > 4, initial=5)),
    "nanprod": both(lambda m, x, y: m.nanprod(holed(m, signs(m, x)), axis=0, where=y > 4, initial=-2)),
    "nanmean": both(lambda m, x, y: m.nanmean(x, axis=0, where=(m.arange(len(x)) < 4)[:, None])),
    "var_corrected": both(lambda m, x, y: m.rint(20 * m.var(varied(m, x), axis=1, ddof=1))),
    "std_corrected": both(
        lambda m, x, y: m.rint(20 * m.std(varied(m, x), axis=1, ddof=1, keepdims=True) ** 2)
    ),
    "std_masked": both(lambda m, x, y: m.rint(36 * m.std(y[:, :4], axis=1, where=m.arange(4) != 1) ** 2)),
    "nanvar": both(lambda m, x, y: m.rint(20 * m.nanvar(varied(m, x), axis=1, ddof=1, keepdims=True))),
    "nanstd": both(lambda m, x, y: m.rint(36 * m.nanstd(x[:, :4], axis=1, where=m.arange(4) != 2) ** 2)),
    "sum_of_bytes": (
        lambda x, y: jnp.sum((31 * x).astype(jnp.uint8), axis=0, promote_integers=False) // 2,
        lambda x, y: np.sum((31 * x).astype(np.uint8), axis=0, dtype=np.uint8) // 2,
    ),
    "prod_of_bytes": (
        lambda x, y: jnp.prod((1 + 2 * x).astype(jnp.uint8), axis=1, promote_integers=False) // 2,
        lambda x, y: np.prod((1 + 2 * x).astype(np.uint8), axis=1, dtype=np.uint8) // 2,
    ),
    "cumprod": both(lambda m, x, y: m.cumprod(signs(m, x) * 1.5 + 0.25, axis=0, dtype=m.int32)),
    "nancumprod": both(lambda m, x, y: m.nancumprod(signs(m, x), axis=1, dtype=m.int32)),
    "concatenate": (
        lambda x, y: jnp.concatenate([x + 0.5, y], axis=1, dtype=jnp.int32),
        lambda x, y: np.concatenate([x, y], axis=1).astype(np.int32),
    ),
    "stack": (
        lambda x, y: jnp.stack([x + 0.5, y], axis=1, dtype=jnp.int32),
        lambda x, y: np.stack([x, y], axis=1).astype(np.int32),
    ),
    "trace": both(lambda m, x, y: m.trace(x, offset=-1, dtype=m.int32)),
    "mean": both(lambda m, x, y: m.mean((31 * x[:4]).astype(m.uint8), axis=0, dtype=m.float32)),
    "standardize": (
        lambda x, y: jnp.rint(jax.nn.standardize(x[:, :4] * 0 + jnp.array([0.0, 2, 0, 2]), epsilon=0.0)),
        lambda x, y: np.broadcast_to(np.array([-1.0, 1, -1, 1]), (len(x), 4)),
    ),
}


# Axes and orders.


def at_places(x: Any, places: Any) -> Any:
    """The elements of x at (rows, columns), both taken modulo the shape."""
    rows, columns = places
    return x[rows % x.shape[0], columns % x.shape[1]]


AXES: dict[str, Member] = {
    "diag": both(lambda m, x, y: m.diag(x[0], k=2)[: x.shape[1]]),
    "diag_below": both(lambda m, x, y: m.diag(x, k=-1)),
    "diagflat": both(lambda m, x, y: m.diagflat(x[:2, :3], k=-1)),
    "diagonal": both(lambda m, x, y: m.diagonal(m.stack([x, y]), 1, axis1=2, axis2=0)),
    "trace": both(lambda m, x, y: m.trace(m.stack([x, y]), axis1=1, axis2=-1)),
    "cross": both(lambda m, x, y: m.cross(x[:3], y[:3], axisa=0, axisb=0, axisc=0)),
    "cross_to_the_end": both(
        lambda m, x, y: m.cross(x[:, :3], y[:3].T[: len(x)][:1], axisa=1, axisb=-1, axisc=0)
    ),
    "rollaxis": both(lambda m, x, y: m.rollaxis(m.stack([x, y]), 2, start=1)),
    "rot90": both(lambda m, x, y: m.rot90(m.stack([x, y]), k=3, axes=(2, 1))),
    "rot90_twice": both(lambda m, x, y: m.rot90(x, k=2)),
    "squeeze": both(lambda m, x, y: m.squeeze(x[:1, :, None], axis=(0, 2))),
    "unstack": (
        lambda x, y: jnp.unstack(x[:, :3], axis=1),
        lambda x, y: (x[:, 0], x[:, 1], x[:, 2]),
    ),
    "array_split": both(lambda m, x, y: m.array_split(x, 3, axis=1)),
    "lax.split": (
        lambda x, y: lax.split(x, (1, x.shape[1] - 1), axis=1),
        lambda x, y: (x[:, :1], x[:, 1:]),
    ),
    "lax.index_in_dim": (
        lambda x, y: (lax.index_in_dim(x, 1, axis=1, keepdims=False), lax.index_in_dim(x, -2, axis=0)),
        lambda x, y: (x[:, 1], x[-2:-1]),
    ),
    "lax.reshape": (
        lambda x, y: lax.reshape(x, (x.size,), dimensions=(1, 0)),
        lambda x, y: x.T.reshape(-1),
    ),
    "ravel": both(lambda m, x, y: m.ravel(x, order="F")),
    "reshape": both(lambda m, x, y: m.reshape(x, x.shape[::-1], order="F")),
    "meshgrid": both(lambda m, x, y: m.meshgrid(x[0], y[0, :3], indexing="ij")),
    "meshgrid_sparse": both(lambda m, x, y: m.meshgrid(x[0], y[0, :3], sparse=True)),
    "indices": both(lambda m, x, y: m.indices((3, 5), sparse=True)[1] * x[:1, :5]),
    "tril_indices": both(lambda m, x, y: at_places(x, m.tril_indices(4, -1, 6))),
    "triu_indices": both(lambda m, x, y: at_places(x, m.triu_indices(4, 1, 6))),
    "tril_indices_from": both(lambda m, x, y: at_places(x, m.tril_indices_from(x[:4, :4], 1))),
    "triu_indices_from": both(lambda m, x, y: at_places(x, m.triu_indices_from(x[:4, :4], -1))),
    "diag_indices": both(lambda m, x, y: m.stack([x, y])[m.diag_indices(2, ndim=3)]),
    "vander": both(lambda m, x, y: m.vander(x[0], 3, increasing=True)),
    "one_hot": (
        lambda x, y: jax.nn.one_hot(x[0].astype(jnp.int32), 7, axis=0),
        lambda x, y: (np.arange(7)[:, None] == x[0]) * 1.0,
    ),
    "polyint": both(lambda m, x, y: m.polyint(2 * x[0, :2], m=1, k=3)),
    "packbits": both(lambda m, x, y: m.packbits(x[:, :8] > 4, axis=0, bitorder="little")),
    "unpackbits": both(lambda m, x, y: m.unpackbits(x.astype(m.uint8), axis=1, count=11, bitorder="little")),
    "lexsort": both(lambda m, x, y: m.lexsort((y, x), axis=0)),
}


# Edge cases of functions.


def put_rows(m: Any, x: Any, mode: Any) -> Any:
    """x with four numbers put at flat indices, two of them out of range. Clipped, the last two are one index: they get
    one number, since JAX does not say which of two numbers stays."""
    places = [1, x.size + 2, -3, 5 - x.size * 2]
    numbers = [11.0, 12, 14 if mode == "clip" else 13, 14]
    if m is np:
        found = np.array(x)
        np.put(found, places, numbers, mode=mode)
        return found
    return jnp.put(x, jnp.array(places), jnp.array(numbers), mode=mode, inplace=False)


def unique_parts(m: Any, x: Any) -> Any:
    """The results of `unique`: the distinct elements, their first indices, the inverse and the counts."""
    few = x[0] % 3
    if m is np:
        found, first, back, count = np.unique(few, return_index=True, return_inverse=True, return_counts=True)
        wide = (0, 4 - len(found))
        return (
            np.pad(found, wide, constant_values=found[0]),
            np.pad(first, wide, constant_values=first[0]),
            back.reshape(-1),
            np.pad(count, wide),
        )
    return jnp.unique(few, return_index=True, return_inverse=True, return_counts=True, size=4)


EDGES: dict[str, Member] = {
    "diff": both(lambda m, x, y: m.diff(x, axis=0, prepend=y[:2], append=y[:1])),
    "ediff1d": both(lambda m, x, y: m.ediff1d(x, to_begin=m.array([9.0, 7]), to_end=m.array([5.0]))),
    "gradient": both(lambda m, x, y: m.gradient(2 * x, 2.0, axis=1)),
    "trapezoid": both(lambda m, x, y: m.trapezoid(2 * x, dx=3.0, axis=0)),
    "trapezoid_at": both(lambda m, x, y: m.trapezoid(2 * x[0], m.cumsum(y[0]))),
    "digitize": both(lambda m, x, y: m.digitize(x, m.array([2.0, 4, 6]), right=True)),
    "searchsorted": (
        lambda x, y: jnp.searchsorted(jnp.array([7.0, 1, 4]), x, sorter=jnp.array([1, 2, 0])),
        lambda x, y: np.searchsorted(np.array([1.0, 4, 7]), x),
    ),
    "searchsorted_all": (
        lambda x, y: jnp.searchsorted(jnp.array([1.0, 4, 4, 7]), x, method="compare_all"),
        lambda x, y: np.searchsorted(np.array([1.0, 4, 4, 7]), x),
    ),
    "interp": both(
        lambda m, x, y: m.interp(x[0], m.array([0.0, 1, 2, 3]), m.array([4.0, 8, 0, 6]), period=4)
    ),
    "isin": both(lambda m, x, y: m.isin(x, m.array([1.0, 5]), invert=True)),
    "isclose": both(lambda m, x, y: m.isclose(x, y, rtol=0.0, atol=1.5)),
    "isclose_to_nan": both(lambda m, x, y: m.isclose(holed(m, x), holed(m, x), equal_nan=True)),
    "allclose": both(lambda m, x, y: m.allclose(x, y, rtol=0.0, atol=8.5)),
    "bincount": (
        lambda x, y: jnp.bincount(x[0].astype(jnp.int32), weights=y[0], minlength=12, length=12),
        lambda x, y: np.bincount(x[0].astype(int), weights=y[0], minlength=12),
    ),
    "histogram": both(lambda m, x, y: m.histogram(x, bins=3, range=(0.0, 9.0), weights=y)[0]),
    "cov": both(lambda m, x, y: m.rint(9 * 4 * m.cov(x[:, :4].T[:, :9], rowvar=False, bias=True)[:3, :3])),
    "put_clip": both(lambda m, x, y: put_rows(m, x, "clip")),
    "put_wrap": both(lambda m, x, y: put_rows(m, x, "wrap")),
    "ravel_multi_index": both(
        lambda m, x, y: m.ravel_multi_index(
            (x[0].astype(m.int32), y[0].astype(m.int32)), (9, 7), mode="wrap", order="F"
        )
    ),
    "unique": both(lambda m, x, y: unique_parts(m, x)),
    "compress": (
        lambda x, y: jnp.compress(np.arange(3) == 1, x, axis=0, size=3, fill_value=-7),
        lambda x, y: np.concatenate([x[1:2], 0 * x[:2] - 7]),
    ),
    "where": (
        lambda x, y: jnp.where(x[0] > 6, size=5, fill_value=-1)[0],
        lambda x, y: np.pad(np.nonzero(x[0] > 6)[0], (0, 5), constant_values=-1)[:5],
    ),
    "round": both(lambda m, x, y: m.rint(100 * m.round(x * 25 + 13, decimals=-2))),
    "angle": both(lambda m, x, y: m.angle(1.0 - x, deg=True)),
    "unwrap": both(lambda m, x, y: m.unwrap(x[0] % 5, period=4)),
    "nan_to_num": both(lambda m, x, y: m.nan_to_num(holed(m, x) / (x != 5), nan=-2.0, posinf=77.0)),
    "elu": (
        lambda x, y: tuple(
            f(x - 4) for f in (lambda v: jax.nn.leaky_relu(v, 0.25), lambda v: jax.nn.squareplus(v, 0))
        ),
        lambda x, y: (np.where(x > 4, x - 4, (x - 4) / 4), np.maximum(x - 4, 0)),
    ),
}


# Promises about indices, and orders of equal keys.


def of_rows(x: Any, size: int) -> Any:
    """The row indices 0, 2, 4, ...: sorted and unique."""
    return np.arange(0, 2 * size, 2)


def halved(m: Any, x: Any) -> Any:
    """The segment of each row, in ascending order. Each segment has two rows."""
    return m.arange(len(x)) // 2


def added(x: Any, y: Any) -> Any:
    """x with the first rows of y added to rows 0, 2 and 4."""
    found = x.copy()
    found[:6:2] += y[:3]
    return found


def summed(x: Any, count: int) -> Any:
    """The sums of the first `count` segments of two rows each."""
    return np.stack([x[2 * k] + x[2 * k + 1] for k in range(count)])


def in_order(x: Any) -> Any:
    """The order that sorts each row downward. Of equal elements the last comes first."""
    return x.shape[1] - 1 - np.argsort(-x[:, ::-1], axis=1, kind="stable")


PROMISES: dict[str, Member] = {
    "add": (
        lambda x, y: x.at[of_rows(x, 3)].add(y[:3], indices_are_sorted=True, unique_indices=True),
        added,
    ),
    "set_in_bounds": (
        lambda x, y: x.at[of_rows(x, 2)].set(y[:2], mode="promise_in_bounds", unique_indices=True),
        lambda x, y: np.concatenate([y[:1], x[1:2], y[1:2], x[3:]]),
    ),
    "get": (
        lambda x, y: x.at[of_rows(x, 3)].get(
            indices_are_sorted=True, unique_indices=True, mode="promise_in_bounds"
        ),
        lambda x, y: x[:6:2],
    ),
    "take": (
        lambda x, y: jnp.take(x, of_rows(x, 3), axis=0, unique_indices=True, indices_are_sorted=True),
        lambda x, y: x[:6:2],
    ),
    "take_along_axis": (
        lambda x, y: jnp.take_along_axis(
            x, jnp.where(y[:, :2] > 4, 999, 1).astype(jnp.int32), axis=1, mode="fill", fill_value=-5
        ),
        lambda x, y: np.where(y[:, :2] > 4, -5.0, x[:, 1:2]),
    ),
    "dynamic_slice": (
        lambda x, y: lax.dynamic_slice(x, (jnp.int32(1), jnp.int32(0)), (2, 3), allow_negative_indices=False),
        lambda x, y: x[1:3, :3],
    ),
    "segment_sum": (
        lambda x, y: jax.ops.segment_sum(
            x, halved(jnp, x), 3, indices_are_sorted=True, mode=jax.lax.GatherScatterMode.FILL_OR_DROP
        ),
        lambda x, y: summed(x, 3),
    ),
    "segment_sum_in_buckets": (
        lambda x, y: jax.ops.segment_sum(x, halved(jnp, x) % 3, 3, bucket_size=4),
        lambda x, y: np.stack([x[np.arange(len(x)) // 2 % 3 == k].sum(axis=0) for k in range(3)]),
    ),
    "segment_max": (
        lambda x, y: jax.ops.segment_max(x, halved(jnp, x), 3, indices_are_sorted=True),
        lambda x, y: np.stack([np.maximum(x[2 * k], x[2 * k + 1]) for k in range(3)]),
    ),
    "argsort": (
        lambda x, y: jnp.argsort(x % 3, axis=1, stable=True),
        lambda x, y: np.argsort(x % 3, axis=1, kind="stable"),
    ),
    "argsort_downward": (
        lambda x, y: jnp.argsort(x % 3, axis=0, stable=True, descending=True),
        lambda x, y: np.argsort(-(x % 3), axis=0, kind="stable"),
    ),
    "sort": (
        lambda x, y: jnp.sort(x, axis=1, stable=False, descending=True),
        lambda x, y: -np.sort(-x, axis=1),
    ),
    "lax.sort": (
        lambda x, y: lax.sort((rank(jnp, x), y), dimension=1, num_keys=1, is_stable=False),
        lambda x, y: (
            np.sort(rank(np, x), axis=1),
            np.take_along_axis(y, np.argsort(rank(np, x), axis=1), axis=1),
        ),
    ),
    "lax.sort_key_val": (
        lambda x, y: lax.sort_key_val(rank(jnp, x), y, dimension=0, is_stable=False),
        lambda x, y: (
            np.sort(rank(np, x), axis=0),
            np.take_along_axis(y, np.argsort(rank(np, x), axis=0), axis=0),
        ),
    ),
    "top_k": (
        lambda x, y: tuple(lax.top_k(x, 2, axis=0)),
        lambda x, y: (-np.sort(-x, axis=0)[:2], np.argsort(-x, axis=0, kind="stable")[:2]),
    ),
    "tensordot": both(lambda m, x, y: m.tensordot(x, y, axes=((0,), (0,)))),
    "fori_loop": (
        lambda x, y: lax.fori_loop(0, 5, lambda k, c: (c + k * x) % 64, y, unroll=2),
        lambda x, y: (y + 10 * x) % 64,
    ),
    "scan": (
        lambda x, y: lax.scan(lambda c, row: (c + row, c - row), y[0], x[:5], unroll=2),
        lambda x, y: (
            y[0] + x[:5].sum(axis=0),
            np.stack([y[0] + x[:k].sum(axis=0) - x[k] for k in range(5)]),
        ),
    ),
    "map": (
        lambda x, y: lax.map(lambda row: row[0] * row[1], (x[:5], y[:5]), batch_size=2),
        lambda x, y: x[:5] * y[:5],
    ),
    "convolve": (
        lambda x, y: jnp.convolve(x[0], y[0, :3], precision="highest", preferred_element_type=jnp.float32),
        lambda x, y: np.convolve(x[0], y[0, :3]),
    ),
    "cholesky": (
        lambda x, y: jnp.linalg.cholesky(jnp.eye(3) * 4 + 0 * x[:3, :3], upper=True),
        lambda x, y: np.eye(3) * 2,
    ),
    "eigvalsh": (
        lambda x, y: jnp.rint(
            jnp.linalg.eigvalsh(
                jnp.triu(jnp.ones((2, 2)) * 3) + 0 * x[:2, :2], UPLO="U", symmetrize_input=False
            )
        ),
        lambda x, y: np.array([0.0, 6]),
    ),
}


# Numbers of few bits, and signs of remainders.


def of_four_bits(x: Any) -> Any:
    """Numbers rounded to a significand of four bits, ties to even."""
    unit = 2.0 ** (np.frexp(x)[1] - 4)
    return np.rint(x / unit) * unit


def wide(m: Any, x: Any, y: Any) -> Any:
    """int32 numbers that use more than their lower 16 bits."""
    return (x * 70001 - y * 3).astype(m.int32)


BITS: dict[str, Member] = {
    "reduce_precision": (
        lambda x, y: lax.reduce_precision(x * 9 + 1, exponent_bits=8, mantissa_bits=3),
        lambda x, y: of_four_bits(x * 9 + 1),
    ),
    "rem": (
        lambda x, y: lax.rem(x - 4, y % 3 + 1),
        lambda x, y: np.fmod(x - 4, y % 3 + 1),
    ),
    "rem_of_integers": (
        lambda x, y: lax.rem((x - 4).astype(jnp.int8), (y % 3 - 5).astype(jnp.int8)),
        lambda x, y: np.fmod((x - 4).astype(np.int8), (y % 3 - 5).astype(np.int8)),
    ),
    "div_of_integers": (
        lambda x, y: lax.div((x - 4).astype(jnp.int32), (y % 3 + 2).astype(jnp.int32)),
        lambda x, y: np.trunc((x - 4) / (y % 3 + 2)).astype(np.int32),
    ),
    "floor_divide": both(
        lambda m, x, y: m.floor_divide((x - 4).astype(m.int16), (y % 3 - 4).astype(m.int16))
    ),
    "divmod": both(lambda m, x, y: m.divmod(x - 4, y % 3 - 4)),
    "halves": (
        lambda x, y: lax.bitcast_convert_type(wide(jnp, x, y), jnp.int16),
        lambda x, y: wide(np, x, y).view(np.int16).reshape(*x.shape, 2),
    ),
    "joined_halves": (
        lambda x, y: lax.bitcast_convert_type(
            jnp.stack([x, y], axis=-1).astype(jnp.int16).reshape(*x.shape, 2), jnp.int32
        ),
        lambda x, y: (x + 65536 * y).astype(np.int32),
    ),
    "shift_arithmetic": (
        lambda x, y: lax.shift_right_arithmetic((x * 31 - 124).astype(jnp.int8), (y % 4).astype(jnp.int8)),
        lambda x, y: (x * 31 - 124).astype(np.int8) >> (y % 4).astype(np.int8),
    ),
    "shift_logical": (
        lambda x, y: lax.shift_right_logical((x * 31 - 124).astype(jnp.int8), (y % 4 + 1).astype(jnp.int8)),
        lambda x, y: ((x * 31 - 124).astype(np.int8).view(np.uint8) >> (y % 4 + 1).astype(np.uint8)).view(
            np.int8
        ),
    ),
    "round_to_even": (
        lambda x, y: lax.round(x / 2 - 2, lax.RoundingMethod.TO_NEAREST_EVEN),
        lambda x, y: np.rint(x / 2 - 2),
    ),
    "round_away": (
        lambda x, y: lax.round(x / 2 - 2, lax.RoundingMethod.AWAY_FROM_ZERO),
        lambda x, y: np.sign(x / 2 - 2) * np.floor(np.abs(x / 2 - 2) + 0.5),
    ),
    "clamp": (
        lambda x, y: lax.clamp(y - 2, x, y + 1),
        lambda x, y: np.clip(x, y - 2, y + 1),
    ),
    "integer_pow": (
        lambda x, y: lax.integer_pow(2.0 ** (x - 4), -3),
        lambda x, y: (2.0 ** (x - 4)) ** -3,
    ),
}


KEYWORD_OPTIONS: Groups = {
    "kept": KEPT,
    "filtered": FILTERED,
    "axes": AXES,
    "edges": EDGES,
    "promises": PROMISES,
    "bits": BITS,
}


class KeywordOptions(Catalogue):
    """Options of functions of whole arrays: kept dimensions, masks, initial values, dtypes, axes, orders, edge cases
    and promises about indices."""

    name = "keyword_options"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    groups = KEYWORD_OPTIONS
    fill: ClassVar[Any] = (values.tokens, {"below": 9})

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        return in_jax(KEYWORD_OPTIONS[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(KEYWORD_OPTIONS[group], x, y, names)
