# SPDX-License-Identifier: Apache-2.0
"""Ends the processes that a case started and left behind, at the end of the case. On Linux only.

A process that watches cases adopts their orphans, so that a child of a child is found too. Without this a forked child
could hold a dead worker's pipe open, and the controller would wait for ever.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 2.0
"""Seconds that a killed process may take to end."""


def adopt() -> None:
    """Make this process adopt the orphans of its descendants from now on (a subreaper)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def ended_after() -> Iterator[None]:
    """End the processes that were started inside this context when it ends. A forked copy of this process that reaches
    the end of the context is ended there."""
    own, before = os.getpid(), descendants() if has_children() else set()
    try:
        yield
    finally:
        if os.getpid() != own:
            os._exit(0)
        if has_children():
            kill_processes(descendants() - before)


def has_children() -> bool:
    """Whether this process has any child, by one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except AttributeError:  # no such call here
        return False
    return True


def descendants(pid: int | None = None) -> set[int]:
    """The processes that descend from this one, or from `pid`."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(
                int(path.parent.name)
            )
    found: set[int] = set()
    new = {os.getpid() if pid is None else pid}
    while new:
        new = {child for one in new for child in children.get(one, ())} - found
        found |= new
    return found


def marked(pids: Iterable[int], mark: str) -> set[int]:
    """The processes among these whose environment held this text at their start."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.add(pid)
    return found


def kill_processes(pids: Iterable[int]) -> None:
    """Kill these processes, and collect those of them that are children of this one."""
    left = set(pids)
    until = time.monotonic() + _PATIENCE
    while left and time.monotonic() < until:
        for pid in sorted(left):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in sorted(left):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    left.discard(pid)
            except ChildProcessError:  # of another parent, who collects it, or gone
                if not Path(f"/proc/{pid}").exists() or _is_zombie(pid):
                    left.discard(pid)
        if left:
            time.sleep(0.01)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
