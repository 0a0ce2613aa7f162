# SPDX-License-Identifier: Apache-2.0
"""The figures of a timing record: times, bandwidths, FLOP/s, shares of a peak.

Bandwidths and rates are computed from the aggregated time, never averaged, in bytes/s and FLOP/s (decimal). With S and
f of the case's cost (the bandwidth table of NVIDIA's nccl-tests, doc/PERFORMANCE.md): algbw = S / t, busbw = S / t * f.
A share is of the published peak of the device's kind (meshmark.devices.chips), otherwise of the ceiling measured on
this machine (meshmark.timing.ceilings), and names which one. Without either there is no share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshmark.core import statistics
from meshmark.core.statistics import Estimate
from meshmark.devices import chips


@dataclass(frozen=True)
class Yardsticks:
    """The peaks for shares: those of the kind of device, and the ceiling lines of the run."""

    device_kind: str = ""
    virtual: bool = False
    ceilings: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @classmethod
    def of(cls, facts: Mapping[str, Any], ceilings: Iterable[Mapping[str, Any]]) -> Yardsticks:
        """Make them from the facts of a run and its ceiling lines."""
        return cls(str(facts.get("device_kind")), bool(facts.get("virtual")), tuple(ceilings))

    def bandwidth(self) -> tuple[float, str] | None:
        """(bytes/s of one device, name of the peak); None for virtual devices: their messages go through caches and
        share the cores, so no bandwidth of the machine bounds them."""
        if self.virtual:
            return None
        chip = chips.chip_of(self.device_kind)
        if chip:
            return chip.links * chip.link_bandwidth / chip.devices_per_chip, f"{chip.name} links, published"
        found = self._ceiling("copy bandwidth")
        return (found[0], "copy bandwidth measured here") if found else None

    def flops(self, dtype: str, precision: str, devices: int) -> tuple[float, str] | None:
        """(FLOP/s of `devices` devices together, name of the peak)."""
        chip = chips.chip_of(self.device_kind)
        if chip:
            peak = chips.peak_flops(chip, dtype, precision)
            return None if peak is None else (devices * peak, f"{chip.name} {dtype}, published")
        found = self._ceiling("largest matmul", dtype)
        if not found:
            return None
        # Virtual devices: all cores work, even if few devices take part.
        per_device, total = found
        return (total if self.virtual else devices * per_device), f"largest {dtype} matmul measured here"

    def _ceiling(self, name: str, dtype: str = "") -> tuple[float, float] | None:
        """(the best of one device, of all together)."""
        values = [
            (c["value"] / c.get("devices", 1), c["value"])
            for c in self.ceilings
            if c["name"] == name and dtype in ("", c.get("dtype"))
        ]
        return max(values, default=None)


def of(record: Mapping[str, Any], yardsticks: Yardsticks | None = None) -> dict[str, Any]:
    """The figures of one timing record from its samples; {} if it has none."""
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
        **{f"p{round(q * 100)}_s": statistics.tail(samples, q) for q in (0.1, 0.9, 0.99)},
        **rates(record, middle.value, yardsticks),
    }


def rates(record: Mapping[str, Any], seconds: float, yardsticks: Yardsticks | None = None) -> dict[str, Any]:
    """algbw, busbw (bytes/s), flops_per_s (all devices), and the share with the name of its peak; None: not
    applicable."""
    cost = record.get("cost") or {}
    nbytes, factor, flops = cost.get("nbytes", 0), cost.get("factor", 0.0), cost.get("flops", 0)
    found: dict[str, Any] = {
        "algbw": nbytes / seconds if nbytes else None,
        "busbw": nbytes * factor / seconds if nbytes and factor else None,
        "flops_per_s": flops / seconds if flops and not factor else None,
        "share": None,
        "share_of": "",
    }
    if yardsticks is not None:
        peak = None
        if found["busbw"]:
            peak = yardsticks.bandwidth()
        elif found["flops_per_s"]:
            devices = int(record.get("devices", 1))
            peak = yardsticks.flops(record["dtype"], record.get("precision", ""), devices)
        if peak:
            found["share"] = (found["busbw"] or found["flops_per_s"]) / peak[0]
            found["share_of"] = peak[1]
    return found


def pooled(records: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The time of one case and cadence over its processes, in seconds.

    One process: the median of its samples with its interval, which does not include variation between processes.
    Several: the median of the processes' medians. With fewer than six processes the interval is their range, because
    no distribution-free interval of 95 percent exists.
    """
    medians = [statistics.median(r["samples_s"]) for r in records if r["samples_s"]]
    if not medians:
        return None
    if len(medians) == 1:
        return medians[0]
    values = [m.value for m in medians]
    found = statistics.median(values)
    if math.isfinite(found.low):
        return found
    return Estimate(found.value, min(values), max(values))


def extremes(records: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Medians of the fastest and of the slowest process, in seconds; (0, 0) if there are no samples."""
    medians = [statistics.median(r["samples_s"]).value for r in records if r["samples_s"]]
    return (min(medians), max(medians)) if medians else (0.0, 0.0)


def paired(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The ratio of two cases' times from their common rounds (same process, same position)."""
    by_process = {r["process"]: r["samples_s"] for r in others}
    first: list[float] = []
    second: list[float] = []
    for record in some:
        match = by_process.get(record["process"], ())
        shared = min(len(record["samples_s"]), len(match))
        first += record["samples_s"][:shared]
        second += match[:shared]
    return statistics.ratio(first, second) if first else None
