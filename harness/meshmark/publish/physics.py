# SPDX-License-Identifier: Apache-2.0
"""Finds times that no machine has: bounds of every chip, of the chip, of the host, and of the run's own ceilings.

publish.plausible holds rates against the published peak of the chip. Here are the bounds beside it: a call from the
host has a dispatch, a collective crosses a link, every program reads its arguments and writes its results, and no
program is much faster than the best that the same run measured. All are far from what honest runs have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.devices import chips
from meshmark.operations.base import Argument, Result, nbytes
from meshmark.operations.cases import Case

LEAST_CALL = 2e-6
"""Seconds of the shortest isolated call: Python, the runtime and the wait for the result. 50 us is the least of the
published runs."""

LEAST_EXCHANGE = 5e-7
"""Seconds of the shortest collective over two devices or more: one hop of a link, or one change of threads."""

CACHED = 4.0
"""How much faster than the memory of a chip a program may go over its arguments and results: caches hold small ones."""

SMALL = 1 << 20
"""Bytes of one device's arguments and results below which memory says nothing."""

OVER_COPY, OVER_MATMUL = 16.0, 2.0
"""How much faster than the ceilings of the same run a program may be: caches hold what the copy does not fit into."""

CORE_FLOPS, CORE_COPY = 768e9, 120e9
"""FLOP/s (128 a cycle at 6 GHz) and bytes/s of a copy that no core of a CPU reaches."""


def timing(
    record: Mapping[str, Any], case: Case, facts: Mapping[str, Any], ceilings: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Why a time is impossible. ceilings: those of the same run."""
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


def ceiling(record: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[str]:
    """Why a ceiling of virtual devices is impossible on the host that the run names."""
    cores = (facts.get("host") or {}).get("cores")
    if facts.get("backend") != "cpu" or not cores:
        return
    each = CORE_COPY if record["name"] == "copy bandwidth" else CORE_FLOPS
    if record["value"] > each * cores:
        yield f"{record['value']:.3g} {record['unit']} is more than {cores} cores of any CPU have, {each * cores:.3g}"
