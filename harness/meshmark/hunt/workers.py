# SPDX-License-Identifier: Apache-2.0
"""The worker processes of one slot: one that judges, and a spare one that has already started."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from meshmark.core.errors import BadInput
from meshmark.core.installation import SOURCE
from meshmark.devices import containment
from meshmark.devices.environment import of_child
from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.oracles import RELEASE
from meshmark.hunt.worker import MARK
from meshmark.program_data.program import Program, ProgramData, to_json
from meshmark.timing.environments import Environment

MOST_IDLE_DEATHS = 3
"""The number of workers that die in a row before they judge anything, after which a slot gives up."""


class WorkerError(BadInput, RuntimeError):
    """All workers die before they judge anything; the message is one line."""


@dataclass
class Answer:
    """The outcome of one job."""

    differences: list[DifferenceData] = field(default_factory=list)
    invalid: str = ""
    not_run: list[str] = field(default_factory=list)
    """The reasons of modes that were not run, such as an operation that the interpreter does not know."""
    program: ProgramData | None = None
    """The data of a program that the worker drew."""
    families: dict[str, str] = field(default_factory=dict)
    """For a drawn program: the family or form of each operation."""
    truth: list[dict[str, Any]] = field(default_factory=list)
    """The right results, if the job asks only for these."""
    seconds: float = 0.0
    restart_s: float = 0.0
    """The part of `seconds` that the slot waited for a worker."""
    cpu: float = 0.0
    """The worker's processor time, in seconds; 0 if it died."""


class Worker:
    """One worker process."""

    def __init__(self, directory: Path, name: str, settings: Settings) -> None:
        self.directory, self.name = directory, name
        command = [settings.python, "-m", "meshmark.hunt.worker"]
        self.process = subprocess.Popen(
            [*command, str(directory), name, str(os.getpid()), str(settings.deadline), settings.topology],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if settings.quiet else None,
            text=True,
            env=of_child(settings.environment, settings.source),
        )
        (directory / f"{name}.pid").write_text(str(self.process.pid))
        self.ready = False
        self.place: dict[str, Any] = {}
        """Its first answer, with "backend" and "devices": the name of its backend and the number of its devices."""

    def start(self) -> bool:
        """Wait until it has started. False if it died."""
        if not self.ready:
            self.place = self.read() or {}
            self.ready = bool(self.place)
        return self.ready

    def read(self) -> dict[str, Any] | None:
        """The next answer; None if the process has ended."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(MARK) and line.endswith("\n"):
                found: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return found
        return None

    def ask(self, job: Mapping[str, Any]) -> tuple[dict[str, Any] | None, ProgramData | None]:
        """(the answer, or None if it died; the program that it drew, or None)."""
        assert self.process.stdin
        if not self.start():
            return None, None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None, None
        answer = self.read()
        drawn: ProgramData | None = None
        if answer is not None and "drawn" in answer:
            drawn = answer["drawn"]
            answer = self.read()
        return answer, drawn

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@dataclass
class Settings:
    """The settings of workers."""

    deadline: float = 120.0
    """The time limit of one program in all its modes, in seconds."""
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable
    source: Path = SOURCE
    against: Environment | None = None
    """The environment with another release of JAX, which also runs the unsharded programs."""
    topology: str = ""
    """The topology to compile programs for, which are then interpreted; "" to run programs on the devices."""
    ranks: int = 1
    """The number of processes that judge each program together."""
    quiet: bool = True
    spare: bool = True
    backend: str = "cpu"
    """The name of the workers' backend."""
    devices: int = 8
    """The largest number of devices of a program."""


class Judging(Protocol):
    """A judge of the programs of a hunt: a Slot, or a Lockstep of several processes."""

    def judge(self, job: Mapping[str, Any] | Program, modes: tuple[str, ...] = ("auto",)) -> Answer:
        """The outcome of one job: a program, its data, or {"draw": [seed, number]}."""

    def clock(self) -> float:
        """The clock of time limits, in seconds."""


