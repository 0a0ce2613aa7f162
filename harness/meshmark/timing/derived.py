# SPDX-License-Identifier: Apache-2.0
"""Computes figures of several timings: the fit over message sizes, dispatch, and efficiency over meshes.

The process is the replicate. Each figure is computed in every process from that process's own medians, and its
value is the median over processes. From six processes on it has a 95 percent interval; fewer give infinite ends.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshmark.core import meshes, statistics
from meshmark.core.escaping import field as field_of
from meshmark.core.statistics import Estimate
from meshmark.core.text import number
from meshmark.operations.base import parse_size
from meshmark.records.definition import TimedCost, TimingLine
from meshmark.timing import figures
from meshmark.timing.cells import BASE, Cells

Times = Mapping[int, float]
"""Seconds by process."""


def over_processes(function: Callable[..., float], *times: Times) -> Estimate | None:
    """The median over processes of `function`, with its interval; None if no process has all of the times.

    In each process `function` is called with one time from each of `times`."""
    shared = _shared(times)
    if not shared:
        return None
    return statistics.series_median([function(*(each[p] for each in times)) for p in shared])


def _shared(times: Sequence[Times]) -> list[int]:
    """The processes that have all of the times, in their order."""
    return [p for p in times[0] if all(p in each for each in times[1:])]


def dispatch(cells: Cells) -> dict[tuple[str, str], Estimate]:
    """Seconds of an isolated call minus those of a stream's call, by cell and mode."""
    found = {}
    for (cell, mode), (alone, streamed) in _isolated_and_streamed(cells).items():
        if difference := over_processes(lambda a, b: a - b, alone, streamed):
            found[cell, mode] = difference
    return found


def usual_dispatch(cells: Cells) -> Estimate | None:
    """The median dispatch of all cases in seconds, over processes; None if no process has any."""
    each: dict[int, list[float]] = defaultdict(list)
    for alone, streamed in _isolated_and_streamed(cells).values():
        for process in alone.keys() & streamed.keys():
            each[process].append(alone[process] - streamed[process])
    medians = {process: statistics.median(found).value for process, found in sorted(each.items())}
    return over_processes(lambda t: t, medians)


def usual_compile(timings: Sequence[TimingLine]) -> Estimate:
    """The median compile time of all programs in seconds, over processes; ValueError if no line has one."""
    each: dict[int, list[float]] = defaultdict(list)
    for record in timings:
        if record.get("compile_s"):
            each[record["process"]].append(record["compile_s"])
    return statistics.series_median([statistics.median(each[p]).value for p in sorted(each)])


def _isolated_and_streamed(cells: Cells) -> dict[tuple[str, str], tuple[Times, Times]]:
    """Both times of each case that has both, by cell and mode."""
    return {
        (cell, mode): (figures.by_process(cells[cell, "isolated"].get(mode, [])), figures.by_process(own))
        for (cell, cadence), modes in cells.items()
        if cadence == "stream" and (cell, "isolated") in cells
        for mode, own in modes.items()
    }


# Message sizes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SweepFit:
    """t = alpha + S / beta over the message sizes of one collective, mode and cadence."""

    cell: str
    """The id of the cells without their size."""
    cadence: str
    mode: str
    points: int
    factor: float
    """Bus bandwidth over algorithm bandwidth."""
    alpha: Estimate
    """Seconds."""
    beta: Estimate
    """Bytes per second; inf where the time does not grow with the size."""
    residuals: tuple[float, ...]
    """Those of the fit to the processes' medians, by size: at 0.1 the model is 10 percent of t too short."""


def fits(cells: Cells) -> list[SweepFit]:
    """The fit of each collective, mode and cadence that was timed at three sizes or more."""
    swept: dict[tuple[str, str, str], dict[float, Times]] = defaultdict(dict)
    factors: dict[tuple[str, str, str], float] = {}
    for (cell, cadence), modes in cells.items():
        for mode, own in modes.items():
            (size, factor), each = cost_of(own[0]), figures.by_process(own)
            if each and size and factor:
                key = (cell.rpartition("/")[0], cadence, mode)
                swept[key][size] = each
                factors[key] = factor
    found = []
    for (cell, cadence, mode), times in swept.items():
        sizes = sorted(times)
        middle = [statistics.median(list(times[size].values())).value for size in sizes]
        whole = statistics.fit_line(sizes, middle)
        if whole is None:
            continue
        by_size = [times[size] for size in sizes]
        lines = [statistics.fit_line(sizes, [each[p] for each in by_size]) for p in _shared(by_size)]
        alphas, paces = [f.alpha for f in lines if f], [1 / f.beta for f in lines if f]
        if lines:
            alpha, pace = statistics.series_median(alphas), statistics.series_median(paces)
        else:  # no process timed all sizes
            alpha, pace = (Estimate(v, -math.inf, math.inf) for v in (whole.alpha, 1 / whole.beta))
        factor = factors[cell, cadence, mode]
        found.append(
            SweepFit(cell, cadence, mode, len(sizes), factor, alpha, _inverse(pace), whole.residuals)
        )
    return found


