# SPDX-License-Identifier: Apache-2.0
"""Executables that are stored and loaded for meshes in another order and for parts of the devices, arrays in another
memory, and how many programs a loop compiles that feeds its results back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import at, memory_kinds, run_jitted
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.comparing import may_leave_out_devices


def _need_part_of_the_devices() -> None:
    if not may_leave_out_devices():
        raise Missing("a program may not leave out devices here")


def loaded(devices: Any, named: bool, region: bool = False) -> None:
    """Store, load and call a program over a line of these devices. named: whether the loader gets them."""
    from jax.experimental import serialize_executable

    m = Mesh(devices, ("d",))
    x = np.arange(4.0 * len(devices), dtype=np.float32)
    given = jax.device_put(x, at(m, "d"))
    program, right = (lambda v: v + v.sum()), x + x.sum()
    if region:
        program = jax.shard_map(lambda b: b + lax.axis_index("d"), mesh=m, in_specs=P("d"), out_specs=P("d"))
        right = x + np.arange(len(x)) // 4
    compiled = jax.jit(program).lower(given).compile()
    options = {"execution_devices": list(devices)} if named else {}
    again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled), **options)
    found = again(given)
    wrong(not np.array_equal(found, right), f"a loaded program gives {found} instead of {right}")
    for shard in found.addressable_shards:
        wrong(
            not np.array_equal(shard.data, right[shard.index]),
            f"a loaded program gives {shard.data} on {shard.device} instead of {right[shard.index]}",
        )


def _with_devices(mesh, a, x):
    """The loader gets the devices: in order, reversed, turned, the first and the last half, and one."""
    devices = mesh.devices.ravel()
    half = max(1, mesh.size // 2)
    parts = [devices, devices[::-1], np.roll(devices, 1)]
    if may_leave_out_devices():
        parts += [devices[:half], devices[-half:], devices[-1:]]
    for part in parts:
        loaded(part, True)
        loaded(part, True, region=True)
    return run_jitted(mesh, a, x)


def _reversed(mesh, a, x):
    """All devices in the other order, which the loader does not get."""
    loaded(np.array(jax.devices())[::-1], False)
    return run_jitted(mesh, a, x)


def _half(mesh, a, x):
    """Half of the devices, which the loader does not get."""
    _need_part_of_the_devices()
    loaded(np.array(jax.devices())[: max(1, jax.device_count() // 2)], False)
    return run_jitted(mesh, a, x)


def _one_device(mesh, a, x):
    """The last device alone, which the loader does not get."""
    _need_part_of_the_devices()
    from jax.experimental import serialize_executable

    given = jax.device_put(np.arange(4.0, dtype=np.float32), jax.devices()[-1])
    compiled = jax.jit(lambda v: v + 1).lower(given).compile()
    found = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))(given)
    wrong(not np.array_equal(found, np.arange(4) + 1), f"a loaded program of one device gives {found}")
    return run_jitted(mesh, a, x)


def in_host_memory(mesh: Any, a: str) -> list[tuple[str, Any, np.ndarray]]:
    """Arrays in pinned_host memory, sharded and on one device, and their values. Missing without such memory."""
    memory_kinds(mesh)
    host = np.arange(8.0 * mesh.size, dtype=np.float32).reshape(4 * mesh.size, 2)
    one = SingleDeviceSharding(mesh.devices.flat[-1], memory_kind="pinned_host")
    over_it = NamedSharding(mesh, P(a), memory_kind="pinned_host")
    return [
        (name, jax.device_put(host, s), host) for name, s in (("sharded", over_it), ("on one device", one))
    ]


def _host_array(mesh, a, x):
    """What an array in pinned_host memory can do: conversions, moves, and sums under jit."""
    for name, array, host in in_host_memory(mesh, a):
        wrong(array.sharding.memory_kind != "pinned_host", f"an array {name} is not in pinned_host memory")
        there = array.sharding.with_memory_kind("device")
        for what, found, right in (
            ("the array", array, host),
            ("a move to the device", jax.device_put(array, there), host),
            ("a copy", jnp.copy(array), host),
            (
                "a jitted double",
                jax.jit(lambda v, s=there: 2 * jax.device_put(v, s))(array),
                2 * host,
            ),
            ("a sum with itself", array + array, 2 * host),
            ("a reshape", array.reshape(-1), host.reshape(-1)),
            ("a transpose", array.T, host.T),
        ):
            wrong(not np.array_equal(found, right), f"{what} of an array in host memory, {name}, is {found}")
    return run_jitted(mesh, a, x)


def _host_index(mesh, a, x):
    """Rows of an array in pinned_host memory."""
    for name, array, host in in_host_memory(mesh, a):
        for index in (0, -1, slice(2, 4)):
            found = array[index]
            wrong(
                not np.array_equal(found, host[index]),
                f"[{index}] of an array in host memory, {name}, is {found}",
            )
    return run_jitted(mesh, a, x)


def fed_back(name: str, step: Callable[[Any], Any], first: Any) -> None:
    """RuntimeError if a jitted function of its own results is traced again, though no argument has another type."""
    traces = []

    def counted(state):
        traces.append(jax.typeof(jax.tree.leaves(state)[0]))
        return step(state)

    run, state = jax.jit(counted), first
    for _ in range(4):
        state = run(state)
    wrong(len(traces) > 1, f"a loop that feeds {name} back traces its function {len(traces)} times")


def _fed_back(mesh, a, x):
    """Arrays, trees, counters and keys that are fed back."""
    host = np.ones((2 * mesh.size, 4), np.float32)
    for spec in (P(a), P(None), P()):
        place = NamedSharding(mesh, spec)
        given = jax.device_put(host[:, :1] if len(spec) else host, place)
        fed_back(f"an array over {spec}", lambda v: 2 * v, given)
        fed_back(f"a tree over {spec}", lambda t: {"a": t["a"] + 1, "b": t["a"]}, {"a": given, "b": given})
    fed_back("a number", lambda v: v + 1, jax.device_put(np.float32(0), at(mesh)))
    key = jax.device_put(jax.random.key(0), at(mesh))
    fed_back("a key", lambda k: jax.random.fold_in(k, 1), key)
    fed_back(
        "keys", lambda k: jax.vmap(lambda v: jax.random.split(v)[0])(k), jax.random.split(key, 2 * mesh.size)
    )
    return run_jitted(mesh, a, x)


ELSEWHERE: dict[str, Callable[..., Any]] = {
    "stored_with_devices": _with_devices,
    "stored_reversed": _reversed,
    "stored_half": _half,
    "stored_one": _one_device,
    "host_array": _host_array,
    "host_index": _host_index,
    "fed_back": _fed_back,
}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""
