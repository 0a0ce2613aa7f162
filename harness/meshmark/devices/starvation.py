# SPDX-License-Identifier: Apache-2.0
"""Measures how much longer work takes in this process because other processes use the processors.

A deadline means seconds of work. On an overloaded machine threads wait for a processor, and a compilation of 3 seconds
takes 20. Linux counts the running and the waiting time of each thread, in nanoseconds: /proc/PID/task/TID/schedstat
(Documentation/scheduler/sched-stats.rst in its sources). On other systems the factor is 1."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LEAST = 0.5
"""Seconds of processor time, of all threads, between two looks. A smaller number does not predict the next seconds."""


@dataclass
class Starvation:
    """Measures the factor of one process, between calls of `factor`."""

    tasks: Path = Path("/proc/self/task")
    used: Callable[[], float] = time.process_time
    """Seconds that this process has run, of all threads."""
    _used: float = -LEAST
    _ran: float = 0.0
    _waited: float = 0.0
    _factor: float = 1.0

    def factor(self) -> float:
        """(time running + time waiting for a processor) / time running, since the measurement before; at least 1.

        Each of dozens of threads has a file. They are read only after LEAST more seconds of processor time; until then
        the last factor is returned.
        """
        used = self.used()
        if used - self._used < LEAST:
            return self._factor
        self._used = used
        ran, waited = self._read()
        if ran - self._ran >= LEAST:
            self._factor = 1.0 + max(0.0, waited - self._waited) / (ran - self._ran)
            self._ran, self._waited = ran, waited
        return self._factor

    def _read(self) -> tuple[float, float]:
        """Seconds that all threads ran, and waited for a processor."""
        ran = waited = 0
        try:
            for task in self.tasks.iterdir():
                own, queued, _ = (task / "schedstat").read_text().split()
                ran, waited = ran + int(own), waited + int(queued)
        except (OSError, ValueError):  # another system, or a thread that has just ended
            return self._ran, self._waited
        return ran / 1e9, waited / 1e9
