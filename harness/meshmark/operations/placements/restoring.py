# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in one process: arrays over one mesh are saved, and restored over another mesh."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import extras
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Missing, Operation, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import home, matrix, spec_labels, spec_of

SAVED = ("line", "reversed", "half", "one")
"""The mesh that a checkpoint is saved from: all devices in a line, the same in reverse order, the first half of them,
and the last one alone."""


class CheckpointBetweenMeshes(Operation):
    """An Orbax checkpoint of a tree (a matrix and its transpose), saved from one mesh and restored over another in the
    same process. The arrays must be equal to the bit, in the requested sharding."""

    name = "checkpoint_between_meshes"
    family = "programs"
    level = "L3"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for number, saved in enumerate(SAVED):
            for label in spec_labels(mesh):
                weight = 1 if label == home(mesh) and mesh == preferred(mesh.size) else 3
                yield Variant.of(weight + number % 2, "checkpoint", saved=saved, to=label)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        return "orbax_checkpoint has what several processes save and restore"

    def plan(self, request: Request) -> Plan:
        target = spec_of(request.variant["to"])
        x = Argument(matrix(request), request.dtype, target)
        turned = Result(x.shape[::-1], x.dtype, target)
        options = {"saved": request.variant["saved"], "out_spec": target}
        return Plan((x,), (Result(x.shape, x.dtype, target), turned), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, saved, out_spec):
        if importlib.util.find_spec("orbax") is None or importlib.util.find_spec("orbax.checkpoint") is None:
            raise Missing("orbax-checkpoint is not installed: " + extras.command("checkpoint"))
        import orbax.checkpoint as ocp

        devices = mesh.devices.ravel()
        chosen = {
            "line": devices,
            "reversed": devices[::-1],
            "half": devices[: max(1, len(devices) // 2)],
            "one": devices[-1:],
        }[saved]
        source = NamedSharding(Mesh(chosen, ("s",)), P("s"))
        target = NamedSharding(mesh, P(*out_spec))
        given = {"x": x, "turned": np.ascontiguousarray(x.T)}
        wanted = {k: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=target) for k, a in given.items()}
        with tempfile.TemporaryDirectory(prefix="meshmark-") as place, ocp.StandardCheckpointer() as keeper:
            keeper.save(Path(place) / "saved", {k: jax.device_put(a, source) for k, a in given.items()})
            keeper.wait_until_finished()
            restored = keeper.restore(Path(place) / "saved", wanted)
            return restored["x"], restored["turned"]

    @staticmethod
    def reference(x):
        return x, x.T
