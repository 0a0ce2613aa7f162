# SPDX-License-Identifier: Apache-2.0
"""Ends the processes that ranks have started, also if their launcher is killed.

A rank ends with its launcher (PR_SET_PDEATHSIG), but the processes that it started do not. A small forked process waits
for the launcher's end. Then it finds all descendants of the ranks by their environment, and ends them. This needs
Linux. Elsewhere a living launcher ends them by their process group.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from meshmark.core import scratch
from meshmark.devices import offspring


@contextmanager
def watching(directory: Path, mark: str) -> Iterator[None]:
    """A context in which, if this process is killed, all processes with this mark in their environment are ended and
    the directory is removed."""
    if sys.platform != "linux":
        yield
        return
    reading, writing = os.pipe()  # programs that this process starts do not inherit it
    child = os.fork()
    if not child:
        os.close(writing)
        _wait(reading, directory, mark)
    os.close(reading)
    try:
        yield
    finally:
        with suppress(OSError):
            os.write(writing, b"over")
        os.close(writing)
        os.waitpid(child, 0)


def _wait(reading: int, directory: Path, mark: str) -> NoReturn:
    """Run the forked process: wait for the end of the context, or of the launcher."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(nowhere, file)
        if not os.read(reading, 1):
            end_marked_processes(mark)
            scratch.remove(directory)
    finally:
        os._exit(0)


def end_marked_processes(mark: str) -> None:
    """End this user's processes that have this mark in their environment, except this process. Linux only."""
    if sys.platform != "linux":
        return
    everybody = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            if path.stat().st_uid == os.getuid():
                everybody.add(int(path.name))
    offspring.kill_processes(offspring.marked(everybody - {os.getpid()}, mark))
