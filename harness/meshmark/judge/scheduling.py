# SPDX-License-Identifier: Apache-2.0
"""The schedule counters of a compiled program: what overlaps with what, memory, host transfers, loops.

All of them are read or counted from the compiled program, so the same compiler gives the same numbers. Only
`exposed_s` is a projection. It uses the published peaks of the chip (`meshmark.devices.projection`), and is None if
these are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshmark.core.hlo import wire_bytes
from meshmark.devices.projection import Fabric, exposed_seconds, network_seconds
from meshmark.interpreter import schedule
from meshmark.interpreter.schedule import Pair, Schedule
from meshmark.judge import compile_only
from meshmark.operations.cases import Case

WARNING = "Involuntary full rematerialization"
"""The text that XLA's partitioner writes on standard error when it gathers everything to get from one sharding to
another."""


def counters(case: Case, compiled: Any, fabric: Fabric | None = None, words: str = "") -> dict[str, Any]:
    """The schedule counters of a compiled case, as records of kind `schedule` hold them.

    fabric: the network for projections. words: what the compiler wrote on standard error. Raises what
    `meshmark.interpreter.schedule.parse_schedule` raises.
    """
    text = compiled.as_text()
    needs = compile_only.needs(compiled)
    cost = compiled.cost_analysis() or {}
    return (
        {name: needs[name] for name in ("argument_bytes", "output_bytes", "temp_bytes", "memory_bytes")}
        | {"peak_bytes": getattr(compiled.memory_analysis(), "peak_memory_in_bytes", None)}
        | {"flops": cost.get("flops"), "bytes_accessed": cost.get("bytes accessed")}
        | of_text(text, case, fabric)
        | {"rematerialization_warnings": words.count(WARNING)}
    )


def of_text(text: str, case: Case, fabric: Fabric | None = None) -> dict[str, Any]:
    """The counters that the text alone gives."""
    read = schedule.parse_schedule(text, case.mesh.size)
    kinds = [c.kind for c in read.collectives]
    pairs = [_pair(p, case, fabric) for p in read.pairs if p.kind != "copy"]
    return {
        "scheduled": read.scheduled,
        "collectives": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "collective_runs": sum(1 if c.trips is None else c.trips for c in read.collectives),
        "inserted": read.inserted,
        "wire_bytes": sum(map(wire_bytes, read.collectives)),
        "pairs": pairs,
        "exposed_s": _exposed(read, pairs, fabric),
        "copies": sum(p.kind == "copy" for p in read.pairs),
        "idle_copies": sum(p.kind == "copy" and p.synchronous for p in read.pairs),
        "loops": list(read.loops),
        "decomposed": read.decomposed,
        "rematerialized": read.rematerialized,
        "host": compile_only.round_trips(text),
    }


def _exposed(read: Schedule, pairs: Sequence[Mapping[str, Any]], fabric: Fabric | None) -> float | None:
    """Seconds of communication that no work hides, in one execution, projected; None if unknown. A collective that is
    not split into a start and a done is exposed as a whole."""
    started = [p for p in pairs if p["kind"] not in ("send", "recv") or "bytes" in p]
    if fabric is None or any("exposed_s" not in p for p in started):
        return None
    whole = sum(network_seconds(c, fabric) for c in read.collectives if not c.asynchronous)
    return whole + sum(p["exposed_s"] * (1 if p["trips"] is None else p["trips"]) for p in started)


def _pair(pair: Pair, case: Case, fabric: Fabric | None) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": pair.kind, "trips": pair.trips, "synchronous": pair.synchronous}
    if pair.collective:
        found["bytes"] = pair.collective.nbytes
    if pair.between is not None:
        found |= {"between_flops": pair.between.flops, "between_bytes": pair.between.nbytes}
        if pair.between.unknown:
            found["unknown"] = list(pair.between.unknown)
        elif pair.collective and fabric:
            request = case.cell.request
            found["exposed_s"] = exposed_seconds(
                pair.collective,
                fabric,
                pair.between.flops,
                pair.between.main_bytes,
                request.dtype,
                case.plan.precision,
            )
    return found
