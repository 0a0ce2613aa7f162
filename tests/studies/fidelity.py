# SPDX-License-Identifier: Apache-2.0
"""Fidelity of the measuring core: its median over that of a bare loop written by hand, for the same compiled object.

    python -m tests.studies.fidelity [--seconds 30] [--precision 0.005] [--cases ID ...] [--markdown FILE]

Rounds of two blocks, one of a bare loop and one of timing.measure.sample, in random order. A block is as many calls
as fill 5 ms, and three where that takes longer, so that what disturbs the machine disturbs both alike. The ratio
is that of the medians of all samples; the paired ratio is that of the blocks' medians with its interval
(core.statistics.ratio), and a case ends when that is as precise as asked, or its time is spent: neither looks at
the ratio itself. The bare loop is what one writes by hand:

    start = perf_counter()
    outputs = jax.block_until_ready(compiled(*inputs))
    stop = perf_counter()

Exit code 1 where a ratio is outside 0.98 to 1.02.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax

from meshmark.core import statistics
from meshmark.judge.checks import Judge
from meshmark.operations import cases
from meshmark.timing.measure import Budget, Prepared, prepare, sample

CASES = (
    "all_gather/axes=x,dim=0,tiled/manual/1/float32/512KiB",
    "reshard/from=x.-,to=-.x/auto/1/float32/1MiB",
    "ppermute/axes=x,perm=identity/manual/1/float32/4MiB",
    "attention/sequence=x/manual/1/float32/n64",
    "psum/axes=x/manual/8/float32/4KiB",
    "psum/axes=x/auto/8/float32/1MiB",
    "matmul/rows=x,check=exact/manual/1/float32/n512",
    "mlp/model=x/explicit/8/float32/n1024",
    "all_gather/axes=x,dim=0,tiled/manual/1/float32/64MiB",
    "matmul/rows=x,check=exact/manual/1/float32/n2048",
)
"""From 10 us to 100 ms on two cores; those below 200 us use one device, since eight share the cores there and a
call's time is then the scheduler's."""

LEAST, MOST = 0.98, 1.02

BLOCK_SECONDS = 0.005

LEAST_ROUNDS = 100


def bare(prepared: Prepared, number: int) -> list[float]:
    """A loop by hand over the two sets of inputs, after one call to warm up; no other code of this project
    is between the two readings of the clock."""
    compiled, sets = prepared.called, prepared.inputs
    samples = []
    gc.collect()
    gc.disable()
    jax.block_until_ready(compiled(*sets[1]))
    for i in range(number):
        inputs = sets[i % 2]
        start = perf_counter()
        outputs = jax.block_until_ready(compiled(*inputs))
        stop = perf_counter()
        samples.append(stop - start)
        del outputs
    gc.enable()
    return samples


def core(prepared: Prepared, number: int, rng: random.Random) -> list[float]:
    """So many samples of the core, no fewer and no more, after one to warm up."""
    [samples] = sample([prepared], Budget(seconds=1e-9, least=number, most=number), rng)
    return samples


def measured(
    case_id: str, seconds: float, precision: float, judge: Judge, rng: random.Random
) -> dict[str, Any]:
    """Both medians of one case, their ratio and the interval of the paired ratio."""
    prepared = prepare(cases.find(case_id, len(jax.devices())), judge.devices, judge=judge)
    gc.collect()
    gc.freeze()  # the collections that begin each block have nothing to look at, on both sides
    number = max(3, min(200, round(BLOCK_SECONDS / median(bare(prepared, 20)))))
    taken: dict[str, list[float]] = {"bare": [], "core": []}
    middles: dict[str, list[float]] = {"bare": [], "core": []}
    order, until, look = ["bare", "core"], perf_counter() + seconds, LEAST_ROUNDS
    while True:
        rng.shuffle(order)
        for which in order:
            block = bare(prepared, number) if which == "bare" else core(prepared, number, rng)
            taken[which] += block
            middles[which].append(median(block))
        if len(middles["bare"]) < LEAST_ROUNDS:
            continue
        if perf_counter() > until:
            break
        if len(middles["bare"]) == look:
            look *= 2
            if statistics.ratio(middles["core"], middles["bare"]).relative < precision:
                break
    gc.unfreeze()
    pooled = {which: median(samples) for which, samples in taken.items()}
    return {
        "case": case_id,
        "samples": len(taken["bare"]),
        "bare_s": pooled["bare"],
        "core_s": pooled["core"],
        "ratio": pooled["core"] / pooled["bare"],
        "paired": statistics.ratio(middles["core"], middles["bare"]),
    }


def row(found: dict[str, Any]) -> str:
    """One line of the table."""
    paired = found["paired"]
    return (
        f"| {found['case']} | {found['samples']} | {1e6 * found['bare_s']:.1f} | {1e6 * found['core_s']:.1f} |"
        f" {found['ratio']:.3f} | {paired.value:.3f} ({paired.low:.3f} to {paired.high:.3f}) |"
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="The core's median over a bare loop's.")
    parser.add_argument("--seconds", type=float, default=30.0, help="the longest time a case (default 30)")
    parser.add_argument(
        "--precision",
        type=float,
        default=0.005,
        help="half width of the interval that ends a case (default 0.005)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="ID")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    judge, rng = Judge(tuple(jax.devices())), random.Random(options.seed)
    rows = [
        "| case | samples a side | bare loop, median, us | core, median, us | ratio | paired ratio, 95 % interval |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(rows), flush=True)
    outside = 0
    for case_id in options.cases:
        found = measured(case_id, options.seconds, options.precision, judge, rng)
        outside += not LEAST <= found["ratio"] <= MOST
        rows.append(row(found))
        print(rows[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(rows) + "\n")
    print(f"{outside} of {len(options.cases)} ratios are outside {LEAST} to {MOST}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
