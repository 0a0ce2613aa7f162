"""Records: append-only JSON lines, one run line and then a line a check or a measurement, strict JSON, flushed
a case (timings: a cell).

Schema 1. Every line has `schema`, `kind` ("run", "conformance", "timing", "ceiling" or "comparison") and `run`. The
run line comes first and holds the facts of meshmark.devices.facts and the selection. A conformance line names the case
(`case, operation, variant, mode, mesh, dtype, size_bytes, level, seed`) and one check (`check, verdict, reason` and
what was measured). A timing line names the case likewise, the `cadence`, the `process` (0, 1, ...: which of the
children that timed it), whether the values were `verified`, the `verdict`, and `samples_s`, all of them in the order
in which they were taken; the samples of one cell, cadence and process with the same position are one round. Where
several ranks timed, `samples_s` is the slowest rank's at each position, beside `samples_by_rank` and `skew`
(core.skew). A ceiling line holds what the machine was seen to do at best. A comparison line closes a child process
of `meshmark compare` (`what`: "process") or holds what was found of a case ("verdict"); the timing lines of a
comparison say their `environment`, A or B, and each has a run line. Numbers that JSON does not have are written as
the strings "inf", "-inf" and "nan".
"""

from __future__ import annotations

import gzip
import json
import math
import os
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

from meshmark.core.errors import BadInput
from meshmark.core.verdicts import CHECKS, VERDICTS, worst

SCHEMA = 1
KINDS = ("run", "conformance", "timing", "ceiling", "comparison")
LONGEST = 1 << 20
"""Characters of the longest line that is read."""

TORN = "the last line is cut off, as by a killed run; what came before it is used"
"""The one problem of a file that does not hinder going on with it."""


class RecordError(BadInput, ValueError):
    """A records file that can't be used; the message is one line that names the file and the mend."""


