# SPDX-License-Identifier: Apache-2.0
"""Ends a run early: Ctrl-C (SIGINT) and `kill` (SIGTERM) do the same.

A process that is started in the background of a shell without job control, under nohup or in some CI systems
inherits an ignored SIGINT. It stays ignored here, because whoever started the process asked for that. SIGTERM always
ends a run and keeps the finished part.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from meshmark.core import terminal


class FromOutside(BaseException):
    """The base of exceptions that end a case from outside: a signal, or the end of the run. Any other exception, also a
    SystemExit or KeyboardInterrupt, is the case's own and becomes its verdict."""


class Interrupted(FromOutside, KeyboardInterrupt):
    """SIGINT arrived."""


class Terminated(FromOutside, KeyboardInterrupt):
    """SIGTERM arrived. The run ends as with Ctrl-C."""

    def __init__(self) -> None:
        super().__init__("signal SIGTERM")


def interrupt(number: int, frame: object) -> None:
    """The handler of SIGINT; raises Interrupted, which differs from a KeyboardInterrupt that a case itself raises."""
    if not _doubled(number):
        raise Interrupted


def from_outside(error: BaseException) -> bool:
    """Whether an exception that a case seems to raise comes from outside of it. Without a SIGINT handler of this suite,
    a KeyboardInterrupt counts as Ctrl-C."""
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True
    return isinstance(error, FromOutside)


def terminate(number: int, frame: object) -> None:
    """The handler of SIGTERM; raises Terminated."""
    if not _doubled(number):
        raise Terminated


_DOUBLE = 0.5
"""Seconds within which a signal that comes again is the same one."""
_came: dict[int, float] | None = None


def expect_doubles() -> None:
    """Count signals that arrive twice only once: a terminal sends its signals to all processes, and the parent of this
    process passes them on."""
    global _came
    _came = {}


def _started_as() -> int:
    """The id of the process that the user started: this one, or the parent that passes signals on."""
    return os.getpid() if _came is None else os.getppid()


def _doubled(number: int) -> bool:
    if _came is None:
        return False
    now = time.monotonic()
    before, _came[number] = _came.get(number, -_DOUBLE), now
    return now - before < _DOUBLE


def code(error: KeyboardInterrupt) -> int:
    """The exit code of an interrupted command: 128 plus the number of the signal, as in shells."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise Terminated inside this context. In a thread other than the main one it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def describe_ignored() -> str:
    """The line that a run prints at its start if SIGINT is ignored; "" if Ctrl-C ends the run."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return ""
    return (
        "Ctrl-C (SIGINT) is ignored here, as under nohup or in the background of a script:"
        f" end this run with `kill {_started_as()}` (SIGTERM), which keeps what is finished"
    )


def warn() -> None:
    """Print to standard error that SIGINT is ignored, if it is."""
    if text := describe_ignored():
        terminal.remark(text)


def listen(callback: Callable[[signal.Signals], object]) -> None:
    """Call `callback` in a separate thread as soon as SIGINT or SIGTERM arrives.

    This works while the main thread is inside a collective, where its own handler has to wait. Call it in the main
    thread, after joining JAX's cluster: joining replaces the handler of SIGTERM with one of JAX's, which does not end
    a run."""
    signal.signal(signal.SIGTERM, terminate)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        while data := os.read(reading, 1):
            if data[0] in (signal.SIGTERM, signal.SIGINT):
                callback(signal.Signals(data[0]))

    threading.Thread(target=wait, name="meshmark-signals", daemon=True).start()
