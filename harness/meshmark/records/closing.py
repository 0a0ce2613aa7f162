# SPDX-License-Identifier: Apache-2.0
"""Tells whether a record file is complete, from the line of the chosen cases and the closing line.

Lines are appended one by one, so a file that was cut after a case looks complete. A run therefore writes how many cases
it chose as soon as it knows them (`chosen`). Its last line (`end`) holds counts and a digest of the lines before it. An
end that does not fit the lines before it is a problem of the file. A file without an end was cut, or its run did not
end.

A run line has the field `closes` if its version writes both lines. A cut of an older file can't be seen.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from meshmark.core.verdicts import VERDICTS

CLOSES = {"closes": True}
"""The field of a run line whose run writes a closing line."""

COVERED = (
    *("kind", "run", "case", "check", "verdict", "cadence", "process", "bits", "error", "bound", "seconds"),
    *("samples_s", "value"),
)
"""The fields of a line that the digest covers: what it is about and what was found. Texts are left out, because privacy
takes names and paths out of them before a file is published."""

WELL = (0, 1)
"""The exit codes of a run that judged or timed all that it chose."""

OLD = "no closing line, so a cut can't be seen: an earlier version of Meshmark wrote this"

MADE_AGAIN = "the file was changed, or put together from several: use it as it was written"


def of_cases(names: Iterable[str]) -> str:
    """A digest of case ids in any order: 16 hexadecimal digits."""
    return hashlib.sha256("\n".join(sorted(set(names))).encode()).hexdigest()[:16]


def make_chosen_line(names: Iterable[str], deselected: int = 0) -> dict[str, Any]:
    """The `chosen` line of the cases that a run is to judge, including those that were finished before it was
    resumed."""
    every = set(names)
    return {
        "schema": 1,
        "kind": "chosen",
        "cases": len(every),
        "digest": of_cases(every),
        "deselected": deselected,
    }


def find_unexplained(end: Mapping[str, Any], bad: Iterable[str]) -> str:
    """A note if no verdict explains the exit code of a closing line; else "". bad: the bad verdicts."""
    if end.get("exit_code") == 1 and not set(end["verdicts"]) & set(bad) and end["cases"]:
        return "its run ended with exit code 1, and no case has a bad verdict: ask for what the run printed"
    return ""


class Account:
    """Adds up the lines of one record file."""

    def __init__(self) -> None:
        self.lines = 0
        self.timings = 0
        self._worst: dict[str, int] = {}
        self._finished: set[str] = set()
        self._timed: set[str] = set()
        self._digest = hashlib.sha256()
        self._run: Mapping[str, Any] = {}
        """The last run line."""
        self._chosen: Mapping[str, Any] = {}
        """The last line of what was chosen."""
        self._end: Mapping[str, Any] = {}
        """The closing line, where it is the last one."""

    def add(self, record: Mapping[str, Any] | None) -> str:
        """Count one line, or None for a line that could not be read. Gives the problem of its place in the file, or
        ""."""
        record, problem = record or {}, ""
        kind = record.get("kind")
        if self._end:
            problem = f"a line behind the closing line: {MADE_AGAIN}"
            self._end = {}
        elif kind == "end":
            problem = self._unlike(record)
            self._end = record
        if kind == "run":
            self._run, self._chosen = record, {}
        elif kind == "chosen":
            self._chosen = record
        elif kind == "conformance":
            case, rank = record["case"], VERDICTS.index(record["verdict"])
            self._worst[case] = min(rank, self._worst.get(case, rank))
            if "seconds" in record:
                self._finished.add(case)
        elif kind == "timing":
            self._timed.add(record["case"])
            self.timings += 1
        self.lines += 1
        said = [record.get(name) for name in COVERED]
        self._digest.update(json.dumps(said, separators=(",", ":"), sort_keys=True).encode() + b"\n")
        return problem

    def end(self, exit_code: int) -> dict[str, Any]:
        """The closing line for the lines that were added."""
        return {
            "schema": 1,
            "kind": "end",
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "exit_code": exit_code,
        } | self._counted()

    @property
    def closes(self) -> bool:
        """Whether the last run line promises a closing line."""
        return self._run.get("closes") is True

    @property
    def closed(self) -> bool:
        """Whether a closing line is the last one."""
        return bool(self._end)

    def state(self) -> str:
        """A note about the end of the file; "" if it is complete."""
        if self._end:
            code, lacking = self._end["exit_code"], self._lacking()
            early = lacking or code not in WELL
            return f"the run ended early, with exit code {code}: {self._there()}" if early else ""
        if not self.closes:
            return OLD
        return f"the run did not end: {self._there()}"

    def _counted(self) -> dict[str, Any]:
        verdicts = Counter(VERDICTS[self._worst[case]] for case in self._finished)
        return {
            "cases": len(self._finished),
            "verdicts": {v: verdicts[v] for v in VERDICTS if verdicts[v]},
            "timings": self.timings,
            "lines": self.lines,
            "digest": self._digest.hexdigest()[:16],
        }

    def _unlike(self, end: Mapping[str, Any]) -> str:
        """How a closing line differs from the lines before it, or ""."""
        if end.get("run") != self._run.get("run"):
            return f"the closing line is not of the run before it: {MADE_AGAIN}"
        for name, there in self._counted().items():
            if (said := end.get(name)) != there:
                return f"the closing line says {name} {str(said)[:80]}, and the lines before it {there}: {MADE_AGAIN}"
        return ""

    def _lacking(self) -> bool:
        """Whether the finished cases are not exactly the chosen ones."""
        there = self._finished or self._timed
        return (self._chosen.get("digest"), self._chosen.get("cases")) != (of_cases(there), len(there))

    def _there(self) -> str:
        there = len(self._finished or self._timed)
        if not self._chosen:
            return f"{there} cases are there, and it had not chosen yet"
        return f"{there} of {self._chosen.get('cases')} chosen cases are there"