def dumps(record: dict[str, Any]) -> str:
    """One line of strict JSON."""
    return json.dumps(_finite(record), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


class Writer:
    """Appends records to a file; every `write` is one case, handed to the operating system at once."""

    def __init__(self, path: Path, file: BinaryIO, run: dict[str, Any]) -> None:
        """Write the run line at the end of the file; use `create` or `resume`."""
        self.path, self.run, self._file = path, uuid.uuid4().hex[:12], file
        self.write([{"schema": SCHEMA, "kind": "run", **run}])

    @classmethod
    def create(cls, path: Path, run: dict[str, Any]) -> Writer:
        """A new file; RecordError where it exists or can't be written."""
        _plain(path)
        try:
            file = open(path, "xb", buffering=0)  # noqa: SIM115
            try:
                return cls(path, file, run)
            except OSError:
                path.unlink()
                raise
        except FileExistsError:
            raise RecordError(f"{path} exists: records are never overwritten, name another file") from None
        except OSError as error:
            raise RecordError(f"can't write records to {path}: {os.strerror(error.errno or 0)}") from None

    @classmethod
    def resume(cls, path: Path, run: dict[str, Any]) -> tuple[Writer, dict[str, Judged]]:
        """Go on with the file of an interrupted run of `pytest conformance`: (writer, the cases that it finished);
        see `going_on`."""
        writer, records = cls.going_on(path, run)
        return writer, {name: judged for name, judged in records.cases.items() if judged.finished}

    @classmethod
    def going_on(cls, path: Path, run: dict[str, Any]) -> tuple[Writer, Records]:
        """Go on with the file of an interrupted run: (writer, what it has finished).

        What follows the last finished case or cell is cut off. RecordError where the file can't be read or was made
        by another release, on other devices, or with another selection, seed, repeat or timing.
        """
        _plain(path)
        records = read(path)
        if cut := [p for p in records.problems if not p.endswith(TORN)]:
            raise RecordError(f"can't resume: {cut[0]}")
        for name in ("selection", "seed", "repeat", "timing"):
            was, now = records.runs[0].get(name), json.loads(dumps({name: run.get(name)}))[name]
            if was != now:
                raise RecordError(
                    f"can't resume {path}: it has {name} {str(was)[:200]!a}, and this run {str(now)[:200]!a}"
                )
        for name in ("versions", "backend", "device_kind", "num_devices", "num_processes"):
            was, now = records.runs[0]["facts"].get(name), run["facts"][name]
            if was != now:
                raise RecordError(
                    f"can't resume {path}: its {name} were {str(was)[:200]!a}, and are {str(now)[:200]!a} here"
                )
        try:
            end = _end_of_finished(path)
            file = open(path, "r+b", buffering=0)  # noqa: SIM115
            file.truncate(end)
            file.seek(end)
            finished = read(path)
            return cls(path, file, run), finished
        except OSError as error:
            raise RecordError(f"can't write records to {path}: {os.strerror(error.errno or 0)}") from None

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Append these records in one piece; OSError when the disk is full, the file then being as before."""
        data = "".join(dumps({**r, "run": self.run}) + "\n" for r in records).encode()
        start = self._file.tell()
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._file.truncate(start)
            raise

    def beside(self, run: dict[str, Any]) -> Writer:
        """Another run in the same file, such as the other environment of a comparison."""
        return Writer(self.path, self._file, run)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _end_of_finished(path: Path) -> int:
    """Offset behind the last line that closes a case or cell, or is one of the run."""
    end = position = 0
    with open(path, "rb") as file:
        for line in file:
            position += len(line)
            closes = b'"seconds":' in line or b'"kind":"run"' in line or b'"kind":"ceiling"' in line
            if line.endswith(b"\n") and closes:
                end = position
    return end


@dataclass
class Judged:
    """One case of a record file: its lines and its verdict."""

    case: str
    lines: list[dict[str, Any]] = field(default_factory=list)

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
        return self.lines[0][name]


@dataclass
class Records:
    """What was read: the run lines, the judged cases by id, timings and ceilings as they came, and what could not
    be read."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    cases: dict[str, Judged] = field(default_factory=dict)
    timings: list[dict[str, Any]] = field(default_factory=list)
    ceilings: list[dict[str, Any]] = field(default_factory=list)
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read(path: Path) -> Records:
    """Read a file, plain or packed (.gz). Lines that can't be used become `problems` and the rest is kept;
    RecordError where the file as a whole can't be read or holds no run."""
    records = Records()
    try:
        with opened(path) as file:
            for number, text in enumerate(iter(lambda: file.readline(LONGEST + 1), ""), 1):
                try:
                    _take(records, text)
                except RecordError as error:
                    records.problems.append(f"{path}:{number}: {error}")
                    if len(text) > LONGEST:
                        break
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RecordError(f"{path} is no whole gzip file: pack it again, or name the plain .jsonl") from None
    except OSError as error:
        raise RecordError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None
    if not records.runs:
        first = f" ({records.problems[0]})" if records.problems else ""
        raise RecordError(f"{path} holds no run: name a file that `meshmark test --record` wrote{first}")
    return records


def opened(path: Path) -> IO[str]:
    """The text of a record file, unpacked where its name ends in .gz; bytes that are no UTF-8 are replaced."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def _plain(path: Path) -> None:
    """RecordError for a name under which a packed file would be expected: only plain files are appended to."""
    if path.suffix == ".gz":
        raise RecordError(f"{path}: records are written to plain files, name one that ends in .jsonl")


def _take(records: Records, text: str) -> None:
    if len(text) > LONGEST:
        raise RecordError(f"a line of more than {LONGEST} characters is no record; the rest is left out")
    if not text.endswith("\n"):
        raise RecordError(TORN)
    try:
        record = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON ({str(error)[:80]}): take the line out or make the file again") from None
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise RecordError(f"no record: `kind` must be one of {', '.join(KINDS)}")
    if record.get("schema") != SCHEMA:
        raise RecordError(
            f"schema {record.get('schema')!r}, and this version reads {SCHEMA}: use the suite that wrote it"
        )
    if record["kind"] == "run":
        _must(record, {"run": str, "facts": dict})
        records.runs.append(record)
    elif record["kind"] == "conformance":
        _must(
            record,
            {n: str for n in ("case", "operation", "variant", "mode", "mesh", "dtype", "level", "reason")},
        )
        if record.get("verdict") not in VERDICTS or record.get("check") not in CHECKS:
            raise RecordError("no record: unknown `verdict` or `check`")
        records.cases.setdefault(record["case"], Judged(record["case"])).lines.append(record)
    elif record["kind"] == "timing":
        named = ("case", "operation", "variant", "mode", "mesh", "dtype", "cadence", "reason")
        _must(record, {n: str for n in named} | {"process": int, "samples_s": list})
        samples = record["samples_s"]
        if record.get("verdict") not in VERDICTS or not all(
            type(s) in (int, float) and s > 0 for s in samples
        ):
            raise RecordError("no record: unknown `verdict`, or `samples_s` that are no positive numbers")
        records.timings.append(record)
    elif record["kind"] == "ceiling":
        _must(record, {"name": str, "unit": str, "value": float})
        records.ceilings.append(record)
    elif record["kind"] == "comparison":
        process: dict[str, type] = {"environment": str, "process": int, "seconds": float}
        verdict: dict[str, type] = {"what": str, "case": str, "verdict": str, "reason": str}
        _must(record, process if record.get("what") == "process" else verdict)
        records.comparisons.append(record)


def _must(record: dict[str, Any], types: dict[str, type]) -> None:
    for name, kind in types.items():
        if not isinstance(record.get(name), kind):
            raise RecordError(f"no record: `{name}` must be a {kind.__name__}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not strict JSON")
