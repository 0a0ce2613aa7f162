# SPDX-License-Identifier: Apache-2.0
"""What the collectives share: dtypes, groups of mesh positions, choices of axes, blocks of whole tiles, the cost model.

References follow the textbook definition: they take a list of blocks, one per member of the group, and give the list
of what each member holds afterwards (`over_groups`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from meshmark.core import special_values
from meshmark.core.layout import Spec, assemble, split
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import (
    Operation,
    Request,
    Traffic,
    Variant,
)
from meshmark.operations.weights import TIMED_PROFILES

INTEGERS = ("int16", "uint16", "uint32", "int64", "uint64")
NARROW = (
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float8_e4m3b11fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4"),
)
"""Dtypes of data that moves alone. int2 and uint2 are not among them: XLA's CPU backend writes past the end of their
buffers, and the process dies at some later time (see docs/findings.md)."""

NUMBERS = (
    *("float32", "bfloat16", "float16", "int32", "int8", "uint8", "complex64", "float64", "complex128"),
    *INTEGERS,
)
ORDERED = ("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "float64", *INTEGERS)
ANY = (*NUMBERS, "bool", *NARROW)

SUMMED = ("nan", *special_values.ONE, "inf", "zeros", "subnormal", "extreme")
"""The special values of which a sum is exact."""

Blocks = list[np.ndarray]


def groups_of(
    sizes: Mapping[str, int], axes: Sequence[str], groups: Sequence[Sequence[int]] | None = None
) -> list[tuple[int, ...]]:
    """The flat mesh positions of each group that a collective over `axes` forms. In a group the last of `axes` varies
    fastest. `groups` (axis_index_groups) splits each group further."""
    names = list(sizes)
    positions = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    order = [i for i, name in enumerate(names) if name not in axes] + [names.index(a) for a in axes]
    rows = positions.transpose(order).reshape(-1, math.prod(sizes[a] for a in axes)).tolist()
    return [tuple(row[i] for i in group) for row in rows for group in (groups or [range(len(row))])]


def send(
    kind: str, axes: Sequence[str], payload: int, mesh: MeshShape, itemsize: int = 0
) -> tuple[Traffic, ...]:
    """One collective over these axes, with the bytes of one device. () if no group has two members, or if it sends
    nothing. itemsize: the bytes of an element, or 0 for that of the case's dtype."""
    groups = tuple(group for group in groups_of(mesh.sizes, axes) if len(group) > 1)
    return (Traffic(kind, payload, groups, itemsize),) if groups and payload else ()


def send_nothing() -> tuple[Traffic, ...]:
    """The theory of a computation in which no device needs what another one has."""
    return ()


def over_groups(
    define: Callable[[Blocks], Blocks],
    x: np.ndarray,
    sizes: Mapping[str, int],
    axes: Sequence[str],
    in_spec: Spec,
    out_spec: Spec,
    groups: Sequence[Sequence[int]] | None = None,
) -> np.ndarray:
    """The global result of a collective that is defined on the blocks of one group."""
    blocks = split(x, in_spec, sizes)
    results: Blocks = [x] * len(blocks)
    for group in groups_of(sizes, axes, groups):
        for position, block in zip(group, define([blocks[p] for p in group]), strict=True):
            results[position] = block
    return assemble(results, out_spec, sizes)


def axis_choices(mesh: MeshShape) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(weight, axes) pairs: every single axis, every ordered pair, all axes forward and backward."""
    names = mesh.names
    yield 0, names
    for name in reversed(names):
        if len(names) > 1:
            yield 1, (name,)
    for pair in itertools.permutations(names, 2):
        if pair != names:
            yield (1 if len(names) == 2 else 2), pair
    if len(names) == 3:
        yield 1, names[::-1]


ROWS, LANES = 8, 128
"""The tile of the accelerators' vector memory: the second-last and the last dimension of an array in whole tiles."""


