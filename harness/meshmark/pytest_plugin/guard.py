# SPDX-License-Identifier: Apache-2.0
"""A process outside of a run that watches it and determines the exit code.

The run continues in a forked child, and the original process waits for it. A child that ends without reporting how its
session ended has failed, even with exit code 0: a case, a plugin or a thread may call os._exit(0) or exec another
program. Without workers (`-n 0`, and on each of several ranks) the child also reports its current case. The guard then
ends a child that is past its deadline, also one that can't end itself, and writes the verdict of the case in which it
died. Linux only; on other systems a run has no guard.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FrameType
from typing import IO, Any, NoReturn

import pytest

from meshmark.core import interrupts
from meshmark.core.verdicts import Line
from meshmark.devices import containment, offspring

_PR_SET_PDEATHSIG = 1
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

FORKING = 30.0
"""Seconds that a fork may take on a busy machine."""

Blame = Callable[[str, Line], None]
"""Writes and prints the verdict of the case, given by its id, in which the child died."""


class Guard:
    """The child's side: reports the state of the session."""

    def __init__(self, pipe: int, stream: IO[str]) -> None:
        self._pipe = pipe
        self.stream = stream
        """The file for the stacks of the child's own watchdog, which the guard reads."""

    def at(self, case: str, seconds: float) -> None:
        """Report that this case begins and may take this many seconds."""
        self._say(case=case, until=time.monotonic() + seconds)

    def within(self, seconds: float) -> None:
        """Allow silence for this many seconds from now."""
        self._say(until=time.monotonic() + seconds)

    def ended(self, code: int) -> None:
        """Report the end of the session with this exit code. The rest, such as leaving JAX's cluster, gets its own time
        limit."""
        self._say(case="", until=time.monotonic() + containment.BETWEEN, code=code)

    def _say(self, **what: Any) -> None:
        with suppress(OSError):  # a case may have closed the pipe; the guard then sees silence
            os.write(self._pipe, json.dumps(what).encode() + b"\n")


