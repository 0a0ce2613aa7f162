# SPDX-License-Identifier: Apache-2.0
"""Small rules: places and types that are right until one more condition holds: devices in another order, several axes
for one dimension, more sharded dimensions than one, an array of another dtype."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused


def _moved_between_orders(line, grid):
    """An array that is put onto the same devices in another order has its parts where the new order says, also where
    each device's part has the same shape."""
    host = mixed((2 * line.size, 4), 7, 5).astype(np.float32)
    devices = line.devices.ravel()
    orders = {
        "reversed": devices[::-1],
        "rolled": np.roll(devices, 1),
        "interleaved": devices.reshape(-1, 2).T.ravel() if devices.size % 2 == 0 else devices,
    }
    x = placed(line, host, "d")
    for name, order in orders.items():
        other = Mesh(order, ("d",))
        there = NamedSharding(other, P("d"))
        for way, moved in (
            ("one array", jax.device_put(x, there)),
            ("a tree", jax.device_put({"a": (x,)}, there)["a"][0]),
            ("a donated copy", jax.device_put(placed(line, host, "d"), there, donate=True)),
        ):
            expect(np.asarray(moved), host, f"{way} put onto a mesh of {name} devices")
            position = {device: k for k, device in enumerate(order)}
            for shard in moved.addressable_shards:
                k = position[shard.device]
                right = host[2 * k : 2 * k + 2]
                expect(np.asarray(shard.data), right, f"the part {k} of {way} on a mesh of {name} devices")
        back = jax.device_put(jax.device_put(x, there), NamedSharding(line, P("d")))
        expect(np.asarray(back), host, f"an array put onto {name} devices and back")


def _asked_of_indices(line, grid):
    """Indexing has the sharding that is asked for in every dimension (`out_sharding`), and its numbers."""
    m = explicit(grid)
    rows, columns = grid.devices.shape
    host = mixed((2 * grid.size, 2 * grid.size), 9, 7).astype(np.float32)
    chosen = np.arange(2 * grid.size)[::-1][: 2 * rows]
    with jax.set_mesh(m):
        x = jax.device_put(host, P("x", None))
        for spec in (P("x", "y"), P(None, "y"), P("y", "x"), P(None, ("x", "y")), P()):
            calls = {
                "at": lambda v, s=spec: v.at[chosen].get(out_sharding=s),
                "at with a mode": lambda v, s=spec: v.at[chosen].get(mode="clip", out_sharding=s),
            }
            if (2 * rows) % {"x": rows, "y": columns}.get(spec[0] if len(spec) else None, 1):
                continue
            for name, call in calls.items():
                for way, run in (("eager", call), ("compiled", jax.jit(call))):
                    found = run(x)
                    what = f"rows by {name}, {way}, with out_sharding {spec}"
                    expect(np.asarray(found), host[chosen], what)
                    place = NamedSharding(m, spec)
                    expect(
                        found.sharding.is_equivalent_to(place, 2),
                        True,
                        f"whether the sharding of {what} is it",
                    )


def _lowered_shapes(line, grid):
    """A program that is compiled ahead of time for shapes takes their shardings, with one axis or several for a
    dimension, and refuses nothing that fits."""
    host = mixed((2 * grid.size, 2 * grid.size), 9, 7).astype(np.float32)
    for spec in (P(("x", "y")), P(("y", "x"), None), P(None, ("x", "y")), P("y", "x"), P("x"), P()):
        place = NamedSharding(grid, spec)
        shape = jax.ShapeDtypeStruct(host.shape, host.dtype, sharding=place)
        compiled = jax.jit(lambda a, k: a * 2 + k["b"]).lower(shape, {"b": shape}).compile()
        arguments, options = compiled.input_shardings
        for name, taken in (("an argument", arguments[0]), ("a tree", arguments[1]["b"])):
            expect(taken.is_equivalent_to(place, 2), True, f"whether {name} is taken as {spec}")
        expect(dict(options), {}, "the shardings of keywords that there are not")
        x = jax.device_put(host, place)
        expect(np.asarray(compiled(x, {"b": x})), host * 3, f"a program compiled for {spec}")


