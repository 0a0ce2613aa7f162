# SPDX-License-Identifier: Apache-2.0
"""The catalogue of what goes wrong with several processes, each fault with its outcome, and the command that runs it.

    python -m tests.ranks.faults [--only NAME,...] [--write docs/process-faults.md]

Every fault is a real one in real processes: two ranks of one device each run three cases of psum, and the second case
(or the beginning) is struck. Of each run are checked the exit codes of all ranks, the verdicts in the records, which
must be readable, what the user reads, that no process is left, and the seconds from the fault to the end of the last
rank against a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from meshmark.core.ports import free_ports
from meshmark.core.verdicts import BAD, worst
from meshmark.records import reading
from meshmark.records.reading import RecordError
from tests.checkout import ROOT, SOURCE
from tests.interrupts import interruptible
from tests.ranks import network
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
        files = map(reading.read, sorted(stage.directory.glob(f"{stage.record.name}.rank[0-9]")))
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
                read = reading.read(file)
            except RecordError as error:
                problems.append(str(error))
                continue
            problems += read.problems
            for judged in read.cases.values():
                found.setdefault(judged["mode"], []).append(judged.verdict)
    return {mode: worst(verdicts) for mode, verdicts in found.items()}, problems


def _reasons(path: Path) -> list[str]:
    """Why cases are bad, of the file of all ranks."""
    lines = [line for judged in reading.read(path).cases.values() for line in judged.lines]
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


# What is put in ---------------------------------------------------------------------------------------------


def sabotaged(rank: int | str, when: str, how: str, *options: str, **more: Any) -> Callable[[Stage], None]:
    """Both ranks, one of which goes wrong."""
    return lambda stage: stage.ranks({"rank": rank, "when": when, "how": how} | more, *options)


def launched(rank: int | str, when: str, how: str, *options: str) -> Callable[[Stage], object]:
    """The same under `meshmark launch`."""
    return lambda stage: stage.launch({"rank": rank, "when": when, "how": how}, *options)


def one_alone(number: int) -> Callable[[Stage], object]:
    """One rank, the other of which never comes."""
    return lambda stage: stage.rank(number, None, "--join", "3")


def unlike(*options: str, **environment: str) -> Callable[[Stage], None]:
    """Rank 1 has other options, or another environment."""

    def put(stage: Stage) -> None:
        stage.rank(0)
        stage.rank(1, None, *options, environment=environment)

    return put


def other_release(stage: Stage) -> None:
    """Rank 1 has the metadata of another JAX release before it."""
    info = stage.directory / "other" / "jax-0.0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.0.1\n")
    stage.rank(0)
    stage.rank(1, environment={"PYTHONPATH": os.pathsep.join([str(info.parent), str(SOURCE)])})


def other_sources(stage: Stage) -> None:
    """Rank 1 runs a copy of the suite in which a comment is changed."""
    copy = stage.directory / "copy"
    for name in ("harness", "conformance", "tests/ranks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    with open(copy / "harness" / "meshmark" / "core" / "errors.py", "a", encoding="utf-8") as file:
        file.write("# changed\n")
    stage.rank(0)
    # An installed suite must not come before the copy.
    stage.rank(1, cwd=copy, environment={"PYTHONPATH": str(copy / "harness")})


def taken(which: int) -> Callable[[Stage], None]:
    """Another program listens on the coordinator's port (0) or the channel's (1)."""

    def put(stage: Stage) -> None:
        stage.held.enter_context(socket.create_server(("127.0.0.1", stage.ports[which])))
        stage.ranks(None, "--join", "5")

    return put


def wrong_number(stage: Stage) -> None:
    """Rank 1 says that there are three."""
    stage.rank(0, None, "--join", "10")
    stage.rank(1, None, "--join", "10", size=3)


def same_id(number: int, size: int) -> Callable[[Stage], None]:
    """Two processes say that they are one rank, and one is missing."""

    def put(stage: Stage) -> None:
        for own in (0, 1) if number else (0,):
            stage.rank(own, None, "--join", "10", size=size)
        stage.rank(number, None, "--join", "10", size=size)

    return put


def signalled(number: int, to: Sequence[int], rank: int = 1) -> Callable[[Stage], None]:
    """A signal to some of the ranks while one sleeps and the other waits for it in the collective."""

    def put(stage: Stage) -> None:
        stage.ranks({"rank": rank, "when": "before", "how": "late", "seconds": 60})
        stage.until_struck()
        time.sleep(0.5)
        stage.since = time.monotonic()
        for one in to:
            stage.started[one].send_signal(number)

    return put


def launcher_signalled(number: int) -> Callable[[Stage], None]:
    """A signal to the launcher while one rank sleeps and the other waits for it in the collective."""

    def put(stage: Stage) -> None:
        launcher = stage.launch({"rank": 1, "when": "before", "how": "late", "seconds": 60})
        stage.until_struck()
        time.sleep(0.5)
        stage.since = time.monotonic()
        launcher.send_signal(number)

    return put


def resumed_by_hand(stage: Stage) -> None:
    """A case kills all ranks, twice; --resume goes on, as a batch script under Slurm would."""
    plan = {"rank": "all", "when": "before", "how": "kill"}
    stage.ranks(plan)
    stage.again()
    stage.ranks(plan, "--resume", str(stage.record), record=False)
    stage.again()
    stage.since = time.monotonic()
    stage.ranks(plan, "--resume", str(stage.record), record=False)


def workers(stage: Stage) -> None:
    """-n beside --distributed."""
    stage.start(stage.suite("--distributed", "-n", "2"), None)


def hosts(
    delay: float, act: Callable[[Stage, tuple[network.Host, network.Host]], None]
) -> Callable[[Stage], None]:
    """One rank on each of two hosts."""

    def put(stage: Stage) -> None:
        both = stage.held.enter_context(network.joined(delay))
        plan = {"rank": 1, "when": "before", "how": "late", "seconds": 1.0}
        for number, host in enumerate(both):
            stage.rank(number, plan, "--deadline", "30", inside=host.inside, host=both[0].address)
        stage.until_struck()
        act(stage, both)

    return put


def _cut(stage: Stage, both: tuple[network.Host, network.Host]) -> None:
    both[0].unplug()
    stage.since = time.monotonic()


CRASH = re.escape(STRUCK) + r"\S+: crash: rank {} ended: its connection closed"
KILLED = -signal.SIGKILL
CATALOGUE = (
    Fault(
        "a rank is killed before a collective",
        sabotaged(1, "before", "kill"),
        (1, KILLED),
        "crash",
        CRASH.format(1),
    ),
    Fault(
        "a rank is killed inside a collective",
        sabotaged(1, "inside", "kill"),
        (1, KILLED),
        "crash",
        CRASH.format(1),
        ci=True,
    ),
    Fault(
        "a rank is killed after a collective",
        sabotaged(1, "after", "kill"),
        (1, KILLED),
        "crash",
        CRASH.format(1),
    ),
    Fault(
        "a rank is killed between two cases",
        sabotaged(1, "between", "kill"),
        (1, KILLED),
        "",
        r"rank 1 ended: its connection closed; go on with --resume",
    ),
    Fault(
        "rank 0, JAX's coordinator, is killed before a collective",
        sabotaged(0, "before", "kill"),
        (KILLED, 1),
        "crash",
        CRASH.format(0),
        ci=True,
    ),
    Fault(
        "rank 0 is killed inside a collective",
        sabotaged(0, "inside", "kill"),
        (KILLED, 1),
        "crash",
        CRASH.format(0),
    ),
    Fault("a rank leaves with exit code 7", sabotaged(1, "before", "exit"), (1, 7), "crash", CRASH.format(1)),
    Fault("a rank never comes", one_alone(0), (4,), "", r"rank 1 of 2 did not come within 3 s", first=""),
    Fault(
        "rank 0 never comes", one_alone(1), (4,), "", r"rank 1 found no rank 0 at \S+ within 3 s", first=""
    ),
    Fault(
        "a rank dies before the ranks come together",
        sabotaged(1, "start", "kill", "--join", "5"),
        (4, KILLED),
        "",
        r"rank 1 of 2 did not come within 5 s",
        first="",
    ),
    Fault(
        "a rank dies while JAX's cluster starts",
        sabotaged(1, "cluster", "kill"),
        (4, KILLED),
        "",
        r"rank 1 ended: its connection closed",
        first="",
    ),
    Fault(
        "a rank fails to start JAX's cluster",
        sabotaged(1, "cluster", "raise"),
        (4, 4),
        "",
        r"rank 1 could not start JAX's cluster: .*sabotaged",
        first="",
    ),
    Fault(
        "a rank is stuck in Python",
        sabotaged(1, "after", "python"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 1 in sabotage:",
        ci=True,
    ),
    Fault(
        "a rank is stuck in Python, the other in the collective",
        sabotaged(1, "before", "python"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 1 in sabotage:",
    ),
    Fault(
        "a rank is stuck in native code that holds the GIL",
        sabotaged(1, "after", "native"),
        (1, -signal.SIGABRT),
        "hang",
        r"past its deadline of .* rank 1 does not answer",
    ),
    Fault(
        "rank 0 is stuck in native code that holds the GIL",
        sabotaged(0, "after", "native"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 0 does not answer",
    ),
    Fault(
        "a rank never enters the collective, and goes on",
        sabotaged(1, "before", "skip"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 0 in .* rank 1 had ended it with fail",
    ),
    Fault(
        "a rank is late by 3 s",
        sabotaged(1, "before", "late", "--deadline", "30", seconds=3.0),
        (0, 0),
        "pass",
        r"3 cases: 3 pass",
        "pass",
        ci=True,
    ),
    Fault(
        "a rank compiles another program",
        sabotaged(1, "compile", "program"),
        (1, 1),
        "error",
        r"rank 1 compiled other collectives",
        "pass",
        ci=True,
    ),
    Fault(
        "a rank raises while the others compile",
        sabotaged(1, "compile", "raise"),
        (1, 1),
        "error",
        r"rank 1: RuntimeError: sabotaged",
        "pass",
    ),
    Fault(
        "a wrong shard on one rank",
        sabotaged(1, "before", "wrong"),
        (1, 1),
        "fail",
        r"numbers: fail: .*rank 1: ",
        "pass",
        ci=True,
    ),
    Fault(
        "-x: all ranks stop at the same case",
        sabotaged(1, "before", "wrong", "-x"),
        (1, 1),
        "fail",
        r"stopping after 1 failures",
    ),
    Fault(
        "a rank has other cases",
        unlike("--operations", "pmax"),
        (4, 4),
        "",
        r"the ranks differ in options: rank 0: \{'operations': 'psum'\}; rank 1: \{'operations': 'pmax'\}",
        first="",
    ),
    Fault(
        "a rank has another JAX release",
        other_release,
        (4, 4),
        "",
        r"the ranks differ in JAX release: rank 0: .*; rank 1: jax 0\.0\.1",
        first="",
    ),
    Fault(
        "a rank has other flags",
        unlike(XLA_FLAGS="--xla_cpu_enable_fast_math=false"),
        (4, 4),
        "",
        r"the ranks differ in flags: .*fast_math",
        first="",
    ),
    Fault(
        "a rank has another commit",
        other_sources,
        (4, 4),
        "",
        r"the ranks differ in suite (commit|sources): ",
        first="",
    ),
    Fault(
        "a rank has another number of devices",
        unlike(JAX_NUM_CPU_DEVICES="2"),
        (4, 4),
        "",
        r"the ranks differ in flags: .*JAX_NUM_CPU_DEVICES': '2'",
        first="",
    ),
    Fault(
        "the channel's port is taken",
        taken(1),
        (4, 4),
        "",
        r"rank 0 can't listen on 127\.0\.0\.1:\d+ for the other ranks .*--control",
        first="",
    ),
    Fault(
        "the coordinator's port is taken",
        taken(0),
        (4, 4),
        "",
        r"rank 0 can't start JAX's coordinator at .*--coordinator",
        first="",
    ),
    Fault(
        "a wrong number of processes",
        wrong_number,
        (4, 4),
        "",
        r"rank 1 says 3 processes and rank 0 says 2",
        first="",
    ),
    Fault(
        "two ranks with one id",
        same_id(1, 3),
        (4, 4, 4),
        "",
        r"two processes say that they are rank 1 of 3",
        first="",
        ci=True,
    ),
    Fault(
        "two ranks with id 0",
        same_id(0, 2),
        (4, 4),
        "",
        r"rank 0 can't listen on .*: is another process rank 0 too",
        first="",
    ),
    Fault(
        "TERM to a rank that sleeps",
        signalled(signal.SIGTERM, [1]),
        (2, 2),
        "",
        r"rank 1 was ended: (SIGTERM|its session was interrupted)",
    ),
    Fault(
        "TERM to a rank inside a collective",
        signalled(signal.SIGTERM, [0]),
        (2, 2),
        "",
        r"rank 0 was ended: SIGTERM",
    ),
    Fault(
        "Ctrl-C to all ranks",
        signalled(signal.SIGINT, [0, 1]),
        (2, 2),
        "",
        r"interrupted; go on with --resume|was ended: SIGINT",
    ),
    Fault(
        "-n beside --distributed",
        workers,
        (4,),
        "",
        r"-n starts workers of one machine: leave it out",
        first="",
    ),
    Fault(
        "resumed by hand after a case that kills all ranks",
        resumed_by_hand,
        (1, 1),
        "crash",
        r"before: crash .*: the ranks ended in this case: in two runs",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: all ranks die in one case",
        launched("all", "before", "kill"),
        (1,),
        "crash",
        r"starting the group again, to go on with the next case",
        "pass",
        groups=1,
        ci=True,
    ),
    Fault(
        "launch: a rank is killed",
        launched(1, "inside", "kill"),
        (1,),
        "crash",
        r"starting the group again, to go on with the next case",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: a rank leaves with exit code 7",
        launched(1, "before", "exit"),
        (1,),
        "crash",
        r"rank 1 ended by exit code 7.*: starting the group again",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: a rank is stopped (SIGSTOP)",
        launched(1, "before", "stop"),
        (1,),
        "hang",
        r"past its deadline of .* rank 1 does not answer",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: a rank dies before the ranks come together",
        launched(1, "start", "exit"),
        (7,),
        "",
        r"rank 1 ended by exit code 7; ending rank 0",
        first="",
    ),
    Fault(
        "launch: TERM to the launcher",
        launcher_signalled(signal.SIGTERM),
        (2,),
        "",
        r"interrupted|was ended: SIGTERM",
    ),
    Fault("launch: Ctrl-C", launcher_signalled(signal.SIGINT), (2,), "", r"interrupted|was ended: SIGINT"),
    Fault("launch: the launcher is killed", launcher_signalled(signal.SIGKILL), (KILLED,), "", r"", limit=5),
    Fault(
        "a link between two hosts is cut",
        hosts(0.0, _cut),
        (1, 1),
        "crash",
        r"crash: rank \d can't be reached any more: ",
        limit=30 + SLACK,
        missing=network.missing,
        ci=True,
    ),
    Fault(
        "a link between two hosts is 50 ms late each way",
        hosts(0.05, lambda stage, both: None),
        (0, 0),
        "pass",
        r"3 cases: 3 pass",
        "pass",
        limit=60,
        missing=lambda: network.missing(delayed=True),
    ),
)


def catalogue() -> tuple[Fault, ...]:
    """Every fault: those of ranks above, and those around a run."""
    from tests.ranks.faults_around import AROUND  # which needs what is defined above

    return (*CATALOGUE, *AROUND)


# The command ------------------------------------------------------------------------------------------------


def _code(code: int) -> str:
    return str(code) if code >= 0 else signal.Signals(-code).name


def _shown(text: str) -> str:
    """The line without what differs from run to run."""
    text = re.sub(r"^\[\d\] ", "", text)
    text = re.sub(r"^(E +|ERROR: |! _pytest\.outcomes\.Exit: |!+ )", "", text).rstrip("! ")
    text = re.sub(r"/\S*/(records\.jsonl\S*)", r"\1", text)
    text = re.sub(r"(127\.0\.0\.1|10\.203\.0\.\d):\d+", r"\1:PORT", text)
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the catalogue; 1 where a fault came to another end than it must."""
    parser = argparse.ArgumentParser(prog="python -m tests.ranks.faults", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT,...", help="faults whose names hold one of these")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="so many faults at once (default 1)"
    )
    chosen = parser.parse_args(arguments)
    wanted = [text for text in chosen.only.split(",") if text]
    rows, bad = [], 0
    faults = [f for f in catalogue() if not wanted or any(text in f.name for text in wanted)]
    with ThreadPoolExecutor(chosen.at_once) as pool:
        for fault, outcome in zip(faults, pool.map(_outcome, faults), strict=True):
            if isinstance(outcome, str):
                bad += not outcome.startswith("skipped")
                print(outcome, flush=True)
                continue
            told = wrong(fault, outcome)
            bad += bool(told)
            line = line_of(fault, outcome)
            word = "WRONG  " if told else "ok     "
            print(f"{word} {fault.name}: {outcome.seconds:.1f} s: {line}", flush=True)
            for one in told:
                print(f"        {one}")
            for number, text in enumerate(outcome.texts if told else ()):
                print(f"        -- output {number}\n{text}", flush=True)
            rows.append(_row(fault, outcome))
    if chosen.write and not bad:
        chosen.write.write_text(page(rows), encoding="utf-8")
    print(f"{len(rows)} faults, {bad} of them came to another end than they must")
    return 1 if bad else 0