def cost_of(record: TimingLine) -> tuple[float, float]:
    """(S, f) of a timing record: bytes and the factor of bus bandwidth; (0, 0) if it has none."""
    cost = record.get("cost")
    nbytes, factor = number(field_of(cost, "nbytes")), number(field_of(cost, "factor"))
    return (nbytes if nbytes > 0 else 0.0, factor if factor > 0 else 0.0)


def _inverse(pace: Estimate) -> Estimate:
    """Seconds per byte, which are never negative, as bytes per second. Without an interval the ends are infinite."""
    value, low = (1 / v if v > 0 else math.inf for v in (pace.value, pace.high))
    if not math.isfinite(pace.high):
        return Estimate(value, -math.inf, math.inf)
    return Estimate(value, low, 1 / pace.low if pace.low > 0 else math.inf)


# Meshes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    """The time of one case on one mesh."""

    seconds: float
    work: float
    """Bytes of a collective, else flops."""
    each: Times


def scaling(cells: Cells) -> list[dict[str, Any]]:
    """Strong and weak scaling over meshes of one axis, if at least three sizes of mesh were timed.

    Strong: the same problem on n devices, efficiency t(1) n1 / (t(n) n), n1 being the smallest mesh. Weak: the same
    work per device, efficiency t(n1) / t(n), corrected for small differences in work per device (flops of the cost
    model). The smallest mesh of a collective has two devices, and its weak scaling has the same S per device. Each
    series has a name, a kind (strong, weak) and points: (devices, seconds, efficiency with its interval).
    """
    points: dict[tuple[str, str, str], dict[tuple[int, str], _Point]] = defaultdict(dict)
    for (cell, cadence), modes in cells.items():
        name, variant, _, mesh, dtype, size = cell.split("/")
        try:
            shape = meshes.parse_mesh(mesh)
        except ValueError:  # a file that nobody reviewed may name anything
            continue
        if len(shape.shape) > 1 or shape.order:
            continue
        for mode, own in modes.items():
            time = figures.pooled(own)
            cost = own[0].get("cost") or {}
            if time and mode == BASE:
                work = float(cost.get("nbytes", 0) if cost.get("factor") else cost.get("flops", 0))
                if cost.get("factor") or not size.endswith("B"):
                    points[f"{name} {variant} {dtype}", cadence, _kind(cost)][shape.size, size] = _Point(
                        time.value, work, figures.by_process(own)
                    )
    found = []
    for (name, cadence, kind), by in points.items():
        if len({devices for devices, _ in by}) < 3:
            continue
        for what in ("strong", "weak"):
            chosen = _series(by, kind, what)
            if len(chosen) > 2:
                found.append({"name": f"{name} ({cadence})", "kind": what, "points": chosen})
    return found


def _kind(cost: TimedCost) -> str:
    return "bytes" if cost.get("factor") else "flops"


def _series(by: Mapping[tuple[int, str], _Point], kind: str, what: str) -> list[tuple[int, float, Estimate]]:
    """(devices, seconds, efficiency) of the largest problem that has a series."""
    counts = sorted({devices for devices, _ in by})
    best: list[tuple[int, float, Estimate]] = []
    for (devices, size), base in by.items():
        if devices != counts[0]:
            continue
        series = [(devices, base.seconds, Estimate(1.0, 1.0, 1.0))]
        for count in counts[1:]:
            other = _partner(by, kind, what, (devices, size, base.work), count)
            if other is None:
                continue
            share = other.work / base.work if kind == "flops" and base.work else 1.0
            scale = share * devices / count
            if kind == "bytes" and what == "weak":
                scale = 1.0
            efficiency = over_processes(lambda a, b: a / b, base.each, other.each)
            if efficiency is None:  # no process timed both
                efficiency = Estimate(base.seconds / other.seconds, -math.inf, math.inf)
            series.append((count, other.seconds, _times(efficiency, scale)))
        if len(series) >= len(best):
            best = series
    return best


def _times(found: Estimate, scale: float) -> Estimate:
    return Estimate(found.value * scale, found.low * scale, found.high * scale)


def _partner(
    by: Mapping[tuple[int, str], _Point], kind: str, what: str, base: tuple[int, str, float], count: int
) -> _Point | None:
    """The point on `count` devices in the series of `base` (devices, size, work); None if there is none."""
    devices, size, work = base
    here = {s: point for (d, s), point in by.items() if d == count}
    if kind == "bytes":
        wanted = parse_size(size) * (devices / count if what == "strong" else 1)
        return next((point for s, point in here.items() if parse_size(s) == wanted), None)
    if what == "strong":
        return here.get(size)
    near = [p for p in here.values() if p.work and abs(p.work / count / (work / devices) - 1) < 0.1]
    return min(near, key=lambda p: abs(p.work / count / (work / devices) - 1), default=None)
