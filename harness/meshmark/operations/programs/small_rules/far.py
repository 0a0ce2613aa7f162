# SPDX-License-Identifier: Apache-2.0
"""Small rules of arrays that move far, and of slopes at numbers that lie far out: between memories, meshes and orders
of devices; at large and small numbers, of equal exponents, and of activations in float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import memory_kinds
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect


def _places(line: Any) -> dict[str, Any]:
    """Shardings of a square over the line, in memory of the device, and over parts of its devices."""
    devices = line.devices.ravel()
    half = Mesh(devices[: max(devices.size // 2, 1)], ("d",))
    return {
        "rows": NamedSharding(line, P("d")),
        "columns": NamedSharding(line, P(None, "d")),
        "whole": NamedSharding(line, P()),
        "one device": SingleDeviceSharding(devices[-1]),
        "rows, turned": NamedSharding(Mesh(devices[::-1], ("d",)), P("d")),
        **({"half": NamedSharding(half, P("d"))} if devices.size > 3 else {}),
    }


def _moved_slopes(line, grid):
    """The slope of an array that is moved lies where the array came from, and its numbers are right."""
    n = 2 * line.size
    host = mixed((n, n), 23, 5).astype(np.float32)
    weights = mixed((n, n), 7, 2).astype(np.float32)
    places = _places(line)
    for start, source in places.items():
        x = jax.device_put(host, source)
        for end, target in places.items():
            there = jax.device_put(weights, target)
            found, back = jax.vjp(lambda v, t=target, w=there: jax.device_put(v, t) * w, x)
            (slope,) = back(jnp.ones_like(found))
            what = f"an array that moved from {start} to {end}"
            expect(np.asarray(found), host * weights, what)
            expect(np.asarray(slope), weights, f"the slope of {what}")
            expect(slope.sharding.is_equivalent_to(source, 2), True, f"whether the slope of {what} came back")


def _hold_moves(line: Any, starts: dict[str, Any], ends: dict[str, Any]) -> None:
    """Moves from each place to each other one: numbers, memory and place."""
    n = 2 * line.size
    host = mixed((n, n), 23, 5).astype(np.float32)
    for start, source in starts.items():
        x = jax.device_put(host, source)
        for end, target in ends.items():
            found = jax.device_put(x, target)
            what = f"an array that moved from {start} to {end}"
            expect(np.asarray(found), host, what)
            expect(found.sharding.memory_kind, target.memory_kind, f"the memory of {what}")
            expect(found.sharding.is_equivalent_to(target, 2), True, f"whether {what} lies there")
            for shard in found.addressable_shards:
                expect(np.asarray(shard.data), host[shard.index], f"a part of {what}")


def _in_host_memory(places: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}, on the host": place.with_memory_kind("pinned_host") for name, place in places.items()}


def _moves_between_memories(line, grid):
    """Arrays that move between memories and places, over the devices in one order."""
    memory_kinds(line)
    places = {name: place for name, place in _places(line).items() if name != "rows, turned"}
    every = places | _in_host_memory(places)
    cut = {name: place for name, place in every.items() if not name.startswith("whole")}
    many = {name: place for name, place in every.items() if not name.startswith("one device")}
    _hold_moves(line, cut, every)
    _hold_moves(line, every, many)


def _whole_arrays_to_other_memories(line, grid):
    """An array that lies whole on each device, moved to another memory of one of them."""
    memory_kinds(line)
    places = _places(line)
    whole, one = ({name: places[name]} for name in ("whole", "one device"))
    _hold_moves(line, whole, _in_host_memory(one))
    _hold_moves(line, _in_host_memory(whole), one)


def _moves_between_orders_and_memories(line, grid):
    """The same between memories where the devices come in another order."""
    memory_kinds(line)
    places = _places(line)
    ordered, turned = ({name: places[name]} for name in ("rows", "rows, turned"))
    _hold_moves(line, _in_host_memory(ordered), turned)
    _hold_moves(line, ordered, _in_host_memory(turned))
    _hold_moves(line, _in_host_memory(ordered), _in_host_memory(turned))


FAR = np.array([1e-30, 1e-20, 1e-10, 1e10, 1e18, 1e20, 1e25, 1e37])


def _slopes_of_far_numbers(line, grid):
    """Slopes of functions at very small and very large numbers of float32: no square of them may overflow."""
    host = np.tile(np.concatenate([FAR, -FAR]), line.size).astype(np.float32)
    x = placed(line, host, "d")
    exact = host.astype(np.float64)
    size, sign = np.abs(exact), np.sign(exact)
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "arctan": (jnp.arctan, 1 / (1 + exact * exact)),
        "arctan2": (lambda v: jnp.arctan2(v, 1.0), 1 / (1 + exact * exact)),
        "log1p": (lambda v: jnp.log1p(jnp.abs(v)), sign / (1 + size)),
        "log": (lambda v: jnp.log(jnp.abs(v)), 1 / exact),
        "sqrt": (lambda v: jnp.sqrt(jnp.abs(v)), sign * 0.5 / np.sqrt(size)),
        "cbrt": (jnp.cbrt, size ** (-2 / 3) / 3),
        "tanh": (jnp.tanh, 1 / np.cosh(np.clip(exact, -300, 300)) ** 2),
        "softplus": (jax.nn.softplus, 1 / (1 + np.exp(np.clip(-exact, -700, 700)))),
        "log_sigmoid": (jax.nn.log_sigmoid, 1 / (1 + np.exp(np.clip(exact, -700, 700)))),
        "logsumexp": (lambda v: jax.nn.logsumexp(jnp.stack([v, v]), 0), np.ones_like(exact)),
        # Older releases break these, so they come last.
        "arcsinh": (jnp.arcsinh, 1 / np.hypot(exact, 1)),
        "arccosh": (lambda v: jnp.arccosh(jnp.abs(v) + 2), sign / np.sqrt(size + 1) / np.sqrt(size + 3)),
        "hypot": (lambda v: jnp.hypot(v, v), sign * np.sqrt(2)),
    }
    for name, (call, right) in calls.items():
        found = np.asarray(jax.jit(jax.grad(lambda v, call=call: call(v).sum()))(x)).astype(np.float64)
        # A few roundings cost less than 1e-4. An overflow costs everything, and subnormals may be flushed.
        near = np.isclose(found, right, rtol=1e-4, atol=2 * np.finfo(np.float32).tiny)
        known = near | (np.abs(right) > np.finfo(np.float32).max)
        first = int(np.argmin(known))
        what = f"the slope of {name} at {host[first]:g} is {found[first]:g} instead of {right[first]:g}"
        wrong(not known.all(), what)


def _slopes_of_equal_exponents(line, grid):
    """The slopes of logaddexp by two equal numbers: a half each, however large they are."""
    near = ((np.float32, (1.0, 100.0, 1e4)), (jnp.bfloat16, (1.0, 16.0)), (np.float16, (1.0, 16.0, 256.0)))
    far = ((np.float32, (1e8, -1e8, 1e30)), (jnp.bfloat16, (256.0, -1000.0)), (np.float16, (2048.0, -4096.0)))
    for numbers in (
        near,
        far,
    ):  # the far ones last, since JAX breaks them: the near ones are judged all the same
        for name, call in (("logaddexp2", jnp.logaddexp2), ("logaddexp", jnp.logaddexp)):
            for dtype, values in numbers:
                x = placed(line, np.tile(np.array(values), line.size).astype(dtype), "d")
                both = jax.jit(jax.grad(lambda a, b, call=call: call(a, b).astype(np.float32).sum(), (0, 1)))(
                    x, x
                )
                for found in both:
                    seen = np.asarray(found).astype(np.float32)
                    what = f"the slope of {name} of equal {np.dtype(dtype).name} {values} is"
                    wrong(not (np.abs(seen - 0.5) < 0.25).all(), f"{what} {seen[: len(values)].tolist()}")


def _slopes_of_far_activations(line, grid):
    """The slopes of activations far from zero in float16 and bfloat16: one or zero, and no NaN."""
    calls: dict[str, Callable[[Any], Any]] = {
        "gelu, exact": lambda v: jax.nn.gelu(v, approximate=False),
        "silu": jax.nn.silu,
        "softplus": jax.nn.softplus,
        "relu": jax.nn.relu,
        "elu": jax.nn.elu,
        "mish": jax.nn.mish,
        "gelu": jax.nn.gelu,  # the last one, since JAX breaks it: the others are judged all the same
    }
    for name, call in calls.items():
        for dtype in (jnp.bfloat16, np.float16):
            host = np.tile(np.array([50.0, 200.0, 300.0, 1000.0, -50.0, -300.0, -1000.0]), line.size).astype(
                dtype
            )
            slope = jax.jit(jax.grad(lambda v, call=call: call(v).astype(np.float32).sum()))
            found = np.asarray(slope(placed(line, host, "d"))).astype(np.float32)
            right = (host > 0).astype(np.float32)  # what is left of the exponential at -50 is less than 1e-19
            what = (
                f"the slope of {name} at {np.dtype(dtype).name} {host[:7].tolist()} is {found[:7].tolist()}"
            )
            wrong(not (np.abs(found - right) < 1e-3).all(), what)


RULES_OF_WHAT_IS_FAR: dict[str, Callable[..., None]] = {
    "moved_slopes": _moved_slopes,
    "moves_between_memories": _moves_between_memories,
    "whole_arrays_to_other_memories": _whole_arrays_to_other_memories,
    "moves_between_orders_and_memories": _moves_between_orders_and_memories,
    "slopes_of_far_numbers": _slopes_of_far_numbers,
    "slopes_of_equal_exponents": _slopes_of_equal_exponents,
    "slopes_of_far_activations": _slopes_of_far_activations,
}
