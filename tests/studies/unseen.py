# SPDX-License-Identifier: Apache-2.0
"""Tests the rules under noise for which they were not designed: false alarms, intervals, orders and promises.

    python -m tests.studies.unseen [--runs 1000] [--models NAME ...] [--markdown FILE]

`tests.studies.noise` has the noise for which the comparison was designed. These models were written to attack it:
processes of two speeds, bursts, jumps at a look, effects of the place in a pair, effects that the processes of a pair
share with equal or opposite signs, long and irregular periods, clocks with coarse ticks, effects without a variance,
machines that slow down during the run. A model gives log times [cases, places], where a place is that of a process in
the run. It is the same on both sides of a comparison, so every change that is found is false.

The columns are: runs of 40 unchanged cases that a comparison flags (goal: at most 1 %); comparisons that find a
slowdown of twice the detectable change of an A/A comparison (goal: 95 %); tables of 40 equal ratios that claim an order
(goal: at most 5 %, the error that they state); tables that claim none because of their controls or neighbours; control
ratios of six processes that exclude 1 (stated: at most 5 %); intervals of 6, 8 and 12 processes that hold the median of
the model, for processes drawn from a long run, and for processes in a row (goal: 90 to 99 %).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from meshmark.core import pairs, statistics
from meshmark.core.pairs import Pairs, Rule, upper_limit
from meshmark.timing import figures, orders
from meshmark.timing.orders import Table
from tests.studies import noise

CASES = noise.CASES
OWN = 0.01
LONG = 2000
"""Places of the run whose median an interval is to hold."""

Model = Callable[[np.random.Generator, int, int], np.ndarray]
"""(generator, cases, places) -> log times, [cases, places]."""


def own(rng: np.random.Generator, shared: np.ndarray, cases: int) -> np.ndarray:
    """The shared noise of all cases, plus one percent of each case's own."""
    return shared + rng.normal(0, OWN, (cases, shared.shape[-1]))


def two_speeds(share: float) -> Model:
    """Two memory layouts with times 30 percent apart, drawn by each process for each case."""
    return lambda rng, cases, n: 0.3 * (rng.random((cases, n)) < share) + rng.normal(0, OWN, (cases, n))


