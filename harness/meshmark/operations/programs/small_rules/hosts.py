# SPDX-License-Identifier: Apache-2.0
"""Small rules: what comes from the host into a program over several devices, checks that are made functional, and
regions beside other transforms.

Each bug of a released JAX has a form of its own, so that its known issue hides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import checkify, io_callback
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect


def on_each_device(found: jax.Array, right: np.ndarray, what: str) -> None:
    """RuntimeError if a device holds other numbers than its sharding says. `np.asarray` reads some devices only."""
    for shard in found.addressable_shards:
        expect(np.asarray(shard.data), right[shard.index], f"{what}, on {shard.device},")


CALLS: dict[str, Callable[..., Any]] = {"pure_callback": jax.pure_callback, "io_callback": io_callback}


def _doubled(call: Callable[..., Any], x: Any) -> Any:
    return call(lambda v: 2 * np.asarray(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def _host_results(line, grid):
    """The results of callbacks, on each device, and as arguments of other programs."""
    host = mixed((2 * line.size,), 9).astype(np.float32)
    for name, call in CALLS.items():
        for spec in (P("d"), P()):
            x = placed(line, host, *spec)
            run = jax.jit(lambda v, call=call: _doubled(call, v))
            what = f"the result of {name} of an array over {spec}"
            on_each_device(run(x), 2 * host, what)
            on_each_device(_doubled(call, x), 2 * host, f"{what}, eagerly")
            on_each_device(run(x) + 1, 2 * host + 1, f"{what}, plus 1")
            on_each_device(run(run(x)), 4 * host, f"{what}, doubled again")
            last = jax.device_put(run(x), line.devices.ravel()[-1])
            expect(np.asarray(last), 2 * host, f"{what}, on another device,")


def _host_results_inside(line, grid):
    """The results of callbacks that the program uses, or that `out_shardings` places, on each device."""
    host = mixed((2 * line.size,), 9).astype(np.float32)
    for name, call in CALLS.items():
        for spec in (P("d"), P()):
            x = placed(line, host, *spec)
            what = f"{name} of an array over {spec}"
            for there in (P("d"), P()):
                place = NamedSharding(line, there)
                run = jax.jit(lambda v, call=call: _doubled(call, v), out_shardings=place)
                on_each_device(run(x), 2 * host, f"{what}, placed over {there},")
                held = jax.jit(
                    lambda v, call=call, place=place: lax.with_sharding_constraint(_doubled(call, v), place)
                )
                on_each_device(held(x), 2 * host, f"{what}, constrained to {there},")
                on_each_device(held(held(x)), 4 * host, f"{what}, constrained to {there}, twice,")
            plus = jax.jit(
                lambda v, call=call: v + _doubled(call, v), out_shardings=NamedSharding(line, P("d"))
            )
            on_each_device(plus(x), 3 * host, f"the sum of an array and {what}")
        inside = mapped(lambda b, call=call: b + _doubled(call, b), line, P("d"), P("d"))
        on_each_device(inside(placed(line, host, "d")), 3 * host, f"{name} in a shard_map")


def _host_predicates(line, grid):
    """Loops whose end the host decides: all devices take the same turns."""
    host = mixed((2 * line.size,), 5).astype(np.float32) + 1
    x = placed(line, host)

    def below(v):
        return jax.pure_callback(lambda v: np.bool_(np.max(v) < 60), jax.ShapeDtypeStruct((), bool), v)

    turns = 0
    while np.max(host * 2**turns) < 60:
        turns += 1
    run = jax.jit(lambda v: lax.while_loop(below, lambda v: 2 * v, v), out_shardings=NamedSharding(line, P()))
    on_each_device(run(x), host * 2**turns, "a loop that a callback ends")


def _host_branches(line, grid):
    """Branches and bounds of loops that the host decides: all devices take the same."""
    host = mixed((2 * line.size,), 5).astype(np.float32) + 1

    def number(v):
        return jax.pure_callback(lambda v: np.int32(np.max(v)), jax.ShapeDtypeStruct((), np.int32), v)

    most = int(host.max())
    members = {
        "a branch": (
            lambda v: lax.cond(number(v) > 3, lambda v: 2 * v, lambda v: v, v),
            host * (2 if most > 3 else 1),
        ),
        "a switch": (
            lambda v: lax.switch(number(v), [lambda v, k=k: k * v for k in range(9)], v),
            host * min(most, 8),
        ),
        "the bound of a loop": (
            lambda v: lax.fori_loop(0, number(v), lambda i, v: v + 1, v),
            host + most,
        ),
    }
    for spec in (P("d"), P()):
        x = placed(line, host, *spec)
        for name, (f, right) in members.items():
            found = jax.jit(f, out_shardings=NamedSharding(line, spec))(x)
            on_each_device(found, right, f"{name} that a callback decides, of an array over {spec}")


def _mapped_callbacks(line, grid):
    """Callbacks under vmap, by each method, with an argument that is not mapped: results, calls, and shapes seen."""
    n = line.size
    host, one = mixed((2 * n, 3), 9).astype(np.float32), np.float32([1, 2, 3])
    x = placed(line, host, "d")
    for method in ("sequential", "expand_dims", "broadcast_all"):
        shapes: set[tuple[Any, ...]] = set()

        def added(v, w, shapes=shapes):
            shapes.add((np.shape(v), np.shape(w)))
            return (np.asarray(v) + np.asarray(w)).astype(np.float32)

        def called(v, w, added=added, method=method):
            return jax.pure_callback(added, jax.ShapeDtypeStruct((3,), np.float32), v, w, vmap_method=method)

        run = jax.jit(jax.vmap(called, (0, None)), out_shardings=NamedSharding(line, P("d")))
        on_each_device(run(x, one), host + one, f"a callback under vmap ({method})")
        right = {
            "sequential": ((3,), (3,)),
            "expand_dims": ((2 * n, 3), (1, 3)),
            "broadcast_all": ((2 * n, 3), (2 * n, 3)),
        }[method]
        expect(shapes, {right}, f"the shapes that a callback under vmap ({method}) sees")
    # A call whose result is not used happens all the same: io_callback has effects.
    seen: list[float] = []

    def note(v):
        seen.append(float(np.asarray(v)))
        return np.float32(0)

    def noted(v):
        io_callback(note, jax.ShapeDtypeStruct((), np.float32), v)
        return v

    jax.block_until_ready(jax.jit(jax.vmap(noted))(host[:, 0]))
    jax.effects_barrier()
    expect(sorted(seen), sorted(host[:, 0].tolist()), "what io_callback under vmap is called with")


def _checked(f: Callable[..., Any], x: Any, right: np.ndarray, what: str, errors: Any = None) -> None:
    """RuntimeError unless the checkified function finds no error and gives this result."""
    error, found = jax.jit(checkify.checkify(f, errors=errors or checkify.user_checks))(x)
    wrong(error.get() is not None, f"{what} finds the error {error.get()}")
    expect(found, right, what)


def _checks_before_regions(line, grid):
    """A functional check before a shard_map: without a context mesh, under one, and over some axes."""
    host = mixed((2 * grid.shape["x"], 2 * grid.shape["y"]), 9).astype(np.float32)

    def program(**options):
        def f(x):
            checkify.check(jnp.all(x > -1), "too small")
            return jax.shard_map(lambda b: 2 * b, **options)(x)

        return f

    both = {"in_specs": P("x", "y"), "out_specs": P("x", "y")}
    _checked(program(mesh=grid, **both), host, 2 * host, "a check before a shard_map")
    with jax.set_mesh(grid):
        _checked(program(**both), host, 2 * host, "a check before a shard_map, under set_mesh")
    some = {"in_specs": P("x"), "out_specs": P("x"), "axis_names": {"x"}}
    _checked(program(mesh=grid, **some), host, 2 * host, "a check before a shard_map over one axis")


def _checked_indices(line, grid):
    """Functional checks of indices inside of a shard_map, and a check inside beside one after it."""
    host = mixed((4 * line.size,), 9).astype(np.float32)

    def over(f):
        return jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=P("d"))

    right = np.take_along_axis(
        host.reshape(-1, 4), np.argsort(-host.reshape(-1, 4), 1, kind="stable"), 1
    ).ravel()
    _checked(over(lambda b: b[jnp.argsort(-b)]), host, right, "a checked index", checkify.index_checks)

    def both(x):
        def inside(b):
            checkify.check(jnp.all(b < 7), "inside")
            return 2 * b

        y = over(inside)(x)
        checkify.check(jnp.all(y < 99), "after")
        return y

    error, _ = jax.jit(checkify.checkify(both))(host)
    told = str(error.get())
    wrong("inside" not in told, f"a check that fails in a shard_map, before one that passes, tells {told}")


def _checks_in_loops(line, grid):
    """Functional checks in a scan and in a branch inside of a shard_map."""
    host = mixed((4 * line.size,), 9).astype(np.float32) + 1

    def checked(v):
        checkify.check(v < 100, "large")
        return 2 * v

    def scan(b):
        return lax.scan(lambda c, v: (c, checked(v)), 0.0, b)[1]

    def branch(b):
        return lax.cond(b[0] > 5, lambda v: v + checked(v[0]) - v[0] * 2 + v, lambda v: v * 2, b)

    for name, f in (("a scan", scan), ("a branch", branch)):
        for options in ({"check_vma": False}, {}):
            run = jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=P("d"), **options)
            _checked(run, host, 2 * host, f"a check in {name} in a shard_map {options or ''}")


def _pmap_axes(line, grid):
    """Axes of pmap counted from the end: as the axis that they name, or refused."""
    n = jax.local_device_count()
    host = mixed((n, 4, 3), 11).astype(np.float32)
    for axis in (-1, -2, -3):
        try:
            found = np.asarray(jax.pmap(lambda v: 2 * v, out_axes=axis)(host))
        except (ValueError, TypeError):
            continue
        expect(found, np.moveaxis(2 * host, 0, axis), f"pmap with out_axes={axis}")


def _nested_pmap(line, grid):
    """A pmap in a pmap, and a sum over both axes."""
    n = jax.local_device_count()
    if n % 2:
        raise Missing("a pmap in a pmap needs an even number of devices")
    host = mixed((2, n // 2, 3), 11).astype(np.float32)
    expect(np.asarray(jax.pmap(jax.pmap(lambda v: 2 * v))(host)), 2 * host, "a pmap in a pmap")
    both = jax.pmap(jax.pmap(lambda v: lax.psum(v, ("i", "j")), axis_name="j"), axis_name="i")
    expect(np.asarray(both(host)), np.broadcast_to(host.sum((0, 1)), host.shape), "a sum over both axes")


def _closed_references(line, grid):
    """A shard_map that closes over a mutable array: it reads the array, or refuses with a reason."""
    if not hasattr(jax, "new_ref"):
        raise Missing("this release has no jax.new_ref")
    host = mixed((2 * line.size,), 9).astype(np.float32)
    for name, way in (("jitted", jax.jit), ("eager", lambda f: f)):
        for options in ({}, {"check_vma": False}):
            ref = jax.new_ref(placed(line, np.float32([5, 5])))
            run = jax.shard_map(
                lambda b, r=ref: b + r[0], mesh=line, in_specs=P("d"), out_specs=P("d"), **options
            )
            expect(
                way(run)(host),
                host + 5,
                f"a {name} shard_map that closes over a mutable array {options or ''}",
            )


def _kernels(line, grid):
    """An interpreted Pallas kernel of one and two blocks in a shard_map, with and without check_vma."""
    from jax.experimental import pallas as pl

    host = mixed((4 * line.size, 2), 9).astype(np.float32)

    def twice(a, o):
        o[...] = a[...] + a[...]

    def kernel(b, blocks):
        block = pl.BlockSpec((4 // blocks, 2), lambda i: (i, 0))
        like = jax.typeof(b)
        return pl.pallas_call(
            twice, grid=(blocks,), in_specs=[block], out_specs=block, out_shape=like, interpret=True
        )(b)

    for blocks in (1, 2):
        for options in ({"check_vma": False}, {}):
            run = mapped(lambda b, k=blocks: kernel(b, k), line, P("d"), P("d"), **options)
            expect(run(host), 2 * host, f"a kernel of {blocks} blocks in a shard_map {options or ''}")


RULES_OF_HOSTS: dict[str, Callable[..., None]] = {
    "host_results": _host_results,
    "host_results_inside": _host_results_inside,
    "host_predicates": _host_predicates,
    "host_branches": _host_branches,
    "mapped_callbacks": _mapped_callbacks,
    "checks_before_regions": _checks_before_regions,
    "checked_indices": _checked_indices,
    "checks_in_loops": _checks_in_loops,
    "pmap_axes": _pmap_axes,
    "nested_pmap": _nested_pmap,
    "closed_references": _closed_references,
    "kernels_with_marks": _kernels,
}
