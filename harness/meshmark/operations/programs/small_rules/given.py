# SPDX-License-Identifier: Apache-2.0
"""Small rules of what is given beside a value: fill values and modes with a place, end points, axes of one device in a
spec, weak types and constraints, rows permuted apart, NumPy arrays that are donated."""

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
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect


def _modes_with_a_place(line, grid):
    """`at[i].get` with a place for its result keeps its mode and its fill value, for indices in range and out of it."""
    typed = explicit(line)
    n = line.size
    host = mixed((n, 4), 97, 7).astype(np.float32)
    chosen = np.resize(np.array([100, n, n + 3, -n - 1, 0, n - 1, -1, -n]), n)
    wrapped = np.where(chosen < 0, chosen + n, chosen)
    inside = ((wrapped >= 0) & (wrapped < n))[:, None]
    rows = host[np.clip(wrapped, 0, n - 1)]
    with jax.set_mesh(typed):
        table, ids = placed(typed, host), placed(typed, chosen, "d")
        modes: dict[str, tuple[dict[str, Any], np.ndarray]] = {
            "fill": ({"mode": "fill"}, np.where(inside, rows, np.nan)),
            "fill with 7": ({"mode": "fill", "fill_value": 7}, np.where(inside, rows, 7)),
            "clip": ({"mode": "clip"}, rows),
            "the usual mode": ({}, np.where(inside, rows, 0)),  # JAX promises nothing of indices out of range
        }
        for name, (options, right) in modes.items():
            for place, spec in (("the rows cut", P("d", None)), ("all whole", P(None, None))):
                given = ids if place == "the rows cut" else placed(typed, chosen)
                run = jax.jit(lambda t, i, o=options, s=spec: t.at[i].get(out_sharding=s, **o))
                found = run(table, given)
                seen = np.asarray(found) if options else np.where(inside, found, np.float32(0))
                expect(seen, right.astype(np.float32), f"rows by {name}, {place}")
                expect(found.sharding.spec, spec, f"the spec of rows by {name}, {place}")


def _ends_with_a_place(line, grid):
    """linspace, arange and their kin with a place for the result keep their other options."""
    n = line.size
    place = NamedSharding(line, P("d"))
    calls: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
        "linspace": (lambda: jnp.linspace(0, n - 1, n, device=place), np.linspace(0, n - 1, n)),
        "linspace without its end": (
            lambda: jnp.linspace(0, n, n, endpoint=False, device=place),
            np.linspace(0, n, n, endpoint=False),
        ),
        "linspace of integers": (
            lambda: jnp.linspace(0, 2 * n, n, endpoint=False, dtype=np.int32, device=place),
            np.linspace(0, 2 * n, n, endpoint=False, dtype=np.int32),
        ),
        "linspace of rows": (
            lambda: jnp.linspace(jnp.arange(3.0), jnp.arange(3.0) + n, n, endpoint=False, device=place),
            np.linspace(np.arange(3.0), np.arange(3.0) + n, n, endpoint=False),
        ),
        "arange": (
            lambda: jnp.arange(3, 3 + 2 * n, 2, device=place),
            np.arange(3, 3 + 2 * n, 2, dtype=np.int32),
        ),
        "arange downwards": (
            lambda: jnp.arange(n, 0, -1, dtype=np.float32, device=place),
            np.arange(n, 0, -1, dtype=np.float32),
        ),
        "eye": (lambda: jnp.eye(n, 5, k=1, device=place), np.eye(n, 5, k=1)),
        "full of a type": (
            lambda: jnp.full((n, 2), 3.7, dtype=np.int32, device=place),
            np.full((n, 2), 3, np.int32),
        ),
    }
    for name, (call, right) in calls.items():
        wide = right if right.dtype == np.int32 else right.astype(np.float32)
        for way, run in (("eager", call), ("compiled", jax.jit(call))):
            found = run()
            seen = np.asarray(found)
            if name.startswith("linspace"):  # its numbers are rounded
                near = seen.dtype == wide.dtype and np.allclose(seen, wide, 1e-6, 1e-6)
                expect(near, True, f"whether {name} with a place, {way}, is near: {seen.tolist()}")
            else:
                expect(seen, wide, f"{name} with a place, {way}")
            if way == "eager":  # in a program over automatic axes it is advice
                expect(found.sharding.is_equivalent_to(place, found.ndim), True, f"whether {name} lies there")


