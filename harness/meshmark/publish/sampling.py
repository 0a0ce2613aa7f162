# SPDX-License-Identifier: Apache-2.0
"""Checks samples against the sampling rule of their run: how many, for how long, in which order.

timing.measure stops sampling by a rule that the run line states: at the maximum number of samples, or when the samples
have spent the time (publish.rounds; over several processes publish.blocks). In older runs time between samples counts
too, so the samples may have spent less of it. In still older ones sampling also stops when the medians are precise. If
samples were scaled or dropped, the rest fits none of these stops. The modes of a cell are sampled in rounds, so they
have equal numbers of samples. In the cadences of ALONE each mode stops by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.core import statistics
from meshmark.operations.selection import Selection
from meshmark.publish import blocks, rounds
from meshmark.publish.rounds import ALONE, TAKEN, Line
from meshmark.records import run_line
from meshmark.records.definition import TimingLine
from meshmark.records.run_definition import RunLine
from meshmark.timing.bench import SECONDS
from meshmark.timing.measure import COUNTS, LONGEST_STREAM, STREAM_SECONDS

SPENT = 0.65
"""The least share of the time that samples must take. Published runs of one process have 0.81 or more. A busy machine
also spends time between samples, and its honest run must pass."""

SPENT_BY_RANKS = 0.25
"""The same share for several processes, which wait for each other between samples. The least in the published runs is
0.46."""

SPENT_BEFORE = 1.01
"""The factor by which a run may exceed its time before its last round. No round begins after the time is spent, but
samples are rounded."""

BETWEEN = 20e-6
"""Seconds between two samples that count as sampling time: short calls leave more time outside the samples."""

IN_ORDER = 12
"""With at least this many samples, the same order in all of them is not chance: one in 12! = 479 million."""


def of_file(
    lines: Sequence[Line], runs: Mapping[str, RunLine], time_explained: bool = False
) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the timing lines of one file. time_explained: a note says why the run gave its programs
    another time than its profile does."""
    cells: dict[tuple[Any, ...], list[Line]] = {}
    for number, record in lines:
        if record["samples_s"] and record["cadence"] != "device":
            together = sampled_together(record["case"], record["cadence"])
            key = (record["run"], together, record["cadence"], record["process"])
            cells.setdefault(key, []).append((number, record))
    first: dict[str, int] = {}
    gaps: dict[str, list[tuple[float, float]]] = {}
    for (run, *_), found in cells.items():
        line = runs[run]
        if "environment" in line or not line.get("timing"):
            continue  # comparisons stop by pairs
        if run not in first:
            first[run] = found[0][0]
            if not time_explained and (why := _unusual_time(line)):
                yield first[run], why
        yield from _stopped(found, line)
        if (
            line["timing"].get("counts") == COUNTS
            and len({len(record["samples_s"]) for _, record in found}) == 1
        ):
            gaps.setdefault(run, []).append(rounds.unusual_gaps(found))
    for run, own in gaps.items():
        if why := rounds.too_many_gaps(own):
            yield first[run], why
    counted = [(n, r) for n, r in lines if (runs[r["run"]].get("timing") or {}).get("counts") == COUNTS]
    yield from rounds.longer_than_their_cell(counted)


def _unusual_time(run: RunLine) -> str:
    """Why the run gives its programs another time than its profile does; "" if it does not, or is of an earlier
    version. A person who drops samples must change this time, so a change must be explained."""
    timing, selection = run["timing"], run.get("selection")
    if not selection:
        return ""  # another rule reports a run without a selection
    profile = selection.get("profile", Selection.profile)
    own, usual = timing.get("seconds"), SECONDS.get(str(profile))
    if "counts" not in timing or not usual or own == usual:
        return ""
    return (
        f"the run gives each program {own} s of sampling, and profile {profile} gives {usual:g} s: explain it in a note"
        " about `timing`, or time it again"
    )


def sampled_together(case: str, cadence: str) -> str:
    """A key for programs that are sampled in the same rounds: the modes of a cell, or one mode alone."""
    operation, variant, mode, *rest = case.split("/")
    return "/".join([operation, variant, *rest, *([mode] if cadence in ALONE else [])])


