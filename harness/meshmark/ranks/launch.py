# SPDX-License-Identifier: Apache-2.0
"""Starts a command once per rank on one machine, shows the output of all ranks, and ends them together.

Each rank gets its coordinates on loopback in the variables of ranks.group, and its own CPU devices. Ranks that a
cluster starts (srun, mpirun, Kubernetes) do not need this. If a case ends a group of `pytest conformance`, the group is
started again and continues with the next case.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from meshmark.core import scratch
from meshmark.core.errors import BadInput
from meshmark.core.ports import free_ports
from meshmark.core.steady import Steady
from meshmark.devices import containment
from meshmark.devices.environment import cpu_devices
from meshmark.ranks import cleanup, handover, rollcall
from meshmark.ranks.group import ENVIRONMENT
from meshmark.ranks.handover import ENDED, LAUNCHED

GRACE = 10.0
"""Seconds in which the ranks may end by themselves after one has ended. They may have a verdict to write. A rank that
holds the GIL is ended 8 s after the others have given it up (meshmark.ranks.consensus.BACKUP)."""

TERMINATE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

PAUSE = 0.1
"""Seconds without output after which an incomplete line is shown."""

LONG = 1 << 16
"""The size in bytes above which a line is shown in pieces."""

_PR_SET_PDEATHSIG = 1
_GLOO = re.compile(rb"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\.[^\n]*\n")


class LaunchError(BadInput, RuntimeError):
    """The ranks can't be started; the message is one line."""


class Shown:
    """Writes the output of all ranks to one stream, with the rank before each line, also before an incomplete one."""

    def __init__(self, to: IO[bytes], size: int) -> None:
        self._to, self._lock, self._width = Steady(to), threading.Lock(), len(str(size - 1))
        self._open: int | None = None
        self._ends: dict[int, bytes] = {}

    def write(self, rank: int, data: bytes) -> None:
        """Show output of a rank."""
        with self._lock:
            self._ends[rank] = (self._ends.get(rank, b"") + data)[-LONG:]
            for piece in data.splitlines(keepends=True):
                if self._open is not None and self._open != rank:
                    self._to.write(b"\n")
                    self._open = None
                if self._open is None:
                    self._to.write(f"[{rank:{self._width}}] ".encode())
                self._to.write(piece)
                self._open = None if piece.endswith((b"\n", b"\r")) else rank
            self._to.flush()

    def begin(self) -> None:
        """Forget the output of an earlier group's ranks."""
        self._ends.clear()

    def describe_end(self, rank: int, how: str) -> str:
        """A description of a rank's end. If its output ends with a dump of its stacks, it has the last message before
        the dump, such as a failed check of XLA."""
        line = containment.line_of_death(how, self._ends.get(rank, b"").decode(errors="replace"))
        return line.reason if line.data.get("stacks") else how

    @property
    def lost(self) -> str:
        """The reason why the output is incomplete; "" if it is complete or its reader closed it."""
        return self._to.lost

    def line(self, text: str) -> None:
        """Show a line of the launcher."""
        with self._lock:
            if self._open is not None:
                self._to.write(b"\n")
                self._open = None
            self._to.write(f"meshmark: {text}\n".encode())
            self._to.flush()


