# SPDX-License-Identifier: Apache-2.0
"""Rare forms: maxima, minima and means over devices inside loops and branches, transfers of narrow and transposed
arrays, axes of one device, device groups with other collectives, and draws with rare options.

The program is that of `programs.forms.base`: f(x) = x * s(x). The expected values are NumPy's. Any difference raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.meshes import MeshShape
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import replicated, same_as
from meshmark.operations.programs.forms.options import wrong


def _controls(mesh, a, x):
    """pmax, pmin, pmean and all_gather in loops, branches and rematerialized steps."""
    n = mesh.shape[a]
    given = np.asarray(x)[:n, :4] + np.arange(4, dtype=np.float32)
    means = given.mean(axis=0, dtype=np.float64) if n & (n - 1) == 0 else None

    def largest_in_a_switch(b):
        return lax.switch(
            lax.axis_index(a) * 0 + 1, (lambda s: s * 0, lambda s: lax.pmax(s, a), lambda s: s), b[0]
        )

    def least_in_a_loop(b):
        return lax.scan(lambda c, k: (lax.pmin(c, a) + 0 * b[0], lax.pmin(c + k, a)), b[0], jnp.arange(2.0))[
            1
        ][1]

    def mean_in_a_branch(b):
        def loop(s):
            return lax.fori_loop(0, 2, lambda i, c: lax.pmean(c, a) + 0 * b[0], s)

        return lax.cond(lax.axis_index(a) >= 0, loop, lambda s: s * 0, b[0])

    def all_in_a_branch(b):
        def step(s):
            return lax.cond(s[0] > -1, lambda r: lax.all_gather(r, a).sum(axis=0), lambda r: r * 0, s)

        return jax.checkpoint(step)(b[0])

    low = given.min(axis=0)
    for function, right in (
        (largest_in_a_switch, given.max(axis=0)),
        (least_in_a_loop, low + 1),
        (mean_in_a_branch, means),
        (all_in_a_branch, given.sum(axis=0)),
    ):
        if right is not None:
            found = replicated(mesh, a, function, given, check_vma=False)
            same_as(found, np.tile(np.float32(right), (n, 1)), function.__name__)
    mapped = jax.shard_map(lambda b: all_in_a_branch(b)[None], mesh=mesh, in_specs=P(a), out_specs=P(a))
    pulled = jax.jit(jax.grad(lambda y: (mapped(y) * given).sum()))(given)
    same_as(np.asarray(pulled), np.tile(given.sum(axis=0), (n, 1)), "the gradient of a gather in a branch")
    rows = jnp.arange(3 * n, dtype=jnp.float32).reshape(3, n)
    back = lax.scan(lambda c, r: (c * 2 + r, c), rows[0] * 0, rows, reverse=True, unroll=2)
    right = np.asarray(rows)
    steps = [0 * right[0], right[2], 2 * right[2] + right[1], 4 * right[2] + 2 * right[1] + right[0]]
    same_as(np.asarray(back[0]), steps[3], "the end of an unrolled loop backward")
    same_as(np.asarray(back[1]), np.stack(steps[2::-1]), "an unrolled loop backward")
    return jax.jit(over(mesh, a))(x)


def _transfers(mesh, a, x):
    """Narrow arrays put between shardings, host arrays in other memory orders, and donated arrays."""
    given = np.asarray(x)
    whole, rows = at(mesh), at(mesh, a)
    for kind in ("bfloat16", "float16", "int16", "int8", "uint8"):
        host = given.astype(kind)
        there = jax.device_put(host, rows)
        for place in (whole, at(mesh, None, a), rows):
            found = jax.device_put(there, place)
            same_as(np.asarray(found), host, f"{kind} put to {place.spec}")
            for shard in found.addressable_shards:
                same_as(np.asarray(shard.data), host[shard.index], f"{kind} put to {place.spec}, a shard")
    cube = given.reshape(len(given), 2, -1)
    for turned in (np.asfortranarray(cube), cube.astype(np.int8).transpose(2, 0, 1), cube[:, :, ::-1]):
        same_as(np.asarray(jax.device_put(turned, whole)), turned, "an array in another order of memory")
        same_as(
            np.asarray(jax.device_put(turned, at(mesh, None, None, None))), turned, "the same, by dimensions"
        )
    gone = jax.block_until_ready(jax.device_put(given, rows))
    found = jax.block_until_ready(jax.device_put(gone, at(mesh, None, a), donate=True))
    same_as(np.asarray(found), given, "an array that was given away")
    return jax.jit(over(mesh, a))(x)


def _one_device(mesh, a, x):
    """Collectives of narrow dtypes over an axis of one device, beside an axis of all devices."""
    flat = Mesh(mesh.devices.reshape(-1, 1), ("all", "one"))
    n = flat.shape["all"]
    for kind in ("bfloat16", "float16", "int8", "bool", "uint32"):
        host = np.asarray(x)[:n, :4].astype(kind)

        def local(b):
            parts = [
                lax.all_gather(b, "one", tiled=True),
                lax.all_gather(b, "one")[0],
                lax.pmax(b, "one"),
                lax.all_to_all(b, "one", 0, 1, tiled=True),
                lax.ppermute(b, "one", [(0, 0)]),
            ]
            if b.dtype != bool:
                parts += [lax.psum(b, "one"), lax.psum_scatter(b, "one", tiled=True)]
                parts += [lax.psum_scatter(b, "one")[None]]
            return jnp.concatenate(parts)

        mapped = jax.shard_map(local, mesh=flat, in_specs=P("all"), out_specs=P("all"), check_vma=False)
        found = np.asarray(jax.jit(mapped)(jax.device_put(host, NamedSharding(flat, P("all")))))
        count = len(found) // n
        same_as(found, np.repeat(host, count, axis=0), f"{kind} over an axis of one device")
    return jax.jit(over(mesh, a))(x)


def _groups(mesh, a, x):
    """Collectives of narrow dtypes in groups of every second device."""
    n = mesh.shape[a]
    if n % 2 or n < 4:
        return jax.jit(over(mesh, a))(x)
    groups = [[i for i in range(n) if i % 2 == k] for k in range(2)]
    m = n // 2
    options = {"axis_index_groups": groups}
    for kind in ("int8", "float16", "float32", "bfloat16"):
        host = ((np.arange(n * 2 * m) * 5 + 3) % 7).reshape(n, 2 * m).astype(kind)

        def local(b):
            pairs = b[0].reshape(2, m)
            swapped = lax.pswapaxes(pairs, a, 1, **options)
            mine = lax.psum_scatter(pairs, a, scatter_dimension=1, tiled=True, **options)
            every = lax.all_gather(b[0], a, **options)
            sent = lax.all_to_all(pairs, a, 1, 1, tiled=True, **options)
            least = lax.pmin(b[0], a, **options)
            parts = (swapped, mine, every, sent, least, lax.psum(b[0], a, **options))
            return jnp.concatenate([p.reshape(-1) for p in parts])[None]

        found = replicated_rows(mesh, a, local, host)
        right = []
        for i in range(n):
            own = next(g for g in groups if i in g)
            blocks, at_ = [host[j].reshape(2, m) for j in own], own.index(i)
            total = sum(b.astype(np.float64) for b in blocks)
            exchanged = np.stack([b[:, at_] for b in blocks], axis=1)
            parts = (exchanged, total[:, at_], host[own], exchanged, host[own].min(axis=0), total)
            right.append(np.concatenate([np.asarray(p, np.float64).reshape(-1) for p in parts]))
        same_as(found, np.stack(right).astype(host.dtype), f"{kind} in groups")
    return jax.jit(over(mesh, a))(x)


def replicated_rows(mesh, a, function, host):
    """One row per device of a line, without check_vma, which does not support groups."""
    mapped = jax.shard_map(function, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=False)
    return np.asarray(jax.jit(mapped)(host))


def _half_numbers(mesh, a, x):
    """Infinities and NaN in half precision that are permuted, shuffled and summed."""
    n = mesh.shape[a]
    for kind in ("float16", "bfloat16"):
        host = np.tile(np.array([np.nan, np.inf, -np.inf, -0.0, 1, 2]).astype(kind), (n, 1))
        host[0, 4:] = np.nan, -np.inf

        def local(b):
            ahead = [(i, (i + 1) % n) for i in range(n)]
            sums = lax.psum(b[0], a)
            return jnp.concatenate([lax.ppermute(b[0], a, ahead), lax.pshuffle(b[0], a, [*range(n)]), sums])[
                None
            ]

        found = replicated_rows(mesh, a, local, host)
        with np.errstate(invalid="ignore"):
            sums = host.astype(np.float64).sum(axis=0).astype(host.dtype)
        right = np.concatenate([np.roll(host, 1, axis=0), host, np.tile(sums, (n, 1))], axis=1)
        same_as(found, right, f"{kind} that are not numbers")
    return jax.jit(over(mesh, a))(x)


def _draws(mesh, a, x):
    """Choices without replacement by probability, categories along the first dimension, normal numbers of 16 bits."""
    place = at(mesh, a)
    key = jax.random.key(5)
    count = len(np.asarray(x))
    chances = jnp.where(jnp.arange(count) % 2 == 0, 2.0 / count, 0.0)
    chosen = jax.jit(lambda k: jax.random.choice(k, count, (count // 2,), replace=False, p=chances))(key)
    wrong(sorted(np.asarray(chosen).tolist()) != [*range(0, count, 2)], f"a choice by chances is {chosen}")
    sure = np.full((count, 3), -1e9, np.float32)
    sure[np.arange(3) + 1, np.arange(3)] = 0.0
    drawn = jax.jit(lambda k, y: jax.random.categorical(k, y, axis=0))(key, jax.device_put(sure, place))
    same_as(np.asarray(drawn).astype(np.int32), np.array([1, 2, 3], np.int32), "categories by columns")
    for kind in ("bfloat16", "float16"):
        many = jax.jit(lambda k, t=kind: jax.random.normal(k, (64 * count,), dtype=t), out_shardings=place)(
            key
        )
        numbers = np.asarray(many, np.float64)
        wrong(many.dtype != kind, f"normal numbers of {kind} are {many.dtype}")
        wrong(abs(numbers.std() - 1) > 0.25, f"normal numbers of {kind} spread by {numbers.std()}")
        alone = np.asarray(jax.random.normal(key, (64 * count,), dtype=kind), np.float64)
        wrong(np.abs(numbers - alone).max() > 0.1, f"normal numbers of {kind} are others on one device")
    return jax.jit(over(mesh, a))(x)


RARE: dict[str, Callable[..., Any]] = {
    "controls": _controls,
    "transfers": _transfers,
    "one_device": _one_device,
    "groups": _groups,
    "half_numbers": _half_numbers,
    "draws": _draws,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class RareForm(ProgramForm):
    """One sharded program, with checks of rare forms."""

    name = "rare_form"
    forms = RARE
    two_axes: ClassVar[tuple[str, ...]] = ()

    def absent(self, mode: str, variant: Any, mesh: MeshShape) -> str | None:
        """Groups need an axis with an even number of devices, four or more."""
        if variant["form"] == "groups" and (mesh.shape[-1] % 2 or mesh.shape[-1] < 4):
            return "groups need an even axis of four devices"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def host(mesh, x, *, form, axis):
        return RARE[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
