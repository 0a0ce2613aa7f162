# SPDX-License-Identifier: Apache-2.0
"""Compares the times of the cadences with those of an independent timing loop.

    python -m tests.studies.fidelity [--processes 20] [--seconds 2] [--cases ID ...] [--not-counted 2] [--markdown FILE]

The loop is independent: it has its own program, written here and compiled by a plain `jax.jit`, its own buffers, which
are the same in each call, and its own clock. In each fresh process, blocks of that loop and of the cadences run in
random order, so that disturbances of the machine affect all of them alike. The first two calls of a block are not
counted: they find the caches as the block before left them. The timers are:

- shared: the loop over the suite's buffers. Beside the loop it shows what other buffers do, and nothing else.
- plain: the suite's program, with the same buffers, alone.
- rotated: the suite's program with its two sets of buffers in turns, alone.
- isolated: the same in turns with the other modes, as in tables.

A process gives one ratio per case and cadence, the Hodges-Lehmann estimate over its blocks. The table has the median
ratio of the processes with its 95 percent interval. On a quiet machine 20 processes take about 6 minutes. The exit code
is 1 if an interval of the plain cadence is not within 0.98 to 1.02.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from meshmark.core import statistics
from tests.checkout import IMPORTS, ROOT

LEAST, MOST = 0.98, 1.02
BLOCK_SECONDS = 0.01
NOT_COUNTED = 2
"""The calls at the start of a block that are not counted, unless an option says another number."""
MODES = ("auto", "explicit", "manual")


def psum(x: Any, axis: str) -> Any:
    """The sum over an axis, with shard_map."""
    import jax

    return jax.shard_map(lambda a: jax.lax.psum(a, axis), in_specs=jax.P(axis), out_specs=jax.P())(x)


def all_gather(x: Any, axis: str) -> Any:
    """All shards on every device, with shard_map."""
    import jax

    def gathered(a: Any) -> Any:
        return jax.lax.all_gather(a, axis, tiled=True)

    return jax.shard_map(gathered, in_specs=jax.P(axis), out_specs=jax.P(), check_vma=False)(x)


def ppermute(x: Any, axis: str) -> Any:
    """Each shard sent to its own device, with shard_map."""
    import jax

    def moved(a: Any) -> Any:
        return jax.lax.ppermute(a, axis, [(i, i) for i in range(jax.lax.axis_size(axis))])

    return jax.shard_map(moved, in_specs=jax.P(axis), out_specs=jax.P(axis))(x)


def matmul(a: Any, b: Any, axis: str) -> Any:
    """A matrix product."""
    import jax.numpy as jnp

    return jnp.matmul(a, b, precision="highest")


def mlp(x: Any, w1: Any, w2: Any, axis: str) -> Any:
    """Two dense layers with a ReLU between them."""
    import jax
    import jax.numpy as jnp

    return jnp.matmul(jax.nn.relu(jnp.matmul(x, w1, precision="highest")), w2, precision="highest")


OWN: dict[str, Callable[..., Any]] = {
    "ppermute/axes=x,perm=identity/manual/1/float32/64KiB": ppermute,
    "ppermute/axes=x,perm=identity/manual/1/float32/1MiB": ppermute,
    "all_gather/axes=x,dim=0,tiled/manual/1/float32/512KiB": all_gather,
    "matmul/rows=x,check=exact/auto/1/float32/n512": matmul,
    "psum/axes=x/manual/8/float32/64KiB": psum,
    "psum/axes=x/manual/8/float32/1MiB": psum,
    "mlp/model=x/auto/8/float32/n1024": mlp,
}
"""Case -> the loop's own program. The suite's inputs give only shapes and places."""


def one_process(
    cases_: list[str], seconds: float, number: int, not_counted: int
) -> dict[str, dict[str, float]]:
    """The ratios to the independent loop, by case and cadence, and the loop's own median in seconds."""
    import jax
    import numpy as np

    from meshmark.judge.checks import Judge
    from meshmark.operations import cases
    from meshmark.timing.measure import Plain, pause_collector, prepare

    jax.config.update("jax_enable_compilation_cache", False)
    devices, rng = tuple(jax.devices()), random.Random(number)
    judge = Judge(devices)
    found = {}
    for case_id in rng.sample(cases_, len(cases_)):
        case = cases.find(case_id, len(devices))
        modes = {case.mode: prepare(case, devices, judge=judge)}
        for mode in MODES:
            if (
                mode not in modes
                and case.operation.absent(mode, case.cell.request.variant, case.mesh) is None
            ):
                modes[mode] = prepare(case.cell.case(mode), devices, judge=judge)
        ours = modes[case.mode]
        mesh = ours.inputs[0][0].sharding.mesh
        generator = np.random.default_rng(number)
        arrays = [
            jax.device_put(generator.normal(size=x.shape).astype(x.dtype), x.sharding) for x in ours.inputs[0]
        ]
        function, axis = OWN[case_id], mesh.axis_names[0]
        with jax.set_mesh(jax.sharding.Mesh(mesh.devices, mesh.axis_names)):
            placed = ours.run()[0].sharding if function in (matmul, mlp) else None
            own = jax.jit(lambda *a, f=function, x=axis: f(*a, axis=x), out_shardings=placed)
            mine = jax.block_until_ready(own(*ours.inputs[0]))
            wanted = jax.tree.leaves(ours.run())[0]
            np.testing.assert_allclose(np.asarray(mine), np.asarray(wanted), rtol=1e-4, atol=1e-3)

            def loop(own: Any = own, arrays: Any = arrays) -> float:
                start = perf_counter()
                outputs = jax.block_until_ready(own(*arrays))
                stop = perf_counter()
                del outputs
                return stop - start

            plain = Plain(ours)
            turns: dict[str, list[Callable[[], float]]] = {
                "loop": [loop],
                "shared": [partial(loop, arrays=ours.inputs[0])],
                "plain": [plain.sample],
                "rotated": [ours.sample],
                "isolated": [p.sample for p in modes.values()],
            }
            for timers in turns.values():
                for timer in timers:
                    [timer() for _ in range(10)]
            calls = max(5, min(200, round(BLOCK_SECONDS / median(loop() for _ in range(20)))))
            middles: dict[str, list[float]] = {name: [] for name in turns}
            until = perf_counter() + seconds
            gc.freeze()
            with pause_collector():
                while perf_counter() < until or len(middles["loop"]) < 8:
                    for name in rng.sample(list(turns), len(turns)):
                        middles[name].append(_block(turns[name], calls, rng, not_counted))
            gc.unfreeze()
        ratios = {
            name: statistics.ratio(middles[name], middles["loop"]).value for name in turns if name != "loop"
        }
        ratios["plain / shared"] = statistics.ratio(middles["plain"], middles["shared"]).value
        found[case_id] = {"loop": median(middles["loop"]), **ratios}
    return found


