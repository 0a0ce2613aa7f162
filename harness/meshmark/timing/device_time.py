# SPDX-License-Identifier: Apache-2.0
"""Measures the device time of a program with `jax.profiler`: the time of the devices, without dispatch and the host.

There is one trace per call. A device's time is the time in which it is busy: the duration of the event on its "XLA
Modules" line (TPU), or of the union of the events on its streams (GPU, whose raw trace has kernels and copies alone).
The gaps between kernels do not count, since the profiler makes them: on an H100 two kernels of 3.3 and 1.5 us started
40 to 70 us apart while it looked. A missing device plane or event is an error: host time never replaces device time.
XLA's CPU backend gives no device planes.

The module has run on one H100 (JAX 0.11.2). Several devices, and TPUs, are read from stored traces in the tests.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from meshmark.timing.measure import Budget, Prepared

MODULES = "XLA Modules"
_DEVICE = re.compile(r"/device:(?!CPU)[A-Za-z_]+:\d+")
_STREAM = re.compile(r"Stream\b")


class NoDeviceTime(RuntimeError):
    """The profile has no device plane or no event of the program; the message names the missing part."""


@dataclass(frozen=True)
class Span:
    """A program on one device, in seconds."""

    start: float
    stop: float
    busy: float
    """How long the device worked between the two."""


def apart(call: Sequence[Span]) -> tuple[float, float]:
    """(launch skew, time on the wire) of one call on several devices, in seconds.

    A device that starts early waits inside a collective for those that start late, so its own duration includes the
    launch skew, which is the time from the first to the last device's start. The time on the wire is that from the last
    start, when all devices take part, to the last end. The sum of the two is the time of the call.
    """
    last = max(span.start for span in call)
    return last - min(span.start for span in call), max(span.stop for span in call) - last


def measure_device_time(prepared: Prepared, budget: Budget) -> dict[str, list[Span]]:
    """The span of each of `budget.least` calls, by the name of the device's plane."""
    found: dict[str, list[Span]] = {}
    prepared.run()
    for _ in range(budget.least):
        with tempfile.TemporaryDirectory() as directory:
            with jax.profiler.trace(directory):
                prepared.run()
            files = sorted(Path(directory).rglob("*.xplane.pb"))
            if not files:
                raise NoDeviceTime("the profiler wrote no trace")
            planes = list(jax.profiler.ProfileData.from_file(str(files[0])).planes)
            for name, span in device_spans(planes).items():
                found.setdefault(name, []).append(span)
    if len({len(times) for times in found.values()}) != 1:
        raise NoDeviceTime("not every call has an event on every device")
    return found


def device_spans(planes: Iterable[Any]) -> dict[str, Span]:
    """The span of the one call in a trace, by device plane; NoDeviceTime if a device has no event.

    All planes of a trace have one clock, that of the profiler's host; starts are from the first one on.
    """
    found: dict[str, Span] = {}
    begun: dict[str, float] = {}
    names = []
    for plane in planes:
        names.append(plane.name)
        if not _DEVICE.fullmatch(plane.name):
            continue
        lines = {line.name: list(line.events) for line in plane.lines}
        modules = lines.get(MODULES)
        events = modules or [e for name, own in lines.items() if _STREAM.match(name) for e in own]
        if not events:
            raise NoDeviceTime(
                f"{plane.name} has no event of a program: its lines are {', '.join(lines) or 'none'}"
            )
        # From the first start on: a float of nanoseconds since 1970 is only good for 256 of them.
        first = min(e.start_ns for e in events)
        times = [(begin := (e.start_ns - first) * 1e-9, begin + e.duration_ns * 1e-9) for e in events]
        begun[plane.name] = first
        found[plane.name] = Span(0.0, max(stop for _, stop in times), union(times))
    if not found:
        raise NoDeviceTime(
            f"the backend gives no device time: the trace has {', '.join(names) or 'no plane'}"
        )
    late = {name: (start - min(begun.values())) * 1e-9 for name, start in begun.items()}
    return {name: replace(s, start=late[name], stop=late[name] + s.stop) for name, s in found.items()}


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """The length that intervals (start, stop) cover together, in their unit."""
    covered, reached = 0.0, -math.inf
    for start, stop in sorted(intervals):
        covered += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return covered