def _stopped(found: Sequence[Line], run: RunLine) -> Iterator[tuple[int, str]]:
    """Checks that the sampling of one cell stopped where its rule says."""
    first, timing = found[0][0], run["timing"]
    numbers = {len(record["samples_s"]) for _, record in found}
    if len(numbers) > 1:
        told = ", ".join(map(str, sorted(numbers)))
        yield (
            first,
            f"the modes of this cell have {told} samples, and each round sampled all of them: {TAKEN}",
        )
        return
    number, seconds = numbers.pop(), timing.get("seconds")
    for line, record in found:
        if problem := _calls(record, seconds):
            yield line, problem
    if "counts" in timing and timing.get("seconds") and timing.get("least") and timing.get("most"):
        yield from (blocks if run_line.processes(run["facts"]) > 1 else rounds).of_cell(found, run)
        return
    if seconds and number > timing.get("least", 1) and run_line.processes(run["facts"]) == 1:
        taken = [own[:-1] for _, r in found for own in (r["samples_s"], _control(r, number))]
        # The line does not record how many calls the control's calibration gave, so its samples count as one call each.
        calls = [each for _, r in found for each in (r.get("calls", 1), 1)]
        timers = sum(map(bool, taken))
        before = sum(math.fsum(own) * each for own, each in zip(taken, calls, strict=True))
        if before > SPENT_BEFORE * seconds * timers:
            text = (
                f"{number - 1} rounds took {before:.3g} s of the {seconds * timers:.3g} s that the run gives"
            )
            yield first, f"{text}, and another one was taken: {TAKEN}"
    if not seconds or number >= timing.get("most", 1000):
        return
    spent = sum(
        sum(record["samples_s"]) * record.get("calls", 1) + number * BETWEEN for _, record in found
    ) / (seconds * len(found))
    over = run_line.processes(run["facts"])
    if spent >= (SPENT if over == 1 else SPENT_BY_RANKS):
        return
    if "precision" in timing and _precise(found, number, timing, over):
        return
    yield (
        first,
        f"{number} samples took {spent:.0%} of the time that the run gives, and are not the most of it: {TAKEN}",
    )


def _control(record: TimingLine, number: int) -> Sequence[float]:
    """The samples of the control of the same rounds; () if it has none, or if it stops by itself."""
    control: Sequence[float] = record.get("control_s", ())
    return control if record["cadence"] not in ALONE and len(control) == number else ()


def _precise(found: Sequence[Line], number: int, timing: Mapping[str, Any], over: int) -> bool:
    """Whether sampling stopped because the medians were precise. Only older run lines have this rule and its
    precision."""
    least = 2 * int(timing.get("least", 10))
    looks = [least << doubled for doubled in range(20)]
    if number not in looks and not (over > 1 and number >= least):
        return False
    return all(statistics.median(r["samples_s"]).relative <= timing["precision"] * 1.01 for _, r in found)


def _calls(record: TimingLine, seconds: float | None) -> str:
    """Why the number of calls per sample does not follow from calibration; "" if it does."""
    calls, middle = record.get("calls", 1), sorted(record["samples_s"])[len(record["samples_s"]) // 2]
    if record["cadence"] != "stream":
        return (
            ""
            if calls == 1
            else f"{calls} calls per sample of {record['cadence']} calls, which is 1: {TAKEN}"
        )
    if not seconds or calls in (1, LONGEST_STREAM):
        return ""
    wanted = min(STREAM_SECONDS, max(0.002, seconds / 20))
    took = middle * calls
    if wanted / 5 <= took <= wanted * 30:
        return ""
    return (
        f"{calls} calls take {took:.3g} s, and a stream of this run is made to take {wanted:.3g} s: {TAKEN}"
    )


def of_orders(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    """Finds samples that are sorted, or that rise and fall like those of another line."""
    seen: dict[tuple[int, ...], int] = {}
    for line, record in lines:
        samples = record["samples_s"]
        if len(samples) < IN_ORDER or len(set(samples)) < len(samples) // 2:
            continue
        if list(samples) == sorted(samples) or list(samples) == sorted(samples, reverse=True):
            yield line, f"all {len(samples)} samples are in order of their size: {TAKEN}"
            continue
        order = tuple(sorted(range(len(samples)), key=samples.__getitem__))
        if order in seen:
            yield line, f"its {len(samples)} samples rise and fall as those of line {seen[order]}: {TAKEN}"
        seen.setdefault(order, line)
