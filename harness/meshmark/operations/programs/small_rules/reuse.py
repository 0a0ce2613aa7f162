# SPDX-License-Identifier: Apache-2.0
"""Small rules of one thing that is used again: a function under two jits, arguments beside donated ones, the rows of an
array, contexts after an error, copies, arrays like another, and one spec over other devices."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect


def _jitted_twice(line, grid):
    """One function under several jits, called in turn and inside of another jit: each keeps its own options."""
    n = line.size
    host = mixed((n, n), 97, 7).astype(np.float32)
    places = [NamedSharding(line, spec) for spec in (P("d"), P(None, "d"), P())]

    def twice(v: Any) -> Any:
        return v * 2

    each = [jax.jit(twice, out_shardings=place) for place in places]

    @jax.jit
    def together(a: Any, b: Any, c: Any) -> Any:
        return [run(v) for run, v in zip(each, (a, b, c), strict=True)]

    for found, place in zip(together(host, host + 1, host + 2), places, strict=True):
        expect(
            found.sharding.is_equivalent_to(place, 2),
            True,
            f"whether an inner jit put its result to {place.spec}",
        )
    for k, found in enumerate(together(host, host + 1, host + 2)):
        expect(np.asarray(found), 2 * (host + k), "the result of an inner jit")
    for _ in range(2):
        for run, place in zip(each, places, strict=True):
            found = run(host)
            expect(
                found.sharding.is_equivalent_to(place, 2),
                True,
                f"whether a jit put its result to {place.spec}",
            )

    def following(v: Any, k: int = 1) -> Any:
        return v + k

    there = places[0]
    keeps, gives = jax.jit(following), jax.jit(following, donate_argnums=0)
    for order in ((gives, gives, keeps), (keeps, gives, keeps, keeps, gives)):
        for run in order:
            x = jax.device_put(host, there)
            expect(np.asarray(run(x)), host + 1, "the result of a function that is jitted twice")
            expect(x.is_deleted(), run is gives, "whether its argument is gone")
    fixed = jax.jit(following, static_argnums=1)
    for k in (1, 2.5, 1):
        expect(np.asarray(fixed(host, k)), host + np.float32(k), f"a function with the fixed argument {k}")
        expect(np.asarray(keeps(host, k)), host + np.float32(k), f"the same function with the argument {k}")


def _donated_beside_unused(line, grid):
    """A donated argument is gone and the others stay, also where earlier ones are not used, and with keywords."""
    n = line.size
    host = np.arange(2 * n, dtype=np.float32)
    there = NamedSharding(line, P("d"))

    def last_two(unused: Any, a: Any, b: Any) -> Any:
        return a + b

    def last(unused: Any, other: Any, a: Any) -> Any:
        return a * 2

    def by_name(*, a: Any, unused: Any, b: Any) -> Any:
        return a - 2 * b

    for function, right, places in (
        (last_two, 2 * host, (0, 1, 2)),
        (last, 2 * host, (2,)),
    ):
        for donated in places:
            for keep in (False, True):
                given = [jax.device_put(host, there) for _ in range(3)]
                found = jax.jit(function, donate_argnums=donated, keep_unused=keep)(*given)
                what = f"{function.__name__} with argument {donated} donated, keep_unused={keep}"
                expect(np.asarray(found), right, what)
                used = donated in {last_two: (1, 2), last: (2,)}[function]
                for place, array in enumerate(given):
                    if place != donated:
                        expect(array.is_deleted(), False, f"whether argument {place} of {what} is gone")
                    elif used:
                        expect(array.is_deleted(), True, f"whether argument {place} of {what} is gone")
    given = {name: jax.device_put(host, there) for name in ("a", "unused", "b")}
    found = jax.jit(by_name, donate_argnames="b")(**given)
    expect(np.asarray(found), -host, "a function with an argument donated by its name")
    gone = {name: array.is_deleted() for name, array in given.items()}
    expect(gone, {"a": False, "unused": False, "b": True}, "which arguments are gone")


def _elements_of_long_arrays(line, grid):
    """Iterating over arrays of 1 to 201 rows, whole and cut: as many rows as there are, each with its numbers."""
    n = line.size
    for length in (1, 2, 100, 101, 102, 201):
        host = np.arange(2 * length, dtype=np.float32).reshape(length, 2)
        arrays = {"whole": placed(line, host), "on one device": jnp.asarray(host)}
        if length % n == 0:
            arrays["cut"] = placed(line, host, "d")
        if n <= 2:
            arrays["cut along the rows"] = placed(line, host, None, "d")
        for way, x in arrays.items():
            rows = [np.asarray(row) for row in x]
            expect(len(rows), length, f"the number of rows of an array of {length}, {way}")
            expect(np.stack(rows), host, f"the rows of an array of {length}, {way}")
    host = np.arange(101 * n, dtype=np.int32)
    expect(
        [int(v) for v in placed(line, host, "d")], host.tolist(), f"the elements of an array of {host.size}"
    )


def _contexts_after_errors(line, grid):
    """After an error inside of it a context is left: the mesh, and settings for the thread."""

    class Stop(Exception):
        pass

    contexts: dict[str, Callable[[], Any]] = {
        "set_mesh": lambda: jax.set_mesh(line),
        "use_abstract_mesh": lambda: jax.sharding.use_abstract_mesh(line.abstract_mesh),
        "set_mesh over Explicit axes": lambda: jax.set_mesh(explicit(grid)),
        "a mesh as a context": lambda: line,
        "enable_x64": lambda: jax.enable_x64(True),
        "default_matmul_precision": lambda: jax.default_matmul_precision("float32"),
        "debug_nans": lambda: jax.debug_nans(True),
        "disable_jit": lambda: jax.disable_jit(),
        "numpy_dtype_promotion": lambda: jax.numpy_dtype_promotion("strict"),
        "checking_leaks": lambda: jax.checking_leaks(),
    }

    def state() -> dict[str, Any]:
        names = (
            "enable_x64",
            "default_matmul_precision",
            "debug_nans",
            "disable_jit",
            "numpy_dtype_promotion",
        )
        settings = {name: getattr(jax.config, f"jax_{name}") for name in (*names, "check_tracer_leaks")}
        return {"mesh": jax.sharding.get_abstract_mesh()} | settings

    with ThreadPoolExecutor(1) as thread:
        old = thread.submit(state).result()

    def state_after(enter: Callable[[], Any], deep: bool) -> tuple[dict[str, Any], str]:
        """The settings of this thread and the dtype of a result, after an error inside of a context."""
        try:
            with enter():
                if deep:
                    with jax.set_mesh(grid):
                        raise Stop
                raise Stop
        except Stop:
            return state(), jax.jit(lambda v: v + 1)(np.float32(1)).dtype.name

    for name, enter in contexts.items():
        for deep in (False, True):
            # What is left behind ends with its thread.
            with ThreadPoolExecutor(1) as thread:
                found, dtype = thread.submit(state_after, enter, deep).result()
            what = f"an error inside of {name}{' and a mesh' if deep else ''}"
            expect(found, old, f"the state after {what}")
            expect(dtype, "float32", f"a dtype after {what}")


def _copies_on_request(line, grid):
    """device_put to the place where an array lies: a copy of its own with may_alias=False, and the array is kept."""
    n = line.size
    host = np.arange(2 * n, dtype=np.float32)
    for spec in (P("d"), P()):
        there = NamedSharding(line, spec)
        x = jax.device_put(host, there)
        apart = jax.device_put(x, there, may_alias=False)
        again = jax.device_put(x, there, donate=False, may_alias=True)
        for name, found in (("a copy", apart), ("an alias", again)):
            expect(np.asarray(found), host, f"{name} of an array over {spec}")
            expect(found.sharding.spec, spec, f"the spec of {name}")
        pairs = zip(x.addressable_shards, apart.addressable_shards, strict=True)
        same = [a.data.unsafe_buffer_pointer() == b.data.unsafe_buffer_pointer() for a, b in pairs]
        expect(any(same), False, f"whether a copy over {spec} shares memory")
        jax.jit(lambda v: v + 1, donate_argnums=0)(apart)
        expect(np.asarray(x), host, f"an array over {spec} whose copy was donated")


def _arrays_over_other_devices(line, grid):
    """The same spec over other devices, or over them in another order, is another place: arrays are moved there."""
    n = line.size
    devices = line.devices.ravel()
    if n == 1 or n % 2:
        return
    half = n // 2
    meshes = {
        "the first half": Mesh(devices[:half], ("d",)),
        "the second half": Mesh(devices[half:], ("d",)),
        "the first half, turned": Mesh(devices[:half][::-1], ("d",)),
        "every other": Mesh(devices[::2], ("d",)),
    }
    host = np.arange(2 * half, dtype=np.float32)
    for name, mesh in meshes.items():
        x = placed(mesh, host, "d")
        for other_name, other in meshes.items():
            place = NamedSharding(other, P("d"))
            alike = half == 1 and set(mesh.devices.flat) == set(other.devices.flat)
            same = name == other_name or alike
            what = f"{name} and {other_name}"
            expect(x.sharding.is_equivalent_to(place, 1), same, f"whether {what} are one place")
            moved = jax.device_put(x, place)
            expect(np.asarray(moved), host, f"an array from {name} to {other_name}")
            found = {s.device.id: np.asarray(s.data).tolist() for s in moved.addressable_shards}
            right = {d.id: host[2 * k : 2 * k + 2].tolist() for k, d in enumerate(other.devices.flat)}
            expect(found, right, f"the parts of an array from {name} to {other_name}")
    if jax.process_count() == 1:
        for order in (list(devices[::-1]), [*devices[half:], *devices[:half]]):
            rows = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
            found = jax.pmap(lambda v: v + 1, devices=order)(rows)
            parts = {s.device.id: np.asarray(s.data).ravel().tolist() for s in found.addressable_shards}
            right = {device.id: (row + 1).tolist() for device, row in zip(order, rows, strict=True)}
            expect(parts, right, "the parts of a pmap over devices in another order")


def _arrays_like(line, grid):
    """zeros_like and its kin of a cut array, with a dtype or a shape of their own: they lie as the array does."""
    n = grid.size
    host = mixed((2 * n, 2 * n), 97, 7).astype(np.float32)
    for spec in (P("x", "y"), P(None, "x"), P(("y", "x"), None), P()):
        there = NamedSharding(grid, spec)
        x = jax.device_put(host, there)
        for dtype in (None, np.int32, jnp.bfloat16, np.bool_, np.complex64):
            calls: dict[str, tuple[Any, int]] = {
                "zeros_like": (jnp.zeros_like(x, dtype=dtype), 0),
                "ones_like": (jnp.ones_like(x, dtype=dtype), 1),
                "full_like": (jnp.full_like(x, 1, dtype=dtype), 1),
                "full_like of lax": (lax.full_like(x, 1, dtype=dtype), 1),
                "zeros_like of that shape": (jnp.zeros_like(x, dtype=dtype, shape=x.shape), 0),
            }
            for name, (found, value) in calls.items():
                what = f"{name} of an array over {spec} with dtype {dtype}"
                right = np.full(host.shape, value, host.dtype if dtype is None else dtype)
                expect(found.sharding.is_equivalent_to(there, 2), True, f"whether {what} lies there")
                expect(np.asarray(found), right, what)


def _host_local_arrays(line, grid):
    """host_local_array_to_global_array in one process, of NumPy arrays and of arrays that lie anyhow, and back."""
    if jax.process_count() > 1:
        return
    n = line.size
    host = mixed((2 * n, 2 * n), 97, 7).astype(np.float32)
    specs = (P("d"), P(None, "d"), P())
    ways = {"a NumPy array": host, "an array of one device": jnp.asarray(host)}
    ways |= {f"an array over {spec}": jax.device_put(host, NamedSharding(line, spec)) for spec in specs}
    for spec in specs:
        for name, given in ways.items():
            found = multihost_utils.host_local_array_to_global_array(given, line, spec)
            expect(found.sharding.spec, spec, f"the spec of {name} over {spec}")
            expect(np.asarray(found), host, f"{name} over {spec}")
            back = multihost_utils.global_array_to_host_local_array(found, line, spec)
            expect(np.asarray(back), host, f"{name} over {spec}, and back")


RULES_OF_REUSE: dict[str, Callable[..., None]] = {
    "jitted_twice": _jitted_twice,
    "donated_beside_unused": _donated_beside_unused,
    "elements_of_long_arrays": _elements_of_long_arrays,
    "contexts_after_errors": _contexts_after_errors,
    "copies_on_request": _copies_on_request,
    "arrays_over_other_devices": _arrays_over_other_devices,
    "arrays_like": _arrays_like,
    "host_local_arrays": _host_local_arrays,
}
