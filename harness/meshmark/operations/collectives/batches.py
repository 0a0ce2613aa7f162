# SPDX-License-Identifier: Apache-2.0
"""Collectives in a batch: `jax.vmap` of every collective along every dimension, with the batch in every place.

A batching rule moves the batch dimension along: a collective may add a dimension before it, or take one away. One
program holds a group of collectives over some axes of a mesh. A block has three dimensions of n for n devices. So a
batch in a wrong place has the right shape, and shows by its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.layout import split
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.collectives.grids import added, exchanged, over_axes, ring, sent

DIMENSIONS = (0, 1, 2)
BATCH = 2
"""The length of a batch."""

Call = tuple[Callable[[Any, Any, int], Any], Callable[[list[Any]], list[Any]]]
"""A collective of a block over n devices of some axes, and the results of all members in NumPy."""


def gathered(dim: int) -> Call:
    """Blocks joined along a dimension."""
    return (
        lambda b, a, n: lax.all_gather(b, a, axis=dim, tiled=True),
        lambda blocks: [np.concatenate(blocks, axis=dim)] * len(blocks),
    )


def stacked(dim: int) -> Call:
    """Blocks stacked along a new dimension."""
    return (
        lambda b, a, n: lax.all_gather(b, a, axis=dim),
        lambda blocks: [np.stack(blocks, axis=dim)] * len(blocks),
    )


def scattered(dim: int) -> Call:
    """The sum, in parts along a dimension."""
    return (
        lambda b, a, n: lax.psum_scatter(b, a, scatter_dimension=dim, tiled=True),
        lambda blocks: np.split(added(blocks), len(blocks), axis=dim),
    )


def taken(dim: int) -> Call:
    """One row of the sum for each device: the dimension is gone."""
    return (
        lambda b, a, n: lax.psum_scatter(b, a, scatter_dimension=dim),
        lambda blocks: [added(blocks).take(i, axis=dim) for i in range(len(blocks))],
    )


def exchanged_rows(dim: int, other: int, tiled: bool) -> Call:
    """Parts along one dimension, exchanged and joined along another, or stacked at its place."""

    def untiled(blocks: list[Any]) -> list[Any]:
        return [np.stack([b.take(i, axis=dim) for b in blocks], axis=other) for i in range(len(blocks))]

    return (
        lambda b, a, n: lax.all_to_all(b, a, dim, other, tiled=tiled),
        (lambda blocks: exchanged(blocks, dim, other)) if tiled else untiled,
    )


def swapped(dim: int) -> Call:
    """The dimension exchanged with the axes."""
    return lambda b, a, n: lax.pswapaxes(b, a, dim), exchanged_rows(dim, dim, False)[1]


PAIRS = ((0, 1), (1, 0), (2, 0), (0, 2), (1, 1), (1, 2))

GROUPS: dict[str, tuple[Call, ...]] = {
    "sums": (
        (lambda b, a, n: lax.psum(b, a), lambda blocks: [added(blocks)] * len(blocks)),
        (lambda b, a, n: lax.pmax(b, a), lambda blocks: [np.max(np.stack(blocks), axis=0)] * len(blocks)),
        (lambda b, a, n: lax.pmin(b, a), lambda blocks: [np.min(np.stack(blocks), axis=0)] * len(blocks)),
        *map(scattered, DIMENSIONS),
    ),
    "rows": tuple(map(taken, DIMENSIONS)),
    "last_rows": tuple(map(taken, DIMENSIONS)),
    "gathers": (*map(gathered, DIMENSIONS), *map(stacked, (*DIMENSIONS, 3))),
    "exchanges": tuple(exchanged_rows(*pair, tiled) for pair in PAIRS for tiled in (True, False)),
    "moves": (
        (lambda b, a, n: lax.ppermute(b, a, ring(n)), lambda blocks: sent(blocks, ring(len(blocks)))),
        (
            lambda b, a, n: lax.pshuffle(b, a, [(i + 1) % n for i in range(n)]),
            lambda blocks: [*blocks[1:], blocks[0]],
        ),
        (
            lambda b, a, n: b * lax.axis_index(a).astype(b.dtype),
            lambda blocks: [b * b.dtype.type(i) for i, b in enumerate(blocks)],
        ),
        *map(swapped, DIMENSIONS),
    ),
}
"""The collectives of a variant."""


def places(group: str) -> Iterator[tuple[Call, int, int]]:
    """(collective, place of the batch before it, place after it). The places after it change in turns.

    A sum that loses a dimension has two groups: its batch is one of the first two dimensions, or one of the last two.
    JAX up to 0.12.0.1 gives wrong numbers in the first group, and raises in the second."""
    chosen = {"rows": (0, 1), "last_rows": (2, 3)}.get(group, (*DIMENSIONS, 3))
    for number, call in enumerate(GROUPS[group]):
        for before in chosen:
            yield call, before, (number + before) % 3


class BatchGrid(Operation):
    """A batch of every collective, with the batch dimension in every place."""

    name = "batch_grid"
    family = "forms"
    level = "L1"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The last axis, the first one, and all axes of a mesh of several."""
        if (1 in mesh.shape and mesh.size > 1) or mesh.size > 8:
            return
        axes = dict.fromkeys((mesh.names[-1:], mesh.names[:1], mesh.names))
        first = mesh == preferred(mesh.size)
        for some in axes:
            for group in GROUPS:
                yield Variant.of(2 if first else 3, group=group, axes=some)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the benchmarks time the collectives one by one."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        mesh, axes = request.mesh, request.variant["axes"]
        n = mesh.product(axes)
        shape = (mesh.size, BATCH, n, n, n)
        x = Argument(shape, request.dtype, (mesh.names, *(None,) * 4), values.summands, {"terms": 2 * n})
        sample = [np.zeros((n, n, n), np.int8)] * n
        sizes = [BATCH * defined(sample)[0].size for (_, defined), _, _ in places(request.variant["group"])]
        result = Result((mesh.size, sum(sizes)), request.dtype, (mesh.names, None))
        options = {"group": request.variant["group"], "axes": axes, "sizes": dict(mesh.sizes)}
        return Plan((x,), (result,), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, group, axes, sizes):
        n = math.prod(sizes[name] for name in axes)

        def one(block):
            parts = []
            for (call, _), before, after in places(group):
                batched = jax.vmap(lambda b, call=call: call(b, axes, n), in_axes=before, out_axes=after)
                found = batched(jnp.moveaxis(block[0], 0, before))
                parts.append(jnp.moveaxis(found, after, 0).reshape(-1))
            return jnp.concatenate(parts)[None]

        rows = P(mesh.axis_names)
        mapped = jax.shard_map(one, mesh=mesh, in_specs=rows, out_specs=rows)
        return jax.jit(mapped)(jax.device_put(x, NamedSharding(mesh, rows)))

    @staticmethod
    def reference(x, *, group, axes, sizes):
        blocks = split(x, (tuple(sizes), *(None,) * 4), sizes)
        parts = []
        for (_, defined), _before, _after in places(group):
            of_rows = [over_axes(defined, [b[0, row] for b in blocks], sizes, axes) for row in range(BATCH)]
            parts.append([np.concatenate(rows) for rows in zip(*of_rows, strict=True)])
        return np.stack([np.concatenate(of_device) for of_device in zip(*parts, strict=True)])
