# SPDX-License-Identifier: Apache-2.0
"""Small rules of what lies outside of a program's values: callbacks that use JAX or raise, donated arrays and
derivatives, references of arrays without a fixed place, guards, memories, programs that are stored for other
devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback, multihost_utils, serialize_executable
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.callbacks import drop_errors_of_callbacks
from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import memory_kinds
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused


def _shape(array: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _results_of_eager_callbacks(line, grid):
    """The result of a callback outside of any program, of a cut or whole array, is an array like each other: it is
    added to, indexed, placed, and passed to a program."""
    host = mixed((2 * line.size, 6), 97, 7).astype(np.float32)
    right = 2 * host
    for spec in (P("d"), P()):
        x = jax.device_put(host, NamedSharding(line, spec))
        found = jax.pure_callback(lambda v: 2 * np.asarray(v), _shape(x), x)
        uses: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
            "read": (lambda v: v, right),
            "plus one": (lambda v: v + 1, right + 1),
            "indexed": (lambda v: v[1], right[1]),
            "in a program": (jax.jit(lambda v: v * 3), 3 * right),
            "placed": (lambda v: jax.device_put(v, NamedSharding(line, P("d"))), right),
            "beside its argument": (lambda v, x=x: v - x, host),
        }
        for name, (use, answer) in uses.items():
            expect(
                np.asarray(use(found)), answer, f"the result of a callback on an array over {spec}, {name}"
            )


def _jax_in_callbacks(line, grid):
    """A callback in an eager region may use JAX."""
    host = np.arange(2 * line.size, dtype=np.float32)
    seen: list[float] = []

    def note(block):
        seen.append(float(block[0]) + float(jnp.asarray(block)[1]))

    def body(block):
        jax.debug.callback(note, block)
        return 2 * block

    region = jax.shard_map(body, mesh=line, in_specs=P("d"), out_specs=P("d"))
    for way, run in (("compiled", jax.jit(region)), ("eager", region)):
        seen.clear()
        expect(np.asarray(run(placed(line, host, "d"))), 2 * host, f"an {way} region with a callback")
        jax.effects_barrier()
        sums = sorted(host.reshape(line.size, -1).sum(1).tolist())
        expect(sorted(seen), sums, f"what the callback of an {way} region computes with JAX")


def _errors_of_callbacks(line, grid):
    """An error that a callback raises on one device or on all reaches the caller, and the devices go on."""
    n = line.size
    x = placed(line, np.arange(2 * n, dtype=np.float32), "d")
    block = jax.ShapeDtypeStruct((2,), np.float32)

    def fails(which: int) -> Callable[..., Any]:
        def call(v, number):
            if int(number) == which:
                raise ValueError("told by the callback")
            return np.asarray(v)

        return call

    for which in (0, n - 1):
        regions = {
            "pure_callback": lambda v, w=which: jax.pure_callback(fails(w), block, v, lax.axis_index("d")),
            "io_callback": lambda v, w=which: io_callback(fails(w), block, v, lax.axis_index("d")),
        }
        for name, body in regions.items():
            what = f"an error of {name} on device {which}"
            try:
                jax.block_until_ready(mapped(body, line, P("d"), P("d"))(x))
                jax.effects_barrier()
            except Exception as error:
                wrong("told by the callback" not in str(error), f"{what} arrives as {error}"[:300])
            else:
                wrong(True, f"{what} is lost")
            drop_errors_of_callbacks()
    expect(np.asarray(jax.jit(lambda v: v + 1)(x)), np.asarray(x) + 1, "a program after errors of callbacks")


def _slopes_of_donating_calls(line, grid):
    """Derivatives outside of any program of a jitted function that donates what its slope needs."""
    host = mixed((2 * line.size,), 9, 7).astype(np.float32) + 1
    by = np.arange(2 * line.size, dtype=np.float32)
    product = jax.jit(lambda v, w: v * w, donate_argnums=0)
    for spec in (P("d"), P()):

        def put(v, spec=spec):
            return jax.device_put(v, NamedSharding(line, spec))

        ways: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
            "jvp": (
                lambda put=put: jax.jvp(product, (put(host), put(by)), (put(by), put(host)))[1],
                by**2 + host**2,
            ),
            "grad in a program": (
                lambda put=put: jax.jit(jax.grad(lambda w, v: product(v, w).sum()))(put(by), put(host)),
                host,
            ),
            "grad": (lambda put=put: jax.grad(lambda w, v: product(v, w).sum())(put(by), put(host)), host),
            "vjp": (lambda put=put: jax.vjp(product, put(host), put(by))[1](put(host))[1], host**2),
        }
        for name, (way, right) in ways.items():
            expect(np.asarray(way()), right, f"{name} of a function that donates, over {spec}")


def _donated_alike(line, grid):
    """Several donated arrays of one shape, which come back changed in their own order beside other results."""
    host = [np.arange(2 * line.size, dtype=np.float32) + 100 * k for k in range(3)]

    def step(a, b, c, by):
        return a + by, b + 2 * by, c + 3 * by, (a * by).sum()

    for donated in ((0,), (0, 1), (1, 2), (0, 1, 2)):
        for spec in (P("d"), P()):
            run = jax.jit(step, donate_argnums=donated)
            found = run(*(jax.device_put(h.copy(), NamedSharding(line, spec)) for h in host), 2.0)
            answers = [host[0] + 2, host[1] + 4, host[2] + 6, np.float32((2 * host[0]).sum())]
            for k, (one, right) in enumerate(zip(found, answers, strict=True)):
                expect(np.asarray(one), right, f"result {k} of a step that donates {donated} over {spec}")
    state = {"w": host[0], "m": host[1], "v": host[2]}
    update = jax.jit(
        lambda s, by: ({"w": s["w"] - s["m"], "m": by * s["m"], "v": s["v"] + by}, s["w"].sum()),
        donate_argnums=0,
    )
    found, loss = update({k: placed(line, v, "d") for k, v in state.items()}, 3.0)
    expect(np.asarray(found["w"]), host[0] - host[1], "the weights of a donated state")
    expect(np.asarray(found["m"]), 3 * host[1], "the first moments of a donated state")
    expect(np.asarray(found["v"]), host[2] + 3, "the second moments of a donated state")
    expect(np.asarray(loss), np.float32(host[0].sum()), "the loss beside a donated state")


def _places_of_references(line, grid):
    """A reference of an array that may lie anywhere may lie anywhere too."""
    n = line.size
    host = np.arange(n, dtype=np.float32)
    cut = placed(line, host, "d")
    expect(np.asarray(jnp.ones(n) + cut), host + 1, "an array that may lie anywhere plus a cut one")
    expect(
        np.asarray(jax.new_ref(jnp.ones(n))[...] + cut),
        host + 1,
        "such an array of a reference plus a cut one",
    )


def _through_a_reference(n: int) -> Callable[[Any], Any]:
    """A weighted sum of a reference to which a function adds all rows and then all rows but the first."""

    def f(v):
        ref = jax.new_ref(1 * v)
        ref[...] += v
        ref[1:n] += v[1:]
        return (ref[...] * jnp.arange(1.0, n + 1)).sum()

    return f


def _slope_through_a_reference(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32) * np.array([2] + [3] * (n - 1), np.float32)


def _slopes_of_references(line, grid):
    """Derivatives through a cut reference that is added to, in whole and in part: compiled, and a tangent."""
    n = 2 * line.size
    f, right = _through_a_reference(n), _slope_through_a_reference(n)
    x = placed(line, np.arange(n, dtype=np.float32), "d")
    expect(np.asarray(jax.jit(jax.grad(f))(x)), right, "the slope through a reference, compiled")
    expect(np.asarray(jax.grad(jax.jit(f))(x)), right, "the slope of a compiled function through a reference")
    expect(np.asarray(jax.jvp(f, (x,), (x,))[1]), (right * np.arange(n)).sum(dtype=np.float32), "its tangent")


def _eager_slopes_of_references(line, grid):
    """The same slope outside of any program."""
    n = 2 * line.size
    x = placed(line, np.arange(n, dtype=np.float32), "d")
    found = jax.grad(_through_a_reference(n))(x)
    expect(np.asarray(found), _slope_through_a_reference(n), "the slope through a reference, eager")


def _guards_of_reshards(line, grid):
    """A guard against transfers that nobody asks for lets those pass that are asked for."""
    host = np.arange(2 * line.size, dtype=np.float32)
    x = placed(line, host, "d")
    targets = {
        "to every device": NamedSharding(line, P()),
        "to one device": line.devices.flat[-1],
        "to two axes": NamedSharding(grid, P(("y", "x"))),
    }
    for name, target in targets.items():
        with jax.transfer_guard("disallow"):
            moved = jax.device_put(x, target)
        expect(np.asarray(moved), host, f"an array that is put {name} under a guard")


def _stored_for_other_devices(line, grid):
    """A compiled program over devices in another order, and over some of them, is stored and loaded for them."""
    devices = line.devices.ravel()
    orders = {"reversed": devices[::-1], "turned": np.roll(devices, 3)}
    for name, order in orders.items():
        mesh = Mesh(order, ("d",))
        host = np.arange(2 * order.size, dtype=np.float32)
        x = placed(mesh, host, "d")
        compiled = jax.jit(lambda v: (2 * v, v.sum())).lower(x).compile()
        again = serialize_executable.deserialize_and_load(
            *serialize_executable.serialize(compiled), execution_devices=list(order)
        )
        found, total = again(x)
        expect(np.asarray(found), 2 * host, f"a stored program over devices that are {name}")
        expect(np.asarray(total), host.sum(), f"the sum of a stored program over devices that are {name}")
        expect(
            found.sharding.is_equivalent_to(x.sharding, 1),
            True,
            f"whether its result lies over devices {name}",
        )


def _read_before_it_was_donated(line, grid):
    """An array that was read, and then donated, can't be read any more: not what the host has kept of it either."""
    host = np.arange(2 * line.size, dtype=np.float32)
    reads: dict[str, Callable[[Any], Any]] = {
        "asarray": np.asarray,
        "device_get": jax.device_get,
        "an element": lambda v: v[0] + 0,
        "a list": lambda v: v.tolist(),
    }
    step = jax.jit(lambda v: v + 1, donate_argnums=0)
    for name, read in reads.items():
        x = placed(line, host, "d")
        read(x)
        expect(np.asarray(step(x)), host + 1, "a step that donates")
        if x.is_deleted():
            what = f"{name} of a donated array that was read before"
            refused(what, "(?i)deleted|donated", lambda read=read, x=x: read(x))
        else:  # JAX 0.11 copies what NumPy has seen, and donates the copy
            expect(np.asarray(x), host, f"a donated array that {name} has read, and that is not deleted")


