# SPDX-License-Identifier: Apache-2.0
"""Checks the lines of a comparison against the timings of its two sides, which the same file holds.

The ratio of a case, its p and the least width of its interval follow from the medians of its processes. So a finding
that nobody measured needs timings that give it. A run of a comparison is not held to the sampling rule of other runs,
so its lines must be those of a whole comparison: timings under the name of a side would be excused from that rule.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshmark.core.pairs import INTERVAL, Rule, adjust, interval, signed_rank_p
from meshmark.core.statistics import hodges_lehmann
from meshmark.publish.review import AS_WRITTEN, Entry
from meshmark.records.definition import ComparisonLine
from meshmark.records.run_definition import RunLine
from meshmark.records.shared import CADENCES
from meshmark.timing.compare import MOST_LOST, SIDES, key_of, median_seconds

ComparisonEntry = tuple[int, ComparisonLine]

KINDS = ("process", "verdict")
"""What a line of a comparison can be about."""

NOT_A_SHARE = ("noise", "detectable", "spread")
"""Figures that are at least 0."""

EQUAL = 1e-6
"""The relative difference up to which two ratios are equal."""

_KEY = re.compile(rf"\S+(?: \((?:{'|'.join(CADENCES)})\))?")


def of_file(lines: Sequence[Entry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
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
    lost: Counter[tuple[str, str]] = Counter()
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
        else:
            lost[record["case"], str(side)] += 1
    for number, record in there:
        if record["kind"] == "comparison":
            yield from ((number, f"{text}: {AS_WRITTEN}") for text in _of_line(record, figures, ended))
    ratios = {key: _log_ratios(own, ended) for key, own in figures.items()}
    verdicts = [(n, r) for n, r in there if r["kind"] == "comparison" and r["what"] == "verdict"]
    leasts = [(runs[name].get("timing") or {}).get("least") for name in sides]
    for number, text in (*_untold(verdicts, ratios, lost), *_of_verdicts(verdicts, ratios, leasts[0])):
        yield number, f"{text}: {AS_WRITTEN}"


def _of_line(
    record: ComparisonLine, figures: Mapping[str, Mapping[int, float]], ended: Mapping[int, str]
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


def _untold(
    verdicts: Sequence[ComparisonEntry], ratios: Mapping[str, Any], lost: Mapping[tuple[str, str], int]
) -> Iterator[tuple[int, str]]:
    """(line, problem) of cases that were compared and have no verdict. lost: by case and side, in how many lines it has
    no time. A case that is left out is not timed, or several processes lost it."""
    if not verdicts:
        return
    told = {str(record.get("case")): number for number, record in verdicts}
    judged = {key.partition(" ")[0] for key in _judged(verdicts)}
    for key, own in ratios.items():
        case = key.partition(" ")[0]
        if len(own) and key not in told:
            yield verdicts[0][0], f"{key} was compared, and has no verdict"
        elif len(own) and case not in judged and max(lost[case, side] for side in SIDES) < MOST_LOST:
            yield told[key], f"{key} is left out, and its processes have times of it"


def _judged(verdicts: Sequence[ComparisonEntry]) -> set[str]:
    """The cases and cadences that are not left out."""
    return {str(r.get("case")) for _, r in verdicts if r.get("verdict") != "left out"}


def _of_verdicts(
    verdicts: Sequence[ComparisonEntry], ratios: Mapping[str, Any], percent: object
) -> Iterator[tuple[int, str]]:
    """(line, problem) of verdicts that do not follow from the pairs and the least change that is reported, in
    percent."""
    least = percent / 100 if isinstance(percent, (int, float)) else Rule.least
    by_end: dict[int, list[tuple[int, ComparisonLine, Any]]] = {}
    for number, record in verdicts:
        own = ratios.get(str(record.get("case")), np.empty(0))[: record.get("pairs", 0)]
        if record.get("verdict") != "left out":
            by_end.setdefault(record.get("earlier", 0), []).append((number, record, own))
    for found in by_end.values():
        every = np.array([signed_rank_p(own) for *_, own in found])
        for (number, said, own), p, adjusted in zip(found, every, adjust(every), strict=True):
            key, figures = said.get("case"), (("p", p), ("adjusted", adjusted))
            for name, value in figures:
                if not math.isclose(_number(said.get(name), math.nan), value, rel_tol=EQUAL):
                    yield (
                        number,
                        f"{key}: {name} is {str(said.get(name))[:20]}, and its pairs give {value:.6g}",
                    )
            if own.size:
                yield from ((number, f"{key}: {text}") for text in _of_verdict(said, own, adjusted, least))


def _of_verdict(record: ComparisonLine, own: Any, adjusted: float, least: float) -> Iterator[str]:
    """Yields what is wrong in a verdict about these logarithms of ratios. A look may ask for a wider interval than
    that of all of them together, and never for a narrower one."""
    low, high = (_number(record.get(name), at) for name, at in (("low", 0.0), ("high", math.inf)))
    narrow, verdict = [math.exp(end) for end in interval(own, 1 - INTERVAL)], record.get("verdict")
    if low > narrow[0] * (1 + EQUAL) or high < narrow[1] * (1 - EQUAL):
        there = f"{narrow[0]:.6g} to {narrow[1]:.6g}"
        yield f"the interval {low:.6g} to {high:.6g} is narrower than its pairs give, {there}"
        return
    inside = 1 / (1 + least) < low and high < 1 + least
    changed = verdict in ("slower", "faster")
    if changed and adjusted >= Rule.alpha:
        yield f"{verdict}, and its adjusted p is {adjusted:.3g}, which shows no change"
    elif verdict == "no change" and not inside:
        yield f"no change, and its interval is {low:.6g} to {high:.6g}, with a least change of {least:.3g}"
    elif verdict == "inconclusive" and inside:
        yield f"inconclusive, and its interval {low:.6g} to {high:.6g} shows that there is no change"


def _number(value: object, otherwise: float) -> float:
    """A figure of a record; `otherwise` if it is none, as an end of an interval that the pairs do not give."""
    return value if isinstance(value, (int, float)) else otherwise


def _log_ratios(figures: Mapping[int, float], ended: Mapping[int, str]) -> Any:
    """The logarithms of B / A of the pairs of processes that have figures of one case, in their order."""
    found = [
        math.log(figures[b] / figures[a])
        for a, side in sorted(ended.items(), key=lambda one: one[0] // 2)
        if side == SIDES[0] and (b := a ^ 1) in figures and a in figures
    ]
    return np.array(found)
