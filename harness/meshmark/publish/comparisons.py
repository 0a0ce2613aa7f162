# SPDX-License-Identifier: Apache-2.0
"""Checks the lines of a comparison against the timings of its two sides, which the same file holds.

The ratio of a case follows from the medians of its processes. So a finding that nobody measured needs timings that
give it. A run of a comparison is not held to the sampling rule of other runs, so its lines must be those of a whole
comparison: timings under the name of a side would be excused from that rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshmark.core.statistics import hodges_lehmann
from meshmark.publish.review import AS_WRITTEN, Entry
from meshmark.records.shared import CADENCES
from meshmark.timing.compare import SIDES, key_of, median_seconds

KINDS = ("process", "verdict")
"""What a line of a comparison can be about."""

NOT_A_SHARE = ("noise", "detectable", "spread")
"""Figures that are at least 0."""

EQUAL = 1e-6
"""The relative difference up to which two ratios are equal."""

_KEY = re.compile(rf"\S+(?: \((?:{'|'.join(CADENCES)})\))?")


def of_file(lines: Sequence[Entry], runs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """(line, problem) of the comparison in one file, and of the timings of its sides."""
    sides = {name: run["environment"] for name, run in runs.items() if "environment" in run}
    there = [(number, record) for number, record in lines if record["run"] in sides]
    for number, record in lines:
        if record["kind"] == "comparison" and record["run"] not in sides:
            yield number, f"a line of a comparison, and its run compares nothing: {AS_WRITTEN}"
    if not there:
        return
    first = there[0][0]
    own = {record["environment"] for _, record in there if record["kind"] == "run"}
    if own != set(SIDES):
        yield first, f"a comparison of {', '.join(sorted(own))[:40]}, and not of A and B: {AS_WRITTEN}"
        return
    ended: dict[int, str] = {}
    for number, record in there:
        if record["kind"] == "comparison" and record["what"] == "process":
            process, side = record.get("process"), record.get("environment")
            if side != sides[record["run"]] or process is None or ended.get(process ^ 1) == side:
                yield number, f"process {process} of {str(side)[:20]!a} is not one of its pair: {AS_WRITTEN}"
                return
            ended[process] = side
    figures: dict[str, dict[int, float]] = {}
    for number, record in there:
        if record["kind"] != "timing":
            continue
        process, side = record["process"], record.get("environment")
        if side != sides[record["run"]] or ended.get(process, side) != side:
            yield (
                number,
                f"a timing of side {str(side)[:20]!a} in a run or process of the other one: {AS_WRITTEN}",
            )
            return
        if process not in ended:
            yield number, f"a timing of process {process}, which did not end: {AS_WRITTEN}"
            return
        if record["verdict"] == "pass" and (seconds := median_seconds(record)):
            figures.setdefault(key_of(record["case"], record["cadence"]), {})[process] = seconds
    for number, record in there:
        if record["kind"] == "comparison":
            yield from ((number, f"{text}: {AS_WRITTEN}") for text in _of_line(record, figures, ended))


def _of_line(
    record: Mapping[str, Any], figures: Mapping[str, Mapping[int, float]], ended: Mapping[int, str]
) -> Iterator[str]:
    """Yields what is wrong in one line of a comparison, without the correction."""
    if record["what"] not in KINDS:
        yield f"{record['what'][:40]!a} is not the end of a process or a verdict"
        return
    for name in NOT_A_SHARE:
        value = record.get(name)
        if isinstance(value, (int, float)) and value < 0:
            yield f"`{name}` is {value}"
    alarms = record.get("false_alarms")
    if isinstance(alarms, (int, float)) and not 0 <= alarms <= 1:
        yield f"`false_alarms` is {alarms}"
    if record["what"] != "verdict" or record.get("verdict") == "left out":
        return
    key = str(record.get("case"))
    if not _KEY.fullmatch(key):
        yield f"{key[:60]!a} is not a case, or a case and its cadence"
        return
    ratios = _log_ratios(figures.get(key, {}), ended)
    pairs, said = record.get("pairs", 0), record.get("ratio")
    if record.get("verdict") == "no change" and not pairs:
        yield f"{key} has not changed, and no pair of processes was compared"
    if pairs > len(ratios):
        yield f"{key} was compared in {pairs} pairs of processes, and {len(ratios)} are there"
    elif pairs:
        found = math.exp(hodges_lehmann(ratios[:pairs]))
        if not (isinstance(said, (int, float)) and math.isclose(said, found, rel_tol=EQUAL)):
            yield f"{key}: the ratio is {str(said)[:20]}, and its processes give {found:.6g}"


def _log_ratios(figures: Mapping[int, float], ended: Mapping[int, str]) -> Any:
    """The logarithms of B / A of the pairs of processes that have figures of one case, in their order."""
    found = [
        math.log(figures[b] / figures[a])
        for a, side in sorted(ended.items(), key=lambda one: one[0] // 2)
        if side == SIDES[0] and (b := a ^ 1) in figures and a in figures
    ]
    return np.array(found)
