# SPDX-License-Identifier: Apache-2.0
"""Checks samples whose run counts their own time (`timing.counts`), and the times of their rounds (`rounds_s`).

Such a run stops sampling a cell by a rule without tolerance: at the most samples, or with the first round after which
the samples of all programs have taken more than the time that the run gives. The number of samples at the fewest and
at the most is fixed by the version. If the slowest samples of each program are dropped, the rest takes too little time,
or a round less. The rest can fit the rule only if the time that the run gives is changed as well.

The times of rounds hold what happened between samples. If a slow sample is dropped or replaced, later samples are in
rounds that were too short for them, or a gap of its length is left. So the times of all rounds must be made up again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from meshmark.core.blocks import Series
from meshmark.records.definition import TimingLine
from meshmark.records.run_definition import RunLine
from meshmark.timing.measure import Budget

Line = tuple[int, TimingLine]
"""A timing record with its line number."""

EQUAL = 1e-6
"""The relative difference up to which two sums of samples are equal: samples have seven digits."""

TICK = 1.5e-6
"""Seconds: the times of rounds are whole microseconds, and a round has two of them."""

ALONE = ("plain", "device")
"""The cadences in which each mode is sampled by itself."""

UNUSUAL = 0.02
"""The largest share of sampling time that may lie between samples, beside what the middle round of each cell has there.
Two runs on two cores had 0.003 (load 3.5 per core) and 0.007 (load 7 per core)."""

PAUSE = 10.0
"""One gap counts at most as this many rounds: a machine may be stopped for a while."""

FEW_SECONDS = 0.1
"""Seconds of unusual gaps that are not enough to refuse a run."""

TAKEN = "give the samples as they were taken"


def of_cell(found: Sequence[Line], run: RunLine) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the lines of one cell, cadence and process, with equally many samples."""
    first, record = found[0]
    for number, other in found:
        if other.get("control_s") and other["cadence"] == "stream" and "control_calls" not in other:
            yield number, f"has a control, and no `control_calls`: {TAKEN}"
            return
    held = [number for number, other in found if "rounds_s" in other]
    if held != [first]:
        yield first, f"{len(held)} lines of this cell have `rounds_s`, and its first one has it: {TAKEN}"
        return
    together = _together(found)
    seconds = run["timing"]["seconds"] or 0.0
    if why := _unruly(together, seconds):
        yield first, f"{why}: {TAKEN}"
    for number, other in found:
        if other.get("control_s") and other["cadence"] in ALONE:
            alone: list[Series] = [(other["control_s"], 1)]
            times = other.get("control_rounds_s", ())
            if why := _unruly(alone, seconds) or _untimely(alone, times, "control_rounds_s"):
                yield number, f"its control: {why}: {TAKEN}"
    if why := _untimely(together, record["rounds_s"]):
        yield first, f"{why}: {TAKEN}"


def longer_than_their_cell(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    """(line, what can't be) where the rounds of a cell, in all cadences and modes of a process, took longer than the
    cell. The last line of a cell has the seconds of all of it."""
    spent: dict[tuple[str, int], list[float]] = {}
    for number, record in lines:
        own = spent.setdefault((record["run"], record["process"]), [])
        every = record.get("rounds_s"), record.get("control_rounds_s")
        own += (times[-1] for times in every if times)
        if "seconds" in record:
            took, whole = math.fsum(own), record["seconds"]
            own.clear()
            if took > whole + TICK:
                yield number, f"its cell took {whole:.4g} s, and the rounds of the cell {took:.4g} s: {TAKEN}"


def unusual_gaps(found: Sequence[Line]) -> tuple[float, float]:
    """(seconds between the samples of a cell beyond those of its middle round, seconds of its sampling)."""
    record = found[0][1]
    whole = _gaps(_together(found), record.get("rounds_s", ()))
    if record["cadence"] not in ALONE:
        return whole
    own = _gaps([(record.get("control_s", ()), 1)], record.get("control_rounds_s", ()))
    return whole[0] + own[0], whole[1] + own[1]


def _gaps(series: Sequence[Series], rounds: Sequence[float]) -> tuple[float, float]:
    sums = _sums(series)
    if len(rounds) != len(sums) + 1 or not sums or list(rounds) != sorted(rounds):
        return 0.0, 0.0  # another rule reports these times
    gaps = [after - before - own for (before, after), own in zip(pairwise(rounds), sums, strict=True)]
    usual, longest = statistics.median(gaps), PAUSE * statistics.median(sums)
    return sum(min(longest, gap - usual) for gap in gaps if gap > usual), rounds[-1]


def too_many_gaps(cells: Sequence[tuple[float, float]]) -> str:
    """Why the gaps between the samples of a run (`unusual_gaps` of each cell) are those of samples that were taken
    away; "" if they are not."""
    gaps, whole = (math.fsum(each) for each in zip(*cells, strict=True)) if cells else (0.0, 0.0)
    if gaps <= max(FEW_SECONDS, UNUSUAL * whole):
        return ""
    return (
        f"{gaps:.3g} s of the {whole:.4g} s of sampling are gaps between samples, {gaps / whole:.1%}, as if samples"
        f" were taken away: {TAKEN}"
    )


def _together(found: Sequence[Line]) -> list[Series]:
    """What was sampled in the rounds of these lines: their programs, and the controls that are not sampled alone."""
    series: list[Series] = []
    for _, record in found:
        series.append((record["samples_s"], record.get("calls", 1)))
        if record.get("control_s") and record["cadence"] not in ALONE:
            series.append((record["control_s"], record.get("control_calls", 1)))
    return series


def _sums(series: Sequence[Series]) -> list[float]:
    """The seconds that the samples of each round took."""
    each = [[s * calls for s in samples] for samples, calls in series]
    return [math.fsum(own) for own in zip(*each, strict=False)]


def _unruly(series: Sequence[Series], seconds: float) -> str:
    """Why sampling did not stop where the rule says; "" if it did."""
    sums, most = _sums(series), seconds * len(series)
    number, spent = len(sums), math.fsum(sums)
    if number > Budget.most or number < Budget.least:
        return f"{number} rounds, and a run takes {Budget.least} to {Budget.most}"
    if number < Budget.most and spent <= most * (1 - EQUAL):
        return f"{number} rounds took {spent:.6g} s of the run's {most:.6g} s, and it samples until they are spent"
    before = math.fsum(sums[:-1])
    if number > Budget.least and before > most * (1 + EQUAL):
        return f"{number - 1} rounds took {before:.6g} s of the run's {most:.6g} s, and another one was taken"
    return ""


def _untimely(series: Sequence[Series], rounds: Sequence[float], name: str = "rounds_s") -> str:
    """Why the rounds can't have taken place at these times; "" if they can. name: the field of the times."""
    sums = _sums(series)
    if len(rounds) != len(sums) + 1:
        return f"`{name}` has {len(rounds)} times, and {len(sums)} rounds have {len(sums) + 1}"
    if rounds[0] != 0:
        return f"`{name}` begins at {rounds[0]:.3g} s, and with the first round, at 0"
    for number, ((before, after), own) in enumerate(zip(pairwise(rounds), sums, strict=True)):
        if after < before or own * (1 - EQUAL) > after - before + TICK:
            return f"round {number} took {after - before:.6g} s, and its samples {own:.6g} s"
    return ""
