# SPDX-License-Identifier: Apache-2.0
"""Known issues and committed counters, by which a run is judged in addition to each case's contract.

The suite's own are in the package. A vendor may name more with `--known-issues FILE` and `--counters DIR`. The records
of a run name these files, with a digest of their contents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshmark.levels import counters, known_issues
from meshmark.levels.known_issues import Issue
from meshmark.records import run_line
from meshmark.records.run_definition import RunFacts


@dataclass(frozen=True)
class Expectations:
    """The suite's known issues and counters, and those that a vendor names.

    The constructor reads the named files: KnownIssuesError or CountersError, one line each, if one can't be used.
    """

    files: Sequence[Path] = ()
    """Files of known issues, in addition to the suite's."""
    directory: Path | None = None
    """A directory of counters; for a run that it has counters of, they replace the suite's."""
    described: dict[str, Any] = field(init=False, default_factory=dict)
    """The vendor's files, for the selection of a run line; empty without any. `known_issues`: file and digest of each;
    `counters`: directory and digest."""

    def __post_init__(self) -> None:
        known_issues.read_known_issues()
        for path in self.files:
            known_issues.read_known_issues(path)
        if self.files:
            self.described["known_issues"] = [{"file": p.name, "digest": _digest([p])} for p in self.files]
        if self.directory is not None:
            found = counters.files(self.directory)
            for path in found:
                counters.read_counters(path)
            self.described["counters"] = {
                "directory": self.directory.resolve().name,
                "digest": _digest(found),
            }

    def issues(self, facts: RunFacts) -> list[Issue]:
        """The known issues that apply to a run with these facts (of its run line), the suite's first."""
        return _issues_of((known_issues.FILE, *self.files), facts)

    def given_issues(self, facts: RunFacts) -> list[Issue]:
        """Those of `issues` that stand in the named files."""
        return _issues_of(self.files, facts)

    def committed(self, facts: RunFacts) -> dict[str, str]:
        """The committed counters of a run with these facts by case id; empty if there are none."""
        return counters.load(*counters.identity(facts), own=self.directory)

    def earlier(self, facts: RunFacts) -> dict[str, tuple[str, str]]:
        """For a release without committed counters: by case id, the newest older release that has some, and its
        counters."""
        jax, backend, devices = counters.identity(facts)
        if counters.find_file(jax, backend, devices, self.directory):
            return {}
        release = counters.newest_before(jax, backend, devices, self.directory)
        if release is None:
            return {}
        older = counters.load(release, backend, devices, self.directory)
        return {case: (release, text) for case, text in older.items()}

    def lines(self, facts: RunFacts) -> Iterator[str]:
        """The lines about counters and known issues in the header of a run."""
        identity = counters.identity(facts)
        path = counters.find_file(*identity, own=self.directory)
        if path is None:
            where = f" in {self.directory} or the suite" if self.directory else ""
            older = counters.newest_before(*identity, own=self.directory)
            judges = f"no more bytes than with JAX {older}" if older else "the contract alone judges"
            yield f"counters: none committed for {'-'.join(identity)}{where}: {judges}"
        else:
            whose = "the suite" if path.parent == counters.DIRECTORY else path.parent
            yield f"counters: {path.stem} of {whose}"
        yield from self.issue_lines()

    def issue_lines(self) -> Iterator[str]:
        """The line about known issues in the header of a run, if a vendor names any."""
        if self.files:
            told = ", ".join(
                f"{len(known_issues.read_known_issues(path))} of {path.name}" for path in self.files
            )
            yield f"known issues: {len(known_issues.read_known_issues())} of the suite, {told}"


def _digest(paths: Sequence[Path]) -> str:
    """SHA-256 (the first 16 hexadecimal digits) of the names and contents of files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _issues_of(files: Sequence[Path], facts: RunFacts) -> list[Issue]:
    release, backend = facts["versions"]["jax"], facts["backend"]
    topology, processes = str(facts.get("topology") or ""), run_line.processes(facts)
    return [
        issue for path in files for issue in known_issues.load(release, backend, path, topology, processes)
    ]