def _block(timers: list[Callable[[], float]], calls: int, rng: random.Random, not_counted: int) -> float:
    """The median of the first timer's samples. All timers are sampled in turns, in random order."""
    order, samples = list(range(len(timers))), []
    for number in range(not_counted + calls):
        if len(order) > 1:
            rng.shuffle(order)
        for i in order:
            taken = timers[i]()
            if i == 0 and number >= not_counted:
                samples.append(taken)
    return median(samples)


def table(found: list[dict[str, dict[str, float]]]) -> tuple[list[str], int]:
    """(the Markdown table, the number of intervals of the plain cadence that are not within the limits)."""
    lines = [
        "| case | processes | loop, median, us | shared / loop | plain / loop | plain / shared | rotated / loop "
        "| isolated / loop |",
        "|---|---|---|---|---|---|---|---|",
    ]
    outside = 0
    for case in found[0]:
        cells = []
        for name in ("shared", "plain", "plain / shared", "rotated", "isolated"):
            ratios = [one[case][name] for one in found]
            seen = statistics.ratio(ratios, [1.0] * len(ratios))
            cells.append(f"{seen.value:.3f} ({seen.low:.3f} to {seen.high:.3f})")
            outside += name == "plain" and not LEAST <= seen.low <= seen.high <= MOST
        loop = median(one[case]["loop"] for one in found)
        lines.append(f"| {case} | {len(found)} | {1e6 * loop:.1f} | {' | '.join(cells)} |")
    return lines, outside


def main() -> int:
    """Run the processes and print the table; 1 if an interval of the plain cadence is not within the limits."""
    parser = argparse.ArgumentParser(description="The cadences beside an independent loop.")
    parser.add_argument("--processes", type=int, default=20, help="fresh processes (default 20, at least 6)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of each case in each process")
    parser.add_argument("--cases", nargs="+", default=list(OWN), choices=list(OWN), metavar="ID")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument(
        "--not-counted", type=int, default=NOT_COUNTED, help="first calls of a block to leave out"
    )
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        found_here = one_process(options.cases, options.seconds, options.process, options.not_counted)
        print("FIDELITY " + json.dumps(found_here))
        return 0
    found, start = [], time.monotonic()
    for number in range(options.processes):
        command = [sys.executable, "-m", "tests.studies.fidelity", "--process", str(number)]
        command += ["--seconds", str(options.seconds), "--not-counted", str(options.not_counted)]
        command += ["--cases", *options.cases]
        environment = {"JAX_NUM_CPU_DEVICES": "8", **os.environ, "PYTHONPATH": IMPORTS}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        said = [x for x in done.stdout.splitlines() if x.startswith("FIDELITY ")]
        if done.returncode or not said:
            raise SystemExit(f"process {number} failed:\n{done.stderr[-3000:]}")
        found.append(json.loads(said[-1].removeprefix("FIDELITY ")))
        left = (time.monotonic() - start) / (number + 1) * (options.processes - number - 1)
        print(
            f"process {number + 1} of {options.processes}, about {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
    lines, outside = table(found)
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")
    print(f"{outside} of {len(options.cases)} intervals of plain are not within {LEAST} to {MOST}")
    return int(outside > 0)


if __name__ == "__main__":
    sys.exit(main())
