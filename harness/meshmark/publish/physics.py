# SPDX-License-Identifier: Apache-2.0
"""Finds impossible times, by limits of all chips, of the chip, of the host, and of the run's ceilings.

publish.plausible compares rates with the published peak of the chip. This module adds further limits. A call from the
host has a dispatch, a collective crosses a link, every program reads its arguments and writes its results, and no
program is much faster than the best that the same run measured. Honest runs stay far from all these limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshmark.devices import chips
from meshmark.operations.base import Argument, Result, nbytes
from meshmark.operations.cases import Case
from meshmark.records.definition import CeilingLine, ConformanceLine, TimingLine
from meshmark.records.run_definition import RunFacts

LEAST_CALL = 2e-6
"""Seconds: no isolated call is shorter, because it includes Python, the runtime and the wait for the result. The least
in the published runs is 50 us."""

LEAST_EXCHANGE = 5e-7
"""Seconds: no collective over two or more devices is shorter; it needs one hop over a link, or one thread switch."""

CACHED = 4.0
"""The factor by which a program may exceed a chip's memory bandwidth over its arguments and results: caches hold small
ones."""

BINARY = 1.1
"""The factor by which a device may have more memory than its published figure: makers round it down to a decimal one.
An H100 of 80 GB has 85.5e9 bytes."""

SMALL = 1 << 20
"""Bytes: below this total of one device's arguments and results, memory bandwidth is not a limit."""

OVER_COPY, OVER_MATMUL = 16.0, 2.0
"""The factors by which a program may exceed the copy and matmul ceilings of its run: its data may fit into a cache that
the copy's data does not fit into."""

CORE_FLOPS, CORE_COPY = 768e9, 120e9
"""The FLOP/s (128 per cycle at 6 GHz) and the copy bytes/s that no CPU core reaches."""


def find_impossible_times(
    record: TimingLine, case: Case, facts: RunFacts, ceilings: Sequence[CeilingLine]
) -> Iterator[str]:
    """Yields why a time is impossible. ceilings: those of the same run."""
    samples = record["samples_s"]
    if not samples:
        return
    least, middle = min(samples), sorted(samples)[len(samples) // 2]
    if record["cadence"] == "isolated" and least < LEAST_CALL:
        yield f"an isolated call of {least:.3g} s: none takes less than {LEAST_CALL:g} s"
        return
    exchanges = case.mesh.size > 1 and bool(case.plan.traffic)
    if exchanges and least < LEAST_EXCHANGE:
        yield f"a collective over {case.mesh.size} devices in {least:.3g} s: none takes less than {LEAST_EXCHANGE:g} s"
        return
    parts: list[Argument | Result] = [*case.plan.arguments, *case.plan.results]
    moved = sum(nbytes(part, case.mesh) for part in parts)
    chip = chips.chip_of(str(facts.get("device_kind")))
    if chip is not None and moved >= SMALL:
        peak = chip.memory_bandwidth / chip.devices_per_chip
        if moved / middle > CACHED * peak:
            yield (
                f"reads and writes {moved} B per device in {middle:.3g} s, {moved / middle:.3g} B/s, and the memory of"
                f" {chip.name} has {peak:.3g}"
            )
    best = {one["name"]: one["value"] for one in ceilings if one.get("dtype") in (None, record["dtype"])}
    flops, copy = best.get("largest matmul"), best.get("copy bandwidth")
    if flops and record["cost"]["flops"] / middle > OVER_MATMUL * flops:
        yield (
            f"{record['cost']['flops'] / middle:.3g} FLOP/s, and the largest matmul of the same run has {flops:.3g}"
        )
    if copy and moved >= SMALL // 16 and moved * record["devices"] / middle > OVER_COPY * copy:
        yield f"moves {moved * record['devices'] / middle:.3g} B/s, and a copy of the same run has {copy:.3g}"


def exceeds_memory(record: ConformanceLine | TimingLine, facts: RunFacts) -> str:
    """Why a program did not fit into its device; "" if it did, or if no published figure says. Results may lie in the
    memory of arguments."""
    chip = chips.chip_of(str(facts.get("device_kind")))
    held = [record.get(name) for name in ("argument_bytes", "temp_bytes")]
    needed = sum(value for value in held if isinstance(value, (int, float)) and value > 0)
    most = BINARY * chip.memory_bytes / chip.devices_per_chip if chip else 0
    if not chip or needed <= most:
        return ""
    return f"its arguments and temporaries take {needed:.4g} B, and a device of {chip.name} has {most:.4g} B at most"


def find_impossible_ceilings(record: CeilingLine, facts: RunFacts) -> Iterator[str]:
    """Yields why a ceiling of virtual devices is impossible on the host that the run names."""
    cores = (facts.get("host") or {}).get("cores")
    if facts.get("backend") != "cpu" or not cores:
        return
    each = CORE_COPY if record["name"] == "copy bandwidth" else CORE_FLOPS
    if record["value"] > each * cores:
        yield f"{record['value']:.3g} {record['unit']} is more than {cores} cores of any CPU have, {each * cores:.3g}"
