# SPDX-License-Identifier: Apache-2.0
"""Known issues: wrong answers of released software, listed with a link and an expiry release.

The suite's file is `harness/meshmark/levels/data/known_issues.toml`; `--known-issues FILE` adds a vendor's
file. Each holds one table [[issue]] per issue:

    cases      patterns of case ids (fnmatch: * stands for anything)
    modes      the modes in which they may fail: auto, explicit, manual ...
    checks     the checks that may fail: numbers, execute ...
    verdicts   how they may fail: fail, error, crash, hang
    symptom    a regular expression that the reason of the failure must contain
    jax        affected releases, as a version specifier (">=0.10,<0.12")
    backends   affected backends, or ["*"]
    topologies only these compile-only topologies (fnmatch: 2x* is any two slices); if missing: everywhere
    processes  true: only in runs over several processes; if missing: with one process and with several
    link       where it is reported or documented; README.md#... or results/findings/... if it is not reported yet
    why        what is known about it, one line
    expires    the first JAX release in which it counts as a failure again
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from meshmark.core import files, saying
from meshmark.core.errors import BadInput
from meshmark.core.privacy import redact
from meshmark.core.verdicts import BAD, CHECKS, Line
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import MODES
from meshmark.operations.selection import CAPABILITIES, Selection

ANYTHING = (
    ("0", "a", "-"),
    ("1024 of 1024 elements differ", "RuntimeError: INTERNAL", "SIGSEGV", "past its deadline, in api:wait:1"),
)
"""Reasons that have nothing in common: a symptom that fits all of a row would excuse every failure."""

FILE = Path(__file__).resolve().parent / "data" / "known_issues.toml"


class KnownIssuesError(BadInput, ValueError):
    """A file of known issues that can't be used; the message is one line."""


@dataclass
class Issue:
    """One known issue."""

    cases: Sequence[str]
    checks: Sequence[str]
    jax: str
    backends: Sequence[str]
    link: str
    why: str
    expires: str
    verdicts: Sequence[str]
    symptom: str
    modes: Sequence[str]
    topologies: Sequence[str] = ()
    processes: bool = False
    _pattern: re.Pattern[str] = field(init=False, repr=False)
    _symptom: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pattern = re.compile("|".join(translate(p) for p in self.cases))
        self._symptom = re.compile(self.symptom)

    def concerns(self, jax: str, backend: str) -> bool:
        """Whether the issue can occur with this release and backend, and has not expired."""
        version = Version(jax)
        return (
            SpecifierSet(self.jax, prereleases=True).contains(version)
            and version < Version(self.expires)
            and any(b in ("*", backend) for b in self.backends)
        )

    def at(self, topology: str) -> bool:
        """Whether the issue lists this topology, by name or pattern."""
        return any(re.match(translate(pattern), topology) for pattern in self.topologies)

    def covers(self, case_id: str) -> bool:
        """Whether one of the issue's patterns matches the case, in one of its modes."""
        return self._pattern.match(case_id) is not None and case_id.split("/")[2:3] in [
            [m] for m in self.modes
        ]

    def explains(self, check: object, verdict: object, reason: object) -> bool:
        """Whether a failure of a covered case is the listed one. Any other failure stays a failure. The symptom is
        searched in the redacted text, as in records, so that a reader of records comes to the same answer as the
        run."""
        told = redact(str(reason))
        return check in self.checks and verdict in self.verdicts and bool(self._symptom.search(told))


def read_known_issues(path: Path = FILE) -> list[Issue]:
    """All issues of a file; KnownIssuesError if it can't be read or does not have this module's form."""
    if not path.is_file():
        mend = "install meshmark again" if path == FILE else "name a file that is there"
        raise KnownIssuesError(f"there is no file of known issues {path}: {mend}")
    try:
        text = files.read_text(path)
    except (OSError, ValueError) as error:
        raise KnownIssuesError(f"{path} can't be read as TOML: {error}") from None
    return list(_issues(text, path))


