# SPDX-License-Identifier: Apache-2.0
"""Reads record files: keeps the valid lines, and turns every other line into a problem.

Every command reads records with this module. The checks follow from the definition (meshmark.records.definition). Each
kind of line must have the fields that the code relies on. Every listed field must have the type and limits of the
definition, at any depth. A name that comes twice in one object is a problem, because readers would differ in the value
that they use. A file beyond the limits is refused before it fills the memory.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import IO, Any, BinaryIO

from meshmark.core import files
from meshmark.core.errors import BadInput
from meshmark.core.verdicts import VERDICTS, worst
from meshmark.records import checking, sealing
from meshmark.records.closing import Account
from meshmark.records.definition import (
    KINDS,
    LINES,
    RELIED_ON,
    CeilingLine,
    ChosenLine,
    ComparisonLine,
    ConformanceLine,
    EndLine,
    ScheduleLine,
    TimingLine,
)
from meshmark.records.fields import entries
from meshmark.records.run_definition import RunLine
from meshmark.records.shared import CASE_ID, SCHEMA

LONGEST = 1 << 20
"""Characters of the longest line that is read."""

MOST_LINES = 1_000_000
"""The most lines of one file. A line takes 1 to 3 kB of memory."""

MOST_BYTES = 1 << 30
"""The most bytes of one file, unpacked."""

DEEPEST = 60
"""The most brackets inside each other: other programs that read records have limits of their own."""

TORN = "the last line is cut off, as by a killed run; what came before it is used"
"""The one problem of a file that does not keep a run from going on with it."""


class RecordError(BadInput, ValueError):
    """A record file that can't be used; the message is one line that names the file and the mend."""


@dataclass
class Judged:
    """One case of a record file: its lines and its verdict."""

    case: str
    lines: list[ConformanceLine] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The worst verdict of its lines."""
        return worst(line["verdict"] for line in self.lines)

    @property
    def interpreted(self) -> bool:
        """Whether its numbers pass by interpretation of the compiled text: nothing ran, and no check failed."""
        numbers = [line for line in self.lines if line.get("interpreted") is True]
        judged = {line["check"] for line in numbers} & {"numbers", "gradient"}
        return self.verdict == "not_run" and bool(judged) and all(n["verdict"] == "pass" for n in numbers)

    @property
    def finished(self) -> bool:
        """Whether its closing line was read, which holds the seconds that the case took."""
        return any("seconds" in line for line in reversed(self.lines))

    @property
    def worst_line(self) -> ConformanceLine:
        """The first of its lines with the worst verdict."""
        return min(self.lines, key=lambda line: VERDICTS.index(line["verdict"]))

    @property
    def reason(self) -> str:
        """The reason of its worst line."""
        return self.worst_line["reason"]

    def __getitem__(self, name: str) -> Any:
        head: dict[str, Any] = self.lines[0]  # type: ignore[assignment]
        return head[name]


@dataclass
class Records:
    """The contents of a record file: the run lines, the judged cases by id, the lines of each other kind in their
    order, and the problems of what could not be read."""

    runs: list[RunLine] = field(default_factory=list)
    cases: dict[str, Judged] = field(default_factory=dict)
    timings: list[TimingLine] = field(default_factory=list)
    ceilings: list[CeilingLine] = field(default_factory=list)
    comparisons: list[ComparisonLine] = field(default_factory=list)
    schedules: list[ScheduleLine] = field(default_factory=list)
    chosen: list[ChosenLine] = field(default_factory=list)
    ends: list[EndLine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    state: str = ""
    """A note about the end of the file: the run did not end, or the file can't show whether it did; else ""."""
    closed: bool = False
    """Whether a closing line is the last one of the file."""
    closes: bool = False
    """Whether the last run line promises one."""
    sealed: bool = False
    """Whether each run line is sealed (meshmark.records.sealing)."""

    @property
    def cut(self) -> str:
        """Why chosen cases may be missing: the run ended early or did not end. "" if it ended well, or if the file
        can't show it."""
        return self.state if self.closes else ""

    def add(self, record: Any) -> None:
        """Add one checked line of any kind."""
        kind = record["kind"]
        if kind == "conformance":
            case = record["case"]
            judged = self.cases.get(case)
            if judged is None:
                judged = self.cases[case] = Judged(case)
            judged.lines.append(record)
        elif kind == "timing":
            self.timings.append(record)
        elif kind == "run":
            self.runs.append(record)
        elif kind == "ceiling":
            self.ceilings.append(record)
        elif kind == "schedule":
            self.schedules.append(record)
        elif kind == "chosen":
            self.chosen.append(record)
        elif kind == "end":
            self.ends.append(record)
        else:
            self.comparisons.append(record)


