# SPDX-License-Identifier: Apache-2.0
"""Compares this project's comparison with those of asv and pytest-benchmark on simulated machines of known truth.

    python -m tests.studies.simulated [--trials 1000] [--markdown FILE]

Only the machines are simulated: asv's own compare and pytest-benchmark's own regression check judge the same samples as
`meshmark.core.pairs.compare_pairs`. docs/comparing.md holds the printed tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from meshmark.core.pairs import Outcome, Pairs, Rule, all_decided, compare_pairs, upper_limit
from tests.studies.noise import MODELS, alarms

RULE = Rule()
PROCESSES = RULE.looks[-1]  # of each environment: as many as the last look needs
SAMPLES = 20  # of each process


@dataclass(frozen=True)
class Machine:
    """The variation of times: standard deviations of logarithms, and shares."""

    process: float = 0.03
    """From process to process."""
    jitter: float = 0.03
    """From sample to sample within a process."""
    spikes: float = 0.05
    """The share of samples that take longer, by an exponential share of mean one half."""
    drift: float = 0.05
    """Of the machine between two sessions, and on the way (a random walk) over the 80 processes of one."""
    disturbed: float = 0.0
    """The share of processes that take 30 percent longer."""

    def samples(self, rng: np.random.Generator, cases: int = 1) -> np.ndarray:
        """Give seconds [cases, 2 environments, 40 processes, 20 samples], without the machine's drift."""
        shape = (cases, 2, PROCESSES, SAMPLES)
        level = rng.normal(0, self.process, shape[:3]) + np.log(1.3) * (
            rng.random(shape[:3]) < self.disturbed
        )
        spike = np.where(rng.random(shape) < self.spikes, 1 + rng.exponential(0.5, shape), 1.0)
        return 1e-3 * np.exp(level[..., None] + rng.normal(0, self.jitter, shape)) * spike

    def walk(self, rng: np.random.Generator) -> np.ndarray:
        """Give the drift, a factor, in each of the 80 places of a session."""
        steps = rng.normal(0, self.drift / np.sqrt(2 * PROCESSES), 2 * PROCESSES)
        return np.exp(np.cumsum(steps))


MACHINE = Machine()
MACHINES = {
    "processes 1 % apart": dataclasses.replace(MACHINE, process=0.01),
    "processes 6 % apart": dataclasses.replace(MACHINE, process=0.06),
    "processes 30 % apart": dataclasses.replace(MACHINE, process=0.3),
    "drift of 20 %": dataclasses.replace(MACHINE, drift=0.2),
    "one process in ten 30 % slower": dataclasses.replace(MACHINE, disturbed=0.1),
}


# This project: one median per process, pairs in random order, looks at 20 and 40, stopped when all is clear.


def paired(
    samples: np.ndarray, walk: np.ndarray, rule: Rule, rng: np.random.Generator
) -> tuple[dict[str, Outcome], int]:
    """Give the outcomes of [cases, 2, 40, 20] at the look that ended the comparison, and its number of pairs."""
    medians = np.median(samples, axis=-1)
    first = rng.permuted(
        np.tile([0, 1], (PROCESSES, 1)), axis=-1
    )  # which of the two places A has, of each pair
    places = 2 * np.arange(PROCESSES) + first.T
    a, b = medians[:, 0] * walk[places[0]], medians[:, 1] * walk[places[1]]
    outcomes: dict[str, Outcome] = {}
    for index, look in enumerate(rule.looks):
        final = index == len(rule.looks) - 1
        seen = {str(i): Pairs.of(a[i, :look], b[i, :look]) for i in range(len(samples))}
        outcomes = compare_pairs(seen, rule, index, final)
        if all_decided(outcomes):
            break
    return outcomes, look


# asv's. A and B in two sessions (asv run A, asv run B), or interleaved by --interleave-rounds in one.


def asv_verdict(a: np.ndarray, b: np.ndarray, factor: float) -> str:
    """Give the mark of asv 0.6.6 for B against A, '+' (worse), '-' (better) or ' ', from [rounds, samples] seconds."""
    from asv.commands.compare import _is_result_better, _isna
    from asv_runner.statistics import compute_stats

    (time_a, stats_a), (time_b, stats_b) = (compute_stats(x.ravel().tolist(), 1) for x in (a, b))
    of_a, of_b = (stats_a, a.ravel().tolist()), (stats_b, b.ravel().tolist())
    assert not _isna(time_a) and not _isna(time_b)
    # The order of asv.commands.compare.Compare.print_table: better is asked first.
    if _is_result_better(time_b, time_a, of_b, of_a, factor):
        return "-"
    return "+" if _is_result_better(time_a, time_b, of_a, of_b, factor) else " "