def _axes_of_one_device_in_specs(line, grid):
    """A spec keeps the axes of one device that it names, however the array comes to it."""
    n = line.size
    host = mixed((2 * n, 4), 97, 7).astype(np.float32)
    for shape, names in (((n, 1), ("x", "y")), ((1, n), ("y", "x")), ((1, n, 1), ("z", "x", "y"))):
        mesh = Mesh(line.devices.reshape(shape), names)
        for spec in (P("x", "y"), P(("y", "x"), None), P(("x", "y"), None), P(None, "y")):
            place = NamedSharding(mesh, spec)
            ways: dict[str, Callable[..., Any]] = {
                "device_put": lambda place=place: jax.device_put(host, place),
                "device_put of an array": lambda place=place: jax.device_put(jnp.asarray(host), place),
                "make_array_from_callback": lambda place=place: jax.make_array_from_callback(
                    host.shape, place, lambda index: host[index]
                ),
                "jit": lambda place=place: jax.jit(lambda v: v, out_shardings=place)(host),
            }
            for name, way in ways.items():
                found = way()
                what = f"an array by {name} over a mesh of {shape}"
                expect(found.sharding.spec, spec, f"the spec of {what}")
                expect(np.asarray(found), host, what)


def _weak_values_in_constraints(line, grid):
    """A value that takes the dtype of the other operand still does after it was constrained."""
    n = line.size
    x = placed(line, np.ones(n, jnp.bfloat16), "d")

    def scaled(v):
        weak = jnp.broadcast_to(jnp.asarray(2.0), (n,))
        return v * lax.with_sharding_constraint(weak, NamedSharding(line, P("d")))

    def whole(v):
        return v * lax.with_sharding_constraint(jnp.asarray(2.0), NamedSharding(line, P()))

    for name, f in (("a cut one", scaled), ("a number", whole)):
        found = jax.jit(f)(x)
        expect(found.dtype.name, "bfloat16", f"the dtype of a product by {name} that was constrained")
        expect(np.asarray(found, np.float32), np.full(n, 2, np.float32), f"a product by {name}")


def _rows_permuted_apart(line, grid):
    """random.permutation of cut rows: each row by itself, or all alike."""
    n = line.size
    host = np.tile(np.arange(32), (2 * n, 1))
    for spec in (("d",), (None, "d") if 32 % n == 0 else ()):
        x = placed(line, host, *spec)
        for apart in (True, False):
            run = jax.jit(lambda k, v, a=apart: jax.random.permutation(k, v, axis=1, independent=a))
            found = np.asarray(run(jax.random.key(3), x))
            what = f"rows over {spec}, permuted {'apart' if apart else 'alike'}"
            expect(np.sort(found, 1), host.astype(found.dtype), f"the elements of {what}")
            expect(
                len(np.unique(found, axis=0)), len(host) if apart else 1, f"the number of orders of {what}"
            )
            expect(bool((found[0] == host[0]).all()), False, f"whether {what} stay in order")


def _donated_numpy(line, grid):
    """A NumPy array that is given to a donated argument stays as it was, and so does what it is a view of."""
    n = line.size
    place = NamedSharding(line, P("d"))
    for given in (None, place):
        host = np.arange(4 * n, dtype=np.float32)
        view = host[n : 3 * n]
        options = {} if given is None else {"in_shardings": given, "out_shardings": given}
        run = jax.jit(lambda v: v + 1, donate_argnums=0, **options)
        for name, array in (("an array", host), ("a view", view)):
            before = array.copy()
            expect(np.asarray(run(array)), before + 1, f"a program that donates {name} of NumPy")
            expect(array, before, f"{name} of NumPy after it was donated")


