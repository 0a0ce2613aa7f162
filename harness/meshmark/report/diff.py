# SPDX-License-Identifier: Apache-2.0
"""The changed verdicts between two record files: worse, better, missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from meshmark.core.escaping import plain
from meshmark.core.text import counted, printable, text_table
from meshmark.core.verdicts import BAD, VERDICTS
from meshmark.records import run_line
from meshmark.records.reading import Judged, Records

SHOWN = 20
"""The most case names that are shown if one side lacks cases."""


@dataclass(frozen=True)
class VerdictChange:
    """A case whose verdict changed. `old` is "" if the old file does not have the case."""

    case: str
    old: str
    new: str
    reason: str

    @property
    def failure(self) -> bool:
        """Whether this is a new failure: bad now, and earlier not bad or missing."""
        return self.new in BAD and self.old not in BAD


@dataclass
class VerdictDifference:
    """The difference of two record files; `same` counts the cases of equal verdict."""

    changes: list[VerdictChange] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    same: int = 0

    @property
    def failures(self) -> list[VerdictChange]:
        """The new failures."""
        return [c for c in self.changes if c.failure]


def compare_verdicts(old: Mapping[str, Judged], new: Mapping[str, Judged]) -> VerdictDifference:
    """Compare judged cases by id. A case that only `new` has is a change if it is bad; otherwise it counts as
    `added`."""
    found = VerdictDifference(missing=[case for case in old if case not in new])
    for case, judged in new.items():
        before, after = old[case].verdict if case in old else "", judged.verdict
        if before == after:
            found.same += 1
        elif before or after in BAD:
            found.changes.append(VerdictChange(case, before, after, judged.reason))
        else:
            found.added.append(case)
    found.changes.sort(key=lambda c: (not c.failure, VERDICTS.index(c.new), c.case))
    return found


def processes(old: Records, new: Records) -> Iterator[str]:
    """A line if the two runs had different numbers of processes, or if a file holds one rank only. A case that only one
    run has is then not a change."""
    told = [run_line.single_rank(r.runs[0]) or _over(r) for r in (old, new)]
    if told[0] != told[1]:
        yield (
            f"OLD is of {told[0]} and NEW of {told[1]}: a case id does not name the same program in both, so a case"
            " that only one has is not a change"
        )


def tables(old: Records, new: Records) -> Iterator[str]:
    """A line if the two runs have different versions of the case table, because the table may then cause a
    difference."""
    versions = [plain(run_line.table_version(r.runs[0])) for r in (old, new)]
    if versions[0] != versions[1]:
        yield (
            f"OLD has version {versions[0]} of the case table and NEW version {versions[1]}: sizes and programs of a"
            " case may differ, and what differs below may come from the table"
        )


def environments(old: Records, new: Records) -> Iterator[str]:
    """Lines on what else differs between the two runs, or that nothing does: it may cause the changes listed below."""
    first, second = old.runs[0], new.runs[0]
    if old.runs == new.runs and "started" in first:
        yield "OLD and NEW are of the same run: whatever it missed is missed in both"
        return
    for name in ("backend", "device_kind", "num_devices"):
        one, other = (run["facts"].get(name) for run in (first, second))
        if one != other:
            yield f"OLD has {name} {plain(one)} and NEW {plain(other)}"
    one, other = (run_line.departures(run["facts"]) for run in (first, second))
    if one != other:
        told = [", ".join(every)[:200] or "nothing" for every in (one, other)]
        yield f"what is not as JAX comes: in OLD {told[0]}, in NEW {told[1]}"
    if str(first.get("started", "")) > str(second.get("started", "~")):
        yield f"OLD began at {plain(first['started'])}, after NEW: was it meant the other way round?"


def _over(records: Records) -> str:
    number = run_line.processes(records.runs[0]["facts"])
    return f"{number} process{'es' * (number > 1)}"


def report(found: VerdictDifference, width: int | None = None) -> Iterator[str]:
    """The lines of the report, new failures first; lines of the table have at most `width` characters."""
    if found.changes:
        rows = [
            [printable(c.case), c.old or "(absent)", c.new, "new failure" if c.failure else ""]
            for c in found.changes
        ]
        yield from text_table(["case", "old", "new", ""], rows, width)
        yield ""
    for change in found.failures:
        yield f"{printable(change.case)}: {printable(change.reason)}"
    yield from _named("only in OLD", found.missing)
    yield from _named("only in NEW, not bad", found.added)
    yield (
        f"{len(found.changes)} changed, {len(found.failures)} of them new failures; {found.same} as before,"
        f" {len(found.missing)} only in OLD, {len(found.added)} only in NEW"
    )


def _named(what: str, cases: list[str]) -> Iterator[str]:
    if cases:
        yield f"{what}: {counted(len(cases), 'case')}"
        yield from (f"  {printable(case)}" for case in cases[:SHOWN])
        if len(cases) > SHOWN:
            yield f"  and {len(cases) - SHOWN} more"
