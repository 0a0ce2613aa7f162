# SPDX-License-Identifier: Apache-2.0
"""Counts false alarms under noise that all processes of a comparison share: the A/A runs of 40 cases that flag any.

    python -m tests.studies.noise [--runs 1000] [--models NAME ...] [--markdown FILE]

Each model gives the log time of the machine at every place of a run, in addition to the own noise of each case and
process. The rule is the real one, with both of its looks: a run counts if it flags a case at either look. `order` is
that of the comparison (drawn in each pair), or the fixed A B B A, which resonates with a period of four.

A change is only reported if the adjusted signed-rank p is below the look's share. So the full rule is computed only if
scipy's p, which is approximate with ties, is below four times that. The counts are the same, and a thousand runs take
seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from meshmark.core.pairs import Pairs, Rule, compare_pairs, upper_limit

CASES = 40
OWN = 0.01
"""Standard deviation of what each case and process has of its own (log time)."""

Model = Callable[[np.random.Generator, int], np.ndarray]
"""(generator, places) -> log times of the machine, [places], alike for all cases; or [cases, places]."""


def heavy_tails(rng: np.random.Generator, places: int) -> np.ndarray:
    """Student's t with 1.5 degrees of freedom, which has no variance."""
    return 0.03 * np.clip(rng.standard_t(1.5, places), -100, 100)


def autocorrelation(rng: np.random.Generator, places: int) -> np.ndarray:
    """A first-order autoregression with coefficient 0.9."""
    steps = rng.normal(0, 0.05, places)
    for i in range(1, places):
        steps[i] += 0.9 * steps[i - 1]
    return steps


def drift(rng: np.random.Generator, places: int) -> np.ndarray:
    """A linear drift of 30 percent up or down, and a random walk of 10 percent."""
    line = rng.choice([-1, 1]) * 0.3 * np.arange(places) / places
    return line + np.cumsum(rng.normal(0, 0.1 / np.sqrt(places), places))


def regimes(rng: np.random.Generator, places: int) -> np.ndarray:
    """Two speeds 30 percent apart; after each process the machine changes with probability one tenth."""
    return 0.3 * (np.cumsum(rng.random(places) < 0.1) % 2)


