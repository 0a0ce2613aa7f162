# SPDX-License-Identifier: Apache-2.0
"""Comparisons of two environments on replayed processes, each of which takes 3 s of a simulated clock."""

import math
import random

from meshmark.timing.compare import Comparison
from meshmark.timing.timer import Job

CASES = [
    "matmul/rows=x,cols=y,check=exact/auto/2x4/float32/n64",
    "psum/axes=x+y/auto/2x4/float32/4KiB",
    "psum/axes=x+y/manual/2x4/float32/4KiB",
]
CELLS = [CASES[:1], CASES[1:]]
FACTS = {
    "versions": {"jax": "9.9.9", "jaxlib": "9.9.9", "python": "3.12.1"},
    "backend": "cpu",
    "device_kind": "cpu",
    "num_devices": 8,
    "num_processes": 1,
    "virtual": True,
    "host": {"cores": 2},
}


def line(case, seconds, process=0, verdict="pass", reason="", **more):
    operation, variant, mode, mesh, dtype, _ = case.split("/")
    return {
        "schema": 1,
        "kind": "timing",
        "case": case,
        "operation": operation,
        "variant": variant,
        "mode": mode,
        "mesh": mesh,
        "dtype": dtype,
        "cadence": "isolated",
        "process": process,
        "verdict": verdict,
        "reason": reason,
        "communication": [{"kind": "all-reduce", "bytes": 4096, "groups": "1x8", "trips": 1}],
        "wire_bytes": 7168.0,
        "flops": 1024.0,
        "bytes_accessed": 8192.0,
        "temp_bytes": 0,
        "argument_bytes": 4096,
        "output_bytes": 4096,
        "samples_s": [] if verdict != "pass" else [seconds] * 3,
    } | more


class Replayed:
    """Processes without processes: side B takes `change` times as long; each takes 3 s of a clock of its own."""

    def __init__(self, change=1.0, noise=0.003, fault=None):
        self.change, self.noise, self.fault = change, noise, fault or (lambda side, process, line: line)
        self.rng, self.ran, self.now = random.Random(5), [], 0.0

    def run(self, side, job):
        self.ran.append((side, job.process, [i for ids in job.cells for i in ids]))
        self.now += 3.0
        yield {"facts": FACTS}
        for ids in job.cells:
            lines = []
            for case in ids:
                change = self.change.get(case, 1.0) if isinstance(self.change, dict) else self.change
                level = 1e-3 * (change if side == "B" else 1.0) * math.exp(self.rng.gauss(0, self.noise))
                lines.append(self.fault(side, job.process, line(case, level, job.process)))
            yield {"timings": lines, "cell": ids[0]}
        yield {"end": True, "spread": [0.05, 0.1]}

    def comparison(self, **more):
        options = {
            "run": self.run,
            "cells": CELLS,
            "job": Job(cells=[], num_devices=8, cadences=["isolated"], seconds=0.1),
            "budget": 1e6,
            "clock": lambda: self.now,
            "rng": random.Random(7),  # the same order each time: whether a look is clear may hang on it
        }
        return Comparison(**(options | more))


class Alternating(random.Random):
    """A B in every pair: for tests in which it matters which side a process is of."""

    def sample(self, population, k, *, counts=None):
        return list(population)


def timed(replayed, **more):
    made = replayed.comparison(**more)
    made.prepare()
    made.proceed()
    return made


def verdicts(comparison):
    return {case: outcome.verdict for case, outcome in comparison.outcomes.items()}
