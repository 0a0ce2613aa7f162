# SPDX-License-Identifier: Apache-2.0
"""Computes the figures of timing records: times, bandwidths, FLOP/s, shares of a peak.

Bandwidths and rates are computed from the aggregated time, never averaged, in bytes/s and FLOP/s (decimal). With S and
f of the case's cost (the bandwidth table of NVIDIA's nccl-tests, doc/PERFORMANCE.md): algbw = S / t, busbw = S / t * f.
A share is relative to the ceiling that binds the case (meshmark.timing.rooflines), and names it. Without a ceiling
there is no share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from meshmark.core import statistics
from meshmark.core.statistics import Estimate
from meshmark.records.definition import TimingLine
from meshmark.timing import rooflines as peaks
from meshmark.timing.rooflines import Rooflines

Timed = Literal["samples_s", "control_s", "launch_skew_s", "wire_s"]
"""The fields of a timing line that have one time per call."""


def figures_of(record: TimingLine, rooflines: Rooflines | None = None) -> dict[str, Any]:
    """The figures of one timing record from its samples; {} if it has none. The interval is over its samples and does
    not cover other processes."""
    samples = record["samples_s"]
    if not samples:
        return {}
    middle = statistics.median(samples)
    return {
        "samples": len(samples),
        "median_s": middle.value,
        "low_s": middle.low,
        "high_s": middle.high,
        "least_s": min(samples),
        **tails([record]),
        **rates(record, middle.value, rooflines),
    }


def rates(record: TimingLine, seconds: float, rooflines: Rooflines | None = None) -> dict[str, Any]:
    """algbw, busbw (bytes/s), flops_per_s (all devices), intensity (FLOP/B) and moved_bytes (the least of one device);
    and for the ceiling that binds: `share`, `bound_by` (compute, memory or network) and `share_of` (its name). What
    does not apply is None, or ""."""
    cost = record.get("cost") or {}
    nbytes, factor, flops = cost.get("nbytes", 0), cost.get("factor", 0.0), cost.get("flops", 0)
    found: dict[str, Any] = {
        "algbw": nbytes / seconds if nbytes else None,
        "busbw": nbytes * factor / seconds if nbytes and factor else None,
        "flops_per_s": flops / seconds if flops and not factor else None,
        "intensity": peaks.intensity(record),
        "moved_bytes": None if factor else peaks.moved(record) or None,
        "share": None,
        "bound_by": "",
        "share_of": "",
    }
    binding = rooflines.binding(record) if rooflines and (factor or flops) else None
    if binding:
        found |= {
            "share": binding.seconds / seconds,
            "bound_by": binding.part,
            "share_of": binding.name,
        }
    return found


def by_process(records: Sequence[TimingLine], samples: Timed = "samples_s") -> dict[int, float]:
    """The figure of each process, in order: the median of its samples, in seconds. With several ranks, one launch of
    all ranks is a process."""
    found = {r["process"]: statistics.median(r[samples]).value for r in records if r.get(samples)}
    return dict(sorted(found.items()))


def pooled(records: Sequence[TimingLine]) -> Estimate | None:
    """The time of one case and cadence over its processes, in seconds: the median of the processes' medians.

    The process is the replicate. From six processes on there is a 95 percent interval, which is not corrected for other
    rows. It is wider if processes resemble their neighbours in time. With fewer processes there is no interval, also
    with many samples. None without samples.
    """
    found = by_process(records)
    return statistics.series_median(list(found.values())) if found else None


def extremes(each: Mapping[int, float]) -> tuple[float, float]:
    """The medians of the fastest and of the slowest process, in seconds, from those of `by_process`; (0, 0) without
    any."""
    medians = each.values()
    return (min(medians), max(medians)) if medians else (0.0, 0.0)


TAILS = (0.1, 0.5, 0.9, 0.99)
"""The quantiles that are reported of each timing."""


def tails(records: Sequence[TimingLine]) -> dict[str, float | None]:
    """p10_s, p50_s, p90_s and p99_s: the median over processes of each process's quantile, in seconds; p10_low_s,
    p10_high_s and so on are the ends of their intervals over processes.

    A process with too few samples for a quantile does not count for it (p99 needs 100). A quantile is None if no
    process counts, and its ends are None if fewer than six do.
    """
    found: dict[str, float | None] = {}
    ordered = sorted((r for r in records if r["samples_s"]), key=lambda r: r.get("process", 0))
    each = [statistics.tails(r["samples_s"], TAILS) for r in ordered]
    for number, q in enumerate(TAILS):
        known = [value for one in each if (value := one[number]) is not None]
        found |= with_ends(f"p{round(100 * q)}", statistics.series_median(known) if known else None)
    return found


def with_ends(name: str, time: Estimate | None) -> dict[str, float | None]:
    """A time as the columns NAME_s, NAME_low_s and NAME_high_s. The ends are None without an interval."""
    if time is None:
        return {f"{name}_s": None, f"{name}_low_s": None, f"{name}_high_s": None}
    known = math.isfinite(time.low) and math.isfinite(time.high)
    low, high = (time.low, time.high) if known else (None, None)
    return {f"{name}_s": time.value, f"{name}_low_s": low, f"{name}_high_s": high}


# Ratios -----------------------------------------------------------------------------------------------------


def ratios(
    some: Sequence[TimingLine], others: Sequence[TimingLine], samples: Timed = "samples_s"
) -> list[float]:
    """The ratio of two cases' times in each process that timed both (see `ratios_by_process`)."""
    return list(ratios_by_process(some, others, samples).values())


def ratios_by_process(
    some: Sequence[TimingLine], others: Sequence[TimingLine], samples: Timed = "samples_s"
) -> dict[int, float]:
    """The ratio of two cases' times in each process that timed both: the Hodges-Lehmann estimate over its common
    rounds. `samples` names the samples of `some`."""
    matching = {r["process"]: r["samples_s"] for r in others}
    found = {}
    for record in some:
        own, other = record.get(samples) or (), matching.get(record["process"], ())
        if shared := min(len(own), len(other)):
            found[record["process"]] = statistics.ratio(own[:shared], other[:shared]).value
    return found


def over_processes(ratios: Sequence[float], confidence: float = 0.95) -> Estimate:
    """A ratio with its interval over processes, at least one: of signed ranks, from six processes on at 0.95."""
    return statistics.ratio(ratios, [1.0] * len(ratios), confidence)
