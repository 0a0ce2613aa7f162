# SPDX-License-Identifier: Apache-2.0
"""Checks whether figures are possible: rates against the published peak of the chip, samples against their summary.

The bus bandwidth of a device is at most what its links carry in one direction. If a switch reduces (NVLink SHARP), an
all-reduce sends its buffer once, and busbw = f S / t may reach f times the links (timing.figures defines both). Virtual
devices, and chips without published figures, have no peak. This module also reports values that are impossible on any
hardware.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.core.skew import measure_skew, slowest
from meshmark.devices import chips
from meshmark.records.definition import CeilingLine, TimingLine
from meshmark.records.run_definition import RunFacts
from meshmark.timing import figures
from meshmark.timing.ceilings import COPIES

SLACK = 1.01
"""The factor by which a rate may exceed a peak: published figures are rounded."""

EXPLAINED = 2.0
"""The factor by which a rate may exceed a peak if a note explains it: a switch that reduces sends a buffer once instead
of twice, and a product with structured zeros takes half of the operations."""

REDUCTIONS = ("psum", "pmean", "pmax", "pmin")
"""The collectives that a switch can reduce."""

SHORTEST = 1e-8
"""Seconds: no program is shorter; this is about thirty clock cycles."""

ABSURD = {"busbw": 1e15, "flops_per_s": 1e17}
"""Bytes/s and FLOP/s of one device, far above any chip of this decade."""

TAKEN = "give the samples as they were taken"

MOST_WORK = 10**24
"""No machine does more operations or bytes in one call."""

ALIKE = 20
"""With at least this many samples, all equal values are not chance."""


def peak_of(record: TimingLine, facts: RunFacts) -> tuple[str, float, float, str] | None:
    """(what, the rate of this timing record, the peak of its devices, the chip). None if no peak is published or the
    record has no rate. Rates are bytes/s of one device, or FLOP/s of all participating devices."""
    chip = chips.chip_of(str(facts.get("device_kind")))
    samples = record["samples_s"]
    if chip is None or not samples:
        return None
    rates = figures.rates(record, sorted(samples)[len(samples) // 2])
    if rates["busbw"]:
        most = chip.links * chip.link_bandwidth / chip.devices_per_chip
        if chip.switch_reduces and record["operation"] in REDUCTIONS:
            most *= max(1.0, record["cost"]["factor"])
        return "bus bandwidth", rates["busbw"], most, chip.name
    if rates["flops_per_s"]:
        peak = chips.peak_flops(chip, record["dtype"], str(record.get("precision", "")).split(" ")[0])
        if peak:
            return "FLOP/s", rates["flops_per_s"], peak * record["devices"], chip.name
    return None


def find_timing_faults(record: TimingLine, facts: RunFacts, peaks_explained: bool) -> Iterator[str]:
    """Yields the faults of a timing record, each with the way to correct it."""
    samples: Sequence[float] = record["samples_s"]
    if not samples:
        if record["verdict"] == "pass":
            yield "passes without a sample: time it again"
        return
    if not record["verified"] or record["verdict"] != "pass":
        yield f"has samples, but its values are {record['verdict']}: wrong values must not have a time, time it again"
    if min(samples) < SHORTEST:
        yield f"a sample of {min(samples):.3g} s: no program takes less than {SHORTEST:g} s, time it again"
        return
    if len(samples) >= ALIKE and len(set(samples)) == 1:
        yield f"all {len(samples)} samples are {samples[0]:.6g} s: give the samples as they were taken"
    elif len(samples) >= ALIKE and len(set(samples)) < len(samples) // 4:
        yield f"{len(samples)} samples have {len(set(samples))} different values: {TAKEN}"
    yield from _of_ranks(record, int(facts.get("num_processes", 1)))
    middle = sorted(samples)[len(samples) // 2]
    each = record.get("per_device_s")
    if each and max(each.values()) > middle * SLACK:
        yield (
            f"per_device_s has a device of {max(each.values()):.4g} s, and half of the samples, which are the slowest"
            f" device's, are below {middle:.4g} s: give both as they were taken"
        )
    found = peak_of(record, facts)
    if found and found[1] > found[2] * SLACK * (EXPLAINED if peaks_explained else 1):
        what, rate, most, chip = found
        yield f"{what} of {rate:.4g} is above the peak of {chip}, {most:.4g}: {_mend(peaks_explained)}"
    rates = figures.rates(record, middle)
    for name, most in ABSURD.items():
        rate = rates[name]
        limit = most * (record["devices"] if name == "flops_per_s" else 1)
        if rate and rate > limit:
            yield f"{name} of {rate:.3g}: far above any device, time it again"


def _mend(explained: bool) -> str:
    """How to correct a rate above the peak."""
    if explained:
        return f"a note explains a factor of {EXPLAINED:g} at most, time it again"
    return "explain it in a note about `peak`, or time it again"


def _of_ranks(record: TimingLine, size: int) -> Iterator[str]:
    """Yields the faults of the samples of several ranks: the record's samples and skew must follow from them."""
    by_rank = record.get("samples_by_rank")
    if not by_rank:
        if size > 1:
            yield f"samples of one of {size} ranks, and the slowest counts: merge the ranks' files (`meshmark merge`)"
        return
    if len(by_rank) != size:
        yield f"samples_by_rank of {len(by_rank)} ranks, and the run has {size} processes: {TAKEN}"
        return
    samples = record["samples_s"]
    if {len(own) for own in by_rank} != {len(samples)}:
        numbers = [len(own) for own in by_rank][:8]
        yield f"samples_by_rank has {numbers} samples, and samples_s {len(samples)}: {TAKEN}"
        return
    wrong = [i for i, (a, b) in enumerate(zip(samples, slowest(by_rank), strict=True)) if a != b]
    if wrong:
        yield f"sample {wrong[0]} of samples_s is not that of the slowest of samples_by_rank: {TAKEN}"
    own: Mapping[str, Any] = record.get("skew") or {}
    found = measure_skew(by_rank)
    if own.get("slowest") != found["slowest"] or not math.isclose(
        own.get("median_s", math.nan), found["median_s"], rel_tol=1e-6, abs_tol=1e-12
    ):
        yield f"skew {str(own)[:80]} is not that of samples_by_rank, {found}: {TAKEN}"


