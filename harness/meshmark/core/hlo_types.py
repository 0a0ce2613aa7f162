# SPDX-License-Identifier: Apache-2.0
"""The types of HLO values: element types, dimensions, and layouts with tiles.

The syntax follows openxla/xla, docs/shapes.md and docs/tiled_layout.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import ml_dtypes
import numpy as np

from meshmark.core.groups import integers


class Refused(ValueError):
    """The meaning of something in a text is not known. `name` names it briefly.

    A refused program is not judged. The interpreter never guesses.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the interpreter does not know {name}")
        self.name = name


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

_BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128}
_BITS |= {f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)}
_BITS |= {f"f{bits}": bits for bits in (16, 32, 64)} | {"f4e2m1fn": 4}
_BITS |= {
    f"f8e{kind}": 8 for kind in ("3m4", "4m3", "4m3b11fnuz", "4m3fn", "4m3fnuz", "5m2", "5m2fnuz", "8m0fnu")
}


def bits(dtype: str) -> int:
    """The bits of an element type of HLO, such as bf16; Refused for one that is unknown."""
    if dtype not in _BITS:
        raise Refused(f"the HLO element type {dtype!r}")
    return _BITS[dtype]


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

    @property
    def nbytes(self) -> int:
        """The bytes of the elements, without padding; Refused for an unknown element type."""
        return -(-bits(self.dtype) * self.size // 8)

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
_LOGICAL = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")  # without its layout; <= marks a bounded dynamic dimension
_LAYOUT = re.compile(
    r"([\d,]*)(?::((?:T(?:\(\d+(?:,\d+)*\))+)?)(?:E\((\d+)\))?(?:S\((\d+)\))?((?:SC\(\d+:[\d,]+\))*))?"
)
_TILE = re.compile(r"\(([\d,]+)\)")
_COMMENT = re.compile(r"/\*.*?\*/")


def parse_type(text: str) -> AnyShape:
    """The type in this text; Refused for an unknown form."""
    if text.startswith("("):
        return TupleShape(tuple(map(parse_type, _parts(text))))
    return _array(text)


def parse_logical_type(text: str) -> AnyShape:
    """The type in this text with elements and dimensions alone, whatever its layout is. Of a dimension with a bound the
    bound counts. Refused if the text has no array."""
    if text.startswith("("):
        return TupleShape(tuple(map(parse_logical_type, _parts(text))))
    return _logical_array(text)


@lru_cache(maxsize=8192)
def _logical_array(text: str) -> Shape:
    match = _LOGICAL.match(text)
    if not match:
        raise Refused(f"type {text[:80]}")
    dims = integers(match[2].replace("<=", ""))
    return Shape(match[1], dims, Layout(tuple(reversed(range(len(dims))))))


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
    """The types in the text of a tuple."""
    text = _COMMENT.sub("", text[1:-1]).strip()
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