def tiled_block(elements: int, dim: int, parts: int) -> list[int]:
    """The shape [A, B, C] of a block of about `elements` elements that divides into `parts` along dimension `dim`,
    which is 0 or 1. Each part is contiguous and consists of whole tiles [*, 8, 128]. A part with too few elements is
    one smaller tile: rows of up to 128 elements, and at most eight rows."""
    part = max(1, elements // parts)
    lanes = min(LANES, part)
    rows = min(ROWS, part // lanes)
    tiles = parts * max(bool(elements), round(elements / (parts * rows * lanes)))
    return [tiles, rows, lanes] if dim == 0 else [1, tiles * rows, lanes]


def interleaved(n: int) -> tuple[tuple[int, ...], ...]:
    """The two groups of every other member: ((0, 2, ...), (1, 3, ...))."""
    return tuple(range(0, n, 2)), tuple(range(1, n, 2))


class CollectiveOperation(Operation):
    """The base of the collectives: blocks of rank three (or one), axes, groups and the cost model.

    The ordinary options, which the benchmarks time, have payloads of whole tiles: for other shapes, compilers for
    accelerators make other collectives or copies. All other options, and `shape=odd`, have blocks of [*, 4, 4].
    """

    family = "collectives"
    complete = True
    level = "L1"
    dtypes: ClassVar[tuple[str, ...]] = ANY
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 2, "512KiB": 2, "0B": 2}
    timed: ClassVar[Mapping[str, int]] = {
        "4KiB": 0, "64KiB": 0, "1MiB": 0, "1KiB": 1, "16KiB": 1, "256KiB": 1, "4MiB": 2, "16MiB": 4, "64MiB": 4,
    }  # fmt: skip
    kind: ClassVar[str]
    """The HLO collective of manual mode."""
    shaped: ClassVar[bool] = True
    """Whether its payload is a block, so that there is a variant of the ordinary options with an odd one."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for weight, axes in axis_choices(mesh):
            for more, options in self.choices(mesh.product(axes)):
                capability = options.pop("capability", None)
                yield Variant.of(weight + more, capability, axes=axes, **options)
                if self.shaped and not more:
                    yield Variant.of(weight + 1, capability, axes=axes, **options, shape="odd")

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The ordinary options over all axes, and over each axis alone because the links of axes may differ. Only the
        full profile times odd blocks."""
        every = list(self.variants(mesh))
        ordinary = [v.options[1:] for v in every if not v.weight]  # the axes come first
        for variant in every:
            odd = variant.get("shape") == "odd"
            options = tuple(option for option in variant.options[1:] if option[0] != "shape")
            weight = variant.weight - odd
            if options in ordinary and (not weight or len(variant["axes"]) == 1):
                yield replace(variant, weight=weight + TIMED_PROFILES["full"] * odd)

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """(weight, options) pairs for a group of n members. The options do not contain the axes."""
        yield 0, {}

    def with_groups(self, n: int, **options: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        """(weight, options) with axis_index_groups, if n is even and at least 4."""
        if n >= 4 and n % 2 == 0:
            yield 1, {**options, "groups": "interleaved", "capability": "groups"}

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if variant.get("groups"):
            if mode in ("auto", "explicit", "pjit"):
                return "axis_index_groups have no spelling in a global program"
            if len(variant["axes"]) > 1:
                return "axis_index_groups take one axis"
        return super().absent(mode, variant, mesh)

    def lane_tiled(self, variant: Variant, mesh: MeshShape) -> bool:
        """Whether the variant's payload is whole tiles: it is if the options are ordinary."""
        ordinary = [options for weight, options in self.choices(mesh.product(variant["axes"])) if not weight]
        named = variant.options[1:]  # the axes come first
        chosen = {k: v for k, v in named if k != "fill" or v not in self.fills}
        return self.shaped and chosen in [{k: o[k] for k in o if k != "capability"} for o in ordinary]

    def block(self, request: Request, dim: int, parts: int = 1) -> list[int]:
        """The local shape [A, B, C] of about the requested size. Dimension `dim` is a multiple of `parts` in a payload
        of whole tiles, and of the number of members otherwise."""
        n = request.mesh.product(request.variant["axes"])
        elements = request.elements
        if self.lane_tiled(request.variant, request.mesh):
            return tiled_block(elements, dim, parts)
        side = 4 if elements >= 16 * n else 1
        shape = [side, side, side]
        shape[dim] = n * max(bool(elements), round(elements / (n * side * side)))
        return shape

    def options(self, request: Request, in_spec: Spec, out_spec: Spec, **more: Any) -> dict[str, Any]:
        """The options that a mode's function may take by keyword."""
        variant, mesh = request.variant, request.mesh
        axes = variant["axes"]
        n = mesh.product(axes)
        return {
            "axes": axes,
            "n": n,
            "groups": interleaved(n) if variant.get("groups") else None,
            "sizes": dict(mesh.sizes),
            "in_spec": in_spec,
            "out_spec": out_spec,
            **more,
        }

    def traffic(self, request: Request, payload: int, options: Mapping[str, Any]) -> tuple[Traffic, ...]:
        """One collective of this kind over the groups; none if there is nothing to exchange."""
        groups = groups_of(request.mesh.sizes, options["axes"], options["groups"])
        if len(groups[0]) == 1 or not payload:
            return ()
        return (Traffic(self.kind, payload, tuple(groups)),)

    def connect(self, request: Request, options: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        """The groups of several members. Every mode must connect their positions. Empty if there are no elements."""
        if not request.elements:
            return ()
        return tuple(
            g for g in groups_of(request.mesh.sizes, options["axes"], options["groups"]) if len(g) > 1
        )