def _scalars_in_host_memory(line, grid):
    """A tree of arrays and numbers that is put into the memory of the host lies there whole, and comes back."""
    kinds = memory_kinds(line)
    host = np.arange(2 * line.size, dtype=np.float32)
    state = {"m": host, "count": np.int32(3), "rate": np.float32(0.5)}
    usual = line.devices.flat[0].default_memory().kind
    for kind in sorted(kinds & {"pinned_host", usual}):
        places = {
            name: NamedSharding(line, P("d") if value.ndim else P(), memory_kind=kind)
            for name, value in state.items()
        }
        one = NamedSharding(line, P(), memory_kind=kind)
        for way, moved in (
            ("places", jax.device_put(state, places)),
            ("a place", jax.device_put(state, one)),
        ):
            for name, value in moved.items():
                what = f"{name} of a tree that was put into {kind} by {way}"
                expect(value.sharding.memory_kind, kind, f"the memory of {what}")
                expect(np.asarray(value), np.asarray(state[name]), what)
                back = jax.device_put(value, NamedSharding(line, P(), memory_kind=usual))
                expect(back.sharding.memory_kind, usual, f"the memory of {what}, and back")


def _gathered_by_processes(line, grid):
    """process_allgather of arrays over permuted devices, of whole arrays and of trees, has rows in their order."""
    devices = line.devices.ravel()
    host = mixed((2 * devices.size, 3), 97, 7).astype(np.float32)
    for order in (devices, devices[::-1], np.roll(devices, 3)):
        mesh = Mesh(order, ("d",))
        for spec in (("d",), ()):
            x = placed(mesh, host, *spec)
            found = multihost_utils.process_allgather({"a": x, "b": [2 * x]}, tiled=True)
            expect(np.asarray(found["a"]), host, f"a gather over processes of an array over {spec}")
            expect(np.asarray(found["b"][0]), 2 * host, f"a gather over processes of a tree over {spec}")


RULES_FROM_OUTSIDE = {
    "results_of_eager_callbacks": _results_of_eager_callbacks,
    "jax_in_callbacks": _jax_in_callbacks,
    "errors_of_callbacks": _errors_of_callbacks,
    "slopes_of_donating_calls": _slopes_of_donating_calls,
    "donated_alike": _donated_alike,
    "places_of_references": _places_of_references,
    "slopes_of_references": _slopes_of_references,
    "eager_slopes_of_references": _eager_slopes_of_references,
    "guards_of_reshards": _guards_of_reshards,
    "stored_for_other_devices": _stored_for_other_devices,
    "read_before_it_was_donated": _read_before_it_was_donated,
    "scalars_in_host_memory": _scalars_in_host_memory,
    "gathered_by_processes": _gathered_by_processes,
}
