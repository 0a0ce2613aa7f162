# SPDX-License-Identifier: Apache-2.0
"""Small rules of programs and their arguments, by conditions that JAX's own tests name: exported programs on other
devices, two meshes in one program, described arrays, callbacks of no result, keys, results of pmap, and very many
arguments.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.tested_arrays import lies_with, numbers


def _exported_for_other_devices(line, grid):
    """Exported programs on other devices than those they were made for: the devices in another order, one program of
    one device on all, two meshes in one program, an unused argument; and a refusal for another number of them."""
    from jax import export

    n = line.size
    host, more = numbers(2 * n, 3), numbers(2 * n, 3) * 2 + 1
    turned = Mesh(line.devices[::-1], ("d",))
    cut = NamedSharding(line, P("d"))

    def call(a: Any, unused: Any, b: Any) -> Any:
        return a * 2 - b[0], lax.with_sharding_constraint(a[::-1] * b, cut)

    made = export.export(jax.jit(call, in_shardings=(cut, None, None), out_shardings=(cut, None)))(
        host, host, more
    )
    right = (2 * host - more[0], host[::-1] * more)
    stored = export.deserialize(made.serialize(vjp_order=1))
    for mesh_name, mesh in (("their order", line), ("the turned order", turned)):
        places = [p or NamedSharding(mesh, P()) for p in made.in_shardings_jax(mesh)]
        given = [jax.device_put(v, p) for v, p in zip((host, host, more), places, strict=True)]
        for name, program in (("exported", made), ("stored", stored)):
            for way, run in (("called", program.call), ("in jit", jax.jit(program.call))):
                what = f"of a program that is {name}, {way} over devices in {mesh_name}"
                for k, (found, answer) in enumerate(zip(run(*given), right, strict=True)):
                    on_each_device(found, answer, f"result {k} {what}")
                lies_with(run(*given)[0], right[0], NamedSharding(mesh, P("d")), f"the first result {what}")
            back = jax.jit(jax.grad(lambda a, b, p=program: p.call(a, b * 0, b)[1].sum(), argnums=(0, 1)))
            slopes = back(given[0], given[2])
            for slope, answer in zip(slopes, (more[::-1], host[::-1]), strict=True):
                on_each_device(
                    slope, answer, f"a slope of a program that is {name} over devices in {mesh_name}"
                )
    alone = export.export(jax.jit(lambda v: (v * v).sum(0) - v))(host)
    for spec in (P("d"), P()):
        found = jax.jit(alone.call)(placed(line, host, *spec))
        on_each_device(found, (host * host).sum(0) - host, f"a program of one device on all, over {spec}")
    if n > 1:
        x = jax.device_put(host, line.devices.ravel()[0])
        refused("a program of all devices on one", "was exported for", lambda: made.call(x, x, x))


def _programs_over_two_meshes(line, grid):
    """Arguments over one mesh and constraints over another one of the same devices, compiled, exported and stored."""
    from jax import export

    host = numbers(2 * line.size, 2 * line.size)
    columns = Mesh(grid.devices.T.ravel().reshape(grid.devices.shape), ("x", "y"))
    same = bool((columns.devices == grid.devices).all())
    places = [NamedSharding(line, P("d")), NamedSharding(grid, P("y", "x"))]
    weights = tuple(host + k for k in range(2))

    def call(a: Any, b: Any) -> Any:
        c = a - b.T
        return c * 2, lax.with_sharding_constraint(c + b, NamedSharding(line, P(None, "d")))

    run = jax.jit(call, in_shardings=tuple(places))
    right = (2 * (weights[0] - weights[1].T), weights[0] - weights[1].T + weights[1])
    given = [jax.device_put(v, p) for v, p in zip(weights, places, strict=True)]
    made = export.export(run)(*weights)
    stored = export.deserialize(made.serialize())
    ways = {
        "called": run,
        "ahead": run.lower(*given).compile(),
        "exported": made.call,
        "stored": jax.jit(stored.call),
    }
    for name, f in ways.items():
        for k, (found, answer) in enumerate(zip(f(*given), right, strict=True)):
            on_each_device(found, answer, f"result {k} over two meshes, {name}")
    lies_with(run(*given)[1], right[1], NamedSharding(line, P(None, "d")), "a result over the second mesh")
    if line.size > 1 and not same:
        x = placed(columns, host, "x", "y")
        refused(
            "a constraint over devices in another order",
            "incompatible devices",
            lambda: lax.with_sharding_constraint(x, NamedSharding(grid, P("x"))),
        )


def _structs_by_spec(line, grid):
    """Described arrays whose sharding is a spec: it is over the mesh of the context, whatever that is, and without one
    it is refused."""
    n = line.size
    host = numbers(2 * n, 3)
    try:
        struct = jax.ShapeDtypeStruct(host.shape, np.float32, sharding=P("d"))
    except Exception as error:
        raise Missing("this release takes no spec for a described array") from error
    for mesh in (line, Mesh(line.devices[::-1], ("d",)), explicit(line)):
        kinds = mesh.axis_types[0].name
        with jax.set_mesh(mesh):
            place = NamedSharding(mesh, P("d"))
            expect(struct.sharding, place, f"the sharding of a described array over {kinds} axes")
            compiled = jax.jit(lambda v: v * 2 - v[:, :1]).lower(struct).compile()
            found = compiled(jax.device_put(host, P("d")))
            what = f"a program for a described array over {kinds} axes"
            lies_with(found, 2 * host - host[:, :1], place, what)
            told = compiled.input_shardings[0][0].is_equivalent_to(place, 2)
            expect(told, True, f"whether {what} tells the sharding")
            like = jnp.zeros_like(struct)
            lies_with(like, np.zeros_like(host), place, f"zeros like a described array over {kinds} axes")
            shape = jax.eval_shape(lambda v: v.T, struct)
            expect(
                (shape.shape, shape.dtype), ((3, 2 * n), np.float32), "what eval_shape tells of a transpose"
            )
    words = "context mesh cannot be empty"
    refused("the sharding of a described array without a mesh", words, lambda: struct.sharding)
    with jax.set_mesh(grid):
        refused("the sharding of an axis of another mesh", "not found in mesh", lambda: struct.sharding)
    many = P(None, None, "d")
    words = "only valid for values of rank at least 3"
    refused("a long spec", words, lambda: jax.ShapeDtypeStruct(host.shape, np.float32, sharding=many))


def _callbacks_of_no_result(line, grid):
    """Ordered and unordered callbacks of no result, and printed lines, in a region and beside it: each device calls
    with its own block, and what the program gives is right."""
    n = line.size
    host = numbers(2, 2 * n)
    x = placed(line, host, None, "d")
    w = numbers(2)
    blocks = sorted(host[:, 2 * k : 2 * k + 2].tolist() for k in range(n))
    for ordered in (False, True):
        seen: list[Any] = []

        def note(v: Any, seen: list[Any] = seen) -> None:
            seen.append(np.asarray(v).tolist())

        def block(b: Any, w: Any, note: Any = note, ordered: bool = ordered) -> Any:
            io_callback(note, None, b, ordered=ordered)
            return b * 2 + w[:, None]

        region = jax.shard_map(block, mesh=line, in_specs=(P(None, "d"), P()), out_specs=P(None, "d"))
        run = jax.jit(region)
        for turn in range(2):
            seen.clear()
            found = run(x, w)
            jax.effects_barrier()
            what = f"a region with a callback of no result, ordered {ordered}, call {turn}"
            on_each_device(found, 2 * host + w[:, None], what)
            expect(sorted(seen), blocks, f"what is called by {what}")
        seen.clear()
        found = jax.jit(lambda a, w, f=block: f(a, w), out_shardings=NamedSharding(line, P()))(x, w)
        jax.effects_barrier()
        on_each_device(
            found, 2 * host + w[:, None], f"a program with a callback of no result, ordered {ordered}"
        )
        expect(seen, [host.tolist()], f"what a program calls of no result, ordered {ordered}")

    def printed(b: Any) -> Any:
        jax.debug.print("first {}", b[0, 0].astype(int))
        return b + 1

    with contextlib.redirect_stdout(io.StringIO()) as text:
        found = jax.jit(jax.shard_map(printed, mesh=line, in_specs=P(None, "d"), out_specs=P(None, "d")))(x)
        jax.block_until_ready(found)
        jax.effects_barrier()
    on_each_device(found, host + 1, "a region that prints")
    lines = sorted(text.getvalue().split("\n")[:-1])
    expect(
        lines, sorted(f"first {int(host[0, 2 * k])}" for k in range(n)), "the lines of a region that prints"
    )


def _keys_cut_in_programs(line, grid):
    """Keys that programs make of cut seeds, transpose, constrain, take and donate: they lie as their seeds do, and are
    those of each seed, in inner programs and with shardings too."""
    shape = (2 * grid.size, grid.size)
    seeds = mixed(shape, 997, 11).astype(np.uint32)
    words = np.stack([np.zeros_like(seeds), seeds], -1)
    x = placed(grid, seeds, "x", "y")
    place, turned = NamedSharding(grid, P("x", "y")), NamedSharding(grid, P("y", "x"))
    make = jax.vmap(jax.vmap(lambda seed: jax.random.key(seed, impl="threefry2x32")))

    def inner(s: Any) -> Any:
        return jax.jit(make, out_shardings=NamedSharding(grid, P("y")))(s).T

    calls: dict[str, tuple[Any, np.ndarray, Any]] = {
        "made": (jax.jit(make), words, place),
        "transposed": (jax.jit(lambda s: make(s).T), words.swapaxes(0, 1), turned),
        "asked for": (jax.jit(make, out_shardings=turned), words, turned),
        "constrained": (
            jax.jit(lambda s: lax.with_sharding_constraint(make(s), turned)),
            words,
            turned,
        ),
        "of an inner program": (jax.jit(inner), words.swapaxes(0, 1), NamedSharding(grid, P(None, "y"))),
    }
    keys = None
    for name, (call, right, there) in calls.items():
        for turn in range(2):
            keys = call(x)
            what = f"keys that are {name}, call {turn},"
            expect(jnp.issubdtype(keys.dtype, jax.dtypes.prng_key), True, f"whether {what} are keys")
            expect(keys.shape, right.shape[:2], f"the shape of {what}")
            expect(keys.sharding.is_equivalent_to(there, 2), True, f"whether {what} lie as they should")
            data = jax.random.key_data(keys)
            lies_with(data, right, NamedSharding(grid, P(*there.spec)), f"the words of {what}")
            for shard in keys.addressable_shards:
                expect(np.asarray(jax.random.key_data(shard.data)), right[shard.index], f"a part of {what}")
    keys = jax.device_put(calls["made"][0](x), place)
    taken = jax.jit(
        lambda k, s, unused: (jax.random.key_data(k.T), s + 1),
        in_shardings=(place, place, None),
        donate_argnums=0,
    )
    with contextlib.suppress(UserWarning):
        found, more = taken(keys, x, keys[0, 0])
    on_each_device(found, words.swapaxes(0, 1), "the words of donated keys")
    on_each_device(more, seeds + 1, "what stands beside donated keys")


def _results_of_pmap_in_programs(line, grid):
    """Results of pmap, cut and whole, given to jit with and without shardings, to regions and to pmap again."""
    if jax.process_count() > 1:
        raise Missing("pmap over the devices of one process")
    devices = list(line.devices.ravel())
    n = len(devices)
    host = numbers(n, 3)
    rows = jax.pmap(lambda v: v * 2, devices=devices)(host)
    whole = jax.pmap(lambda w, v: w - 1, in_axes=(None, 0), out_axes=None, devices=devices)(host[0], host)
    columns = jax.pmap(lambda v: v * 3, out_axes=1, devices=devices)(host)
    cut = NamedSharding(line, P("d"))
    calls: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
        "rows in jit": (lambda: jax.jit(lambda v: v + v[0])(rows), 2 * host + 2 * host[0]),
        "rows in jit with a sharding": (
            lambda: jax.jit(lambda v: v + 1, in_shardings=cut)(rows),
            2 * host + 1,
        ),
        "rows and a NumPy array": (lambda: jax.jit(lambda v, w: v * w)(rows, host), 2 * host * host),
        "whole numbers": (lambda: jax.jit(lambda w: w * 2)(whole), 2 * (host[0] - 1)),
        "whole numbers and rows": (
            lambda: jax.jit(lambda w, v: w * v)(whole, rows),
            2 * host * (host[0] - 1),
        ),
        "columns": (lambda: jax.jit(lambda v: v.T - v[0][:, None])(columns), 3 * host - 3 * host[:, :1]),
        "columns with a sharding": (
            lambda: jax.jit(lambda v: -v, out_shardings=NamedSharding(line, P(None, "d")))(columns),
            -3 * host.T,
        ),
        "a region": (
            lambda: jax.jit(
                jax.shard_map(lambda b: b - lax.pmax(b, "d"), mesh=line, in_specs=P("d"), out_specs=P("d"))
            )(rows),
            2 * host - 2 * host.max(0),
        ),
        "pmap again": (lambda: jax.pmap(lambda v: v[::-1], devices=devices)(rows), 2 * host[:, ::-1]),
        "pmap of columns": (
            lambda: jax.pmap(lambda v: v + 1, in_axes=1, devices=devices)(columns),
            3 * host + 1,
        ),
        "pmap of donated": (
            lambda: jax.pmap(lambda v: v - 5, donate_argnums=0, devices=devices)(rows.copy()),
            2 * host - 5,
        ),
        "an eager sum": (lambda: rows + rows, 4 * host),
    }
    for name, (call, right) in calls.items():
        for turn in range(2):
            on_each_device(call(), right, f"{name} of pmap, call {turn}")


def _thousands_of_arguments(line, grid):
    """A program of more than two thousand arguments, some of them cut, each of which is itself."""
    count = 2003
    cut = NamedSharding(line, P("d"))
    host = [np.arange(line.size, dtype=np.int32) * 3 + k for k in range(count)]
    rows = (0, 1, 2, 999, 2001, 2002)
    given = [jax.device_put(v, cut) if k in rows else v for k, v in enumerate(host)]

    run = jax.jit(lambda many: [many[k] * 2 - many[-1 - k] for k in (*rows, 7, 1500)], keep_unused=True)
    for turn in range(2):
        for k, found in zip((*rows, 7, 1500), run(given), strict=True):
            on_each_device(found, host[k] * 2 - host[-1 - k], f"argument {k} of {count}, call {turn}")


def _unreduced_arguments(m: Mesh) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Two factors that are cut along what a product adds up, over an Explicit axis; and each device's summand."""
    n = m.size
    a, b = numbers(3, 2 * n), (mixed((2 * n, 2), 7, 3) - 3).astype(np.float32)
    summands = np.stack([a[:, 2 * k : 2 * k + 2] @ b[2 * k : 2 * k + 2] for k in range(n)])
    return jax.device_put(a, P(None, "d")), jax.device_put(b, P("d")), summands, summands.sum(0)


