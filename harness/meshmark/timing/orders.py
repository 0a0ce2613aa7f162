# SPDX-License-Identifier: Apache-2.0
"""Decides which orders the ratios of a table may claim: slower, faster, the best mode, or none.

A table of m ratios can claim an order from `needed(m)` processes on, by intervals that are corrected over all ratios.
This assumes that the effect of a process on a mode does not persist in the next process. Two observations in the table
contradict that, and then it claims no order: controls that exclude 1, and neighbouring processes that resemble each
other.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshmark.core.statistics import Estimate
from meshmark.timing import figures
from meshmark.timing.cells import BASE, Cells
from meshmark.timing.figures import over_processes

ERROR = 0.05
"""The probability that a table claims any order if there is none."""

DOUBT = 0.01
"""The probability that a table is called one whose neighbours are alike, although the order of its processes is
random."""

SHUFFLES = 1999
"""The number of random orders of the processes that are compared with the real order."""

UNRESOLVED = "not resolved"


def needed(number: int) -> int:
    """The least number of processes with which a table of this many ratios can claim an order: ceil(log2(2 number /
    0.05)).

    Raises ValueError for less than one ratio.
    """
    if number < 1:
        raise ValueError(f"a table of ratios has at least one, not {number}")
    return math.ceil(math.log2(2 * number / ERROR))


@dataclass(frozen=True)
class Table:
    """The ratios of one table."""

    number: int
    """The number of its ratios, controls included."""
    doubt: str = ""
    """The reason why the table claims no order. "" if it may claim one."""

    @classmethod
    def of(cls, ratios: Sequence[Sequence[float]], controls: Sequence[Sequence[float]]) -> Table:
        """The table of these ratios and controls, one list over processes each."""
        doubt = distrust_controls(controls) or distrust_neighbours([*ratios, *controls])
        return cls(len(ratios) + len(controls), doubt)

    def correct(self, ratios: Sequence[float]) -> Estimate:
        """One of the ratios with its interval, corrected over all of them (Bonferroni)."""
        return over_processes(ratios, 1 - ERROR / max(1, self.number))

    def order(self, ratios: Sequence[float]) -> str:
        """slower, faster or not resolved: whether the corrected ratio excludes 1, in a table that may claim it."""
        found = self.correct(ratios)
        if self.doubt or found.low <= 1 <= found.high:
            return UNRESOLVED
        return "slower" if found.low > 1 else "faster"

    def best(self, against: Mapping[str, Sequence[float]], base: str) -> str:
        """The mode whose corrected interval lies below those of all other modes; "" if there is none.

        `against`: the ratios of each other mode to `base`, by process. All intervals of the table hold together with
        the probability of the correction, so disjoint intervals order two modes.
        """
        if self.doubt:
            return ""
        ends = {base: Estimate(1, 1, 1)} | {mode: self.correct(ratios) for mode, ratios in against.items()}
        for mode, own in ends.items():
            if against and all(own.high < each.low for other, each in ends.items() if other != mode):
                return mode
        return ""


@dataclass(frozen=True)
class Ratios:
    """The ratios of the table of one cadence, one list over processes each. Cases without a time have none."""

    modes: dict[str, dict[str, list[float]]]
    """The ratios to manual mode of the same cell, by cell and mode."""
    controls: dict[tuple[str, str], list[float]]
    """The ratios of controls to their own cases, by cell and mode."""
    table: Table
    by_process: dict[tuple[str, str], dict[int, float]]
    """The ratios to manual mode of the same cell, by cell and mode, with the processes."""

    @classmethod
    def of(cls, cells: Cells, cadence: str) -> Ratios:
        """The ratios of these cells."""
        modes: dict[str, dict[str, list[float]]] = defaultdict(dict)
        controls, by_process = {}, {}
        for (cell, own_cadence), found in cells.items():
            for mode, own in found.items() if own_cadence == cadence else ():
                if mode != BASE and (one := figures.ratios_by_process(own, found.get(BASE, ()))):
                    modes[cell][mode], by_process[cell, mode] = list(one.values()), one
                if ratios := figures.ratios(own, own, "control_s"):
                    controls[cell, mode] = ratios
        each = [ratios for own in modes.values() for ratios in own.values()]
        return cls(dict(modes), controls, Table.of(each, list(controls.values())), by_process)

    def best(self, cell: str) -> str:
        """The fastest mode of a cell, by the table's corrected intervals; "" if none is certain."""
        return self.table.best(self.modes.get(cell, {}), BASE)


def distrust_controls(controls: Sequence[Sequence[float]]) -> str:
    """Why the controls of a table, one list of ratios over processes each, leave its orders in doubt; else "".

    Five in a hundred controls exclude 1 by chance. If significantly more do (binomial, 5 percent), a difference between
    modes persists from process to process, and every interval over processes is too narrow.
    """
    from scipy import stats  # only here: it takes half a second to import

    ends = [found for each in controls if math.isfinite((found := over_processes(each)).high)]
    out = sum(not found.low <= 1 <= found.high for found in ends)
    if not out or stats.binom.sf(out - 1, len(ends), ERROR) >= ERROR:
        return ""
    return (
        f"{out} of {len(ends)} controls, the same program twice, exclude 1: what sets modes apart here stays"
    )


def distrust_neighbours(ratios: Sequence[Sequence[float]]) -> str:
    """Why the order of its processes leaves the ratios of a table in doubt; else "".

    The rank of each process in a ratio is compared with that of the next process: the rank version of von Neumann's
    ratio (R. Bartels, J. Am. Statist. Assoc. 77 (1982) 40), summed over the table. This sum is compared with the sums
    for random orders of all processes, so ratios may depend on each other. A ratio that some process lacks is left out.
    """
    number = max(Counter(map(len, ratios)).items(), key=lambda kv: kv[1], default=(0, 0))[0]
    if number < needed(1):
        return ""
    from scipy import stats

    ranks = stats.rankdata([each for each in ratios if len(each) == number], axis=1)
    apart = ((ranks[:, :, None] - ranks[:, None, :]) ** 2).sum(0)
    rng = np.random.default_rng(number)
    shuffled = rng.permuted(np.tile(np.arange(number), (SHUFFLES, 1)), axis=1)
    least = apart[np.arange(number - 1), np.arange(1, number)].sum()
    closer = (apart[shuffled[:, :-1], shuffled[:, 1:]].sum(1) <= least).sum()
    p = (1 + closer) / (1 + SHUFFLES)
    if p >= DOUBT:
        return ""
    return f"processes are like their neighbours (p {p:.2g}): hours in which one mode is slower look like an order"
