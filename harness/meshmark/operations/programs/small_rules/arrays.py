# SPDX-License-Identifier: Apache-2.0
"""Small rules: arrays that are read, copied, moved and put together from parts, eagerly and on each device; regions
over axes in any order; functions of arrays that lie differently."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device


def cube(line: Any) -> Mesh:
    """A mesh of three axes "a", "b" and "c" of all devices, as far as their number has factors of two."""
    n = line.size
    sizes = (n // 4, 2, 2) if n % 4 == 0 else (n // 2, 2, 1) if n % 2 == 0 else (n, 1, 1)
    return Mesh(line.devices.reshape(sizes), ("a", "b", "c"))


def specs_of(mesh: Any) -> Iterator[P]:
    """The specs of two dimensions over none, some and all axes of a mesh, in each order."""
    names = mesh.axis_names
    for count in range(len(names) + 1):
        for chosen in itertools.permutations(names, count):
            for cut in range(count + 1):
                parts = (chosen[:cut], chosen[cut:])
                yield P(*(p[0] if len(p) == 1 else p or None for p in parts))


def _matrix(mesh: Any) -> np.ndarray:
    side = (2 if mesh.size > 3 else 8) * mesh.size
    return mixed((side, side), 97, 7).astype(np.int32)


def _read_parts(line, grid):
    """Eager reads of an array over each spec: its shards by their slices, other slices, rows, steps and copies."""
    host = _matrix(grid)
    for mesh in (grid, cube(line)):
        for spec in itertools.islice(specs_of(mesh), 0, None, 2 if mesh is grid else 9):
            x = placed(mesh, host, *spec)
            index = NamedSharding(mesh, spec).devices_indices_map(host.shape)
            for slices in dict.fromkeys(tuple((s.start, s.stop) for s in one) for one in index.values()):
                at = tuple(slice(*s) for s in slices)
                expect(np.asarray(x[at]), host[at], f"{slices} of an array over {spec}")
            for at in (
                (slice(1, -1),),
                (0,),
                (-1,),
                (slice(None), 2),
                (slice(None, None, 2),),
                (..., slice(3, 5)),
            ):
                expect(np.asarray(x[at]), host[at], f"{at} of an array over {spec}")


def _copies(line, grid):
    """Copies of an array over each spec: they outlive the original, and what NumPy reads of it is not written."""
    host = _matrix(grid).astype(np.float32)
    ways: dict[str, Callable[[Any], Any]] = {
        "copy()": lambda x: x.copy(),
        "jnp.copy": jnp.copy,
        "jnp.array": jnp.array,
        "+x": lambda x: x + 0,
    }
    for spec in (P(), P("x"), P("x", "y"), P(None, "y"), P(("y", "x"))):
        for name, way in ways.items():
            x = placed(grid, host, *spec)
            other = way(x)
            jax.block_until_ready(jax.jit(lambda v: v + 1, donate_argnums=0)(x))
            x.delete()
            wrong(other.is_deleted(), f"{name} of an array over {spec} dies with it")
            expect(np.asarray(other), host, f"{name} of an array over {spec} that is deleted")
        x = placed(grid, host, *spec)
        for read in (lambda x=x: np.asarray(x), lambda x=x: np.asarray(x.addressable_shards[0].data)):
            seen = read()
            wrong(seen.flags.writeable, f"what NumPy reads of an array over {spec} can be written")
        expect(np.asarray(x), host, f"an array over {spec} that NumPy read")
    rows = jax.pmap(lambda v: v + 1)(np.ones((jax.local_device_count(), 64), np.float32))
    run = jax.pmap(lambda k, a, b: (k * a, b + 1), static_broadcasted_argnums=0, donate_argnums=1)
    for factor in (2, 3):
        one, other = rows + 0, rows + 0
        found = run(factor, one, other)[0]
        expect(np.asarray(found), np.full_like(rows, 2 * factor), f"pmap with the static number {factor}")
        gone = (one.is_deleted(), other.is_deleted())
        wrong(
            gone[1] or not gone[0], f"pmap that donates its second of three arguments deletes {gone} of two"
        )


def _moves(line, grid):
    """Moves to meshes of the same shape with other devices first, of other shapes, and between specs."""
    host = _matrix(grid)
    devices = line.devices.ravel()
    meshes = {
        "in order": line,
        "reversed": Mesh(devices[::-1], ("d",)),
        "turned": Mesh(np.roll(devices, 1), ("d",)),
    }
    for one, other in itertools.permutations(meshes, 2):
        for spec in (P("d"), P(None, "d"), P()):
            x = placed(meshes[one], host, *spec)
            what = f"an array over {spec} that moves from devices {one} to {other}"
            on_each_device(placed(meshes[other], x, *spec), host, what)
            moved = jax.jit(lambda v: v, out_shardings=NamedSharding(meshes[one], spec))(x)
            on_each_device(placed(meshes[other], moved, *spec), host, f"{what} after a program")
    transposed = Mesh(grid.devices.T, grid.axis_names[::-1])
    for spec in (P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x"))):
        x = placed(grid, host, *spec)
        on_each_device(
            placed(transposed, x, *spec), host, f"an array over {spec} that moves to the transposed mesh"
        )
        for there in specs_of(grid):
            on_each_device(placed(grid, x, *there), host, f"an array that moves from {spec} to {there}")


def _parts(line, grid):
    """Arrays that are put together from parts: lists and tuples of parts in any order, and parts of this process."""
    host = _matrix(grid)
    for spec in (P("x", "y"), P(("y", "x")), P(None, "x"), P()):
        place = NamedSharding(grid, spec)
        parts = [
            jax.device_put(host[at], d) for d, at in place.addressable_devices_indices_map(host.shape).items()
        ]
        for order in (parts, parts[::-1], parts[1:] + parts[:1]):
            for kind in (list, tuple):
                found = jax.make_array_from_single_device_arrays(host.shape, place, kind(order))
                on_each_device(found, host, f"an array over {spec} of a {kind.__name__} of parts")
        if jax.process_count() == 1:
            found = multihost_utils.host_local_array_to_global_array(host, grid, spec)
            on_each_device(found, host, f"a global array over {spec} of a local one")
            back = multihost_utils.global_array_to_host_local_array(found, grid, spec)
            expect(np.asarray(back), host, f"a local array of a global one over {spec}")
    if jax.process_count() == 1:
        for what, value in (
            ("an array of NumPy", host),
            ("a number", np.int32(7)),
            ("an array", jnp.asarray(host)),
        ):
            found = multihost_utils.process_allgather(value)
            expect(np.asarray(found), np.asarray(value)[None], f"what all processes have of {what}")
            if np.ndim(value):
                tiled = multihost_utils.process_allgather(value, tiled=True)
                expect(np.asarray(tiled), np.asarray(value), f"what all processes have of {what}, tiled")
    for mesh in (grid, cube(line)):
        for spec in specs_of(mesh):
            x = placed(mesh, host, *spec)
            where: dict[str, list[int]] = {}
            for shard in x.addressable_shards:
                where.setdefault(str(shard.index), []).append(shard.replica_id)
            if jax.process_count() == 1:
                bad = {k: v for k, v in where.items() if sorted(v) != list(range(len(v)))}
                wrong(bool(bad), f"the replicas of an array over {spec} have the numbers {bad}")


def _number_of(mesh: Any, part: Any) -> int:
    """The number of blocks along a dimension that this part of a spec cuts."""
    return math.prod(mesh.shape[a] for a in ((part,) if isinstance(part, str) else part or ()))


def _judge_specs(mesh: Any, specs: Iterator[P]) -> None:
    """In and out specs over the axes in each order, and sums of the blocks over their axes."""
    side = 2 * mesh.size
    host = mixed((side, side), 97, 7).astype(np.int32)
    for spec in specs:
        on_each_device(mapped(lambda b: 2 * b, mesh, spec, spec)(host), 2 * host, f"a region over {spec}")
        axes = tuple(a for part in spec if part for a in ((part,) if isinstance(part, str) else part))
        if not axes:
            continue
        rows, columns = (_number_of(mesh, part) for part in (*spec, None)[:2])
        right = host.reshape(rows, -1, columns, side // columns).sum((0, 2), dtype=np.int32)
        total = mapped(lambda b, axes=axes: lax.psum(b, axes), mesh, spec, P())
        on_each_device(total(host), right, f"a sum over {axes} of blocks over {spec}")


def _judge_places(mesh: Any) -> None:
    """The place of a block along each axis, in regions over all axes and over that one."""
    for axis in mesh.axis_names:
        size = mesh.shape[axis]
        numbers = np.arange(size, dtype=np.int32).repeat(2)
        for options in ({}, {"axis_names": {axis}}):
            run = mapped(lambda b, a=axis: b + lax.axis_index(a), mesh, P(axis), P(axis), **options)
            what = f"the place along {axis} of {mesh.axis_names} {options or ''}"
            on_each_device(run(np.zeros(2 * size, np.int32)), numbers, what)


def _judge_nested(mesh: Any) -> None:
    """Sums over the axes of two regions, one inside of the other, and the place in the inner one."""
    first, last = mesh.axis_names[0], mesh.axis_names[-1]

    def inner(b):
        return lax.psum(b, (first, last)), lax.psum(b, last), lax.axis_index(last) + 0 * b

    def outer(b):
        specs = {"in_specs": P(None, last), "out_specs": (P(), P(), P(None, last))}
        return jax.shard_map(inner, axis_names={last}, **specs)(b)

    run = mapped(outer, mesh, P(first), (P(), P(first), P(first)), axis_names={first})
    given = mixed((mesh.shape[first], mesh.shape[last]), 97, 7).astype(np.int32)
    both, one, place = map(np.asarray, run(given))
    what = f"of regions over {first} and {last} of {mesh.axis_names}"
    expect(both, given.sum(keepdims=True, dtype=np.int32), f"a sum over both axes {what}")
    expect(one, given.sum(1, keepdims=True, dtype=np.int32), f"a sum over the inner axis {what}")
    numbers = np.broadcast_to(np.arange(given.shape[1], dtype=np.int32), given.shape)
    expect(place, numbers, f"the inner place {what}")


def _region_axes(line, grid):
    """Specs, places and sums in regions over all axes, over some, and one inside of another."""
    _judge_specs(grid, specs_of(grid))
    _judge_specs(cube(line), itertools.islice(specs_of(cube(line)), 0, None, 3))
    for mesh in (grid, cube(line)):
        _judge_places(mesh)
        _judge_nested(mesh)


def _mixed_places(line, grid):
    """Functions of several arrays that lie differently on a mesh with an axis that some of them do not use, in one
    program and eagerly."""
    n = grid.size * (1 if grid.size > 3 else 4)
    a = mixed((2 * n, 4), 9).astype(np.float32)
    b = mixed((2 * n, 4), 7, 3).astype(np.float32) + 1
    rows = (mixed((n,), 2 * n, 7)).astype(np.int32)
    flags = mixed((2 * n, 4), 3, 2) == 1

    def written(x, update, ids):
        out = x.copy()
        for i, row in zip(ids, update, strict=True):
            out[i] += row
        return out

    functions = {
        "concatenate": (lambda a, b, r, f: jnp.concatenate([a, b, a[:1]]), np.concatenate([a, b, a[:1]])),
        "concatenate columns": (lambda a, b, r, f: jnp.concatenate([b, a], 1), np.concatenate([b, a], 1)),
        "stack": (lambda a, b, r, f: jnp.stack([a, b], 1), np.stack([a, b], 1)),
        "where": (lambda a, b, r, f: jnp.where(f, a, b), np.where(flags, a, b)),
        "a sum": (lambda a, b, r, f: a + 2 * b, a + 2 * b),
        "a product": (lambda a, b, r, f: jnp.dot(a, b.T), a @ b.T),
        "another product": (lambda a, b, r, f: jnp.dot(a.T, b), a.T @ b),
        "rows": (lambda a, b, r, f: a[r], a[rows]),
        "added rows": (lambda a, b, r, f: a.at[r].add(b[: len(rows)]), written(a, b[: len(rows)], rows)),
        "an update": (lambda a, b, r, f: lax.dynamic_update_slice(a, b[:3], (r[0], 0)), None),
        "even rows": (lambda a, b, r, f: a.at[::2].set(b[::2]), None),
        "a clamp": (
            lambda a, b, r, f: lax.clamp(jnp.float32(2), a - b, jnp.float32(5)),
            np.clip(a - b, 2, 5),
        ),
        "a scan": (
            lambda a, b, r, f: lax.scan(lambda c, v: (c + v[0] * v[1], c), 0 * a[0], (a, b))[0],
            (a * b).sum(0),
        ),
    }
    updated, evens = a.copy(), a.copy()
    start = min(int(rows[0]), len(a) - 3)
    updated[start : start + 3] = b[:3]
    evens[::2] = b[::2]
    answers = {name: right for name, (_, right) in functions.items()} | {
        "an update": updated,
        "even rows": evens,
    }
    places = [
        (P(), P("x"), P(), P("x")),
        (P("y"), P(), P("x"), P()),
        (P("x"), P(None, "y"), P("y"), P("y")),
        (P(("x", "y")), P("y"), P(), P(None, "y")),
        (P(None, "y"), P(None, "y"), P("x"), P("x")),
    ]
    with jax.default_matmul_precision("highest"):
        for specs in places:
            given = [placed(grid, v, *s) for v, s in zip((a, b, rows, flags), specs, strict=True)]

            def all_of(*given):
                return {name: f(*given) for name, (f, _) in functions.items()}

            found = jax.jit(all_of)(*given)
            for name, right in answers.items():
                on_each_device(found[name], right, f"{name} of arrays over {specs}")
            for name in (
                "concatenate",
                "concatenate columns",
                "where",
                "a sum",
                "a product",
                "rows",
                "even rows",
            ):
                on_each_device(
                    functions[name][0](*given), answers[name], f"{name} of arrays over {specs}, eagerly,"
                )
    # A row of 1,024 numbers and more is written otherwise than a short one.
    wide = mixed((2 * n, 1024), 97, 7).astype(np.float32)
    right = wide.copy()
    right[::2] = 0
    for spec in (P("x"), P(("y", "x")), P(None, "y")):
        found = jax.jit(lambda v: v.at[::2].set(0))(placed(grid, wide, *spec))
        on_each_device(found, right, f"even rows of 1,024 numbers over {spec} that are set")


def _wide_numbers(line, grid):
    """Numbers of 64 bits that `out_sharding` places: ranges, grids and constants over Explicit axes."""
    n = 2 * grid.size
    with jax.enable_x64(True):
        typed = explicit(grid)
        with jax.set_mesh(typed):
            for kind in (np.int64, np.uint64, np.float64, np.int32):
                for spec in (P("x"), P("y"), P(("x", "y")), P()):
                    makers = {
                        "arange": (
                            lambda k, s: jnp.arange(n, dtype=k, out_sharding=s),
                            np.arange(n, dtype=kind),
                        ),
                        "a range by steps": (
                            lambda k, s: jnp.arange(5, 5 + 3 * n, 3, dtype=k, out_sharding=s),
                            np.arange(5, 5 + 3 * n, 3, dtype=kind),
                        ),
                        "iota": (
                            lambda k, s: lax.broadcasted_iota(
                                k, (n, 4), 0, out_sharding=P(*s, None) if len(s) else s
                            ),
                            np.broadcast_to(np.arange(n, dtype=kind)[:, None], (n, 4)),
                        ),
                        "full": (lambda k, s: jnp.full((n,), 7, k, out_sharding=s), np.full((n,), 7, kind)),
                    }
                    for name, (make, right) in makers.items():
                        for way, call in (("eager", make), ("jitted", jax.jit(make, static_argnums=(0, 1)))):
                            found = call(kind, spec)
                            on_each_device(
                                found, np.asarray(right), f"{way} {name} of {kind.__name__} over {spec}"
                            )


def _region_slopes(line, grid):
    """Gradients of sums over each choice of axes in regions over two and three axes, with check_vma and without."""
    for mesh in (grid, cube(line)):
        names = mesh.axis_names
        host = (mixed(mesh.devices.shape, 9, 7) - 4).astype(np.float32)
        for count in range(1, len(names) + 1):
            for axes in itertools.combinations(names, count):
                over = tuple(names.index(a) for a in axes)
                total = np.broadcast_to(host.sum(over, keepdims=True), host.shape)
                size = math.prod(mesh.shape[a] for a in axes)
                left = P(*(None if a in axes else a for a in names))
                for spec, check, factor in ((left, True, 1), (P(*names), False, size)):
                    run = jax.shard_map(
                        lambda b, axes=axes: lax.psum(b, axes) ** 2,
                        mesh=mesh,
                        in_specs=P(*names),
                        out_specs=spec,
                        check_vma=check,
                    )
                    found = jax.jit(jax.grad(lambda x, f=run: f(x).sum()))(host)
                    what = f"the gradient of a squared sum over {axes} of {names}, check_vma={check},"
                    expect(np.asarray(found), (2 * factor * total).astype(np.float32), what)


RULES_OF_ARRAYS: dict[str, Callable[..., None]] = {
    "read_parts": _read_parts,
    "copies": _copies,
    "moves": _moves,
    "parts": _parts,
    "region_axes": _region_axes,
    "region_slopes": _region_slopes,
    "mixed_places": _mixed_places,
    "wide_numbers": _wide_numbers,
}
