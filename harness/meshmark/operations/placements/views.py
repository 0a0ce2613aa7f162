# SPDX-License-Identifier: Apache-2.0
"""The views of a sharding in JAX, compared with the mesh arithmetic: the tables that JAX prints, and the sharding that
it shows inside a compiled program.

Each view becomes a boolean array `holds[device, ...element]`: whether the view shows that this device (by its number
among the mesh's devices) holds that element. The reference computes the same from the layout.

Removed APIs without a case, and what replaces them:

- `xmap` (jax.experimental.maps): deprecated in JAX 0.4.26, removed in 0.4.31. `jax.shard_map` replaces it:
  mode `manual`.
- `ShardedDeviceArray` and `make_sharded_device_array` (jax.interpreters.pxla): `jax.Array` subsumed the type
  in 0.4.1, and both names were removed in 0.4.14. The function's replacement is an operation of family placement,
  `make_array_from_single_device_arrays`.
- `device_put_sharded` and `device_put_replicated`: deprecated in 0.8.1, removed in 0.10.0. `jax.device_put`
  with a NamedSharding replaces them (P("x") for stacked parts, P() for copies): operations `device_put` and
  `put_get` of family placement.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import ClassVar

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.layout import indices
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Missing, Operation, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import home, spec_labels, spec_of


def captured(function):
    """The text that a call prints, without colours. Raises Missing without `rich`, which JAX needs for it."""
    import contextlib
    import io
    import re

    if importlib.util.find_spec("rich") is None:
        raise Missing("jax.debug.visualize_sharding prints with `rich`, which is not installed")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function()
        jax.effects_barrier()
    return re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue())


def printed_cells(text):
    """The device ids in each cell of a printed table: a list per row of lists per cell."""
    rows = []
    for line in text.splitlines():
        if line.startswith(("┌", "├")):
            rows.append([])
        elif line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            rows[-1] = ["".join(pair) for pair in zip(rows[-1] or [""] * len(cells), cells, strict=True)]
    # The text of a cell is the platform and the ids: CPU 0,4
    return [[[int(i) for i in cell.split()[-1].split(",")] for cell in row] for row in rows]


def held_in_table(mesh, shape, text):
    """`holds` from the printed table, replicated over the mesh."""
    number = {d.id: i for i, d in enumerate(sorted(mesh.devices.flat, key=lambda d: d.id))}
    rows = printed_cells(text)
    holds = np.zeros((len(number), *shape), bool)
    height, width = (shape[0] if len(shape) > 1 else 1) // len(rows), shape[-1] // len(rows[0])
    matrices = holds.reshape(len(number), -1, shape[-1])
    for i, row in enumerate(rows):
        for j, ids in enumerate(row):
            for device in ids:
                block = matrices[number[device]][i * height : (i + 1) * height, j * width : (j + 1) * width]
                block[...] = True
    return jax.device_put(holds, NamedSharding(mesh, P()))


def held_in_sharding(mesh, shape, sharding):
    """`holds` from a sharding, replicated over the mesh."""
    devices = sorted(mesh.devices.flat, key=lambda d: d.id)
    holds = np.zeros((len(devices), *shape), bool)
    for device, index in sharding.devices_indices_map(shape).items():
        holds[(devices.index(device), *index)] = True
    return jax.device_put(holds, NamedSharding(mesh, P()))


class View(Operation):
    """The base of the views: an array of rank one or two in each sharding."""

    family = "views"
    level = "L2"
    modes = ("host",)
    ways: ClassVar[tuple[str, ...]] = ("eager",)
    """Where the array is inspected: outside a program, or at a place inside one."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        lines = [label.removesuffix(".-") for label in spec_labels(mesh) if label.endswith(".-")]
        for way in self.ways:
            for label in (*spec_labels(mesh), *lines):
                weight = 3 if way != self.ways[-1] else 0 if label == home(mesh) else 2
                yield Variant.of(weight, of=label, seen=way if len(self.ways) > 1 else None)

    def plan(self, request: Request) -> Plan:
        spec, mesh = spec_of(request.variant["of"]), request.mesh
        argument = Argument((2 * mesh.size, 3 * mesh.size)[: len(spec)], request.dtype, spec)
        options = {
            "spec": spec,
            "seen": request.variant.get("seen"),
            "sizes": dict(mesh.sizes),
            "ordinals": tuple(mesh.ordinals.ravel().tolist()),
        }
        holds = Result((mesh.size, *argument.shape), "bool", (None,) * (1 + len(spec)))
        return Plan((argument,), (holds,), options, judge="bits")

    @staticmethod
    def reference(x, *, spec, sizes, ordinals):
        holds = np.zeros((len(ordinals), *x.shape), bool)
        for device, index in zip(ordinals, indices(x.shape, spec, sizes), strict=True):
            holds[(device, *index)] = True
        return holds


class VisualizeSharding(View):
    """`jax.debug.visualize_sharding`: the printed table of a sharding."""

    name = "visualize_sharding"

    @staticmethod
    def host(mesh, x, *, spec):
        sharding = NamedSharding(mesh, P(*spec))
        text = captured(
            lambda: jax.debug.visualize_sharding(x.shape, sharding, use_color=False, max_width=4096)
        )
        return held_in_table(mesh, x.shape, text)


class VisualizeArraySharding(View):
    """`jax.debug.visualize_array_sharding`: the printed table of an array's sharding, inside and outside a program."""

    name = "visualize_array_sharding"
    ways = ("eager", "jit")

    @staticmethod
    def host(mesh, x, *, spec, seen):
        array = jax.device_put(x, NamedSharding(mesh, P(*spec)))

        def show(a):
            jax.debug.visualize_array_sharding(a, use_color=False, max_width=4096)
            return a

        text = captured(lambda: (jax.jit(show) if seen == "jit" else show)(array))
        return held_in_table(mesh, x.shape, text)


class InspectArraySharding(View):
    """`jax.debug.inspect_array_sharding`: the sharding of an array, of a value that a program computes, and of a value
    that a program constrains."""

    name = "inspect_array_sharding"
    ways = ("eager", "constrained", "jit")

    @staticmethod
    def host(mesh, x, *, spec, seen):
        sharding = NamedSharding(mesh, P(*spec))
        found = []

        def look(a):
            if seen == "constrained":
                a = lax.with_sharding_constraint(a, sharding)
            a = -a
            jax.debug.inspect_array_sharding(a, callback=found.append)
            return a

        array = jax.device_put(x, NamedSharding(mesh, P()) if seen == "constrained" else sharding)
        jax.block_until_ready((look if seen == "eager" else jax.jit(look))(array))
        return held_in_sharding(mesh, x.shape, found[-1])
