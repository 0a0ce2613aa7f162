# SPDX-License-Identifier: Apache-2.0
"""Compares the clock that times programs with the kernel's clock.

A library in LD_PRELOAD may slow down the clock of a process, and every program then looks faster. Such a library does
not change the kernel's own file, so the two are compared. This works on Linux only; elsewhere no problem is found.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

UPTIME = Path("/proc/uptime")
"""The file with the seconds since the machine was started, with two decimals."""

STEP = 0.03
"""Seconds by which the elapsed times may differ: the kernel rounds both ends to 0.01 s, and a process may wait between
the two readings."""

DRIFT = 0.005
"""The relative difference of the clocks that is accepted: the kernel corrects its clock by a tenth of it at most."""

AGAIN = 0.5, 5.0
"""The fewest and the most seconds of a second look at a difference: while a machine sleeps, only one of the clocks goes
on. The most seconds are enough to see a clock that is wrong by 2 percent."""


def kernel() -> float:
    """The kernel's uptime in seconds; nan if it is not available."""
    with suppress(OSError, ValueError, IndexError):
        return float(UPTIME.read_text(encoding="ascii").split()[0])
    return float("nan")


@dataclass
class Watch:
    """Compares the two clocks, from the creation of this object on."""

    _times: tuple[float, float, float] = field(default_factory=lambda: _now())

    def problem(self) -> str:
        """What is wrong with the clock, in one line; "" if nothing is, or if the kernel's clock is not available."""
        if not _differs(self._times, now := _now()):
            return ""
        said = now[2] - self._times[2]
        share = abs(now[1] - self._times[1] - said) / max(said, STEP)
        seconds = min(AGAIN[1], max(AGAIN[0], 2 * STEP / max(share - DRIFT, DRIFT)))
        # A machine that sleeps stops one clock and not the other; a process that waits reads them apart.
        before = now
        while (now := _now())[2] - before[2] < seconds:
            time.sleep(0.05)
        if not _differs(before, now):
            self._times = now
            return ""
        own, said = now[1] - before[1], now[2] - before[2]
        return (
            f"the clock of this process counts {own:.3f} s where the kernel counts {said:.2f} s: its times are not"
            " valid (see LD_PRELOAD, sitecustomize and plugins)"
        )


def _now() -> tuple[float, float, float]:
    """(the clock before reading the kernel's, the clock after it, the kernel's)."""
    before = time.perf_counter()
    said = kernel()
    return before, time.perf_counter(), said


def _differs(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    """Whether more or less time has passed by the clock than by the kernel's; False if the kernel has no such clock."""
    least, most, said = other[0] - one[1], other[1] - one[0], other[2] - one[2]
    room = STEP + DRIFT * said
    return said < least - room or said > most + room
