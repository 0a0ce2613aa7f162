# SPDX-License-Identifier: Apache-2.0
"""Gathers inside a `shard_map` that is manual over the first axis of the mesh, where the other axes shard what is
gathered, the indices, or both.

An embedding is looked up so in a model that is manual over one axis alone. The hunt found that the compiler ends there
(`results/findings/gather-beside-a-manual-axis`).
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Plan, Request, Result, Variant
from meshmark.operations.programs.partly_manual.functions import PartlyManual

FUNCTIONS = ("take", "take_along_axis")
SHARDED = ("operand", "indices", "together", "apart")
"""What automatic axes shard: rows of the operand; columns of the indices; rows of both over one axis; or rows of the
operand over the first of them and columns of the indices over the last."""


class PartlyManualGather(PartlyManual):
    """Rows of a table by their indices, or elements along its rows, for each index of the manual axis."""

    name = "partly_manual_gather"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if len(mesh.names) < 2:
            return
        # Meshes of three axes are rare in a profile, and the compiler ends on those alone, so a variant weighs nothing.
        weight = 0 if len(mesh.names) > 2 else 3
        for function in FUNCTIONS:
            for sharded in SHARDED:
                if sharded != "apart" or len(mesh.names) > 2:
                    yield Variant.of(weight, function=function, sharded=sharded)

    def plan(self, request: Request) -> Plan:
        manual, *others = request.mesh.names
        first, last = others[0], others[-1]
        sharded = request.variant["sharded"]
        rows, columns = 2 * request.mesh.size, request.mesh.size
        shape = (request.mesh.sizes[manual], rows, columns)
        table: Spec = (manual, first if sharded != "indices" else None, None)
        indices: Spec = {
            "operand": (manual, None, None),
            "indices": (manual, None, last),
            "together": (manual, first, None),
            "apart": (manual, None, last),
        }[sharded]
        x = Argument(shape, "float32", table, values.tokens, {"below": 100})
        at = Argument(shape, "int32", indices, values.tokens, {"below": rows})
        options = {"function": request.variant["function"], "manual": manual, "placed": (table, indices)}
        return Plan((x, at), (Result(shape, "float32", (manual, None, None)),), options, judge="exact")

    @staticmethod
    def host(mesh, x, at, *, function, manual, placed):
        def block(x, at):
            if function == "take":
                return jnp.take(x[0], at[0, :, 0], axis=0)[None]
            return jnp.take_along_axis(x[0], at[0], axis=0)[None]

        mapped = jax.shard_map(
            block, mesh=mesh, in_specs=(P(manual), P(manual)), out_specs=P(manual), axis_names={manual}
        )
        put = [jax.device_put(a, NamedSharding(mesh, P(*s))) for a, s in zip((x, at), placed, strict=True)]
        return jax.jit(mapped, out_shardings=NamedSharding(mesh, P(manual)))(*put)

    @staticmethod
    def reference(x, at, *, function):
        if function == "take":
            return np.stack([rows[i[:, 0]] for rows, i in zip(x, at, strict=True)])
        return np.take_along_axis(x, at, axis=1)
