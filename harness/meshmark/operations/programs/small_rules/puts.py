# SPDX-License-Identifier: Apache-2.0
"""Small rules: options of puts, puts of numbers, trees and arrays of other meshes, and donation."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.methods import SPECS, lies_at

# Puts.


def _memories(line: Any) -> list[str | None]:
    """The kinds of memory that arrays may be put to."""
    kinds = {m.kind for m in line.devices.flat[0].addressable_memories()}
    return [k for k in ("device", "pinned_host") if k in kinds]


def _put_options(line, grid):
    """Options of puts: what may alias, what is donated, and kinds of memory."""
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    for kind, spec in itertools.product(_memories(line), SPECS):
        here = NamedSharding(grid, spec, memory_kind=kind)
        others = [NamedSharding(grid, P("x", "y"), memory_kind=kind), NamedSharding(grid, P("y"))]
        for there in (here, *others, *(here.with_memory_kind(k) for k in _memories(line) if k != kind)):
            for options in ({"may_alias": False}, {"may_alias": None}, {"donate": False}, {}):
                x = jax.device_put(host, here)
                tree = jax.device_put({"a": x, "b": (x,)}, there, **options)
                what = f"an array over {spec} in {kind}, put to {there.spec} with {options}"
                for y in jax.tree.leaves(tree):
                    lies_at(y, there, what)
                    expect(y.sharding.memory_kind, there.memory_kind or "device", f"the memory of {what}")
                    data = y.addressable_shards[0].data
                    expect(
                        data.sharding.memory_kind, y.sharding.memory_kind, f"the memory of a part of {what}"
                    )
                wrong(x.is_deleted(), f"{what} is deleted")
                if options.get("may_alias", True) is False:
                    wrong(any(y is x for y in jax.tree.leaves(tree)), f"{what} is itself")
                    x.delete()
                for y in jax.tree.leaves(tree):
                    on_each_device(y, host, what)
        if kind == "device":
            for there in (here, NamedSharding(grid, P("x", "y"))):
                x = jax.device_put(host, here)
                on_each_device(
                    jax.device_put(x, there, donate=True),
                    host,
                    f"an array over {spec} donated to {there.spec}",
                )
            refused(
                "a put that donates and may alias",
                "ValueError.*may_alias",
                lambda here=here: jax.device_put(host, here, may_alias=True, donate=True),
            )
    if _memories(line)[1:] and hasattr(jax, "memory"):
        x = placed(grid, host, "x")
        for space, kind in ((jax.memory.Space.Host, "pinned_host"), (jax.memory.Space.Device, "device")):
            x = jax.device_put(x, space)
            lies_at(x, NamedSharding(grid, P("x"), memory_kind=kind), f"an array put to {space}")
            expect(x.sharding.memory_kind, kind, f"the memory of an array put to {space}")
            on_each_device(x, host, f"an array put to {space}")


def _put_numbers(line, grid):
    """Numbers of weak and strong types that are put somewhere, and used with arrays; and arrays of no elements."""
    device = next(d for d in grid.devices.flat if d.process_index == jax.process_index())
    places: list[Any] = [
        NamedSharding(grid, P()),
        NamedSharding(explicit(line), P()),
        NamedSharding(line, P(), memory_kind=_memories(line)[-1]),
        SingleDeviceSharding(device),
        device,
        None,
    ]
    sources: list[tuple[Any, bool]] = [(3, True), (2.5, True), (1j, True), (True, False)]
    sources += [
        (np.int8(3), False),
        (np.float32(2.5), False),
        (jnp.asarray(2.5), True),
        (jnp.float16(2.5), False),
    ]
    for place in places:
        options: list[dict[str, Any]] = [{}, {"may_alias": False}, {"may_alias": True}]
        for (value, weak), option in itertools.product(sources, options):
            x = jax.device_put(value, place, **option)
            what = f"{type(value).__name__} {value} put to {place} with {option}"
            expect(x.weak_type, weak, f"the weak type of {what}")
            expect(x.dtype.name, jnp.asarray(value).dtype.name, f"the dtype of {what}")
            expect(x.item(), value.item() if hasattr(value, "item") else value, what)
        tree = jax.device_put({"a": 3, "b": [2.5, np.float32(1)]}, place)
        seen = [v.weak_type for v in jax.tree.leaves(tree)]
        expect(seen, [True, True, False], f"the weak types of a tree of numbers put to {place}")
    for kind in (np.int8, jnp.bfloat16, np.float16, np.uint16):
        y = placed(grid, np.ones(2 * grid.size, kind), "x")
        number = jax.device_put(3 if np.dtype(kind).kind in "iu" else 2.5, NamedSharding(grid, P()))
        for way, call in (("eagerly", lambda f: f), ("in a program", jax.jit)):
            found = call(lambda v, k: v * k)(y, number)
            right = (np.ones(2 * grid.size) * number.item()).astype(kind)
            on_each_device(
                found, right, f"{np.dtype(kind).name} times a number that was put somewhere, {way},"
            )
    _put_empty(line, grid)


def _put_empty(line: Any, grid: Any) -> None:
    """Arrays of no elements keep the spec that they are put to."""
    n = line.size
    for shape in ((0,), (0, n), (2 * n, 0), (0, 0), (n, 0, 3)):
        for kind in (np.float32, bool, np.int8):
            for mesh, spec in (
                (line, P("d")),
                (grid, P("x")),
                (line, P(None, "d")),
                (grid, P(("y", "x"))),
                (line, P()),
            ):
                if len(spec) > len(shape) or (len(spec) == 1 and shape == (n, 0, 3) and mesh is grid):
                    continue
                place = NamedSharding(mesh, spec)
                for source in (np.zeros(shape, kind), jnp.zeros(shape, kind)):
                    x = jax.device_put(source, place)
                    what = f"an array of shape {shape} put to {spec}"
                    expect(np.asarray(x), np.zeros(shape, kind), what)
                    # Whether one of size 0 lies alike says nothing: each spec has the same empty parts.
                    expect((x.sharding.spec, x.sharding.mesh), (spec, mesh), f"the spec of {what}")
                    expect(len(x.addressable_shards), len(place.addressable_devices), f"the parts of {what}")
                    for shard in x.addressable_shards:
                        expect(shard.data.shape, place.shard_shape(shape), f"the shape of a part of {what}")


def _one_type(x: Any, place: NamedSharding, host: np.ndarray, what: str) -> None:
    """RuntimeError if an array over Explicit axes has another type than its sharding says."""
    on_each_device(x, host, what)
    lies_at(x, place, what)
    wrong(
        x.sharding.mesh != place.mesh, f"{what} lies over the mesh {x.sharding.mesh} instead of {place.mesh}"
    )
    seen = jax.typeof(x).sharding
    right = place.mesh.abstract_mesh
    wrong(dict(seen.mesh.shape) != dict(right.shape), f"the type of {what} has the mesh {seen.mesh}")
    wrong(seen.mesh.axis_types != right.axis_types, f"the type of {what} has the mesh {seen.mesh}")
    full = (*place.spec, *(None,) * (x.ndim - len(place.spec)))
    wrong(tuple(seen.spec) != full, f"the type of {what} has the spec {seen.spec} instead of {place.spec}")


def _put_meshes(line, grid):
    """Puts between meshes that share a spec: of other sizes, orders, shapes and types. Types follow the mesh."""
    devices = line.devices.ravel()
    half = max(1, line.size // 2)
    meshes = [explicit(grid), Mesh(grid.devices, ("x", "y")), Mesh(grid.devices[::-1, ::-1], ("x", "y"))]
    meshes += [explicit(meshes[-1]), explicit(Mesh(devices.reshape(1, -1), ("x", "y")))]
    if may_leave_out_devices():
        meshes += [
            explicit(Mesh(devices[-half:].reshape(-1, 1), ("x", "y"))),
            explicit(Mesh(devices[:1].reshape(1, 1), ("x", "y"))),
        ]
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    specs = (P("x"), P("x", "y"), P(None, "y"), P(("y", "x")), P())
    for number, (one, other) in enumerate(itertools.permutations(range(len(meshes)), 2)):
        for spec in (specs[number % 5], specs[(number + 2) % 5]):
            here, there = (NamedSharding(meshes[k], spec) for k in (one, other))
            moved = jax.device_put(jax.device_put(host, here), there)
            what = f"an array over {spec} that moves from mesh {one} to {other}"
            on_each_device(moved, host, what)
            if explicit(there.mesh) == there.mesh:
                _one_type(moved, there, host, what)
    for other, mesh in enumerate(meshes):
        there = NamedSharding(mesh, P("x"))
        moved = jax.device_put(jax.device_put(host, NamedSharding(meshes[other - 1], P("x"))), there)
        with jax.set_mesh(mesh):
            found = jax.jit(lambda v: (v + 1, v.sum(1)))(moved)
            on_each_device(found[0], host + 1, f"a sum of an array that moved to mesh {other}")
            on_each_device(found[1], host.sum(1), f"the sums of rows of an array that moved to mesh {other}")


def _put_trees(line, grid):
    """Puts of trees: a sharding for each leaf, for some or for a part of the tree, and None in any place."""
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    here = NamedSharding(line, P(None, "d"))
    choices = (NamedSharding(grid, P("x")), None, NamedSharding(grid, P(None, "y")))
    for places, kind in itertools.product(itertools.product(choices, repeat=3), (tuple, list)):
        for source in ("NumPy", "an array"):
            given = kind(host + k if source == "NumPy" else jax.device_put(host + k, here) for k in range(3))
            found = jax.device_put(given, kind(places))
            wrong(type(found) is not kind, f"a put of a {kind.__name__} gives a {type(found)}")
            for k, (y, place) in enumerate(zip(found, places, strict=True)):
                names = [p and p.spec for p in places]
                what = f"leaf {k} of a {kind.__name__} of {source} put to {names}"
                expect(np.asarray(y), host + np.float32(k), what)
                if place is not None:
                    lies_at(y, place, what)
                elif source == "NumPy":
                    expect(len(y.devices()), 1, f"the number of devices of {what}")
                else:
                    lies_at(y, here, what)
    one, _, two = choices
    tree = {"p": (host, [host + 1]), "q": host + 2, "r": (None, host + 3)}
    for places, right in (
        ({"p": one, "q": two, "r": two}, (one, one, two, two)),
        ({"p": (two, [one]), "q": None, "r": (None, one)}, (two, one, None, one)),
        ({"p": None, "q": one, "r": (None, two)}, (None, None, one, two)),
        ({"p": (None, two), "q": two, "r": one}, (None, two, two, one)),
        (two, (two,) * 4),
    ):
        found = jax.device_put(tree, places)
        expect(jax.tree.structure(found), jax.tree.structure(tree), "the structure of a tree that is put")
        for k, (y, place) in enumerate(zip(jax.tree.leaves(found), right, strict=True)):
            expect(np.asarray(y), host + np.float32(k), f"leaf {k} of a tree put to {places}")
            seen = y.sharding.is_equivalent_to(place, 2) if place else len(y.devices()) == 1
            wrong(not seen, f"leaf {k} of a tree put to {places} lies over {y.sharding}")
    _made_trees(grid, host)


def _made_trees(grid: Any, host: np.ndarray) -> None:
    """Trees that are made of a process's own data, with a sharding and a shape for each leaf."""
    if jax.process_count() > 1:
        return  # each process would give its own part
    places = [NamedSharding(grid, s) for s in (P("x"), P(None, "y"), P("y", "x"), P())]
    for order in itertools.permutations(range(4), 3):
        three = [places[k] for k in order]
        there: dict[str, Any] = dict(zip("abc", three, strict=True))
        data = {"a": host, "b": host + 1, "c": host.astype(np.int8)}
        for option in ((), (dict.fromkeys("abc", host.shape),)):
            found = jax.make_array_from_process_local_data(there, data, *option)
            for y, place, right in zip(*map(jax.tree.leaves, (found, there, data)), strict=True):
                lies_at(y, place, f"a leaf of a tree made over {[p.spec for p in three]}")
                on_each_device(y, right, f"a leaf of a tree made over {[p.spec for p in three]}")
    for place in places:
        found = jax.make_array_from_process_local_data(place, {"a": host, "b": [host + 1]})
        for k, y in enumerate(jax.tree.leaves(found)):
            lies_at(y, place, f"a leaf of a tree made over {place.spec}")
            on_each_device(y, host + np.float32(k), f"a leaf of a tree made over {place.spec}")
        many = jax.tree.map(
            lambda k, place=place: jax.make_array_from_callback(
                host.shape, place, lambda at: (host + k)[at].astype(np.int16)
            ),
            [0, 1],
        )
        for k, y in enumerate(many):
            on_each_device(y, (host + k).astype(np.int16), f"an array made by a callback over {place.spec}")


