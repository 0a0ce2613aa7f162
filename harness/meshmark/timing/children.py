# SPDX-License-Identifier: Apache-2.0
"""Runs timing jobs in child processes, so that a crash or hang loses only the case itself.

`Children.run` gives the messages of meshmark.timing.timer one by one. If a child dies, the cases that it was working on
get a line with the cause, and another child goes on. If the child worked on one mode alone, the new child goes on with
the other modes of the cell. If it timed the modes in turns, the guilty mode is unknown, and the new child goes on with
the next cell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshmark.core import scratch
from meshmark.core.errors import BadInput
from meshmark.core.installation import SOURCE
from meshmark.core.verdicts import Line
from meshmark.devices import containment
from meshmark.devices.environment import of_child
from meshmark.operations.cases import find
from meshmark.operations.record_lines import case_cost, case_head
from meshmark.timing.timer import MARK, Job

MOST_IDLE_DEATHS = 2
"""The most children that may die before any times a case."""


class ChildError(BadInput, RuntimeError):
    """Children die before they time anything; the message is one line."""


@dataclass
class Children:
    """Starts the children of one interpreter."""

    python: str = sys.executable
    path: Path = SOURCE
    """The directory of the package that the children import."""
    module: str = "meshmark.timing.timer"
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path = field(default_factory=lambda: scratch.make("timer-"))
    raw: list[str] = field(default_factory=list)
    """The raw standard error of dead children."""
    announces: bool = False
    """Whether a child has said that it is ready for its job. Children of old commits do not say so."""
    _child: subprocess.Popen[str] | None = None
    _waiting: subprocess.Popen[str] | None = None
    """The child that was started ahead of its job."""

    def begin(self, process: int) -> None:
        """Start the child of a process ahead of its job. It imports its modules and then waits."""
        assert not self._waiting
        self._waiting = self._start(process)

    def ready(self) -> None:
        """Wait until the child that was started ahead is ready for its job. If it has died, `run` finds that."""
        assert self._waiting and self._waiting.stdout
        for text in self._waiting.stdout:
            if (message := _message(text)) and "ready" in message:
                self.announces = True
                return

    def run(self, job: Job) -> Iterator[dict[str, Any]]:
        """The messages of a job until all of its cells are done; ChildError if no child starts."""
        idle = 0
        left = [list(ids) for ids in job.cells]
        first = True
        while left or first:
            current = replace(
                job,
                cells=left,
                ceilings=job.ceilings and first,
                directory=str(self.directory),
                controller=os.getpid(),
            )
            at: dict[str, Any] = {}
            started = False
            for message in self._messages(current):
                if "ready" in message:
                    self.announces = True
                elif "at" in message:
                    at = message
                elif "timings" in message:
                    left.pop(0)
                    at = {}
                    idle = 0
                    yield message
                else:
                    started = started or "facts" in message
                    if first or "end" in message:
                        yield message
                    if "end" in message:
                        self._ended()
                        return
            line, raw = containment.post_mortem(self.directory, f"timer{job.process}")
            self._ended()
            first = first and not started
            if not at:
                idle += 1
                if idle > MOST_IDLE_DEATHS:
                    last = (raw.strip().splitlines() or [line.reason])[-1]
                    raise ChildError(f"children die before they time anything: {last}")
                continue
            idle = 0
            self.raw.append(f"== {at['at']} {', '.join(at['cases'])}\n{raw}")
            yield from self._dead(job, line, at, left)

    def _dead(
        self, job: Job, line: Line, at: dict[str, Any], left: list[list[str]]
    ) -> Iterator[dict[str, Any]]:
        """The lines of the cases during which a child died; removes from `left` the ones that must not be tried
        again."""
        guilty = list(at["cases"])
        stage = {"prepare": "prepared", "stream": "prepared as a stream", "sample alone": "timed alone"}.get(
            at["at"], "timed in turns"
        )
        lines = []
        for case_id in guilty:
            case = find(case_id, job.num_devices)
            lines.append(
                case_head(case, job.seed, "timing")
                | {
                    "cadence": {"stream": "stream", "sample alone": "plain"}.get(at["at"], "isolated"),
                    "process": job.process,
                    "verified": False,
                    "verdict": line.verdict,
                    "check": "execute",
                    "reason": f"while {stage}: {line.reason}",
                    "devices": case.mesh.size,
                    "cost": case_cost(case),
                    "samples_s": [],
                    **line.data,
                }
            )
        alone = at["at"] in ("prepare", "stream", "sample alone")
        remaining = [i for i in left[0] if i not in guilty] if alone else []
        cell = find(guilty[0], job.num_devices).cell.id
        if remaining:
            left[0] = remaining
        else:
            left.pop(0)
            lines[-1]["seconds"] = 0.0
        yield {"timings": lines, "cell": cell, "unfinished": bool(remaining)}

    def _start(self, process: int) -> subprocess.Popen[str]:
        for leftover in self.directory.glob("timer*"):
            leftover.unlink()
        name = self.directory / f"timer{process}"
        with open(f"{name}.stderr", "w") as stderr:
            child = subprocess.Popen(
                [self.python, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=self.path,
                env=of_child(self.environment, self.path),
            )
        Path(f"{name}.pid").write_text(str(child.pid))
        return child

    def _messages(self, job: Job) -> Iterator[dict[str, Any]]:
        self._child, self._waiting = self._waiting or self._start(job.process), None
        assert self._child.stdin and self._child.stdout
        try:
            self._child.stdin.write(job.to_json())
            self._child.stdin.close()
        except BrokenPipeError:  # it died at once; its standard error has the reason
            pass
        for text in self._child.stdout:
            if message := _message(text):
                yield message

    def _ended(self) -> None:
        if self._child:
            self._child.wait()
            if self._child.stdout:
                self._child.stdout.close()
            self._child = None

    def close(self) -> None:
        """End the children that run or wait, and clean up."""
        for child in (self._child, self._waiting):
            if child:
                child.kill()
                self._child = child
                self._ended()
        scratch.remove(self.directory)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _message(text: str) -> dict[str, Any] | None:
    """The message of a line; None for another line, or for an incomplete one."""
    if text.startswith(MARK) and text.endswith("\n"):
        return dict(json.loads(text.removeprefix(MARK)))
    return None
