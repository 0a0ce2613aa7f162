# SPDX-License-Identifier: Apache-2.0
"""Checks the number of samples over several processes, whose run counts the time of the slowest rank's samples
(`timing.counts`).

The ranks stop by a rule that needs their samples alone (core.blocks), so it is computed again. If the slowest samples
are dropped, the rest takes too little time, and the ranks would have gone on. The times of rounds are not recorded:
most of the time between two samples is waiting for other ranks, which says nothing about samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshmark.core import blocks
from meshmark.publish.rounds import EQUAL, TAKEN, Line
from meshmark.records import run_line
from meshmark.records.run_definition import RunLine


def of_cell(found: Sequence[Line], run: RunLine) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the lines of one cell, cadence and process, with equally many samples on each rank."""
    first, timing = found[0][0], run["timing"]
    number, size = len(found[0][1]["samples_s"]), run_line.processes(run["facts"])
    by_rank: list[list[blocks.Series]] = [[] for _ in range(size)]
    for line, record in found:
        ranks = record.get("samples_by_rank", ())
        if [len(own) for own in ranks] != [number] * size or not all(min(own) > 0 for own in ranks):
            yield line, f"does not have {number} samples of each of {size} ranks (`samples_by_rank`): {TAKEN}"
            return
        for series, samples in zip(by_rank, ranks, strict=True):
            series.append((samples, record.get("calls", 1)))
    budget = (timing["seconds"] or 0.0) * len(found)
    reached, last = {max(1, int(timing["least"]))}, 0
    while reached:
        if number in reached and 0 in _next(by_rank, number, budget, timing["most"]):
            return
        last = max(reached)
        reached = {
            done + more
            for done in reached
            if done <= number
            for more in _next(by_rank, done, budget, timing["most"])
            if more
        }
    taken = max(blocks.spent(series, number) for series in by_rank)
    rule = "more" if last > number else "as many or fewer"
    yield (
        first,
        f"{number} rounds, of which the slowest rank took {taken:.6g} s of {budget:.6g} s, and the rule of the run"
        f" gives {rule}: {TAKEN}",
    )


def _next(by_rank: Sequence[Sequence[blocks.Series]], done: int, budget: float, most: int) -> set[int]:
    """The next numbers of rounds that the rule may give: two where rounding of the samples decides."""
    taken = max(blocks.spent(series, done) for series in by_rank)
    return {blocks.next_block(taken * factor, done, budget, most) for factor in (1 - EQUAL, 1 + EQUAL)}
