# SPDX-License-Identifier: Apache-2.0
"""Small rules of arrays and of jit with shardings, by conditions that JAX's own tests name: constraints over abstract
meshes, constants and programs on several sets of devices, shardings for some of the arguments and results, batches of
jitted functions, moves that say where they start, and uneven parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device


def numbers(*shape: int) -> np.ndarray:
    """Whole numbers of both signs, without symmetry, as float32."""
    return (mixed(shape, 97, 7) - 40).astype(np.float32)


def lies_with(found: Any, right: np.ndarray, place: Any, what: str) -> None:
    """RuntimeError unless an array has these numbers on each device, and lies at this place."""
    on_each_device(found, right, what)
    same = found.sharding.is_equivalent_to(place, found.ndim)
    wrong(not same, f"{what} lies over {found.sharding} instead of {place}")


def _constraints_over_abstract_meshes(line, grid):
    """Constraints over a mesh without devices: the devices are those of the argument, in their order; in programs,
    outside of them, in batches, loops and gradients."""
    host = numbers(2 * grid.size, 2 * grid.size)
    devices = grid.devices
    meshes = {
        "the usual order": grid,
        "the turned order": Mesh(devices[::-1, ::-1], ("x", "y")),
        "another order": Mesh(devices[:, ::-1], ("x", "y")),
    }
    abstract = grid.abstract_mesh

    def to(spec: P) -> Callable[[Any], Any]:
        return lambda v: lax.with_sharding_constraint(v, NamedSharding(abstract, spec))

    def plain(v: Any) -> Any:
        return to(P("y"))(v) * 2

    def looped(v: Any) -> Any:
        return lax.scan(lambda c, k: (to(P(None, "x"))(c + k), None), v, np.array([1, 2], np.float32))[0]

    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray, P | None]] = {
        "a program": (plain, 2 * host, P("y")),
        "a constraint at the end": (to(P(None, ("y", "x"))), host, P(None, ("y", "x"))),
        "a batch": (jax.vmap(to(P("x"))), host, P(None, "x")),
        "a batch along the second dimension": (jax.vmap(to(P("x")), 1, 1), host, None),
        "a named batch": (jax.vmap(to(P("x")), spmd_axis_name="y"), host, P("y", "x")),
        "a loop": (looped, host + 3, None),
        "a gradient": (jax.grad(lambda v: (to(P("y"))(v) * v).sum()), 2 * host, None),
    }
    jitted = {name: jax.jit(f) for name, (f, _, _) in calls.items()}
    for mesh_name, mesh in meshes.items():
        x = placed(mesh, host, "x", "y")
        for name, (f, right, spec) in calls.items():
            for way, run in (("in jit", jitted[name]), ("eagerly", f)):
                if way == "eagerly" and (mesh is not grid or name == "a loop"):
                    continue
                found = run(x)
                what = f"{name} over an abstract mesh, {way}, of devices in {mesh_name},"
                on_each_device(found, right, what)
                if spec is not None:
                    lies_with(found, right, NamedSharding(mesh, spec), what)
                expect(found.committed, True, f"whether {what} is committed")
    one = NamedSharding(abstract, P("x"))
    refused(
        "an eager constraint of a NumPy array over no devices",
        "should be a `jax.Array`",
        lambda: lax.with_sharding_constraint(host, one),
    )
    refused(
        "an eager constraint of an array on one device over no devices",
        "must be a `NamedSharding`",
        lambda: lax.with_sharding_constraint(jnp.asarray(host), one),
    )


def _constants_over_devices(line, grid):
    """Cut arrays that a program closes over: beside arguments that may lie anywhere, in inner programs, loops and
    gradients, ahead of the call, and as results."""
    host = numbers(2 * grid.size, 2 * grid.size)
    turned = Mesh(grid.devices[::-1], ("x", "y"))
    places: dict[str, Any] = {
        f"over {spec} of a mesh with {mesh.devices.ravel()[0]} first": NamedSharding(mesh, spec)
        for mesh in (grid, turned)
        for spec in (P("x", "y"), P(("y", "x")), P())
    }
    if may_leave_out_devices():
        places["on the last device"] = jax.sharding.SingleDeviceSharding(grid.devices.ravel()[-1])
    for name, place in places.items():
        const = jax.device_put(host, place)
        what = f"with a constant {name}"
        free = np.ones_like(host)

        def inner(v: Any, c: Any = const) -> Any:
            return jax.jit(lambda w: w * c)(v) - c[0]

        def looped(v: Any, c: Any = const) -> Any:
            return lax.scan(lambda s, turn: (s + c * turn, c[turn.astype(int)]), v, jnp.arange(2.0))

        def several(v: Any, c: Any = const, inner: Any = inner, looped: Any = looped) -> Any:
            return inner(v + 1), looped(v), jax.grad(lambda w: (w * w * c).sum())(v), c, -c

        run = jax.jit(several)
        right = (2 * host - host[0], 1 + host, host[:2], 2 * host, host, -host)
        results = {"called": run(free), "again": run(free), "ahead": run.lower(free).compile()(free)}
        results["given an array that may lie anywhere"] = run(jnp.asarray(free))
        results["given an array that lies as it does"] = run(jax.device_put(free, const.sharding))
        for way, found in results.items():
            for k, (seen, answer) in enumerate(zip(jax.tree.leaves(found), right, strict=True)):
                on_each_device(seen, answer, f"result {k} {what}, {way}")
        with jax.set_mesh(grid):
            on_each_device(jax.jit(lambda c=const: c)(), host, f"a result that is itself, {what}")


def _devices_in_turn(line, grid):
    """One jitted function for several sets and orders of devices in turn: results lie on the devices of the call, also
    where an earlier call was lowered for as many others; with a loop, a callback's number and a constant inside."""
    devices = line.devices.ravel()
    n = devices.size
    shifted: Any = [*devices[1:], devices[0]]
    sets: dict[str, Any] = {"all": devices, "all, turned": devices[::-1], "all, shifted": np.array(shifted)}
    if may_leave_out_devices():
        sets |= {"the last": devices[-1:], "the first": devices[:1]}
        if n > 1 and n % 2 == 0:
            sets |= {
                "the second half": devices[n // 2 :],
                "the first half": devices[: n // 2],
                "every other": devices[1::2],
            }
    host = numbers(2 * n, 3)
    scale = np.float32([2, -3, 5])

    @jax.jit
    def run(v: Any) -> Any:
        loop = lax.fori_loop(0, 3, lambda i, c: c + scale * i, v)
        return v * scale, loop, v.sum(0), lax.sort(v, dimension=0)

    right = (host * scale, host + 3 * scale, host.sum(0), np.sort(host, 0))
    for _ in range(2):
        for name, some in sets.items():
            for spec in (P("d"), P(None)):
                mesh = Mesh(some, ("d",))
                results = run(placed(mesh, host, *spec))
                for k, (found, answer) in enumerate(zip(results, right, strict=True)):
                    what = f"result {k} over {spec} of {name} of the devices"
                    on_each_device(found, answer, what)
                    expect(found.devices(), set(some), f"the devices of {what}")
                place = NamedSharding(mesh, spec)
                lies_with(results[0], right[0], place, f"a product over {spec} of {name} of the devices")
    for device in dict.fromkeys([devices[-1], devices[0]] if may_leave_out_devices() else []):
        for k, (found, answer) in enumerate(zip(run(jax.device_put(host, device)), right, strict=True)):
            on_each_device(found, answer, f"result {k} on {device}")
            expect(found.devices(), {device}, f"the devices of result {k} on {device}")
    for k, (found, answer) in enumerate(zip(run(host), right, strict=True)):
        expect(np.asarray(found), answer, f"result {k} of NumPy's array after all others")
        expect(found.committed, False, f"whether result {k} of NumPy's array is committed")


def _shardings_for_some(line, grid):
    """Shardings for some arguments and results, for functions of no argument and of no result, and specs as static
    arguments: what is given holds, and the rest is free."""
    host = numbers(2 * grid.size, 2 * grid.size)
    cut, rows, whole = (NamedSharding(grid, s) for s in (P("x", "y"), P(("x", "y")), P()))
    x, y = placed(grid, host, "x", "y"), placed(grid, host + 1, ("x", "y"))

    def several(a: Any, b: Any, c: Any) -> Any:
        return a * 2, {"p": b.T, "q": (c - 1, a[0])}

    run = jax.jit(
        several, in_shardings=(cut, None, rows), out_shardings=(rows, {"p": None, "q": (cut, whole)})
    )
    right = (2 * host, host.T, host, host[0])
    for name, given in (
        ("arrays", (x, host, y)),
        ("NumPy's arrays", (host, host, host + 1)),
        ("moved", (x, y - 1, y)),
    ):
        found = jax.tree.leaves(run(*given))
        for k, (seen, answer, place) in enumerate(zip(found, right, (rows, None, cut, whole), strict=True)):
            what = f"result {k} of {name}, of which some have a sharding,"
            on_each_device(seen, answer, what)
            if place is not None:
                lies_with(seen, answer, place, what)
    if not cut.is_equivalent_to(rows, 2):
        words = "does not match the sharding"
        refused("an argument that lies elsewhere than asked", words, lambda: run(y, host, y))

    @jax.jit
    def nothing(v: Any) -> None:
        lax.with_sharding_constraint(v, rows)

    expect(nothing(x), None, "the result of a program of no result")
    made = jax.jit(
        lambda: (jnp.arange(6.0) - 2, jnp.ones(host.shape), -jnp.arange(3)), out_shardings=(None, rows, None)
    )
    answers = (np.arange(6, dtype=np.float32) - 2, np.ones_like(host), -np.arange(3, dtype=np.int32))
    for turn in range(2):
        for k, (seen, answer) in enumerate(zip(made(), answers, strict=True)):
            on_each_device(seen, answer, f"result {k} of no arguments, call {turn}")
            expect(seen.devices(), set(grid.devices.flat), f"the devices of result {k} of no arguments")
        lies_with(made()[1], answers[1], rows, "a result of no arguments that is asked for")

    def stated(spec: Any, a: Any) -> Any:
        return lax.with_sharding_constraint(a + 1, spec)

    static = jax.jit(stated, static_argnums=0, out_shardings=None)
    specs = (P("x"), P(None, "y"), P("x"))
    with jax.set_mesh(grid):
        for spec in specs:
            lies_with(
                static(spec, host),
                host + 1,
                NamedSharding(grid, spec),
                f"a constraint to the argument {spec}",
            )
    for spec in specs:
        place = NamedSharding(grid, spec)
        lies_with(
            static(place, host), host + 1, place, f"a constraint to the argument {place.spec} of no context"
        )
    number = lax.with_sharding_constraint(2.5, whole)
    lies_with(number, np.float32(2.5), whole, "a number that is constrained")


def _batches_of_jitted(line, grid):
    """Batches of jitted functions with shardings: the dimension of the batch is free, or lies over the axis that is
    named, wherever in_axes and out_axes put it; and so in gradients and tangents."""
    host = numbers(2 * grid.size, 2 * grid.size)
    x = jax.device_put(host, NamedSharding(grid, P()))
    weights = np.arange(host.shape[1], dtype=np.float32) - 3
    for axis, other in (("x", "y"), ("y", "x")):
        place = NamedSharding(grid, P(axis))

        def call(v: Any) -> Any:
            return v * v - v[0]

        members = {
            "in_shardings": jax.jit(call, in_shardings=place),
            "out_shardings": jax.jit(call, out_shardings=place),
            "both": jax.jit(call, in_shardings=place, out_shardings=place),
        }
        for name, f in members.items():
            for front, back in ((0, 0), (1, 1), (0, 1), (1, 0)) if axis == "x" else ((1, 0),):
                for named in (None, other):
                    options = {} if named is None else {"spmd_axis_name": named}
                    batched = jax.jit(jax.vmap(f, front, back, **options))
                    given = host if front == 0 else host.T
                    right = given * given - given[:, :1]
                    right = right if back == 0 else right.T
                    found = batched(x)
                    what = f"a batch from {front} to {back} named {named} of a jitted function with {name} over {axis}"
                    on_each_device(found, right, what)
                    if name != "in_shardings" and named:
                        spec = P(named, axis) if back == 0 else P(axis, named)
                        lies_with(found, right, NamedSharding(grid, spec), what)
        back = jax.jit(
            jax.vmap(jax.grad(lambda v, f=members["both"]: (f(v) * weights).sum()), spmd_axis_name=other)
        )
        right = 2 * host * weights
        right[:, 0] -= weights.sum()
        on_each_device(back(x), right, f"a batch named {other} of gradients of a jitted function over {axis}")
        _, tangent = jax.jit(
            lambda v, f=members["both"], o=other: jax.jvp(jax.vmap(f, spmd_axis_name=o), (v,), (v + 1,))
        )(x)
        right = 2 * host * (host + 1) - (host + 1)[:, :1]
        on_each_device(
            tangent, right, f"the tangent of a batch named {other} of a jitted function over {axis}"
        )


def _moves_with_a_source(line, grid):
    """Moves that say where the array comes from (`src`), to devices in other orders and meshes: slopes of first and
    second order come back there, through stages that are jitted by themselves."""
    n = 2 * line.size
    host, weights, step = numbers(n, n), mixed((n, n), 7, 2).astype(np.float32) - 2, numbers(n, n) + 3
    places = {
        "rows": NamedSharding(line, P("d")),
        "blocks": NamedSharding(grid, P("y", "x")),
        "rows of turned devices": NamedSharding(Mesh(line.devices[::-1], ("d",)), P("d")),
        "one device": jax.sharding.SingleDeviceSharding(line.devices.ravel()[-1]),
    }
    if not may_leave_out_devices():
        del places["one device"]
    square, times = jax.jit(lambda v: v * v), jax.jit(lambda v, w: v * w)
    for start, source in places.items():
        x, direction = jax.device_put(host, source), jax.device_put(step, source)
        for end, target in places.items():
            by = jax.device_put(weights, target)

            def stages(v: Any, source: Any = source, target: Any = target, by: Any = by) -> Any:
                return times(jax.device_put(square(v), target, src=source), by).sum()

            what = f"from {start} to {end}"
            found, slope = jax.value_and_grad(stages)(x)
            expect(
                np.asarray(found), (host * host * weights).sum(dtype=np.float32), f"a sum of stages {what}"
            )
            expect(found.devices(), set(target.device_set), f"the devices of a sum of stages {what}")
            lies_with(slope, 2 * host * weights, source, f"the slope of stages {what}")
            if start == "one device" or end == "rows of turned devices":
                _, second = jax.jvp(jax.grad(stages), (x,), (direction,))
                lies_with(second, 2 * step * weights, source, f"the second slope of stages {what}")


def _joined_uneven_parts(line, grid):
    """Parts of lengths that the devices do not divide, each constrained, joined in a program and constrained again."""
    n = line.size
    place = NamedSharding(line, P("d"))

    def cut(v: Any) -> Any:
        return lax.with_sharding_constraint(v, place)

    for first, second in ((2 * n + 1, 3 * n - 1), (n + 1, n), (3 * n, 1), (4 * n + 3, 2)):
        a, b = numbers(first, 2), numbers(second, 2)[::-1] - 50

        def joined(a: Any, b: Any) -> Any:
            a, b = cut(a * 2), cut(b)
            c = cut(jnp.concatenate([a, b, a[::-1]]))
            return (
                a,
                b,
                c,
                c.max(0),
                c.argmin(0),
                jnp.cumsum(c, 0),
                c[1:-1].T @ c[2:],
                jnp.pad(c, ((1, 2), (0, 0))),
            )

        c = np.concatenate([2 * a, b, 2 * a[::-1]])
        right = (
            2 * a, b, c, c.max(0), c.argmin(0).astype(np.int32), np.cumsum(c, 0), c[1:-1].T @ c[2:],
            np.pad(c, ((1, 2), (0, 0))),
        )  # fmt: skip
        for k, (found, answer) in enumerate(zip(jax.jit(joined)(a, b), right, strict=True)):
            on_each_device(found, answer, f"result {k} of parts of {first} and {second} rows")


RULES_OF_TESTED_ARRAYS: dict[str, Callable[..., None]] = {
    "constraints_over_abstract_meshes": _constraints_over_abstract_meshes,
    "constants_over_devices": _constants_over_devices,
    "devices_in_turn": _devices_in_turn,
    "shardings_for_some": _shardings_for_some,
    "batches_of_jitted": _batches_of_jitted,
    "moves_with_a_source": _moves_with_a_source,
    "joined_uneven_parts": _joined_uneven_parts,
}