def asv_pair(
    samples: np.ndarray, walk: np.ndarray, session: float, rounds: int, interleaved: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Give [rounds, 5] samples of A and of B: asv takes 5 samples in each process, and 2 processes by default."""
    a, b = samples[0, 0, :rounds, :5], samples[0, 1, :rounds, :5]
    if interleaved:  # A B A B ...
        return a * walk[: 2 * rounds : 2, None], b * walk[1 : 2 * rounds : 2, None]
    return a * walk[:rounds, None], b * walk[:rounds, None] * session


# pytest-benchmark's. One process each; B is compared with a saved run of A.


def benchmark_verdict(a: np.ndarray, b: np.ndarray) -> str:
    """Give '+' if --benchmark-compare-fail=median:5% fails B against A, from [samples] seconds, else ' '."""
    from pytest_benchmark.stats import Stats
    from pytest_benchmark.utils import parse_compare_fail

    def figures(x: np.ndarray) -> dict[str, float]:
        found = Stats()
        for second in x.tolist():
            found.update(second)
        return found.as_dict()

    return "+" if parse_compare_fail("median:5%").fails(figures(b), figures(a)) else " "


# Rates over trials.


@dataclass
class Tally:
    """The number of times that one method flagged something."""

    flagged: int = 0
    """Either way."""
    slower: int = 0
    trials: int = 0

    def add(self, mark: str) -> None:
        self.trials += 1
        self.slower += mark == "+"
        self.flagged += mark != " "


MARKS = {"slower": "+", "faster": "-"}


def ours(
    effect: float, trials: int, seed: int, machine: Machine = MACHINE, rule: Rule = RULE
) -> tuple[Tally, list[Outcome], list[int]]:
    """Give the tally of this project's comparison of one case, its outcomes, and the pairs it used."""
    rng = np.random.default_rng(seed)
    tally, outcomes, used = Tally(), [], []
    for _ in range(trials):
        samples, walk = machine.samples(rng), machine.walk(rng)
        samples[:, 1] *= 1 + effect
        found, pairs = paired(samples, walk, rule, rng)
        tally.add(MARKS.get(found["0"].verdict, " "))
        outcomes.append(found["0"])
        used.append(pairs)
    return tally, outcomes, used


def promised(times: float, trials: int, seed: int, machine: Machine = MACHINE) -> Tally:
    """Give the tally of slowdowns of `times` the detectable change of an A/A comparison of that machine."""
    rng, tally = np.random.default_rng(seed), Tally()
    rule = Rule(looks=RULE.looks[-1:])  # one look: the comparison that the promise is made for
    for _ in range(trials):
        calm, _ = paired(machine.samples(rng), machine.walk(rng), rule, rng)
        samples = machine.samples(rng)
        samples[:, 1] *= 1 + times * calm["0"].detectable
        found, _ = paired(samples, machine.walk(rng), rule, rng)
        tally.add(MARKS.get(found["0"].verdict, " "))
    return tally


def others(effect: float, trials: int, seed: int, machine: Machine = MACHINE) -> dict[str, Tally]:
    """Give the tallies of asv and pytest-benchmark on the samples that `ours` gets from the same seed."""
    rng, sessions = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    tallies: dict[str, Tally] = {}
    for _ in range(trials):
        samples, walk = machine.samples(rng), machine.walk(rng)
        samples[:, 1] *= 1 + effect
        session = float(np.exp(sessions.normal(0, machine.drift)))
        marks = {}
        for rounds in (2, PROCESSES):
            for interleaved in (False, True):
                a, b = asv_pair(samples, walk, session, rounds, interleaved)
                name = f"asv, {rounds} rounds, {'interleaved' if interleaved else 'A then B'}"
                marks[f"{name}, factor 1.1 (its default)"] = asv_verdict(a, b, 1.1)
                marks[f"{name}, test only"] = asv_verdict(a, b, 1.0)
        a, b = samples[0, :, 0] * walk[:2, None]
        marks["pytest-benchmark, median:5%, A saved in another session"] = benchmark_verdict(a, b * session)
        marks["pytest-benchmark, median:5%, A saved just before"] = benchmark_verdict(a, b)
        for name, mark in marks.items():
            tallies.setdefault(name, Tally()).add(mark)
    return tallies


def many(cases: int, changed: int, runs: int, seed: int) -> tuple[Tally, Tally, int, list[int]]:
    """Compare runs of many cases, of which the first `changed` are 5 percent slower.

    Gives the tallies of unchanged and of changed cases, the number of runs with a false alarm, and the pairs used.
    """
    rng, rule = np.random.default_rng(seed), Rule(cases=cases)
    same, other, alarmed, used = Tally(), Tally(), 0, []
    for _ in range(runs):
        samples, walk = MACHINE.samples(rng, cases), MACHINE.walk(rng)
        samples[:changed, 1] *= 1.05
        found, pairs = paired(samples, walk, rule, rng)
        marks = [MARKS.get(found[str(i)].verdict, " ") for i in range(cases)]
        for i, mark in enumerate(marks):
            (other if i < changed else same).add(mark)
        alarmed += any(mark != " " for mark in marks[changed:])
        used.append(pairs)
    return same, other, alarmed, used


def rate(hits: int, trials: int) -> str:
    """Give a share with its exact 95 percent interval (C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404)."""
    if not trials:
        return "–"
    interval = stats.binomtest(hits, trials).proportion_ci(method="exact")
    return f"{hits / trials:.1%} ({interval.low:.1%} to {interval.high:.1%})"


def table(trials: int) -> list[str]:
    """Give the Markdown tables."""
    effects = (0.0, 0.05, 0.1)
    rows: dict[str, list[str]] = {}
    stopping, answers = [], []
    for effect in effects:
        seed = 1_000_003 * (1 + round(100 * effect))
        tally, outcomes, used = ours(effect, trials, seed)
        tallies = {"meshmark, looks at 20 and 40 pairs": tally} | others(effect, trials, seed)
        for name, found in tallies.items():
            hits = found.slower if effect else found.flagged
            rows.setdefault(name, []).append(rate(hits, found.trials))
        verdicts = [o.verdict for o in outcomes]
        shares = [
            f"{verdicts.count(v) / trials:.1%}" for v in ("slower", "faster", "no change", "inconclusive")
        ]
        stopping.append([f"{effect:+.0%}", f"{np.mean(used):.1f}", f"{used.count(20) / trials:.1%}", *shares])
        covered = sum(o.change.low <= 1 + effect <= o.change.high for o in outcomes)
        figures = [f"{np.median([getattr(o, n) for o in outcomes]):.1%}" for n in ("noise", "detectable")]
        answers.append([f"{effect:+.0%}", rate(covered, trials), *figures])
        answers[-1].append(f"{np.mean([o.false_alarms for o in outcomes]):.2%}")
    lines = ["| method | A/A flagged | +5 % found | +10 % found |", "|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(found)} |" for name, found in rows.items()]
    lines += ["", "Stopping, and the verdicts of this project's comparison:", ""]
    lines += ["| change | pairs used, mean | stopped at 20 | slower | faster | no change | inconclusive |"]
    lines += ["|---|---|---|---|---|---|---|"] + [f"| {' | '.join(row)} |" for row in stopping]
    lines += ["", "What it says of itself:", ""]
    lines += [
        "| change | interval holds the truth | noise, median | detectable, median | false alarms, mean |"
    ]
    lines += ["|---|---|---|---|---|"] + [f"| {' | '.join(row)} |" for row in answers]
    lines += ["", "Many cases in one comparison (those that change are 5 percent slower):", ""]
    lines += [
        "| cases | that change | comparisons | unchanged flagged, by case | comparisons with a false alarm"
    ]
    lines[-1] += " | changed found | pairs used, mean |"
    lines += ["|---|---|---|---|---|---|---|"]
    for cases, changed in ((1, 0), (10, 0), (10, 1), (50, 0), (50, 5)):
        runs = max(trials // {1: 1, 10: 4, 50: 10}[cases], 2)
        same, other, alarmed, used = many(cases, changed, runs, 7 * cases + changed)
        row = [rate(same.flagged, same.trials), rate(alarmed, runs), rate(other.slower, other.trials)]
        lines.append(f"| {cases} | {changed} | {runs} | {' | '.join(row)} | {np.mean(used):.1f} |")
    lines += ["", "Other machines, one case (+5 % but for the last column):", ""]
    lines += [
        "| machine | found | pairs used, mean | detectable, median | A/A flagged |",
        "|---|---|---|---|---|",
    ]
    for name, machine in MACHINES.items():
        tally, outcomes, used = ours(0.05, trials // 2, 11, machine)
        calm, _, _ = ours(0.0, trials // 2, 12, machine)
        seen = f"{np.median([o.detectable for o in outcomes]):.1%}"
        power = rate(tally.slower, tally.trials)
        lines.append(
            f"| {name} | {power} | {np.mean(used):.1f} | {seen} | {rate(calm.flagged, calm.trials)} |"
        )
    lines += [
        "",
        "The detectable change, called by an A/A comparison of 40 pairs, then planted in another:",
        "",
    ]
    lines += ["| machine | once that, found | twice that, found |", "|---|---|---|"]
    for name, machine in {"as above": MACHINE, **MACHINES}.items():
        once, twice = (promised(times, trials // 5, 13, machine) for times in (1, 2))
        lines.append(f"| {name} | {rate(once.slower, once.trials)} | {rate(twice.slower, twice.trials)} |")
    lines += [
        "",
        f"Noise that all processes share, {max(trials, 1000)} A/A comparisons of 40 cases each:",
        "",
        "| noise | runs that flag a case | upper limit (95 %) | fixed A B B A instead |",
        "|---|---|---|---|",
    ]
    for name in MODELS:
        flagged, fixed = (alarms(name, max(trials, 1000), 17, order) for order in ("random", "ABBA"))
        runs = max(trials, 1000)
        limit = upper_limit(flagged, runs)
        lines.append(f"| {name} | {flagged} of {runs} | {limit:.2%} | {fixed} of {runs} |")
    return lines


def main() -> None:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(description="Comparisons on simulated machines.")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--markdown", type=Path, help="write the tables to this file too")
    options = parser.parse_args()
    began = time.perf_counter()
    lines = table(options.trials)
    print("\n".join(lines))
    print(f"\n{options.trials} trials in {time.perf_counter() - began:.0f} s")
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
