# SPDX-License-Identifier: Apache-2.0
"""Finds the cells that a run was to time and did not, and the cadences in which a cell was not timed.

Only the run knows which cells did not fit into its memory. But it timed every cell that fits, so a missing one needs
more memory than those that are there. Without this rule, a product could keep only the cells in which it is fast.
Runs of earlier versions do not close their files, and may have been cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.devices import chips
from meshmark.operations import versions
from meshmark.operations.cases import Case
from meshmark.operations.selection import SelectionError
from meshmark.publish import consistent, field_checks
from meshmark.publish.review import AS_WRITTEN, Entry
from meshmark.records.run_definition import RunFacts, RunLine
from meshmark.timing import footprint

ALWAYS_FITS = 1 << 28
"""Bytes of host memory that every machine has on which JAX runs."""

SHRUNK = 0.5
"""The part of the memory that it had for one cell that a machine still has for another one of the same run."""


def find_untimed(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(line, problem) of the timed cells of a file."""
    yield from _cadences(lines)
    parts: dict[str, list[RunLine]] = {}
    for _, run in lines:
        if run["kind"] == "run" and _closes(run):
            parts.setdefault(consistent.whole_run(run), []).append(run)
    for runs in parts.values():
        own = {run["run"] for run in runs}
        timed = {r["case"]: n for n, r in reversed(lines) if r["kind"] == "timing" and r["run"] in own}
        if not timed:
            continue
        try:
            chosen = field_checks.given(runs[0])
        except (SelectionError, versions.TableError, TypeError, ValueError):
            continue  # another rule reports the selection
        if missing := sorted(_fitting(chosen, set(timed), runs[0])):
            text = f"{len(missing)} of {len(chosen)} cases of its selection are not timed, and would fit into memory"
            yield min(timed.values()), f"{text}, such as {missing[0]}: {AS_WRITTEN}"


def _closes(run: RunLine) -> bool:
    """Whether a run closes its file, so that it says that it is whole, and compares nothing."""
    return bool(run.get("closes")) and "environment" not in run


def _fitting(chosen: Mapping[str, Case], timed: set[str], run: RunLine) -> Iterator[str]:
    """Yields the chosen cases that are not timed and that fit into the memory of the run."""
    facts = run["facts"]
    sweep = (run.get("selection") or {}).get("profile") == "sweep"
    chip = chips.chip_of(str(facts["device_kind"]))
    there = [_needed(chosen[name], facts) for name in timed & set(chosen)]
    host = max(ALWAYS_FITS, SHRUNK * max((need for _, need in there), default=0))
    payloads = {(_series(case), case.plan.cost.nbytes) for name, case in chosen.items() if name in timed}
    for name, case in chosen.items():
        if name in timed or (sweep and (_series(case), case.plan.cost.nbytes) in payloads):
            continue  # a sweep times each payload once
        device, needs = _needed(case, facts)
        if needs <= host and not (chip and device > chip.memory_bytes / chip.devices_per_chip):
            yield name


def _needed(case: Case, facts: RunFacts) -> tuple[int, int]:
    """The bytes that timing a case needs on one device, and on the host: virtual devices use the host's memory."""
    device, host = footprint.device_bytes(case.cell), footprint.host_bytes(case.cell)
    return (0, host + device * case.mesh.size) if facts.get("virtual") else (device, host)


def _series(case: Case) -> str:
    return case.id.rpartition("/")[0]


def _cadences(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(line, problem) of cells of which all lines pass, and which are not timed in every cadence of their run."""
    runs = {record["run"]: record for _, record in lines if record["kind"] == "run"}
    cells: dict[tuple[Any, ...], tuple[int, dict[str, set[str]], set[str]]] = {}
    for number, record in lines:
        if record["kind"] != "timing" or not _closes(runs[record["run"]]):
            continue
        operation, variant, mode, *rest = record["case"].split("/")
        key = record["run"], record["process"], operation, variant, *rest
        _, modes, verdicts = cells.setdefault(key, (number, {}, set()))
        modes.setdefault(mode, set()).add(record["cadence"])
        verdicts.add(record["verdict"])
    for (run, process, operation, *_), (number, modes, verdicts) in cells.items():
        wanted = (runs[run].get("timing") or {}).get("cadences") or ()
        lacking = [(mode, one) for mode, own in modes.items() for one in wanted if one not in own]
        if lacking and verdicts == {"pass"}:
            mode, cadence = lacking[0]
            text = f"mode {mode} of this cell of {operation} is not timed in cadence {cadence} in process {process}"
            yield number, f"{text}, which its run takes: {AS_WRITTEN}"
