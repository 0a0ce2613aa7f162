# SPDX-License-Identifier: Apache-2.0
"""Contains cases that kill or hang their process, and turns each into a verdict.

In a worker, file descriptor 2 is a separate file, and a watchdog ends the process when a case is past its deadline
(`meshmark.devices.watchdog`). But a case can cancel its timer, and in a stopped process no thread runs. So the worker
also writes the time until which it may be silent into a file (`Clock`), and the controller ends a worker that is late
(`Overseer`).
`post_mortem` reads what a dead worker left: the signal, whether a deadline ended it, and the end of its standard error.
A worker ends with its controller: on Linux at once, on other systems when its pipe is closed, or at its deadline at the
latest. Posix only; on Windows the signal is unknown.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO

from meshmark.core.privacy import redact
from meshmark.core.verdicts import Line
from meshmark.devices import offspring

DEADLINE = 20.0
"""Seconds that a case may take on a backend with a fast first compile; far below XLA's own 60."""

LONGEST = 50.0
"""The longest stretched deadline in seconds: XLA's CPU backend aborts a stuck collective after 60."""

BRISK = 1.0
"""The longest first compile, in seconds, that does not stretch the deadline."""

START = 300.0
"""Seconds that a worker may take to start its backend; the same as for the child process that probes the devices."""

MARGIN = 5.0
"""Seconds past its deadline after which a process is ended from outside: its own watchdog ends it first, and keeps
more of it."""

BETWEEN = 120.0
"""Seconds that a worker may take for what is around a case, and for its own end."""

_TAIL = 1 << 18
"""Bytes of standard error that are kept of a dead worker; enough for the stacks of many threads."""

_PF_FORKNOEXEC = 0x40
"""In the flags of /proc/PID/stat: forked, and no program of its own."""
_EXECNET = b"sys.stdin.readline()"
_PR_SET_PDEATHSIG = 1
_DUMP = re.compile(r"^(?:(?P<hang>Timeout \([\d:.]+\)!)|Fatal Python error: .*)$", re.MULTILINE)
_NATIVE = re.compile(r"\s+@\s+0x|\*\*\* .* stack trace")
_FATAL = re.compile(r"\bF\d{4} \d\d:\d\d:\d\d\.\d+ ")
"""The head of the line with which a compiler ends its process. libtpu writes an address of the stack after it."""

_THREAD = re.compile(r"^(?:Current thread|Thread) .*", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)


class Clock:
    """A small file with the time until which a process may be silent, in seconds of the monotonic clock, which all
    processes of a machine share. Its length never changes, so a full disk does not matter."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.within(START)

    def within(self, seconds: float) -> None:
        """Allow silence for this many seconds from now on; `math.inf`: for ever."""
        with suppress(OSError):  # a case may have closed it
            os.pwrite(self._file, f"{time.monotonic() + seconds:24.3f}".encode(), 0)


def read_clock(path: Path) -> float:
    """The time until which the process may be silent; inf if the file is missing or not a number."""
    try:
        return float(path.read_bytes())
    except (OSError, ValueError):
        return float("inf")


@dataclass
class Overseer:
    """A thread of the controller. It ends workers that are late, and processes that dead workers left behind."""

    directory: Path
    _stop: threading.Event = field(default_factory=threading.Event)
    _swept: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Start watching."""
        offspring.adopt()
        threading.Thread(target=self._watch, name="meshmark-overseer", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            for file in self.directory.glob("*.pid"):
                with suppress(OSError, ValueError):
                    self._look_at(file.stem, int(file.read_text()))

    def _look_at(self, worker: str, pid: int) -> None:
        if not _runs(pid):
            if worker not in self._swept:  # a child of it may hold its pipe, and so hide its death
                self._swept.add(worker)
                sweep(self.directory)
        elif time.monotonic() > read_clock(self.directory / f"{worker}.until") + MARGIN:
            (self.directory / f"{worker}.overdue").touch()
            os.kill(pid, signal.SIGABRT)  # faulthandler writes the stacks
            for _ in range(20):
                if not _runs(pid):
                    return
                time.sleep(0.1)
            os.kill(pid, signal.SIGKILL)


MARK = "MESHMARK_WORKERS"
"""The variable that names the workers' directory in their environment, and in that of their children."""


def sweep(directory: Path) -> None:
    """End the processes that dead workers of this directory left behind, and that this process adopted."""
    if sys.platform != "linux":
        return
    found = offspring.marked(offspring.descendants(), f"{MARK}={directory}")
    alive = set()
    for file in directory.glob("*.pid"):
        with suppress(OSError, ValueError):
            if _runs(pid := int(file.read_text())):
                alive |= {pid, *offspring.descendants(pid)}
    starting = {pid for pid in found if _is_worker(pid)}
    offspring.kill_processes(found - alive - starting)


def _is_worker(pid: int) -> bool:
    """Whether this is a worker, which execnet started as a program, and not a forked copy of one. A worker may not have
    written its id to its file yet."""
    with suppress(OSError, ValueError, IndexError):
        flags = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6])
        return not flags & _PF_FORKNOEXEC and _EXECNET in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _runs(pid: int) -> bool:
    """Whether this child of the present process runs; False for any other process. The child's status is not
    collected."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
    except (OSError, AttributeError):
        return False


def stretched(deadline: float, first_compile: float) -> float:
    """The deadline for a first compile of this many seconds; at most LONGEST, unless `deadline` itself is longer."""
    return max(deadline, min(deadline * max(1.0, first_compile / BRISK), LONGEST))


def first_compile() -> float:
    """Seconds that a first, trivial program takes to compile and run on one device."""
    import jax

    start = time.perf_counter()
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
    return time.perf_counter() - start


_own_file: Path | None = None
"""The file behind this worker's file descriptor 2."""


