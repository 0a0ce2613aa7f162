# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the suite beyond XLA: programs per second of `pytest conformance -n 0` and of a bare loop.

    python -m tests.studies.overhead [--rounds 3] [--most 200] [--markdown FILE]

The bare loop is written by hand for the same programs, in one process: place the inputs, trace, lower, compile, run,
and compare each device's shard. Functions, inputs and references are made before its clock starts. The suite's clock,
which includes making them, runs from the first test's call to the last one's end. Neither includes the start of the
backend. The two run in processes of their own, in the order A B B A, and the ratio is that of the medians. There are
two clocks: wall time, which is valid on a quiet machine only, and processor time, which counts all threads of the
process and no other process. The last line has the time to make 10,000 cases.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.checkout import IMPORTS, ROOT

FAMILIES = {
    "collectives": "psum,all_gather,psum_scatter,all_to_all,ppermute",
    "contractions": "matmul,batch_matmul,einsum",
    "layers": "dense,mlp,attention,embedding",
    "gradients": "dense_gradient,mlp_gradient,attention_gradient,embedding_gradient",
}
"""Family -> operations."""

SIZES = {"collectives": "4KiB,64B"}  # empty arrays do not lower in every collective


Clocks = tuple[float, float]
"""Seconds of the wall, and of the processor in all threads of this process."""

STARTED: list[Clocks] = []
ENDED: list[Clocks] = []
"""When each test was called, and when it had ended, as a plugin of the suite."""


def read_clocks() -> Clocks:
    """Both clocks now."""
    return time.perf_counter(), time.process_time()


