# SPDX-License-Identifier: Apache-2.0
"""Measures the precision per time spent of the measuring core, pytest-benchmark and asv, with the same budget.

    python -m tests.studies.precision_spent [--processes 10] [--seconds 1] [--cases ID ...] [--markdown FILE] [--raw
    FILE]

In each of several fresh processes every case is prepared once. Then each tool gets the same wall-clock budget for that
one compiled object, in an order that differs from process to process:

- core: timing.measure.sample, its median; with at most 1000 samples as in `meshmark bench`, and with the whole budget.
- pytest-benchmark: a real pytest run in that process with `--benchmark-max-time`; its median, mean and minimum.
- asv: `asv_runner.benchmarks.time.TimeBenchmark`, which an asv worker runs, for that long; its median.
- bare: a loop by hand, with which the others are compared.

`spread` is the standard deviation over processes of the logarithm of a tool's figure. It includes the differences
between processes, for all tools alike. `within` is that of the ratio to the bare loop in the same process, so it
excludes these differences. `bias` is the tool's median over processes relative to the median of the bare loop's samples
pooled over all processes. `error` is the median over processes of the tool's absolute relative difference from that
median: it combines spread and bias, and a single disturbed process hardly changes it. `wall` is the time that the
tool's timing really took, without the start of pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median, stdev
from time import perf_counter
from typing import Any

from tests.checkout import ROOT

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")


CASES = (
    "ppermute/axes=x,perm=identity/manual/1/float32/4MiB",
    "psum/axes=x/manual/8/float32/4KiB",
    "mlp/model=x/explicit/8/float32/n1024",
)

HEADLINE = {
    "core, at most 1000": "median",
    "core, whole budget": "median",
    "pytest-benchmark, median": "median",
    "pytest-benchmark, mean": "mean",
    "pytest-benchmark, min": "min",
    "asv": "median",
    "bare loop": "median",
}
"""Row of the table -> statistic; the tool is the name before a comma, or the whole name of a core."""

PLAIN_TEST = """
from time import perf_counter

def test_called(benchmark, called):
    start = perf_counter()
    benchmark(called)
    benchmark.extra_info["wall"] = perf_counter() - start
"""

Reported = dict[str, float]


def core(prepared: Any, seconds: float, most: int) -> Reported:
    """The median and the number of samples of the measuring core."""
    from meshmark.timing.measure import Budget, sample

    [samples] = sample([prepared], Budget(seconds, 10, most), random.Random(0))
    return {"median": median(samples), "samples": len(samples)}


def pytest_benchmark(prepared: Any, seconds: float) -> Reported:
    """The figures of a plain test with the benchmark fixture, from its own JSON."""
    import pytest

    class Called:
        """A plugin that hands over the compiled program."""

        @pytest.fixture
        def called(self) -> Callable[[], Any]:
            return prepared.run

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "test_plain.py").write_text(PLAIN_TEST)
        (Path(directory) / "pytest.ini").write_text("[pytest]\n")
        found = Path(directory) / "found.json"
        arguments = [directory, "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--benchmark-only"]
        arguments += [
            f"--rootdir={directory}",
            f"--benchmark-max-time={seconds}",
            f"--benchmark-json={found}",
        ]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = pytest.main(arguments, plugins=[Called()])
        if code:
            raise SystemExit(f"pytest-benchmark ended with {code}:\n{said.getvalue()}")
        [entry] = json.loads(found.read_text())["benchmarks"]
    stats = entry["stats"]
    kept = {k: stats[k] for k in ("median", "mean", "min")}
    return {**kept, "samples": stats["rounds"], "wall": entry["extra_info"]["wall"]}


def asv(prepared: Any, seconds: float) -> Reported:
    """The median and number of samples that asv's own timing code takes in one worker; asv reports this median."""
    from asv_runner.benchmarks.time import TimeBenchmark

    class Attributes:
        """Take samples until the time is over; asv's default is five in each of two processes."""

        warmup_time = seconds / 10
        repeat = (1, 10**7, seconds * 0.9)
        rounds = 1

    timer = TimeBenchmark("time_called", prepared.run, [Attributes])
    timer.do_setup()
    samples = timer.run()["samples"]
    return {"median": median(samples), "samples": len(samples)}


def time_by_hand(prepared: Any, number: int) -> list[float]:
    """The seconds of calls, after one to warm up. Nothing else is between the two readings of the clock."""
    import jax

    jax.block_until_ready(prepared.run())
    samples = []
    for _ in range(number):
        start = perf_counter()
        jax.block_until_ready(prepared.run())
        samples.append(perf_counter() - start)
    return samples


