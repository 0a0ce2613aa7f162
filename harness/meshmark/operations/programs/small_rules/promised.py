# SPDX-License-Identifier: Apache-2.0
"""Small rules: what JAX's documentation promises of a call beside its numbers: cotangents that a rule leaves out, which
part of an array lies where, the types of a mesh's axes, marks of what varies, one permutation for one ppermute, weak
types that stay, and sums that are left unreduced."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.core.hlo import collectives
from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.unreduced.sums import require_unreduced_types


def _cotangents_left_out(line, grid):
    """None from a rule of one's own stands for zeros, and a whole number's cotangent is of type float0, by each way to
    ask for slopes."""
    host = mixed((2 * line.size, 4), 7, 5).astype(np.float32) - 3
    x, w = placed(line, host, "d"), placed(line, host + 9)
    whole = placed(line, np.arange(2 * line.size, dtype=np.int32), "d")

    @jax.custom_vjp
    def f(a, b, c):
        return a * b + 2 * c

    f.defvjp(lambda a, b, c: (f(a, b, c), b), lambda b, ct: (ct * b, None, None))

    def loss(a, b, c):
        return jnp.sum(f(a, b, c))

    zeros = np.zeros_like(host)
    for way, run in (("eager", jax.grad(loss, (0, 1, 2))), ("compiled", jax.jit(jax.grad(loss, (0, 1, 2))))):
        found = run(x, w, x)
        for k, right in enumerate((host + 9, zeros, zeros)):
            expect(np.asarray(found[k]), right, f"cotangent {k} of a rule that gives None for two, {way},")

    def counted(a, k):
        return jnp.sum(a * k[:, None])

    # A jitted function can't return float0; a pullback and an eager gradient can.
    nothing = {
        "grad": lambda: jax.grad(counted, (0, 1), allow_int=True)(x, whole)[1],
        "grad of the second argument": lambda: jax.grad(counted, 1, allow_int=True)(x, whole),
        "value_and_grad": lambda: jax.value_and_grad(counted, (0, 1), allow_int=True)(x, whole)[1][1],
        "vjp": lambda: jax.vjp(counted, x, whole)[1](jnp.float32(1))[1],
    }
    for name, ask in nothing.items():
        slope = ask()
        expect(
            slope.dtype == jax.dtypes.float0, True, f"whether the slope of whole numbers by {name} is float0"
        )
        expect(slope.shape, whole.shape, f"the shape of the slope of whole numbers by {name}")
    refused(
        "the gradient of whole numbers without allow_int",
        "int32|real-valued|float",
        lambda: jax.grad(counted, 1)(x, whole),
    )


def _places_of_parts(line, grid):
    """Which part of an array lies on which device, by each question that a sharding answers, for specs with axes in
    every order."""
    rows, columns = grid.devices.shape
    shape = (2 * grid.size, 2 * grid.size)
    sizes = {"x": rows, "y": columns}
    for spec in (
        ("x", "y"),
        ("y", "x"),
        (("x", "y"), None),
        (("y", "x"), None),
        (None, ("y", "x")),
        ("y", None),
        (),
    ):
        right = {}
        for position, device in np.ndenumerate(grid.devices):
            at = dict(zip(("x", "y"), position, strict=True))
            index = []
            for entry, size in zip((*spec, None, None), shape, strict=False):
                names = entry if isinstance(entry, tuple) else (entry,) if entry else ()
                part = count = 0
                for number, name in enumerate(names):
                    part = part * sizes[name] + at[name]
                    count = (count if number else 1) * sizes[name]
                step = size // max(count, 1)
                index.append((part * step, (part + 1) * step))
            right[device] = tuple(index)
        place = NamedSharding(grid, P(*spec))
        questions = {
            "devices_indices_map": place.devices_indices_map(shape),
            "addressable_devices_indices_map": place.addressable_devices_indices_map(shape),
            "the shards of an array": {
                s.device: s.index for s in jax.device_put(np.zeros(shape), place).addressable_shards
            },
            "the shards of an array of a compiled program": {
                s.device: s.index
                for s in jax.jit(lambda: jnp.zeros(shape), out_shardings=place)().addressable_shards
            },
        }
        for name, answer in questions.items():
            seen = {
                device: tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
                for device, index in answer.items()
            }
            expect(seen, {d: right[d] for d in seen}, f"{name} over {spec}")
            if jax.process_count() == 1:
                expect(len(seen), grid.size, f"the number of {name} over {spec}")
        first = next(iter(right.values()))
        expect(place.shard_shape(shape), tuple(b - a for a, b in first), f"the shape of a shard over {spec}")


def _types_of_axes(line, grid):
    """A mesh has the types of axes that it was made with, however it was made."""
    kinds = (AxisType.Auto, AxisType.Explicit, AxisType.Manual)
    rows, columns = grid.devices.shape
    for types in itertools.product(kinds, repeat=2):
        made = {"Mesh": Mesh(grid.devices, ("x", "y"), axis_types=types)}
        if AxisType.Manual not in types:
            made["make_mesh"] = jax.make_mesh(
                (rows, columns), ("x", "y"), axis_types=types, devices=tuple(grid.devices.flat)
            )
        made["abstract_mesh"] = made["Mesh"].abstract_mesh
        for name, mesh in made.items():
            expect(tuple(mesh.axis_types), types, f"the types of the axes of {name} of {types}")
    if rows * columns > 1:
        mixed_types = Mesh(grid.devices, ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
        with jax.set_mesh(mixed_types):
            x = jax.device_put(np.ones((2 * rows, 2 * columns), np.float32), P("x", "y"))
            seen = []
            jax.jit(lambda v: seen.append(jax.typeof(2 * v).sharding.spec))(x)
            expect(tuple(seen[0]), ("x", None), "the spec of a product over an Explicit and an Auto axis")


def _marks(line, grid):
    """pcast takes a value that does not vary to one that does, and refuses every other pair of marks."""
    x = np.arange(4.0 * grid.size, dtype=np.float32).reshape(-1, 2)
    both = ("x", "y")
    found = mapped(lambda v: lax.pcast(v, both, to="varying"), grid, P(), P(both))(x)
    expect(np.asarray(found), np.tile(x, (grid.size, 1)), "a pcast to varying over both axes")
    for axes in ("x", "y", both):
        refused(
            f"a pcast to varying over {axes} of what varies",
            "pcast",
            lambda a=axes: mapped(lambda v: lax.pcast(v, a, to="varying"), grid, P(both), P(both))(x),
        )


def _one_permutation(line, grid):
    """Each shift of a ring, each of its pairs alone and each exchange of halves is one collective-permute."""
    n = line.size
    if n == 1 or jax.process_count() > 1:
        return
    x = placed(line, np.arange(8.0 * n * 128, dtype=np.float32).reshape(8 * n, 128), "d")
    host = np.asarray(x).reshape(n, 8, 128)
    perms = {f"a shift by {k}": [(i, (i + k) % n) for i in range(n)] for k in range(1, n)}
    perms["the other way around"] = [(i, n - 1 - i) for i in range(n) if i != n - 1 - i]
    perms["one pair"] = [(0, n - 1)]
    perms["halves"] = [(i, (i + n // 2) % n) for i in range(n // 2 * 2)] if n % 2 == 0 else [(0, 1)]
    for name, perm in perms.items():
        run = mapped(lambda v, p=perm: lax.ppermute(v, "d", p), line, P("d"), P("d")).lower(x).compile()
        found = collectives(run.as_text() or "", n)
        sent = [one.kind for one in found]
        wrong(
            sent != ["collective-permute"],
            f"{name} by ppermute is compiled to {', '.join(sent) or 'nothing'}",
        )
        right = np.zeros_like(host)
        for source, to in perm:
            right[to] = host[source]
        expect(np.asarray(run(x)), right.reshape(8 * n, 128), f"{name} by ppermute")


def _weak_types_stay(line, grid):
    """Weakly typed arrays stay weakly typed where they only move: in a constraint, a reshard and a transfer."""
    m = explicit(grid)
    weak = jax.jit(lambda: lax.broadcast(2.0, (2 * grid.size, 2)))()
    expect(weak.aval.weak_type, True, "whether a broadcast number is weak")
    spread = NamedSharding(grid, P("x"))
    moves = {
        "device_put": lambda: jax.device_put(weak, spread),
        "a constraint": lambda: jax.jit(lambda v: lax.with_sharding_constraint(v, spread))(weak),
        "out_shardings": lambda: jax.jit(lambda v: v, out_shardings=spread)(weak),
    }
    for name, move in moves.items():
        expect(move().aval.weak_type, True, f"whether {name} keeps a weak type")
    with jax.set_mesh(m):
        for way, run in (
            ("eager", lambda v: reshard(v, P("x"))),
            ("compiled", jax.jit(lambda v: reshard(v, P("x")))),
            ("compiled, with a sum,", jax.jit(lambda v: reshard(v, P("x")) + 1)),
        ):
            found = run(jax.device_put(weak, P()))
            expect(found.aval.weak_type, True, f"whether a reshard, {way}, keeps a weak type")
            total = run(jax.device_put(weak, P())) + jnp.ones((2 * grid.size, 2), jnp.bfloat16)
            expect(
                total.dtype.name, "bfloat16", f"the dtype of a sum of a weak array after a reshard, {way},"
            )


def _asked_unreduced(line, grid):
    """Products whose out_sharding is unreduced are so by their type, for each function of products, and right after a
    reshard."""
    require_unreduced_types()
    m = explicit(grid)
    side = 2 * m.size
    host = (mixed((side, side), 5, 7) - 2).astype(np.float32)
    calls = {
        "matmul": jnp.matmul,
        "dot": jnp.dot,
        "tensordot": lambda a, b, **o: jnp.tensordot(a, b, 1, **o),
        "einsum": lambda a, b, **o: jnp.einsum("ij,jk->ik", a, b, **o),
        "dot_general": lambda a, b, **o: lax.dot_general(a, b, (((1,), (0,)), ((), ())), **o),
    }
    with jax.set_mesh(m):
        for axis in ("x", "y"):
            a, b = jax.device_put(host, P(None, axis)), jax.device_put(host, P(axis, None))
            place = P(None, None, unreduced={axis})
            for name, f in calls.items():
                seen = []

                def program(p, q, f=f, place=place, seen=seen):
                    found = f(p, q, out_sharding=place)
                    seen.append(jax.typeof(found).sharding.spec)
                    return reshard(found, P())

                found = jax.jit(program)(a, b)
                expect(set(seen[0].unreduced), {axis}, f"the axes over which {name} over {axis} is unreduced")
                expect(np.asarray(found), host @ host, f"{name}, unreduced over {axis}, after a reshard")


def _orders_of_specs(line, grid):
    """Tuples of axes in every order in the in_specs and the out_specs of a shard_map, which is manual over all axes."""
    count = 2 * grid.size
    host = np.arange(3.0 * count, dtype=np.float32).reshape(count, 3)
    rows, columns = grid.devices.shape
    blocks = host.reshape(rows, columns, 2, 3)

    def marked(v):
        return v + 1000 * lax.axis_index("x") + 100 * lax.axis_index("y")

    marks = 1000 * np.arange(rows)[:, None, None, None] + 100 * np.arange(columns)[None, :, None, None]
    for orders in itertools.product((("x", "y"), ("y", "x")), repeat=2):
        taken, given = orders
        by_device = blocks if taken == ("x", "y") else host.reshape(columns, rows, 2, 3).swapaxes(0, 1)
        seen = by_device + marks
        right = (seen if given == ("x", "y") else seen.swapaxes(0, 1)).reshape(count, 3).astype(np.float32)
        for way in ("one result", "a tuple of results"):
            several = way != "one result"
            f = mapped(
                (lambda v: (marked(v), v)) if several else marked,
                grid,
                P(taken),
                (P(given), P(taken)) if several else P(given),
            )
            found = f(host)
            expect(np.asarray(found[0] if several else found), right, f"{way} from {taken} to {given}")


def _results_of_regions(line, grid):
    """A region's result that varies over an axis which its out_specs leave out is refused, also where the region is
    manual over some axes only."""
    rows, columns = grid.devices.shape
    if rows == 1 or columns == 1:
        return
    x = placed(grid, np.ones((2 * grid.size, 2 * grid.size), np.float32))
    for names in ({"x"}, {"y"}, {"x", "y"}):
        for axis in sorted(names):
            own = mapped(lambda v: v + 1, grid, P(axis), P(), axis_names=names)
            refused(
                f"a region over {sorted(names)} whose result varies over {axis}",
                "replication",
                lambda f=own: f(x),
            )
            index = mapped(lambda v, a=axis: v + lax.axis_index(a), grid, P(), P(), axis_names=names)
            refused(
                f"a region over {sorted(names)} whose result has the index of {axis}",
                "replication",
                lambda f=index: f(x),
            )


def _named_batches(line, grid):
    """A vmap with spmd_axis_name shards its batch over that axis wherever a constraint places the rest."""
    rows, columns = grid.devices.shape
    host = mixed((2 * rows, 2 * columns, 3), 9, 5).astype(np.float32)
    x = placed(grid, host)
    for axis, other in (("x", "y"), ("y", "x")):
        size = (2 * rows, 2 * columns)

        def constrained(v, other=other):
            return lax.with_sharding_constraint(v * 2, NamedSharding(grid, P(other)))

        for dimension in (0, 1):
            if size[1 - dimension] % grid.shape[other] or size[dimension] % grid.shape[axis]:
                continue
            batch = jax.vmap(constrained, in_axes=dimension, out_axes=dimension, spmd_axis_name=axis)
            found = jax.jit(batch)(x)
            expect(np.asarray(found), 2 * host, f"a batch along {dimension} over {axis}")
            spec = tuple(found.sharding.spec) if isinstance(found.sharding, NamedSharding) else ()
            spec = (*spec, None, None, None)[:3]
            if grid.shape[axis] > 1:
                expect(spec[dimension], axis, f"the spec of a batch along {dimension} over {axis}")


def _constraints_assert(line, grid):
    """Over Explicit axes a constraint states what the type is: another sharding is refused, and its own is kept."""
    m = explicit(grid)
    if grid.devices.shape[0] == 1:
        return
    host = np.ones((2 * grid.size, 2 * grid.size), np.float32)
    with jax.set_mesh(m):
        x = jax.device_put(host, P("x", None))
        for spec in (P(None, "x"), P(None, None), P("y", None)):
            for way, run in (("eager", lambda f: f), ("compiled", jax.jit)):
                f = run(lambda v, spec=spec: lax.with_sharding_constraint(v, spec))
                refused(
                    f"a constraint to {spec}, {way}, of an array over x",
                    "assert|[Ss]harding",
                    lambda f=f: f(x),
                )
        kept = jax.jit(lambda v: lax.with_sharding_constraint(v, P("x", None)))(x)
        expect(jax.typeof(kept).sharding.spec, P("x", None), "the spec after a constraint that agrees")


RULES_OF_PROMISES: dict[str, Callable[..., None]] = {
    "cotangents_left_out": _cotangents_left_out,
    "places_of_parts": _places_of_parts,
    "types_of_axes": _types_of_axes,
    "marks": _marks,
    "one_permutation": _one_permutation,
    "weak_types_stay": _weak_types_stay,
    "asked_unreduced": _asked_unreduced,
    "orders_of_specs": _orders_of_specs,
    "results_of_regions": _results_of_regions,
    "named_batches": _named_batches,
    "constraints_assert": _constraints_assert,
}
