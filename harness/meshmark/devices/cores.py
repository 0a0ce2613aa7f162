# SPDX-License-Identifier: Apache-2.0
"""Counts the cores of this machine, and those of them that this process may use.

`os.cpu_count()` tells how many cores there are. A process may have fewer: its affinity leaves some out (`taskset`, a
scheduler of a cluster), or its control group grants less time than all cores have (a container, a cloud's pod).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

OWN = Path("/proc/self")
"""Where Linux tells a process of itself."""


def counted() -> dict[str, Any]:
    """The fields of a run line's host: `cores`, and where the system tells them `usable` and `quota`."""
    cores, usable, granted = os.cpu_count(), usable_cores(), quota()
    if usable is not None:  # PYTHON_CPU_COUNT may tell Python of fewer
        cores = max(cores or usable, usable)
    found = {"cores": cores, "usable": usable, "quota": granted}
    return {name: value for name, value in found.items() if value is not None or name == "cores"}


def usable_cores() -> int | None:
    """The number of cores on which this process may run; None where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def quota(own: Path = OWN) -> float | None:
    """For how many cores the control groups of this process grant time: the least of all groups above it. None without
    a limit, and where the system does not tell."""
    return min((limit for group in _groups(own) for limit in _limits(group)), default=None)


def _groups(own: Path) -> Iterator[Path]:
    """The directories of the control groups that may limit the time of this process, its own and those above."""
    try:
        mounts, groups = ((own / name).read_text(errors="replace") for name in ("mountinfo", "cgroup"))
    except OSError:
        return
    paths = {}
    for line in groups.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers or "cpu" in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = PurePosixPath(path)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        words, (kind, *more) = before.split(), after.split() or [""]
        options = more[-1].split(",") if more else []
        if kind not in paths or len(words) < 5 or (kind == "cgroup" and "cpu" not in options):
            continue
        root, mounted = PurePosixPath(words[3]), Path(words[4])
        inside = paths[kind].is_relative_to(root)
        below = paths[kind].relative_to(root) if inside else PurePosixPath()
        yield mounted / below
        yield from (mounted / above for above in below.parents)


def _limits(group: Path) -> Iterator[float]:
    """For how many cores a control group grants time, by either version of its files."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = " ".join((group / name).read_text() for name in names).split()
            most, period = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):  # "max 100000": no limit
            continue
        if most > 0 and period > 0:
            yield round(most / period, 3)
