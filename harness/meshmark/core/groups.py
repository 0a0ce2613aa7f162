# SPDX-License-Identifier: Apache-2.0
"""Replica groups and pairs of devices, in every syntax in which HLO text spells them.

The syntax is that of openxla/xla, xla/hlo/ir (replica_group.cc, mesh_and_axis.cc, tile_assignment.cc):
`{{0,4},{1,5}}`, `[4,2]<=[2,4]T(1,0)` and `mesh['x'=2,'y'=4] {'x'}`. The numbers are positions in the flattened array of
the mesh's devices, not device ids.
"""

from __future__ import annotations

import functools
import itertools
import math
import re

import numpy as np

Groups = tuple[tuple[int, ...], ...]

_AXIS = r"(?:'[^']*'|[\w.-]+)"
_LIST = re.compile(r"\{\}|\{\{[\d,]*\}(?:,\{[\d,]*\})*\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    rf"mesh\[((?:{_AXIS}=\d+,?)+)\](?:, device_ids=\((?:\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))\))?"
    rf" \{{((?:{_AXIS}(?::\(\d+\)\d+)?,?)*)\}}"
)
_SIZE = re.compile(rf"({_AXIS})=(\d+)")
_REFERENCE = re.compile(rf"({_AXIS})(?::\((\d+)\)(\d+))?")
_PAIRS = re.compile(r"\{(?:\{\d+,\d+\},?)*\}")


def integers(text: str) -> tuple[int, ...]:
    """The numbers of a list such as 8,64; empty for empty text."""
    return tuple(map(int, filter(None, text.split(","))))


def spelled(text: str, devices: int) -> Groups:
    """The replica groups of a text that holds nothing else; ValueError for an unknown form."""
    if not any(form.fullmatch(text) for form in (_LIST, _IOTA, _MESH)):
        raise ValueError(f"unknown form of replica_groups: {text[:200]!r}")
    return expand(text, devices)


def spelled_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Source and target of each pair in a text that holds nothing else; ValueError for an unknown form."""
    if not _PAIRS.fullmatch(text):
        raise ValueError(f"unknown form of source_target_pairs: {text[:200]!r}")
    numbers = integers(text.replace("{", "").replace("}", ""))
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


@functools.lru_cache(maxsize=1024)
def expand(spelling: str, devices: int) -> Groups:
    """Replica groups as explicit lists: {{0,1},{2,3}}, [2,2]<=[4] or mesh['x'=2,'y'=2] {'y'}."""
    if spelling == "{}":
        return (tuple(range(devices)),)
    if _LIST.fullmatch(spelling):
        return tuple(map(integers, spelling[2:-2].split("},{")))
    if match := _IOTA.fullmatch(spelling):
        dims, shape, order = match.groups()
        return _rows(_iota(shape, order).reshape(integers(dims)))
    match = _MESH.fullmatch(spelling)
    assert match  # `spelled` admits no fourth
    axes, shape, order, listed, references = match.groups()
    sizes = {name: int(size) for name, size in _SIZE.findall(axes)}
    ids = np.array(integers(listed)) if listed else _iota(shape or str(math.prod(sizes.values())), order)
    # With 'y'=12, 'y':(2)3 is the middle when y is cut into 2, 3 and 2, major to minor; 'y' is 'y':(1)12.
    # So cut every axis at the start and end of each part, and move the pieces of the parts to the end.
    parts = [
        (name, int(left or 1), int(size or sizes[name]))
        for name, left, size in _REFERENCE.findall(references)
    ]
    cuts = {name: {1, size} for name, size in sizes.items()}
    for name, left, size in parts:
        cuts[name] |= {left, left * size}
    pieces = [(name, *piece) for name in sizes for piece in itertools.pairwise(sorted(cuts[name]))]
    grouped = [
        index
        for name, left, size in parts
        for index, (axis, begin, _) in enumerate(pieces)
        if axis == name and left <= begin < left * size
    ]
    others = [index for index in range(len(pieces)) if index not in grouped]
    cube = ids.reshape([end // begin for _, begin, end in pieces]).transpose(others + grouped)
    return _rows(cube.reshape(-1, math.prod(size for *_, size in parts)))


def _iota(shape: str, order: str | None) -> np.ndarray:
    numbers = np.arange(math.prod(integers(shape))).reshape(integers(shape))
    return numbers.transpose(integers(order)) if order else numbers


def _rows(table: np.ndarray) -> Groups:
    return tuple(map(tuple, table.tolist()))
