# SPDX-License-Identifier: Apache-2.0
"""The types of HLO values: element types, dimensions, and layouts with tiles.

The syntax and the arithmetic of tiles follow openxla/xla, docs/shapes.md and docs/tiled_layout.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import ml_dtypes
import numpy as np

from meshmark.core.groups import integers
from meshmark.interpreter.faults import Refused

DTYPES: dict[str, np.dtype] = {
    "pred": np.dtype(bool),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
"""The NumPy dtype of each element type that the interpreter computes."""
DTYPES |= {f"f{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)}
DTYPES |= {f"s{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)}
DTYPES |= {f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}
DTYPES |= {
    f"f8{kind}": np.dtype(getattr(ml_dtypes, f"float8_{kind}"))
    for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
}
DTYPES |= {"s4": np.dtype(ml_dtypes.int4), "u4": np.dtype(ml_dtypes.uint4)}
DTYPES |= {"s2": np.dtype(ml_dtypes.int2), "u2": np.dtype(ml_dtypes.uint2)}


@dataclass(frozen=True)
class Layout:
    """The layout of an array in memory: dimensions from minor to major, tiles from outer to inner, and the memory space
    (0: the device's main memory)."""

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    space: int = 0
    element_bits: int = 0
    splits: str = ""
    """The split of the array between the memories of a chip's cores, such as SC(0:4)."""


@dataclass(frozen=True)
class Shape:
    """The type of an array: element type, dimensions and layout. A token has the element type "token"."""

    dtype: str
    dims: tuple[int, ...]
    layout: Layout

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype; Refused for an element type that has none."""
        if self.dtype not in DTYPES:
            raise Refused(f"type {self.dtype}")
        return DTYPES[self.dtype]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class TupleShape:
    """The type of a tuple."""

    parts: tuple[Shape | TupleShape, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


AnyShape = Shape | TupleShape

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_LAYOUT = re.compile(
    r"([\d,]*)(?::((?:T(?:\(\d+(?:,\d+)*\))+)?)(?:E\((\d+)\))?(?:S\((\d+)\))?((?:SC\(\d+:[\d,]+\))*))?"
)
_TILE = re.compile(r"\(([\d,]+)\)")
_COMMENT = re.compile(r"/\*.*?\*/")


def parse_type(text: str) -> AnyShape:
    """The type in this text; Refused for an unknown form."""
    if text.startswith("("):
        inner = _COMMENT.sub("", text[1:-1]).strip()
        return TupleShape(tuple(parse_type(part) for part in _parts(inner)))
    return _array(text)


@lru_cache(maxsize=8192)
def _array(text: str) -> Shape:
    match = _ARRAY.fullmatch(text)
    if not match:
        raise Refused(f"type {text[:80]}")
    dims = integers(match[2])
    if match[3] is None:
        return Shape(match[1], dims, Layout(tuple(reversed(range(len(dims))))))
    layout = _LAYOUT.fullmatch(match[3])
    if not layout or sorted(integers(layout[1])) != list(range(len(dims))):
        raise Refused(f"layout {{{match[3][:80]}}}")
    tiles = tuple(integers(tile) for tile in _TILE.findall(layout[2] or ""))
    return Shape(
        match[1],
        dims,
        Layout(integers(layout[1]), tiles, int(layout[4] or 0), int(layout[3] or 0), layout[5] or ""),
    )


def _parts(text: str) -> Iterator[str]:
    """The parts of a list, split at commas outside all brackets."""
    depth = start = 0
    for match in re.finditer(r"[(){}\[\],]", text):
        character = match[0]
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
        elif not depth:
            yield text[start : match.start()].strip()
            start = match.end()
    if text:
        yield text[start:].strip()


def flat(shape: AnyShape) -> Iterator[Shape]:
    """The arrays of a type, in order."""
    if isinstance(shape, TupleShape):
        for part in shape.parts:
            yield from flat(part)
    else:
        yield shape


# Tiles -------------------------------------------------------------------------------------------------------


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
