# SPDX-License-Identifier: Apache-2.0
"""Compares two record files of `meshmark bench`: counters exactly, process medians unpaired.

Processes of two files ran at different times, so they are not pairs. Mann and Whitney's rank-sum test and the
Hodges-Lehmann shift of two samples replace the signed ranks. Both assume that the two sides differ in their level only.
But a day may be noisier than another: with 40 quiet and 8 noisy processes of the same median, half of the runs of 40
cases flagged something. So a change also needs disjoint intervals of both sides' medians, and the interval of the ratio
is made from these (core.statistics.series_median, which takes into account that neighbours resemble each other). The
shift includes what the machine did between the two runs, and that can't be removed afterwards. For the stated error
rate run `meshmark compare` on the environments themselves.

Sources: H. B. Mann and D. R. Whitney, On a test of whether one of two random variables is stochastically larger
than the other, Ann. Math. Statist. 18 (1947) 50; Hollander, Wolfe and Chicken, Nonparametric statistical methods, 3rd
ed., Wiley 2014, sections 4.1 to 4.3 (test, shift, interval).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from meshmark.core.pairs import Outcome, Rule, decide_outcome
from meshmark.core.statistics import Estimate, end_rank, series_median
from meshmark.records.reading import Records
from meshmark.timing.compare import CompareError, key_of, median_seconds, read_counters

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer]

MOST_EXACT = 2500
"""The largest product n m for which the rank-sum distribution is counted exactly. For larger products the normal
distribution is used."""

ALPHA = 0.01
"""The rate of false discoveries. The comparison looks once."""

MOST_RANGE_RATIO = 3.0
"""The largest ratio of the ranges of two sides of few processes that count as alike."""

LEAST_PROCESSES = 3
"""The number of processes of each side from which on their spread says anything."""


@dataclass
class Recorded:
    """The process medians of one file."""

    facts: Mapping[str, Any]
    medians: dict[str, list[float]] = field(default_factory=dict)
    """Seconds by key (meshmark.timing.compare.key_of), one per process."""
    counters: dict[str, dict[str, str | float | None]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def taken(records: Records, name: str) -> Recorded:
    """The process medians of a file; CompareError, which names the file, if it has none or holds a comparison."""
    if any("environment" in line for line in records.timings):
        raise CompareError(f"{name} holds both sides of a comparison already: its verdicts are in it")
    found = Recorded(records.runs[0]["facts"])
    for line in records.timings:
        key = key_of(line["case"], line["cadence"])
        if line["verdict"] == "pass" and (seconds := median_seconds(line)):
            found.medians.setdefault(key, []).append(seconds)
        else:
            found.failed[key] = f"{line['verdict']}: {line['reason']}"
        if counts := read_counters(line):
            found.counters.setdefault(line["case"], counts)
    if not found.medians:
        raise CompareError(f"{name} holds no times: name a file that `meshmark bench --record` wrote")
    return found


def needed(cases: int, alpha: float = ALPHA) -> int:
    """The least number of processes per side with which one case among `cases` can be found: the smallest two-sided p
    of n and n samples is 2 / C(2n, n)."""
    return next(n for n in range(1, 100) if 2 / math.comb(2 * n, n) < alpha / cases)


@functools.lru_cache(maxsize=64)
def _cumulative_probabilities(n: int, m: int) -> Array:
    """P(U <= u), u = 0 ... n m, of Mann and Whitney's U for samples of n and m of one distribution: the
    coefficients of the Gaussian binomial, or the normal distribution with continuity correction."""
    if n * m > MOST_EXACT:
        from scipy import stats  # takes longer to import than JAX

        deviation = math.sqrt(n * m * (n + m + 1) / 12)
        return np.asarray(stats.norm.cdf((np.arange(n * m + 1) + 0.5 - n * m / 2) / deviation))
    count = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):  # times 1 - x^(m + i)
            count[u] -= count[u - m - i]
        for u in range(i, n * m + 1):  # over 1 - x^i
            count[u] += count[u - i]
    total = math.comb(n + m, n)
    return np.cumsum(np.array([c / total for c in count]))


def _critical(n: int, m: int, level: float) -> int | None:
    """The largest u with 2 P(U <= u) < level; None if there is none."""
    below = int(np.searchsorted(2 * _cumulative_probabilities(n, m), level, side="left")) - 1
    return below if below >= 0 else None


def _p(ties: Counts, above: Counts, n: int, m: int) -> Array:
    """The two-sided p from the numbers of pairs above and tied. A half pair is rounded towards no difference."""
    u = np.minimum(above, n * m - ties - above) + ties / 2
    return np.minimum(1.0, 2 * _cumulative_probabilities(n, m)[np.minimum(np.ceil(u).astype(int), n * m)])


def between(a: Array, b: Array, confidence: float) -> tuple[float, float]:
    """The ends of b - a from the intervals of the two medians; -inf to inf if one has none."""
    first, second = (series_median(x, confidence) for x in (a, b))
    return second.low - first.high, second.high - first.low


def parted(a: Array, b: Array, confidence: float) -> bool:
    """Whether the intervals of the two medians at this confidence are disjoint.

    If a side has too few processes for such an interval: whether all of a lie on one side of all of b, and both have
    similar spreads, as the rank-sum test assumes."""
    if all(end_rank(x.size, confidence) for x in (a, b)):
        low, high = between(a, b, confidence)
        return low > 0 or high < 0
    spreads = sorted(float(np.ptp(x)) for x in (a, b))
    return bool(b.min() > a.max() or a.min() > b.max()) and spreads[1] <= MOST_RANGE_RATIO * spreads[0]


def _gap(a: Array, b: Array, confidence: float) -> Array:
    """[resamples] The shift of b, [resamples, m], from which on it is `parted` from a, [resamples, n], whatever their
    spreads."""
    first, second = (max(1, end_rank(x.shape[1], confidence)) for x in (a, b))
    return np.asarray(np.sort(a)[:, -first] - np.sort(b)[:, second - 1])


def compare_times(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    least: float = Rule.least,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Outcome]:
    """Judge the cases of two files. `pairs`: by case, the seconds of each process of A, and of B.

    The rules are those of meshmark.core.pairs.compare_pairs at a single, final look, with the rank-sum test. The noise
    is that of comparisons drawn from the processes' deviations from their side's median (enlarged by sqrt(n / (n -
    1))). `false_alarms` is the share of these draws that is flagged, each p compared with ALPHA / cases; it does not
    cover what the machine did between the two runs. The interval has confidence 0.95, from six processes of each side
    on: from the lower end of B's median over the upper end of A's to the opposite. A change needs both sides to be
    `parted` at the confidence 1 - ALPHA / cases. `pairs` of an outcome is the smaller number of processes. least: the
    smallest change that is reported, 0.03 is 3 percent. Raises ValueError for times that are not positive.
    """
    from scipy import stats

    least = math.log1p(least)
    logs = {key: (np.log(np.asarray(a)), np.log(np.asarray(b))) for key, (a, b) in pairs.items()}
    if any(not np.isfinite(x).all() or not x.size for both in logs.values() for x in both):
        raise ValueError("seconds must be positive numbers")
    corrected = 1 - ALPHA / max(1, len(pairs))
    shifts = {key: np.subtract.outer(b, a).ravel() for key, (a, b) in logs.items()}
    p = np.array(
        [
            _p(np.sum(shifts[k] == 0, keepdims=True), np.sum(shifts[k] > 0, keepdims=True), a.size, b.size)[0]
            for k, (a, b) in logs.items()
        ]
    )
    adjusted = stats.false_discovery_control(p) if p.size else p
    outcomes = {}
    for row, (key, (a, b)) in enumerate(logs.items()):
        n, m = a.size, b.size
        ordered = np.sort(shifts[key])
        centre = float(np.median(ordered))
        low, high = between(a, b, 0.95)
        noise = detectable = alarms = math.nan
        if min(n, m) >= LEAST_PROCESSES:
            rng = np.random.default_rng(seed)
            rest = np.concatenate([(x - np.median(x)) * math.sqrt(x.size / (x.size - 1)) for x in (a, b)])
            drawn = rest[rng.integers(0, rest.size, (resamples, n + m))]
            null = np.sort((drawn[:, n:, None] - drawn[:, None, :n]).reshape(resamples, -1), axis=-1)
            centres = np.median(null, axis=-1)
            noise = float(np.quantile(np.abs(centres), 0.99))
            margin = max(least, noise)
            null_p = _p((null == 0).sum(axis=-1), (null > 0).sum(axis=-1), n, m)
            gap, back = (
                _gap(drawn[:, :n], drawn[:, n:], corrected),
                _gap(drawn[:, n:], drawn[:, :n], corrected),
            )
            flagged = (null_p < ALPHA / len(pairs)) & (np.abs(centres) > margin)
            alarms = float(np.mean(flagged & ((gap < 0) | (back < 0))))
            found = _critical(n, m, ALPHA / len(pairs))
            shift = np.full(resamples, math.inf) if found is None else np.maximum(-null[:, found], gap)
            detectable = float(np.quantile(np.maximum(margin - centres, shift), 0.95, method="higher"))
        outcome = decide_outcome(
            Estimate(float(centre), float(low), float(high)),
            (float(p[row]), float(adjusted[row])),
            (ALPHA, least),
            (noise, detectable, alarms),
            min(n, m),
        )
        if outcome.verdict in ("slower", "faster") and not parted(a, b, corrected):
            outcome = replace(outcome, verdict="inconclusive")
        outcomes[key] = outcome
    return outcomes


def common_shift(outcomes: Mapping[str, Outcome]) -> str:
    """A line if nearly all cases changed in the same direction, as on a machine that changed; else "".

    The condition: at least ten cases, nine tenths of them on one side of 1, and a median shift of more than 3 percent.
    """
    shifts = [math.log(o.change.value) for o in outcomes.values() if o.change.value > 0]
    if len(shifts) < 10:
        return ""
    middle = statistics.median(shifts)
    same = sum(x * middle > 0 for x in shifts)
    if same < 0.9 * len(shifts) or abs(middle) < math.log1p(Rule.least):
        return ""
    way = "slower" if middle > 0 else "faster"
    return (
        f"{same} of {len(shifts)} cases are {way} in B, by {100 * math.expm1(abs(middle)):.0f} % in the middle: as they"
        " would be on a machine that had changed in between"
    )
