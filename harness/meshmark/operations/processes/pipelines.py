# SPDX-License-Identifier: Apache-2.0
"""Each process brings its own data: input pipelines, metrics and data-parallel training (see
meshmark.operations.processes.global_arrays).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Plan, Request, Result, Variant, parse_size
from meshmark.operations.models.training import stepped
from meshmark.operations.placements.placement import process_part
from meshmark.operations.processes.global_arrays import OverProcesses, ordinary, own


class InputPipeline(OverProcesses):
    """An input pipeline over a dataset whose size is not a multiple of the number of processes. Each process reads its
    share; the shares form batches with a padded and masked tail. Two epochs see every example twice, with its value."""

    name = "input_pipeline"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, order="strided")
        yield Variant.of(1, order="blocked")
        yield Variant.of(1, order="shuffled")

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        examples = 6 * mesh.size + 1
        x = Argument((examples,), request.dtype, (None,), values.summands, {"terms": 4})
        seen = (Result((examples,), "int32", (None,)), Result((examples,), request.dtype, (None,)))
        return Plan((x,), seen, {"order": request.variant["order"]}, judge="exact")

    @staticmethod
    def host(mesh, x, *, order):
        process, count, epochs = jax.process_index(), jax.process_count(), 2
        sharding = NamedSharding(mesh, P(mesh.axis_names))
        batch = 2 * len(sharding.addressable_devices)
        steps = math.ceil(math.ceil(len(x) / count) / batch)
        everywhere = NamedSharding(mesh, P())
        counted = own(mesh, np.zeros(len(x), np.int32)), own(mesh, np.zeros_like(x))

        @partial(jax.jit, out_shardings=(everywhere, everywhere))
        def step(counts, totals, which, value, mask):
            return (
                counts.at[which].add(mask.astype(counts.dtype)),
                totals.at[which].add(jnp.where(mask, value, 0)),
            )

        for epoch in range(epochs):
            every = np.arange(len(x))
            if order == "shuffled":
                every = np.random.default_rng(epoch).permutation(every)
            mine = np.array_split(every, count)[process] if order == "blocked" else every[process::count]
            padded = np.concatenate([mine, np.zeros(steps * batch - len(mine), mine.dtype)])
            real = np.arange(steps * batch) < len(mine)
            for number in range(steps):
                part = slice(number * batch, (number + 1) * batch)
                which = padded[part].astype(np.int32)
                local = which, x[which], real[part]
                counted = step(*counted, *jax.make_array_from_process_local_data((sharding,) * 3, local))
        return counted

    @staticmethod
    def reference(x):
        return np.full(len(x), 2), 2 * x


class ProcessMetrics(OverProcesses):
    """Sum, count, largest value, mean and confusion matrix over all processes, which have different numbers of rows:
    through partial results and `process_allgather`, or in a program over padded global arrays."""

    name = "process_metrics"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, by="allgather")
        yield Variant.of(0, by="program")

    def plan(self, request: Request) -> Plan:
        count = request.processes
        rows = 32 * 2 ** (count - 1).bit_length()  # a power of two, so that the mean is exact
        # Process i has about i + 1 shares. With many processes the first may have no rows.
        starts = tuple(rows * i * (i + 1) // (count * (count + 1)) for i in range(count + 1))
        small = ((rows,), "int32", (None,), values.tokens)
        return Plan(
            (
                Argument((rows,), request.dtype, (None,), values.summands, {"terms": rows}),
                Argument(*small, {"below": 4}),
                Argument(*small, {"below": 4}),
            ),
            (
                *(Result((), request.dtype, ()) for _ in range(3)),
                Result((), "int32", ()),
                Result((4, 4), "int32", (None, None)),
            ),
            {"starts": starts, "program": request.variant["by"] == "program"},
            judge="exact",
        )

    @staticmethod
    def host(mesh, x, label, guess, *, starts, program):
        process = jax.process_index()
        mine = slice(starts[process], starts[process + 1])
        if not program:
            table = np.zeros((4, 4), np.int32)
            np.add.at(table, (label[mine], guess[mine]), 1)
            largest = x[mine].max(initial=-np.inf)
            partial_ = {"sum": x[mine].sum(), "max": largest, "n": np.int32(len(x[mine])), "table": table}
            parts = multihost_utils.process_allgather(partial_)
            total, number = parts["sum"].sum(), parts["n"].sum(dtype=np.int32)
            figures = total, parts["max"].max(), total / x.dtype.type(number), number
            every = *map(np.asarray, figures), parts["table"].sum(axis=0, dtype=np.int32)
            return tuple(own(mesh, figure) for figure in every)

        sharding = NamedSharding(mesh, P(mesh.axis_names))
        devices = len(sharding.addressable_devices)
        longest = max(b - a for a, b in pairwise(starts))
        each = -(-longest // devices) * devices

        def put(rows):
            padded = np.concatenate([rows[mine], np.zeros(each - len(rows[mine]), rows.dtype)])
            return jax.make_array_from_process_local_data(sharding, padded)

        def figures_of(x, label, guess, mask):
            total, number = jnp.sum(jnp.where(mask, x, 0)), jnp.sum(mask.astype(jnp.int32))
            largest = jnp.max(jnp.where(mask, x, -jnp.inf))
            table = jnp.zeros((4, 4), jnp.int32).at[label, guess].add(mask.astype(jnp.int32))
            return total, largest, total / number.astype(x.dtype), number, table

        together = jax.jit(figures_of, out_shardings=(NamedSharding(mesh, P()),) * 5)
        return together(put(x), put(label), put(guess), put(np.ones(len(x), bool)))

    @staticmethod
    def reference(x, label, guess):
        table = np.zeros((4, 4))
        np.add.at(table, (label, guess), 1)
        return x.sum(), x.max(), x.mean(), np.array(len(x)), table


class ProcessDataParallel(OverProcesses):
    """Eight steps of least squares; each process brings its rows of each batch. The weights equal those of one process
    with all rows, within the bound that the reference derives."""

    name = "process_data_parallel"
    sizes: ClassVar[dict[str, int]] = {"n8": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, spelled="auto")
        yield Variant.of(1, spelled="manual")

    def plan(self, request: Request) -> Plan:
        mesh, n, steps = request.mesh, parse_size(request.size), 8
        rows, batch = -(-32 // mesh.size) * mesh.size, (mesh.names,)
        return Plan(
            (
                Argument((steps, rows, n), request.dtype, (None, mesh.names, None), values.uniform),
                Argument((steps, rows), request.dtype, (None, mesh.names), values.uniform),
                Argument((n,), request.dtype, (None,), values.uniform),
            ),
            (Result((n,), request.dtype, (None,)),),
            {
                "manual": request.variant["spelled"] == "manual",
                "batch": batch,
                "parts": mesh.size,
                "rate": 0.0625,
                "precision": "highest",
            },
            judge="bound",
        )

    @staticmethod
    def host(mesh, x, y, w, *, manual, batch, rate, precision):
        everywhere = NamedSharding(mesh, P())

        def loss(w, x, y):
            return jnp.mean((jnp.matmul(x, w, precision=precision) - y) ** 2)

        def step(w, x, y):
            return w - rate * jax.grad(loss)(w, x, y)

        def local_step(w, x, y):
            mine = jax.grad(loss)(lax.pcast(w, mesh.axis_names, to="varying"), x, y)
            return w - rate * lax.pmean(mine, mesh.axis_names)

        if manual:
            step = jax.shard_map(local_step, mesh=mesh, in_specs=(P(), P(*batch), P(*batch)), out_specs=P())
        program = jax.jit(step, out_shardings=everywhere)
        sharding = NamedSharding(mesh, P(*batch))
        weights = own(mesh, w)
        for rows, targets in zip(x, y, strict=True):
            local = process_part(sharding, rows), process_part(sharding, targets)
            weights = program(weights, *jax.make_array_from_process_local_data((sharding,) * 2, local))
        return weights

    @staticmethod
    def reference(x, y, w, *, rate, parts):
        for number in range(x.shape[0]):
            w = stepped(x[number], y[number], w, rate=rate, parts=parts)
        return w