def _callbacks_of_each_device(line, grid):
    """The result of a callback in a region belongs to the device that called it, with each way to batch it."""
    n = line.size
    host = mixed((2 * n, 3), 97, 7).astype(np.float32)
    block = jax.ShapeDtypeStruct((2, 3), np.float32)
    for method in ("sequential", "expand_dims", "broadcast_all"):

        def body(b, method=method):
            return jax.pure_callback(lambda v: np.asarray(v) * 2 + 1, block, b, vmap_method=method)

        found = mapped(body, line, P("d"), P("d"), check_vma=False)(host)
        expect(np.asarray(found), 2 * host + 1, f"a callback with vmap_method={method} in a region")

        def number(b, method=method):
            row = jax.ShapeDtypeStruct((), np.int32)
            seen = jax.pure_callback(lambda k: np.int32(10 * np.asarray(k)), row, lax.axis_index("d"))
            return b * 0 + seen

        found = mapped(number, line, P("d"), P("d"), check_vma=False)(host)
        right = np.repeat(10 * np.arange(n), 2)[:, None] + 0 * host
        expect(np.asarray(found), right.astype(np.float32), "a callback that is given the device's index")


def _hold_untiled(line: Any, axes: tuple[int, ...], exchanges: tuple[int, ...], last: int) -> None:
    """Gathers along some dimensions, exchanges to some, and a sum scattered along the last one, of blocks of shape
    (3, 4, devices)."""
    n = line.size
    blocks = mixed((n, 3, 4, n), 97, 7).astype(np.float32)
    calls: dict[str, tuple[Callable[..., Any], np.ndarray]] = {}
    for axis in axes:
        calls[f"all_gather along dimension {axis}"] = (
            lambda b, axis=axis: lax.all_gather(b[..., 0], "d", axis=axis),
            np.stack([np.stack([*blocks[..., 0]], axis)] * n),
        )
    for axis in exchanges:
        calls[f"all_to_all of dimension 2 to dimension {axis}"] = (
            lambda b, axis=axis: lax.all_to_all(b, "d", 2, axis),
            np.stack([np.stack([*blocks[..., k]], axis) for k in range(n)]),
        )
    calls[f"psum_scatter along dimension {last}"] = (
        lambda b: lax.psum_scatter(b, "d", scatter_dimension=last),
        np.moveaxis(blocks.sum(0), -1, 0),
    )
    for name, (call, right) in calls.items():
        run = mapped(lambda b, call=call: call(b[0])[None], line, P("d"), P("d"), check_vma=False)
        expect(np.asarray(run(placed(line, blocks, "d"))), right, f"untiled {name}")


def _untiled_from_the_end(line, grid):
    """Collectives that add or take a dimension, counted from the start and from the end: of the result where one is
    added, of the operand where one is taken."""
    _hold_untiled(line, (0, 1, 2, -1, -2, -3), (0, 1, 2), 2)


def _exchanges_from_the_end(line, grid):
    """The same for exchanges to a dimension that is counted from the end, and a sum scattered along one."""
    _hold_untiled(line, (), (-1, -2, -3), -1)


RULES_OF_WHAT_IS_GIVEN = {
    "untiled_from_the_end": _untiled_from_the_end,
    "exchanges_from_the_end": _exchanges_from_the_end,
    "modes_with_a_place": _modes_with_a_place,
    "ends_with_a_place": _ends_with_a_place,
    "axes_of_one_device_in_specs": _axes_of_one_device_in_specs,
    "weak_values_in_constraints": _weak_values_in_constraints,
    "rows_permuted_apart": _rows_permuted_apart,
    "donated_numpy": _donated_numpy,
    "callbacks_of_each_device": _callbacks_of_each_device,
}
