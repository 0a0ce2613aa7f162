# SPDX-License-Identifier: Apache-2.0
"""Checks that a submitted file is complete: its run ended, no chosen case is missing, and its times do not go
backwards.

Files of earlier versions have no closing line. They are accepted, and a note says what cannot be checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.core.verdicts import BAD
from meshmark.publish import origin
from meshmark.publish.review import AS_WRITTEN, Entry, Review
from meshmark.records.closing import WELL, Account, find_unexplained

TOOK = ("conformance", "timing")
"""The kinds of lines whose `seconds` field is the duration of a case. Other lines may use the name freely."""

ROUNDED = 1.05
"""The factor by which the summed seconds of all cells may exceed those of the run: each cell counts its slowest
rank."""

CROWD = 8
"""The cases that a core judges at once, at most. In the published runs at most 0.9 were judged at once on a core."""

CLOCK = 120.0
"""Seconds by which a machine's clock may be set back or forward during a run."""


def check_endings(name: str, lines: Sequence[Entry], review: Review) -> None:
    """Complain about the end of one file and about its times, and note what cannot be checked."""
    for number, text in find_wrong_endings(lines):
        review.complain(name, text, number, "end")
    if told := note(lines):
        review.notes.append(f"{name}: {told}")


def find_wrong_endings(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) with the end of one file, and with the times of its runs."""
    account, last = Account(), 0
    timed = [record["verdict"] for _, record in lines if record["kind"] == "timing"]
    compared = any("environment" in record for _, record in lines if record["kind"] == "run")
    for number, record in lines:
        if wrong := account.add(record):
            yield number, wrong
        if record["kind"] == "end":
            yield from ((number, text) for text in _contradicted(record, [] if compared else timed))
        last = number
    if account.closes and (state := account.state()):
        yield last, f"{state}: go on with it (--resume), or submit the whole file"
    yield from _backwards(lines)
    yield from _crowded(lines)


def note(lines: Sequence[Entry]) -> str:
    """What a reviewer should know of the end of one file, or ""."""
    account = Account()
    for _, record in lines:
        account.add(record)
    if not account.closes:
        return account.state()
    if gone := max((record["deselected"] for _, record in lines if record["kind"] == "chosen"), default=0):
        return f"options or plugins of pytest took {gone} cases away: ask why"
    return find_unexplained(
        next((record for _, record in reversed(lines) if record["kind"] == "end"), {}), BAD
    )


def _contradicted(end: Mapping[str, Any], timed: Sequence[str]) -> Iterator[str]:
    if end["exit_code"] == 0 and (bad := [v for v in BAD if v in end["verdicts"]]):
        yield f"the run ended with exit code 0, and has cases with verdict {bad[0]}: {AS_WRITTEN}"
    wrong = [verdict for verdict in timed if verdict in BAD]
    if timed and not end["cases"] and end["exit_code"] in WELL and end["exit_code"] != bool(wrong):
        there = f"timings with verdict {wrong[0]}" if wrong else "no timing that is not right"
        yield f"the run ended with exit code {end['exit_code']}, and has {there}: {AS_WRITTEN}"


def _crowded(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """Cases that took more time, all together, than the cores of the host had while their runs went on."""
    began, cores, took = None, 0, 0.0
    for number, record in lines:
        if record["kind"] == "run":
            began = origin.parse_started(record.get("started")) if began is None else began
            cores = (record["facts"].get("host") or {}).get("cores") or 0
        elif record["kind"] == "conformance":
            took += record.get("seconds", 0.0)
        elif record["kind"] == "end" and cores and began is not None:
            at = origin.parse_started(record["ended"])
            if at is not None and took > CROWD * cores * (at - began + CLOCK):
                text = f"its cases took {took:.4g} s, and its runs {at - began:.4g} s"
                yield number, f"{text}: that is more than all cores have, {cores}: {AS_WRITTEN}"


def _backwards(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """Times that go backwards from line to line, and cases that took longer than their run."""
    before: float | None = None
    began: dict[str, float] = {}
    took: dict[str, tuple[int, float]] = {}
    timed, own = 0.0, ""
    for number, record in lines:
        if record["kind"] in ("run", "end"):
            at = origin.parse_started(record.get("started" if record["kind"] == "run" else "ended"))
            if at is None:
                continue
            if at > time.time() + origin.SLACK:
                yield (
                    number,
                    f"its time, {record.get('started') or record.get('ended')}, is still to come: {AS_WRITTEN}",
                )
            if before is not None and at < before - CLOCK:
                yield number, f"its time is {before - at:.0f} s before that of a line above it: {AS_WRITTEN}"
            elif own and before is not None and timed > ROUNDED * (at - before) + CLOCK:
                text = f"timed cells for {timed:.4g} s, and had {at - before:.4g} s"
                yield number, f"run {own} {text}: {AS_WRITTEN}"
            timed, own = 0.0, "" if "environment" in record else record["run"]
            before = at
            if record["kind"] == "run":
                began[record["run"]] = at
            elif (longest := took.get(record["run"])) and record["run"] in began:
                there = at - began[record["run"]] + CLOCK
                if longest[1] > there:
                    yield (
                        longest[0],
                        f"took {longest[1]:.4g} s, and its run {there:.4g} s at most: {AS_WRITTEN}",
                    )
        elif record["kind"] in TOOK and isinstance(seconds := record.get("seconds"), (int, float)):
            timed += seconds * (record["kind"] == "timing")
            took[record["run"]] = max(
                took.get(record["run"], (0, 0.0)), (number, seconds), key=lambda one: one[1]
            )