def _permutations_of_other_orders(line, grid):
    """Collectives count devices by their place in the mesh, whatever order the mesh has them in."""
    size, devices = line.size, line.devices.ravel()
    host = mixed((2 * size,), 7, 5).astype(np.float32)
    parts = host.reshape(size, 2)
    order = [*range(1, size, 2), *range(0, size, 2)]
    for name, mesh in (
        ("reversed", Mesh(devices[::-1], ("d",))),
        ("interleaved", Mesh(devices[np.array(order)], ("d",))),
    ):
        x = placed(mesh, host, "d")
        calls = {
            "ppermute": (
                lambda v: lax.ppermute(v, "d", [(k, (k + 1) % size) for k in range(size)]),
                np.roll(parts, 1, 0).ravel(),
            ),
            "all_gather": (
                lambda v: lax.all_gather(v, "d", tiled=True), np.tile(host, size)
            ),
            "psum_scatter": (
                lambda v: lax.psum_scatter(jnp.tile(v, size), "d", tiled=True),
                np.tile(parts.sum(0), size),
            ),
            "axis_index": (
                lambda v: jnp.full_like(v, 1) * lax.axis_index("d"), np.repeat(np.arange(size), 2)
            ),
        }  # fmt: skip
        for call, (f, right) in calls.items():
            found = mapped(f, mesh, P("d"), P("d"))(x)
            expect(np.asarray(found), right.astype(np.float32), f"{call} over {name} devices")


def _rows_set_explicitly(line, grid):
    """Updates of whole rows that an array of indices names keep the type of an array whose other dimension is sharded
    over an Explicit axis, and take the one that is asked for where the rows are."""
    m = explicit(grid)
    host = mixed((2 * grid.size, 2 * grid.size), 9, 7).astype(np.float32)
    chosen = np.array([2 * grid.size - 1, 0], np.int32)
    old, three = host[chosen], np.float32(3)
    answers = {
        "set": np.full_like(old, 3),
        "add": old + 3,
        "multiply": old * 3,
        "min": np.minimum(old, three),
        "max": np.maximum(old, three),
    }
    with jax.set_mesh(m):
        for spec, asked in (
            (P(None, "y"), {}),
            (P(None, ("x", "y")), {}),
            (P("x", None), {"out_sharding": P("x", None)}),
        ):
            x = jax.device_put(host, spec)
            for name, rows in answers.items():
                found = jax.jit(lambda v, n=name, k=asked: getattr(v.at[chosen], n)(3.0, **k))(x)
                right = host.copy()
                right[chosen] = rows
                what = f"rows by {name} of an array over {spec}"
                expect(np.asarray(found), right, what)
                expect(found.sharding.is_equivalent_to(x.sharding, 2), True, f"whether {what} stay there")
                expect(jax.typeof(found).sharding.spec, jax.typeof(x).sharding.spec, f"the spec of {what}")


def _products_refused(line, grid):
    """Over Explicit axes a product of two arrays that are sharded along what is contracted is ambiguous, by each name
    of the product: it is refused without `out_sharding`, and has the numbers with it."""
    m = explicit(grid)
    if grid.devices.shape[0] == 1:
        return
    host = mixed((2 * grid.size, 2 * grid.size), 9, 7).astype(np.float32)
    calls = {
        "matmul": lambda a, b, **k: jnp.matmul(a, b, **k),
        "dot": lambda a, b, **k: jnp.dot(a, b, **k),
        "einsum": lambda a, b, **k: jnp.einsum("ij,jk->ik", a, b, **k),
        "tensordot": lambda a, b, **k: jnp.tensordot(a, b, 1, **k),
        "dot_general": lambda a, b, **k: lax.dot_general(a, b, (((1,), (0,)), ((), ())), **k),
    }
    with jax.set_mesh(m):
        a, b = jax.device_put(host, P(None, "x")), jax.device_put(host, P("x", None))
        for name, call in calls.items():
            refused(f"{name} of two arrays along x", "ambiguous|[Ss]harding", lambda f=call: f(a, b))
            refused(f"a jitted {name} along x", "ambiguous|[Ss]harding", lambda f=call: jax.jit(f)(a, b))
            found = jax.jit(lambda v, w, f=call: f(v, w, out_sharding=P("x", None)))(a, b)
            expect(np.asarray(found), host @ host, f"{name} along x with out_sharding")