def bare_loop(prepared: Any, seconds: float) -> Reported:
    """The median of a loop by hand, with all its samples for the pool."""
    each = median(time_by_hand(prepared, 10))
    samples = time_by_hand(prepared, max(10, round(seconds / each)))
    return {"median": median(samples), "samples": len(samples), "pool": sorted(samples)}  # type: ignore[dict-item]


TOOLS: dict[str, Callable[[Any, float], Reported]] = {
    "core, at most 1000": lambda p, s: core(p, s, 1000),
    "core, whole budget": lambda p, s: core(p, s, 10**7),
    "pytest-benchmark": pytest_benchmark,
    "asv": asv,
    "bare loop": bare_loop,
}


def one_process(number: int, case_ids: list[str], seconds: float) -> dict[str, dict[str, Reported]]:
    """The figures of this process, by case and tool."""
    import jax

    from meshmark.judge.checks import Judge
    from meshmark.operations import cases
    from meshmark.timing.measure import prepare

    judge = Judge(tuple(jax.devices()))
    found: dict[str, dict[str, Reported]] = {}
    names = list(TOOLS)
    random.Random(number // len(names)).shuffle(names)
    turn = number % len(names)  # each tool comes first, second ... equally often
    for case_id in case_ids:
        prepared = prepare(cases.find(case_id, len(judge.devices)), judge.devices, judge=judge)
        found[case_id] = {}
        for name in names[turn:] + names[:turn]:
            start = perf_counter()
            found[case_id][name] = TOOLS[name](prepared, seconds)
            found[case_id][name].setdefault("wall", perf_counter() - start)
    return found


def table(processes: list[dict[str, dict[str, Reported]]], case_ids: list[str]) -> list[str]:
    """The Markdown lines."""
    lines = []
    for case_id in case_ids:
        runs = [process[case_id] for process in processes]
        pool: list[float] = [s for run in runs for s in run["bare loop"]["pool"]]  # type: ignore[attr-defined]
        truth = median(pool)
        lines += [
            f"`{case_id}`, bare loop {1e6 * truth:.1f} us, {len(processes)} processes:",
            "",
            "| tool and statistic | error, % | spread, % | within, % | bias, % | samples | wall, s |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, statistic in HEADLINE.items():
            tool = name if name in TOOLS else name.partition(",")[0]
            values = [run[tool][statistic] for run in runs]
            ratios = [value / run["bare loop"]["median"] for value, run in zip(values, runs, strict=True)]
            within = "" if tool == "bare loop" else f"{100 * stdev(map(math.log, ratios)):.1f}"
            error = median(abs(value / truth - 1) for value in values)
            spread, bias = stdev(map(math.log, values)), median(values) / truth - 1
            samples, wall = (median(run[tool][what] for run in runs) for what in ("samples", "wall"))
            lines.append(
                f"| {name} | {100 * error:.1f} | {100 * spread:.1f} | {within} | {100 * bias:+.1f} | {samples:.0f} |"
                f" {wall:.2f} |"
            )
        lines.append("")
    return lines


def main() -> int:
    """Run the processes and print the tables."""
    parser = argparse.ArgumentParser(description="Spread and bias of three tools for the same time.")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0, help="budget of each tool a case (default 1)")
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="ID")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--raw", type=Path, help="write what each process reported to this file (JSON)")
    parser.add_argument(
        "--pool", type=Path, nargs="+", default=[], help="add the processes of these raw files"
    )
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        print("PRECISION " + json.dumps(one_process(options.process, options.cases, options.seconds)))
        return 0
    processes = [process for path in options.pool for process in json.loads(path.read_text())]
    for number in range(options.processes):
        command = [sys.executable, "-m", "tests.studies.precision_spent", "--process", str(number)]
        command += ["--seconds", str(options.seconds), "--cases", *options.cases]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        line = next((x for x in done.stdout.splitlines() if x.startswith("PRECISION ")), None)
        if line is None:
            raise SystemExit(
                f"process {number} gave no figure:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            )
        processes.append(json.loads(line.removeprefix("PRECISION ")))
        print(f"process {number + 1} of {options.processes}", file=sys.stderr, flush=True)
    lines = table(processes, options.cases)
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")
    if options.raw:
        options.raw.write_text(json.dumps(processes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
