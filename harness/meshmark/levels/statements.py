# SPDX-License-Identifier: Apache-2.0
"""Makes the statement that a run's records support: the level that it meets.

A case is met if its verdict is pass or known (known issues are counted). `unsupported` does not meet a case, because
the lists (meshmark.levels.must_pass) hold nothing optional. A level is met if one run meets every case of its list, and
every lower level is met too. Another run can't fill gaps, but its worse verdicts count. All runs of a statement have
one environment (meshmark.levels.parts). A compile-only run meets no level. A statement names virtual devices as
virtual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

from meshmark.core.escaping import field as field_of
from meshmark.core.text import counted, printable
from meshmark.core.verdicts import VERDICTS, worst
from meshmark.levels import interpreted, parts
from meshmark.levels.interpreted import Interpreted, InterpretedData
from meshmark.levels.must_pass import (
    DIRECTORY,
    LevelError,
    MustPass,
    must_pass,
    names,
    versions,
)
from meshmark.operations import versions as table_versions
from meshmark.operations.versions import TableError
from meshmark.records import run_line
from meshmark.records.fields import Field
from meshmark.records.reading import Judged, Records
from meshmark.records.run_definition import RunFacts, RunLine


class LevelCounts(TypedDict("PassCount", {"pass": Annotated[int, Field("Cases that pass.", least=0)]})):
    """One level of a statement in JSON types."""

    cases: Annotated[int, Field("Cases of the must-pass list.", least=0)]
    sha256: Annotated[str, Field("The hash of the list.")]
    frozen: Annotated[bool, Field("Whether the list is a frozen one.")]
    known: Annotated[int, Field("Cases with a known issue.", least=0)]
    missing: Annotated[int, Field("Cases that were not judged.", least=0)]
    unmet: Annotated[dict[str, int], Field("Other cases by verdict.")]


class StatementData(TypedDict):
    """A statement in JSON types."""

    text: str
    met: Annotated[str, Field("The level. Empty text for none.")]
    list: Annotated[int, Field("The version of the must-pass lists.")]
    devices: int
    processes: NotRequired[Annotated[int, Field("The number of processes, if there are several.")]]
    own: NotRequired[Annotated[list[str], Field("A vendor's known issues beside the suite's.")]]
    interpreted: NotRequired[list[InterpretedData]]
    device_kind: str
    jax: str
    virtual: bool
    topology: str
    levels: dict[str, LevelCounts]


@dataclass(frozen=True)
class Standing:
    """The result of one level: its list compared with the judged cases."""

    must: MustPass
    passed: int
    known: int
    issues: frozenset[tuple[str, str]]
    """(link, what is known) of the known issues that occurred."""
    missing: tuple[str, ...]
    """Case ids of the list whose judging did not finish."""
    unmet: Mapping[str, str]
    """Verdicts by case id of the judged cases that are neither pass nor known."""

    @property
    def complete(self) -> bool:
        """Whether every case of the list is met. The level is met only if the lower ones are met too."""
        return not self.missing and not self.unmet

    def describe(self) -> str:
        """L1: 1308 of 1310 cases met, 12 of them known; 1 missing, 1 unsupported."""
        line = f"{self.must.level}: {self.passed + self.known} of {len(self.must.cases)} cases met"
        line += f", {self.known} of them known issues" if self.known else ""
        counted = Counter(self.unmet.values())
        others = [f"{len(self.missing)} missing"] if self.missing else []
        others += [f"{counted[v]} {v}" for v in VERDICTS if counted[v]]
        example = next(iter((*self.unmet, *self.missing)), "")
        return line + (f"; {', '.join(others)}, such as {printable(example)}" if others else "")


@dataclass(frozen=True)
class Statement:
    """The statement that the records of a run support."""

    devices: int
    device_kind: str
    jax: str
    virtual: bool
    topology: str
    """The topology of a compile-only run, which meets no level; "" for real devices."""
    version: int
    standings: tuple[Standing, ...] = field(repr=False)
    """One per level, lowest first; none for a compile-only run."""
    processes: int = 1
    """The number of processes; each has the same number of devices."""
    own: tuple[str, ...] = ()
    """The vendor's known issues of these runs, in addition to the suite's: file and digest."""
    departures: tuple[str, ...] = ()
    """What is not as JAX comes: settings, flags of the compiler, replaced functions."""
    interpreted: tuple[Interpreted, ...] = ()
    """What passes by interpretation, for a compile-only run. It is not a level."""

    @property
    def met(self) -> str:
        """The highest level that is met together with all lower ones; "" if none is."""
        highest = ""
        for standing in self.standings:
            if not standing.complete:
                break
            highest = standing.must.level
        return highest

    @property
    def interpreted_up_to(self) -> str:
        """The highest level whose cases over all devices all pass by interpretation, as those of all lower levels do;
        "" if there is none. It is not a level that is met: nothing ran."""
        highest = ""
        for one in self.interpreted:
            if not one.cases or one.passed < one.cases:
                break
            highest = one.level
        return highest

    @property
    def counted(self) -> tuple[Standing, ...]:
        """The levels up to the highest one that is met."""
        return tuple(s for s in self.standings if s.must.level <= self.met)

    @property
    def text(self) -> str:
        """L2 on 8 devices (NVIDIA H200), JAX 0.12.0.1, 3 known issues in 25 cases; must-pass list 1, 2944 of 2944;
        L4 on 2 processes of 4 devices (NVIDIA H200), JAX ..."""
        kind = printable(self.device_kind)[:60]
        each = self.devices // self.processes
        what = "device" if each == 1 and self.processes > 1 else "devices"
        where = f"{each} virtual CPU {what}" if self.virtual else f"{each} {what} ({kind})"
        where = f"{self.processes} processes of {where}" if self.processes > 1 else where
        if self.topology:
            name = printable(self.topology)[:60]
            return (
                f"no level on {name} ({counted(self.devices, 'device')}), JAX {printable(self.jax)[:40]}:"
                " compile-only, nothing ran"
            )
        known = sum(s.known for s in self.counted)
        issues = len(frozenset().union(*(s.issues for s in self.counted)))
        number = sum(len(s.must.cases) for s in self.counted)
        rule = "" if all(s.must.frozen for s in self.standings) else " by rule (not frozen)"
        text = f"{self.met or 'no level'} on {where}, JAX {printable(self.jax)[:40]}"
        if self.departures:
            text += f" with {', '.join(self.departures)}"[:500]
        if known:
            text += f", {counted(issues, 'known issue')} in {counted(known, 'case')}"
        if self.own:
            text += f"; known issues beside the suite's: {', '.join(self.own)}"
        text += f"; must-pass list {self.version}{rule}"
        return text + (f", {number} of {counted(number, 'case')}" if self.met else "")

    def lines(self) -> list[str]:
        """The text of the statement, and one line per level."""
        described = [one.describe() for one in self.standings] + [one.describe() for one in self.interpreted]
        return [self.text, *(f"  {line}" for line in described)]

    def to_json(self) -> StatementData:
        """The statement in JSON types, with the numbers of missing and unmet cases. It has the number of processes if
        there are several, and a vendor's known issues if there are any."""
        found: StatementData = {
            "text": self.text,
            "met": self.met,
            "list": self.version,
            "devices": self.devices,
            "device_kind": self.device_kind,
            "jax": self.jax,
            "virtual": self.virtual,
            "topology": self.topology,
            "levels": {
                s.must.level: {
                    "cases": len(s.must.cases),
                    "sha256": s.must.sha256,
                    "frozen": s.must.frozen,
                    "pass": s.passed,
                    "known": s.known,
                    "missing": len(s.missing),
                    "unmet": dict(sorted(Counter(s.unmet.values()).items())),
                }
                for s in self.standings
            },
        }
        if self.processes > 1:
            found["processes"] = self.processes
        if self.own:
            found["own"] = list(self.own)
        if self.interpreted:
            found["interpreted"] = [one.to_json() for one in self.interpreted]
        return found


