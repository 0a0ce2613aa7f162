# SPDX-License-Identifier: Apache-2.0
"""A benchmark run: times cells in contained children, family by family, and gives timing records.

One child times one family of operations on all meshes and sizes, so that the points of a sweep, and the cases it is
compared with, come from one process. With several processes all of this repeats, one process at a time, because
identical processes differ more than the samples of one (docs/benchmarks.md has the figures).
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from meshmark.core.meshes import MeshShape
from meshmark.devices.facts import Facts
from meshmark.levels.expectations import Expectations
from meshmark.levels.known_issues import Issue
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import MODES, Operation, Request, Variant, parse_size
from meshmark.operations.cases import Cell
from meshmark.operations.selection import Selection, SelectionError
from meshmark.records.reading import Records
from meshmark.timing import footprint
from meshmark.timing.cells import BASE, cell_of
from meshmark.timing.children import Children
from meshmark.timing.timer import Job

SECONDS = {"quick": 0.06, "standard": 0.2, "full": 0.5, "sweep": 0.06}
"""Seconds of sampling for each program and cadence, by profile."""

NOISY_SPREAD = 0.25
"""A machine is called noisy if the spread of a fixed piece of work is above this."""

NOISY_LOAD = 0.5
"""A machine is called busy if the load average per core before the run is above this."""

SCALED = ("psum", "all_gather", "matmul", "mlp", "data_parallel")
"""The operations that `--scaling` times by default."""

STRONG_BYTES, WEAK_BYTES = 8 * 2**20, 2**20
"""S for the scaling of collectives: of all devices together (strong), of one device (weak)."""

Todo = list[tuple[Cell, list[str]]]


@dataclass
class Progress:
    """The progress of a run."""

    cells: int
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    left: dict[str, int] = field(default_factory=dict)
    """The number of processes in which each cell is still to be timed."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each cell took that was timed, in its last process, with its share of what starts a process."""
    spread: float = 0.0
    """The largest variation of a fixed piece of work: its 90th percentile over its fastest time, minus one."""
    raw: list[str] = field(default_factory=list)
    """The raw standard error of children that died."""

    def take(self, cell: str, seconds: float) -> None:
        """Note a cell that was timed in one process, and the seconds since the cell before."""
        self.done += 1
        self.seconds[cell] = seconds
        if cell in self.left:
            self.left[cell] -= 1

    def rest(self) -> float | None:
        """The expected seconds until the end; None before any cell was timed.

        A cell that was timed in a process before counts with its last time, and any other one with the average.
        """
        if not self.seconds:
            return None
        average = sum(self.seconds.values()) / len(self.seconds)
        return sum(times * self.seconds.get(cell, average) for cell, times in self.left.items())


def select_cells(selection: Selection, facts: Facts) -> tuple[Todo, list[str]]:
    """(the cells to time with their modes, the reasons for omitted ones). SelectionError if a named size does not fit,
    or if nothing is selected.

    In a sweep a size with the same payload as the size before is omitted. After the first size that does not fit, the
    larger ones are omitted without a reason of their own."""
    found: Todo = []
    left_out = []
    payloads: dict[str, int] = {}
    for cell, modes in cases.cells(selection, facts.num_devices):
        if selection.profile == "sweep":
            series, payload = cell.id.rpartition("/")[0], cell.plan.cost.nbytes
            if payload <= payloads.get(series, 0):
                continue
            payloads[series] = payload
        refused = footprint.refusal(cell, facts)
        if refused and selection.sizes:
            raise SelectionError(f"{refused}: name a smaller size")
        if refused:
            left_out.append(refused)
            if selection.profile == "sweep":
                payloads[cell.id.rpartition("/")[0]] = sys.maxsize
        else:
            found.append((cell, modes))
    if not found:
        if left_out:
            raise SelectionError(f"{left_out[0]}: name a smaller size")
        cases.not_empty(selection, facts.num_devices)
    return found, left_out


def scaling(selection: Selection, facts: Facts) -> tuple[Todo, list[str]]:
    """The cells of strong and weak scaling over meshes of one axis of 1, 2, 4 ... devices.

    Collectives, from two devices on: the same S over all devices (strong), and the same S per device (weak). Others:
    the same dimensions (strong), and the dimensions whose flops per device are nearest to those on one device (weak).
    Returns (the cells with their modes, the reasons for omitted ones). SelectionError for an operation that is not
    timed.
    """
    every = scaled_cells(selection, facts.num_devices)
    refused = [footprint.refusal(cell, facts) for cell, _ in every]
    found = [pair for pair, why in zip(every, refused, strict=True) if not why]
    return found, [why for why in refused if why]


