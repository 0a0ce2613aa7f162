# SPDX-License-Identifier: Apache-2.0
"""The child of `meshmark growth`: compiles programs for one topology and prints their cost, one line per program.

It is a separate process, because compilers that run without the hardware can crash, and do not free their memory. It
reads a job (JSON) from standard input. Its lines begin with meshmark.growth.curves.MARK.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from typing import Any

from meshmark.core.hlo import collectives
from meshmark.devices import probe, topologies
from meshmark.devices.chips import CHIPS
from meshmark.devices.projection import Fabric, fabric_of, project
from meshmark.devices.topologies import Topology
from meshmark.growth import curves as growth
from meshmark.judge import compile_only
from meshmark.judge.communication import communication
from meshmark.judge.programs import Program
from meshmark.records.writing import dumps


def say(message: dict[str, Any]) -> None:
    """Print one line for the parent."""
    print(growth.MARK + dumps(message), flush=True)


def laid_out(topology: Topology, shape: tuple[int, ...], layout: str) -> tuple[tuple[Any, ...], str]:
    """(devices in mesh order, layout): "physical" is JAX's layout on the chips, if it is wanted and there is one; else
    "plain"."""
    if layout == "physical":
        try:
            return topologies.devices(topology, "physical", shape), "physical"
        except topologies.NoLayout:
            pass
    return topologies.devices(topology), "plain"


def measure_program(case: growth.Case, topology: Topology, devices: tuple[Any, ...]) -> dict[str, Any]:
    """The cost of one compiled program: bytes and flops of one device, seconds, projection and theory. Raises JAX's own
    errors."""
    program = Program(case, devices)
    start, worked = time.perf_counter(), time.process_time()
    compiled = program.compile()
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    found = collectives(compiled.as_text(), case.mesh.size)
    data = communication(case, compiled)
    cost = compiled.cost_analysis() or {}
    fabric: Fabric | None = fabric_of(CHIPS[topology.chip], topology.shape, devices, topology.slices)
    projected = None
    if fabric:
        request = case.cell.request
        made = project(
            found, fabric, cost.get("flops"), cost.get("bytes accessed"), request.dtype, case.plan.precision
        )
        projected = made.parts | {"seconds": made.seconds, "limit": made.limit}
    return {
        **data.data,
        **compile_only.needs(compiled),
        "contract": data.reason,
        "collective_count": len(found),
        "collective_runs": sum(1 if c.trips is None else c.trips for c in found),
        "optimal_s": cost.get("optimal_seconds"),
        "compile_s": round(seconds, 4),
        "compile_cpu_s": round(worked, 4),
        "projection": projected,
        "theory": growth.theory(case),
    }


def main() -> int:
    """Run the job from standard input."""
    job = json.load(sys.stdin)
    topologies.prepare_environment(job["topology"])
    topology = topologies.parse_topology(job["topology"])

    try:
        topologies.devices(topology)
    except topologies.TopologyError as error:
        say({"problem": str(error)})
        return 0
    facts = probe.facts().to_json()
    versions = {**facts["versions"], **topologies.compiler(topology)}
    say({"facts": {**facts, "versions": versions}})
    warm = False
    for entry in job["programs"]:
        cell = growth.cell(*(entry[k] for k in ("operation", "variant", "mesh", "dtype", "size")))
        case = cell.case(entry["mode"])
        say({"at": case.id})
        faulthandler.dump_traceback_later(job["deadline"], exit=True)
        try:
            ordered, layout = laid_out(topology, case.mesh.shape, job["layout"])
            if not warm:  # the first compilation of a process includes the compiler's start
                Program(case, ordered).compile()
                warm = True
            found = {"verdict": "pass", "reason": "", "layout": layout} | measure_program(
                case, topology, ordered
            )
        except Exception as error:
            found = {"verdict": "error", "reason": f"{type(error).__name__}: {str(error)[:500]}"}
        faulthandler.cancel_dump_traceback_later()
        say({"done": case.id} | found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