def bursts(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """One to three processes take much longer, then about twenty do not."""
    x, i = np.zeros(n), int(rng.exponential(15))
    while i < n:
        length = int(rng.integers(1, 4))
        x[i : i + length] = rng.exponential(0.7, len(x[i : i + length]))
        i += length + int(rng.exponential(20))
    return own(rng, x, cases)


def jump(at: float, slope: float, height: float) -> Model:
    """A linear drift with a jump at this share of the run; one half is the look at 20 pairs."""
    return lambda rng, cases, n: own(rng, slope * np.arange(n) / n + height * (np.arange(n) >= at * n), cases)


def warm_first(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """The first process of each pair is faster, by a random amount."""
    return own(rng, 0.1 * (np.arange(n) % 2) * rng.uniform(0, 1, n), cases)


def in_pairs(sign: float) -> Model:
    """Heavy tails that both processes of a pair share, with equal or opposite signs."""

    def model(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
        x = np.repeat(0.05 * np.clip(rng.standard_t(2, n // 2 + 1), -50, 50), 2)[:n]
        return own(rng, np.where(np.arange(n) % 2, sign, 1) * x, cases)

    return model


def long_period(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """A fifth longer in half of a period of 11 to 40 processes."""
    period = int(rng.integers(11, 41))
    return own(rng, 0.2 * ((np.arange(n) + rng.integers(period)) % period < period // 2), cases)


def irregular_period(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """A fifth longer in turns of three to eight processes."""
    return own(
        rng, 0.2 * (np.searchsorted(np.cumsum(rng.integers(3, 9, n)), np.arange(n), "right") % 2), cases
    )


def ticks(step: float) -> Model:
    """A clock with ticks of this share of the time, so that many figures are equal."""

    def model(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
        times = np.exp(rng.normal(0, 0.03, (cases, n)))
        return np.log(np.maximum(step * np.round(times / step), step))

    return model


def three_digits(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """Times with a spread of 0.2 percent, rounded to three digits."""
    return np.log(np.round(1.2345 * np.exp(rng.normal(0, 0.002, (cases, n))), 2))


def two_values(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """Only two different times."""
    return 0.1 * rng.integers(0, 2, (cases, n))


def stable(alpha: float) -> Model:
    """An alpha-stable effect of each process: no variance, and below 1 no mean (J. M. Chambers, C. L. Mallows and B. W.
    Stuck, J. Am. Statist. Assoc. 71 (1976) 340)."""

    def model(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
        u, w = rng.uniform(-np.pi / 2, np.pi / 2, (cases, n)), rng.exponential(1, (cases, n))
        scale = np.sin(alpha * u) / np.cos(u) ** (1 / alpha)
        return np.clip(OWN * scale * (np.cos(u - alpha * u) / w) ** ((1 - alpha) / alpha), -20, 20)

    return model


def one_in(number: int) -> Model:
    """One process in `number` takes twice as long."""
    return lambda rng, cases, n: own(rng, 0.7 * ((np.arange(n) + rng.integers(number)) % number == 0), cases)


def throttled(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """Full speed for a while, then slower and slower, by up to 40 percent."""
    start = rng.integers(n // 8, n // 2)
    return own(rng, np.minimum(np.maximum(np.arange(n) - start, 0) * 0.02, 0.4), cases)


def walk(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """A random walk of 5 percent per process, without a stable level."""
    return own(rng, np.cumsum(rng.normal(0, 0.05, n)), cases)


def groups(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """Three groups of cases with slow and fast hours of their own, which have the opposite sign in half of the
    cases."""
    hours = [0.2 * (np.cumsum(rng.random(n) < 0.15) % 2) for _ in range(3)]
    return own(rng, np.stack([(-1) ** i * hours[i % 3] for i in range(cases)]), cases)


def growing(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """Noise that grows thirtyfold during the run."""
    return rng.normal(0, 1, (cases, n)) * np.linspace(0.005, 0.15, n)


def skewed(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """Positive delays only: the exponential of a wide normal."""
    return np.exp(rng.normal(-3.5, 1.2, (cases, n)))


def layouts(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
    """Each process draws one of four layouts, which is good for some cases and bad for others."""
    effect = rng.normal(0, 0.1, (cases, 4))
    return effect[:, rng.integers(0, 4, n)] + rng.normal(0, 0.005, (cases, n))


def regressed(stay: float) -> Model:
    """A first-order autoregression with coefficient `stay`, independent for each case."""

    def model(rng: np.random.Generator, cases: int, n: int) -> np.ndarray:
        x = rng.normal(0, 0.05, (cases, n))
        for i in range(1, n):
            x[:, i] += stay * x[:, i - 1]
        return x

    return model


MODELS: dict[str, Model] = {
    "two speeds, 70 to 30": two_speeds(0.3),
    "two speeds, 95 to 5": two_speeds(0.05),
    "bursts with long gaps": bursts,
    "drift, jump at the look": jump(0.5, 0.2, 0.4),
    "half speed from the middle on": jump(0.5, 0, float(np.log(2))),
    "first of a pair warm": warm_first,
    "pairs share heavy tails": in_pairs(1),
    "pairs share them, opposed": in_pairs(-1),
    "period of 11 to 40": long_period,
    "irregular period": irregular_period,
    "ticks of 5 %": ticks(0.05),
    "ticks of 20 %": ticks(0.2),
    "three digits": three_digits,
    "two values": two_values,
    "stable, 1.5": stable(1.5),
    "stable, 0.8": stable(0.8),
    "every seventh twice as long": one_in(7),
    "throttled after a while": throttled,
    "random walk": walk,
    "groups opposed": groups,
    "noise that grows": growing,
    "skewed": skewed,
    "four layouts": layouts,
    "each case long, then short": regressed(-0.9),
    "each case autocorrelated": regressed(0.9),
    "independent": lambda rng, cases, n: rng.normal(0, 0.03, (cases, n)),
}


def drawn(rng: np.random.Generator, name: str, cases: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of A and of B, [cases, pairs], in the drawn order."""
    places = noise.sides(rng, number, "random")
    times = np.exp(MODELS[name](rng, cases, 2 * number))
    return times[:, places[0]], times[:, places[1]]


def generator(name: str, seed: int) -> np.random.Generator:
    """The random generator of a model, so that its figures do not depend on the other models that run."""
    return np.random.default_rng([seed, list(MODELS).index(name)])


def alarms(name: str, runs: int, seed: int, cases: int = CASES) -> int:
    """The number of comparisons of unchanged cases, of `runs`, that flag any case at either look."""
    rng, rule = generator(name, seed), Rule(cases=cases)
    return sum(noise.flags(*drawn(rng, name, cases, rule.looks[-1]), rule) for _ in range(runs))


def found(name: str, runs: int, seed: int, times: float = 2.0) -> int:
    """The number of comparisons, of `runs`, that find a slowdown of `times` the detectable change of an A/A comparison
    before."""
    rng, rule, hits = generator(name, seed), Rule(looks=(40,)), 0
    for _ in range(runs):
        (a, b), (c, d) = (drawn(rng, name, 1, 40) for _ in range(2))
        calm = pairs.compare_pairs({"": Pairs.of(a[0], b[0])}, rule, 0, True, resamples=400)[""]
        slow = Pairs.of(c[0], d[0] * (1 + times * calm.detectable))
        hits += pairs.compare_pairs({"": slow}, rule, 0, True, resamples=400)[""].verdict == "slower"
    return hits


def of_modes(rng: np.random.Generator, name: str, rows: int, processes: int) -> np.ndarray:
    """[rows, processes] ratios of two equal modes that the same processes time in turns."""
    times = MODELS[name](rng, 2 * rows, processes)
    return np.exp(times[::2] - times[1::2])


CONTROLS = 6
"""Controls of a table: as many as the quick profile has families."""


def claims(name: str, tables: int, seed: int) -> tuple[int, int]:
    """(the number of tables that claim an order or a best mode, the number in doubt). A table has 40 ratios of equal
    modes, six of them controls, and the fewest processes that may claim an order."""
    rng, number, claimed, doubted = generator(name, seed), orders.needed(CASES), 0, 0
    for _ in range(tables):
        ratios = of_modes(rng, name, CASES, number)
        table = Table.of(ratios[CONTROLS:], ratios[:CONTROLS])
        best = any(table.best({"auto": row}, "manual") for row in ratios)
        claimed += best or any(table.order(row) != orders.UNRESOLVED for row in ratios)
        doubted += bool(table.doubt)
    return claimed, doubted


def excluded(name: str, rows: int, seed: int, processes: int = 6) -> int:
    """The number of control ratios, of `rows`, that exclude 1."""
    rng = generator(name, seed)
    ends = [figures.over_processes(row) for row in of_modes(rng, name, rows, processes)]
    return sum(not e.low <= 1 <= e.high for e in ends)


def held(name: str, groups_: int, seed: int, processes: int, in_a_row: bool) -> float:
    """The share of intervals of this many processes that hold the median of a long run."""
    rng, hits = generator(name, seed), 0
    for times in MODELS[name](rng, 20, LONG):
        truth = np.median(times)
        for _ in range(groups_ // 20):
            start = rng.integers(LONG - processes)
            at = (
                np.arange(start, start + processes)
                if in_a_row
                else rng.choice(LONG, processes, replace=False)
            )
            estimate = statistics.series_median(times[at])
            hits += estimate.low <= truth <= estimate.high
    return hits / (groups_ // 20 * 20)


HEAD = (
    *("noise", "runs that flag a case", "upper limit (95 %)", "twice the detectable, found"),
    *("tables that claim an order", "tables in doubt", "controls that exclude 1"),
    *("6, 8, 12 processes hold, drawn", "the same in a row"),
)


def row(name: str, runs: int, seed: int) -> list[str]:
    """The cells of one model."""
    flagged, trials, tables = alarms(name, runs, seed), max(runs // 10, 10), max(runs // 10, 10)
    return [
        name,
        f"{flagged} of {runs}",
        f"{upper_limit(flagged, runs):.2%}",
        f"{found(name, trials, seed)} of {trials}",
        *(f"{number} of {tables}" for number in claims(name, tables, seed)),
        f"{excluded(name, runs, seed) / runs:.1%}",
        *(
            ", ".join(f"{held(name, max(runs, 20), seed, n, in_a_row):.0%}" for n in (6, 8, 12))
            for in_a_row in (False, True)
        ),
    ]


if __name__ == "__main__":
    sys.exit(noise.tabulate("Noise that the rules were not made with.", MODELS, HEAD, row, 29))
