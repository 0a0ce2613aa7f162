# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of containment: the same selection in a worker (-n 1) and without one (-n 0), in turns A B B A.

`python -m tests.trouble.overhead [ROUNDS]` prints for each of the two the seconds from the start of the first case to
the end of the last, the processor time of all processes in between, and the remaining seconds of the whole run; and it
compares their medians. As a pytest plugin this module writes the first two, one file per process, into the directory
MESHMARK_CLOCK.
"""

import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.trouble.runs import Run

SELECTION = ("--operations", "psum,pmax,pmin,all_gather,psum_scatter,all_to_all", "--meshes", "2x4,8,2x2x2")

seen = []


def pytest_runtest_logstart():
    seen.append((time.perf_counter(), time.process_time()))


pytest_runtest_logfinish = pytest_runtest_logstart


def pytest_unconfigure():
    if seen:
        spent = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
        Path(os.environ["MESHMARK_CLOCK"], str(os.getpid())).write_text(" ".join(map(str, spent)))


def measure(workers):
    """(seconds of the cases, processor time of the cases, seconds beside the cases) of one run."""
    options = (*SELECTION, "-q", "-n", workers, "-p", "tests.trouble.overhead")
    with TemporaryDirectory() as directory:
        with Run(*options, target="conformance", MESHMARK_CLOCK=directory) as run:
            run.finish(600)
        assert run.code == 0, run.output
        spent = [tuple(map(float, file.read_text().split())) for file in Path(directory).iterdir()]
    assert len(spent) == 1 + workers
    cases = max(seconds for seconds, _ in spent)
    return cases, sum(processor for _, processor in spent), run.seconds - cases


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    found = {0: [], 1: []}
    for workers in (1, 0, 0, 1) * rounds:
        cases, processor, beside = measure(workers)
        found[workers].append((cases, processor, beside))
        print(
            f"-n {workers}: cases {cases:.1f} s, processor {processor:.1f} s, beside {beside:.1f} s,", end=" "
        )
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    for position, name in enumerate(("cases", "processor", "beside")):
        one, none = (statistics.median(figures[position] for figures in found[n]) for n in (1, 0))
        print(f"{name}: {one:.2f} s contained, {none:.2f} s not: {one - none:+.2f} s, {one / none - 1:+.1%}")


if __name__ == "__main__":
    main()
