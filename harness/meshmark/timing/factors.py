# SPDX-License-Identifier: Apache-2.0
"""The time of a mode relative to manual mode over several cells: one factor, with its interval over processes.

The process is the replicate. In each process the factor is the median of that process's own ratios, and its value is
that of the processes together. Only cells that every process timed count: otherwise processes would have medians of
different cells. From six processes on a factor has a 95 percent interval, which nothing else corrects. Fewer give none,
and then the factor is not published. A factor claims no order: the ratios of the cells do, corrected over their table.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshmark.core import statistics
from meshmark.core.statistics import Estimate
from meshmark.timing.cells import BASE
from meshmark.timing.orders import Ratios

Key = tuple[str, str, str]
"""A cell, a cadence and a mode."""


@dataclass(frozen=True)
class Factor:
    """The median ratio of several cells to manual mode."""

    group: tuple[str, ...]
    cadence: str
    mode: str
    cells: int
    """How many cells it is the median of: those that every process timed."""
    processes: int
    value: Estimate
    """Its interval is wider where processes are like those before and after them; without one its ends are infinite."""

    @property
    def known(self) -> bool:
        """Whether it has an interval, and may be published."""
        return math.isfinite(self.value.high)


def ratios(
    tables: Mapping[str, Ratios], published: Collection[Key] | None = None
) -> dict[Key, Mapping[int, float]]:
    """The ratio to manual mode in each process, of the tables by cadence; where `published` is given, only of times
    that it holds."""
    return {
        (cell, cadence, mode): each
        for cadence, table in tables.items()
        for (cell, mode), each in table.by_process.items()
        if published is None or {(cell, cadence, mode), (cell, cadence, BASE)}.issubset(published)
    }


def find_factors(
    ratios: Mapping[Key, Mapping[int, float]], group: Callable[[str], tuple[str, ...]]
) -> list[Factor]:
    """The factor of each group of cells, cadence and mode; `group` names the group of a cell, from its id."""
    every: dict[tuple[tuple[str, ...], str, str], list[Mapping[int, float]]] = defaultdict(list)
    for (cell, cadence, mode), each in ratios.items():
        every[group(cell), cadence, mode].append(each)
    found = []
    for (name, cadence, mode), own in every.items():
        processes = sorted({process for each in own for process in each})
        whole = [each for each in own if all(process in each for process in processes)]
        if not whole:
            continue
        medians = [_middle([each[process] for each in whole]) for process in processes]
        value = statistics.series_median(medians)
        found.append(Factor(name, cadence, mode, len(whole), len(processes), value))
    return found


def find_trend(of: Sequence[Mapping[Any, Mapping[int, float]]]) -> tuple[int, list[tuple[int, Estimate]]]:
    """How the times of several runs stand to the first: (the number of cells that all of them have, for each run its
    processes and its factor).

    `of`: for each run, seconds by cell and process. A process's factor is the median over the shared cells of its time
    over the first run's median of that cell, so the interval says how far the processes of one run differ. It knows
    nothing of what the machine did between two runs. No shared cell: (0, []).
    """
    shared = [cell for cell in of[0] if all(run.get(cell) for run in of)] if of else []
    each = [{p for cell in shared for p in run[cell]} for run in of]
    shared = [c for c in shared if all(run[c].keys() == p for run, p in zip(of, each, strict=True))]
    if not shared:
        return 0, []
    first = {cell: _middle(list(of[0][cell].values())) for cell in shared}
    found = []
    for run, processes in zip(of, each, strict=True):
        medians = [_middle([run[c][p] / first[c] for c in shared]) for p in sorted(processes)]
        found.append((len(processes), statistics.series_median(medians)))
    return len(shared), found


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values).value
