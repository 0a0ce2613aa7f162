# SPDX-License-Identifier: Apache-2.0
"""Reading record files: what is a record is kept, and every other line becomes a problem.

The checks follow from the definition (meshmark.records.definition): of each kind of line, the fields that the code
relies on must be there with their type; verdicts and checks must be listed ones, and samples positive.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args, get_origin, is_typeddict

from meshmark.core.errors import BadInput
from meshmark.core.verdicts import VERDICTS, worst
from meshmark.records.definition import (
    KINDS,
    LINES,
    RANKED,
    RELIED_ON,
    SCHEMA,
    CeilingLine,
    ComparisonLine,
    ConformanceLine,
    RunLine,
    TimingLine,
)
from meshmark.records.fields import entries, last, taken_apart

LONGEST = 1 << 20
"""Characters of the longest line that is read."""

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
    def finished(self) -> bool:
        """Whether its last line is there: it holds the seconds that the case took."""
        return any("seconds" in line for line in self.lines)

    @property
    def reason(self) -> str:
        """The reason of its worst line."""
        return min(self.lines, key=lambda line: VERDICTS.index(line["verdict"]))["reason"]

    def __getitem__(self, name: str) -> Any:
        head: dict[str, Any] = self.lines[0]  # type: ignore[assignment]
        return head[name]


@dataclass
class Records:
    """The contents of a record file: the run lines, the judged cases by id, timings, ceilings and comparisons in their
    order, and what could not be read."""

    runs: list[RunLine] = field(default_factory=list)
    cases: dict[str, Judged] = field(default_factory=dict)
    timings: list[TimingLine] = field(default_factory=list)
    ceilings: list[CeilingLine] = field(default_factory=list)
    comparisons: list[ComparisonLine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

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
        else:
            self.comparisons.append(record)


def read(path: Path) -> Records:
    """Read a file, plain or packed (.gz). Lines that can't be used become `problems` and the rest is kept;
    RecordError where the file as a whole can't be read or holds no run."""
    records = Records()
    try:
        with opened(path) as file:
            for number, text in enumerate(iter(lambda: file.readline(LONGEST + 1), ""), 1):
                try:
                    records.add(parsed(text))
                except RecordError as error:
                    records.problems.append(f"{path}:{number}: {error}")
                    if len(text) > LONGEST:
                        break
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RecordError(
            f"{path} is not a whole gzip file: pack it again, or name the plain .jsonl"
        ) from None
    except OSError as error:
        raise RecordError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None
    if not records.runs:
        first = f" ({records.problems[0]})" if records.problems else ""
        raise RecordError(f"{path} holds no run: name a file that `meshmark test --record` wrote{first}")
    return records


def opened(path: Path) -> IO[str]:
    """The text of a record file, unpacked where its name ends in .gz; bytes that are not UTF-8 are replaced."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def parsed(text: str) -> dict[str, Any]:
    """The record of one line of text, with its end of line; RecordError says why a line is not a record."""
    if len(text) > LONGEST:
        raise RecordError(f"a line of more than {LONGEST} characters is not a record; the rest is left out")
    if not text.endswith("\n"):
        raise RecordError(TORN)
    try:
        record = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON ({str(error)[:80]}): take the line out or make the file again") from None
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise RecordError(f"not a record: `kind` must be one of {', '.join(KINDS)}")
    if record.get("schema") != SCHEMA:
        raise RecordError(
            f"schema {record.get('schema')!r}, and this version reads {SCHEMA}: use the suite that wrote it"
        )
    kind = record["kind"]
    if kind == "comparison" and record.get("what") == "process":
        kind = "comparison process"
    for check in CHECKED[kind]:
        value = record.get(check.name)
        if not isinstance(value, check.types):
            raise RecordError(f"not a record: `{check.name}` must be {check.called}")
        if check.choices is not None and value not in check.choices:
            raise RecordError(f"not a record: unknown `{check.name}` {str(value)[:40]!a}")
        if check.above is not None and not _above(value, check.above):
            raise RecordError(f"not a record: `{check.name}` must be numbers above {check.above:g}")
    return record


def _above(values: Any, bound: float) -> bool:
    return all(type(value) in (int, float) and value > bound for value in values)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not strict JSON")


# The checks, from the definition ----------------------------------------------------------------------------

CALLED = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "an object"}


class Required(NamedTuple):
    """A field that a line must have."""

    name: str
    types: tuple[type, ...]
    called: str
    """Its type, in words."""
    choices: frozenset[str] | None
    above: float | None
    """Of a list: each item is a number above this."""


def _required(line: type, names: tuple[str, ...]) -> Iterator[Required]:
    annotations = {entry.name: entry.type for entry in entries(line)}
    for name in names:
        plain, fields = taken_apart(annotations[name])
        own = dict if is_typeddict(plain) else get_origin(plain) or plain
        above = None
        if own is list:
            above = last(taken_apart(get_args(plain)[0])[1], "above")
        choices = last(fields, "choices") if name in RANKED else ()
        types = (int, float) if own is float else (own,)
        yield Required(name, types, CALLED[own], frozenset(choices) if choices else None, above)


CHECKED: dict[str, tuple[Required, ...]] = {
    kind: tuple(_required(LINES[kind.split()[0]], names)) for kind, names in RELIED_ON.items()
}
"""What a line must have, by kind; comparisons of `what` process apart."""
