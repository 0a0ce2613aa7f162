# SPDX-License-Identifier: Apache-2.0
"""Real comparisons of real processes, with a slowdown of known size planted in side B's program.

    python -m tests.studies.planted [--comparisons 20] [--pairs 12] [--noise 48] [--factor 2]

1. Noise: `--noise` processes of the unchanged program, one after the other, give the smallest slowdown that a
comparison of `--pairs` pairs would find on this machine (meshmark.core.pairs.compare_pairs: `detectable`). 2. Size: in
a copy of the harness, the program gets a loop of dependent work after its result, with as many turns as an environment
variable says. A few pairs of processes measure the cost of a turn. 3. Planted: comparisons in which B's loop costs
`factor` times the detectable slowdown. Each is the comparison of `meshmark compare`, with its first processes, one
look, and a rule that is fixed before. 4. A/A: the processes of A alone, from several comparisons, taken as pairs in
random order; and those of B alone. They need no extra processes, and are further apart in time than neighbours, so they
are noisier than a comparison.

The exit code is 1 if fewer than 19 in 20 planted slowdowns were found. On a busy machine the study takes longer and the
detectable slowdown is larger, but the result is still valid.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from meshmark.core.pairs import Pairs, Rule, compare_pairs
from meshmark.timing.bench import load
from meshmark.timing.children import Children
from meshmark.timing.compare import Comparison
from meshmark.timing.timer import Job
from tests.checkout import ROOT

CASE = "matmul/rows=x,check=exact/auto/1/float32/n256"
VARIABLE = "MESHMARK_PLANTED"
TRIAL = 40_000
"""Turns of the loop with which the cost of one is measured: several times the program, so that it is well known."""

PLANT = f'''

# Planted by tests/studies/planted.py: dependent work behind the result, in both sides, for as many turns as the
# environment says. The sine of a sine is never above 2, which the compiler does not know.
import os as _os

import jax.numpy as _jnp

_unchanged = Program.function


def _planted(self):
    function, turns = _unchanged(self), int(_os.environ["{VARIABLE}"])

    def with_work(*arrays):
        result = function(*arrays)
        end = jax.lax.fori_loop(0, turns, lambda _, x: _jnp.sin(x + 1.0), _jnp.tanh(result[0, 0]))
        return result + _jnp.where(end > 2.0, 1.0, 0.0).astype(result.dtype)

    return with_work


Program.function = _planted
'''


def planted_harness(directory: Path) -> Path:
    """A copy of the harness whose programs do the planted work."""
    shutil.copytree(ROOT / "harness", directory / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    with open(directory / "harness" / "meshmark" / "judge" / "programs.py", "a") as file:
        file.write(PLANT)
    return directory / "harness"


class Lab:
    """Starts processes of the planted harness and times them."""

    def __init__(self, stack: ExitStack, seconds: float) -> None:
        self.path = planted_harness(
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meshmark-planted-")))
        )
        self.stack = stack
        self.job = Job(cells=[[CASE]], num_devices=1, cadences=["isolated"], seconds=seconds)
        self.made: dict[int, Children] = {}
        self.rng = random.Random()

    def children(self, turns: int) -> Children:
        """The children whose programs do this many turns."""
        if turns not in self.made:
            environment = {VARIABLE: str(turns), "JAX_NUM_CPU_DEVICES": "1", "JAX_PLATFORMS": "cpu"}
            self.made[turns] = self.stack.enter_context(Children(path=self.path, environment=environment))
        return self.made[turns]

    def figure(self, turns: int) -> float:
        """The median of one process, in seconds."""
        for message in self.children(turns).run(self.job):
            for line in message.get("timings", ()):
                assert line["verdict"] == "pass", line["reason"]
                found = float(np.median(line["samples_s"]))
        return found

    def pairs(self, number: int, b: int) -> Pairs:
        """`number` pairs in random order. The programs of B do `b` turns, those of A none."""
        sides: tuple[list[float], list[float]] = ([], [])
        for _ in range(number):
            for side in self.rng.sample((0, 1), 2):
                sides[side].append(self.figure(b * side))
        return Pairs.of(*sides)

    def comparison(self, pairs: int, turns: int) -> Comparison:
        """Run one whole comparison with one look at `pairs` pairs."""
        sides = {"A": self.children(0), "B": self.children(turns)}
        made = Comparison(
            run=lambda side, job: sides[side].run(job),
            cells=[[CASE]],
            job=self.job,
            budget=math.inf,
            looks=(pairs,),
        )
        made.prepare()
        made.proceed()
        return made


def a_a(seconds: Sequence[float], rule: Rule, rng: random.Random) -> str:
    """The verdict on processes of one environment, taken as pairs in random order."""
    drawn = [rng.sample(pair, 2) for pair in zip(seconds[::2], seconds[1::2], strict=True)]
    return compare_pairs({CASE: Pairs.of(*zip(*drawn, strict=True))}, rule, 0, True)[CASE].verdict


def main() -> int:
    """Run the study; 1 if fewer than 19 in 20 planted slowdowns were found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument(
        "--pairs", type=int, default=12, help="of each comparison, which has one look (at least 11)"
    )
    parser.add_argument("--noise", type=int, default=48, help="processes of which the noise is measured")
    parser.add_argument(
        "--factor", type=float, default=2.0, help="the planted slowdown over the detectable one"
    )
    parser.add_argument("--seconds", type=float, default=0.1, help="sampling time of each process")
    options = parser.parse_args()
    rule = Rule(looks=(options.pairs,))
    start = time.monotonic()
    for line in load():
        print(line)
    with ExitStack() as stack:
        lab = Lab(stack, options.seconds)
        quiet = np.log([lab.figure(0) for _ in range(options.noise)])
        steps = np.diff(quiet)
        noise = Pairs(np.resize(steps[::2], options.pairs), steps)
        detectable = compare_pairs({CASE: noise}, rule, 0, True)[CASE].detectable
        print(
            f"{CASE}: {1e3 * math.exp(np.median(quiet)):.3f} ms; log times of {options.noise} processes have a standard"
            f" deviation of {100 * quiet.std(ddof=1):.1f} %, neighbours differ by {100 * steps.std(ddof=1):.1f} %"
        )
        print(
            f"detectable with {options.pairs} pairs, by the measured noise: {100 * detectable:.1f} %",
            flush=True,
        )

        trial = math.exp(np.median(lab.pairs(6, TRIAL).log_ratios)) - 1
        turns = max(1, round(TRIAL * options.factor * detectable / trial))
        print(
            f"{TRIAL} turns of planted work cost {100 * trial:.1f} %; {turns} turns are planted, to cost"
            f" {100 * options.factor * detectable:.1f} %",
            flush=True,
        )
        verdicts: Counter[str] = Counter()
        null: Counter[str] = Counter()
        alone: dict[int, list[float]] = {0: [], 1: []}
        for number in range(options.comparisons):
            made = lab.comparison(options.pairs, turns)
            outcome = made.outcomes[CASE]
            verdicts[outcome.verdict] += 1
            print(
                f"{number + 1:3}: {outcome.verdict}: B / A {outcome.change.value:.3f}"
                f" ({outcome.change.low:.3f} to {outcome.change.high:.3f}), p {outcome.p:.2g}, detectable"
                f" {100 * outcome.detectable:.1f} %; {time.monotonic() - start:.0f} s",
                flush=True,
            )
            for i, value in sorted(made.figures[CASE].items()):
                alone[made.order[i] == "B"].append(value)
            for values in alone.values():
                while len(values) >= 2 * options.pairs:
                    null[a_a(values[: 2 * options.pairs], rule, lab.rng)] += 1
                    del values[: 2 * options.pairs]
    found = verdicts["slower"]
    print(f"planted: {found} of {options.comparisons} found; {dict(verdicts)}")
    print(f"A/A: {null['slower'] + null['faster']} of {sum(null.values())} flagged; {dict(null)}")
    print(f"{time.monotonic() - start:.0f} s in all")
    return int(found < 0.95 * options.comparisons)


if __name__ == "__main__":
    sys.exit(main())
