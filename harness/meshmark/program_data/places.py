# SPDX-License-Identifier: Apache-2.0
"""Definitions in NumPy of reads, writes and orders at places: gather and scatter with dimension numbers, `x.at[...]`
with its modes, sorts of several operands, partitions, one-hot rows and segments. They follow the operations'
descriptions in the StableHLO specification and in JAX's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshmark.program_data.references import Undefined


def fill_of(dtype: np.dtype) -> Any:
    """What JAX fills in for an element outside of an array: NaN, True, the smallest signed or the largest unsigned
    integer."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return np.nan


def walk_starts(
    indices: np.ndarray,
    shape: Sequence[int],
    sizes: Sequence[int],
    dims: Sequence[int],
    batch: Sequence[tuple[int, int]],
    mode: str | None,
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...] | None]]:
    """(place among the indices, window of the operand) for each start. The window is None if it is not inside of the
    operand, and the mode is not "clip".

    dims: the dimension of each number of a start. batch: pairs of a dimension of the operand and one of the indices.
    """
    for place in np.ndindex(indices.shape[:-1]):
        start = [0] * len(shape)
        for k, d in enumerate(dims):
            start[d] = int(indices[place][k])
        for d, at in batch:
            start[d] = place[at]
        last = [n - size for n, size in zip(shape, sizes, strict=True)]
        if mode == "clip":
            start = [min(max(s, 0), m) for s, m in zip(start, last, strict=True)]
        elif any(not 0 <= s <= m for s, m in zip(start, last, strict=True)):
            yield place, None
            continue
        yield place, tuple(slice(s, s + size) for s, size in zip(start, sizes, strict=True))


def gather(
    x: np.ndarray,
    indices: np.ndarray,
    numbers: Mapping[str, Any],
    sizes: Sequence[int],
    mode: str | None = None,
    fill_value: Any = None,
    **options: Any,
) -> np.ndarray:
    """lax.gather."""
    batching = numbers.get("operand_batching_dims", ())
    gone = (*numbers["collapsed_slice_dims"], *batching)
    batch = [*zip(batching, numbers.get("start_indices_batching_dims", ()), strict=True)]
    window = tuple(n for k, n in enumerate(sizes) if k not in gone)
    empty = fill_of(x.dtype) if fill_value is None else fill_value
    made = np.empty((*indices.shape[:-1], *window), x.dtype)
    for place, at in walk_starts(indices, x.shape, sizes, numbers["start_index_map"], batch, mode):
        made[place] = empty if at is None else x[at].reshape(window)
    front, behind = indices.ndim - 1, [*numbers["offset_dims"]]
    return np.moveaxis(made, range(front, made.ndim), behind) if behind else made