def _put_contexts(line, grid):
    """Puts while a mesh is set: of arrays on one device, of the mesh, and of another mesh."""
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    turned = explicit(Mesh(grid.devices[::-1, ::-1], ("x", "y")))
    device = [d for d in grid.devices.flat if d.process_index == jax.process_index()][-1]
    for mesh in (grid, explicit(grid), explicit(line)):
        first = mesh.axis_names[0]
        last = mesh.axis_names[-1]
        sources: dict[str, Any] = {
            "an array of NumPy": host,
            "an array on no chosen device": jnp.asarray(host),
            "an array on one device": jax.device_put(host, device),
            "an array of the mesh": placed(mesh, host, first),
            "an array that all devices hold": placed(mesh, host),
            "an array of another mesh": placed(turned, host, "x"),
        }
        with jax.set_mesh(mesh):
            sources["an array made there"] = jnp.asarray(host) + 0
            sources["the result of a program"] = jax.jit(lambda v: v + 0)(host)
            for name, x in sources.items():
                for spec in (P(first), P(None, last), P(mesh.axis_names), P()):
                    place = NamedSharding(mesh, spec)
                    ways = {"a sharding": place, "a spec": spec}
                    for way, there in ways.items():
                        what = f"{name}, put to {spec} by {way} in a mesh {mesh.axis_types}"
                        y = jax.device_put(x, there)
                        on_each_device(y, host, what)
                        lies_at(y, place, what)
                        on_each_device(y + 1, host + 1, f"a sum of {what}")
                for there in (device, SingleDeviceSharding(device)):
                    y = jax.device_put(x, there)
                    on_each_device(y, host, f"{name}, put to a device in a mesh")
                    expect(y.devices(), {device}, f"the devices of {name}, put to one in a mesh")
            for value in (3, 2.5, True):
                y = jax.device_put(value, NamedSharding(mesh, P()))
                expect((y.item(), y.weak_type), (value, value is not True), "a number put in a mesh")
            tree = jax.device_put({"a": host, "b": jnp.asarray(host)}, {"a": P(first), "b": P(None, last)})
            lies_at(tree["a"], NamedSharding(mesh, P(first)), "a leaf put in a mesh")
            lies_at(tree["b"], NamedSharding(mesh, P(None, last)), "another leaf put in a mesh")


