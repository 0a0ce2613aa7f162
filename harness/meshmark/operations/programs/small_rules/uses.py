# SPDX-License-Identifier: Apache-2.0
"""Small rules: reading rows of an array, functions over hosts, context meshes, donated results, constraints that leave
dimensions open, and stored shardings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.cuts.running import NUMBERS, mixed, placements
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.storage import SENDS

KINDS = (bool, *NUMBERS)


def _reading_rows(line, grid):
    """Rows of an array by plain numbers, and by iteration: more rows than JAX reads at once."""
    n = line.size
    rows = 100 + 2 * n - 100 % n
    host = mixed((rows, 2 * n), 997, 7).astype(np.int32)
    for where, (x,) in placements(line, grid, (host,)):
        expect(np.stack([np.asarray(row) for row in x]), host, f"the rows in turn, {where}")
        expect(np.stack([np.asarray(row) for row in reversed(x)]), host[::-1], f"the rows backward, {where}")
        for k in (0, 1, rows // 2, rows - 1, -1, -2, -rows // 2, -rows):
            expect(np.asarray(x[k]), host[k], f"row {k}, {where}")
            expect(np.asarray(x[:, k % (2 * n)]), host[:, k % (2 * n)], f"column {k % (2 * n)}, {where}")
        for part in (slice(-3, None), slice(None, -rows + 2), slice(-2, 1, -7), slice(None, None, -1)):
            expect(np.asarray(x[part]), host[part], f"rows {part}, {where}")
        expect(np.asarray(x[np.array([-1, 0, 2])]), host[[-1, 0, 2]], f"rows by places, {where}")
        wrong(len(x) != rows, f"the length is {len(x)}, {where}")
    for kind in (np.float32, jnp.bfloat16, np.int8, bool):
        some = mixed((2 * grid.size, 2 * grid.size), 90, 7).astype(kind)
        for spec in (P("x"), P("y"), P(None, "x"), P("y", "x"), P()):
            x = placed(grid, some, *spec)
            for shard in x.addressable_shards[: 1 + grid.size // 2]:
                words = f"{shard.index} of {np.dtype(kind).name} over {spec}"
                expect(np.asarray(x[shard.index]), some[shard.index], words)
    for where, (x,) in placements(line, grid, (host[:, 0],)):
        expect(np.int32([int(v) for v in x]), host[:, 0], f"the numbers in turn, {where}")


def _multihost_types(line, grid):
    """The functions over hosts keep values, shapes and dtypes, in each process of this run."""
    for kind in KINDS:
        for shape in ((), (3,), (2, 3)):
            host = mixed(shape, 2 if kind is bool else 90, 7).astype(kind)
            what = f"{np.dtype(kind).name}{list(shape)}"
            for name, given in (("a NumPy array", host), ("an array on one device", jnp.asarray(host))):
                found = multihost_utils.broadcast_one_to_all({"v": given})["v"]
                expect(np.asarray(found), host, f"broadcast_one_to_all of {what}, {name},")
            whole = placed(line, host)
            expect(
                np.asarray(multihost_utils.process_allgather(whole, tiled=True)),
                host,
                f"process_allgather of {what} that all devices hold",
            )
            if not shape:
                continue
            cut = mixed((2 * line.size, *shape), 2 if kind is bool else 90, 7).astype(kind)
            expect(
                np.asarray(multihost_utils.process_allgather(placed(line, cut, "d"), tiled=True)),
                cut,
                f"process_allgather of {what} for each of two rows per device",
            )
    tree = {"a": np.arange(3), "b": (np.float32(2), [np.array([True, False])])}
    multihost_utils.assert_equal(tree, "a tree that is the same everywhere")


def _halves(line: Any) -> list[Any]:
    """Meshes of one shape over other devices, or in another order."""
    devices = line.devices.ravel()
    half = max(1, len(devices) // 2)
    return [
        Mesh(devices[:half], ("d",)),
        Mesh(devices[-half:], ("d",)),
        Mesh(devices[:half][::-1], ("d",)),
    ]


def _context_specs(line, grid):
    """Specs in a context of each of several meshes of one shape: results lie over the devices of that mesh."""
    host = mixed((2 * line.size, 3), 97).astype(np.float32)

    def add(v):
        return v + 1

    for mesh in _halves(line) * 2:
        place = NamedSharding(mesh, P("d"))
        words = f"in a context of devices {[d.id for d in mesh.devices.ravel()]}"
        with jax.set_mesh(mesh):
            results = {
                "jit with out_shardings": jax.jit(add, out_shardings=P("d"))(host),
                "jit with in_shardings": jax.jit(add, in_shardings=P("d"))(host),
                "a constraint": jax.jit(lambda v: lax.with_sharding_constraint(v + 1, P("d")))(host),
                "shard_map": jax.jit(jax.shard_map(add, in_specs=P("d"), out_specs=P("d")))(host),
                "device_put": jax.device_put(host + 1, P("d")),
            }
        for name, found in results.items():
            expect(np.asarray(found), host + 1, f"{name} {words}")
            there = found.sharding
            wrong(not there.is_equivalent_to(place, 2), f"the result of {name} {words} lies over {there}")
    for size in {1, max(1, line.size // 2)}:
        devices = list(line.devices.ravel()[-size:])
        made = jax.make_mesh((size,), ("d",), devices=devices)
        wrong(
            {d.id for d in made.devices.ravel()} != {d.id for d in devices},
            f"make_mesh of the last {size} devices has {made.devices}",
        )


def _manual_names(line, grid):
    """The abstract mesh of a region that is manual over some axes names them, and only them."""
    for names in (("x",), ("y",), ("x", "y")):
        seen: list[Any] = []

        def body(v, seen=seen):
            seen.append(jax.sharding.get_abstract_mesh())
            return v

        run = jax.shard_map(body, mesh=grid, in_specs=P(), out_specs=P(), axis_names=set(names))
        jax.jit(run).lower(np.ones(4, np.float32))
        manual = tuple(seen[0].manual_axes)
        wrong(set(manual) != set(names), f"a region that is manual over {names} says {manual}")
        wrong(dict(seen[0].shape) != dict(grid.shape), f"a region over {names} has the mesh {seen[0]}")


def _donated_results(line, grid):
    """Results of programs whose arguments are donated stand in order, for each number and order of arguments."""
    n = line.size
    place = NamedSharding(line, P("d"))

    def given(k):
        return [jax.device_put(np.full((2 * n,), 10.0 * i + 1, np.float32), place) for i in range(k)]

    for k in (2, 3, 4):
        for order in list(itertools.permutations(range(k)))[:: max(1, k * (k - 1) // 4)]:
            run = jax.jit(
                lambda *s, order=order: tuple(s[i] + i for i in order), donate_argnums=tuple(range(k))
            )
            found = run(*given(k))
            for one, i in zip(found, order, strict=True):
                right = np.full((2 * n,), 11.0 * i + 1, np.float32)
                expect(np.asarray(one), right, f"donated argument {i} of {k}, results in order {order},")
    tree = jax.jit(lambda s: {"b": s["a"] + 1, "a": s["b"] + 2, "c": s["c"] + 3}, donate_argnums=0)(
        dict(zip("abc", given(3), strict=True))
    )
    for name, number in (("b", 2), ("a", 13), ("c", 24)):
        expect(
            np.asarray(tree[name]),
            np.full((2 * n,), number, np.float32),
            f"the leaf {name} of a donated tree",
        )
    for shardings in ((None, place), (place, None), (None, None)):
        one, other = given(2)
        found = jax.jit(lambda a, b: (a + 1, b + 2), donate_argnums=0, out_shardings=shardings)(one, other)
        words = f"with out_shardings {[None if s is None else s.spec for s in shardings]}"
        expect(np.asarray(found[0]), np.full((2 * n,), 2, np.float32), f"a donated argument {words}")
        expect(np.asarray(found[1]), np.full((2 * n,), 13, np.float32), f"an argument {words}")


def _sends(f: Callable[..., Any], *given: Any) -> list[str]:
    text = jax.jit(f).lower(*given).compile().as_text() or ""
    return [word for word in SENDS if word in text]


def _free_constraints(line, grid):
    """Constraints that leave a dimension open, or stand inside of vmap, and regions that are manual over some axes: no
    data is sent, and the other dimensions stay cut."""
    host = mixed((2 * grid.size, 2 * grid.size), 97).astype(np.float32)
    free = P.UNCONSTRAINED
    x = placed(grid, host, "x", "y")
    part = x.addressable_shards[0].data.shape
    members: dict[str, Callable[..., Any]] = {
        f"a constraint to {spec}": lambda v, spec=spec: lax.with_sharding_constraint(
            2 * v, NamedSharding(grid, spec)
        )
        for spec in (P("x", free), P(free, "y"), P(free, free))
    }
    for axis, other in (("x", "y"), ("y", "x")):
        dim = 0 if axis == "x" else 1
        place = NamedSharding(grid, P(other))
        members[f"a constraint inside of vmap over {axis}"] = jax.vmap(
            lambda r, place=place: lax.with_sharding_constraint(2 * r, place),
            in_axes=dim,
            out_axes=dim,
            spmd_axis_name=axis,
        )
        spec = P(*(None,) * dim, axis)
        members[f"a region that is manual over {axis}"] = jax.shard_map(
            lambda b: 2 * b, mesh=grid, in_specs=spec, out_specs=spec, axis_names={axis}
        )
    for name, f in members.items():
        sent = _sends(f, x)
        wrong(bool(sent), f"{name} sends data by {', '.join(sent)}")
        found = jax.jit(f)(x)
        expect(np.asarray(found), 2 * host, name)
        shape = found.addressable_shards[0].data.shape
        wrong(shape != part, f"the shards of {name} have the shape {shape} instead of {part}")


def _stored_shardings(line, grid):
    """The shardings of arguments and results of a program that is exported, stored and read."""
    from jax import export

    shape = (2 * grid.size, 2 * grid.size)
    host = mixed(shape, 97).astype(np.float32)
    specs = [
        (grid, P("x", "y")),
        (grid, P("y", "x")),
        (grid, P(("x", "y"))),
        (grid, P(None, "y")),
        (grid, P()),
    ]
    for mesh, spec in [*specs, (line, P("d")), (line, P(None, "d"))]:
        place, turned = (
            NamedSharding(mesh, spec),
            NamedSharding(mesh, P(*reversed((*spec, *(None,) * (2 - len(spec)))))),
        )
        run = jax.jit(lambda v, w: (v + w, v.T), in_shardings=(place, turned), out_shardings=(turned, place))
        stored = export.export(run)(*2 * (jax.ShapeDtypeStruct(shape, np.float32),))
        for what, one in (("exported", stored), ("read", export.deserialize(stored.serialize()))):
            for side, seen, right in (
                ("arguments", one.in_shardings_jax(mesh), (place, turned)),
                ("results", one.out_shardings_jax(mesh), (turned, place)),
            ):
                same = all(
                    s is not None and s.is_equivalent_to(r, 2) for s, r in zip(seen, right, strict=True)
                )
                wrong(not same, f"the {side} of a program over {spec}, {what}, have the shardings {seen}")
            given = placed(mesh, host, *place.spec), placed(mesh, host, *turned.spec)
            found = jax.jit(one.call)(*given)
            on_each_device(found[0], 2 * host, f"the sum of a program over {spec}, {what},")
            on_each_device(found[1], host.T, f"the transpose of a program over {spec}, {what},")
            wrong(
                not found[0].sharding.is_equivalent_to(turned, 2),
                f"the result of a program over {spec}, {what}, lies over {found[0].sharding}",
            )


def _callback_axes(line, grid):
    """Callbacks under vmap along any dimension, in and out."""
    n = line.size
    host = mixed((2 * n, 3, 4), 97).astype(np.float32)

    def called(v, method):
        shape = jax.ShapeDtypeStruct(v.shape, v.dtype)
        return jax.pure_callback(lambda v: 2 * np.asarray(v) + 1, shape, v, vmap_method=method)

    for method in ("sequential", "expand_dims", "broadcast_all"):
        for source, target in ((0, 0), (1, 1), (2, 0), (0, 2), (1, 2), (-1, -1)):
            run = jax.jit(
                jax.vmap(lambda v, m=method: called(v, m), in_axes=source, out_axes=target),
                out_shardings=NamedSharding(line, P()),
            )
            right = np.moveaxis(2 * host + 1, source, target)
            expect(np.asarray(run(host)), right, f"a callback by {method}, mapped from {source} to {target},")


def _region_arguments(line, grid):
    """A shard_map of several arguments under vmap with `spmd_axis_name`, with values and gradients."""
    rows, size = 2 * grid.shape["x"], 2 * grid.shape["y"]
    a, b = (mixed((rows, size, 3), k).astype(np.float32) for k in (7, 5))
    region = jax.shard_map(lambda u, v: u * v + u, mesh=grid, in_specs=(P("y"), P("y")), out_specs=P("y"))
    many = jax.vmap(region, spmd_axis_name="x")
    expect(np.asarray(jax.jit(many)(a, b)), a * b + a, "a region of two arguments under vmap")
    slopes = jax.jit(jax.grad(lambda a, b: many(a, b).sum(), (0, 1)))(a, b)
    expect(np.asarray(slopes[0]), b + 1, "the gradient by its first argument")
    expect(np.asarray(slopes[1]), a, "the gradient by its second argument")
    w = mixed((3,), 5).astype(np.float32)
    x = mixed((2 * grid.size, 3), 7).astype(np.float32)
    for axes in (("x", "y"), ("y", "x")):
        for checked in (True, False):
            loss = jax.shard_map(
                lambda w, v, axes=axes: lax.psum((v @ w).sum(), axes),
                mesh=grid,
                in_specs=(P(), P(axes)),
                out_specs=P(),
                check_vma=checked,
            )
            found = jax.jit(jax.grad(lambda w, loss=loss: loss(w, x)))(w)
            words = f"the gradient by what all devices hold, over {axes}, check_vma={checked},"
            expect(np.asarray(found), x.sum(0), words)
    index = mapped(
        lambda v, c: lax.cond(c, lambda: v + lax.axis_index("d"), lambda: v - lax.axis_index("d")),
        line,
        (P("d"), P()),
        P("d"),
    )
    there = np.arange(line.size, dtype=np.int32)
    for flag, right in ((True, 2 * there), (False, 0 * there)):
        expect(np.asarray(index(there, flag)), right, f"the place of the device in the branch {flag}")


def _typed_results(line, grid):
    """Types of results over Explicit axes: of arrays made alike, of auto_axes, and of moves of each dtype."""
    typed = explicit(grid)
    size = 2 * grid.size
    with jax.set_mesh(typed):
        for spec in (P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x"))):
            x = placed(typed, np.ones((size, size), np.float32), *spec)
            place = NamedSharding(typed, spec)
            members = {
                "zeros_like": jnp.zeros_like,
                "zeros_like of int32": lambda v: jnp.zeros_like(v, dtype=jnp.int32),
                "full_like of bfloat16": lambda v: jnp.full_like(v, 2, dtype=jnp.bfloat16),
                "ones_like of bool": lambda v: jnp.ones_like(v, dtype=bool),
                "a cast": lambda v: v.astype(jnp.int8),
                "auto_axes": jax.sharding.auto_axes(lambda v: 2 * v, out_sharding=spec),
                "a sum with a number": lambda v: v + 1,
            }
            for name, f in members.items():
                seen = jax.jit(f)(x).sharding
                wrong(not seen.is_equivalent_to(place, 2), f"{name} over {spec} lies over {seen}")
        for kind in KINDS:
            host = mixed((size, size), 2 if kind is bool else 90, 7).astype(kind)
            for here, there in ((P("x"), P(None, "x")), (P("x", "y"), P("y", "x")), (P(None, "y"), P("y"))):
                found = jax.jit(lambda v, there=there: jax.sharding.reshard(v, there))(
                    placed(typed, host, *here)
                )
                words = f"{np.dtype(kind).name} that moves from {here} to {there}"
                on_each_device(found, host, words)
    for kind in (jnp.bfloat16, np.float16, np.int8):
        run = jax.jit(lambda v, c: v * lax.with_sharding_constraint(c, NamedSharding(line, P())))
        seen = run(placed(line, np.ones(2 * line.size, kind), "d"), 2 if kind is np.int8 else 2.0).dtype
        wrong(seen != kind, f"a constrained Python number makes {seen} of {np.dtype(kind).name}")


def _unreduced_scalars(line, grid):
    """Scalars that are unreduced over one or both axes until they are used."""
    if not hasattr(P(), "unreduced"):
        raise Missing("this release has no unreduced types")
    typed = explicit(grid)
    size = 2 * grid.size
    a = (mixed((size,), 7) - 3).astype(np.float32)
    square = (mixed((size, size), 5) - 2).astype(np.float32)
    with jax.set_mesh(typed):
        for axes in (("x",), ("y",), ("x", "y")):
            vector = placed(typed, a, axes)
            matrix = placed(typed, square, axes)
            members: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
                "an einsum of vectors": (
                    lambda a, b, s: jnp.einsum("a,a->", a, b, out_sharding=s),
                    (vector, vector),
                    a @ a,
                ),
                "an einsum of matrices": (
                    lambda a, b, s: jnp.einsum("ab,ab->", a, b, out_sharding=s),
                    (matrix, matrix),
                    (square * square).sum(),
                ),
                "an einsum with a vector left": (
                    lambda a, b, s: jnp.einsum("a,ab->b", a, b, out_sharding=s),
                    (vector, matrix),
                    a @ square,
                ),
                "a dot_general": (
                    lambda a, b, s: lax.dot_general(a, b, (((0,), (0,)), ((), ())), out_sharding=s),
                    (vector, vector),
                    a @ a,
                ),
            }
            for name, (f, given, right) in members.items():
                rank = np.ndim(right)
                left_open = P(*(None,) * rank, unreduced=set(axes))
                run = jax.jit(
                    lambda a, b, f=f, s=left_open, rank=rank: jax.sharding.reshard(
                        f(a, b, s), P(*(None,) * rank)
                    )
                )
                on_each_device(
                    run(*given), np.float32(right), f"{name}, unreduced over {axes} before its use,"
                )


RULES_OF_USES: dict[str, Callable[..., None]] = {
    "reading_rows": _reading_rows,
    "multihost_types": _multihost_types,
    "context_specs": _context_specs,
    "manual_names": _manual_names,
    "donated_results": _donated_results,
    "free_constraints": _free_constraints,
    "stored_shardings": _stored_shardings,
    "callback_axes": _callback_axes,
    "region_arguments": _region_arguments,
    "typed_results": _typed_results,
    "unreduced_scalars": _unreduced_scalars,
}
