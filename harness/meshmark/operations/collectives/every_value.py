# SPDX-License-Identifier: Apache-2.0
"""Reductions of random bit patterns of narrow types, between two devices at a time: any two values may meet.

Ordinary inputs are chosen so that sums are exact, so they are small whole numbers. A fault may need two values that
such inputs never have together: gloo lost the float16 sum of 1 and 15360, since 15360 is also the bit pattern of 1
(before pytorch/gloo#483). Here each pair of devices holds values in turn, and the others hold the neutral element. So
each result is rounded once, in every order. The sum of two numbers of at most 11 significand bits that is rounded to
float32, and then to their own type, is the sum rounded at once (S. A. Figueroa, SIGNUM Newsletter 30 (1995) 21: 24 bits
are at least 2 * 11 + 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant, parse_size
from meshmark.operations.placements.placement import from_host

KINDS = ("float16", "bfloat16", "int8", "uint8")


def pairs_of(n):
    """Each device with the next one. A single device is paired with itself."""
    return [(p, (p + 1) % n) for p in range(n if n > 2 else 1)]


def least(dtype):
    """The smallest finite value, the neutral element of the maximum of finite values."""
    return ml_dtypes.iinfo(dtype).min if "int" in str(dtype) else ml_dtypes.finfo(dtype).min


def largest(dtype):
    """The largest finite value, the neutral element of the minimum of finite values."""
    return ml_dtypes.iinfo(dtype).max if "int" in str(dtype) else ml_dtypes.finfo(dtype).max


class EveryValue(Operation):
    """Sums, maxima and minima of any two values of a narrow type, between each device and the next."""

    name = "every_value"
    family = "forms"
    level = "L1"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"128KiB": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if mesh == preferred(mesh.size):
            yield from (Variant.of(2, kind=kind) for kind in KINDS)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the benchmarks time the collectives one by one."""
        yield from ()

    def plan(self, request: Request) -> Plan:
        mesh, kind = request.mesh, request.variant["kind"]
        n, turns = mesh.size, len(pairs_of(mesh.size))
        columns = (
            parse_size(request.size) // np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind).itemsize
        )
        columns -= columns % n
        return Plan(
            (Argument((n, columns), kind, (mesh.names, None), values.patterns),),
            (
                *[Result((turns, columns), kind, (None, None))] * 3,
                Result((turns, columns), kind, (None, mesh.names)),
            ),
            {},
            judge="exact",
        )

    @staticmethod
    def host(mesh, x):
        names, n = mesh.axis_names, mesh.size

        def local(own):
            me = lax.axis_index(names)

            def among(one, other, neutral):
                return jnp.where((me == one) | (me == other), own[0], jnp.asarray(neutral, own.dtype))

            def every(collective, neutral):
                return jnp.stack([collective(among(*pair, neutral)) for pair in pairs_of(n)])

            return (
                every(lambda b: lax.psum(b, names), 0),
                every(lambda b: lax.pmax(b, names), least(own.dtype)),
                every(lambda b: lax.pmin(b, names), largest(own.dtype)),
                every(lambda b: lax.psum_scatter(b, names, tiled=True), 0),
            )

        mapped = jax.shard_map(
            local, mesh=mesh, in_specs=P(names, None), out_specs=(P(), P(), P(), P(None, names))
        )
        return jax.jit(mapped)(from_host(mesh, x, (names, None)))

    @staticmethod
    def reference(x):
        def every(function: Any) -> np.ndarray:
            return np.stack(
                [function(x[one], x[other]) if one != other else x[one] for one, other in pairs_of(len(x))]
            )

        total = every(np.add)
        return total, every(np.maximum), every(np.minimum), total