def own_stderr(directory: Path, worker: str) -> IO[str]:
    """Redirect this worker's file descriptor 2 to a file, and write the worker's process id beside it."""
    global _own_file
    (directory / f"{worker}.pid").write_text(str(os.getpid()))
    stream = open(directory / f"{worker}.stderr", "a", encoding="utf-8", errors="replace")  # noqa: SIM115
    os.dup2(stream.fileno(), 2)
    _own_file = directory / f"{worker}.stderr"
    return stream


def words_so_far() -> str:
    """The end of what the present case and its compiler wrote on standard error; "" if standard error of this process
    is not a file of its own."""
    return end_of(_own_file) if _own_file else ""


def belong_to(controller: int) -> None:
    """In a worker: ignore Ctrl-C, which a terminal sends to all processes (the controller handles it), and end with
    the controller."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != controller:  # the controller ended before the request
            os._exit(1)


def end_workers(directory: Path) -> None:
    """End the workers that still run, without waiting for their cases."""
    for file in directory.glob("*.pid"):
        try:
            pid = int(file.read_text())
            if _runs(pid):  # one that has ended may have left its id to another process
                os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            continue


def post_mortem(directory: Path, worker: str) -> tuple[Line, str]:
    """(the line of the case that a dead worker ran, the raw end of its standard error)."""
    how = cause(directory, worker)
    raw = end_of(directory / f"{worker}.stderr")
    return line_of_death(how, raw, (directory / f"{worker}.overdue").exists()), raw


def line_of_death(how: str, raw: str, overdue: bool = False) -> Line:
    """The line of a case whose process died.

    how: the signal or exit code. raw: the end of its standard error. overdue: whether it was ended from outside, past
    its deadline.
    """
    start = _DUMP.search(raw)
    words, dump = (raw[: start.start()], raw[start.start() :]) if start else (raw, "")
    stacks = threads(dump)
    lines = [line for line in words.splitlines() if line.strip() and not _NATIVE.match(line)]
    tail = [_shown(line) for line in lines[-8:]]
    data = {"stderr": tail, "stacks": stacks}
    innermost = stacks[-1][0] if stacks and stacks[-1] else "unknown"
    if overdue:
        return Line("execute", "hang", f"past its deadline, in {innermost}, and ended from outside", data)
    if start and start["hang"]:
        return Line("execute", "hang", f"past its deadline, in {innermost}", data)
    if not tail:
        return Line("execute", "crash", f"{how}, in {innermost}" if stacks else how, {"signal": how, **data})
    check = next((line for line in reversed(lines) if _FATAL.search(line)), lines[-1])
    return Line("execute", "crash", f"{how}: {_shown(check)}", {"signal": how, **data})


def _shown(line: str) -> str:
    return "".join(filter(str.isprintable, redact(line)))[:300]


def cause(directory: Path, worker: str) -> str:
    """How the worker ended: the name of the signal, or its exit code. Waits up to 5 seconds for its end."""
    try:
        pid = int((directory / f"{worker}.pid").read_text())
        for _ in range(100):
            info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if info is not None:
                number = info.si_status
                if info.si_code == os.CLD_EXITED:
                    return f"exit code {number}"
                return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
            time.sleep(0.05)
    except (OSError, ValueError, AttributeError):
        pass
    return "the process died"


def end_of(path: Path) -> str:
    """The end of a file, as text; "" if there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def threads(dump: str) -> list[list[str]]:
    """The stacks of faulthandler's dump, one list per thread, innermost frame first, as module:function:line."""
    return [
        [f"{PurePath(f['file']).stem}:{f['function']}:{f['line']}" for f in _FRAME.finditer(part)][:24]
        for part in _THREAD.split(dump)[1:]
    ]


def largest_resident_bytes() -> int:
    """The largest resident size that this process has had."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
