# SPDX-License-Identifier: Apache-2.0
"""Corner cases of sharded programs: collectives in branches and loops that only some devices take, of trees of several
dtypes and of carried values; axes of all three types in one program, uneven parts between manual axes, batches over a
mesh axis; memory kinds, mutable arrays and XLA metadata under derivatives.

The program is that of `programs.forms.base`: f(x) = x * s(x). Expected values come from NumPy. Any difference raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Missing, Variant
from meshmark.operations.programs.forms.base import ProgramForm, at, over, typed
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.function_forms import off
from meshmark.operations.programs.forms.options import through
from meshmark.operations.programs.forms.settings import memories


def by_device(mesh, given):
    """[first, last, rows, columns]: the blocks of an array with its rows sharded over the first mesh axis and its
    columns over the last one."""
    m, n = mesh.shape[mesh.axis_names[0]], mesh.shape[mesh.axis_names[-1]]
    return given.reshape(m, given.shape[0] // m, n, given.shape[1] // n).transpose(0, 2, 1, 3)


def joined(blocks):
    """The array of such blocks: the inverse of `by_device`."""
    m, n, rows, columns = blocks.shape
    return blocks.transpose(0, 2, 1, 3).reshape(m * rows, n * columns)


# Collectives that only some devices reach.


def _branches_of_some(mesh, a, x):
    """Different lines of the mesh take different branches: a sum, a gather or an exchange over their own line, or no
    collective. Also their gradients."""
    first = mesh.axis_names[0]
    n, given = mesh.shape[a], np.asarray(x)
    ways = (
        lambda b: b * lax.psum(b, a),
        lambda b: b + 1,
        lambda b: lax.all_gather(b, a).max(axis=0) - b,
        lambda b: 2 * lax.all_to_all(b, a, 0, 0, tiled=True),
    )

    def local(turn):
        return lambda b: lax.switch((lax.axis_index(first) + turn) % 4, ways, b)

    def sloped(b):
        return lax.switch(lax.axis_index(first) % 2, ways[:2], b)

    def exchanged(line):
        parts = line.reshape(n, n, -1, line.shape[2])
        return 2 * parts.transpose(1, 0, 2, 3).reshape(line.shape)

    spec = P(first, a)
    there = jax.device_put(x, at(mesh, first, a))
    blocks = by_device(mesh, given)
    own = (lambda v: v * v.sum(axis=0), lambda v: v + 1, lambda v: v.max(axis=0) - v, exchanged)
    slopes = [2 * v.sum(axis=0) + 0 * v if k % 2 == 0 else 0 * v + 1 for k, v in enumerate(blocks)]
    for checked in (True, False):
        options = {"mesh": mesh, "in_specs": spec, "out_specs": spec, "check_vma": checked}
        what = f"branches of some devices (check_vma={checked})"
        turn = 0 if checked else 2
        wanted = np.stack([own[(k + turn) % 4](line) for k, line in enumerate(blocks)])
        found = jax.jit(jax.shard_map(local(turn), **options))(there)
        same_as(np.asarray(found), joined(wanted), what)
        mapped = jax.shard_map(sloped, **options)
        found = jax.jit(jax.grad(lambda y, f=mapped: f(y).sum()))(there)
        same_as(np.asarray(found), joined(np.stack(slopes)), f"the gradient of {what}")
    return jax.jit(over(mesh, a))(x)


def _permutation_of_some(mesh, a, x):
    """Only the devices of the first line of the mesh permute their blocks over it. On CPU a permutation waits for every
    device, so only the full profile has this form."""
    first = mesh.axis_names[0]
    n = mesh.shape[a]
    turn = [(i, (i + 1) % n) for i in range(n)]

    def local(b):
        return lax.cond(lax.axis_index(first) == 0, lambda c: lax.ppermute(c, a, turn), lambda c: c, b)

    there = jax.device_put(x, at(mesh, first, a))
    blocks = by_device(mesh, np.asarray(x)).copy()
    blocks[0] = np.roll(blocks[0], 1, axis=0)
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(first, a), out_specs=P(first, a))
    same_as(np.asarray(jax.jit(mapped)(there)), joined(blocks), "a permutation of some devices")
    return jax.jit(over(mesh, a))(x)


def _loops_of_some(mesh, a, x):
    """Different lines of the mesh run a loop for different numbers of iterations, with a sum over their own line in it.
    Also a loop whose end depends on a sum over all devices."""
    first = mesh.axis_names[0]
    given = np.asarray(x) % 2
    there = jax.device_put(given, at(mesh, first, a))

    def of_line(b):
        times = 1 + lax.axis_index(first)

        def step(c):
            k, y = c
            return k + 1, y + lax.psum(y, a)

        return lax.while_loop(lambda c: c[0] < times, step, (jnp.zeros_like(times), b))[1]

    def of_all(b):
        def more(c):
            return lax.psum(c.sum(), (first, a)) < 4 * total

        return lax.while_loop(more, lambda c: 2 * c + lax.psum(0 * c, a), b)

    total, n = given.sum(), mesh.shape[a]
    spec = P(first, a)
    wanted = []
    for k, line in enumerate(by_device(mesh, given)):
        for _ in range(1 + k):
            line = line + line.sum(axis=0)
        wanted.append(line)
    mapped = jax.shard_map(of_line, mesh=mesh, in_specs=spec, out_specs=spec)
    same_as(np.asarray(jax.jit(mapped)(there)), joined(np.stack(wanted)), f"loops of lines of {n}")
    mapped = jax.shard_map(of_all, mesh=mesh, in_specs=spec, out_specs=spec)
    same_as(np.asarray(jax.jit(mapped)(there)), 4 * given, "a loop that all devices end together")
    return jax.jit(over(mesh, a))(x)


def _carried(mesh, a, x):
    """Loops that carry values which are equal on all devices, which differ, and which start equal and then differ:
    sums and permutations of them, and the gradient."""
    n, given = mesh.shape[a], np.asarray(x) % 3
    turn = [(i, (i + 1) % n) for i in range(n)]

    def local(b):
        def step(carried, k):
            alike, own, sent = carried
            alike = alike + lax.psum(own.sum(), a)
            sent = lax.ppermute(sent + own, a, turn)
            return (alike, own * 2, sent), (k * alike, lax.axis_index(a) + k)

        start = (jnp.float32(0), b, lax.pcast(jnp.zeros_like(b[:1, :1]), (), to="varying") + 0 * b)
        (alike, own, sent), (sums, places) = lax.scan(step, start, jnp.arange(1.0, 4.0))
        return own + sent, alike[None], sums, places

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=(P(a), P(), P(), P(a)))
    there = jax.device_put(given, at(mesh, a))
    blocks = given.reshape(n, -1, given.shape[1])
    alike, sums, sent, own = 0.0, [], 0 * blocks, blocks
    for k in (1, 2, 3):
        alike += own.sum()
        sums.append(k * alike)
        sent, own = np.roll(sent + own, 1, axis=0), own * 2
    wanted = (
        (own + sent).reshape(given.shape),
        np.array([alike]),
        np.array(sums),
        (np.arange(n)[:, None] + np.array([1.0, 2, 3])).reshape(-1),
    )
    for number, (y, right) in enumerate(zip(jax.jit(mapped)(there), wanted, strict=True)):
        same_as(np.asarray(y), right.astype(np.float32), f"result {number} of a loop that carries")
    slope = jax.jit(jax.grad(lambda y: sum(v.sum() for v in mapped(y)[:3])))(there)
    same_as(
        np.asarray(slope),
        np.full(given.shape, 8 + 7 + 7 + 1 + 6 + 21, np.float32),
        "the gradient of such a loop",
    )
    return jax.jit(over(mesh, a))(x)


def _trees(mesh, a, x):
    """Collectives of a tree whose leaves have different dtypes and ranks, over all axes, in both axis orders."""
    names, size = mesh.axis_names, mesh.size
    given = np.asarray(x)[: 2 * size] % 3
    tree = {kind: given.astype(kind) for kind in ("float32", "int32", "int8", "uint8", jnp.dtype("bfloat16"))}
    tree = {str(kind): leaf for kind, leaf in tree.items()} | {
        "none": None,
        "one": given[:, 0].astype(np.int16),
    }

    def local(t):
        largest = lax.pmax({"truth": t["float32"] > 1, **t}, names[::-1])
        return lax.psum(t, names), largest, lax.all_gather(t, names[::-1], tiled=True)

    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=P(names), out_specs=(P(), P(), P(names)), check_vma=False
    )
    sums, largest, gathered = jax.jit(mapped)(jax.device_put(tree, at(mesh, names)))
    turned = np.arange(size).reshape(mesh.devices.shape).transpose().reshape(-1)
    for kind, host in tree.items():
        if host is not None:
            blocks = host.reshape(size, 2, *host.shape[1:])
            total = blocks.astype(np.float64).sum(axis=0).astype(host.dtype)
            same_as(np.asarray(sums[kind]), total, f"a sum of {kind}")
            same_as(np.asarray(largest[kind]), blocks.max(axis=0), f"the largest of {kind}")
            order = np.concatenate([blocks[k] for k in turned])
            same_as(np.asarray(gathered[kind]), np.concatenate([order] * size), f"a gather of {kind}")
    truth = (given > 1).reshape(size, 2, -1).any(axis=0)
    same_as(np.asarray(largest["truth"]), truth, "the largest truth")
    return jax.jit(over(mesh, a))(x)


# Manual axes beside others.


def _uneven_between(mesh, a, x):
    """In a shard_map over the last axis the columns stay sharded over the first axis. They are cut to sizes that do not
    divide, rolled, sorted, cumulatively summed and joined again. Also the gradient."""
    first, n, given = mesh.axis_names[0], mesh.shape[a], np.asarray(x)

    def local(b):
        part = b[:, 1:] + lax.psum(b, a)[:, 1:]
        part = jnp.concatenate([part, jnp.roll(part, 2, axis=1)[:, :1]], axis=1)
        return jnp.cumsum(part, axis=1), jnp.sort(b, axis=1)[:, ::-1], part[:, ::2] * 2

    def wanted(b):
        part = (b + b.sum(axis=0))[:, :, 1:]
        part = np.concatenate([part, np.roll(part, 2, axis=2)[:, :, :1]], axis=2)
        return np.cumsum(part, axis=2), np.sort(b, axis=2)[:, :, ::-1], part[:, :, ::2] * 2

    blocks = given.reshape(n, -1, given.shape[1])
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=(P(a),) * 3, axis_names={a})
    there = jax.device_put(x, at(mesh, a, first))
    for number, (y, right) in enumerate(zip(jax.jit(mapped)(there), wanted(blocks), strict=True)):
        same_as(np.asarray(y), right.reshape(-1, right.shape[2]), f"result {number} of uneven parts")
    slope = jax.jit(jax.grad(lambda y: sum(v.sum() for v in mapped(y)[::2])))(there)
    columns = given.shape[1]
    part = np.arange(columns, 0, -1) + 2.0 * (
        np.arange(columns) % 2 == 0
    )  # of each column of the joined part
    of_column = np.zeros(columns)
    of_column[1:] = part[:-1]
    of_column[-2] += part[-1]  # the first of those that are rolled by two is the last but one
    right = np.broadcast_to(of_column * (1 + n), given.shape).astype(np.float32)
    same_as(np.asarray(slope), right, "the gradient of uneven parts")
    return jax.jit(over(mesh, a))(x)


def _three_types(mesh, a, x):
    """One manual axis beside an Explicit or an Auto axis: a product, a sum, a reshard or a constraint inside, and the
    gradient."""
    first, given = mesh.axis_names[0], np.asarray(x)
    for kind in (AxisType.Explicit, AxisType.Auto):
        m = typed(mesh, *(kind if name == first else AxisType.Auto for name in mesh.axis_names))

        def local(b, kind=kind):
            y = b * lax.psum(b, a)
            move = lax.with_sharding_constraint if kind == AxisType.Auto else reshard
            y = move(y, P(None, first))
            return y + 2 * y.sum(axis=0)

        blocks = given.reshape(mesh.shape[a], -1, given.shape[1])
        part = blocks * blocks.sum(axis=0)
        right = (part + 2 * part.sum(axis=1, keepdims=True)).reshape(given.shape)
        with jax.set_mesh(m):
            mapped = jax.shard_map(local, in_specs=P(a), out_specs=P(a), axis_names={a})
            there = jax.device_put(x, NamedSharding(m, P(a, first)))
            found = jax.jit(mapped)(there)
            slope = jax.jit(jax.grad(lambda y, f=mapped: f(y).sum()))(there)
        what = f"a shard_map beside an axis of type {kind}"
        same_as(np.asarray(found), right, what)
        rows = blocks.shape[1]
        own = (1 + 2 * rows) * 2 * np.broadcast_to(blocks.sum(axis=0), blocks.shape)
        same_as(np.asarray(slope), own.reshape(given.shape).astype(np.float32), f"the gradient of {what}")
    return jax.jit(over(mesh, a))(x)


def _batch_over_an_axis(mesh, a, x):
    """A batch that spmd_axis_name shards over the first axis: reads and writes at data-dependent indices, in a
    shard_map over the last axis and with a constraint. Also the gradient."""
    first, n, given = mesh.axis_names[0], mesh.shape[a], np.asarray(x)
    batch = given.T.reshape(given.shape[1], given.shape[0] // 2, 2)

    def local(b):
        places = (b[:, 0] % len(b)).astype(jnp.int32)
        return b.at[places].add(b) + b[places] * lax.psum(b, a)

    def wanted(b):
        found, total = [], b.sum(axis=0)
        for own in b:
            places = (own[:, 0] % len(own)).astype(int)
            made = own.copy()
            np.add.at(made, places, own)
            found.append(made + own[places] * total)
        return np.concatenate(found)

    inner = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a))
    there = jax.device_put(batch, at(mesh, first, a))
    mapped = jax.jit(jax.vmap(inner, spmd_axis_name=first))
    right = np.stack([wanted(one.reshape(n, -1, 2)) for one in batch])
    same_as(np.asarray(mapped(there)), right, "a batch over an axis")

    def held(row):
        places = (row[:, 0] % len(row)).astype(jnp.int32)
        y = lax.with_sharding_constraint(row.at[places].set(7.0), at(mesh, a))
        return (y * row[::-1]).sum(axis=1)

    def slope(row):
        places, made = (row[:, 0] % len(row)).astype(int), row.copy()
        made[places] = 7.0
        kept = np.ones((len(row), 1))
        kept[places] = 0
        return made[::-1] + kept * row[::-1]

    grads = jax.jit(jax.grad(lambda y: jax.vmap(held, spmd_axis_name=first)(y).sum()))(there)
    right = np.stack([slope(row) for row in batch]).astype(np.float32)
    same_as(np.asarray(grads), right, "the gradient of a batch over an axis")
    return jax.jit(over(mesh, a))(x)


# Memory kinds, mutable arrays and metadata.


def _given_away_between_memories(mesh, a, x):
    """A donated array in host memory with a result in device memory, the reverse, and both in host memory: values,
    memory kinds, and another argument that is not donated."""
    memories(mesh)
    given = np.asarray(x)
    host, here = (NamedSharding(mesh, P(a), memory_kind=kind) for kind in ("pinned_host", "device"))
    kept = jax.device_put(given + 1, here)
    for source, target in ((host, here), (here, host), (host, host)):
        run = jax.jit(
            lambda y, z, to=target: (jax.device_put(2 * jax.device_put(y, here) + z, to), z),
            donate_argnums=0,
            out_shardings=(target, here),
        )
        for _ in range(2):
            found, same = run(jax.device_put(given, source), kept)
            what = f"an array that was given away from {source.memory_kind} to {target.memory_kind}"
            same_as(np.asarray(found), 3 * given + 1, what)
            same_as(np.asarray(same), given + 1, f"an array beside {what}")
            if found.sharding.memory_kind != target.memory_kind:
                raise RuntimeError(f"{what} is in {found.sharding.memory_kind}")
    same_as(np.asarray(kept), given + 1, "an array that was not given away")
    return jax.jit(over(mesh, a))(x)


def _mutable_inside(mesh, a, x):
    """A mutable array in a loop, in a derivative, and in each block of a shard_map, frozen at its end."""
    if not hasattr(jax, "new_ref"):
        raise Missing("this release has no jax.new_ref")
    given = np.asarray(x)

    def summed(y):
        ref = jax.new_ref(jnp.zeros_like(y[0]))

        def step(k, _):
            ref[...] += y[k] * (k + 1)
            return _

        lax.fori_loop(0, 3, step, 0)
        return jax.freeze(ref)

    right = given[0] + 2 * given[1] + 3 * given[2]
    same_as(np.asarray(jax.jit(summed)(x)), right, "a mutable array in a loop")
    slope = jax.jit(jax.grad(lambda y: (summed(y) * y[3]).sum()))(x)
    own = np.zeros_like(given)
    own[:3] = given[3] * np.arange(1, 4)[:, None]
    own[3] = right
    same_as(np.asarray(slope), own, "the gradient of a mutable array in a loop")

    def local(b):
        ref = jax.new_ref(b)
        ref[0] = ref[1] + lax.psum(ref[2], a)
        ref[1:3] = 2 * ref[1:3]
        return jax.freeze(ref)

    blocks = given.reshape(mesh.shape[a], -1, given.shape[1]).copy()
    blocks[:, 0] = blocks[:, 1] + blocks[:, 2].sum(axis=0)
    blocks[:, 1:3] *= 2
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a))
    same_as(np.asarray(jax.jit(mapped)(x)), blocks.reshape(given.shape), "a mutable array of each block")
    return jax.jit(over(mesh, a))(x)


def _noted(mesh, a, x):
    """XLA metadata (`set_xla_metadata`) on a value, around a call and a loop, in a derivative and on a collective. It
    is in the lowered program and changes no value."""
    from jax.experimental.xla_metadata import set_xla_metadata

    def same(y):
        with set_xla_metadata(of_the_suite="around"):
            twice = jax.jit(lambda b: 2 * b)(y)
            loop = lax.scan(lambda c, k: (c + k * y, None), y, jnp.arange(3.0))[0]
        value = set_xla_metadata(5 * y, of_the_suite="value")
        slope = jax.grad(lambda b: set_xla_metadata(b * b, of_the_suite="slope").sum())(y)
        mapped = jax.shard_map(
            lambda b: set_xla_metadata(lax.psum(b, a), of_the_suite="sum"),
            mesh=mesh,
            in_specs=P(a),
            out_specs=P(),
        )
        parts = y.reshape(mesh.shape[a], -1, y.shape[1])
        return y + off(
            (twice, 2 * y), (loop, 4 * y), (value, 5 * y), (slope, 2 * y), (mapped(y), parts.sum(axis=0))
        )

    text = jax.jit(same).lower(x).as_text()
    if 'of_the_suite = "around"' not in text or 'of_the_suite = "value"' not in text:
        raise RuntimeError("a note for the compiler is not in the lowered program")
    return through(mesh, a, same)(x)


BLOCK_CORNERS: dict[str, Callable[..., Any]] = {
    "branches_of_some": _branches_of_some,
    "permutation_of_some": _permutation_of_some,
    "loops_of_some": _loops_of_some,
    "carried": _carried,
    "trees": _trees,
    "uneven_between": _uneven_between,
    "three_types": _three_types,
    "batch_over_an_axis": _batch_over_an_axis,
    "given_away_between_memories": _given_away_between_memories,
    "mutable_inside": _mutable_inside,
    "noted": _noted,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class BlockCorner(ProgramForm):
    """One sharded program, with checks of collectives that only some devices reach, manual axes beside other axes,
    memory kinds, mutable arrays and XLA metadata."""

    name = "block_corner"
    forms = BLOCK_CORNERS
    two_axes = (
        *("branches_of_some", "permutation_of_some", "loops_of_some"),
        *("uneven_between", "three_types", "batch_over_an_axis"),
    )

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for variant in super().variants(mesh):
            yield replace(variant, weight=3) if variant["form"] == "permutation_of_some" else variant

    @staticmethod
    def host(mesh, x, *, form, axis):
        return BLOCK_CORNERS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
