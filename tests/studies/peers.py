# SPDX-License-Identifier: Apache-2.0
"""Times the same programs by the definitions of other tools, on one machine in one interleaved run.

    python -m tests.studies.peers [--processes 6] [--seconds 0.5] [--cases ID ...] [--markdown FILE]

Each fresh process prepares every case once and hands the same compiled object to every tool, in random order:

- plain loop: one call, blocked on, `time.perf_counter`; the median.
- meshmark plain, meshmark isolated, meshmark stream: the cadences (timing.measure).
- pytest-benchmark: a plain test with its fixture; the median of its rounds.
- asv: asv_runner's own `time_` benchmark, the number of calls by its sample_time; the median.
- nccl-tests: the mean over calls that are enqueued one after the other and waited for at the end (20 after 5 to
  warm up, as its -n and -w), which is what its `time` column is; busbw follows from it as doc/PERFORMANCE.md says.

They differ as follows. The call of pytest-benchmark includes a Python method and the release of the results. A sample
of asv is a mean over at least 10 ms. The mean of nccl-tests overlaps the dispatch of one call with the execution of the
one before, and one disturbed call raises it. The table has the ratio of each tool's figure to the plain loop's, over
processes. Six processes take about 3 minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from meshmark.core import statistics
from tests.checkout import IMPORTS, ROOT
from tests.studies import precision_spent

CASES = (
    "ppermute/axes=x,perm=identity/manual/1/float32/1MiB",
    "psum/axes=x/manual/8/float32/64KiB",
    "psum/axes=x/manual/8/float32/1MiB",
    "mlp/model=x/auto/8/float32/n512",
)
WARM, ITERATIONS = 5, 20  # nccl-tests' -w and -n


def plain_loop(prepared: Any, seconds: float) -> float:
    """The median time of calls, each blocked on, in seconds."""
    import jax

    called, inputs, samples = prepared.called, prepared.inputs[0], []
    until = perf_counter() + seconds
    while perf_counter() < until or len(samples) < 10:
        start = perf_counter()
        outputs = jax.block_until_ready(called(*inputs))
        samples.append(perf_counter() - start)
        del outputs
    return median(samples)


def nccl_tests(prepared: Any, seconds: float) -> float:
    """The mean time of calls that are enqueued together: the median of the means that fit into `seconds`."""
    import jax

    called, inputs, means = prepared.called, prepared.inputs[0], []
    until = perf_counter() + seconds
    while perf_counter() < until or not means:
        jax.block_until_ready([called(*inputs) for _ in range(WARM)])
        start = perf_counter()
        jax.block_until_ready([called(*inputs) for _ in range(ITERATIONS)])
        means.append((perf_counter() - start) / ITERATIONS)
    return median(means)


def cadence(name: str) -> Callable[[Any, float], float]:
    """A function that gives the median of a cadence of this project."""

    def timed(prepared: Any, seconds: float) -> float:
        from meshmark.timing.measure import Budget, Plain, calibrate_stream, sample

        timer = {"plain": lambda: Plain(prepared), "isolated": lambda: prepared}.get(name)
        made = calibrate_stream(prepared.streamed) if timer is None else timer()
        [samples] = sample([made], Budget(seconds, 10, 10**6), random.Random(0))
        return median(samples)

    return timed


def reported(tool: Callable[[Any, float], dict[str, float]]) -> Callable[[Any, float], float]:
    """A function that gives the median that another tool's own code reports (called by
    tests.studies.precision_spent)."""
    return lambda prepared, seconds: float(tool(prepared, seconds)["median"])


TOOLS: dict[str, Callable[[Any, float], float]] = {
    "plain loop": plain_loop,
    "meshmark plain": cadence("plain"),
    "meshmark isolated": cadence("isolated"),
    "meshmark stream": cadence("stream"),
    "pytest-benchmark": reported(precision_spent.pytest_benchmark),
    "asv": reported(precision_spent.asv),
    "nccl-tests": nccl_tests,
}


def one_process(cases_: list[str], seconds: float, number: int) -> dict[str, dict[str, float]]:
    """Seconds by case and tool."""
    import jax

    from meshmark.judge.checks import Judge
    from meshmark.operations import cases
    from meshmark.timing.measure import prepare, verify_stream

    jax.config.update("jax_enable_compilation_cache", False)
    devices, rng = tuple(jax.devices()), random.Random(number)
    judge = Judge(devices)
    found: dict[str, dict[str, float]] = {}
    for case_id in rng.sample(cases_, len(cases_)):
        prepared: Any = prepare(cases.find(case_id, len(devices)), devices, judge=judge)
        prepared.streamed = verify_stream(prepared, judge)
        for _ in range(10):
            prepared.run()
        found[case_id] = {
            name: TOOLS[name](prepared, seconds) for name in rng.sample(list(TOOLS), len(TOOLS))
        }
    return found


def table(found: list[dict[str, dict[str, float]]]) -> list[str]:
    """The Markdown table: the ratio of each tool's figure to the plain loop's, over processes."""
    others = [name for name in TOOLS if name != "plain loop"]
    lines = [f"| case | plain loop, us | {' | '.join(others)} |", "|---|---|" + "---|" * len(others)]
    for case in found[0]:
        loop = median(one[case]["plain loop"] for one in found)
        cells = []
        for name in others:
            seen = statistics.ratio(
                [one[case][name] for one in found], [one[case]["plain loop"] for one in found]
            )
            ends = f" ({seen.low:.2f} to {seen.high:.2f})" if len(found) > 5 else ""
            cells.append(f"{seen.value:.2f}{ends}")
        lines.append(f"| {case} | {1e6 * loop:.1f} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Run the processes and print the table."""
    parser = argparse.ArgumentParser(description="The same programs under other tools' definitions.")
    parser.add_argument("--processes", type=int, default=6, help="fresh processes (default 6: intervals)")
    parser.add_argument("--seconds", type=float, default=0.5, help="time of each tool for each case")
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="ID")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        print("PEERS " + json.dumps(one_process(options.cases, options.seconds, options.process)))
        return 0
    found, start = [], time.monotonic()
    for number in range(options.processes):
        command = [sys.executable, "-m", "tests.studies.peers", "--process", str(number)]
        command += ["--seconds", str(options.seconds), "--cases", *options.cases]
        environment = {"JAX_NUM_CPU_DEVICES": "8", **os.environ, "PYTHONPATH": IMPORTS}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        said = [x for x in done.stdout.splitlines() if x.startswith("PEERS ")]
        if done.returncode or not said:
            raise SystemExit(f"process {number} failed:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
        found.append(json.loads(said[-1].removeprefix("PEERS ")))
        left = (time.monotonic() - start) / (number + 1) * (options.processes - number - 1)
        print(
            f"process {number + 1} of {options.processes}, about {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
    lines = table(found)
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
