# SPDX-License-Identifier: Apache-2.0
"""Compares the releases: the exact changes of each counter of each program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from meshmark.core.text import number
from meshmark.core.verdicts import BAD
from meshmark.records.reading import Records

Line = Mapping[str, Any]


def _collective_pairs(line: Line) -> list[Line]:
    return [pair for pair in line.get("pairs", ()) if "bytes" in pair]


COUNTERS: dict[str, tuple[str, Callable[[Line], Any]]] = {
    "collectives": ("collectives that run", lambda line: line.get("collective_runs")),
    "sent": ("bytes that a device sends", lambda line: line.get("wire_bytes")),
    "inserted": ("collectives with the partitioner's mark", lambda line: line.get("inserted")),
    "asynchronous": ("split collectives", lambda line: len(_collective_pairs(line))),
    "hidden": (
        "split collectives with work in between",
        lambda line: sum(not pair["synchronous"] for pair in _collective_pairs(line)),
    ),
    "exposed": ("projected exposed time, s", lambda line: line.get("exposed_s")),
    "memory": ("memory that a device needs, bytes", lambda line: line.get("memory_bytes")),
    "peak": ("most memory in use at once, bytes", lambda line: line.get("peak_bytes")),
    "temporaries": ("temporary memory, bytes", lambda line: line.get("temp_bytes")),
    "flops": ("flops by the compiler", lambda line: line.get("flops")),
    "accessed": ("bytes accessed by the compiler", lambda line: line.get("bytes_accessed")),
    "copies": ("asynchronous copies", lambda line: line.get("copies")),
    "idle copies": ("copies with nothing done meanwhile", lambda line: line.get("idle_copies")),
    "loops": ("loops", lambda line: len(line["loops"]) if "loops" in line else None),
    "decomposed": ("decomposed permutes", lambda line: line.get("decomposed")),
    "again": ("instructions computed again", lambda line: line.get("rematerialized")),
    "warnings": ("warnings of rematerialization", lambda line: line.get("rematerialization_warnings")),
    "host": ("kinds of host transfers", lambda line: len(line["host"]) if "host" in line else None),
}
"""The counters that are compared: (title, function of a line). The value is None if the line lacks it."""


@dataclass
class Release:
    """The programs that one environment compiled."""

    jax: str
    compilers: tuple[str, ...]
    """The compilers for topologies with their versions, such as libtpu 0.0.52."""
    suite: str
    """The suite's commit, followed by ", changed" if its files differed from it."""
    lines: dict[str, dict[str, Line]] = field(default_factory=dict)
    """The line of each program, by place and by case id without the place."""

    @property
    def label(self) -> str:
        """The releases as a text, such as JAX 0.12.0.1, libtpu 0.0.52."""
        return ", ".join((f"JAX {self.jax}", *self.compilers))

    @property
    def broken(self) -> list[Line]:
        """The programs that did not compile."""
        return [line for of in self.lines.values() for line in of.values() if line["verdict"] in BAD]

    def value(self, place: str, case: str, counter: str) -> float | None:
        """A counter of a program; None if it is not known, or if the program did not compile."""
        line = self.lines.get(place, {}).get(case)
        if line is None or line["verdict"] in BAD:
            return None
        found = COUNTERS[counter][1](line)
        return None if found is None or math.isnan(number(found)) else number(found)


@dataclass(frozen=True)
class CounterChange:
    """A counter of a program that differs between two releases."""

    place: str
    case: str
    counter: str
    was: float
    now: float

    @property
    def factor(self) -> float:
        """The new value divided by the old one; infinite if the old one is 0."""
        return self.now / self.was if self.was else math.inf

    @property
    def distance(self) -> float:
        """The absolute logarithm of the factor; infinite if one of the values is 0."""
        return abs(math.log(self.factor)) if self.now and self.was else math.inf


def releases(files: Sequence[Records]) -> list[Release]:
    """The releases of record files, the oldest first. Files of the same release are combined."""
    found: dict[tuple[str, tuple[str, ...]], Release] = {}
    for records in files:
        if not records.schedules:
            continue
        facts: list[Mapping[str, Any]] = [run["facts"] for run in records.runs]
        jax = facts[0]["versions"]["jax"]
        compilers = {f"{k} {v}": None for f in facts for k, v in (f.get("compiler") or {}).items()}
        suite = facts[0]["suite"]
        commit = str(suite.get("commit") or "unknown")[:12] + ("" if suite.get("clean") else ", changed")
        release = found.setdefault((jax, tuple(compilers)), Release(jax, tuple(compilers), commit))
        for line in records.schedules:
            release.lines.setdefault(line["place"], {})[line["case"].partition("@")[0]] = line
    return sorted(found.values(), key=lambda r: [_sortable(r.jax), *(_sortable(c) for c in r.compilers)])


def _sortable(text: str) -> tuple[int, ...]:
    try:
        return (*Version(text.split()[-1]).release, 0, 0, 0, 0)[:5]
    except InvalidVersion:
        return ()


def places(every: Sequence[Release]) -> list[str]:
    """The places of all releases, in the order in which they occur."""
    return list({place: None for release in every for place in release.lines})


def common(every: Sequence[Release], place: str) -> list[str]:
    """The programs that every release compiled for a place, in the order of the newest one."""
    with_place = [release for release in every if place in release.lines]
    if not with_place:
        return []
    return [
        case
        for case in with_place[-1].lines[place]
        if all(case in r.lines[place] and r.lines[place][case]["verdict"] not in BAD for r in with_place)
    ]


def known(every: Sequence[Release], place: str, counter: str) -> list[str]:
    """The programs of `common` for which each release with the place has a value of the counter."""
    with_place = [release for release in every if place in release.lines]
    return [
        case
        for case in common(every, place)
        if all(r.value(place, case, counter) is not None for r in with_place)
    ]


def total(release: Release, place: str, cases: Sequence[str], counter: str) -> float | None:
    """The sum of a counter over programs whose values are known (see `known`); None for no programs."""
    values = [release.value(place, case, counter) for case in cases]
    return sum(v for v in values if v is not None) if values else None


def changes(old: Release, new: Release) -> Iterator[CounterChange]:
    """All counters that differ, exactly, of all programs that both releases have."""
    for place, of in new.lines.items():
        for case in of:
            for counter in COUNTERS:
                was, now = (release.value(place, case, counter) for release in (old, new))
                if was is not None and now is not None and was != now:
                    yield CounterChange(place, case, counter, was, now)


def verdicts(old: Release, new: Release) -> Iterator[tuple[str, str, Line, Line]]:
    """(place, case, old line, new line) of the programs that compile in only one of the two releases."""
    for place, of in new.lines.items():
        for case, line in of.items():
            before = old.lines.get(place, {}).get(case)
            if before is not None and (before["verdict"] in BAD) != (line["verdict"] in BAD):
                yield place, case, before, line