def _made_in_place(line, grid):
    """A new array lies where `device` says, in every dimension, by each function that makes one."""
    shape = (2 * grid.size, 2 * grid.size)
    like = placed(grid, np.ones(shape, np.float32))
    makers = {
        "zeros": (lambda d: jnp.zeros(shape, device=d), 0),
        "ones": (lambda d: jnp.ones(shape, np.int32, device=d), 1),
        "full": (lambda d: jnp.full(shape, 7, np.int8, device=d), 7),
        "empty": (lambda d: jnp.empty(shape, device=d), None),
        "zeros_like": (lambda d: jnp.zeros_like(like, device=d), 0),
        "ones_like": (lambda d: jnp.ones_like(like, dtype=np.int32, device=d), 1),
        "full_like": (lambda d: jnp.full_like(like, 7, dtype=np.int8, device=d), 7),
        "asarray": (lambda d: jnp.asarray(np.full(shape, 5, np.int16), device=d), 5),
    }
    for spec in (P("x", "y"), P("y", "x"), P(None, "x"), P(("x", "y")), P(None, ("y", "x")), P()):
        place = NamedSharding(grid, spec)
        for name, (make, value) in makers.items():
            found = make(place)
            what = f"{name} over {spec}"
            expect(found.sharding.is_equivalent_to(place, 2), True, f"whether {what} is there")
            if value is not None:
                expect(np.asarray(found), np.full(shape, value, found.dtype), what)


def _specs_that_stay(line, grid):
    """Types over Explicit axes that follow from those of the arguments: arrays like another one, of another dtype too,
    what a loop stacks, and a batch over a sharded dimension."""
    m = explicit(grid)
    host = mixed((2 * grid.size, 2 * grid.size), 9, 7).astype(np.float32)
    with jax.set_mesh(m):
        for spec in (P("x", "y"), P(None, "y"), P("x", None), P("y", "x")):
            x = jax.device_put(host, spec)
            rows = P(None, *spec[1:])
            calls = {
                "zeros_like": (lambda v: jnp.zeros_like(v), spec, np.zeros_like(host)),
                "zeros_like of int8": (lambda v: jnp.zeros_like(v, np.int8), spec, np.zeros_like(host, np.int8)),
                "ones_like of int32": (lambda v: jnp.ones_like(v, jnp.int32), spec, np.ones_like(host, np.int32)),
                "full_like of float16": (
                    lambda v: jnp.full_like(v, 2, np.float16), spec, np.full_like(host, 2, np.float16)
                ),
                "a batch": (lambda v: jax.vmap(lambda r: r * 2)(v), spec, host * 2),
                "a batch of columns": (
                    lambda v: jax.vmap(lambda c: c * 2, 1, 1)(v), spec, host * 2
                ),
                "a cast": (lambda v: v.astype(np.int32), spec, host.astype(np.int32)),
            }  # fmt: skip
            if spec[0] is None:
                calls["what a scan stacks"] = (
                    lambda v: lax.scan(lambda c, r: (c + r, r * 2), v[0], v)[1], rows, host * 2
                )  # fmt: skip
            for name, (call, kept, right) in calls.items():
                for way, run in (("eager", call), ("compiled", jax.jit(call))):
                    found = run(x)
                    expect(np.asarray(found), right, f"{name} of {spec}, {way}")
                    expect(jax.typeof(found).sharding.spec, kept, f"the spec of {name} of {spec}, {way}")


def _parts_in_any_order(line, grid):
    """An array that is made of arrays on single devices has each part where its device is, in whatever order the list
    has them."""
    n = 2 * line.size
    host = mixed((n, 4), 11, 7).astype(np.float32)
    square = mixed((2 * grid.size, 2 * grid.size), 9, 7).astype(np.float32)
    for place, value in (
        (NamedSharding(line, P("d")), host),
        (NamedSharding(grid, P("y", "x")), square),
        (NamedSharding(grid, P(None, "y")), square),
    ):
        index = place.addressable_devices_indices_map(value.shape)
        parts = [jax.device_put(value[where], device) for device, where in index.items()]
        for name, given in (
            ("in order", parts),
            ("reversed", parts[::-1]),
            ("rolled", parts[1:] + parts[:1]),
        ):
            made = jax.make_array_from_single_device_arrays(value.shape, place, given)
            for shard in made.addressable_shards:
                expect(np.asarray(shard.data), value[shard.index], f"a part of an array of parts {name}")
            if made.is_fully_addressable:
                expect(np.asarray(made), value, f"an array of parts {name}")


RULES_OF_PLACES: dict[str, Callable[..., None]] = {
    "moved_between_orders": _moved_between_orders,
    "asked_of_indices": _asked_of_indices,
    "lowered_shapes": _lowered_shapes,
    "permutations_of_other_orders": _permutations_of_other_orders,
    "rows_set_explicitly": _rows_set_explicitly,
    "products_refused": _products_refused,
    "made_in_place": _made_in_place,
    "specs_that_stay": _specs_that_stay,
    "parts_in_any_order": _parts_in_any_order,
}