def _outcome(fault: Fault) -> Seen | str:
    """What came of a fault, or why that can't be said."""
    if without := fault.missing():
        return f"skipped {fault.name}: {without}"
    with tempfile.TemporaryDirectory(prefix="meshmark-faults-") as directory:
        try:
            return observed(fault, Path(directory))
        except TimeoutError as error:
            return f"WRONG   {fault.name}: {error}"


def _row(fault: Fault, seen: Seen) -> tuple[str, ...]:
    """Its row of the table."""
    codes = ", ".join(map(_code, seen.codes))
    verdict = seen.verdicts.get(CASES[1], "none")
    line = _shown(line_of(fault, seen)) if fault.line else "(nothing)"
    name = fault.name.replace("|", "\\|")
    return (name, verdict, codes, line, f"{seen.seconds:.1f}", f"{fault.allowed:.0f}")


def page(rows: Sequence[tuple[str, ...]]) -> str:
    """The page of the table."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib"))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""# What goes wrong with several processes

Made by `python -m tests.ranks.faults --write docs/process-faults.md` ({versions}, Python
{sys.version.split()[0]}, {os.cpu_count()} cores, {len(rows)} faults).

Each fault is real, in real processes. Two ranks of one virtual CPU device each run three cases of psum, with
`--deadline {DEADLINE}`; rows that speak of workers have one worker on two devices, or none. The fault strikes the
second case, or the start. The command checks every row: the exit codes of all ranks; the verdicts of all three cases
in the record files, which must be readable to the last line; the line that the user reads; no traceback; no process
left (every process carries a mark in its environment, and the command looks for it in /proc); and the seconds against a
limit.

- *Verdict*: that of the struck case over all ranks' files. None: the fault concerns no case, and the case is judged
  when the run goes on.
- *Exit codes*: those of the ranks in their order. In rows with `launch:` that of the launcher.
- *Seconds*: from the fault to the end of the last process. Where the fault is at the start: from the start (a few
  seconds of imports). Where a group is started again: with the whole of the new group.
- *Limit*: the deadline and {SLACK} s, and {START:.0f} s for each new group, times the seconds that the ranks took to
  start over {USUAL:.0f}, where they took longer.

| fault | verdict | exit codes | what the user reads | seconds | limit |
|---|---|---|---|---:|---:|
{table}

## What this says

- **Exit codes are pytest's.** 0: all is well. 1: a bad verdict, or a rank was lost. 2: interrupted. 4: the ranks did
  not come together, or may not run together. A killed rank has the code of its signal.
- **A case that kills or hangs a rank ends the group**, because XLA cannot replace a rank. `meshmark launch` starts the
  group again, and it goes on with the next case. Elsewhere give the same command with `--resume FILE` instead of
  `--record FILE`. If all ranks died at once, the case gets one more try, because somebody may have killed them from
  outside.
- **JAX aborts every process whose rank 0 is gone.** The suite delays this abort by six seconds. In that time it writes
  the verdict and ends by itself. A rank that holds the GIL cannot do that, and ends by SIGABRT.
- **A taken port.** jaxlib 0.12.0 dies of a segmentation fault when the port of JAX's coordinator is taken. With given
  coordinates the suite looks first. Where JAX detects the coordinates it chooses the port, and the suite cannot look.
- **Each rank, and each run without workers, is a child of a process that watches it.** A process that is stopped,
  or that has cancelled its own watchdog, is ended from outside some seconds past its deadline. A rank that leaves
  with exit code 0 in a case does not end with 0.
- **Attacks.** Whoever does not prove that it is of this run is turned away. Silent connections hinder nobody.
- **A full disk** is a small tmpfs in a mount namespace; the other user has no name and no home.
- **Two hosts** are network namespaces that veth joins (iproute2). The late link is netem or, where the kernel lacks it,
  a relay between two TUN devices (`tests/ranks/network.py`; in this run: {network.lateness()}). TCP's keepalive
  and user timeout notice a cut link 12 s after the last sign of life.
- **gloo and host names.** gloo takes the address to which the host's own name resolves. Where /etc/hosts maps it to
  127.0.1.1, ranks on other hosts cannot reach it, wherever the coordinator is. On two such hosts the first collective
  ended as a hang with "Gloo context initialization failed: timed out connecting: Connection refused,
  remote=[127.0.1.1]". Map the name to the address that the other hosts see.
"""


if __name__ == "__main__":
    raise SystemExit(main())