class Slot:
    """Judges one program at a time. If its worker dies, the spare worker takes over."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directory = Path(tempfile.mkdtemp(prefix="meshmark-hunt-"))
        self.number = 0
        self.restarts = 0
        self.worker: Worker | None = None
        self.spare: Worker | None = None
        self.there: Slot | None = None
        """The slot whose workers have another release of JAX."""
        self.idle_deaths = 0

    def clock(self) -> float:
        """The monotonic clock of this machine, in seconds."""
        return time.monotonic()

    def _start(self) -> Worker:
        self.number += 1
        return Worker(self.directory, f"hunt{self.number}", self.settings)

    def judge(self, job: Mapping[str, Any] | Program, modes: tuple[str, ...] = ("auto",)) -> Answer:
        """The outcome of one job: a program, its data, or {"draw": [seed, number]}."""
        if isinstance(job, Program):
            job = {"program": to_json(job)}
        asked = [mode for mode in modes if mode != RELEASE]
        answer = self._ask({"modes": asked} | dict(job)) if asked else Answer(program=job["program"])
        if len(asked) < len(modes) and answer.program and not answer.invalid:
            self._compare_with_release(job, answer)
        return answer

    def _compare_with_release(self, job: Mapping[str, Any], answer: Answer) -> None:
        """Add to an answer what differs under the other release of JAX, or why that can't be known."""
        there = self._there()
        given = {k: v for k, v in job.items() if k in ("light", "without")} | {"program": answer.program}
        right = there.judge(given | {"truth": True}, ("",))
        release = str(there.place()["jax"])
        answer.seconds += right.seconds
        answer.cpu += right.cpu
        if right.differences or right.invalid:  # that release crashes, or lacks a function
            answer.not_run.append(f"under JAX {release}")
            return
        here = self._ask(given | {"there": right.truth, "release": release, "modes": [RELEASE]})
        answer.differences += here.differences
        answer.seconds += here.seconds
        answer.cpu += here.cpu

    def _there(self) -> Slot:
        if self.there is None:
            other = self.settings.against
            if other is None:
                raise BadInput("a comparison with another release of JAX needs one: name it with --against")
            settings = replace(
                self.settings, python=other.python, source=other.path, against=None, spare=False
            )
            self.there = Slot(settings)
        return self.there

    def _ask(self, job: Mapping[str, Any]) -> Answer:
        """The outcome of one job in a worker of this slot."""
        modes = job["modes"]
        start = time.perf_counter()
        worker = self._ready()
        waited = time.perf_counter() - start
        if self.spare is None and self.settings.spare:
            self.spare = self._start()
        answer, drawn = worker.ask(job)
        program: ProgramData | None = drawn or job.get("program")
        seconds = time.perf_counter() - start
        if answer is not None:
            if answer.get("spoilt"):
                self._retire()
            return Answer(
                answer.get("differences", []),
                answer.get("invalid", ""),
                answer.get("not_run", []),
                answer.get("program", program),
                answer.get("families", {}),
                answer.get("truth", []),
                seconds,
                waited,
                answer.get("cpu", 0.0),
            )
        line, raw = containment.post_mortem(self.directory, worker.name)
        self._retire()
        kind = "hang" if line.verdict == "hang" else "crash"
        difference: DifferenceData = {
            "mode": modes[0] if len(modes) == 1 else "",
            "kind": kind,
            "what": describe_death(line.reason, raw),
            "text": read_last_words(raw) or line.reason,
            "data": {},
        }
        return Answer([difference], program=program, seconds=seconds, restart_s=waited)

    def _ready(self) -> Worker:
        """A worker that has started; WorkerError if none starts."""
        while True:
            if self.worker is None:
                self.worker, self.spare = self.spare or self._start(), None
            if self.worker.start():
                self.idle_deaths = 0
                return self.worker
            self.worker.end()
            self.worker = None
            self.idle_deaths += 1
            if self.idle_deaths >= MOST_IDLE_DEATHS:
                if self.settings.python != sys.executable:
                    raise WorkerError(
                        f"{self.settings.python} starts no worker: does it have JAX? Name another environment"
                    )
                raise WorkerError("workers die before they judge a program: look at `meshmark devices`")

    def _retire(self) -> None:
        """End the worker. The next program gets another one."""
        assert self.worker
        self.restarts += 1
        self.worker.end()
        for left in self.directory.glob(f"{self.worker.name}.*"):
            left.unlink()
        self.worker = None

    def place(self) -> dict[str, Any]:
        """What the workers have: the name of their "backend", the number of their "devices", their release of "jax"."""
        return self._ready().place

    def around(self) -> dict[str, str]:
        """The settings and functions of the workers that are not those of a fresh process, by name."""
        answer, _ = self._ready().ask({"around": True})
        found: dict[str, str] = (answer or {}).get("around", {})
        return found

    def truth(self, program: Program, mode: str = "") -> list[dict[str, Any]]:
        """The right results of a program in a mode: dtype, shape and flat data of each; [] if it can't be run."""
        if mode == RELEASE:
            return self._there().truth(program)
        return self.judge({"program": to_json(program), "truth": True}, (mode,)).truth

    def close(self) -> None:
        """End the processes and remove their directory."""
        for worker in (self.worker, self.spare):
            if worker:
                worker.end()
        if self.there:
            self.there.close()
        self.worker = self.spare = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_FATAL = re.compile(r"^F\d+ .*?([\w./-]+\.(?:cc|h)):\d+\] (.*)$", re.MULTILINE)


def read_last_words(raw: str) -> str:
    """The last failed check in a dead worker's standard error, as "FILE: MESSAGE"; "" if there is none."""
    found = _FATAL.findall(raw)
    return f"{found[-1][0]}: {found[-1][1]}" if found else ""


def describe_death(reason: str, raw: str) -> str:
    """The cause of a worker's death, without numbers: the file and the check that failed, or the signal."""
    words = read_last_words(raw) or reason
    words = re.sub(r"%[\w.-]+|0x[0-9a-f]+|-?\d+", "N", words)
    return re.sub(r"\bN(?:,\s*N)+\b", "N", words)[:160]
