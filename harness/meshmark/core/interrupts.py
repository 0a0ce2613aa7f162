"""How a person ends a run before its time: Ctrl-C (SIGINT) and `kill` (SIGTERM) do the same.

A process that is started in the background of a shell without job control, under nohup or in some CI systems
inherits an ignored SIGINT. It stays ignored here, as that is what whoever started the process asked for, and so
SIGTERM is the signal that always ends a run and keeps what it has finished.
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
    """The exit code of a command that was interrupted: 128 and the number of the signal, as shells count."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


@contextmanager
def terminated() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated. Only the main thread can be interrupted; in another one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ignored() -> str:
    """What a run says at its start where SIGINT is ignored, in one line; "" where Ctrl-C ends it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return ""
    return (
        "Ctrl-C (SIGINT) is ignored here, as under nohup or in the background of a script:"
        f" end this run with `kill {os.getpid()}` (SIGTERM), which keeps what is finished"
    )


def warn() -> None:
    """Say on standard error that SIGINT is ignored, where it is."""
    if text := ignored():
        print(f"meshmark: {text}", file=sys.stderr, flush=True)


def listen(told: Callable[[signal.Signals], object]) -> None:
    """Call `told` in a thread of its own as soon as SIGINT or SIGTERM comes, also while the main thread, whose handler
    has to wait, is inside a collective. Call it in the main thread, once JAX's cluster is there: joining it puts a
    handler of JAX's own in the place of the one of SIGTERM, which would end nothing."""
    signal.signal(signal.SIGTERM, terminate)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        while data := os.read(reading, 1):
            if data[0] in (signal.SIGTERM, signal.SIGINT):
                told(signal.Signals(data[0]))

    threading.Thread(target=wait, name="meshmark-signals", daemon=True).start()
