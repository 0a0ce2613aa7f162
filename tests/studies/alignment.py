# SPDX-License-Identifier: Apache-2.0
"""Measures how far apart ranks of one machine begin a sample after nothing, a host barrier, or a sum on the devices.

    meshmark launch -n 2 --devices-per-process 1 -- python -m tests.studies.alignment [ROUNDS]

In each round the three ways to align the ranks run in random order, each before one call of a verified psum of 64 KiB
per device over all devices. It prints medians over rounds. *apart* is the time from the first to the last rank's
reading of its clock right before that call (ranks of one machine share CLOCK_MONOTONIC), also as the 90th percentile.
*slowest* is the slowest rank's sample. The last column is the cost of the way itself.
"""

from __future__ import annotations

import os
import random
import sys
from time import perf_counter

import jax

from meshmark.judge.checks import Judge
from meshmark.judge.programs import mesh_over
from meshmark.operations import cases
from meshmark.ranks import group as ranks
from meshmark.ranks.rank_timing import Alignment
from meshmark.timing.measure import prepare
from meshmark.timing.timing_tables import spell_time

WAYS = ("nothing", "a host barrier", "a sum on the devices")


def main(rounds: int) -> None:
    coordinates = ranks.coordinates(os.environ)
    assert coordinates, "start this with meshmark launch"
    group = ranks.join(coordinates, {})
    devices = ranks.in_order(jax.devices())
    case = cases.find(f"psum/axes=x/manual/{len(devices)}/float32/64KiB", len(devices), group.size)
    prepared = prepare(case, devices, judge=Judge(devices))
    align = Alignment(mesh_over(devices, case.mesh))
    bring = dict(
        zip(WAYS, (lambda: None, lambda: group.channel.exchange("barrier", None), align), strict=True)
    )
    rng = random.Random(0)
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in rng.sample(WAYS, len(WAYS)):
            before = perf_counter()
            bring[way]()
            at = perf_counter()
            sample = prepared.sample()
            taken[way].append((at, sample))
            costs[way].append(at - before)
    _, every = group.channel.exchange("samples", [taken[way] for way in WAYS])
    if group.rank == 0:
        print(
            f"{group.size} ranks of {len(devices) // group.size} devices, {rounds} rounds, {jax.__version__}"
        )
        for i, way in enumerate(WAYS):
            positions = list(zip(*(one[i] for one in every), strict=True))
            apart = sorted(max(at for at, _ in p) - min(at for at, _ in p) for p in positions)
            slow = sorted(max(s for _, s in p) for p in positions)
            cost = sorted(costs[way])
            middle, late = len(apart) // 2, len(apart) * 9 // 10
            cells = (apart[middle], apart[late], slow[middle], cost[middle])
            print(f"| {way} | " + " | ".join(map(spell_time, cells)) + " |")
    group.leave()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
