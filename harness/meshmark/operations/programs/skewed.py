# SPDX-License-Identifier: Apache-2.0
"""Collectives after uneven work: each device loops for another number of steps before it meets the others
(jax#31818, jax#40831).

Each step is x -> 5 x + 3 in uint32, which no compiler shortens. A run of steps is an affine map, so the reference
finds it by squaring.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.layout import assemble, split
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant

FACTOR, TERM = 5, 3

STEPS = {"short": 200_000, "long": 40_000_000}
"""The steps of the device that is last in a round. The first takes none."""


def stepped(x, count):
    """`count` steps, one after the other."""
    return lax.fori_loop(0, count, lambda _, c: c * np.uint32(FACTOR) + np.uint32(TERM), x)


def stepped_at_once(x: np.ndarray, count: int) -> np.ndarray:
    """The same for uint32 in NumPy: the affine map of one step, to the power of `count`."""
    factor, term = 1, 0
    one_factor, one_term = FACTOR, TERM
    while count:
        if count % 2:
            factor, term = factor * one_factor % 2**32, (factor * one_term + term) % 2**32
        one_factor, one_term = one_factor * one_factor % 2**32, (one_factor + 1) * one_term % 2**32
        count //= 2
    return (x.astype(np.uint64) * np.uint64(factor) + np.uint64(term)).astype(np.uint32)


def share(position: Any, number: int, n: int) -> Any:
    """How much of the steps a device has in a round, in parts of n - 1: each device is last in one of n rounds."""
    return (position + number) % n


class SkewedWork(Operation):
    """Five collectives in turn over all axes. Before each, every device loops for another number of steps, and another
    device is last. The result is wrong if a device does not wait for the last."""

    name = "skewed_work"
    family = "transforms"
    level = "L3"
    dtypes: ClassVar[tuple[str, ...]] = ("uint32",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}
    modes: ClassVar[tuple[str, ...]] = ("manual", "manual-novma")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for skew in STEPS:
            ordinary = mesh == preferred(mesh.size) and skew == "short"
            yield Variant.of(2 if ordinary else 4, skew=skew)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the loops would be timed, and not the collectives."""
        yield from ()

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        n = mesh.size
        shape, spec = (n * n,), (mesh.names,)
        x = Argument(shape, request.dtype, spec, values.distinct)
        options = {
            "axes": mesh.names,
            "n": n,
            "steps": STEPS[request.variant["skew"]],
            "spec": spec,
            "sizes": dict(mesh.sizes),
        }
        groups = (tuple(range(n)),)
        return Plan((x,), (Result(shape, request.dtype, spec),), options, judge="bits", connect=groups)

    @staticmethod
    def manual(x, *, axes, n, steps):
        def worked(x, number):
            return stepped(x, share(lax.axis_index(axes), number, n) * (steps // max(1, n - 1)))

        x = worked(x, 0) + lax.psum(worked(x, 1), axes)
        x = lax.ppermute(worked(x, 2), axes, [(i, (i + 1) % n) for i in range(n)])
        x = lax.all_to_all(worked(x, 3), axes, 0, 0, tiled=True)
        x = x + lax.all_gather(worked(x, 4), axes).max(axis=0)
        return x + lax.psum_scatter(worked(x, 5), axes, tiled=True)

    @staticmethod
    def reference(x, *, n, steps, spec, sizes):
        blocks = np.stack(split(x, spec, sizes))

        def worked(blocks, number):
            return np.stack(
                [
                    stepped_at_once(block, share(position, number, n) * (steps // max(1, n - 1)))
                    for position, block in enumerate(blocks)
                ]
            )

        with np.errstate(over="ignore"):
            blocks = worked(blocks, 0) + worked(blocks, 1).sum(axis=0, dtype=np.uint32)
            blocks = np.roll(worked(blocks, 2), 1, axis=0)
            blocks = worked(blocks, 3).T
            blocks = blocks + worked(blocks, 4).max(axis=0)
            blocks = blocks + worked(blocks, 5).sum(axis=0, dtype=np.uint32)[:, None]
        return assemble(list(blocks), spec, sizes)
