# SPDX-License-Identifier: Apache-2.0
"""Functions inside a `shard_map` with check_vma that is manual over only one axis of the mesh.

Library functions contain loops, constants and indices, which must vary as their operands do. With all axes manual this
is well tested. With some of them the hunt found a function that JAX refuses (`results/findings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "searchsorted": (
        lambda p: jnp.searchsorted(jnp.sort(p), p),
        lambda p: np.searchsorted(np.sort(p), p),
    ),
    "digitize": (lambda p: jnp.digitize(p, jnp.sort(p)), lambda p: np.digitize(p, np.sort(p))),
    "argsort": (lambda p: jnp.argsort(p, stable=True), lambda p: np.argsort(p, kind="stable")),
    "top_k": (lambda p: lax.top_k(p, p.size)[0], lambda p: np.sort(p)[::-1]),
    "cumulative": (
        lambda p: jnp.cumsum(p) + lax.cummax(p),
        lambda p: np.cumsum(p) + np.maximum.accumulate(p),
    ),
    "indices": (
        lambda p: jnp.take(p, jnp.arange(p.size) // 2) + jnp.zeros_like(p).at[::2].add(p[1::2]),
        lambda p: p[np.arange(p.size) // 2] + np.stack([p[1::2], 0 * p[1::2]], 1).ravel(),
    ),
    "arguments": (lambda p: p - jnp.argmax(p) + jnp.argmin(p), lambda p: p - p.argmax() + p.argmin()),
    "one_hot": (
        lambda p: jax.nn.one_hot(p.astype(jnp.int32) % 4, 4) @ jnp.arange(4.0),
        lambda p: p.astype(np.int64) % 4,
    ),
    "loop": (
        lambda p: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + p), (0, jnp.zeros_like(p)))[
            1
        ],
        lambda p: 3 * p,
    ),
    "scan": (
        lambda p: lax.scan(lambda c, q: (c + q, c), 0 * p[0], p)[1],
        lambda p: np.cumsum(p) - p,
    ),
    "branch": (
        lambda p: lax.cond(p[0] > p[-1], lambda q: q[::-1], lambda q: 2 * q, p),
        lambda p: p[::-1] if p[0] > p[-1] else 2 * p,
    ),
    "convolve": (
        lambda p: jnp.convolve(p, jnp.array([1.0, 2.0]), mode="same"),
        lambda p: np.convolve(p, [1, 2], mode="same"),
    ),
    "padded": (
        lambda p: jnp.roll(jnp.pad(p, 1, mode="edge"), 1)[:-2],
        lambda p: np.roll(np.pad(p, 1, mode="edge"), 1)[:-2],
    ),
    "repeated": (
        lambda p: jnp.unique(p, size=p.size, fill_value=0) + jnp.repeat(p[::2], 2),
        lambda p: np.pad(np.unique(p), (0, p.size - np.unique(p).size)) + np.repeat(p[::2], 2),
    ),
}
"""By name: a function of a block, and its NumPy definition."""


class PartlyManual(Operation):
    """A function of each block, in a shard_map over the last axis of the mesh. The first axis stays automatic."""

    name = "partly_manual"
    family = "transforms"
    level = "L3"
    modes: ClassVar[tuple[str, ...]] = ("host",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if len(mesh.names) < 2:
            return
        for function in FUNCTIONS:
            yield Variant.of(2 if mesh == preferred(mesh.size) else 3, function=function)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the operation tests what JAX accepts."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        a = request.mesh.names[-1]
        blocks = request.mesh.sizes[a]
        x = Argument((8 * blocks,), "float32", (a,), values.tokens, {"below": 16})
        options = {"function": request.variant["function"], "axis": a, "blocks": blocks}
        return Plan((x,), (Result(x.shape, "float32", (a,)),), options, judge="exact")

    @staticmethod
    def host(mesh, x, *, function, axis):
        def block(p):
            return FUNCTIONS[function][0](p).astype(p.dtype)

        mapped = jax.shard_map(block, mesh=mesh, in_specs=P(axis), out_specs=P(axis), axis_names={axis})
        placed = NamedSharding(mesh, P(axis))
        return jax.jit(mapped, out_shardings=placed)(jax.device_put(x, placed))

    @staticmethod
    def reference(x, *, function, blocks):
        return np.concatenate([FUNCTIONS[function][1](p) for p in np.split(x, blocks)])
