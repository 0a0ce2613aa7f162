# SPDX-License-Identifier: Apache-2.0
"""Whether a record file is whole: the line of what a run chose, and the line that closes it.

Lines are appended one by one, so a file that was cut after a whole case looks like a whole one. A run therefore writes
how many cases it chose once it knows that (`chosen`), and closes with what the file holds up to there (`end`): counts,
and a digest of what the lines say. An end that does not fit the lines before it is a problem of the file. A file
without an end is of a run that did not end, or was cut.

A run line says `closes` where its version writes both. Older files are read as before, and a cut can't be seen in them.
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
    """The line of what a run is to judge: all of it, with what was finished before."""
    every = set(names)
    return {
        "schema": 1,
        "kind": "chosen",
        "cases": len(every),
        "digest": of_cases(every),
        "deselected": deselected,
    }


def unexplained(end: Mapping[str, Any], bad: Iterable[str]) -> str:
    """A note for a closing line whose exit code is not explained by a verdict, or "". bad: the bad verdicts."""
    if end.get("exit_code") == 1 and not set(end["verdicts"]) & set(bad) and end["cases"]:
        return "its run ended with exit code 1, and no case has a bad verdict: ask for what the run printed"
    return ""


class Account:
    """What the lines of one record file add up to, line by line."""

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
        """Count one line; None is one that could not be read. Gives what is wrong with its place, or ""."""
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
        """The closing line of what was added up to now."""
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
        """What is to be said of the end of the file, as the rest of a sentence; "" of a whole one."""
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
        """How a closing line departs from the lines before it, or ""."""
        if end.get("run") != self._run.get("run"):
            return f"the closing line is not of the run before it: {MADE_AGAIN}"
        for name, there in self._counted().items():
            if (said := end.get(name)) != there:
                return f"the closing line says {name} {str(said)[:80]}, and the lines before it {there}: {MADE_AGAIN}"
        return ""

    def _lacking(self) -> bool:
        """Whether the cases that are there are other ones than were chosen."""
        there = self._finished or self._timed
        return (self._chosen.get("digest"), self._chosen.get("cases")) != (of_cases(there), len(there))

    def _there(self) -> str:
        there = len(self._finished or self._timed)
        if not self._chosen:
            return f"{there} cases are there, and it had not chosen yet"
        return f"{there} of {self._chosen.get('cases')} chosen cases are there"