def fork_guard(config: pytest.Config, blame: Blame | None = None) -> Guard | None:
    """Fork. The child continues the run and gets its Guard; the original process does not return. Returns None if no
    guard is possible, or if a debugger is to stop the run.

    blame: as above. Without it, as on a rank, the guard only reports how the process ended, and the other ranks judge.
    With workers there is no case to blame, and their controller judges.
    """
    if sys.platform != "linux" or config.option.usepdb or config.option.collectonly:
        return None
    reading, writing = os.pipe()
    try:
        stream = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
    except OSError as error:
        raise pytest.UsageError(f"no temporary file: {error.strerror} (see TMPDIR)") from None
    if _ends_by_forking():
        raise pytest.UsageError(
            "a handler that a plugin or a conftest.py has registered for forks (os.register_at_fork) ends the process:"
            " take that away"
        )
    offspring.adopt()
    before = offspring.descendants()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(writing)
        if capture := config.pluginmanager.getplugin("capturemanager"):
            capture.suspend_global_capture(in_=True)
        _watch(child, reading, stream, before, blame)
    os.close(reading)
    os.set_inheritable(writing, False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request
        os._exit(1)
    offspring.adopt()
    interrupts.expect_doubles()
    return Guard(writing, stream)


def _ends_by_forking() -> bool:
    """Whether a registered fork handler ends the process that forks. The guard would then end with the handler's exit
    code instead of the run's. A test child, which is forked without Python's handlers, tries it."""
    reading, writing = os.pipe()
    child = ctypes.PyDLL(None).fork()
    if not child:
        inner = os.fork()
        if inner:
            os.write(writing, b"goes on")
            os.waitpid(inner, 0)
        os._exit(0)
    os.close(writing)
    coming = selectors.DefaultSelector()
    coming.register(reading, selectors.EVENT_READ)
    goes_on = bool(coming.select(FORKING) and os.read(reading, 1))
    coming.close()
    os.close(reading)
    _kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
    return not goes_on


NEEDED = (
    "_exit",
    "fork",
    "getpid",
    "getppid",
    "kill",
    "pipe",
    "read",
    "waitid",
    "waitpid",
    "waitstatus_to_exitcode",
)
"""The operating system functions that the guard needs to learn and report how a run ended."""


def altered() -> str:
    """The first of these functions that is not Python's own, or ""."""
    for name in NEEDED:
        if (own := getattr(os, name, None)) is not None and not isinstance(own, BuiltinFunctionType):
            return f"os.{name}"
    return ""


PROGRAMS = ("pytest", "py", "meshmark", "harness")
"""Programs that run pytest, by the name of the package or script."""


def is_program() -> bool:
    """Whether pytest is the program of this process. Other code that calls `pytest.main` continues after it, and the
    process in which a guard waits does not. Under cProfile or trace pytest counts as a program too: they run it as one,
    and then exit with code 0, whatever its exit code is."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    name = spec.name.split(".")[0] if spec else Path(sys.argv[0]).stem
    return name in PROGRAMS or any(map(_runs_a_program, _frames()))


def _frames() -> Iterator[FrameType]:
    """The frames of this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _runs_a_program(frame: FrameType) -> bool:
    """Whether another program runs one of these programs in this process."""
    names = frame.f_globals
    if names.get("__name__") != "__main__":
        return False
    spec = names.get("__spec__")
    name = spec.name.split(".")[0] if spec else Path(str(names.get("__file__", ""))).stem
    return name in PROGRAMS


def _watch(child: int, reading: int, stream: IO[str], before: set[int], blame: Blame | None) -> NoReturn:
    """The guard: wait for the child, end it if it is late, and exit as the child did."""
    for number in _PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: _kill(child, number))
    said, overdue = _listen(child, reading)
    _, status = os.waitpid(child, 0)
    offspring.kill_processes(offspring.descendants() - before)
    code = os.waitstatus_to_exitcode(status)
    case, announced = str(said.get("case", "")), said.get("code")
    stream.seek(0)
    raw = stream.read()
    if announced is not None and overdue:
        tell(
            f"the session ended with exit code {announced}, and its process did not end: it was ended from outside"
        )
        os._exit(announced or int(pytest.ExitCode.TESTS_FAILED))
    if case and announced is None:
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        line = containment.line_of_death(how, raw, overdue)
        with suppress(OSError):
            os.write(2, raw.encode(errors="backslashreplace"))
        if blame:
            blame(case, line)
            os._exit(int(pytest.ExitCode.TESTS_FAILED))
        tell(f"{case}: this process ended in it: {line.verdict}: {line.reason}")
    elif announced is None and not code:
        tell("the run ended before its session did, with exit code 0: cases have no verdict")
    if code < 0:
        if announced is None:
            tell(
                f"the run was ended by {signal.Signals(-code).name} before its session did: cases have no verdict"
            )
        _end_by(-code)
    os._exit(code or announced or (announced is None))


def _listen(child: int, reading: int) -> tuple[dict[str, Any], bool]:
    """(the last report of the child, whether it was ended because it was late)."""
    coming = selectors.DefaultSelector()
    coming.register(reading, selectors.EVENT_READ)
    said: dict[str, Any] = {"until": math.inf}
    held = b""
    overdue = False
    while True:
        over = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if coming.get_map() and coming.select(0 if over else 0.25):
            data = os.read(reading, 1 << 16)
            *whole, held = (held + data).split(b"\n")
            for line in whole:
                with suppress(ValueError):
                    said = said | json.loads(line)
            if not data:
                coming.unregister(reading)
            continue
        if over:
            return said, overdue
        if not coming.get_map():
            time.sleep(0.1)
        if time.monotonic() > said["until"] + containment.MARGIN and not overdue:
            overdue = True
            _kill(child, signal.SIGABRT)
            time.sleep(2.0)
            _kill(child, signal.SIGKILL)


def _kill(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def tell(text: str) -> None:
    """Print one line on standard error."""
    with suppress(OSError):
        os.write(2, f"\nmeshmark: {text}\n".encode(errors="backslashreplace"))


def _end_by(number: int) -> None:
    """End by the signal that ended the child, so that the parent process sees it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
