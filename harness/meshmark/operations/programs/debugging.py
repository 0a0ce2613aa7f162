# SPDX-License-Identifier: Apache-2.0
"""Debugging views of sharded arrays. What they show must be true, and they must not change the program's result.

The program is f(x) = x * s(x) of `programs.forms.base`. A view that shows something else raises an error with what it
showed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import (
    PUT_FROM_ONE_PROCESS,
    Argument,
    Missing,
    Operation,
    Plan,
    Request,
    Result,
    Variant,
)
from meshmark.operations.programs.forms.base import at, local, whole


def same(seen: Sequence[Any], wanted: Sequence[Any], what: str) -> None:
    """Raise RuntimeError unless both have the same items, in any order."""
    if sorted(seen) != sorted(wanted):
        raise RuntimeError(f"{what}: expected {sorted(wanted)}, seen {sorted(seen)}")


def sums(mesh: Any, a: str, x: Any) -> list[tuple[int, int]]:
    """(index along the axis, sum of the block) of each device."""
    parts = np.split(np.asarray(x), mesh.shape[a])
    return [(i, int(part.sum())) for i, part in enumerate(parts)] * (mesh.size // mesh.shape[a])


def over_axis(mesh, a, f):
    """The compiled shard_map of a function of the local block over one axis."""
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(a), out_specs=P(a)))


def finished(function: Callable[..., Any], x: Any) -> tuple[Any, str]:
    """The result of a program, and what its callbacks printed. All callbacks have run."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        y = jax.block_until_ready(function(x))
        jax.effects_barrier()
    return y, text.getvalue()


def _callback_local(mesh, a, x):
    """`jax.debug.callback` inside shard_map: every device calls once, with its own block."""
    seen = []

    def f(y):
        jax.debug.callback(lambda i, s: seen.append((int(i), int(s))), lax.axis_index(a), y.sum())
        return local(a)(y)

    y, _ = finished(over_axis(mesh, a, f), x)
    same(seen, sums(mesh, a, x), "the callback")
    return y


def _print_local(mesh, a, x):
    """`jax.debug.print` inside shard_map: every device prints one line."""

    def f(y):
        jax.debug.print("{i} {s}", i=lax.axis_index(a), s=y.sum().astype(int))
        return local(a)(y)

    y, text = finished(over_axis(mesh, a, f), x)
    same(text.split("\n")[:-1], [f"{i} {s}" for i, s in sums(mesh, a, x)], "the lines")
    return y


def _print_global(mesh, a, x):
    """`jax.debug.print` in a global program: one line, of the whole array."""

    def f(y):
        jax.debug.print("{s}", s=y.sum().astype(int))
        return whole(mesh, a)(y)

    y, text = finished(jax.jit(f, out_shardings=at(mesh, a)), x)
    same(text.split("\n")[:-1], [str(int(np.asarray(x).sum()))], "the lines")
    return y


def _print_scan(mesh, a, x):
    """`jax.debug.print` in a loop inside shard_map: every device prints one line in each iteration."""

    def f(y):
        def step(c, k):
            jax.debug.print("{k} {i}", k=k, i=lax.axis_index(a))
            return c + 1, None

        return local(a)(lax.scan(step, y, np.arange(3))[0] - 3)

    y, text = finished(over_axis(mesh, a, f), x)
    same(text.split("\n")[:-1], [f"{k} {i}" for k in range(3) for i, _ in sums(mesh, a, x)], "the lines")
    return y


def inspected(mesh, a, x, between, spec):
    """f with `jax.debug.inspect_array_sharding` of the intermediate array between(x). Raises RuntimeError unless it is
    called once, with the sharding of `spec`."""
    seen = []

    def f(y):
        z = between(y)
        jax.debug.inspect_array_sharding(z, callback=seen.append)
        return whole(mesh, a)(z)

    y = jax.jit(f, out_shardings=at(mesh, a))(x)
    if len(seen) != 1 or not seen[0].is_equivalent_to(at(mesh, *spec), x.ndim):
        raise RuntimeError(f"inspect_array_sharding: expected {at(mesh, *spec)}, seen {seen}")
    return y


def _inspect_argument(mesh, a, x):
    """The sharding of an argument."""
    return inspected(mesh, a, x, lambda y: y, (a,))


def _inspect_constraint(mesh, a, x):
    """The sharding that a constraint gives to an intermediate array."""
    spec = (None, mesh.axis_names)
    return inspected(mesh, a, x, lambda y: lax.with_sharding_constraint(y, at(mesh, *spec)), spec)


def _inspect_local(mesh, a, x):
    """Inside shard_map a block is not sharded."""
    seen = []

    def f(y):
        jax.debug.inspect_array_sharding(y, callback=seen.append)
        return local(a)(y)

    y = over_axis(mesh, a, f)(x)
    if not seen or not all(s.is_fully_replicated for s in seen):
        raise RuntimeError(f"inspect_array_sharding: expected a whole block, seen {seen}")
    return y


def _visualize(mesh, a, x):
    """The picture of an array, eagerly and in a program: one cell per block, with the ids of its devices."""
    if importlib.util.find_spec("rich") is None:
        raise Missing("jax.debug.visualize_array_sharding needs the library rich")

    def f(y):
        jax.debug.visualize_array_sharding(y, use_color=False)
        return whole(mesh, a)(y)

    _, eager = finished(lambda y: jax.debug.visualize_array_sharding(y, use_color=False), x)
    y, compiled = finished(jax.jit(f, out_shardings=at(mesh, a)), x)
    blocks = {}
    for device, index in x.sharding.devices_indices_map(x.shape).items():
        blocks.setdefault(str(index), []).append(device.id)
    wanted = [",".join(map(str, sorted(ids))) for ids in blocks.values()]
    for text in (eager, compiled):
        cells = [words[1] for line in text.split("\n") if len(words := line.strip("│ ").split()) == 2]
        same([",".join(sorted(c.split(","), key=int)) for c in cells], wanted, "the picture")
    return y


VIEWS: dict[str, Callable[..., Any]] = {
    "callback_local": _callback_local,
    "print_local": _print_local,
    "print_global": _print_global,
    "print_scan": _print_scan,
    "inspect_argument": _inspect_argument,
    "inspect_constraint": _inspect_constraint,
    "inspect_local": _inspect_local,
    "visualize": _visualize,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""

OPTIONAL = ("visualize", "print_scan", "print_global", "inspect_argument")
"""The views that the standard profile leaves out. One needs a library; the others cost more than they add."""


class DebuggingView(Operation):
    """Views of `jax.debug` in jit and shard_map: print, callback, inspect_array_sharding, visualize_array_sharding."""

    name = "debugging_view"
    family = "transforms"
    level = "L3"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for view in VIEWS:
            ordinary = mesh == preferred(mesh.size) and view not in OPTIONAL
            yield Variant.of(2 if ordinary else 3, view=view)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        a = mesh.names[-1]
        shape = (2 * mesh.sizes[a], mesh.size)
        x = Argument(shape, "float32", (a, None), values.tokens, {"below": 4})
        options = {"view": request.variant["view"], "axis": a, "blocks": mesh.sizes[a]}
        return Plan((x,), (Result(shape, "float32", (a, None)),), options, judge="exact")

    @staticmethod
    def host(mesh, x, *, view, axis):
        return VIEWS[view](mesh, axis, jax.device_put(x, at(mesh, axis)))

    @staticmethod
    def reference(x, *, blocks):
        stack = x.reshape(blocks, -1, *x.shape[1:])
        return (stack * stack.sum(axis=0)).reshape(x.shape)
