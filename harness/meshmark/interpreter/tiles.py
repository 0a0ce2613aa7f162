# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of tiles: where the elements of an array stand in memory, and what a bitcast does to them.

It follows openxla/xla, docs/tiled_layout.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from meshmark.core.hlo_types import Refused, Shape


@lru_cache(maxsize=1024)
def offsets(shape: Shape) -> tuple[np.ndarray, int]:
    """(int64 array of shape `dims` with each element's offset from the start, in elements; size of the padded array in
    elements)."""
    layout = shape.layout
    order = layout.minor_to_major[::-1]
    places = [
        np.arange(shape.dims[d]).reshape([-1 if e == d else 1 for e in range(len(order))]) for d in order
    ]
    sizes = [shape.dims[d] for d in order]
    for tile in layout.tiles:
        n = len(tile)
        while len(sizes) < n:  # add leading dimensions of size 1
            sizes, places = [1, *sizes], [np.zeros((1,) * len(shape.dims), np.int64), *places]
        keep = len(sizes) - n
        outer = [-(-size // t) for size, t in zip(sizes[keep:], tile, strict=True)]
        at = [place // t for place, t in zip(places[keep:], tile, strict=True)]
        within = [place % t for place, t in zip(places[keep:], tile, strict=True)]
        sizes = [*sizes[:keep], *outer, *tile]
        places = [*places[:keep], *at, *within]
    total: np.ndarray = np.zeros((1,) * len(shape.dims), np.int64)
    for place, size in zip(places, sizes, strict=True):
        total = total * size + place
    return np.broadcast_to(total, shape.dims), math.prod(sizes)


@dataclass(frozen=True, eq=False)
class Reinterpretation:
    """The effect of a bitcast, on memory in units of `unit` bytes: for each unit of the target, the unit of the source.
    `missing` is a bool array that marks units that are padding in the source (None: no unit is padding)."""

    unit: int
    index: np.ndarray | None
    """int64 [units of the target]; None if source and target have the same order of units."""
    missing: np.ndarray | None


@lru_cache(maxsize=1024)
def reinterpretation(source: Shape, target: Shape) -> Reinterpretation:
    """The effect of a bitcast from `source` to `target`; Refused if the text does not have enough information about the
    source."""
    sizes = source.numpy.itemsize, target.numpy.itemsize
    unit = min(sizes)
    if any(s.layout.element_bits or s.layout.splits or s.dtype in _PACKED for s in (source, target)):
        if _kept(source) != _kept(target):
            raise Refused(f"bitcast of packed or split {source}")
        return Reinterpretation(unit, None, None)
    alike = sizes[0] == sizes[1] and source.layout.tiles == target.layout.tiles
    plain = (
        not source.layout.tiles and not target.layout.tiles and _descending(source) and _descending(target)
    )
    if plain or (alike and _kept(source) == _kept(target)):
        return Reinterpretation(unit, None, None)
    here, there = (
        (offsets(shape)[0].reshape(-1, 1) * (size // unit) + np.arange(size // unit)).ravel()
        for shape, size in zip((source, target), sizes, strict=True)
    )
    at = np.full(max(here.max(initial=-1), there.max(initial=-1)) + 1, -1, np.int64)
    at[here] = np.arange(len(here))
    index = at[there]
    missing = index < 0
    if missing.any():
        if target.layout.tiles and not source.layout.tiles and len(source.dims) > 1:
            # Without tiles the source would be smaller than the target, which is not possible in a bitcast.
            return _with_any_tiles(source, target)
        return Reinterpretation(unit, np.where(missing, 0, index), missing)
    same = len(here) == len(there) and np.array_equal(index, np.arange(len(there)))
    return Reinterpretation(unit, None if same else index, None)


def _with_any_tiles(source: Shape, target: Shape) -> Reinterpretation:
    """The effect of a bitcast whose source has tiles that the text leaves out.

    All tiles that make the source as large as the target must give the same effect. Refused if they differ, or if there
    are none."""
    found: list[Reinterpretation] = []
    for rows in _ROWS if source.numpy.itemsize == target.numpy.itemsize == 4 else ():
        tiled = replace(source, layout=replace(source.layout, tiles=((rows, 128),)))
        if offsets(tiled)[1] == offsets(target)[1]:
            found.append(reinterpretation(tiled, target))
    first = found[0] if found else None
    if first is None or any(r.missing is not None or not _alike(r, first) for r in found):
        raise Refused(f"a bitcast of {source} whose tiles the text leaves out")
    return first


_ROWS = (1, 2, 4, 8)
"""The possible numbers of rows of a tile of 32-bit elements on TPU (openxla/xla, docs/tiled_layout.md)."""


def _alike(a: Reinterpretation, b: Reinterpretation) -> bool:
    """Whether two bitcasts have the same effect."""
    if a.index is None or b.index is None:
        return a.index is b.index
    return np.array_equal(a.index, b.index)


_PACKED = ("s2", "u2", "s4", "u4")


def _descending(shape: Shape) -> bool:
    """Whether the memory order of the dimensions is their logical order."""
    return shape.layout.minor_to_major == tuple(reversed(range(len(shape.dims))))


def _kept(shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(dimensions, their order in memory). If the pairs of two shapes are equal, their order of elements is equal."""
    return shape.dims, shape.layout.minor_to_major