def _product(a: Any, b: Any) -> Any:
    return jnp.einsum("ij,jk->ik", a, b, out_sharding=P(None, None, unreduced={"d"}))


def _exported_unreduced(line, grid):
    """Exported programs that give, take and sum unreduced values, and take reduced ones: types, and each device's
    summand; also after they were stored, and the gradient where the program sums them."""
    from jax import export

    m = explicit(line)
    with jax.set_mesh(m):
        a, b, summands, total = _unreduced_arguments(m)
        given = jax.jit(_product)(a, b)
        reduced = jax.device_put(np.asarray(a), P(reduced={"d"}))
        for name, f, arguments, parts, kept in (
            ("gives an unreduced value", _product, (a, b), summands, {"unreduced": {"d"}}),
            ("takes an unreduced value", lambda u: u + u, (given,), 2 * summands, {"unreduced": {"d"}}),
            ("takes a reduced value", lambda r: r * 2, (reduced,), None, {"reduced": {"d"}}),
            ("sums", lambda a, b: reshard(_product(a, b), P()) * 2, (a, b), None, {}),
        ):
            made = export.export(jax.jit(f))(*arguments)
            right = 2 * np.asarray(a) if name == "takes a reduced value" else 2 * total
            for where, program in (("", made), (" and was stored", export.deserialize(made.serialize()))):
                for way, run in (("called", program.call), ("in jit", jax.jit(program.call))):
                    found = run(*arguments)
                    what = f"the result of an exported program that {name}{where}, {way},"
                    spec = jax.typeof(found).sharding.spec
                    for kind in ("unreduced", "reduced"):
                        expect(
                            set(getattr(spec, kind)), set(kept.get(kind, ())), f"the {kind} axes of {what}"
                        )
                    if parts is None:
                        on_each_device(found, right, what)
                        continue
                    order = {device: k for k, device in enumerate(m.devices.flat)}
                    for shard in found.addressable_shards:
                        expect(np.asarray(shard.data), parts[order[shard.device]], f"the summand of {what}")
                    on_each_device(reshard(found, P()), parts.sum(0), f"the sum of {what}")
        stored = export.deserialize(made.serialize(vjp_order=1))
        slopes = jax.jit(jax.grad(lambda a, b: stored.call(a, b).sum(), (0, 1)))(a, b)
        right_a = np.broadcast_to(2 * np.asarray(b).sum(1), a.shape)
        right_b = np.broadcast_to(2 * np.asarray(a).sum(0)[:, None], b.shape)
        for slope, right, argument in zip(slopes, (right_a, right_b), (a, b), strict=True):
            lies_with(slope, right, argument.sharding, "the slope of an exported program that sums")


