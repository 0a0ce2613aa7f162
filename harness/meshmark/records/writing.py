# SPDX-License-Identifier: Apache-2.0
"""Writes record files: append-only, strict JSON, flushed per case (timings: per cell), with a seal on each piece.

A file has one writer. It is locked from the first line to the last, so that two runs can't mix their lines.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from meshmark.records import closing, run_line, sealing
from meshmark.records.closing import Account
from meshmark.records.definition import KINDS
from meshmark.records.reading import TORN, Judged, RecordError, Records, each, parsed, read_records
from meshmark.records.shared import SCHEMA


def dumps(record: Mapping[str, Any]) -> str:
    """One line of strict JSON. Infinities and NaN, which JSON lacks, become the texts "inf", "-inf" and "nan"."""
    return json.dumps(_finite(record), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


class Held:
    """The contents of a file: the digest of its bytes, and the account of its lines."""

    def __init__(self) -> None:
        self.written = hashlib.sha256()
        self.account = Account()


class Writer:
    """Appends records to a file. Every `write` is one piece, such as a case, and goes to the operating system at
    once."""

    def __init__(self, path: Path, file: BinaryIO, run: Mapping[str, Any], held: Held | None = None) -> None:
        """Write the run line at the end of the file; use `create` or `resume` instead. `held`: the contents of the
        file, if another run in it has counted them."""
        self.path, self.run, self._file = path, uuid.uuid4().hex[:12], file
        self.ended = False
        """Whether the closing line is written."""
        self._chosen: dict[str, Any] = {}
        self._uncounted: tuple[int, int] | None = None
        """From where to where the records lie that are being written and are not counted yet."""
        self._held = held or Held()
        if held is None:
            self._count()
        self.write([{"schema": SCHEMA, "kind": "run", **run}])

    def _count(self) -> None:
        """Count the contents of the file. A signal may have arrived between writing and counting records: complete ones
        are counted, and incomplete ones are cut off."""
        if self._uncounted and self.path.stat().st_size != self._uncounted[1]:
            self._file.truncate(self._uncounted[0])
            self._file.seek(self._uncounted[0])
        self._held.written = hashlib.sha256(self.path.read_bytes())
        self._held.account = Account()
        for _, record in each(self.path):
            self._held.account.add(None if isinstance(record, RecordError) else record)
        self._uncounted = None

    @classmethod
    def create(cls, path: Path, run: Mapping[str, Any]) -> Writer:
        """A new file; RecordError if it exists or can't be written, or if the run line is not valid."""
        _refuse_packed_name(path)
        try:
            file = open(path, "xb", buffering=0)  # noqa: SIM115
            _lock(file, path)
            try:
                return cls(path, file, run)
            except (OSError, RecordError):
                path.unlink()
                raise
        except FileExistsError:
            raise RecordError(f"{path} exists: records are never overwritten, name another file") from None
        except OSError as error:
            raise RecordError(f"can't write records to {path}: {os.strerror(error.errno or 0)}") from None

    @classmethod
    def resume(cls, path: Path, run: Mapping[str, Any]) -> tuple[Writer, dict[str, Judged]]:
        """Resume the file of an interrupted run of `meshmark test`: (writer, the cases that it finished); see
        `going_on`."""
        writer, records = cls.going_on(path, run)
        return writer, {name: judged for name, judged in records.cases.items() if judged.finished}

    @classmethod
    def going_on(cls, path: Path, run: Mapping[str, Any]) -> tuple[Writer, Records]:
        """Resume the file of an interrupted run: (writer, its records).

        Everything after the last finished case or cell is cut off. RecordError if the file can't be read, if another
        run is writing it, or if its environment or settings differ (run_line.environment_fields and run_line.settings).
        """
        _refuse_packed_name(path)
        try:
            if not path.is_file() and path.exists():  # a pipe would wait for itself, and a device has no end
                raise RecordError(f"can't resume {path}: it is not a plain file; name what --record named")
            file = open(path, "r+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise RecordError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None
        try:
            _lock(file, path)
            _same_run(path, read_records(path), json.loads(dumps(run)))
            end = _end_of_finished(path)
            file.truncate(end)
            file.seek(end)
            return cls(path, file, run), read_records(path)
        except OSError as error:
            file.close()
            raise RecordError(f"can't write records to {path}: {os.strerror(error.errno or 0)}") from None
        except RecordError:
            file.close()
            raise

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append these records in one piece. OSError if the disk is full; the file is then unchanged. RecordError for a
        record that readers would refuse, because it would be lost without a notice."""
        if self._uncounted:
            self._count()
        unsealed = [{k: v for k, v in r.items() if k != sealing.FIELD} for r in records]
        lines = [dumps({**r, "run": self.run}) + "\n" for r in unsealed]
        as_read: list[dict[str, Any] | None] = [None] * len(lines)
        for number, (record, line) in enumerate(zip(records, lines, strict=True)):
            if record.get("kind") in KINDS:  # others, such as those of growth, have readers of their own
                try:
                    as_read[number] = parsed(line)
                except RecordError as error:
                    raise RecordError(f"what is to be written to {self.path} is {error}") from None
        if not lines:
            return
        data = sealing.seal(self._held.written, lines)
        start, whole = self._file.tell(), data
        self._uncounted = start, start + len(whole)
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._file.truncate(start)
            self._uncounted = None
            raise
        self._held.written.update(whole)
        for read_back in as_read:
            self._held.account.add(read_back)
        self._uncounted = None

    def choose(self, names: Iterable[str], deselected: int = 0) -> None:
        """Write the line of the cases that this run is to judge. The same cases a second time, from another worker, are
        not written again. OSError as in `write`."""
        said = closing.make_chosen_line(names, deselected)
        if said != self._chosen and not self._file.closed:
            self.write([said])
            self._chosen = said

    def end(self, exit_code: int) -> None:
        """Write the closing line, once. It must be the last line. OSError as in `write`."""
        if not self.ended and not self._file.closed:
            if self._uncounted:
                self._count()
            self.write([self._held.account.end(exit_code)])
            self.ended = True

    def changed(self) -> str:
        """A sentence if the file does not hold what was there and what this writer wrote, because something else
        changed it; else "". A closed file is not checked."""
        if self._file.closed:
            return ""
        try:
            with open(self.path, "rb") as file:
                same = os.path.sameopenfile(file.fileno(), self._file.fileno())
                found = hashlib.sha256()
                while data := file.read(1 << 20):
                    found.update(data)
        except OSError as error:
            return f"{self.path} can't be read any more: {os.strerror(error.errno or 0)}"
        if same and found.digest() == self._held.written.digest():
            return ""
        return (
            f"{self.path} does not hold what this run wrote: something else changed it while the run went on"
        )

    def mend(self) -> None:
        """Cut off an incomplete last line of another process that had this file and died."""
        data = self.path.read_bytes()
        self._file.truncate(data.rfind(b"\n") + 1)
        self._file.seek(0, os.SEEK_END)
        self._uncounted = None
        self._count()

    def beside(self, run: Mapping[str, Any]) -> Writer:
        """The writer of another run in the same file, such as the other environment of a comparison."""
        return Writer(self.path, self._file, run, self._held)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lock(file: BinaryIO, path: Path) -> None:
    """Lock the file until it is closed; RecordError if another process has locked it. On a file system without locks
    nothing is locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            file.close()
            raise RecordError(
                f"{path} is being written by another run: wait for its end, or name another file"
            ) from None


def _same_run(path: Path, records: Records, run: Mapping[str, Any]) -> None:
    """Raise RecordError if this run can't resume the file."""
    if cut := [p for p in records.problems if not p.endswith(TORN)]:
        raise RecordError(f"can't resume: {cut[0]}")
    before: Mapping[str, Any] = records.runs[0]
    for of in (run_line.settings, run_line.environment_fields):
        if found := run_line.spell_difference(of(before), of(run)):
            raise RecordError(
                f"can't resume {path}: it differs from this run in {found}: go on as it began, or use --record for"
                " another run"
            )
    own = ((run.get("facts") or {}).get("suite") or {}).get("digest")
    if (
        own and not records.sealed
    ):  # the same package wrote it, by its digest, and this one seals what it writes
        raise RecordError(
            f"can't resume {path}: it has a run line without `{sealing.FIELD}`, and this version of the suite writes"
            " one: the file was changed; use it as it was written"
        )


_WHOLE = (b'"seconds":', b'"kind":"ceiling"', b'"kind":"schedule"')
"""What a line has that closes a case or cell, or that is whole by itself."""


def _end_of_finished(path: Path) -> int:
    """The offset after the last line that closes a case or cell, or is a run line, a ceiling or a schedule. If the run
    seals its pieces, the offset is after the seal of that line's piece."""
    end = position = 0
    promised = whole = False
    with open(path, "rb") as file:
        for line in file:
            position += len(line)
            of_run = b'"kind":"run"' in line
            whole = whole or of_run or any(mark in line for mark in _WHOLE)
            sealed = bool(sealing.seal_of(line[-sealing.LENGTH :].decode("utf-8", "replace")))
            promised = sealed if of_run else promised
            if line.endswith(b"\n") and whole and (sealed or not promised):
                end = position
            if sealed or not promised:
                whole = False
    return end


def _refuse_packed_name(path: Path) -> None:
    """Raise RecordError for a name that ends in .gz: only plain files can be appended to."""
    if path.suffix == ".gz":
        raise RecordError(f"{path}: records are written to plain files, name one that ends in .jsonl")
