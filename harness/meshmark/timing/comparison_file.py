# SPDX-License-Identifier: Apache-2.0
"""The record file of a comparison: writes both sides into one file, and reads it when the comparison is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from meshmark.core.terminal import remark
from meshmark.records import reading
from meshmark.records.definition import TimingLine
from meshmark.records.writing import Writer
from meshmark.timing.compare import SIDES

MOST_PROCESSES = 100_000
"""The largest process number that a resumed file may have."""

SAME_FACTS = ("named", "commit", "versions", "backend", "device_kind", "num_devices")
"""The facts of each side that must be the same when a comparison is resumed."""


class ComparisonFile:
    """The file that a comparison writes; without a path nothing is written."""

    def __init__(self, record: Path | None, resume: Path | None, runs: Mapping[str, dict[str, Any]]) -> None:
        """Create `record`, or resume the file `resume`. runs: the run line of each side.

        RecordError if `record` exists, or if `resume` holds another comparison.
        """
        self.path = record or resume
        self.before: dict[int, tuple[str, list[TimingLine]]] = {}
        """Of each process that had ended: its side and its lines."""
        self.earlier = 0
        """How often the file had been given verdicts."""
        self.writers: dict[str, Writer] = {}
        if record:
            self.writers["A"] = Writer.create(record, runs["A"])
        elif resume:
            self._resumed(resume, runs)
        if self.path:
            self.writers["B"] = self.writers["A"].beside(runs["B"])

    def _resumed(self, file: Path, runs: Mapping[str, dict[str, Any]]) -> None:
        before = reading.read_records(file)
        was = {r.get("environment"): r for r in before.runs}
        if set(was) != set(SIDES):
            raise reading.RecordError(
                f"can't resume {file}: it holds no comparison; name what --record wrote"
            )
        for side in SIDES:
            for name in SAME_FACTS:
                old, new = (r.get(name, r["facts"].get(name)) for r in (was[side], runs[side]))
                if old != new:
                    raise reading.RecordError(
                        f"can't resume {file}: {name} of {side}: {str(old)[:200]!a} there, {str(new)[:200]!a} here"
                    )
        ended = {c["process"]: c["environment"] for c in before.comparisons if c["what"] == "process"}
        for i, side in ended.items():
            if not 0 <= i < MOST_PROCESSES or side not in SIDES:
                raise reading.RecordError(f"can't resume {file}: process {i} of {str(side)[:20]!a}")
            if ended.get(i ^ 1) == side:  # a pair is one process of each side
                raise reading.RecordError(
                    f"can't resume {file}: processes {min(i, i ^ 1)} and {max(i, i ^ 1)} are both of {side}"
                )
        # Resuming cuts the verdicts off, so each later line holds how often that was done.
        ends = (c.get("earlier", 0) + (c["what"] == "verdict") for c in before.comparisons)
        self.earlier = max(ends, default=0)
        if self.earlier:
            remark(
                f"{file} has its verdicts already; what is added now is a look that was not planned, and needs stronger"
                f" evidence: 1 / {2**self.earlier} of the error that the first one could spend"
            )
        self.writers["A"], kept = Writer.going_on(file, runs["A"])
        for process, side in ended.items():
            self.before[process] = (side, [line for line in kept.timings if line["process"] == process])

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append lines of one side, or verdicts."""
        if self.writers:
            self.writers[str(lines[-1].get("environment", "B"))].write(lines)

    def close(self, raw: Sequence[str]) -> None:
        """Close the file, and write the raw standard error of dead children to a file beside it."""
        if self.writers:
            self.writers["A"].close()
        if raw and self.path:
            with (
                suppress(OSError),
                open(f"{self.path}.stderr", "a", encoding="utf-8", errors="replace") as file,
            ):
                file.write("\n".join(raw) + "\n")