def find_ceiling_faults(record: CeilingLine, facts: RunFacts, peaks_explained: bool) -> Iterator[str]:
    """Yields the faults of a ceiling record: its value must follow from its fastest sample and be below the peak. The
    copy bandwidth has no peak to compare with: small arrays stay in caches, which are faster than the memory."""
    samples, devices = record["samples_s"], record["devices"]
    if not samples:
        yield "a ceiling without samples: measure it again"
        return
    stated = (record.get("copies", 0), record.get("nbytes", 0), record.get("n", 0), record.get("flops", 0))
    if max(stated) > MOST_WORK:
        yield f"more work than any machine does in a call: {TAKEN}"
        return
    if record["name"] == "copy bandwidth":
        work = 2 * record.get("copies", COPIES) * devices * record.get("nbytes", 0)
    else:
        work = record.get("flops", 0)
        if work != 2 * devices * record.get("n", 0) ** 3:
            yield f"flops {work} are not those of {devices} products of n = {record.get('n')}: measure it again"
    if not math.isclose(record["value"], work / min(samples), rel_tol=1e-12):
        yield (
            f"value {record['value']:.6g} {record['unit']} is not that of its fastest sample,"
            f" {work / min(samples):.6g}: give the value of its samples"
        )
    chip = chips.chip_of(str(facts.get("device_kind")))
    if chip is not None and record["name"] == "largest matmul":
        peak = chips.peak_flops(chip, str(record.get("dtype")))
        if peak and record["value"] > peak * devices * SLACK * (EXPLAINED if peaks_explained else 1):
            yield (
                f"{record['value']:.4g} FLOP/s is above the peak of {devices} devices of {chip.name},"
                f" {peak * devices:.4g}: {_mend(peaks_explained)}"
            )
