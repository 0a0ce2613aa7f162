# SPDX-License-Identifier: Apache-2.0
"""Measures whether intervals of six processes hold the median of other processes, and whether control rows exclude 1.

    python -m tests.studies.coverage [--processes 60] [--seconds 0.03] [--cells ID ...] [--json FILE] [--markdown FILE]
    python -m tests.studies.coverage --read FILE    # the medians that --json wrote: groups in their order alone

The fresh processes time the same cells, each in an order of its own, and each cell's program twice, under two names.
They are drawn into groups of six. The study counts the groups whose 95 percent interval of a figure
(timing.figures.pooled) holds the median of all other processes, and the groups whose interval of a control ratio
excludes 1. On a quiet machine 60 processes take about 8 minutes. The exit code is 1 if the share that holds is outside
90 to 99 percent, or if the upper limit of controls that exclude 1 is 8 percent or more.

The processes of a drawn group are independent. In a user's run they follow each other, and a machine has fast and slow
hours. So the table also has every group of 6, 8, 12 and 20 neighbours, and the same groups with the interval of
independent processes (core.statistics.median).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meshmark.core.pairs import upper_limit
from meshmark.core.statistics import Estimate, median, series_median
from meshmark.devices.environment import cpu_devices
from meshmark.timing import figures
from meshmark.timing.bench import load
from meshmark.timing.children import Children
from meshmark.timing.timer import Job

GROUP = 6
IN_ORDER = (6, 8, 12, 20)
CELLS = (
    *(f"psum/axes=x/manual/8/float32/{size}" for size in ("4KiB", "64KiB", "1MiB")),
    *(f"psum/axes=x/auto/8/float32/{size}" for size in ("4KiB", "1MiB")),
    *(f"all_gather/axes=x,dim=0,tiled/manual/8/float32/{size}" for size in ("4KiB", "64KiB", "1MiB")),
    *(f"all_gather/axes=x,dim=0,tiled/manual/1/float32/{size}" for size in ("512KiB", "8MiB")),
    *(f"ppermute/axes=x,perm=identity/manual/1/float32/{size}" for size in ("64KiB", "1MiB", "4MiB")),
    *(f"matmul/rows=x,check=exact/manual/1/float32/{n}" for n in ("n128", "n256", "n512")),
    *(f"matmul/rows=x,check=exact/manual/8/float32/{n}" for n in ("n256", "n512")),
    "mlp/model=x/manual/8/float32/n256",
    "mlp/model=x/explicit/8/float32/n512",
)
"""20 cases, each a cell of its own: from 10 us to milliseconds, on one device and on eight."""


def timed(cells: list[str], processes: int, seconds: float, seed: int) -> dict[str, list[dict[str, Any]]]:
    """The timing lines by case, one per process, in the order in which the processes ran."""
    found: dict[str, list[dict[str, Any]]] = {case: [] for case in cells}
    rng, start = random.Random(seed), time.monotonic()
    with Children(environment=cpu_devices(None)) as children:
        for process in range(processes):
            order = rng.sample(cells, len(cells))
            job = Job(
                [[case] for case in order],
                num_devices=8,
                controls=order,
                process=process,
                cadences=["isolated"],
                seconds=seconds,
            )
            for message in children.run(job):
                for line in message.get("timings", ()):
                    if line["verdict"] != "pass" or "control_s" not in line:
                        raise SystemExit(f"{line['case']}: {line['verdict']}: {line['reason']}")
                    found[line["case"]].append(line)
            spent = time.monotonic() - start
            left = spent / (process + 1) * (processes - process - 1)
            print(
                f"process {process + 1} of {processes}, about {left:.0f} s left", file=sys.stderr, flush=True
            )
    return found


def judged(found: dict[str, list[dict[str, Any]]], rng: random.Random) -> dict[str, Any]:
    """The number of intervals that hold, their half widths as shares of the time, and the number of controls that
    exclude 1."""
    held, widths, excluded, controls = [], [], 0, 0
    for lines in found.values():
        own = figures.by_process(lines)
        drawn = rng.sample(range(len(lines)), len(lines) // GROUP * GROUP)
        for start in range(0, len(drawn), GROUP):
            group = drawn[start : start + GROUP]
            estimate = figures.pooled([lines[i] for i in group])
            assert estimate is not None
            rest = [own[line["process"]] for i, line in enumerate(lines) if i not in group]
            held.append(estimate.low <= statistics.median(rest) <= estimate.high)
            widths.append(estimate.relative)
            twins = [lines[i] for i in group]
            ratio = figures.over_processes(figures.ratios(twins, twins, "control_s"))
            assert ratio is not None
            excluded += not ratio.low <= 1 <= ratio.high
            controls += 1
    return {"held": sum(held), "of": len(held), "widths": widths, "excluded": excluded, "controls": controls}


def in_order(
    medians: dict[str, list[float]], size: int, rule: Callable[[list[float]], Estimate]
) -> tuple[int, int]:
    """(the number of intervals of `size` neighbours that hold the median of all other processes, the number of
    groups)."""
    held = number = 0
    for own in medians.values():
        for start in range(len(own) - size + 1):
            found = rule(own[start : start + size])
            held += found.low <= statistics.median(own[:start] + own[start + size :]) <= found.high
            number += 1
    return held, number


def table_in_order(medians: dict[str, list[float]]) -> list[str]:
    """The Markdown table of groups of neighbours."""
    lines = [
        "| neighbours | their interval holds the median of the others | as if they were independent |",
        "|---|---|---|",
    ]
    for size in IN_ORDER:
        if size < min(map(len, medians.values())):
            shares = [in_order(medians, size, rule) for rule in (series_median, median)]
            lines.append(f"| {size} | {' | '.join(f'{held / of:.1%} of {of}' for held, of in shares)} |")
    return lines


def table(result: dict[str, Any]) -> list[str]:
    """The Markdown table."""
    widths = sorted(result["widths"])
    share = result["held"] / result["of"]
    limit = upper_limit(result["excluded"], result["controls"])
    shown = ", ".join(
        f"{100 * widths[min(len(widths) - 1, int(q * len(widths)))]:.1f} %" for q in (0.1, 0.5, 0.9)
    )
    return [
        "| | |",
        "|---|---|",
        f"| intervals of {GROUP} processes that hold the median of the others | {result['held']} of {result['of']}"
        f" ({100 * share:.1f} %) |",
        f"| their half widths: p10, p50, p90 | {shown} |",
        f"| control rows that exclude 1 | {result['excluded']} of {result['controls']}, at most {100 * limit:.1f} % |",
    ]


def main() -> int:
    """Run the study; 1 if a share is outside its limits."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals of six processes.")
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument(
        "--seconds", type=float, default=0.03, help="sampling time of each program (default 0.03)"
    )
    parser.add_argument("--cells", nargs="+", default=list(CELLS), metavar="ID")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write every process's medians to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--read", type=Path, metavar="FILE", help="judge what --json wrote; nothing is timed")
    options = parser.parse_args()
    if options.read:
        print("\n".join(table_in_order(json.loads(options.read.read_text()))))
        return 0
    if options.processes < 2 * GROUP:
        parser.error(f"--processes {options.processes}: at least {2 * GROUP}, so that there are others")
    for line in load():
        print(line, file=sys.stderr)
    found = timed(options.cells, options.processes, options.seconds, options.seed)
    medians = {case: list(figures.by_process(lines).values()) for case, lines in found.items()}
    if options.json:
        options.json.write_text(json.dumps(medians))
    result = judged(found, random.Random(options.seed))
    lines = [*table(result), "", *table_in_order(medians)]
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")
    share, limit = result["held"] / result["of"], upper_limit(result["excluded"], result["controls"])
    return int(not 0.9 <= share <= 0.99 or limit >= 0.08 or math.isnan(share))


if __name__ == "__main__":
    sys.exit(main())