def statement(
    records: Records | Sequence[Records], version: int | None = None, directory: Path = DIRECTORY
) -> Statement:
    """The statement of the conformance lines of one run, or of several runs in the same environment.

    The `level` that a line names is ignored, and a case that was judged more than once has its worst verdict.
    LevelError if the runs differ in their environment or seed, lack the release or the devices, or are the records of
    one rank of several.
    """
    files = [records] if isinstance(records, Records) else list(records)
    facts = shared_environment(files)
    processes = run_line.processes(facts)
    if processes > 1:
        _require_all_ranks(files, processes)
    table = _table_version(files)
    version = versions(directory)[-1] if version is None else version
    if differing := parts.find_differing_field(parts.judging(files)):
        raise LevelError(f"the runs differ in {differing}: make one statement per environment")
    judged = parts.parts_of(files)
    devices, topology = int(facts["num_devices"]), str(facts.get("topology") or "")
    compiled = interpreted.by_case(one for file in files for one in file.cases.values()) if topology else {}
    computed = any(one.interpreted for found in compiled.values() for one in found)
    chosen = names(processes) if computed or not topology else ()
    lists = [must_pass(level, devices, version, directory, processes, table) for level in chosen]
    return Statement(
        devices=devices,
        device_kind=str(facts.get("device_kind")),
        jax=str(facts["versions"]["jax"]),
        virtual=facts.get("backend") == "cpu" and not topology,
        topology=topology,
        version=version,
        standings=() if topology else tuple(_standing(must, judged) for must in lists),
        processes=processes,
        departures=tuple(run_line.departures(facts)),
        interpreted=interpreted.levels([(must.level, must.cases) for must in lists], compiled, devices)
        if computed
        else (),
        own=tuple(
            dict.fromkeys(_vendor_issues(run) for file in files for run in file.runs if _vendor_issues(run))
        ),
    )


