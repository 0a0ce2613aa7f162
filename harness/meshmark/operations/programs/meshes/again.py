# SPDX-License-Identifier: Apache-2.0
"""Callables without a mesh of their own, used under one context mesh and then under another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import at, run_jitted
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.meshes.two import sizes_of
from meshmark.operations.programs.small_rules.comparing import may_leave_out_devices


def meshes_of(mesh: Any, kind: AxisType = AxisType.Auto) -> dict[str, Mesh]:
    """Meshes with an axis "d": all devices in one line, in another order, with a second axis, and half of them."""
    devices, (p, q) = mesh.devices.ravel(), sizes_of(mesh.size)
    found = {
        "all devices": Mesh(devices, ("d",), axis_types=(kind,)),
        "two axes": Mesh(devices.reshape(p, q), ("e", "d"), axis_types=(kind,) * 2),
        "another order": Mesh(devices[::-1], ("d",), axis_types=(kind,)),
    }
    if mesh.size % 2 == 0 and may_leave_out_devices():
        found["half of the devices"] = Mesh(devices[: mesh.size // 2], ("d",), axis_types=(kind,))
    return found


def body(v):
    """Ten times a block, and the number of its device along "d"."""
    return 10 * v + lax.axis_index("d")


def used(mesh: Any, call: Callable[[], Callable[[Any], Any]], kind: AxisType = AxisType.Auto) -> None:
    """Judge one callable under each mesh in turn, and under the first again. call: makes the callable once."""
    meshes = meshes_of(mesh, kind)
    f, given = call(), np.arange(2 * mesh.size)
    for name in (*meshes, "all devices"):
        m = meshes[name]
        right = 10 * given + given // (given.size // m.shape["d"])
        with jax.set_mesh(m):
            found = f(jax.device_put(given, at(m, "d")) if kind == AxisType.Explicit else given)
            wrong(not np.array_equal(found, right), f"under the mesh of {name} it gives {found}, not {right}")
            first = m.devices.ravel()[0]
            held = [np.asarray(s.data) for s in found.addressable_shards if s.device == first]
            wrong(
                not np.array_equal(held[0], right[: given.size // m.shape["d"]]),
                f"under the mesh of {name} its first device holds {held[0]}",
            )


def region(**options: Any) -> Callable[[Any], Any]:
    """A shard_map that takes the mesh of its context."""
    return jax.shard_map(body, in_specs=P("d"), out_specs=P("d"), **options)


def _made_anew(mesh, a, x):
    """A shard_map that each call, or each trace of a jitted function, makes."""
    used(mesh, lambda: lambda v: region()(v))
    used(mesh, lambda: jax.jit(lambda v: region()(v)))
    used(mesh, lambda: lambda v: jax.jit(region())(v))
    used(mesh, lambda: lambda v: jax.jit(region(axis_names={"d"}))(v))
    twice = jax.sharding.auto_axes(lambda v: 2 * v, out_sharding=P("d"))
    given = np.arange(2 * mesh.size)
    for way in (twice, jax.jit(twice)):
        for name, m in meshes_of(mesh, AxisType.Explicit).items():
            with jax.set_mesh(m):
                found = way(jax.device_put(given, at(m, "d")))
            wrong(not np.array_equal(found, 2 * given), f"auto_axes under the mesh of {name} gives {found}")
    plain = jax.jit(lambda v: lax.with_sharding_constraint(2 * v, P("d")))
    for name, m in meshes_of(mesh).items():
        with jax.set_mesh(m):
            found = plain(given)
        wrong(not np.array_equal(found, 2 * given), f"a constraint under the mesh of {name} gives {found}")
        wrong(
            not found.sharding.is_equivalent_to(at(m, "d"), 1),
            f"a constraint under the mesh of {name} lies over {found.sharding}",
        )
    return run_jitted(mesh, a, x)


def _with_own_mesh(mesh, a, x):
    """A jitted function of the mesh, with a shard_map that is given it."""

    def over_it(v, m):
        return jax.shard_map(body, mesh=m, in_specs=P("d"), out_specs=P("d"))(v)

    run = jax.jit(over_it, static_argnums=1)
    given = np.arange(2 * mesh.size)
    for _ in range(2):
        for name, m in meshes_of(mesh).items():
            right = 10 * given + given // (given.size // m.shape["d"])
            found = run(given, m)
            wrong(not np.array_equal(found, right), f"over the mesh of {name} it gives {found}, not {right}")
    return run_jitted(mesh, a, x)


def _region_again(mesh, a, x):
    """One shard_map object."""
    used(mesh, region)
    return run_jitted(mesh, a, x)


def _jitted_again(mesh, a, x):
    """One jitted shard_map, as a call and as a decorator."""
    used(mesh, lambda: jax.jit(region()))
    used(mesh, lambda: jax.jit(jax.shard_map(in_specs=P("d"), out_specs=P("d"))(body)))
    return run_jitted(mesh, a, x)


def _inferred_again(mesh, a, x):
    """One jitted shard_map over Explicit axes, which takes its in_specs from the types of its arguments."""
    used(mesh, lambda: jax.jit(jax.shard_map(body, out_specs=P("d"))), AxisType.Explicit)
    return run_jitted(mesh, a, x)


def _smap_again(mesh, a, x):
    """One jitted smap."""
    if not hasattr(jax, "smap"):
        raise Missing("this release has no jax.smap")
    used(mesh, lambda: jax.jit(jax.smap(body, in_axes=0, out_axes=0, axis_name="d")))
    return run_jitted(mesh, a, x)


def _nested_again(mesh, a, x):
    """One shard_map over "d", alone and inside of one over "e"."""
    m, given = meshes_of(mesh)["two axes"], np.arange(mesh.size)
    rows, columns = m.shape["e"], m.shape["d"]
    inner = region(axis_names={"d"})
    outer = jax.shard_map(inner, in_specs=P("e"), out_specs=P("e"), axis_names={"e"})
    with jax.set_mesh(m):
        for name, run, right in (
            ("alone", inner, 10 * given + given // (mesh.size // columns)),
            ("inside of another", outer, 10 * given + np.tile(np.arange(columns), rows)),
            ("alone again", inner, 10 * given + given // (mesh.size // columns)),
        ):
            found = jax.jit(run)(given)
            wrong(not np.array_equal(found, right), f"a shard_map {name} gives {found} instead of {right}")
    return run_jitted(mesh, a, x)


AGAIN: dict[str, Callable[..., Any]] = {
    "made_anew": _made_anew,
    "own_mesh": _with_own_mesh,
    "region_again": _region_again,
    "jitted_again": _jitted_again,
    "inferred_again": _inferred_again,
    "smap_again": _smap_again,
    "nested_again": _nested_again,
}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""