@lru_cache(maxsize=4)
def _issues(text: str, path: Path) -> tuple[Issue, ...]:
    """The issues of a file that holds this text. A review needs them several times per product, and parsing them takes
    longer than the rest of it."""
    try:
        found = tomllib.loads(text)
    except ValueError as error:
        raise KnownIssuesError(f"{path} can't be read as TOML: {error}") from None
    entries = found.pop("issue", [])
    if found or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        fields = ", ".join((*_LISTS, *_TEXTS))
        raise KnownIssuesError(f"{path}: only tables [[issue]] may be there, each with {fields}")
    for number, entry in enumerate(entries, 1):
        for problem in _problems(entry):
            raise KnownIssuesError(f"{path}: issue {number}: {problem}")
    return tuple(Issue(**entry) for entry in entries)


_TEXTS = ("jax", "link", "why", "expires", "symptom")
_LISTS = ("cases", "modes", "checks", "verdicts", "backends")


def _problems(entry: Mapping[str, Any]) -> Iterator[str]:
    """The faults of an [[issue]], each with the mend."""
    if lacking := sorted({*_TEXTS, *_LISTS} - set(entry)):
        yield f"`{lacking[0]}` is missing: add it"
        return
    if unknown := sorted(set(entry) - {*_TEXTS, *_LISTS, "topologies", "processes"}):
        yield f"unknown field `{unknown[0][:40]}`: take it out"
    for name in _TEXTS:
        if not isinstance(entry[name], str) or not entry[name].strip() or not entry[name].isprintable():
            yield f"`{name}` must be one line of text"
            return
    for name in (*_LISTS, "topologies"):
        value = entry.get(name, ["*"])
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            yield f"`{name}` must be a list of texts"
            return
    if not isinstance(entry.get("processes", True), bool):
        yield "`processes` must be true or false"
    if strange := [mode for mode in entry["modes"] if mode not in MODES]:
        yield f"unknown mode {strange[0][:40]!r}: choose from {', '.join(MODES)}"
    if strange := [check for check in entry["checks"] if check not in CHECKS]:
        yield f"unknown check {strange[0][:40]!r}: choose from {', '.join(CHECKS)}"
    if strange := [verdict for verdict in entry["verdicts"] if verdict not in BAD]:
        yield f"unknown verdict {strange[0][:40]!r}: choose from {', '.join(BAD)}"
    try:
        if any(all(re.search(entry["symptom"], text) for text in row) for row in ANYTHING):
            yield "`symptom` fits anything: write what the reason of this failure says"
    except re.error as error:
        yield f"`symptom` is not a regular expression: {error}"
    try:
        SpecifierSet(entry["jax"])
        Version(entry["expires"])
    except (InvalidSpecifier, InvalidVersion) as error:
        yield f"{error}: `jax` holds releases such as '>=0.10,<0.12', `expires` one release"


def load(jax: str, backend: str, path: Path = FILE, topology: str = "", processes: int = 1) -> list[Issue]:
    """The issues that apply to this release, backend, compile-only topology ("" for real devices) and number
    of processes."""
    return [
        issue
        for issue in read_known_issues(path)
        if issue.concerns(jax, backend)
        and (not issue.topologies or issue.at(topology))
        and (not issue.processes or (processes > 1 and not topology))
    ]


def covers_a_case(issue: Issue, num_devices: int, processes: int = 1) -> bool:
    """Whether the table has a case on these devices that the issue covers, in whichever mode's turn it is."""
    patterns = [pattern.split("/")[0] for pattern in issue.cases]
    named = tuple(name for name in OPERATIONS if any(fnmatchcase(name, pattern) for pattern in patterns))
    chosen = Selection(
        "full", capabilities=tuple(CAPABILITIES), processes=processes, operations=named, turning=False
    )
    return bool(named) and any(issue.covers(case.id) for case in cases.cases(chosen, num_devices))


def apply(issues: Sequence[Issue], case_id: str, lines: Sequence[Line]) -> None:
    """Turn listed failures into `known`, and mark a listed case that passes as fixed."""
    for issue in issues:
        if not issue.covers(case_id):
            continue
        listed = [line for line in lines if line.check in issue.checks]
        bad = [line for line in listed if line.verdict in BAD]
        explained = [line for line in bad if issue.explains(line.check, line.verdict, line.reason)]
        for line in explained:
            line.data |= {"link": issue.link, "was": line.verdict}
            line.verdict = "known"
            line.reason = saying.printable_line(f"{issue.why} | {line.reason}")
        if not bad:
            for line in listed:
                if line.verdict == "pass":
                    line.data["fixed"] = True