@dataclass
class Launcher:
    """Starts groups of ranks.

    command: the command of each rank. size: the number of ranks. devices: CPU devices per rank. grace: as GRACE.
    most_restarts: the largest number of groups after the first one."""

    command: Sequence[str]
    size: int
    devices: int
    grace: float = GRACE
    most_restarts: int = 1000
    started: Callable[[], object] = lambda: None
    """Called once, after all ranks of the first group are started."""
    directory: Path = field(default_factory=lambda: scratch.make("launch-"))
    _ranks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _told_to_end: int = 0

    def run(self, to: IO[bytes]) -> int:
        """Run the group, and run it again if a case has ended it. Gives the exit code of the last group.

        It is 0 if every rank ended with 0. Otherwise it is 128 + the number of the signal that ended a rank, unless the
        launcher sent that signal, because other ranks then ended as a consequence. Otherwise it is the code of the rank
        that ended first. If every rank ended with 0, it is 1 if the roll call finds problems, and 2 if output was lost.
        LaunchError if the command can't be started.
        """
        shown = Shown(to, self.size)
        with cleanup.watching(self.directory, f"{LAUNCHED}={self.directory}"):
            code = self._run(shown)
        if not code:
            for problem in rollcall.find_untrusted_endings(self.directory, self.size, self.command):
                shown.line(problem)
                code = 1
        return code or 2 * bool(shown.lost)

    def _run(self, shown: Shown) -> int:
        ended: dict[int, str] = {}
        progress, idle = -1, 0
        for number in range(self.most_restarts + 1):
            code, ended = self._group(shown, ended if number else None)
            if not code or self._told_to_end or not handover.asks_for_another_group(self.directory):
                return code
            recorded = handover.bytes_recorded(self.directory)
            idle = idle + 1 if recorded == progress else 0
            progress = recorded
            if idle > 1:
                shown.line("two groups in turn have come no further: not started again")
                return code
            shown.line(f"{_describe(ended)}: starting the group again, to go on with the next case")
            ended = {rank: shown.describe_end(rank, how) for rank, how in ended.items()}
        return code

    def end(self, number: int) -> None:
        """Pass a signal on to all ranks. Ranks that do not end are killed later."""
        self._told_to_end = number
        self._signal(number)

    def _group(self, shown: Shown, before: dict[int, str] | None) -> tuple[int, dict[int, str]]:
        """Start all ranks and wait for their end. Gives (exit code, the end of each rank whose status was not 0)."""
        shown.begin()
        handover.begin_group(self.directory)
        rollcall.clear_rollcall(self.directory)
        coordinator, control = free_ports(2)
        secret = secrets.token_hex(16)
        self._ranks = []
        readers = []
        try:
            for rank in range(self.size):
                self._ranks.append(self._start(rank, coordinator, control, secret, before))
                readers.append(
                    threading.Thread(target=_pass_on, args=(self._ranks[-1].stdout, rank, shown), daemon=True)
                )
                readers[-1].start()
            if before is None:
                self.started()
            return self._wait(shown)
        finally:
            self._signal(signal.SIGKILL)
            for child in self._ranks:
                child.wait()
            cleanup.end_marked_processes(
                f"{LAUNCHED}={self.directory}"
            )  # processes that have left their rank's process group
            for reader in readers:
                reader.join(2.0)

    def _start(
        self, rank: int, coordinator: int, control: int, secret: str, before: dict[int, str] | None
    ) -> subprocess.Popen[bytes]:
        values = (f"127.0.0.1:{coordinator}", str(self.size), str(rank), f"127.0.0.1:{control}", secret)
        environment = os.environ | dict(zip(ENVIRONMENT.values(), values, strict=True))
        environment |= cpu_devices(self.devices)
        environment |= {
            LAUNCHED: str(self.directory),
            "PYTHONUNBUFFERED": "1",
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
        }
        environment.pop(ENDED, None)
        environment |= handover.of_next_group(before)
        try:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            raise LaunchError(f"can't start {self.command[0]!r}: {error.strerror}") from None

    def _wait(self, shown: Shown) -> tuple[int, dict[int, str]]:
        code, ended, first = 0, {}, 0.0
        asked = killed = 0.0
        while True:
            running = []
            for rank, child in enumerate(self._ranks):
                status = child.poll()
                if status is None:
                    running.append(rank)
                elif status and rank not in ended:
                    ended[rank] = _how(status)
                    if not code or (status < 0 and code < 128 and not asked):
                        code = status if status > 0 else 128 - status
            if not running:
                return code, ended
            now = time.monotonic()
            if ended or self._told_to_end:
                first = first or now
            if (
                first
                and not asked
                and (now > first + self.grace or (self._told_to_end and now > first + TERMINATE))
            ):
                asked = now
                shown.line(
                    f"{_describe(ended)}; ending rank{'s' * (len(running) > 1)} {', '.join(map(str, running))}"
                )
                self._signal(signal.SIGTERM)
            if asked and not killed and now > asked + TERMINATE:
                killed = now
                self._signal(signal.SIGKILL)
            time.sleep(0.02)

    def _signal(self, number: int) -> None:
        for child in self._ranks:
            if number == signal.SIGKILL or child.poll() is None:  # a rank's child processes end with it
                try:
                    os.killpg(child.pid, number)
                except (ProcessLookupError, PermissionError):
                    continue


def _how(status: int) -> str:
    if status > 0:
        return f"exit code {status}"
    return signal.Signals(-status).name if -status in list(signal.Signals) else f"signal {-status}"


def _describe(ended: dict[int, str]) -> str:
    return ", ".join(f"rank {rank} ended by {how}" for rank, how in ended.items()) or "told to end"


def _pass_on(stream: IO[bytes] | None, rank: int, shown: Shown) -> None:
    """Show the output of a rank in whole lines, so that lines of several ranks do not mix. An incomplete line is shown
    after the rank pauses in it. Gloo's line about each connection is left out."""
    assert stream is not None
    # This selector opens no file: many ranks may use up all files, and a rank whose output is not read would block.
    coming = getattr(selectors, "PollSelector", selectors.SelectSelector)()
    coming.register(stream, selectors.EVENT_READ)
    held = b""
    while True:
        if held and (len(held) > LONG or not coming.select(PAUSE)):
            shown.write(rank, held)
            held = b""
        data = os.read(stream.fileno(), LONG)
        if not data:
            break
        data = _GLOO.sub(b"", held + data)
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        shown.write(rank, data[:end])
        held = data[end:]
    shown.write(rank, held)
    coming.close()
    stream.close()


def _end_with_parent() -> None:
    """Make the kernel kill this child process when the launcher dies (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
