# SPDX-License-Identifier: Apache-2.0
"""Shows on standard error how far a long command is."""

from __future__ import annotations

import sys
import time

EVERY = 10.0
"""Seconds between two lines where standard error is not a terminal."""

FEWEST = 5
"""Steps after which the time of the others is estimated. The first step may take much longer, since it loads JAX."""

WIDEST = 110
"""Characters of the line on a terminal."""


def spell_rest(seconds: float | None) -> str:
    """The rest of a line: ", about 3 min left"; "" if the time is not known."""
    if seconds is None:
        return ""
    return f", about {seconds / 60:.0f} min left" if seconds > 90 else f", about {seconds:.0f} s left"


class Steps:
    """Counts the steps of one task. A terminal has one line that changes with each step; anything else gets a line from
    time to time, and one for the last step."""

    def __init__(self, task: str, total: int, before: int = 0) -> None:
        """task: the start of each line. before: the steps that an earlier run has done, which say nothing about the
        time."""
        self.task, self.total, self.done = task, total, before
        self._before, self._began = before, time.monotonic()
        self._last = self._began

    def step(self, what: str) -> None:
        """Count one more step as done, and show it."""
        self.done += 1
        now = time.monotonic()
        left, steps = self.total - self.done, self.done - self._before
        rest = (now - self._began) / steps * left if left > 0 and steps >= FEWEST else None
        line = f"{self.task}: {self.done} of {self.total}{spell_rest(rest)}"
        if sys.stderr.isatty():
            end = "" if left > 0 else "\n"
            print(f"\r{f'{line}: {what}'[:WIDEST]:{WIDEST}}", end=end, file=sys.stderr, flush=True)
        elif left <= 0 or now - self._last >= EVERY:
            self._last = now
            print(line, file=sys.stderr, flush=True)
