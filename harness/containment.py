"""A case may kill or hang its process: this makes a verdict of it.

In a worker, file descriptor 2 is a file of its own, and `faulthandler.dump_traceback_later` ends the process
when a case is past its deadline: its watchdog is a native thread that needs no GIL, so code that holds the GIL
or never returns is ended all the same. In the controller, `post_mortem` reads what is left of a dead worker:
the signal, whether the watchdog ended it, and the end of its standard error. Posix only; elsewhere the signal
is not known.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO

from harness.privacy import redact
from harness.verdicts import Line

DEADLINE = 20.0
"""Seconds a case may take on a backend whose first compile is fast; far below XLA's own 60."""

BRISK = 1.0
"""Seconds of a first compile up to which the deadline is not stretched."""

_TIMEOUT = re.compile(r"^Timeout \(", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) .*", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)


@dataclass
class Watchdog:
    """Ends this process when a case is past its deadline, stacks of all threads first."""

    seconds: float
    stream: IO[str]

    def arm(self) -> None:
        """Start the clock for one case."""
        faulthandler.dump_traceback_later(self.seconds, exit=True, file=self.stream)

    def rest(self) -> None:
        """Stop the clock."""
        faulthandler.cancel_dump_traceback_later()


def stretched(deadline: float, first_compile: float) -> float:
    """The deadline of a backend whose first compile took so many seconds."""
    return deadline * max(1.0, first_compile / BRISK)


def first_compile() -> float:
    """Seconds that a first, trivial program takes to compile and run on one device."""
    import jax

    start = time.perf_counter()
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
    return time.perf_counter() - start


def own_stderr(directory: Path, worker: str) -> IO[str]:
    """Make a file of this worker's file descriptor 2, and note the worker's process id beside it."""
    stream = open(directory / f"{worker}.stderr", "a", encoding="utf-8", errors="replace")  # noqa: SIM115
    os.dup2(stream.fileno(), 2)
    (directory / f"{worker}.pid").write_text(str(os.getpid()))
    return stream


def post_mortem(directory: Path, worker: str) -> tuple[Line, str]:
    """(the line of the case that a dead worker ran, the raw end of its standard error)."""
    try:
        raw = (directory / f"{worker}.stderr").read_text(errors="replace")[-20000:]
    except OSError:
        raw = ""
    timeout = _TIMEOUT.search(raw)
    if timeout:
        dump = raw[timeout.start() :]
        stacks = threads(dump)
        innermost = stacks[-1][0] if stacks and stacks[-1] else "unknown"
        return Line("execute", "hang", f"past its deadline, in {innermost}", {"stacks": stacks}), raw
    how = cause(directory, worker)
    words, _, dump = raw.partition("Fatal Python error")  # faulthandler's own report of a fatal signal follows
    tail = [redact(line)[:300] for line in words.splitlines() if line.strip()][-8:]
    reason = f"{how}: {tail[-1]}" if tail else how
    return Line("execute", "crash", reason, {"signal": how, "stderr": tail, "stacks": threads(dump)}), raw


def cause(directory: Path, worker: str) -> str:
    """How the worker ended: the name of the signal, or its exit code; waits a moment for its end."""
    try:
        pid = int((directory / f"{worker}.pid").read_text())
        for _ in range(100):
            info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if info is not None:
                if info.si_code == os.CLD_EXITED:
                    return f"exit code {info.si_status}"
                return signal.Signals(info.si_status).name
            time.sleep(0.05)
    except (OSError, ValueError, AttributeError):
        pass
    return "the process died"


def threads(dump: str) -> list[list[str]]:
    """The stacks of faulthandler's dump, a list a thread, innermost frame first, as module:function:line."""
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