def make_scatter(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    """lax.scatter and the like: each window of x becomes the function of itself and of its update."""

    def run(
        x: np.ndarray,
        indices: np.ndarray,
        updates: np.ndarray,
        numbers: Mapping[str, Any],
        mode: str | None = None,
        **options: Any,
    ) -> np.ndarray:
        batching = numbers.get("operand_batching_dims", ())
        gone = (*numbers["inserted_window_dims"], *batching)
        batch = [*zip(batching, numbers.get("scatter_indices_batching_dims", ()), strict=True)]
        windows = [*numbers["update_window_dims"]]
        parts = np.moveaxis(updates, windows, range(indices.ndim - 1, updates.ndim)) if windows else updates
        inner = iter(parts.shape[indices.ndim - 1 :])
        sizes = [1 if k in gone else next(inner) for k in range(x.ndim)]
        made = x.copy()
        dims = numbers["scatter_dims_to_operand_dims"]
        for place, at in walk_starts(indices, x.shape, sizes, dims, batch, mode):
            if at is not None:
                made[at] = function(made[at], parts[place].reshape(sizes))
        return made

    return run


def scatter_apply(
    x: np.ndarray,
    indices: np.ndarray,
    function: Callable[[np.ndarray], np.ndarray],
    numbers: Mapping[str, Any],
    update_shape: Sequence[int] = (),
    **options: Any,
) -> np.ndarray:
    """lax.scatter_apply."""
    apply = make_scatter(lambda old, _: function(old))
    return apply(x, indices, np.zeros(update_shape, x.dtype), numbers, **options)


# x.at[...] ------------------------------------------------------------------------------------------------------


def find_rows(x: np.ndarray, index: Any) -> np.ndarray:
    """The rows that an index of `x.at` names. Negative ones count from the end. Undefined for another index than one
    number or one array of numbers."""
    rows = np.asarray(index[0] if isinstance(index, tuple) and len(index) == 1 else index, dtype=object)
    if rows.dtype == object:
        try:
            rows = rows.astype(np.int64)
        except (TypeError, ValueError):
            raise Undefined("an index of several parts with a mode") from None
    return np.where(rows < 0, rows + len(x), rows)


def at_get(x: np.ndarray, index: Any, mode: str | None = None, fill_value: Any = None, **options: Any) -> Any:
    """x.at[index].get. Without a mode, and with "clip", what lies outside is the nearest row; with "fill" it is the
    fill value."""
    rows = find_rows(x, index)
    found = x[np.clip(rows, 0, len(x) - 1)]
    if mode not in ("fill", "drop"):
        return found
    outside = ((rows < 0) | (rows >= len(x))).reshape(rows.shape + (1,) * (x.ndim - 1))
    return np.where(outside, x.dtype.type(fill_of(x.dtype) if fill_value is None else fill_value), found)


def make_at(function: np.ufunc | None) -> Callable[..., np.ndarray]:
    """x.at[index].set if `function` is None, else x.at[index].add and the like, with a mode. Rows outside are dropped,
    or clipped with "clip"."""

    def run(x: np.ndarray, index: Any, update: Any, mode: str | None = None, **options: Any) -> np.ndarray:
        rows = find_rows(x, index).reshape(-1)
        parts = np.broadcast_to(np.asarray(update).astype(x.dtype), (len(rows), *x.shape[1:]))
        made = x.copy()
        if mode == "clip":
            rows = np.clip(rows, 0, len(x) - 1)
        kept = (rows >= 0) & (rows < len(x))
        if function is None:
            made[rows[kept]] = parts[kept]
        else:
            function.at(made, rows[kept], parts[kept])
        return made

    return run


def at_apply(x: np.ndarray, index: Any, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """x.at[index].apply, where no place occurs twice."""
    made = x.copy()
    made[index] = function(made[index])
    return made


# Orders ---------------------------------------------------------------------------------------------------------


def sort_operands(
    operands: Sequence[np.ndarray], dimension: int = -1, num_keys: int = 1, is_stable: bool = True
) -> tuple[np.ndarray, ...]:
    """lax.sort of several operands: by the first keys, and equal keys stay in their order."""
    if isinstance(operands, np.ndarray):
        return np.sort(operands, dimension)
    keys = [*reversed(operands[:num_keys])]
    order = np.lexsort([np.moveaxis(k, dimension, -1) for k in keys], axis=-1)
    order = np.moveaxis(order, -1, dimension)
    return tuple(np.take_along_axis(o, order, dimension) for o in operands)


def sort_key_val(
    keys: np.ndarray, values: np.ndarray, dimension: int = -1, **options: Any
) -> tuple[np.ndarray, ...]:
    """lax.sort_key_val."""
    return sort_operands((keys, values), dimension)


# The rest -------------------------------------------------------------------------------------------------------


def one_hot(x: np.ndarray, count: int, dtype: Any = None) -> np.ndarray:
    """jax.nn.one_hot. What is no class has a row of zeros."""
    return np.asarray(x)[..., None] == np.arange(count)


def index_take(x: np.ndarray, indices: Sequence[np.ndarray], axes: Sequence[int]) -> np.ndarray:
    """lax.index_take: one slice of size 1 along `axes` for each start, clipped."""
    where: list[Any] = [slice(None)] * x.ndim
    if [*axes] != [*range(len(axes))]:
        raise Undefined("lax.index_take along other dimensions than the first")
    for k, d in enumerate(axes):
        rows = np.asarray(indices[k])
        where[d] = np.clip(np.where(rows < 0, rows + x.shape[d], rows), 0, x.shape[d] - 1)
    return x[tuple(where)]


def make_extreme_segment(function: np.ufunc) -> Callable[..., np.ndarray]:
    """jax.ops.segment_max and segment_min. A segment without elements has the end of the dtype's range."""

    def run(x: np.ndarray, ids: np.ndarray, num_segments: int, **options: Any) -> np.ndarray:
        low = function is np.maximum
        if x.dtype.kind == "f":
            start: Any = -np.inf if low else np.inf
        else:
            start = np.iinfo(x.dtype).min if low else np.iinfo(x.dtype).max
        made = np.full((num_segments, *x.shape[1:]), start, x.dtype)
        kept = (ids >= 0) & (ids < num_segments)
        function.at(made, ids[kept], x[kept])
        return made

    return run


PLACES: dict[str, Callable[..., Any]] = {
    "lax.gather": gather,
    "lax.scatter": make_scatter(lambda old, new: new),
    "lax.scatter_add": make_scatter(np.add),
    "lax.scatter_sub": make_scatter(np.subtract),
    "lax.scatter_mul": make_scatter(np.multiply),
    "lax.scatter_max": make_scatter(np.maximum),
    "lax.scatter_min": make_scatter(np.minimum),
    "lax.scatter_apply": scatter_apply,
    "lax.index_take": index_take,
    "at.get": at_get,
    "at.apply": at_apply,
    "lax.sort": sort_operands,
    "lax.sort_key_val": sort_key_val,
    "nn.one_hot": one_hot,
    "jax.ops.segment_max": make_extreme_segment(np.maximum),
    "jax.ops.segment_min": make_extreme_segment(np.minimum),
}
"""The definitions, by the operation's name in a program."""
