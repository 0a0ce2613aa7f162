# SPDX-License-Identifier: Apache-2.0
"""Compares the placement and the type of a result with those that the case promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from meshmark.core import layout
from meshmark.judge.numbers import show
from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import Case

KEPT = ("auto", "explicit", "pjit")
"""The modes in which the spec of a result is the one that was asked for, axes of size 1 included. A program of
shard_map gives an equal placement, and drops or joins axes of size 1. An empty array may have any spec."""


def placement(case: Case, places: Sequence[Any], result: Argument | Result, output: jax.Array) -> str:
    """The difference between the output's placement and the spec; "" if there is none."""
    want = dict(zip(places, layout.indices(result.shape, result.spec, case.mesh.sizes), strict=True))
    for shard in output.addressable_shards:
        index = tuple(slice(*i.indices(n)[:2]) for i, n in zip(shard.index, result.shape, strict=True))
        if want.get(shard.device) != index:
            return f"{shard.device} holds {show(index)} instead of {show(want.get(shard.device))} ({output.sharding})"
    if len(output.sharding.device_set) != case.mesh.size:
        return f"on {len(output.sharding.device_set)} devices instead of {case.mesh.size}"
    return replica_ids(places, want, output) or described(case, result, output)


def replica_ids(places: Sequence[Any], want: dict[Any, tuple[slice, ...]], output: jax.Array) -> str:
    """The first shard whose replica id is not its number among the devices that hold the same part, in the order of
    the mesh; "" if there is none."""
    seen: Counter[tuple[tuple[int, int], ...]] = Counter()
    number = {}
    for device in places:
        part = tuple((i.start, i.stop) for i in want[device])
        number[device] = seen[part]
        seen[part] += 1
    for shard in output.addressable_shards:
        if shard.replica_id != number[shard.device]:
            return f"{shard.device} has replica id {shard.replica_id} instead of {number[shard.device]}"
    return ""


def described(case: Case, result: Argument | Result, output: jax.Array) -> str:
    """The difference between an array's attributes and the promised ones: spec, names of the mesh, memory kind,
    committed to its devices, and no weak type; "" if there is none."""
    sharding = output.sharding
    if isinstance(sharding, NamedSharding):
        names, sizes = tuple(sharding.mesh.axis_names), case.mesh.sizes
        if names != case.mesh.names:
            return f"on a mesh with axes {names} instead of {case.mesh.names}"
        ndim, spec = len(result.shape), tuple(sharding.spec)
        same = layout.normal(spec, sizes, ndim) == layout.normal(result.spec, sizes, ndim)
        asked = case.mode in KEPT and case.plan.placed
        if output.size and (not same or (asked and _entries(spec, ndim) != _entries(result.spec, ndim))):
            return f"spec {spec} instead of {tuple(result.spec)}"
    elif case.mode in KEPT:
        return f"{type(sharding).__name__} instead of NamedSharding"
    device: Any = next(iter(sharding.device_set))
    usual = device.default_memory().kind
    if sharding.memory_kind not in (usual, None):
        return f"in memory {sharding.memory_kind} instead of {usual}"
    if not output.committed:
        return "not committed to its devices"
    return "of weak type" if output.weak_type else ""


def typed(case: Case, result: Argument | Result, seen: Any) -> str:
    """The difference between the type at trace time (explicit mode) and the expected spec; "" if there is none."""
    ndim = len(result.shape)
    got, want = _entries(tuple(seen.sharding.spec), ndim), _entries(result.spec, ndim)
    return "" if got == want else f"typed {seen} while tracing: spec {got} instead of {want}"


def _entries(spec: Sequence[layout.Entry], ndim: int) -> tuple[tuple[str, ...], ...]:
    """The axes of each dimension."""
    entries = [layout.axes_of(entry) for entry in spec]
    return tuple(entries + [()] * (ndim - len(entries)))