def scaled_cells(selection: Selection, num_devices: int) -> Todo:
    """The cells of `scaling` with their modes, whatever memory they need."""
    counts = [2**i for i in range(20) if 2**i <= num_devices]
    every: Todo = []
    for name in selection.operations or SCALED:
        operation = OPERATIONS[name]
        if not operation.timed:
            fit = ", ".join(o.name for o in OPERATIONS.values() if o.timed)
            raise SelectionError(f"{name} is not timed over sizes: choose from {fit}")
        dtype = (selection.dtypes or operation.dtypes)[0]
        for mesh in (MeshShape((count,)) for count in counts):
            for variant in operation.timed_variants(mesh):
                modes = [
                    mode
                    for mode in selection.modes or MODES[:3]
                    if operation.absent(mode, variant, mesh) is None
                ]
                for size in _sizes(operation, variant, mesh) if modes else ():
                    every.append((Cell(operation, Request(variant, mesh, dtype, size), 0), modes))
    return every


def _sizes(operation: Operation, variant: Variant, mesh: MeshShape) -> list[str]:
    """The size labels of strong and of weak scaling on a mesh."""
    ordinary = [size for size, weight in operation.timed.items() if weight <= 1]
    if not ordinary[0].startswith("n"):
        if mesh.size == 1:
            return []
        return list(dict.fromkeys(f"{b // 1024}KiB" for b in (STRONG_BYTES // mesh.size, WEAK_BYTES)))

    def flops(n: int, on: MeshShape) -> float:
        request = Request(variant, on, operation.dtypes[0], f"n{n}")
        return operation.plan(request).cost.flops / on.size

    strong = max(map(parse_size, ordinary))
    small = strong // 2
    wanted = flops(small, MeshShape((1,)))
    weak = min(range(8, small * mesh.size + 8, 8), key=lambda n: abs(flops(n, mesh) - wanted))
    return list(dict.fromkeys([f"n{strong}", f"n{weak}"]))


def done_before(records: Records) -> set[tuple[str, int]]:
    """(cell id, process) of the finished part of an interrupted run."""
    return {(cell_of(r["case"]), r["process"]) for r in records.timings if "seconds" in r}


def time_cells(
    todo: Todo,
    facts: Facts,
    job: Job,
    processes: int,
    write: Callable[[list[dict[str, Any]]], None],
    finished: set[tuple[str, int]],
    tell: Callable[[Progress], None],
    expected: Expectations,
    variables: Mapping[str, str] | None = None,
) -> Progress:
    """Time each cell in this number of processes, with these environment variables, write each record at once, and
    report the progress."""
    issues = expected.issues(facts.to_json())
    again = Counter(
        cell.id for cell, _ in todo for process in range(processes) if (cell.id, process) not in finished
    )
    progress = Progress(again.total(), left=dict(again))
    chosen = controls(todo)
    last = time.monotonic()
    with Children(environment=variables or {}) as children:
        for process in range(processes):
            for _, group in groupby(todo, lambda pair: pair[0].operation.family):
                cells = [
                    [cell.case(mode).id for mode in modes]
                    for cell, modes in group
                    if (cell.id, process) not in finished
                ]
                if not cells:
                    continue
                for message in children.run(replace(job, cells=cells, process=process, controls=chosen)):
                    _take(message, write, issues, progress)
                    if "timings" in message and not message.get("unfinished"):
                        progress.take(message["cell"], time.monotonic() - last)
                        last = time.monotonic()
                    tell(progress)
                job = replace(job, ceilings=False)  # once is enough
        progress.raw += children.raw
    return progress


def controls(todo: Todo) -> list[str]:
    """The cases that are timed twice, under two names: one per family, so that each table has a control row.

    It is the middle cell of the family, in the mode with which the others are compared.
    """
    found = []
    for _, group in groupby(todo, lambda pair: pair[0].operation.family):
        cells = list(group)
        cell, modes = cells[len(cells) // 2]
        found.append(cell.case(BASE if BASE in modes else modes[0]).id)
    return found


def _take(
    message: dict[str, Any],
    write: Callable[[list[dict[str, Any]]], None],
    issues: Sequence[Issue],
    progress: Progress,
) -> None:
    if "timings" in message:
        for record in message["timings"]:
            mark_known(record, issues)
        if message["timings"]:
            write(message["timings"])
    elif "ceilings" in message:
        write([{"schema": 1, "kind": "ceiling", **c} for c in message["ceilings"]])
    elif "end" in message:
        progress.spread = max(progress.spread, *message["spread"])


def mark_known(record: dict[str, Any], issues: Sequence[Issue]) -> None:
    """Change the verdict of a bad timing line to `known` if a listed issue covers it."""
    for issue in issues:
        failure = record["check"], record["verdict"], record["reason"], record.get("stderr")
        if issue.covers(record["case"]) and issue.explains(*failure):
            record |= {"was": record["verdict"], "verdict": "known", "link": issue.link}
            record["reason"] = f"{issue.why} | {record['reason']}"


def noise(progress: Progress) -> Iterator[str]:
    """One line if a fixed piece of work varied too much during this run."""
    if progress.spread > NOISY_SPREAD:
        yield (
            f"a noisy machine: a fixed piece of work varied by up to {100 * progress.spread:.0f} %"
            " (90th percentile over the fastest)"
        )


def load() -> Iterator[str]:
    """One line if this machine is busy with other work."""
    try:
        busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return
    if busy > NOISY_LOAD:
        yield f"the machine is busy: load average {busy:.2f} per core in the last minute, before this run"
