# SPDX-License-Identifier: Apache-2.0
"""Runs one fault in real processes of several ranks, and lists the outcome and what is wrong with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshmark.core.ports import free_ports
from meshmark.core.verdicts import BAD, worst
from meshmark.records import reading
from meshmark.records.reading import RecordError
from tests.checkout import ROOT
from tests.interrupts import interruptible
from tests.trouble.runs import WITHOUT
from tests.waiting import PATIENCE, until

CASES = ("auto", "explicit", "manual")
"""The modes of the three cases, in their order."""
STRUCK = "psum/axes=x+y/explicit"
DEADLINE = 6
"""Seconds that a case may take in these runs."""
SLACK = 20
"""Seconds beyond the deadline within which all ranks must have ended."""
START = 90.0
"""Seconds that a group may take to start and to finish its other cases."""
USUAL = 12.0
"""Seconds from the start of two ranks to the fault in their second case, on two cores that other tests use too. Where
they take longer, all that comes behind has as much longer."""

OPTIONS = ("--profile", "smoke", "--operations", "psum", "--modes", ",".join(CASES))


@dataclass
class Stage:
    """The processes of one fault, and where they write."""

    directory: Path
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    since: float = 0.0
    """The moment of the fault, in seconds of the monotonic clock; 0 where the sabotage notes it, or it is the start."""
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    held: ExitStack = field(default_factory=ExitStack)
    """What must be there until all processes have ended."""

    @property
    def record(self) -> Path:
        """What --record names."""
        return self.directory / "records.jsonl"

    @property
    def mark(self) -> Path:
        """Where the sabotage notes when it strikes."""
        return self.directory / "struck"

    def start(
        self,
        command: Sequence[str],
        plan: Mapping[str, Any] | None,
        environment: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> subprocess.Popen[bytes]:
        """Start one process, in a session of its own, its output in a file."""
        own = ("PYTEST_", "MESHMARK_", "JAX_", "XLA_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        kept |= {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "300",
        }
        kept |= {"MESHMARK_FAULT": self.tag}
        if plan is not None:
            kept["MESHMARK_SABOTAGE"] = json.dumps({"case": STRUCK, "mark": str(self.mark)} | dict(plan))
        self.outputs.append(self.directory / f"output{len(self.outputs)}")
        with open(self.outputs[-1], "wb") as output:
            child = subprocess.Popen(
                interruptible(command),
                cwd=cwd,
                env=kept | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(child)
        return child

    def suite(self, *options: str, record: bool = True) -> list[str]:
        """The command of one rank."""
        recorded = ("--record", str(self.record)) if record else ()
        fixed = (
            "-q",
            *WITHOUT,
            "-p",
            "tests.ranks.sabotage",
            "--deadline",
            str(DEADLINE),
        )
        return [sys.executable, "-m", "pytest", "conformance", *fixed, *OPTIONS, *recorded, *options]

    def rank(
        self,
        number: int,
        plan: Mapping[str, Any] | None = None,
        *options: str,
        size: int = 2,
        record: bool = True,
        inside: Callable[..., list[str]] = lambda *command: list(command),
        host: str = "127.0.0.1",
        **more: Any,
    ) -> subprocess.Popen[bytes]:
        """Start one rank by explicit coordinates, as a person would."""
        where = ("--coordinator", f"{host}:{self.ports[0]}", "--control", f"{host}:{self.ports[1]}")
        which = ("--num-processes", str(size), "--process-id", str(number))
        return self.start(inside(*self.suite(*where, *which, *options, record=record)), plan, **more)

    def ranks(self, plan: Mapping[str, Any] | None = None, *options: str, record: bool = True) -> None:
        """Start both ranks."""
        for number in range(2):
            self.rank(number, plan, *options, record=record)

    def launch(self, plan: Mapping[str, Any] | None = None, *options: str) -> subprocess.Popen[bytes]:
        """Start both ranks by `meshmark launch`."""
        launcher = ["-m", "harness", "launch", "-n", "2", "--devices-per-process", "1", "--"]
        return self.start([sys.executable, *launcher, *self.suite(*options)], plan)

    def until_struck(self) -> None:
        """Wait for the sabotage to strike; TimeoutError where it does not."""
        if not until(self.mark.exists):
            raise TimeoutError("the sabotage did not strike")

    def finish(self) -> list[int]:
        """Wait for the end of what was started; TimeoutError, with everything ended, where that does not come."""
        end = time.monotonic() + PATIENCE
        try:
            return [child.wait(max(0.1, end - time.monotonic())) for child in self.started]
        except subprocess.TimeoutExpired:
            self.end()
            raise TimeoutError("not every process ended") from None

    def again(self) -> None:
        """Forget the group that has ended, for another one on other ports."""
        self.finish()
        self.started, self.outputs, self.ports = [], [], free_ports(2)
        self.mark.unlink(missing_ok=True)
        for path in self.directory.glob("output*"):
            path.unlink()

    def left(self) -> list[int]:
        """Processes of this stage that there still are, wherever they went: by the mark in their environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if self.tag.encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def end(self) -> None:
        """Kill whatever is left."""
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in self.started:
            child.wait()
        self.held.close()


