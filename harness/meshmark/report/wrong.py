# SPDX-License-Identifier: Apache-2.0
"""Faults over several runs: each failure or known issue once, with the runs that show it and the runs that do not.

Failing cases with the same known issue are one finding, however each of them shows it. Other failing cases are one
finding if operation, check, verdict and the words of the reason agree. Numbers, devices and indices in the reason are
ignored, because they differ from case to case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from meshmark.core.verdicts import BAD
from meshmark.records.reading import Judged

KINDS = (
    "wrong numbers",
    "process dies",
    "hangs",
    "raises",
    "not refused",
    "wrong placement",
    "communication",
    "something else",
)
"""Kinds of faults, the most severe first."""

_KIND_OF_CHECK = {
    "numbers": "wrong numbers",
    "gradient": "wrong numbers",
    "replicas": "wrong numbers",
    "sharding": "wrong placement",
    "communication": "communication",
}
_KIND_OF_VERDICT = {"crash": "process dies", "hang": "hangs", "error": "raises"}
_RANK = re.compile(r"^rank \d+: ", re.ASCII)
_DEATH = re.compile(
    r"\b(ends? the (process|compiler)|process dies|dies of|aborts|segmentation fault)\b", re.ASCII
)
_PLACE = re.compile(r" \(results/findings/[\w-]+\)$", re.ASCII)
_FIGURES = re.compile(r"\d[\d.,e+-]*|\[[^\]]*\]|cpu:\d+|0x[0-9a-f]+", re.ASCII)


@dataclass
class FoundFault:
    """One fault. `cases` are its case ids by run; a run is any hashable name."""

    kind: str
    known: bool
    text: str
    link: str
    operations: list[str] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    cases: dict[str, list[str]] = field(default_factory=dict)
    passes: list[str] = field(default_factory=list)
    """The runs that judged at least one of the cases, and in which all judged ones pass."""

    @property
    def every_case(self) -> set[str]:
        """The cases of all runs."""
        return {case for cases in self.cases.values() for case in cases}


def find_faults(runs: Mapping[str, Sequence[Judged]]) -> list[FoundFault]:
    """The findings of several runs: unknown ones first, then the most severe, then those with the most cases."""
    found: dict[tuple[str, ...], FoundFault] = {}
    for run, cases in runs.items():
        for judged in cases:
            if (verdict := judged.verdict) != "known" and verdict not in BAD:
                continue
            one = _finding(judged)
            key = (one.text,) if one.known else (one.kind, _words(one.text), judged["operation"])
            finding = found.setdefault((str(one.known), *key), one)
            finding.kind = min(finding.kind, one.kind, key=KINDS.index)
            finding.link = finding.link or one.link
            for names, name in ((finding.operations, "operation"), (finding.modes, "mode")):
                if judged[name] not in names:
                    names.append(judged[name])
            finding.cases.setdefault(run, []).append(judged.case)
    by_case = {run: {judged.case: judged for judged in cases} for run, cases in runs.items()}
    for finding in found.values():
        finding.passes = list(_passing(finding, by_case))
    return sorted(found.values(), key=lambda f: (f.known, KINDS.index(f.kind), -len(f.every_case)))


def _finding(judged: Judged) -> FoundFault:
    """The finding of one case, from its first line with the worst verdict."""
    verdict = judged.verdict
    line = next(line for line in judged.lines if line["verdict"] == verdict)
    kind = _KIND_OF_VERDICT.get(verdict) or _KIND_OF_CHECK.get(line["check"], "something else")
    known = verdict == "known"
    text = _issue(line["reason"]) if known else line["reason"]
    if known and line["check"] in ("execute", "compile", "export"):
        kind = "process dies" if line.get("signal") else "raises"
    if kind == "wrong numbers" and judged["operation"] == "refusal":
        kind = "not refused"  # the number of a refusal says whether JAX refused in the right words
    if known and _DEATH.search(text):
        kind = "process dies"  # some cases look at a child process: its death is a wrong number of theirs
    link = line.get("link")
    return FoundFault(kind, known, text, link if isinstance(link, str) else "")


def _issue(reason: str) -> str:
    """The words of a known issue in a reason, without the rank that reports it, the failure, and the place of the
    issue's script, which older lists do not name."""
    return _PLACE.sub("", _RANK.sub("", reason.partition(" | ")[0]))


def _words(reason: str) -> str:
    return _FIGURES.sub("#", reason)


def _passing(finding: FoundFault, runs: Mapping[str, Mapping[str, Judged]]) -> Iterable[str]:
    wanted = finding.every_case
    for run, cases in runs.items():
        if run in finding.cases:
            continue
        if {cases[case].verdict for case in wanted & cases.keys()} == {"pass"}:
            yield run


def changes(findings: Sequence[FoundFault], old: str, new: str) -> tuple[list[FoundFault], list[FoundFault]]:
    """(fixed, broken) from one run to another. Fixed findings occur only in the old run and pass in the new one; broken
    findings are the reverse."""
    mended = [f for f in findings if old in f.cases and new in f.passes]
    broken = [f for f in findings if new in f.cases and old in f.passes]
    return mended, broken