def _exported_derivatives_of_unreduced(line, grid):
    """The derivative that is stored with an exported program: JAX derives the function itself, and so the program, also
    where a result is unreduced or reduced. JAX breaks the latter."""
    from jax import export

    m = explicit(line)
    with jax.set_mesh(m):
        a, b, _, _ = _unreduced_arguments(m)
        reduced = jax.device_put(np.asarray(a), P(reduced={"d"}))
        right_a = np.broadcast_to(np.asarray(b).sum(1), a.shape)
        right_b = np.broadcast_to(np.asarray(a).sum(0)[:, None], b.shape)

        def of_product(f: Any) -> Any:
            return jax.grad(lambda a, b: reshard(f(a, b), P()).sum(), (0, 1))

        def of_double(f: Any) -> Any:
            return jax.grad(lambda r: f(r).sum())

        def hold(f: Any, g: Any, what: str) -> None:
            for slope, right in zip(jax.jit(of_product(f))(a, b), (right_a, right_b), strict=True):
                on_each_device(slope, right, f"the slope of a product {what}")
            slope = reshard(jax.jit(of_double(g))(reduced), P())
            on_each_device(slope, np.full(a.shape, 2, np.float32), f"the slope of a reduced value {what}")

        def double(r: Any) -> Any:
            return r * 2

        hold(_product, double, "of JAX")
        product, doubled = export.export(jax.jit(_product))(a, b), export.export(jax.jit(double))(reduced)
        programs = [export.deserialize(f.serialize(vjp_order=1)) for f in (product, doubled)]
        hold(programs[0].call, programs[1].call, "of an exported program")


