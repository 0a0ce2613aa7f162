# SPDX-License-Identifier: Apache-2.0
"""What the whole programs have in common: the modes, and which of their cases the standard profile takes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Operation, Traffic, Variant
from meshmark.operations.contraction import summed

TURNS = 3
"""Of the meshes other than the preferred one, the standard profile takes one in so many for each program."""


class Program(Operation):
    """The base of the whole programs. A subclass says in `shardings` what is sharded over which axes."""

    family = "programs"
    complete = True
    level = "L3"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    sizes: ClassVar[Mapping[str, int]] = {"n8": 0}
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma")
    rare: ClassVar[int] = 0
    """The weight of all its variants in the conformance tests."""

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        """The variants, with the weights that they have on the preferred mesh."""
        raise NotImplementedError

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        turn = zlib.crc32(f"{self.name} {mesh.label}".encode()) % TURNS == 0
        far = self.rare + (0 if turn or mesh == preferred(mesh.size) else 2)
        return (replace(variant, weight=variant.weight + far) for variant in self.shardings(mesh))

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        return (v for v in self.shardings(mesh) if not v.weight and not v.capability)

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        return 1 if mode == "manual-novma" else None


def over(mesh: MeshShape, *found: tuple[str, tuple[str, ...] | None, int]) -> tuple[Traffic, ...]:
    """The collectives (kind, axes, bytes of one device) that have more than one member."""
    return tuple(
        Traffic(kind, payload, groups)
        for kind, axes, payload in found
        if (groups := summed(mesh, axes or ()))
    )