def _put_to_another_mesh(line, grid):
    """Puts while a mesh is set, to a mesh with the devices in another order, or with some of them."""
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    meshes = [Mesh(grid.devices[::-1, ::-1], ("x", "y")), Mesh(line.devices, ("x",))]
    if may_leave_out_devices():
        meshes.append(Mesh(line.devices[-1:], ("x",)))
    for mesh, other in itertools.product((grid, explicit(grid)), meshes):
        for target in (other, explicit(other)):
            there = NamedSharding(target, P("x"))
            with jax.set_mesh(mesh):
                for spec in (P("x"), P("y"), P()):
                    moved = jax.device_put(placed(mesh, host, *spec), there)
                    what = f"an array over {spec} put to another mesh while its own is set"
                    on_each_device(moved, host, what)
                    lies_at(moved, there, what)


# Donation.


def _donations(line, grid):
    """Which arrays are deleted after a call that donates some: by number, by name, by keyword, in trees."""
    host = mixed((2 * grid.size, 4), 97, 7).astype(np.float32)

    def parts(start: int) -> dict[str, Any]:
        one = host + np.float32(start)
        return {"a": one, "b": (one[:, :2], [one[:, 0]])}

    def tree(spec: P, start: int) -> dict[str, Any]:
        return jax.tree.map(lambda v: placed(grid, v, *spec), parts(start))

    def run(w, x, y):
        return jax.tree.map(lambda v: v + 1, (y, w, x))

    def loose(*many, **named):
        return jax.tree.map(lambda v: v + 1, (many, named))

    for spec in (P("x"), P()):
        for options, gone in (
            ({"donate_argnums": 0}, "w"),
            ({"donate_argnums": (0, 2)}, "wy"),
            ({"donate_argnames": "x"}, "x"),
            ({"donate_argnames": ("w", "y")}, "wy"),
            ({"donate_argnums": (1,), "donate_argnames": ("x",)}, "x"),
            ({}, ""),
        ):
            jitted = jax.jit(run, **options)
            calls: dict[str, Callable[..., Any]] = {
                "by place": lambda w, x, y, f=jitted: f(w, x, y),
                "by keyword": lambda w, x, y, f=jitted: f(w=w, x=x, y=y),
                "by keyword in another order": lambda w, x, y, f=jitted: f(y=y, x=x, w=w),
                "by place and keyword": lambda w, x, y, f=jitted: f(w, y=y, x=x),
                "compiled ahead": lambda w, x, y, f=jitted: f.lower(w, x, y=y).compile()(w, x, y=y),
            }
            for way, call in list(calls.items())[:: 1 if spec == P("x") else 3]:
                given = {name: tree(spec, 10 * k) for k, name in enumerate("wxy")}
                right = {name: parts(10 * k + 1) for k, name in enumerate("wxy")}
                found = jax.block_until_ready(call(**given))
                what = f"{options} over {spec}, {way},"
                for k, name in enumerate("ywx"):
                    same_leaves(found[k], right[name], f"the result of {name} with {what}")
                _deleted(given, gone, what)
    for options, gone in (({"donate_argnums": 1}, "1"), ({"donate_argnums": (0, 2)}, "02"), ({}, "")):
        given = {str(k): tree(P("x"), 10 * k) for k in range(3)}
        jax.block_until_ready(jax.jit(loose, **options)(*given.values()))
        _deleted(given, gone, f"{options} of any number of arguments")
    for options, gone in (({"donate_argnames": "p"}, "p"), ({"donate_argnames": ("r", "p")}, "pr")):
        given = {name: tree(P("x"), 1) for name in "pqr"}
        jax.block_until_ready(jax.jit(loose, **options)(**given))
        _deleted(given, gone, f"{options} of any keywords")
    _donated_after_reads(grid)


