# SPDX-License-Identifier: Apache-2.0
"""Seconds of one isolated call of each verified program, over several fresh processes.

Two processes differ by more than the samples within one process. So a process is one replicate: each gives one median,
and these medians give the figure and its interval. asv's own `time_` benchmarks pool the samples of all processes and
report changes where there are none. Times are taken only if the matrix asks for them (MESHMARK_ASV_TIMES), because asv
can't interleave the processes of both sides. `meshmark compare` can.
"""

from __future__ import annotations

import fnmatch
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import ROOT, environment, table
from benchmarks.compiling import attach

TIMES = "MESHMARK_ASV_TIMES"
"""A variable in env_nobuild of the matrix: a pattern (fnmatch) of the case ids to time, such as * for all or psum/* for
one operation."""

PROCESSES = 6
"""The number of fresh processes for one figure. The smallest and the largest of six medians enclose the median of all
such processes in 1 - 2/2**6 = 97 % of runs, for any distribution (David and Nagaraja, Order Statistics, 7.1)."""

WARM, LEAST, MOST, SECONDS = 3, 10, 200, 0.2
"""Calls before the samples; least and most samples; seconds after which no further sample is taken."""


class Processes:
    """Calls of programs that the timing process itself has compiled ahead of time and verified. Each call is waited
    for."""

    params = table.timed()
    param_names = ("case",)
    timeout = 60.0

    def setup_cache(self) -> dict[str, Any]:
        """The medians of the cases that were asked for, one per process."""
        return medians(asked())

    setup_cache.timeout = 3600.0  # type: ignore[attr-defined]

    def setup(self, cache: dict[str, Any], case_id: str) -> None:
        """Skip, or fail, for the reason that was found."""
        if case_id not in cache:
            raise NotImplementedError(f'times are taken with "{TIMES}": ["*"] in env_nobuild of the matrix')
        attach(cache[case_id])

    def track_call(self, cache: dict[str, Any], case_id: str) -> float:
        """The median of the processes' medians."""
        return statistics.median(cache[case_id]["medians"])

    def track_call_halfwidth(self, cache: dict[str, Any], case_id: str) -> float:
        """Half of what lies between the least and the greatest of them. A change that is smaller is not resolved."""
        found = cache[case_id]["medians"]
        return (max(found) - min(found)) / 2

    track_call.unit = "seconds"  # type: ignore[attr-defined]
    track_call_halfwidth.unit = "seconds"  # type: ignore[attr-defined]


def asked() -> list[str]:
    """The ids of the cases to time."""
    return fnmatch.filter(table.timed(), os.environ.get(TIMES, ""))


def medians(case_ids: Sequence[str]) -> dict[str, Any]:
    """For each case, the median of every process in seconds, or the reason why it has none."""
    each = [_in_a_process(number) for number in range(PROCESSES if case_ids else 0)]
    found: dict[str, Any] = {}
    for case_id in case_ids:
        ended = [one[case_id] for one in each]
        failed = next((one for one in ended if "median" not in one), None)
        found[case_id] = failed or {"medians": [one["median"] for one in ended]}
    return found


def _in_a_process(number: int) -> dict[str, Any]:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        f"from benchmarks import timing; timing.print_medians({number})"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if child.returncode:
        last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        mislabelled = environment.Mislabelled.__name__
        if mislabelled in last:
            raise environment.Mislabelled(last.partition(f"{mislabelled}: ")[2])
        raise RuntimeError(f"process {number} of {PROCESSES} ended: {last}")
    return json.loads(child.stdout.splitlines()[-1])


def print_medians(number: int) -> None:
    """Time the cases in this process, in an order seeded by `number`, and print the medians as one line of JSON."""
    found: dict[str, Any] = {}
    case_ids = asked()
    for case_id in random.Random(number).sample(case_ids, len(case_ids)):
        try:
            found[case_id] = {"median": _median(environment.prepared(case_id).run)}
        except NotImplementedError as error:
            found[case_id] = {"skip": str(error)}
        except environment.Mislabelled:
            raise
        except Exception as error:  # a program that fails must not stop the others
            found[case_id] = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found))


def _median(call: Any) -> float:
    for _ in range(WARM):
        call()
    samples: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(samples) < LEAST or (len(samples) < MOST and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)
