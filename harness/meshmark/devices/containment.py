# SPDX-License-Identifier: Apache-2.0
"""Contains cases that kill or hang their process, and turns each into a verdict.

In a worker, file descriptor 2 is a separate file, and `faulthandler.dump_traceback_later` ends the process when a
case is past its deadline. Its watchdog is a native thread that needs no GIL, so it also ends code that holds the GIL
or never returns. In the controller, `post_mortem` reads what a dead worker left: the signal, whether the watchdog
ended it, and the end of its standard error. A worker ends with its controller: on Linux at once, on other systems
when its pipe is closed, or at its deadline at the latest. Posix only; on Windows the signal is unknown.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO

from meshmark.core.privacy import redact
from meshmark.core.verdicts import Line

DEADLINE = 20.0
"""Seconds that a case may take on a backend with a fast first compile; far below XLA's own 60."""

LONGEST = 50.0
"""The longest stretched deadline in seconds: XLA's CPU backend aborts a stuck collective after 60."""

BRISK = 1.0
"""The longest first compile, in seconds, that does not stretch the deadline."""

START = 300.0
"""Seconds that a worker may take to start its backend; the same as for the child process that probes the devices."""

_TAIL = 1 << 18
"""Bytes of standard error that are kept of a dead worker; enough for the stacks of many threads."""

_PR_SET_PDEATHSIG = 1
_DUMP = re.compile(r"^(?:(?P<hang>Timeout \([\d:.]+\)!)|Fatal Python error: .*)$", re.MULTILINE)
_NATIVE = re.compile(r"\s+@\s+0x|\*\*\* .* stack trace")
_THREAD = re.compile(r"^(?:Current thread|Thread) .*", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)


@dataclass
class Watchdog:
    """Ends this process when a case is past its deadline, after writing the stacks of all threads."""

    seconds: float
    stream: IO[str]

    @contextmanager
    def over(self, seconds: float = 0.0) -> Iterator[None]:
        """Watch one case, or work that may take `seconds`; empties standard error first, so that its end
        belongs to this case."""
        os.ftruncate(self.stream.fileno(), 0)
        faulthandler.dump_traceback_later(seconds or self.seconds, exit=True, file=self.stream)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def stretched(deadline: float, first_compile: float) -> float:
    """The deadline for a first compile of this many seconds; at most LONGEST, unless `deadline` itself is longer."""
    return max(deadline, min(deadline * max(1.0, first_compile / BRISK), LONGEST))


def first_compile() -> float:
    """Seconds that a first, trivial program takes to compile and run on one device."""
    import jax

    start = time.perf_counter()
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
    return time.perf_counter() - start


def own_stderr(directory: Path, worker: str) -> IO[str]:
    """Redirect this worker's file descriptor 2 to a file, and write the worker's process id beside it."""
    (directory / f"{worker}.pid").write_text(str(os.getpid()))
    stream = open(directory / f"{worker}.stderr", "a", encoding="utf-8", errors="replace")  # noqa: SIM115
    os.dup2(stream.fileno(), 2)
    return stream


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
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                os.kill(pid, signal.SIGKILL)
        except (
            OSError,
            ValueError,
            AttributeError,
        ):  # it has ended, and its id may belong to another process
            continue


def post_mortem(directory: Path, worker: str) -> tuple[Line, str]:
    """(the line of the case that a dead worker ran, the raw end of its standard error)."""
    how = cause(directory, worker)
    raw = _end_of(directory / f"{worker}.stderr")
    start = _DUMP.search(raw)
    words, dump = (raw[: start.start()], raw[start.start() :]) if start else (raw, "")
    stacks = threads(dump)
    last = [line for line in words.splitlines() if line.strip() and not _NATIVE.match(line)][-8:]
    tail = ["".join(filter(str.isprintable, redact(line)))[:300] for line in last]
    data = {"stderr": tail, "stacks": stacks}
    if start and start["hang"]:
        innermost = stacks[-1][0] if stacks and stacks[-1] else "unknown"
        return Line("execute", "hang", f"past its deadline, in {innermost}", data), raw
    return Line("execute", "crash", f"{how}: {tail[-1]}" if tail else how, {"signal": how, **data}), raw


def cause(directory: Path, worker: str) -> str:
    """How the worker ended: the name of the signal, or its exit code; waits a moment for its end."""
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


def _end_of(path: Path) -> str:
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