def print_figure(start: Clocks, end: Clocks, programs: int) -> None:
    """Print the line that the parent process reads."""
    print(f"\nOVERHEAD {json.dumps([end[0] - start[0], end[1] - start[1], programs])}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin of the suite: keep only the first MESHMARK_MOST programs."""
    del items[int(os.environ["MESHMARK_MOST"]) :]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """As a plugin of the suite: note when each test is called. At the first call the backend has started."""
    STARTED.append(read_clocks())


def pytest_runtest_logfinish(nodeid: str) -> None:
    """As a plugin of the suite: note when each test has ended, after pytest's own work."""
    ENDED.append(read_clocks())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """As a plugin of the suite: print the figure."""
    if STARTED:
        print_figure(STARTED[0], ENDED[-1], len(STARTED))


def suite(family: str, most: int) -> tuple[Clocks, int]:
    """(seconds on both clocks, programs) of the suite in one process, without workers."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "conformance",
        "-n",
        "0",
        "-q",
        "-p",
        "tests.studies.overhead",
        "--operations",
        FAMILIES[family],
        "--sizes",
        SIZES.get(family, ""),
        "--meshes",
        "2x4",
        "--modes",
        "auto,explicit,manual",
    ]
    return _run(command, most)


def bare(family: str, most: int) -> tuple[Clocks, int]:
    """(seconds on both clocks, programs) of the bare loop in a process of its own."""
    return _run([sys.executable, "-m", "tests.studies.overhead", "--bare", family], most)


def _run(command: list[str], most: int) -> tuple[Clocks, int]:
    environment = os.environ | {
        "MESHMARK_MOST": str(most),
        "JAX_NUM_CPU_DEVICES": "8",
        "PYTHONPATH": os.pathsep.join(filter(None, [IMPORTS, os.environ.get("PYTHONPATH", "")])),
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    line = next((line for line in done.stdout.splitlines() if line.startswith("OVERHEAD ")), None)
    if line is None:
        raise SystemExit(
            f"{' '.join(command[1:])} gave no figure:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    wall, processor, programs = json.loads(line.removeprefix("OVERHEAD "))
    assert programs, f"no program of {' '.join(command[1:])}"
    return (wall, processor), programs


def bare_loop(family: str, most: int) -> None:
    """Run the bare loop, and print its figure."""
    import jax
    import numpy as np

    from meshmark.core.layout import indices
    from meshmark.judge import programs
    from meshmark.operations import cases
    from meshmark.operations.selection import Selection

    selection = Selection(
        operations=tuple(FAMILIES[family].split(",")),
        sizes=tuple(filter(None, SIZES.get(family, "").split(","))),
        meshes=("2x4",),
        modes=("auto", "explicit", "manual"),
    )
    chosen = list(cases.cases(selection, 8))[:most]
    devices = tuple(jax.devices())
    work = []
    made: dict[object, tuple] = {}
    for case in chosen:
        program = programs.Program(case, devices)
        if case.cell not in made:
            arguments = case.cell.arguments(0)
            made[case.cell] = (arguments, *case.cell.expected(arguments))
        arguments, expected, bounds = made[case.cell]
        parts = [indices(r.shape, r.spec, case.mesh.sizes) for r in case.plan.results]
        work.append((program, arguments, expected, bounds, parts, program.jitted(), program.context))
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))

    start = read_clocks()
    wrong = 0
    for program, arguments, expected, bounds, parts, jitted, context in work:
        placed = [
            jax.device_put(a, programs.sharding(program.mesh, spec.spec))
            for a, spec in zip(arguments, program.arguments, strict=True)
        ]
        with context():
            compiled = jitted.trace(*placed).lower().compile()
            outputs = jax.block_until_ready(jax.tree.leaves(compiled(*placed)))
        for output, want, bound, index in zip(outputs, expected, bounds, parts, strict=True):
            for shard in output.addressable_shards:
                seen, here = np.asarray(shard.data), index[shard.device.id]
                if bound is None:
                    wrong += not (np.array_equal(seen, want[here]) or seen.tobytes() == want[here].tobytes())
                else:
                    wrong += bool((np.abs(seen.astype(np.float64) - want[here]) > bound[here]).any())
    end = read_clocks()
    assert not wrong, f"{wrong} shards differ"
    print_figure(start, end, len(work))


def collect_seconds() -> tuple[float, int]:
    """(seconds, cases) of making the first 10,000 cases of the full profile."""
    start = time.perf_counter()
    from meshmark.operations import cases
    from meshmark.operations.selection import Selection

    number = sum(1 for _ in zip(cases.cases(Selection("full"), 8), range(10_000), strict=False))
    return time.perf_counter() - start, number


def main() -> int:
    """Run the study; 1 if a ratio of wall times is below 0.85."""
    parser = argparse.ArgumentParser(description="The cost of the suite beside a bare loop.")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of A B B A (default 2)")
    parser.add_argument("--most", type=int, default=200, help="programs a family at most (default 200)")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--bare", choices=FAMILIES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare_loop(options.bare, int(os.environ["MESHMARK_MOST"]))
        return 0
    rows = [
        "| family | programs | bare loop, programs/s | suite, programs/s | ratio"
        " | bare loop, processor ms per program | suite, processor ms per program | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    low = 0
    for family in FAMILIES:
        taken: dict[str, list[Clocks]] = {"bare": [], "suite": []}
        for _ in range(options.rounds):
            for which in ("bare", "suite", "suite", "bare"):
                (wall, processor), programs = (bare if which == "bare" else suite)(family, options.most)
                taken[which].append((wall / programs, processor / programs))
        (loop, loop_works), (ours, we_work) = (
            map(statistics.median, zip(*taken[which], strict=True)) for which in ("bare", "suite")
        )
        low += loop / ours < 0.85
        rows.append(
            f"| {family} | {programs} | {1 / loop:.1f} | {1 / ours:.1f} | {loop / ours:.2f}"
            f" | {1000 * loop_works:.1f} | {1000 * we_work:.1f} | {loop_works / we_work:.2f} |"
        )
        print(rows[-1], flush=True)
    seconds, number = collect_seconds()
    rows += ["", f"{number} cases are made in {seconds:.2f} s."]
    print("\n".join(rows))
    if options.markdown:
        options.markdown.write_text("\n".join(rows) + "\n")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
