# SPDX-License-Identifier: Apache-2.0
"""Device time of a program from `jax.profiler`: the time of the devices, without dispatch and the host.

There is one trace per call. A device's time is the duration of the event on its "XLA Modules" line (TPU), or the time
from the start of the first to the end of the last event on its streams (GPU, where the raw trace has only kernels). A
missing device plane or event is an error: host time never replaces device time. XLA's CPU backend gives no device
planes.
This module follows the format that jax.profiler.ProfileData documents. It has not run on an accelerator yet.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
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


Span = tuple[float, float]
"""(start, duration) of a program on one device, in seconds."""


def apart(call: Sequence[Span]) -> Span:
    """(launch skew, time on the wire) of one call on several devices, in seconds.

    A device that starts early waits inside a collective for those that start late, so its own duration holds the launch
    skew: from the first to the last device's start. From the last start on, all take part: until the last end is the
    time on the wire. The two make up the whole.
    """
    last = max(start for start, _ in call)
    return last - min(start for start, _ in call), max(start + duration for start, duration in call) - last


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
    found: dict[str, tuple[float, float]] = {}
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
        start = min(e.start_ns for e in events)
        stop = max(e.start_ns + e.duration_ns for e in events)
        found[plane.name] = (start, stop - start)
    if not found:
        raise NoDeviceTime(
            f"the backend gives no device time: the trace has {', '.join(names) or 'no plane'}"
        )
    first = min(start for start, _ in found.values())
    return {name: ((start - first) * 1e-9, duration * 1e-9) for name, (start, duration) in found.items()}
