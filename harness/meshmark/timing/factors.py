# SPDX-License-Identifier: Apache-2.0
"""Computes one factor for the time of a mode relative to manual mode over several cells, with its interval.

The process is the replicate. In each process the factor is the median of that process's ratios, and the value is the
median over processes. Only cells that every process timed count: otherwise the medians of processes would be over
different cells. From six processes on a factor has a 95 percent interval, which is not corrected for other factors.
With fewer processes it has none and is not published. A factor claims no order. The ratios of the cells do, corrected
over their table.
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
    """The ratio to manual mode in each process, by cell, cadence and mode. `tables`: by cadence. `published`: if given,
    only ratios of two times that it holds."""
    return {
        (cell, cadence, mode): each
        for cadence, table in tables.items()
        for (cell, mode), each in table.by_process.items()
        if published is None or {(cell, cadence, mode), (cell, cadence, BASE)}.issubset(published)
    }


def find_factors(
    ratios: Mapping[Key, Mapping[int, float]], group: Callable[[str], tuple[str, ...]]
) -> list[Factor]:
    """The factor of each group of cells, cadence and mode. `group` gives the group of a cell's id."""
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
    """The times of several runs relative to the first one: (the number of shared cells, (processes, factor) per run).

    `of`: for each run, seconds by cell and process. The factor of a process is the median over the shared cells of its
    time over the first run's median of that cell. So the interval shows how far the processes of one run differ. It
    does not cover what the machine did between two runs. Without a shared cell the result is (0, []).
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
