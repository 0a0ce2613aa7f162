# SPDX-License-Identifier: Apache-2.0
"""Ends a process whose case is past its deadline.

The timer is that of `faulthandler.dump_traceback_later`: a native thread that needs no GIL, so it also ends code that
holds the GIL or never returns. Time in which the threads of a case wait for a processor does not count: another thread
looks every few seconds how much of the time was work (`Starvation`), and sets the timer anew.

Some cases compile dozens of small programs. The deadline is that of one program, so it starts anew when the next one is
compiled (`go_on`). All of a case's programs together take a bounded time.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Protocol

from meshmark.devices import containment, offspring
from meshmark.devices.starvation import Starvation

LOOK = 2.0
"""Seconds between two measurements of how much a case could work."""

FREE = 0.9
"""The least share of the passing time that is work on a quiet machine. Its timer is left alone."""

MANY = 6
"""The most deadlines that a case of many programs may take together."""

SOON = 1.0
"""Seconds of a program within which the timer need not be set anew."""

SOONEST = 0.1
"""The least number of seconds after which a watchdog can be set to end a process."""


class Silence(Protocol):
    """Receives the time for which this process may be silent."""

    def within(self, seconds: float) -> None:
        """Allow silence for this many seconds from now on; `math.inf`: for ever."""


@dataclass
class Watchdog:
    """Ends this process when a case is past its deadline, after writing the stacks of all threads."""

    seconds: float
    stream: IO[str]
    clock: Silence | None = None
    """Ends this process from outside if it is silent for too long."""
    starvation: Starvation | None = None
    """Tells how much of the passing time counts towards the deadline."""
    _watching: threading.Lock = field(default_factory=threading.Lock)
    _limit: float = 0.0
    """Seconds of work that one program of the present case may take; 0 between cases."""
    _started: float = 0.0
    """When the present case began."""
    _began: float = 0.0
    """When the present program of it began."""
    _worked: float = 0.0
    """Seconds of work of the present program until the last look."""
    _share: float = 1.0
    """The share of the passing time that was work, at the last look."""
    _looking: bool = False

    @contextmanager
    def over(self, seconds: float = 0.0) -> Iterator[None]:
        """Watch one case, or work that may take `seconds`. Standard error is emptied first, so that all of it belongs
        to this case."""
        with suppress(OSError, ValueError):  # a case before may have closed it
            os.ftruncate(self.stream.fileno(), 0)
        if self.starvation and not self._looking:
            self._looking = True
            threading.Thread(target=self._look, name="meshmark-starvation", daemon=True).start()
        with self._watching:
            self._limit, self._started = seconds or self.seconds, time.monotonic()
            self._began, self._worked = self._started, 0.0
            self._arm()
        try:
            with offspring.ended_after():
                yield
        finally:
            self.rest()
            self.silent(containment.BETWEEN)

    def go_on(self) -> None:
        """A program of the present case was compiled: what follows has a deadline of its own, unless the case has taken
        too long already."""
        now = time.monotonic()
        with suppress(OSError, ValueError), self._watching:
            if now - self._began > SOON and now - self._started < (MANY - 1) * self._limit:
                self._began, self._worked = now, 0.0
                self._arm()

    def rest(self) -> None:
        """Watch the present case no more."""
        with self._watching:
            self._limit = 0.0
            faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        """Let the rest of the deadline pass as slowly as the time until the last look did. The next look corrects
        it."""
        seconds = max(SOONEST, self._limit - self._worked) / self._share
        self.silent(seconds)
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.stream)

    def _look(self) -> None:
        pause, before = threading.Event(), time.monotonic()
        while not pause.wait(LOOK):
            now = time.monotonic()
            with suppress(OSError, ValueError), self._watching:
                self._count_work(now - max(before, self._began), now - before)
            before = now

    def _count_work(self, passed: float, looked: float) -> None:
        """Count the work of the present program since the last look, or since it began.

        passed, looked: the seconds since the later one of these, and since the last look.
        """
        assert self.starvation
        old, self._share = self._share, self.starvation.share(looked)
        self._worked += passed * self._share
        if self._limit and (old < FREE or self._share < FREE):
            self._arm()

    def silent(self, seconds: float) -> None:
        """Tell the controller for how many seconds this process may be silent."""
        if self.clock:
            self.clock.within(seconds)