@dataclass
class Seen:
    """What came of a fault."""

    codes: list[int]
    texts: list[str]
    seconds: float
    """From the fault (or from the start, where that was the fault) to the end of the last process."""
    left: list[int]
    verdicts: dict[str, str]
    """Of each mode: the worst that any rank's file says, or the file of all."""
    problems: list[str]
    """Of the record files."""
    merged: bool
    agreed: list[str]
    """Why the struck case is bad, in the file of all."""
    cases: list[set[str]]
    """Of each rank's file."""
    deadline: float
    """The deadline that the ranks agreed on: on a slow machine it is longer than what was asked for."""
    slowness: float = 1.0
    """How much longer than usual the ranks took to start; 1 where the fault was at the start."""


@dataclass(frozen=True)
class Fault:
    """One fault and what must come of it."""

    name: str
    put: Callable[[Stage], object]
    """Starts the processes and does what is to be done to them."""
    codes: tuple[int, ...]
    """Of the ranks in their order, or of the launcher alone."""
    verdict: str
    """Of the struck case: "" where it is not judged."""
    line: str
    """What the user must read, as a regular expression within one line."""
    rest: str = ""
    """The verdict of the case behind it: "" where the run ends before, as most do; pass where it goes on."""
    first: str = "pass"
    """The verdict of the case before it; "" where there is none to be had."""
    groups: int = 0
    """How many groups are started after the fault, which take their time to start."""
    limit: float = DEADLINE + SLACK
    """Seconds from the fault to the end of all."""
    quiet: bool = False
    """Whether what the run says is cut off, as by `| head`."""
    ci: bool = False
    """Whether `pytest tests` runs it; the others are in `tox run -e processes-faults`."""
    missing: Callable[[], str] = lambda: ""
    """Why it can't be had here, or ""."""

    @property
    def allowed(self) -> float:
        """Seconds within which all must have ended, whole groups that start again among them."""
        return self.limit + self.groups * START


def observed(fault: Fault, directory: Path) -> Seen:
    """Run one fault."""
    stage = Stage(directory)
    try:
        begun = time.monotonic()
        fault.put(stage)
        codes = stage.finish()
        ended = time.monotonic()
        time.sleep(0.2)  # what is just ending is gone then
        left = stage.left()
        struck = stage.mark.read_text().split() if stage.mark.exists() else []
        since = stage.since or (float(struck[0]) if struck else begun)
        texts = [path.read_text(errors="replace") for path in stage.outputs]
        verdicts, problems = _recorded(stage.record)
        told = re.search(r"past its deadline of ([\d.]+) s", "".join(texts))
        deadline = float(told[1]) if told else DEADLINE
        merged = stage.record.exists()
        files = map(reading.read_records, sorted(stage.directory.glob(f"{stage.record.name}.rank[0-9]")))
        return Seen(
            codes,
            texts,
            ended - since,
            left,
            verdicts,
            problems,
            merged,
            _reasons(stage.record) if merged else [],
            [set(file.cases) for file in files],
            deadline,
            max(1.0, (since - begun) / USUAL),
        )
    finally:
        stage.end()


def _recorded(path: Path) -> tuple[dict[str, str], list[str]]:
    """The verdict of each mode over all files of a run, and what is wrong with the files."""
    found: dict[str, list[str]] = {}
    problems: list[str] = []
    for file in sorted(path.parent.glob(f"{path.name}*")):
        if not file.name.endswith((".at", ".stderr")):
            try:
                read = reading.read_records(file)
            except RecordError as error:
                problems.append(str(error))
                continue
            problems += read.problems
            for judged in read.cases.values():
                found.setdefault(judged["mode"], []).append(judged.verdict)
    return {mode: worst(verdicts) for mode, verdicts in found.items()}, problems


def _reasons(path: Path) -> list[str]:
    """Why cases are bad, of the file of all ranks."""
    lines = [line for judged in reading.read_records(path).cases.values() for line in judged.lines]
    return [line["reason"] for line in lines if line["verdict"] in BAD]


def line_of(fault: Fault, seen: Seen) -> str:
    """The line that the user reads, or ""."""
    for text in seen.texts:
        for line in text.splitlines():
            if re.search(fault.line, line):
                return line.strip()
    return ""


def wrong(fault: Fault, seen: Seen) -> list[str]:
    """What is not as it must be; [] where all is."""
    told = []
    if tuple(seen.codes) != fault.codes:
        told.append(f"exit codes {seen.codes}, not {list(fault.codes)}")
    expected = {m: v for m, v in zip(CASES, (fault.first, fault.verdict, fault.rest), strict=True) if v}
    if seen.verdicts != expected:
        told.append(f"verdicts {seen.verdicts}, not {expected}")
    told += seen.problems
    if not line_of(fault, seen):
        told.append(f"nobody says {fault.line!r}")
    if any(
        re.search(r"^(?!INTERNALERROR>).*Traceback \(most recent call last\)", t, re.MULTILINE)
        for t in seen.texts
    ):
        told.append("a traceback")
    if seen.left:
        told.append(f"{len(seen.left)} processes are left")
    allowed = fault.allowed * seen.slowness + max(0.0, seen.deadline - DEADLINE)
    if seen.seconds > allowed:
        told.append(f"{seen.seconds:.1f} s, more than {allowed:.0f}")
    if fault.rest and not seen.merged:
        told.append("the ranks' files were not merged")
    if not fault.quiet and any(reason not in "".join(seen.texts) for reason in seen.agreed):
        told.append(f"the file of all says {seen.agreed}, and the run did not")
    if fault.verdict in ("pass", "error", "fail") and len(set(map(frozenset, seen.cases))) > 1:
        told.append(f"the ranks judged different cases: {seen.cases}")
    return told
