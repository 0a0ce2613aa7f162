# SPDX-License-Identifier: Apache-2.0
"""Ends a run early: Ctrl-C (SIGINT) and `kill` (SIGTERM) do the same.

A process that is started in the background of a shell without job control, under nohup or in some CI systems
inherits an ignored SIGINT. It stays ignored here, because whoever started the process asked for that. SIGTERM always
ends a run and keeps the finished part.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """SIGTERM came: the run ends as with Ctrl-C."""

    def __init__(self) -> None:
        super().__init__("signal SIGTERM")


def terminate(number: int, frame: object) -> None:
    """The handler of SIGTERM; raises Terminated."""
    raise Terminated


def code(error: KeyboardInterrupt) -> int:
    """The exit code of an interrupted command: 128 plus the number of the signal, as in shells."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


@contextmanager
def terminated() -> Iterator[None]:
    """Make SIGTERM raise Terminated inside this context. In a thread other than the main one it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ignored() -> str:
    """The line that a run prints at its start if SIGINT is ignored; "" if Ctrl-C ends the run."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return ""
    return (
        "Ctrl-C (SIGINT) is ignored here, as under nohup or in the background of a script:"
        f" end this run with `kill {os.getpid()}` (SIGTERM), which keeps what is finished"
    )


def warn() -> None:
    """Print to standard error that SIGINT is ignored, if it is."""
    if text := ignored():
        print(f"meshmark: {text}", file=sys.stderr, flush=True)


def listen(told: Callable[[signal.Signals], object]) -> None:
    """Call `told` in a separate thread as soon as SIGINT or SIGTERM arrives.

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
                told(signal.Signals(data[0]))

    threading.Thread(target=wait, name="meshmark-signals", daemon=True).start()
