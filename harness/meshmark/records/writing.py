# SPDX-License-Identifier: Apache-2.0
"""Writing record files: append-only, strict JSON, flushed per case (timings: per cell)."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from meshmark.records.definition import SCHEMA
from meshmark.records.reading import TORN, Judged, RecordError, Records, read

SETTINGS = ("selection", "seed", "repeat", "timing", "table")
"""What the run line of a resumed file must say as this run does; a line without `table` means 1."""

ENVIRONMENT = ("versions", "backend", "device_kind", "num_devices", "num_processes")
"""The facts that must be as in the resumed file."""


def dumps(record: Mapping[str, Any]) -> str:
    """One line of strict JSON. Numbers that JSON lacks become the texts "inf", "-inf" and "nan"."""
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

    def __init__(self, path: Path, file: BinaryIO, run: Mapping[str, Any]) -> None:
        """Write the run line at the end of the file; use `create` or `resume`."""
        self.path, self.run, self._file = path, uuid.uuid4().hex[:12], file
        self.write([{"schema": SCHEMA, "kind": "run", **run}])

    @classmethod
    def create(cls, path: Path, run: Mapping[str, Any]) -> Writer:
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
    def resume(cls, path: Path, run: Mapping[str, Any]) -> tuple[Writer, dict[str, Judged]]:
        """Go on with the file of an interrupted run of `meshmark test`: (writer, the cases that it finished);
        see `going_on`."""
        writer, records = cls.going_on(path, run)
        return writer, {name: judged for name, judged in records.cases.items() if judged.finished}

    @classmethod
    def going_on(cls, path: Path, run: Mapping[str, Any]) -> tuple[Writer, Records]:
        """Go on with the file of an interrupted run: (writer, what it has finished).

        What follows the last finished case or cell is cut off. RecordError where the file can't be read or was made
        by another release, on other devices, from another version of the case table, or with another selection, seed,
        repeat or timing.
        """
        _plain(path)
        records = read(path)
        if cut := [p for p in records.problems if not p.endswith(TORN)]:
            raise RecordError(f"can't resume: {cut[0]}")
        before: Mapping[str, Any] = records.runs[0]
        for name in SETTINGS:
            absent = 1 if name == "table" else None
            was, now = (one.get(name, absent) for one in (before, json.loads(dumps(run))))
            if was != now:
                raise RecordError(
                    f"can't resume {path}: it has {name} {str(was)[:200]!a}, and this run {str(now)[:200]!a}"
                )
        for name in ENVIRONMENT:
            was, now = before["facts"].get(name), run["facts"][name]
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

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append these records in one piece; OSError when the disk is full, the file then being as before."""
        data = "".join(dumps({**r, "run": self.run}) + "\n" for r in records).encode()
        start = self._file.tell()
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._file.truncate(start)
            raise

    def beside(self, run: Mapping[str, Any]) -> Writer:
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


def _plain(path: Path) -> None:
    """RecordError for a name under which a packed file would be expected: only plain files are appended to."""
    if path.suffix == ".gz":
        raise RecordError(f"{path}: records are written to plain files, name one that ends in .jsonl")