def _turned_axes_over_two_meshes(line, grid):
    """Arguments over two meshes of the same devices, and a constraint to both axes of one of them against its order.
    XLA ends the process over axes of three and two devices."""
    host = numbers(2 * line.size, 2 * line.size)
    place = NamedSharding(grid, P(("y", "x")))
    a, b = placed(line, host, "d"), placed(grid, host, "y", "x")
    found = jax.jit(lambda a, b: lax.with_sharding_constraint(a - b.T, place))(a, b)
    lies_with(found, host - host.T, place, "a difference over two meshes")


RULES_OF_TESTED_PROGRAMS: dict[str, Callable[..., None]] = {
    "exported_for_other_devices": _exported_for_other_devices,
    "exported_unreduced": _exported_unreduced,
    "exported_derivatives_of_unreduced": _exported_derivatives_of_unreduced,
    "programs_over_two_meshes": _programs_over_two_meshes,
    "turned_axes_over_two_meshes": _turned_axes_over_two_meshes,
    "structs_by_spec": _structs_by_spec,
    "callbacks_of_no_result": _callbacks_of_no_result,
    "keys_cut_in_programs": _keys_cut_in_programs,
    "results_of_pmap_in_programs": _results_of_pmap_in_programs,
    "thousands_of_arguments": _thousands_of_arguments,
}
