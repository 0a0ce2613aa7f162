# SPDX-License-Identifier: Apache-2.0
"""Measures how much of the passing time this process could work, where other processes use the processors too.

A deadline means seconds of work. On an overloaded machine threads wait for a processor, and a compilation of 3 seconds
takes 20. Linux counts the running and the waiting time of each thread, in nanoseconds: /proc/PID/task/TID/schedstat
(Documentation/scheduler/sched-stats.rst in its sources). Threads that sleep do not count, so a case that waits for what
never comes passes its deadline as on a quiet machine. On other systems all time counts as work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from meshmark.devices import offspring

LEAST = 0.1
"""The smallest share of the passing time in which threads run or wait for a processor. Below it the process sleeps, and
nothing holds it up."""

SLOWEST = 0.1
"""The smallest share that is believed. So a case is ended after ten times its deadline at the latest: a case with more
threads than processors makes its own threads wait."""


def with_descendants() -> Iterable[int]:
    """This process, and all that descend from it."""
    return {os.getpid(), *(offspring.descendants() if offspring.has_children() else ())}


@dataclass
class Starvation:
    """Measures the share between two looks."""

    processes: Callable[[], Iterable[int]] = with_descendants
    root: Path = Path("/proc")
    _threads: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(nanoseconds running, nanoseconds waiting) of each thread at the last look."""

    def share(self, seconds: float) -> float:
        """time running / (time running + time waiting for a processor), of all threads, since the last look.

        seconds: the time since the last look. At the first look, threads count from their start.
        """
        before, self._threads = self._threads, self._read()
        ran = waited = 0
        for thread, (running, waiting) in self._threads.items():
            old = before.get(thread, (0, 0))
            ran, waited = ran + max(0, running - old[0]), waited + max(0, waiting - old[1])
        if ran + waited < LEAST * seconds * 1e9:
            return 1.0
        return max(SLOWEST, ran / (ran + waited))

    def _read(self) -> dict[str, tuple[int, int]]:
        found = {}
        for pid in self.processes():
            with suppress(OSError):  # another system, or a process that has just ended
                for task in (self.root / str(pid) / "task").iterdir():
                    with suppress(OSError, ValueError):
                        ran, waited, _ = (task / "schedstat").read_text().split()
                        found[f"{pid}/{task.name}"] = int(ran), int(waited)
        return found