def _table_version(files: Sequence[Records]) -> int | None:
    """The version of the case table of the judged cases; LevelError for several versions or an unknown one."""
    judged = {line["run"] for file in files for one in file.cases.values() for line in one.lines}
    found = {run_line.table_version(run) for file in files for run in file.runs if run["run"] in judged}
    if len(found) > 1:
        told = ", ".join(map(str, sorted(found, key=str)))
        raise LevelError(
            f"the runs are of versions {told[:80]} of the case table: one statement is of one version, judge all cases"
            " with one suite"
        )
    for version in found:
        try:
            return table_versions.as_of(version).version
        except TableError as error:
            raise LevelError(str(error)) from None
    return None


def _vendor_issues(run: RunLine) -> str:
    """The files of known issues that a vendor named for a run, from its selection: acme.toml (0123456789abcdef)."""
    listed = field_of(run.get("selection"), "known_issues")
    named = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    told = (f"{one.get('file')} ({one.get('digest')})" for one in named)
    return ", ".join(printable(text)[:100] for text in told)


def _require_all_ranks(files: Sequence[Records], processes: int) -> None:
    """LevelError if a run that judged cases lacks the results of some ranks."""
    for file in files:
        judged = {line["run"] for one in file.cases.values() for line in one.lines}
        for run in file.runs:
            if run["run"] in judged and run.get("ranks") != processes:
                raise LevelError(
                    f"a run over {processes} processes without the results of all of them: use the merged file"
                    " (`meshmark merge FILE`)"
                )


def _standing(must: MustPass, judged: parts.Parts) -> Standing:
    """The standing of the run that meets the most cases, each case with the worst verdict of any run."""
    every: dict[str, list[Judged]] = {}
    for cases_ in judged.values():
        for name, one in cases_.items():
            if one.finished:
                every.setdefault(name, []).append(one)
    of_runs = [_of_run(must, own, every) for own in judged.values()] or [_of_run(must, {}, every)]
    return max(of_runs, key=lambda standing: standing.passed + standing.known)


def _of_run(must: MustPass, own: Mapping[str, Judged], every: Mapping[str, Sequence[Judged]]) -> Standing:
    passed = known = 0
    issues: set[tuple[str, str]] = set()
    missing, unmet = [], {}
    for name in must.cases:
        if name not in own or not own[name].finished:
            missing.append(name)
            continue
        found = every[name]
        verdict = worst(one.verdict for one in found)
        if verdict == "pass":
            passed += 1
        elif verdict == "known":
            known += 1
            for one in found:
                for line in one.lines:
                    if line["verdict"] == "known":
                        issues.add((str(line.get("link")), line["reason"].split(" | ")[0]))
        else:
            unmet[name] = verdict
    return Standing(must, passed, known, frozenset(issues), tuple(missing), unmet)


IDENTITY = ("backend", "device_kind", "num_devices", "topology", "layout")
"""The facts that must be equal in the runs of one statement, in addition to the version of JAX and the number of
processes (as meshmark.records.run_line has it)."""


def shared_environment(files: Sequence[Records]) -> RunFacts:
    """The facts that these records share; LevelError if they have none, or differ in one that a level depends on."""
    runs = [run for file in files for run in file.runs]
    if not runs:
        raise LevelError("no run for a statement: name a file that `meshmark test --record` wrote")
    identities = []
    for run in runs:
        facts = run.get("facts")
        facts = facts if isinstance(facts, dict) else {}
        jax = facts["versions"].get("jax") if isinstance(facts.get("versions"), dict) else None
        if not isinstance(jax, str) or type(facts.get("num_devices")) is not int:
            raise LevelError(
                "a run without its JAX release and number of devices: use a file that --record wrote"
            )
        if alone := run_line.single_rank(run):
            raise LevelError(
                f"records of {alone}: use the merged file, FILE and not FILE.rank0 (`meshmark merge FILE`)"
            )
        over = {"num_processes": run_line.processes(facts)}
        identities.append({"jax": jax} | {name: facts.get(name) for name in IDENTITY} | over)
        if facts.get("others"):
            raise LevelError("a run over several topologies makes no statement: it is compile-only")
    for one in identities[1:]:
        for name, value in one.items():
            if value != identities[0][name]:
                raise LevelError(
                    f"the runs differ in {name} ({str(identities[0][name])[:60]!a} and {str(value)[:60]!a}): make"
                    " one statement per environment"
                )
    return runs[0]["facts"]
