# SPDX-License-Identifier: Apache-2.0
"""Whether the clock that times goes as fast as the kernel's.

A time is worth as much as the clock. A library that is loaded before all others (LD_PRELOAD) may slow the clock of a
process down, and every program then looks faster. What the kernel says of itself in a file goes another way, so the two
are compared. Linux only: elsewhere nothing is known.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

UPTIME = Path("/proc/uptime")
"""The seconds since the machine was started, in hundredths."""

STEP = 0.03
"""Seconds by which two readings may differ: each is made of two hundredths, and a process may wait between them."""

DRIFT = 0.005
"""The share of the time by which the clocks may differ: the kernel corrects its clock by a tenth of that at most."""

AGAIN = 0.5, 5.0
"""The fewest and the most seconds over which a difference is looked at once more: a machine that slept has counted on
in one clock alone. In the most seconds a clock that is two in a hundred off is seen."""


def kernel() -> float:
    """What the kernel says, in seconds; nan where it says nothing."""
    with suppress(OSError, ValueError, IndexError):
        return float(UPTIME.read_text(encoding="ascii").split()[0])
    return float("nan")


@dataclass
class Watch:
    """Compares the clock that times with the kernel's, from when it was made."""

    _times: tuple[float, float, float] = field(default_factory=lambda: _now())

    def problem(self) -> str:
        """What is wrong with the clock, as one line; "" for nothing, or where the kernel says nothing."""
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
            f"the clock of this process counts {own:.3f} s where the kernel counts {said:.2f} s: no time of it is one"
            " (see LD_PRELOAD, sitecustomize and plugins)"
        )


def _now() -> tuple[float, float, float]:
    """The clock before and after what the kernel says, and that."""
    before = time.perf_counter()
    said = kernel()
    return before, time.perf_counter(), said


def _differs(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    """Whether more or less time has passed by the clock than by the kernel's; False where that says nothing."""
    least, most, said = other[0] - one[1], other[1] - one[0], other[2] - one[2]
    room = STEP + DRIFT * said
    return said < least - room or said > most + room