def periodic(period: int) -> Model:
    """A tenth longer in the first half of each period, with a random start."""

    def model(rng: np.random.Generator, places: int) -> np.ndarray:
        at = (np.arange(places) + rng.integers(period)) % period
        return 0.1 * (at < (period + 1) // 2)

    return model


def throttling(rng: np.random.Generator, places: int) -> np.ndarray:
    """A chip that heats up, 30 percent longer in steps, and cools at once, after 5 to 15 processes."""
    heat, times = 0.0, np.empty(places)
    for i in range(places):
        heat = 0.0 if rng.random() < 0.1 else min(heat + 0.03, 0.3)
        times[i] = heat
    return times


def second_slower(rng: np.random.Generator, places: int) -> np.ndarray:
    """The second process of each pair takes a tenth longer, on either side."""
    return 0.1 * (np.arange(places) % 2) + rng.normal(0, 0.01, places)


def burst(rng: np.random.Generator, places: int) -> np.ndarray:
    """Other work during a third of the run: each process takes up to twice as long, by a random factor."""
    start = rng.integers(places)
    busy = (np.arange(places) - start) % places < places // 3
    return busy * rng.uniform(0, np.log(2), places)


def repelled(rng: np.random.Generator, places: int) -> np.ndarray:
    """A first-order autoregression with coefficient -0.9: a long process is followed by a short one."""
    steps = rng.normal(0, 0.05, places)
    for i in range(1, places):
        steps[i] -= 0.9 * steps[i - 1]
    return steps


def opposite(rng: np.random.Generator, places: int) -> np.ndarray:
    """Regimes that make half of the cases longer and the other half shorter. Benjamini and Hochberg's proof does not
    cover such a negative dependence between cases."""
    return np.where(np.arange(CASES) % 2, 1.0, -1.0)[:, None] * regimes(rng, places)


def of_its_own(rng: np.random.Generator, places: int) -> np.ndarray:
    """Student's t with 1.5 degrees of freedom, independent for each case."""
    return 0.03 * np.clip(rng.standard_t(1.5, (CASES, places)), -100, 100)


MODELS: dict[str, Model] = {
    "heavy tails": heavy_tails,
    "autocorrelation": autocorrelation,
    "drift": drift,
    "regimes": regimes,
    **{f"period of {n}": periodic(n) for n in range(2, 11)},
    "throttling": throttling,
    "second of a pair slower": second_slower,
    "burst": burst,
    "long, then short": repelled,
    "cases opposed": opposite,
    "heavy tails of each case": of_its_own,
}


def sides(rng: np.random.Generator, pairs: int, order: str) -> np.ndarray:
    """The places of A and of B in the run, int [2, pairs]: drawn in each pair, or as A B B A."""
    first = rng.integers(2, size=pairs) if order == "random" else np.arange(pairs) % 2
    places = 2 * np.arange(pairs)
    return np.stack([places + first, places + 1 - first])


def flags(a: np.ndarray, b: np.ndarray, rule: Rule) -> bool:
    """Whether any case of [cases, pairs] seconds is flagged at any look."""
    for index, look in enumerate(rule.looks):
        final = index == len(rule.looks) - 1
        d = np.log(b[:, :look]) - np.log(a[:, :look])
        with np.errstate(invalid="ignore"):
            p = np.nan_to_num(stats.wilcoxon(d, axis=-1).pvalue, nan=1.0)  # of pairs without any difference
        adjusted = stats.false_discovery_control(p)
        if not adjusted.min() < 4 * rule.alpha * rule.share(index, final):
            continue
        seen = {str(i): Pairs.of(a[i, :look], b[i, :look]) for i in range(len(a))}
        found = compare_pairs(seen, rule, index, final).values()
        if any(outcome.verdict in ("slower", "faster") for outcome in found):
            return True
    return False


def alarms(model: str, runs: int, seed: int, order: str = "random", cases: int = CASES) -> int:
    """The number of comparisons of unchanged cases, of `runs`, that flag any case."""
    rng, rule = np.random.default_rng([seed, list(MODELS).index(model)]), Rule(cases=cases)
    pairs, found = rule.looks[-1], 0
    for _ in range(runs):
        machine = np.atleast_2d(MODELS[model](rng, 2 * pairs))[:cases, sides(rng, pairs, order)].swapaxes(
            0, 1
        )
        a, b = np.exp(machine + rng.normal(0, OWN, (2, cases, pairs)))
        found += flags(a, b, rule)
    return found


HEAD = ("noise", "runs of 40 cases that flag one", "upper limit (95 %)", "with a fixed A B B A")


def row(name: str, runs: int, seed: int) -> list[str]:
    """The cells of one model."""
    found, fixed = (alarms(name, runs, seed, order) for order in ("random", "ABBA"))
    return [name, f"{found} of {runs}", f"{upper_limit(found, runs):.2%}", f"{fixed} of {runs}"]


def tabulate(
    what: str,
    models: Collection[str],
    head: Sequence[str],
    row: Callable[[str, int, int], list[str]],
    seed: int,
) -> int:
    """The command of a study of noise; 1 if a model flags more than 1 percent of runs.

    `row(model, runs, seed)` gives the cells of a model. The second cell begins with the number of flagged runs.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--models", nargs="+", default=list(models), choices=list(models), metavar="NAME")
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--markdown", type=Path, help="write the table to this file too")
    options = parser.parse_args()
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    print("\n".join(lines), flush=True)
    worst = 0
    for name in options.models:
        cells = row(name, options.runs, options.seed)
        worst = max(worst, int(cells[1].split()[0]))
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")
    return int(worst > 0.01 * options.runs)


if __name__ == "__main__":
    sys.exit(tabulate("False alarms under noise that all processes share.", MODELS, HEAD, row, 17))
