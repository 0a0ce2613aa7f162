# SPDX-License-Identifier: Apache-2.0
"""A pipeline: one stage per device. Micro-batches go through the stages one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes, reshard

from meshmark.core import values
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import (
    Argument,
    Cost,
    Plan,
    Request,
    Result,
    Traffic,
    Variant,
    nbytes,
    parse_size,
)
from meshmark.operations.functions.contraction import fitted, outer_inner, summed
from meshmark.operations.models.programs import WholeProgram, constrained, integers, over

MICRO_BATCHES = 4


def one_stage(x, w, subscripts, **options):
    """x + relu(x @ w)."""
    return x + jax.nn.relu(jnp.einsum(subscripts, x, w, **options))


def shifted(fed, state):
    """The inputs of the stages: the first stage gets `fed`, every other stage gets the state of the one before."""
    first = lax.broadcasted_iota(jnp.int32, state.shape, 0) == 0
    return jnp.where(first, fed, jnp.roll(state, 1, axis=0))


class Pipeline(WholeProgram):
    """Stages x + relu(x @ W), one per device, and four micro-batches. In each step every device works on the result of
    the device before it (by ppermute, or by a shift along the sharded dimension of stages). Exact."""

    name = "pipeline"

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, **outer_inner(mesh, "batch", "stages"))
        if len(mesh.names) > 1:
            yield Variant.of(2, **outer_inner(mesh, "stages", "batch"))
            yield Variant.of(3, stages=mesh.names)

    def forward(self, request: Request) -> Plan:
        mesh, variant, dtype = request.mesh, request.variant, request.dtype
        batch, stages = variant.get("batch"), variant["stages"]
        n, d = mesh.product(stages), parse_size(request.size)
        rows, ticks = fitted(8, mesh.product(batch or ())), MICRO_BATCHES + n - 1
        x = Argument((MICRO_BATCHES, rows, d), dtype, (None, batch, None), integers, {"most": 3})
        w = Argument((n, d, d), dtype, (stages, None, None), values.plus_minus)
        one = nbytes(Result((rows, d), dtype, (batch, None)), mesh)
        hops = tuple((g[i], g[i + 1]) for g in summed(mesh, stages) for i in range(len(g) - 1))
        permutes = (Traffic("collective-permute", one * ticks, hops),) if hops else ()
        return Plan(
            (x, w),
            (Result(x.shape, dtype, x.spec),),
            {"batch": batch, "stages": stages, "n": n, "precision": "highest"},
            judge="exact",
            cost=Cost(ticks * n * 2 * rows * d * d),
            repeats=ticks,
            traffic=(*permutes, *over(mesh, ("all-reduce", stages, one * MICRO_BATCHES))),
            connect=summed(mesh, stages),
        )

    @staticmethod
    def manual(x, w, *, stages, n, precision):
        index = lax.axis_index(stages)
        onward = [(i, i + 1) for i in range(n - 1)]

        def tick(carry, number):
            given, out = carry
            fed = jnp.where(index == 0, x[jnp.minimum(number, len(x) - 1)], given)
            y = one_stage(fed, w[0], "bd,de->be", precision=precision)
            done = number - (n - 1)
            ready = (index == n - 1) & (done >= 0)
            out = jnp.where(ready, out.at[jnp.maximum(done, 0)].set(y), out)
            return (lax.ppermute(y, stages, onward) if onward else given, out), None

        start = lax.pcast(jnp.zeros_like(x), stages, to="varying")
        (_, out), _ = lax.scan(tick, (start[0], start), jnp.arange(len(x) + n - 1))
        return lax.psum(out, stages)

    @staticmethod
    def auto(x, w, *, batch, stages, n, precision):
        mesh = jax.typeof(x).sharding.mesh

        def tick(state, number):
            fed = constrained(x[jnp.minimum(number, len(x) - 1)], batch, mesh=mesh)
            state = constrained(shifted(fed, state), stages, batch, mesh=mesh)
            state = one_stage(state, w, "sbd,sde->sbe", precision=precision)
            return state, constrained(state[-1], batch, mesh=mesh)

        start = constrained(jnp.zeros((n, *x.shape[1:]), x.dtype), stages, batch, mesh=mesh)
        _, out = lax.scan(tick, start, jnp.arange(len(x) + n - 1))
        return out[n - 1 :]

    @staticmethod
    def explicit(x, w, *, batch, stages, n, precision):
        shift = auto_axes(shifted, out_sharding=P(stages, batch, None))
        last = auto_axes(lambda state: state[-1], out_sharding=P(batch, None))

        def tick(state, number):
            state = shift(x[jnp.minimum(number, len(x) - 1)], state)
            state = one_stage(state, w, "sbd,sde->sbe", precision=precision)
            return state, last(state)

        start = reshard(jnp.zeros((n, *x.shape[1:]), x.dtype), P(stages, batch, None))
        _, out = lax.scan(tick, start, jnp.arange(len(x) + n - 1))
        return out[n - 1 :]

    @staticmethod
    def reference(x, w):
        for stage in w:
            x = x + np.maximum(np.matmul(x, stage), 0.0)
        return x


class PipelineGradient(Pipeline):
    """The gradients of the pipeline with respect to the micro-batches and to the weights of each stage. Exact."""

    name = "pipeline_gradient"
    adds_in_rounds = True
    rare = 2
    wrt = (0, 1)
    timed: ClassVar[Mapping[str, int]] = {}

    def seeds(self):
        return integers, {"most": 3}

    @staticmethod
    def gradient(x, w, g):
        inputs = []
        for stage in w:
            inputs.append(x)
            x = x + np.maximum(np.matmul(x, stage), 0.0)
        parts = []
        for x, stage in zip(reversed(inputs), w[::-1], strict=True):
            dz = np.where(np.matmul(x, stage) > 0.0, g, 0.0)
            parts.append(np.einsum("mbd,mbe->de", x, dz))
            g = g + np.matmul(dz, stage.T)
        return g, np.stack(parts[::-1])
