# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of one contestant, sends commands to all ranks at once, and ends the processes in any state.

If a rank is silent until its deadline, dies or raises, the whole group is Lost: its processes are killed, and the other
groups continue.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Self

from benchmarks import ROOT, SOURCE
from benchmarks.others import rank
from benchmarks.others.contestants import Contestant
from meshmark.core.privacy import redact


@dataclass(frozen=True)
class Limits:
    """The longest that a group may take, in seconds."""

    start: float = 120.0
    answer: float = 60.0
    """For the answer to a command."""
    end: float = 10.0
    """For a normal end."""
    kill: float = 3.0
    """For the end after a signal; then the group is killed."""


class Lost(Exception):
    """A group can't go on; the message is one line that may be published."""


@dataclass
class Group:
    """The living processes of one contestant."""

    contestant: Contestant
    processes: int
    limits: Limits = field(default_factory=Limits)
    facts: dict[str, Any] = field(default_factory=dict)
    """The facts that rank 0 reports."""
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _lines: dict[int, socket.socket] = field(default_factory=dict)
    _pids: dict[int, int] = field(default_factory=dict)
    _rest: dict[int, bytes] = field(default_factory=dict)
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> Self:
        """Start the ranks and wait until each has reported its rank; Lost if one does not."""
        self._directory = tempfile.TemporaryDirectory(prefix="meshmark-others-")
        place = Path(self._directory.name)
        until = monotonic() + self.limits.start
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
                door.bind(str(place / "leader"))
                door.listen(self.processes)
                self._launch(place)
                self._meet(door, until)
        except BaseException:
            self.kill()
            raise
        return self

    def _launch(self, place: Path) -> None:
        commands = self.contestant.commands(self.processes)
        environments = self.contestant.environments(self.processes, f"127.0.0.1:{_free_port()}")
        shared = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(SOURCE), str(ROOT)]),
            rank.SOCKET: str(place / "leader"),
        }
        with open(place / "output", "wb") as output:
            for command, environment in zip(commands, environments, strict=True):
                self._started.append(
                    subprocess.Popen(
                        command,
                        cwd=ROOT,
                        env=shared | environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )

    def _meet(self, door: socket.socket, until: float) -> None:
        """Accept the connections of all ranks. A rank that has not reported its number yet counts as negative."""
        door.settimeout(0.1)
        for caller in range(self.processes):
            while True:
                with contextlib.suppress(TimeoutError):
                    line, _ = door.accept()
                    break
                if any(child.poll() is not None for child in self._started):
                    raise Lost(f"a process ended before it called: {self._last_words()}")
                if monotonic() > until:
                    raise Lost(f"{self.processes - caller} of {self.processes} ranks did not call in time")
            self._lines[-1 - caller] = line
            self._rest[-1 - caller] = b""
        for key, hello in self._answers(until).items():
            number = hello["rank"]
            self._lines[number], self._rest[number] = self._lines.pop(key), self._rest.pop(key)
            self._pids[number] = hello["pid"]
            if number == 0:
                self.facts = hello["facts"]
        if sorted(self._lines) != list(range(self.processes)):
            raise Lost(f"ranks {sorted(self._lines)} called, not {self.processes} different ones")

    @property
    def pids(self) -> list[int]:
        """The process ids of the ranks."""
        return [self._pids[number] for number in sorted(self._pids)]

    def ask(self, command: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Send all ranks a command and return their answers by rank. If an answer is missing, kills the group and
        raises Lost."""
        until = monotonic() + self.limits.answer
        try:
            self._tell(command)
            found = self._answers(until)
        except Lost:
            self.kill()
            raise
        return [found[number] for number in range(self.processes)]

    def _tell(self, command: Mapping[str, Any]) -> None:
        text = json.dumps(command).encode() + b"\n"
        for number, line in self._lines.items():
            try:
                line.sendall(text)
            except OSError:
                raise Lost(f"rank {number} ended: {self._last_words()}") from None

    def _answers(self, until: float) -> dict[int, dict[str, Any]]:
        """One line from every rank."""
        found: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for number, line in self._lines.items():
                selector.register(line, selectors.EVENT_READ, number)
            while len(found) < self.processes:
                ready = selector.select(max(0.0, until - monotonic()))
                if not ready:
                    silent = ", ".join(str(n) for n in sorted(self._lines) if n not in found)
                    raise Lost(f"no answer in time from rank {silent}")
                for key, _ in ready:
                    number = key.data
                    with contextlib.suppress(ConnectionError):
                        part = self._lines[number].recv(1 << 16)
                        if part:
                            self._rest[number] += part
                            text, newline, rest = self._rest[number].partition(b"\n")
                            if newline:
                                self._rest[number] = rest
                                found[number] = self._answer(number, text)
                                selector.unregister(key.fileobj)
                            continue
                    raise Lost(f"rank {number} ended: {self._last_words()}")
        return found

    def _answer(self, number: int, text: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(text)
        if "error" in found:
            first = (str(found["error"]).strip().splitlines() or ["an error"])[0]
            who = f"rank {number}" if number >= 0 else "a rank, while it started"
            raise Lost(f"{who}: {redact(first)[:300]}")
        return found

    def _last_words(self) -> str:
        """The last output line of the processes, without anything that names this machine."""
        if self._directory is None:
            return "nothing was written"
        with open(Path(self._directory.name) / "output", "rb") as file:
            lines = file.read().decode(errors="replace").strip().splitlines()
        written = [line.strip() for line in lines if line.strip(" -=*\t")]
        return redact(written[-1])[:300] if written else "nothing was written"

    def end(self) -> None:
        """Ask the ranks to end, and make sure that they have ended."""
        until = monotonic() + self.limits.end
        with contextlib.suppress(Lost):
            self._tell({"do": "end"})
            for child in self._started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(max(0.0, until - monotonic()))
        self.kill()

    def kill(self) -> None:
        """End every process of the group now. mpirun puts ranks into their own process groups. A rank whose connection
        is still open is alive and is killed by its id."""
        for number, line in self._lines.items():
            if number in self._pids and not _closed(line):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pids[number], signal.SIGKILL)
        for line in self._lines.values():
            line.close()  # a rank that has not reported its id ends when its connection closes
        for child in self._started:
            for sent in (
                signal.SIGTERM,
                signal.SIGKILL,
            ):  # mpirun tidies up after itself when it is asked to end
                if child.poll() is None:
                    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                        os.killpg(child.pid, sent)
                        child.wait(self.limits.kill)
        self._lines.clear()
        self._started.clear()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


def _closed(line: socket.socket) -> bool:
    """Whether the process at the other end has ended."""
    try:
        line.setblocking(False)
        while part := line.recv(1 << 16):
            del part
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def _free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