def read_records(path: Path) -> Records:
    """Read a file, plain or packed (.gz). Lines that can't be used become `problems`, and the other lines are kept.
    RecordError if the file as a whole can't be read, is larger than the limits, or holds no run."""
    records, account, seals = Records(), Account(), sealing.Seals()
    for place, text in _texts(path):
        record = _parsed(text)
        if isinstance(record, RecordError):
            records.problems.append(f"{place}: {record}")
            found = [account.add(None), seals.add(text, None)]
        else:
            records.add(record)
            found = [account.add(record), seals.add(text, record)]
        records.problems += [f"{place}: {problem}" for problem in found if problem]
    records.state, records.closed, records.closes = account.state(), account.closed, account.closes
    records.sealed = seals.every
    if not records.runs:
        first = f" ({records.problems[0]})" if records.problems else ""
        raise RecordError(f"{path} holds no run: name a file that `meshmark test --record` wrote{first}")
    return records


def each(path: Path) -> Iterator[tuple[str, dict[str, Any] | RecordError]]:
    """(FILE:LINE, the record or the error) of each line, one at a time in bounded memory. It ends after a line that is
    too long. RecordError as in `read_records`, but not for a file without a run."""
    return ((place, _parsed(text)) for place, text in _texts(path))


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    size = number = 0
    large = (
        f"{path} has more than {MOST_LINES} lines or {MOST_BYTES >> 20} MiB, which is the most that is read: record"
        " fewer cases in one file"
    )
    try:
        if path.suffix != ".gz" and path.stat().st_size > MOST_BYTES:
            raise RecordError(large)
        with opened(path) as file:
            while text := file.readline(LONGEST + 1):
                number += 1
                size += len(text)
                if number > MOST_LINES or size > MOST_BYTES:
                    raise RecordError(large)
                yield f"{path}:{number}", text
                if len(text) > LONGEST:
                    return
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RecordError(
            f"{path} is not a whole gzip file: pack it again, or name the plain .jsonl"
        ) from None
    except OSError as error:
        raise RecordError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None


class _Packed(gzip.GzipFile):
    """An unpacked file. Closing it closes the packed one too."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._file = file

    def close(self) -> None:
        """Close both."""
        super().close()
        self._file.close()


def opened(path: Path) -> IO[str]:
    """The text stream of a record file, unpacked if its name ends in .gz; bytes that are not UTF-8 are replaced.

    Only a line feed ends a line, as for `meshmark validate`: a carriage return inside of a line must not begin a record
    of its own."""
    file = files.opened(path)
    raw: Any = _Packed(file) if path.suffix == ".gz" else file
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline="\n")


def _parsed(text: str) -> dict[str, Any] | RecordError:
    try:
        return parsed(text)
    except RecordError as error:
        return error


def parsed(text: str) -> dict[str, Any]:
    """The record of one line of text, which must include its end of line. RecordError says why a line is not a record.
    The seal is removed, because it is about the file and not about the record."""
    if len(text) > LONGEST:
        raise RecordError(f"a line of more than {LONGEST} characters is not a record; the rest is left out")
    if not text.endswith("\n"):
        raise RecordError(TORN)
    try:
        record = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON ({str(error)[:80]}): take the line out or make the file again") from None
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise RecordError(f"not a record: `kind` must be one of {', '.join(KINDS)}")
    if record.get("schema") != SCHEMA:
        said = ascii(record.get("schema"))[:40]
        raise RecordError(f"schema {said}, and this version reads {SCHEMA}: use the suite that wrote it")
    if text.count("{") + text.count("[") > DEEPEST and _depth(record) > DEEPEST:
        raise RecordError(f"not a record: more than {DEEPEST} brackets inside each other")
    kind = record["kind"]
    if kind == "comparison" and record.get("what") == "process":
        kind = "comparison process"
    checked = CHECKED[kind]
    for name in RELIED_ON[kind]:
        if name not in record:
            raise RecordError(f"not a record: `{name}` {checked[name](None) or 'is missing'}")
    for name, value in record.items():
        if (check := checked.get(name)) and (problem := check(value)):
            raise RecordError(f"not a record: `{name}` {problem}")
    record.pop(sealing.FIELD, None)
    if "\\ud" in text.lower():
        record = _encodable(record)
    return record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError if a name comes twice. Names are interned, which halves the memory of many lines."""
    found = {intern(name): value for name, value in pairs}
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:40]!a} comes twice in one object")
    return found


def _depth(value: Any) -> int:
    """The depth of a JSON value, counted no further than DEEPEST + 1."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _encodable(value: Any) -> Any:
    """The value with `?` in place of lone surrogates, which UTF-8 can't encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_encodable(inner) for inner in value]
    if isinstance(value, dict):
        return {_encodable(name): _encodable(inner) for name, inner in value.items()}
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not strict JSON")


CHECKED: dict[str, dict[str, checking.Check]] = {
    kind: {
        entry.name: checking.check_of(entry.type, absent=entry.name == "facts")
        for entry in entries(LINES[kind.split()[0]])
    }
    for kind in RELIED_ON
}
"""The check of each field, by kind; comparisons of `what` process apart."""

for _kind in ("conformance", "timing", "schedule"):
    CHECKED[_kind]["case"] = checking.require_pattern(CASE_ID, "case id")