def _donated_after_reads(grid: Any) -> None:
    """What NumPy has read of an array, or of a part of it, stays after the array is donated."""
    host = mixed((2 * grid.size, 64), 97, 7).astype(np.float32)
    run = jax.jit(lambda v: v + 1, donate_argnums=0)
    for spec in (P("x"), P("x", "y"), P()):
        for whole in (True, False):
            x = placed(grid, host + 1, *spec) + 1
            shard = x.addressable_shards[0]
            seen = np.asarray(x if whole else shard.data)
            right = host + 2 if whole else (host + 2)[shard.index]
            del shard
            found = jax.block_until_ready(run(x))
            what = f"{'an array' if whole else 'a part of an array'} over {spec} that NumPy read"
            expect(seen, right, f"what is read of {what}, after it is donated,")
            on_each_device(found, host + 3, f"the sum of {what}")


def same_leaves(found: Any, right: Any, what: str) -> None:
    """RuntimeError if a leaf of a tree is not that of the other one."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        expect(np.asarray(one), np.asarray(other), what)


def _deleted(given: dict[str, Any], gone: str, what: str) -> None:
    """RuntimeError unless all leaves of the arguments with these names are deleted, and no others."""
    for name, tree in given.items():
        seen = [leaf.is_deleted() for leaf in jax.tree.leaves(tree)]
        wrong(seen != [name in gone] * len(seen), f"with {what} the leaves of {name} are deleted: {seen}")


def _donations_from_the_end(line, grid):
    """Arguments that are donated by numbers from the end."""
    host = mixed((2 * grid.size, 4), 97, 7).astype(np.float32)
    for numbers, gone in ((-1, "y"), ((-3, -1), "wy"), ((0, -2), "wx")):
        given = {name: {"a": placed(grid, host, "x"), "b": placed(grid, host[:, :2], "x")} for name in "wxy"}
        run = jax.jit(lambda w, x, y: jax.tree.map(lambda v: v + 1, (w, x, y)), donate_argnums=numbers)
        jax.block_until_ready(run(*given.values()))
        _deleted(given, gone, f"donate_argnums={numbers}")


RULES_OF_PUTS: dict[str, Callable[..., None]] = {
    "put_options": _put_options,
    "put_numbers": _put_numbers,
    "put_meshes": _put_meshes,
    "put_trees": _put_trees,
    "put_contexts": _put_contexts,
    "put_to_another_mesh": _put_to_another_mesh,
    "donations": _donations,
    "donations_from_the_end": _donations_from_the_end,
}
