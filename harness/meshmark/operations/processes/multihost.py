# SPDX-License-Identifier: Apache-2.0
"""`jax.experimental.multihost_utils`, called by all processes together (see `global_arrays`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import fill_of, from_host, home, matrix, spec_of
from meshmark.operations.processes.global_arrays import (
    MOVED,
    OverProcesses,
    ordinary,
    own,
    process_report,
    process_report_result,
    raises,
)


class ProcessAllgather(OverProcesses):
    """`multihost_utils.process_allgather` of each process's own arrays (stacked and tiled), of trees with numbers, and
    of a global array (tiled; the stacked form raises ValueError)."""

    name = "process_allgather"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, of="local", tiled=True)
            yield Variant.of(0, of="local", tiled=False)
            yield Variant.of(1, of="tree", tiled=False)
            yield Variant.of(1, of="local", tiled=True, fill="special")
            yield Variant.of(1, of="global", tiled=False)
        yield Variant.of(0, of="global", tiled=True)

    def plan(self, request: Request) -> Plan:
        mesh, variant, count = request.mesh, request.variant, request.processes
        of, tiled = variant["of"], variant["tiled"]
        rows, columns = matrix(request)
        rows -= rows % count
        x = Argument((rows, columns), request.dtype, (None, None), fill_of(request))
        stacked = (count, rows // count, columns)
        whole: tuple[Result, ...] = (
            Result(x.shape if tiled or of == "global" else stacked, request.dtype, ()),
        )
        if of == "tree":
            whole += (Result((count,), "int32", ()),)
        return Plan(
            (x,),
            (*whole, process_report_result(mesh, 1)),
            {"of": of, "tiled": tiled, "count": count, "spec": spec_of(home(mesh)), "devices": mesh.size},
            judge="bits",
        )

    @staticmethod
    def host(mesh, x, *, of, tiled, count, spec):
        process = jax.process_index()
        mine = x.reshape(count, -1, x.shape[1])[process]
        if of == "global":
            array = from_host(mesh, x, spec)
            refused = raises(ValueError, lambda: multihost_utils.process_allgather(array, tiled=False))
            copy = multihost_utils.process_allgather(array, tiled=True)
            return own(mesh, copy), process_report(mesh, [refused])
        if of == "tree":
            tree = {"rows": mine, "number": [np.int32(process * process)]}
            seen = multihost_utils.process_allgather(tree, tiled=tiled)
            return own(mesh, seen["rows"]), own(mesh, seen["number"][0]), process_report(mesh, [0])
        return own(mesh, multihost_utils.process_allgather(mine, tiled=tiled)), process_report(mesh, [0])

    @staticmethod
    def reference(x, *, of, tiled, count, devices):
        whole = x if tiled or of == "global" else x.reshape(count, -1, x.shape[1])
        refused = np.full((devices, 1), of == "global")
        return (whole, np.arange(count) ** 2, refused) if of == "tree" else (whole, refused)


class BroadcastOneToAll(OverProcesses):
    """`multihost_utils.broadcast_one_to_all` of an array and a number, from process 0 or from the last process."""

    name = "broadcast_one_to_all"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, source="default")
            yield Variant.of(0, source="last")
            yield Variant.of(1, source="default", fill="special")

    def plan(self, request: Request) -> Plan:
        count = request.processes
        x = Argument((count, *matrix(request)), request.dtype, (None,), fill_of(request))
        options = {"last": request.variant["source"] == "last"}
        return Plan((x,), (Result(x.shape[1:], request.dtype, ()), Result((), "int32", ())), options, "bits")

    @staticmethod
    def host(mesh, x, *, last):
        process, count = jax.process_index(), jax.process_count()
        source = process == count - 1 if last else None
        mine = x[process], np.int32(process + 1)
        seen, number = multihost_utils.broadcast_one_to_all(mine, is_source=source)
        return own(mesh, np.asarray(seen)), own(mesh, np.asarray(number))

    @staticmethod
    def reference(x, *, last):
        return (x[-1], np.array(len(x))) if last else (x[0], np.array(1))


class AssertEqual(OverProcesses):
    """`multihost_utils.assert_equal`: equal values pass. If one element differs on one process, every process raises
    AssertionError."""

    name = "assert_equal"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, values="equal")
            yield Variant.of(0, values="unequal")
            yield Variant.of(1, values="unequal", tree=True)

    def plan(self, request: Request) -> Plan:
        x = Argument(matrix(request), request.dtype, (None, None), fill_of(request))
        unequal = request.variant["values"] == "unequal"
        options = {
            "unequal": unequal,
            "tree": request.variant.get("tree", False),
            "devices": request.mesh.size,
        }
        return Plan((x,), (process_report_result(request.mesh, 1),), options, judge="exact")

    @staticmethod
    def host(mesh, x, *, unequal, tree):
        mine = x.copy()
        if unequal and jax.process_index() == jax.process_count() - 1:
            mine[-1, -1] = 0 if mine[-1, -1] else 1
        what = {"first": x, "others": [np.arange(3), mine]} if tree else mine
        return process_report(
            mesh, [raises(AssertionError, lambda: multihost_utils.assert_equal(what, "unlike"))]
        )

    @staticmethod
    def reference(x, *, unequal, devices):
        return np.full((devices, 1), unequal)


LATE = 0.5
"""How many seconds the last process is late at a barrier."""


class SyncGlobalDevices(OverProcesses):
    """`multihost_utils.sync_global_devices`: twenty in a row; one for which the last process is late (no other process
    leaves it earlier); and one to which the processes give different names (all raise AssertionError)."""

    name = "sync_global_devices"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, names="same")
            yield Variant.of(1, names="same", late=True)
            yield Variant.of(0, names="different")

    def plan(self, request: Request) -> Plan:
        variant = request.variant
        options = {
            "different": variant["names"] == "different",
            "late": variant.get("late", False),
            "devices": request.mesh.size,
        }
        return Plan((), (process_report_result(request.mesh, 2),), options, judge="exact")

    @staticmethod
    def host(mesh, *, different, late):
        process = jax.process_index()
        if different:
            name = f"name {process}"
            told_so = raises(AssertionError, lambda: multihost_utils.sync_global_devices(name))
            return process_report(mesh, [told_so, 0])
        if late:
            started = time.monotonic()
            # No process leaves this barrier before all have come, so the sleep begins after `started` everywhere.
            multihost_utils.sync_global_devices("all are here")
            if process == jax.process_count() - 1:
                time.sleep(LATE)
            multihost_utils.sync_global_devices("the late one too")
            return process_report(mesh, [0, time.monotonic() - started >= LATE])
        for number in range(20):
            multihost_utils.sync_global_devices(f"step {number}")
        return process_report(mesh, [0, 0])

    @staticmethod
    def reference(*, different, late, devices):
        return np.tile([different, late], (devices, 1))
