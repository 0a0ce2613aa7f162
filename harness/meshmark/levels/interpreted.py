# SPDX-License-Identifier: Apache-2.0
"""Counts the must-pass cases of each level that pass by interpretation of programs compiled for a topology.

This is not a level, because nothing ran. Texts name the level with "(interpreted)", and count the cases that have a
program over all devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict

from meshmark.core import meshes
from meshmark.records.fields import Field
from meshmark.records.reading import Judged


class InterpretedData(TypedDict):
    """Cases of one level whose compiled text an interpreter computed. It is not a level: nothing ran."""

    level: Annotated[str, Field("L0 to L4.")]
    cases: Annotated[int, Field("Cases of the level's list with a program over all devices.", least=0)]
    passed: Annotated[
        int, Field("Those whose numbers pass by interpretation, and of which no other check fails.", least=0)
    ]
    missing: Annotated[int, Field("Those that were not judged.", least=0)]


@dataclass(frozen=True)
class Interpreted:
    """One level of a compile-only run."""

    level: str
    cases: int
    """The must-pass cases with a program over all devices."""
    passed: int
    """Those whose numbers pass by interpretation, and of which no other check fails."""
    missing: int
    """Those that were not judged."""

    def to_json(self) -> InterpretedData:
        """The counts in JSON types."""
        return {
            "level": self.level,
            "cases": self.cases,
            "passed": self.passed,
            "missing": self.missing,
        }

    def describe(self) -> str:
        """L1 (interpreted): numbers of 1100 of 1180 must-pass cases over all devices pass; 80 missing."""
        of = f"{self.passed} of {self.cases} must-pass cases over all devices"
        missing = f"; {self.missing} missing" if self.missing else ""
        return f"{self.level} (interpreted): numbers of {of} pass{missing}"


def levels(
    lists: Iterable[tuple[str, Sequence[str]]], judged: Mapping[str, Sequence[Judged]], devices: int
) -> tuple[Interpreted, ...]:
    """The counts for these lists of (level, case ids). `judged`: the cases by id without the topology."""
    found = []
    for level, ids in lists:
        chosen = [name for name in ids if _over_all(name, devices)]
        passed = sum(bool(judged.get(name)) and all(j.interpreted for j in judged[name]) for name in chosen)
        found.append(Interpreted(level, len(chosen), passed, sum(not judged.get(name) for name in chosen)))
    return tuple(found)


def by_case(cases: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Judged cases by their id without the topology."""
    found: dict[str, list[Judged]] = {}
    for one in cases:
        found.setdefault(one.case.partition("@")[0], []).append(one)
    return found


def _over_all(name: str, devices: int) -> bool:
    """Whether a case has a program, over all devices."""
    _, _, mode, mesh, *_ = name.split("/")
    return mode != "host" and meshes.parse_mesh(mesh).size == devices
