# SPDX-License-Identifier: Apache-2.0
"""The figures of a timing record: times, bandwidths, FLOP/s, shares of a peak.

Bandwidths and rates are computed from the aggregated time, never averaged, in bytes/s and FLOP/s (decimal). With S and
f of the case's cost (the bandwidth table of NVIDIA's nccl-tests, doc/PERFORMANCE.md): algbw = S / t, busbw = S / t * f.
A share is of the ceiling that binds the case (meshmark.timing.rooflines), and names it. Without any there is no share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from meshmark.core import statistics
from meshmark.core.statistics import Estimate
from meshmark.timing import rooflines as peaks
from meshmark.timing.rooflines import Rooflines


def of(record: Mapping[str, Any], rooflines: Rooflines | None = None) -> dict[str, Any]:
    """The figures of one timing record from its samples; {} if it has none. The interval is of its samples: it says
    nothing of another process."""
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


def rates(record: Mapping[str, Any], seconds: float, rooflines: Rooflines | None = None) -> dict[str, Any]:
    """algbw, busbw (bytes/s), flops_per_s (all devices), intensity (FLOP/B) and moved_bytes (of one device, at least);
    and of the ceiling that binds its share, its part (compute, memory, network) and its name. None: not applicable."""
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


def by_process(records: Sequence[Mapping[str, Any]], samples: str = "samples_s") -> dict[int, float]:
    """The one figure of each process, in their order: the median of its samples, in seconds. Over ranks, a launch is a
    process."""
    found = {r["process"]: statistics.median(r[samples]).value for r in records if r.get(samples)}
    return dict(sorted(found.items()))


def pooled(records: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The time of one case and cadence over its processes, in seconds: the median of the processes' medians.

    The process is the replicate: from six processes on there is a 95 percent interval, which no other row corrects. It
    is wider where processes are like those before and after them. Fewer give none, whatever their samples say, and the
    figure is a single run's. None without samples.
    """
    found = by_process(records)
    return statistics.series_median(list(found.values())) if found else None


def extremes(each: Mapping[int, float]) -> tuple[float, float]:
    """Medians of the fastest and of the slowest process, in seconds, of those of `by_process`; (0, 0) of none."""
    medians = each.values()
    return (min(medians), max(medians)) if medians else (0.0, 0.0)


TAILS = (0.1, 0.5, 0.9, 0.99)
"""The quantiles that are told of each timing."""


def tails(records: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """p10_s, p50_s, p90_s and p99_s: the median over processes of each process's quantile, in seconds.

    A process whose samples are too few for a quantile gives none (p99 needs 100); None where no process gives it.
    """
    found: dict[str, float | None] = {}
    each = [statistics.tails(r["samples_s"], TAILS) for r in records if r["samples_s"]]
    for number, q in enumerate(TAILS):
        known = [value for one in each if (value := one[number]) is not None]
        found[f"p{round(100 * q)}_s"] = statistics.median(known).value if known else None
    return found


# Ratios -----------------------------------------------------------------------------------------------------

ERROR = 0.05
"""The probability that a table claims any order where there is none."""


def ratios(
    some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], samples: str = "samples_s"
) -> list[float]:
    """The ratio of two cases' times in each process that timed both: the Hodges-Lehmann estimate over its common
    rounds. `samples` names the samples of `some`."""
    matching = {r["process"]: r["samples_s"] for r in others}
    found = []
    for record in some:
        own, other = record.get(samples) or (), matching.get(record["process"], ())
        if shared := min(len(own), len(other)):
            found.append(statistics.ratio(own[:shared], other[:shared]).value)
    return found


def over_processes(ratios: Sequence[float], confidence: float = 1 - ERROR) -> Estimate | None:
    """A ratio with its interval over processes: of signed ranks, from six processes on at 0.95; None of no process."""
    return statistics.ratio(ratios, [1.0] * len(ratios), confidence) if len(ratios) else None


def needed(number: int) -> int:
    """The least number of processes with which a table of this many ratios can claim an order: ceil(log2(2 number /
    0.05)).

    Raises ValueError for less than one ratio.
    """
    if number < 1:
        raise ValueError(f"a table of ratios has at least one, not {number}")
    return math.ceil(math.log2(2 * number / ERROR))


UNRESOLVED = "not resolved"


def corrected(ratios: Sequence[float], number: int) -> Estimate | None:
    """A ratio with its interval, corrected over the `number` ratios of its table (Bonferroni)."""
    return over_processes(ratios, 1 - ERROR / max(1, number))


def order(found: Estimate | None) -> str:
    """slower, faster or not resolved: whether a corrected ratio excludes 1."""
    if found is None or found.low <= 1 <= found.high:
        return UNRESOLVED
    return "slower" if found.low > 1 else "faster"


def distrust(controls: Sequence[Sequence[float]]) -> str:
    """Why the ratios of a table are not to be trusted, by those of its controls, one list over processes each; else "".

    Five in a hundred controls exclude 1 by chance. Where there are more than that explains (binomial, 5 percent), a
    mode has something of its own that stays from process to process, and every interval over processes is too narrow.
    """
    ends = [found for each in controls if (found := over_processes(each)) and math.isfinite(found.high)]
    out = sum(not found.low <= 1 <= found.high for found in ends)
    chance = sum(
        math.comb(len(ends), k) * ERROR**k * (1 - ERROR) ** (len(ends) - k) for k in range(out, len(ends) + 1)
    )
    if not out or chance >= ERROR:
        return ""
    return (
        f"{out} of {len(ends)} controls exclude 1, which are the same program twice: do not trust the orders of this"
        " table, what sets modes apart here stays from process to process"
    )


def best(against: Mapping[str, Estimate | None], base: str) -> str:
    """The mode that corrected intervals part from all others, as the fastest; "" if they part none.

    `against`: the corrected ratio of each other mode to `base`, None if there is none. Intervals that do not meet part
    two modes: all of them hold together with the probability that the correction is for.
    """
    ends = {base: (1.0, 1.0)} | {
        mode: (r.low, r.high) if r else (0.0, math.inf) for mode, r in against.items()
    }
    for mode, (_, high) in ends.items():
        if against and all(high < low for other, (low, _) in ends.items() if other != mode):
            return mode
    return ""
