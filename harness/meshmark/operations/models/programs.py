# SPDX-License-Identifier: Apache-2.0
"""The base of the whole programs: the modes, the gradients, and the cases that the standard profile takes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Traffic, Variant, nbytes
from meshmark.operations.collective_base import send

TURNS = 5
"""Of the meshes other than the preferred one of a power of two, the standard profile takes one in so many for each
program."""


class WholeProgram(Operation):
    """The base of the whole programs. A subclass gives its shardings in `shardings` and its plan in `forward`. A
    subclass of a program that sets `wrt` is the program's gradient."""

    family = "programs"
    complete = True
    level = "L3"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    sizes: ClassVar[Mapping[str, int]] = {"n8": 0}
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma")
    rare: ClassVar[int] = 0
    """The weight of all its variants in the conformance tests."""
    adds_in_rounds: ClassVar[bool] = False
    """Whether a loop reads the arguments in each of its rounds. With check_vma JAX adds their gradients in each
    round."""
    wrt: ClassVar[tuple[int, ...]] = ()
    """Of a gradient, the arguments of the differentiation."""

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        """The variants, with the weights that they have on the preferred mesh."""
        raise NotImplementedError

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        near = mesh == preferred(mesh.size) and not mesh.size & (mesh.size - 1)
        turn = zlib.crc32(f"{mesh.label} {self.name}".encode()) % TURNS == 0
        far = self.rare + (0 if near or turn else 2)
        return (replace(variant, weight=variant.weight + far) for variant in self.shardings(mesh))

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        return (v for v in self.shardings(mesh) if not v.weight and not v.capability)

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        return 0 if self.wrt else None

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if self.wrt and mode == "manual-novma" and mesh.size & (mesh.size - 1):
            return "check_vma=False divides a cotangent by the number of its replicas and adds them up again"
        return super().absent(mode, variant, mesh)

    def forward(self, request: Request) -> Plan:
        """The plan of the program itself."""
        raise NotImplementedError

    def seeds(self) -> tuple[Any, dict[str, Any]]:
        """The fill of the cotangents, and its options."""
        return values.uniform, {}

    def plan(self, request: Request) -> Plan:
        forward = self.forward(request)
        if not self.wrt:
            return forward
        chosen = [forward.arguments[i] for i in self.wrt]
        seeds = tuple(Argument(r.shape, r.dtype, r.spec, *self.seeds()) for r in forward.results)
        sent, rounds = forward.traffic or (), forward.repeats if self.adds_in_rounds else 1
        return replace(
            forward,
            arguments=(*forward.arguments, *seeds),
            results=tuple(Result(a.shape, a.dtype, a.spec) for a in chosen),
            forward=forward.results,
            wrt=self.wrt,
            cost=replace(forward.cost, flops=3 * forward.cost.flops),
            traffic=None,
            owed=(*sent, *sent, *added_gradients(request.mesh, chosen) * rounds),
        )


def added_gradients(mesh: MeshShape, arguments: Sequence[Argument]) -> tuple[Traffic, ...]:
    """The all-reduces of the gradients of these arguments, over the axes that do not shard them."""
    return over(
        mesh,
        *(
            ("all-reduce", mesh.rest(tuple(a for entry in w.spec for a in entry or ())), nbytes(w, mesh))
            for w in arguments
        ),
    )


def over(mesh: MeshShape, *found: tuple[str, tuple[str, ...] | None, int]) -> tuple[Traffic, ...]:
    """The traffic of these collectives (kind, axes, bytes of one device). Those with one member are left out."""
    return tuple(t for kind, axes, payload in found for t in send(kind, axes or (), payload, mesh))


def integers(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, most: int
) -> np.ndarray:
    """Random integers in [-most, most]."""
    drawn = (bits >> np.uint64(16)) % np.uint64(2 * most + 1)
    return (drawn.astype(np.int64) - most).astype(dtype)


def constrained(x, *spec, mesh=None):
    """The array with a sharding constraint, over `mesh` or, by default, the array's own mesh."""
    return lax.with_sharding_constraint(x, NamedSharding(mesh or jax.typeof(x).sharding.mesh, P(*spec)))
