# SPDX-License-Identifier: Apache-2.0
"""The programs of the weather, and the child process that compiles them for one place.

One rule selects the programs from the case table. It takes from each operation in FAMILIES the most ordinary variant
that must communicate (or else the most ordinary one), in float32 and in the three main modes. The size is the largest
one up to LARGEST that is timed, or else declared. So a new operation in one of these families is included.

The child runs in the environment of the release, with this package on its path. It only compiles. Its lines begin with
MARK; other lines come from compilers.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from meshmark.core.meshes import MeshShape, preferred
from meshmark.core.privacy import redact
from meshmark.devices import probe, topologies
from meshmark.devices.chips import CHIPS
from meshmark.devices.environment import DEFAULT_CPU_DEVICES
from meshmark.devices.projection import Fabric, fabric_of
from meshmark.growth import curves
from meshmark.judge import scheduling
from meshmark.judge.programs import Program
from meshmark.operations import OPERATIONS
from meshmark.operations.base import Operation, Request, parse_size
from meshmark.operations.cases import Case, Cell
from meshmark.operations.record_lines import case_head
from meshmark.records.run_definition import RunFacts
from meshmark.records.writing import dumps

MARK = "meshmark-weather "

CPU = "cpu"
"""The place of virtual CPU devices. All other places are topologies."""

FAMILIES = ("collectives", "contraction", "layers", "training", "networks", "windows", "algebra", "programs")

LARGEST = {"bytes": 2**20, "dimension": 512}
"""The largest size of operations whose sizes are bytes, and of those whose sizes are dimensions."""


def mesh_of(place: str) -> MeshShape:
    """The mesh of a place, with two axes over all of its devices."""
    return (
        preferred(DEFAULT_CPU_DEVICES) if place == CPU else curves.mesh_of(topologies.parse_topology(place))
    )


def size_of(operation: Operation) -> str:
    """The largest size within LARGEST, of the timed sizes or else of all; the smallest size if all are larger."""
    most = LARGEST[curves.unit(operation)]
    for sizes in (operation.timed, operation.sizes):
        if within := [size for size in sizes if parse_size(size) <= most]:
            return max(within, key=parse_size)
    return min(operation.sizes, key=parse_size)


def cell_of(operation: Operation, mesh: MeshShape) -> Cell | None:
    """The cell of an operation on a mesh; None if it has no program in curves.MODES."""
    dtype = "float32" if "float32" in operation.dtypes else operation.dtypes[0]
    size = size_of(operation)
    cells = (Cell(operation, Request(v, mesh, dtype, size), 0) for v in curves.ordinary(operation, mesh))
    first = next(cells, None)
    if first is None:
        return None
    return next((c for c in (first, *cells) if c.plan.traffic or c.plan.connected), first)


def chosen(mesh: MeshShape) -> Iterator[Case]:
    """The programs on a mesh, in the order of the case table."""
    for operation in OPERATIONS.values():
        if operation.family not in FAMILIES or operation.processes:
            continue
        if cell := cell_of(operation, mesh):
            variant = cell.request.variant
            yield from (cell.case(m) for m in curves.MODES if operation.absent(m, variant, mesh) is None)


def program_fields(case: Case, place: str) -> dict[str, Any]:
    """The fields that every line of a program has."""
    head = case_head(case, 0, "schedule") | {"place": place}
    return head | ({} if place == CPU else {"case": f"{case.id}@{place}"})


# The child ---------------------------------------------------------------------------------------------------


def _devices(place: str) -> tuple[tuple[Any, ...], Fabric | None, RunFacts]:
    """(devices in mesh order, their network or None, the facts of the environment)."""
    if place == CPU:
        import jax

        return tuple(jax.devices()), None, probe.facts().to_json()
    topology = topologies.parse_topology(place)
    devices = topologies.devices(topology)
    fabric = fabric_of(CHIPS[topology.chip], topology.shape, devices, topology.slices)
    return devices, fabric, probe.topology_facts(topology, "plain", []).to_json()


def _compiled(case: Case, devices: tuple[Any, ...], fabric: Fabric | None, words: IO[str]) -> dict[str, Any]:
    """The verdict and counters of one program. words: the file that gets standard error."""
    words.seek(0, os.SEEK_END)
    try:
        compiled = Program(case, devices[: case.mesh.size]).compile()
        sys.stderr.flush()
        return {"verdict": "pass", "reason": ""} | scheduling.counters(case, compiled, fabric, words.read())
    except Exception as error:
        return {"verdict": "error", "reason": redact(f"{type(error).__name__}: {error}")[:500]}


def say(message: dict[str, Any]) -> None:
    """Print one line for the parent."""
    print(MARK + dumps(message), flush=True)


def main() -> int:
    """Do the job from standard input: a place, the ids of finished cases, a deadline per program in seconds, and
    whether to compile or only to tell the facts."""
    job = json.load(sys.stdin)
    place, done = job["place"], set(job["done"])
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        kept = os.dup(2)
        os.dup2(words.fileno(), 2)
        try:
            devices, fabric, facts = _devices(place)
        except topologies.TopologyError as error:
            say({"problem": str(error)})
            return 0
        cases = list(chosen(mesh_of(place)))
        say({"facts": facts, "programs": len(cases)})
        for case in cases if job["compile"] else ():
            if case.id in done:
                continue
            head = program_fields(case, place)
            say({"at": head, "id": case.id})
            faulthandler.dump_traceback_later(job["deadline"], exit=True)
            found = _compiled(case, devices, fabric, words)
            faulthandler.cancel_dump_traceback_later()
            say({"line": head | found})
        os.dup2(kept, 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
