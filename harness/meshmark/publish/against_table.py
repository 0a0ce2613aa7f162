# SPDX-License-Identifier: Apache-2.0
"""Checks records against the case table, in the version that their run line names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from meshmark import __version__
from meshmark.core import meshes
from meshmark.levels import must_pass as levels
from meshmark.operations import OPERATIONS, cases, versions
from meshmark.operations.base import MODES, Plan
from meshmark.operations.cases import Case
from meshmark.operations.selection import CAPABILITIES, Selection, SelectionError
from meshmark.operations.versions import Table, TableError
from meshmark.publish.review import AS_WRITTEN, Review
from meshmark.records import run_line
from meshmark.records.definition import ConformanceLine, TimingLine
from meshmark.records.run_definition import RunFacts, RunLine

MOST_SOUGHT = 2000
"""The most cases outside the profile `full` that are looked up one by one."""


@lru_cache(maxsize=8)
def _full(devices: int, processes: int, timed: bool, operations: tuple[str, ...]) -> dict[str, Case]:
    if not operations:
        return {}
    every = tuple(CAPABILITIES)
    chosen = Selection("full", capabilities=every, operations=operations, timed=timed, processes=processes)
    return {case.id: case for case in cases.cases(chosen, devices)}


class Lookup:
    """Finds cases of today's table by id, for the devices and processes of a run."""

    def __init__(self, facts: RunFacts, timed: bool, operations: set[str]) -> None:
        """Start with the profile `full` of these operations, with every capability."""
        self.devices = min(facts["num_devices"], levels.MOST_DEVICES)
        self.processes = min(run_line.processes(facts), self.devices)
        self.timed, self._sought = timed, 0
        named = tuple(sorted(operations & set(OPERATIONS)))
        self._cases = dict(_full(self.devices, self.processes, timed, named))

    def get(self, name: str) -> Case | None:
        """The case with this id, also from outside the profile `full`; None if there is none."""
        if name not in self._cases and self._sought < MOST_SOUGHT:
            self._sought += 1
            try:
                case = cases.find(name, self.devices, self.processes)
                if self.timed or case.cell.request.size in case.operation.sizes:
                    self._cases[name] = case
            except (SelectionError, ValueError, OverflowError, MemoryError):
                return None
        return self._cases.get(name)


def table_of(run: RunLine) -> Table | None:
    """The table in the version that a run line names; None if this suite does not know the version."""
    try:
        return versions.as_of(run_line.table_version(run))
    except TableError:
        return None


def version_problem(run: RunLine) -> str:
    """Why a run can't be checked against the table; "" if it can."""
    try:
        versions.as_of(run_line.table_version(run))
    except TableError as error:
        return str(error)
    return ""


def plan_of(case: Case, run: RunLine) -> Plan:
    """The plan of a case in the run's version of the table; today's if this suite does not know the version."""
    table = table_of(run)
    return case.plan if table is None else table.plan(case)


def agrees(
    name: str,
    number: int,
    record: ConformanceLine | TimingLine,
    case: Case | None,
    run: RunLine,
    review: Review,
) -> bool:
    """Whether the run's version of the table has the case, with the level and size of the record. If the version is
    unknown, returns False without a complaint, because the run line already has one."""
    table = table_of(run)
    if table is None:
        return False
    if case is None or not table.has(case):
        version = run["facts"]["suite"]["version"]
        if version == __version__:
            text = f"the table has no case {record['case']}: use the suite that was run"
            review.complain(name, text, number, "not in the table")
        else:
            note = f"cases that this table does not have are not checked against it (suite {version})"
            review.notes += [] if note in review.notes else [note]
        return False
    entry = table.entry(case)
    for what, value, said in (
        ("level", entry.level, record["level"]),
        ("size_bytes", entry.size_bytes, record["size_bytes"]),
    ):
        if said != value:
            text = f"{what} of {record['case']} is {value} in the table, not {said}: {AS_WRITTEN}"
            review.complain(name, text, number, "level or size")
    return True


def wrong_costs(record: TimingLine, case: Case, run: RunLine) -> Iterator[str]:
    """Yields where the cost of a timing differs from the run's version of the table."""
    table = table_of(run)
    if table is None:
        return
    cost, told = table.entry(case).cost, record["cost"]
    for what, value, said in (
        ("flops", cost.flops, told["flops"]),
        ("nbytes", cost.nbytes, told["nbytes"]),
        ("factor", cost.factor, told["factor"]),
    ):
        if not math.isclose(said, value, rel_tol=1e-9):
            yield f"cost {what} is {value} in the table, not {said}: {AS_WRITTEN}"
    if record["devices"] != case.mesh.size:
        yield f"{record['devices']} devices on a mesh of {case.mesh.size}: {AS_WRITTEN}"


def untimed_modes(
    lines: Sequence[tuple[int, TimingLine]], runs: Mapping[str, RunLine]
) -> Iterator[tuple[int, str]]:
    """(line, problem) of cells for which a run timed only some modes. A mode that could not be timed still has a line,
    which says why."""
    cells: dict[tuple[str, ...], dict[str, int]] = {}
    for number, record in lines:
        selection, parts = runs[record["run"]].get("selection") or {}, record["case"].split("/")
        if selection.get("modes") or "environment" in runs[record["run"]] or record["mode"] not in MODES[:3]:
            continue
        key = record["run"], record["cadence"], *parts[:2], *parts[3:]
        cells.setdefault(key, {})[record["mode"]] = number
    for (_, cadence, operation, variant, mesh, *rest), seen in cells.items():
        for mode in (mode for mode in MODES[:3] if mode not in seen):
            own = "/".join((operation, variant, mode, mesh, *rest))
            if _is_spelled(operation, variant, mode, mesh):
                first = min(seen.values())
                yield first, f"{own} is not timed in cadence {cadence}, and other modes are: {AS_WRITTEN}"


@lru_cache(maxsize=4096)
def _is_spelled(operation: str, variant: str, mode: str, mesh: str) -> bool:
    """Whether the operation has this mode for this variant and mesh, so that a run times it too."""
    found = OPERATIONS.get(operation)
    if found is None or not found.timed:
        return False
    try:
        shape = meshes.parse_mesh(mesh)
    except ValueError:  # another rule reports that the case is not in the table
        return False
    own = [one for one in found.timed_variants(shape) if one.label == variant]
    return bool(own) and found.absent(mode, own[0], shape) is None


def compiles_as_today(case: Case | None, run: RunLine) -> bool:
    """Whether the case compiles to the same program as in today's table, so that the committed counters apply."""
    table = table_of(run)
    return case is None or (table is not None and table.compiles_as_today(case))
