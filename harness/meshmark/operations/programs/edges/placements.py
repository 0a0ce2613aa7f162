# SPDX-License-Identifier: Apache-2.0
"""Placements at their edges: meshes of devices in another order, what shardings say of themselves, arrays between
meshes, arrays made of parts, shardings of several results, and gradients of what all devices have.

The program is that of `programs.forms.base`: f(x) = x * s(x). Each part of an array is compared with what its sharding
says, device by device, because the whole array may be right where a replica is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def equal(found: Any, expected: Any, what: str) -> None:
    """Raise RuntimeError if something is not what was expected."""
    wrong(found != expected, f"{what} is {found} instead of {expected}")


def turned(mesh: Any) -> Mesh:
    """The same mesh, with its devices moved on by one place. No device keeps its place, and no swap undoes it."""
    return Mesh(np.roll(mesh.devices.ravel(), 1).reshape(mesh.devices.shape), mesh.axis_names)


def parts_are(array: Any, mesh: Any, spec: Any, whole: np.ndarray, what: str) -> None:
    """Raise RuntimeError if a device holds another part than the mesh and the spec say."""
    names = [
        (n if isinstance(n, tuple) else (n,)) if n else ()
        for n in (*spec, *([None] * (whole.ndim - len(spec))))
    ]
    there = {shard.device: np.asarray(shard.data) for shard in array.addressable_shards}
    equal(set(there), set(mesh.devices.flat), f"the devices of {what}")
    for place in np.ndindex(mesh.devices.shape):
        at_axis = dict(zip(mesh.axis_names, place, strict=True))
        index = []
        for axes, size in zip(names, whole.shape, strict=True):
            number, part = 0, size
            for axis in axes:
                number, part = number * mesh.shape[axis] + at_axis[axis], part // mesh.shape[axis]
            index.append(slice(number * part, (number + 1) * part))
        same_as(
            there[mesh.devices[place]], whole[tuple(index)], f"the part of {what} on {mesh.devices[place]}"
        )


def solid(mesh: Any) -> np.ndarray:
    """Distinct numbers in three dimensions, each as long as there are devices. Of more than 64 devices the second and
    the third one are shorter, as long as the first and the last mesh axis together."""
    n, names = mesh.size, mesh.axis_names
    other = n if n <= 64 else mesh.shape[names[0]] * mesh.shape[names[-1]]
    return np.arange(n * other * other, dtype=np.float32).reshape(n, other, other)


def _meshes(mesh, a, x):
    """Meshes keep the order of their devices, and shardings, specs and contexts say what they are."""
    other, names = turned(mesh), mesh.axis_names
    order = [d.id for d in other.devices.flat]
    made = jax.make_mesh(mesh.devices.shape, names, devices=list(other.devices.flat))
    equal(
        [d.id for d in made.devices.flat], order, "the order of the devices of a mesh that was made of them"
    )
    equal(other.device_ids.ravel().tolist(), order, "the ids of the devices of a mesh")
    for spec in (P(a), P(None, a), P(names), P(names[::-1])):
        indices = NamedSharding(other, spec).addressable_devices_indices_map((mesh.size, mesh.size))
        whole = np.arange(mesh.size**2, dtype=np.int32).reshape(mesh.size, mesh.size)
        placed = jax.device_put(whole, NamedSharding(other, spec))
        for shard in placed.addressable_shards:
            same_as(
                whole[indices[shard.device]], whole[shard.index], f"the index of {shard.device} under {spec}"
            )
        parts_are(placed, other, spec, whole, f"an array over {spec} of a mesh in another order")
    if mesh.size > 1:
        equal(
            at(mesh, names).is_equivalent_to(NamedSharding(other, P(names)), 1),
            False,
            "two orders of devices are alike",
        )
    one = Mesh(mesh.devices[None], ("one", *names))
    equal(
        NamedSharding(one, P("one")).is_fully_replicated,
        True,
        "a sharding over an axis of one device, replicated,",
    )
    equal(
        NamedSharding(one, P(names)).is_fully_replicated,
        mesh.size == 1,
        "a sharding over all devices, replicated,",
    )
    equal(tuple(P(a, None) + P("q")), (a, None, "q"), "the sum of two specs")
    with jax.set_mesh(mesh):
        with jax.set_mesh(one):
            equal(
                jax.sharding.get_abstract_mesh().axis_names, one.axis_names, "the inner mesh of the context"
            )
        equal(
            jax.sharding.get_abstract_mesh().axis_names, names, "the mesh of the context after an inner one"
        )
    return jax.jit(over(mesh, a))(x)


def _moves(mesh, a, x):
    """Arrays go from mesh to mesh, to other orders and numbers of devices, and from one device to several replicas."""
    whole, other, names = solid(mesh), turned(mesh), mesh.axis_names
    specs = [P(a), P(None, names[0]), P(names), P(None, None, a), P()]
    for spec in specs:
        for there in (mesh, other):
            placed = jax.device_put(jnp.asarray(whole), NamedSharding(there, spec))
            parts_are(placed, there, spec, whole, f"an array from one device to {spec}")
            for back, to in ((other, spec), (mesh, specs[(specs.index(spec) + 1) % len(specs)])):
                moved = jax.device_put(placed, NamedSharding(back, to))
                parts_are(moved, back, to, whole, f"an array from {spec} to {to}")
    first = Mesh(mesh.devices.reshape(mesh.devices.shape[0], -1)[:, 0], ("few",))
    for spec, to in ((P(names[0]), P("few")), (P(), P("few")), (P(a), P())):
        moved = jax.device_put(jax.device_put(whole, at(mesh, *spec)), NamedSharding(first, to))
        parts_are(moved, first, to, whole, f"an array from {spec} to {to} of fewer devices")
    return jax.jit(over(mesh, a))(x)


def _made_of_parts(mesh, a, x):
    """Arrays from callbacks, from data of the process in any order of memory, and from parts in any order."""
    whole, names = solid(mesh), mesh.axis_names
    for spec in (
        P(a),
        P(None, None, a),
        P(names[0], None, a) if len(names) > 1 else P(None, a),
        P(names[::-1]),
    ):
        sharding = at(mesh, *spec)
        made = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
        parts_are(made, mesh, spec, whole, f"an array over {spec} from a callback")
        for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)) if whole.shape[0] == whole.shape[1] else ((0, 1, 2),):
            turn = whole.transpose(order)
            local = jax.make_array_from_process_local_data(sharding, turn)
            parts_are(local, mesh, spec, turn, f"an array over {spec} of transposed local data")
        shards = jax.device_put(whole, sharding).addressable_shards
        parts = [jax.device_put(np.asarray(s.data), s.device) for s in shards][::-1]
        joined = jax.make_array_from_single_device_arrays(whole.shape, sharding, parts)
        parts_are(joined, mesh, spec, whole, f"an array over {spec} of parts from the last")
        copies: dict[Any, list[int]] = {}
        for shard in joined.addressable_shards:
            copies.setdefault(str(shard.index), []).append(shard.replica_id)
        for index, numbers in copies.items():
            equal(sorted(numbers), list(range(len(numbers))), f"the numbers of the replicas of {index}")
    long = np.arange(mesh.size * -(-130 // mesh.size), dtype=np.float32)
    for spec in (P(), P(a)):
        placed = jax.device_put(long, at(mesh, *spec))
        equal(
            [float(row) for row in placed], long.tolist(), f"what iterating over an array over {spec} gives"
        )
    short = jax.device_put(long[: 2 * mesh.size], at(mesh, a))
    equal(
        [float(r) for r in reversed(short)],
        long[: 2 * mesh.size][::-1].tolist(),
        "what reversing an array gives",
    )
    return jax.jit(over(mesh, a))(x)


def _several_results(mesh, a, x):
    """Each result has its own sharding: of dictionaries, of auto_axes, of batches, of exported programs."""
    names = mesh.axis_names
    first, n = names[0], mesh.size
    host = np.arange(n * n, dtype=np.float32).reshape(n, n)
    y = jax.device_put(host, at(mesh, a))
    wanted = {"w": P(a), "b": P(None, first), "a": P()}
    places = {k: at(mesh, *s) for k, s in wanted.items()}
    found = jax.jit(lambda v: {"w": v * 2, "b": v + 1, "a": v - 1}, out_shardings=places)(y)
    for key, right in (("w", host * 2), ("b", host + 1), ("a", host - 1)):
        parts_are(found[key], mesh, wanted[key], right, f"the result {key}")
    explicit = Mesh(mesh.devices, names, axis_types=(AxisType.Explicit,) * len(names))
    with jax.set_mesh(explicit):
        z = jax.device_put(host, NamedSharding(explicit, P(first)))
        out = (P(first, None), P(None, a), P())
        results = jax.jit(jax.sharding.auto_axes(lambda v: (v * 2, v.T, v + 1), out_sharding=out))(z)
    for result, spec, right in zip(results, out, (host * 2, host.T, host + 1), strict=True):
        parts_are(result, explicit, spec, right, f"a result of auto_axes over {spec}")
    batch = jax.jit(
        jax.vmap(
            lambda row: lax.with_sharding_constraint(row * 2, at(mesh)),
            in_axes=1,
            out_axes=1,
            spmd_axis_name=a,
        )
    )(host)
    parts_are(batch, mesh, P(None, a), host * 2, "the result of a batch along the second dimension")
    exported = jax.export.export(jax.jit(lambda v: v * 2, in_shardings=at(mesh, names)))(
        jax.ShapeDtypeStruct((n,), np.float32)
    )
    (sharding,) = exported.in_shardings_jax(mesh)
    wrong(
        not sharding.is_equivalent_to(at(mesh, names), 1),
        f"the sharding of an exported argument is {sharding}",
    )
    same_as(
        np.asarray(multihost_utils.process_allgather(jnp.float32(3))),
        np.full((1,), 3, np.float32),
        "one scalar",
    )
    sent = multihost_utils.broadcast_one_to_all({"stop": np.array(True), "step": np.array(3, np.int32)})
    equal(
        {k: str(np.asarray(v).dtype) for k, v in sent.items()},
        {"stop": "bool", "step": "int32"},
        "what is sent",
    )
    return jax.jit(over(mesh, a))(x)


def _unused_arguments(mesh, a, x):
    """A program that does not use one of its arguments: the shardings of the others, and the program stored and loaded
    again."""
    from jax.experimental import serialize_executable

    first, n = mesh.axis_names[0], mesh.size
    host = np.arange(n * n, dtype=np.float32).reshape(n, n)
    y = jax.device_put(host, at(mesh, a))
    given = (P(a), P(None, first), P(None, a))
    places = tuple(at(mesh, *spec) for spec in given)
    compiled = jax.jit(lambda p, never, q: p @ q, in_shardings=places).lower(host, host, host).compile()
    for number in (0, 2):
        sharding = compiled.input_shardings[0][number]
        wrong(
            not sharding.is_equivalent_to(places[number], 2),
            f"the sharding of argument {number} beside an unused one is {sharding}",
        )
    unused = jax.jit(lambda p, never, q: p - 2 * q).lower(y, y, y).compile()
    for program in (
        unused,
        serialize_executable.deserialize_and_load(*serialize_executable.serialize(unused)),
    ):
        parts_are(
            program(y, y * 0, y * 5), mesh, P(a), -9 * host, "what a program with an unused argument gives"
        )
    return jax.jit(over(mesh, a))(x)


def _gradients(mesh, a, x):
    """Gradients by arguments that all devices have, and of results that all devices have, with and without the check of
    what varies; callbacks and indices of devices in a shard_map that is eager or over some axes."""
    names = mesh.axis_names
    whole = np.arange(1, 2 * mesh.size + 1, dtype=np.float32).reshape(mesh.size, 2)
    for axes in (a, names, names[::-1]):
        n = mesh.shape[a] if axes == a else mesh.size
        blocks = whole[:n]
        for check in (True, False):
            options = {"mesh": mesh, "check_vma": check}
            scaled = jax.shard_map(lambda v, s: v * s, in_specs=(P(axes), P()), out_specs=P(axes), **options)
            for what, weight, right in (
                ("scalar", np.float32(3), blocks.sum()),
                ("row", np.ones(2, np.float32), blocks.sum(0)),
            ):
                slope = jax.jit(jax.grad(lambda s, f=scaled, b=blocks: f(b, s).sum()))(weight)
                same_as(np.asarray(slope), right, f"the gradient by a {what} over {axes}, check_vma={check},")
            total = jax.shard_map(
                lambda v, axes=axes: lax.psum(v * v, axes), in_specs=P(axes), out_specs=P(), **options
            )
            slope = jax.jit(jax.grad(lambda v, f=total: f(v).sum()))(blocks)
            same_as(np.asarray(slope), 2 * blocks, f"the gradient of a sum over {axes}, check_vma={check},")
    for axis in names:
        numbered = jax.shard_map(
            lambda v, axis=axis: v + lax.axis_index(axis),
            mesh=mesh,
            in_specs=P(axis),
            out_specs=P(axis),
            axis_names={axis},
        )
        n = mesh.shape[axis]
        found = jax.jit(numbered)(jnp.zeros((n, 2), jnp.int32))
        same_as(
            np.asarray(found),
            np.repeat(np.arange(n, dtype=np.int32)[:, None], 2, 1),
            f"the index along {axis} alone",
        )
    seen: list[float] = []

    def told(v):
        jax.debug.callback(lambda b: seen.append(float(np.asarray(b).sum())), v)
        return v * 2

    mapped = jax.shard_map(told, mesh=mesh, in_specs=P(names), out_specs=P(names))
    for run in (mapped, jax.jit(mapped)):
        seen.clear()
        jax.block_until_ready(run(jnp.asarray(whole)))
        jax.effects_barrier()
        equal(sorted(seen), sorted(whole.sum(1).tolist()), "what each device tells")
    return jax.jit(over(mesh, a))(x)


PLACEMENT_EDGES: dict[str, Callable[..., Any]] = {
    "meshes": _meshes,
    "moves": _moves,
    "made_of_parts": _made_of_parts,
    "several_results": _several_results,
    "unused_arguments": _unused_arguments,
    "gradients": _gradients,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class PlacementEdge(ProgramForm):
    """One sharded program, with checks of placements at their edges: orders of devices, parts, moves, results."""

    name = "placement_edge"
    forms = PLACEMENT_EDGES

    @staticmethod
    def host(mesh, x, *, form, axis):
        return PLACEMENT_EDGES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
