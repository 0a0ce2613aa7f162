"""Known issues: wrong answers of released software, listed with a link and an expiry release.

The file is `harness/meshmark/levels/data/known_issues.toml`, with one table [[issue]] per issue:

    cases      patterns of case ids (fnmatch: * stands for anything)
    checks     the checks that may fail: numbers, execute ...
    jax        affected releases, as a version specifier (">=0.10,<0.12")
    backends   affected backends, or ["*"]
    topologies only these compile-only topologies (fnmatch: 2x* is any two slices); if missing: everywhere
    processes  true: only in runs over several processes; if missing: with one process and with several
    link       where it is reported or documented; README.md#... if it is not reported yet
    why        what is known about it, one line
    expires    the first JAX release in which it counts as a failure again
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from meshmark.core.verdicts import BAD, Line

FILE = Path(__file__).resolve().parent / "data" / "known_issues.toml"


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
    topologies: Sequence[str] = ()
    processes: bool = False
    _pattern: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pattern = re.compile("|".join(translate(p) for p in self.cases))

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
        """Whether one of the issue's patterns matches the case."""
        return self._pattern.match(case_id) is not None


def load(jax: str, backend: str, path: Path = FILE, topology: str = "", processes: int = 1) -> list[Issue]:
    """The issues that apply to this release, backend, compile-only topology ("" for real devices) and number
    of processes."""
    entries = tomllib.loads(path.read_text()).get("issue", [])
    return [
        issue
        for issue in (Issue(**entry) for entry in entries)
        if issue.concerns(jax, backend)
        and (not issue.topologies or issue.at(topology))
        and (not issue.processes or (processes > 1 and not topology))
    ]


def apply(issues: Sequence[Issue], case_id: str, lines: Sequence[Line]) -> None:
    """Turn listed failures into `known`, and mark a listed case that passes as fixed."""
    for issue in issues:
        if not issue.covers(case_id):
            continue
        listed = [line for line in lines if line.check in issue.checks]
        bad = [line for line in listed if line.verdict in BAD]
        for line in bad:
            line.data |= {"link": issue.link, "was": line.verdict}
            line.verdict = "known"
            line.reason = f"{issue.why} | {line.reason}"
        if not bad:
            for line in listed:
                if line.verdict == "pass":
                    line.data["fixed"] = True
