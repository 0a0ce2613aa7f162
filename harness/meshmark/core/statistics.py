# SPDX-License-Identifier: Apache-2.0
"""Figures of samples, and the comparison of two environments by pairs of processes.

This module is plain arithmetic: numpy and scipy, no JAX, and no other module of this project. Times are in seconds,
sizes in bytes, changes are relative (0.03 is 3 percent) unless a name says log. No sample is ever removed. scipy is
imported where it is used: it takes longer to import than JAX, and most commands and all timed processes do not need
it.

In a comparison the process is the replicate. Processes run in the order A B B A A B B A ..., and each gives one
figure. Neighbours from two environments are a pair. Neighbours from the same environment are the A/A pairs of that
comparison, and need no extra runs. docs/comparing.md shows how the rule behaves on simulated machines.

Sources: J. L. Hodges and E. L. Lehmann, Estimates of location based on rank tests, Ann. Math. Statist. 34 (1963) 598;
F. Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945) 80; Y. Benjamini and
Y. Hochberg, Controlling the false discovery rate, J. R. Statist. Soc. B 57 (1995) 289; B. Efron, Bootstrap methods,
Ann. Statist. 7 (1979) 1; M. Hollander, D. A. Wolfe and E. Chicken, Nonparametric statistical methods, 3rd ed., Wiley
2014; R. J. Hyndman and Y. Fan, Sample quantiles in statistical packages, Am. Statist. 50 (1996) 361.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Floats = Sequence[float] | npt.NDArray[np.floating]
Verdict = Literal["slower", "faster", "no change", "inconclusive"]

ORDER = "ABBA"
"""The environment of process i is ORDER[i % 4]: a drift that is linear in time cancels within each four."""

_THINNED = 400  # a larger sample is replaced by this number of its quantiles: 80,200 Walsh averages
_EXACT = 200  # the most pairs for which the signed-rank distribution is summed exactly
_BLOCK = 2_000_000  # Walsh averages in memory at a time: 16 MB
_ENOUGH = 10  # the fewest A/A pairs: their spread is then known to 1 / sqrt(2 * 10) = 22 percent
_INTERVAL = 0.05  # all looks together: the probability that an interval misses is at most this
_NOISE = 0.99  # the noise of a comparison is this quantile of its A/A estimates
_POWER = 0.95  # a detectable change is found with this probability


@dataclass(frozen=True)
class Estimate:
    """A figure with its confidence interval; an end that the sample cannot determine is infinite."""

    value: float
    low: float
    high: float

    @property
    def relative(self) -> float:
        """Give half the interval's width over the magnitude of the value; inf if that is undefined."""
        width = self.high - self.low
        return width / 2 / abs(self.value) if self.value and math.isfinite(width / self.value) else math.inf


def _sample(samples: Floats, name: str = "samples") -> Array:
    """Give a non-empty one-dimensional array of finite numbers, or ValueError."""
    x = np.asarray(samples, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise ValueError(f"{name} must be a list of one or more numbers, not an array of shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite, but {int((~np.isfinite(x)).sum())} of {x.size} are not")
    return x


def _inside(value: float, name: str) -> float:
    """Give a number between 0 and 1, or ValueError."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, not {value}")
    return value


def median(samples: Floats, confidence: float = 0.95) -> Estimate:
    """Give the median of independent samples, of any shape of distribution.

    The interval runs from the r-th smallest to the r-th largest sample, r being the largest for which
    2 P(Binomial(n, 1/2) < r) <= 1 - confidence (Hollander, Wolfe and Chicken, section 3.6). If even the smallest and
    largest sample do not reach that confidence (fewer than 6 samples at 0.95), the interval is -inf to inf.
    Raises ValueError for an empty sample, one that is not finite, or a confidence outside (0, 1).
    """
    x = np.sort(_sample(samples))
    r = _end_rank(x.size, _inside(confidence, "confidence"))
    low, high = (x[r - 1], x[-r]) if r else (-math.inf, math.inf)
    return Estimate(float((x[(x.size - 1) // 2] + x[x.size // 2]) / 2), float(low), float(high))


@functools.cache
def _end_rank(n: int, confidence: float) -> int:
    """Give the largest r with 2 P(Binomial(n, 1/2) < r) <= 1 - confidence; 0 if there is none."""
    numerator, denominator = ((1 - confidence) / 2).as_integer_ratio()
    most = (numerator << n) // denominator  # each end may leave out this many of the 2**n outcomes
    rank, outcomes, below = 0, 1, 1
    while below <= most:
        rank += 1
        outcomes = outcomes * (n - rank + 1) // rank
        below += outcomes
    return rank


def tail(samples: Floats, q: float) -> float | None:
    """Give the quantile q, or None if there are fewer than 1 / min(q, 1 - q) samples, too few to determine it.

    So p99 and p1 need 100 samples, and p90 needs ten. Linear between order statistics (Hyndman and Fan, type 7).
    Raises ValueError for samples that are not finite and for q outside (0, 1); an empty sample gives None.
    """
    _inside(q, "q")
    if len(samples) * min(q, 1 - q) < 1 - 1e-9:  # rounding makes 100 * (1 - 0.99) a little less than 1
        return None
    return float(np.quantile(_sample(samples), q))


def _thinned(x: Array) -> Array:
    """Give [..., n] unchanged, or, if n is large, its [..., 400] quantiles (i + 1/2) / 400."""
    if x.shape[-1] <= _THINNED:
        return x
    levels = (np.arange(_THINNED) + 0.5) / _THINNED
    return np.moveaxis(np.quantile(x, levels, axis=-1, method="hazen"), 0, -1)


@functools.lru_cache(maxsize=8)
def _triangle(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Give the indices i <= j of the Walsh averages of n values."""
    return np.triu_indices(n)


def _walsh_order(x: Array, places: Sequence[int]) -> Array:
    """Give [rows, len(places)]: for each row of [rows, n], its Walsh averages (x_i + x_j) / 2, i <= j, of these ranks.

    Ranks start at 0 for the smallest.
    """
    rows, n = x.shape
    i, j = _triangle(n)
    step = max(1, _BLOCK // len(i))
    found = np.empty((rows, len(places)))
    for start in range(0, rows, step):
        part = x[start : start + step]
        sums = np.take(part, i, axis=1) + np.take(part, j, axis=1)
        sums.sort(axis=-1)  # a sort is vectorized in NumPy 2, and several times faster than its partition
        found[start : start + step] = sums[:, list(places)] / 2
    return found


def _middle(n: int) -> tuple[int, int]:
    """Give the ranks of the two Walsh averages of n values whose mean is their median."""
    count = n * (n + 1) // 2
    return (count - 1) // 2, count // 2


def hodges_lehmann(x: npt.ArrayLike, axis: int = -1) -> Array:
    """Give the median of the Walsh averages (x_i + x_j) / 2, i <= j, along an axis (Hodges and Lehmann 1963).

    Takes [..., n, ...] and gives that shape without the axis; 0-d for one sample. The cost is n (n + 1) / 2
    averages, so a sample of more than 400 is first replaced by 400 of its evenly spaced quantiles: this uses no
    random numbers, and the order of the samples does not matter. Raises ValueError if n is 0.
    """
    moved = np.moveaxis(np.asarray(x, dtype=np.float64), axis, -1)
    if not moved.shape[-1]:
        raise ValueError("the Hodges-Lehmann estimate of no samples is not defined")
    thin = _thinned(moved)
    rows = thin.reshape(-1, thin.shape[-1])
    return np.asarray(_walsh_order(rows, _middle(rows.shape[-1])).mean(axis=-1).reshape(moved.shape[:-1]))


@functools.lru_cache(maxsize=64)
def _signed_rank_tail(n: int) -> Array:
    """Give P(T <= t) for t = 0 ... n (n + 1) / 2 under the null hypothesis; T is the sum of the positive ranks
    (Wilcoxon).

    Exact to n = 200: each rank is in the sum with probability 1/2. Beyond, the normal distribution of the same mean
    and variance with continuity correction (Hollander, Wolfe and Chicken, section 3.1).
    """
    count = n * (n + 1) // 2
    if n > _EXACT:
        from scipy import stats

        deviation = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return np.asarray(stats.norm.cdf((np.arange(count + 1) + 0.5 - count / 2) / deviation))
    mass = np.zeros(count + 1)
    mass[0] = 1.0
    for rank in range(1, n + 1):
        mass[rank:] += mass[:-rank]
        mass /= 2
    return np.minimum(np.cumsum(mass), 1.0)


def _critical(n: int, level: float) -> int | None:
    """Give the largest t with 2 P(T <= t) < level, or None if no outcome of n pairs is that rare."""
    below = int(np.searchsorted(2 * _signed_rank_tail(n), level, side="left")) - 1
    return below if below >= 0 else None


def ratio(a: Floats, b: Floats, confidence: float = 0.95) -> Estimate:
    """Give the ratio a / b of paired positive samples.

    The value is exp of the Hodges-Lehmann estimate of log(a_i / b_i); the interval runs between the Walsh averages
    that the signed-rank test does not reject (Hollander, Wolfe and Chicken, sections 3.2 and 3.3; the distribution
    is exact to 200 pairs and normal beyond). The method assumes that the log ratios are symmetric about their
    centre. With too few pairs (below 6 at 0.95) the interval is 0 to inf. Beyond 400 pairs the ranks are taken as
    shares of the Walsh averages of 400 quantiles. Raises ValueError for samples of unequal length, or that are not
    finite and positive.
    """
    first, second = _sample(a, "a"), _sample(b, "b")
    if first.shape != second.shape:
        raise ValueError(f"paired samples must be equal in number, not {first.size} and {second.size}")
    if min(first.min(), second.min()) <= 0:
        raise ValueError("a ratio needs positive samples")
    logs = np.log(first) - np.log(second)
    critical = _critical(logs.size, 1 - _inside(confidence, "confidence"))
    thin = _thinned(logs)
    below, above = _middle(thin.size)
    if critical is None:
        return Estimate(math.exp(_walsh_order(thin[None], (below, above)).mean()), 0.0, math.inf)
    averages, all_averages = (n * (n + 1) // 2 for n in (thin.size, logs.size))
    # Rank `critical` (from 0) is the smallest Walsh average that is not rejected: `critical` averages lie below it.
    rank = critical if averages == all_averages else int(critical / all_averages * averages)
    found = _walsh_order(thin[None], (below, above, rank, averages - 1 - rank))[0]
    return Estimate(*(math.exp(v) for v in (found[:2].mean(), found[2], found[3])))


@dataclass(frozen=True)
class LineFit:
    """The model t = alpha + S / beta of the time t of a message of S bytes."""

    alpha: float
    """Seconds, never negative."""
    beta: float
    """Bytes per second; inf if the time does not grow with the size."""
    residuals: tuple[float, ...]
    """(t - model) / t of each point in the given order: at 0.1 the model is 10 percent of t too short."""


def fit_line(sizes: Floats, seconds: Floats) -> LineFit | None:
    """Fit t = alpha + S / beta to messages of `sizes` bytes that took `seconds`; None below three distinct sizes.

    Least squares of the RELATIVE residuals (weights 1 / t^2), because times span decades and the error of each is
    relative, under alpha >= 0 and 1 / beta >= 0 (C. L. Lawson and R. J. Hanson, Solving least squares problems, SIAM
    1995, chapter 23: scipy.optimize.nnls). Raises ValueError for lists of unequal length, negative sizes, or times
    that are not positive.
    """
    from scipy import optimize

    if not len(sizes) and not len(seconds):
        return None
    s, t = _sample(sizes, "sizes"), _sample(seconds, "seconds")
    if s.shape != t.shape:
        raise ValueError(f"sizes and seconds must be equal in number, not {s.size} and {t.size}")
    if s.min() < 0 or t.min() <= 0:
        raise ValueError("a line needs sizes of at least 0 and times above 0")
    if len(np.unique(s)) < 3:
        return None
    columns = np.stack([1 / t, s / t], axis=1)
    scale = np.linalg.norm(columns, axis=0)  # seconds and bytes per second differ by ten decades
    scaled, _ = optimize.nnls(columns / scale, np.ones(len(t)))
    alpha, inverse = scaled / scale
    residuals = 1 - columns @ np.array([alpha, inverse])
    return LineFit(
        float(alpha), float(1 / inverse) if inverse > 0 else math.inf, tuple(map(float, residuals))
    )


@dataclass(frozen=True)
class Pairs:
    """The comparison of two environments by the processes of one case, as natural logarithms of ratios of times."""

    log_ratios: Array
    """[n] log(B / A) of neighbouring processes of the two environments."""
    null: Array
    """[k] log ratios of neighbouring processes of the same environment: the B B and A A of A B B A A B B A."""

    def __post_init__(self) -> None:
        for name in ("log_ratios", "null"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or not np.isfinite(values).all():
                raise ValueError(f"{name} must be a list of finite numbers: leave out lost processes")
            object.__setattr__(self, name, values)

    @classmethod
    def of(cls, seconds: Floats) -> Self:
        """Make pairs of one figure per process, in the order in which they ran: A B B A A B B A ...

        A lost process is nan, and removes the two pairs that it belongs to; an odd last one waits for its
        partner. Raises ValueError for a figure that is not positive.
        """
        t = np.asarray(seconds, dtype=np.float64)
        if t.ndim != 1 or (t <= 0).any() or np.isinf(t).any():
            raise ValueError("seconds must be a list of positive numbers, nan for a lost process")
        steps = np.diff(np.log(t))
        towards_b = np.where(np.arange(len(steps)) % 4 == 0, 1.0, -1.0)  # A B at 0, 4, 8 ...; B A at 2, 6 ...
        between, same = (steps * towards_b)[::2], steps[1::2]
        return cls(between[np.isfinite(between)], same[np.isfinite(same)])


@dataclass(frozen=True)
class Rule:
    """The rule by which a change is reported. It is fixed before the first sample."""

    alpha: float = 0.01
    """The share of false discoveries of the whole comparison, over all its looks; at most 0.05."""
    least: float = 0.03
    """A change smaller than this is not reported: 0.03 is a ratio above 1.03 or below 1 / 1.03."""
    looks: tuple[int, ...] = (20, 40)
    """The numbers of pairs at which a look may end the comparison. Each look has alpha / len(looks)."""
    cases: int = 1
    """The number of cases that are compared. It serves to refuse looks that can find nothing."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= _INTERVAL:
            raise ValueError(f"alpha must be above 0 and at most {_INTERVAL}, not {self.alpha}")
        if not 0 <= self.least < math.inf:
            raise ValueError(f"the least change must be 0 or more, not {self.least}")
        if (
            not self.looks
            or self.looks[0] < 1
            or any(b <= a for a, b in zip(self.looks, self.looks[1:], strict=False))
        ):
            raise ValueError(f"looks must be growing numbers of pairs, not {self.looks}")
        self.check(self.cases)

    def needed(self, cases: int) -> int:
        """Give the least number of pairs with which one look can find a change of one of `cases` cases.

        The smallest p of n pairs is 2 / 2^n. For a single change Benjamini and Hochberg require p < alpha / (looks
        cases). So the number is the ceiling of log2(2 cases looks / alpha). Raises ValueError for fewer than one
        case.
        """
        if cases < 1:
            raise ValueError(f"a comparison needs at least one case, not {cases}")
        return math.floor(math.log2(2 * cases * len(self.looks) / self.alpha)) + 1

    def check(self, cases: int) -> None:
        """Raise ValueError if the first look has too few pairs to find a change among `cases` cases."""
        if self.looks[0] < (least := self.needed(cases)):
            raise ValueError(
                f"a look at {self.looks[0]} pairs can find nothing among {cases} cases: the first look needs {least}"
            )

    def share(self, look_index: int, final: bool) -> float:
        """Give the part of the error that this look may spend: 1 / len(looks), and for a final look all that is left.

        Raises ValueError if this rule has no look of that index.
        """
        if not 0 <= look_index < len(self.looks):
            raise ValueError(f"look_index must be 0 to {len(self.looks) - 1}, not {look_index}")
        return (len(self.looks) - look_index if final else 1) / len(self.looks)


@dataclass(frozen=True)
class Outcome:
    """The result of the comparison for one case."""

    verdict: Verdict
    change: Estimate
    """The ratio B / A of times: 1.05 is 5 percent slower."""
    p: float
    """The two-sided p of the Wilcoxon signed-rank test."""
    adjusted: float
    """p adjusted across the cases, by Benjamini and Hochberg."""
    noise: float
    """The change that one of 100 A/A comparisons of this number of pairs exceeds; nan with fewer than ten A/A
    pairs."""
    detectable: float
    """The smallest slowdown that this comparison would find with probability 0.95 if it were the only change; nan as
    above, and inf if it would find no slowdown."""
    false_alarms: float
    """The share of A/A comparisons, resampled from this one's A/A pairs, that the rule flags as a change at this
    look; nan as above."""
    pairs: int
    """The number of pairs."""


def _wilcoxon(d: Array) -> float:
    """Give the two-sided p of the signed-rank test; 1 if no pair differs."""
    from scipy import stats

    return float(stats.wilcoxon(d).pvalue) if d.any() else 1.0


def _interval(d: Array, places: Array, confidence: float) -> tuple[float, float]:
    """Give the percentile interval of the Hodges-Lehmann estimate over resampled pairs (Efron 1979).

    `places`, [resamples, n or more] in [0, 1), picks the pairs. If the signed-rank test cannot reject at this
    confidence with this number of pairs, a resampled width would be misleading: the interval is then -inf to inf.
    """
    if _critical(d.size, 1 - confidence) is None:
        return -math.inf, math.inf
    centres = hodges_lehmann(d[(places[:, : d.size] * d.size).astype(np.intp)])
    low, high = np.quantile(centres, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class _Null:
    """Comparisons of pure noise: pairs resampled from the A/A pairs, each with a random sign."""

    centres: Array
    """[resamples] Hodges-Lehmann estimates, logarithms."""
    p: Array
    """[resamples] signed-rank p values."""
    needed: Array
    """[resamples] the smallest shift, a logarithm, at which the signed-rank test alone detects each at alpha /
    cases."""

    @classmethod
    def drawn(cls, null: Array, n: int, places: Array, signs: Array, level: float) -> Self:
        """Draw comparisons of n pairs; `places` in [0, 1) and `signs` are [resamples, n or more].

        Given the magnitudes, the signs are fair coins, so that the exact signed-rank distribution holds, whatever
        the order of ties between pairs that were drawn twice. A shift d is detected if enough Walsh averages exceed
        -d: the sum of the positive ranks is the number of positive Walsh averages (J. W. Tukey; Hollander, Wolfe
        and Chicken, section 3.1). So no search is needed.
        """
        magnitudes = np.abs(null)[(places[:, :n] * null.size).astype(np.intp)]
        ranks = np.argsort(np.argsort(magnitudes, axis=-1, kind="stable"), axis=-1) + 1
        positive = np.where(signs[:, :n] > 0, ranks, 0).sum(axis=-1)
        count = n * (n + 1) // 2
        p = np.minimum(2 * _signed_rank_tail(n)[np.minimum(positive, count - positive)], 1.0)
        below, above = _middle(n)
        critical = _critical(n, level)
        order = _walsh_order(magnitudes * signs[:, :n], (below, above, 0 if critical is None else critical))
        never = np.full(len(order), math.inf)
        return cls(order[:, :2].mean(axis=-1), p, never if critical is None else -order[:, 2])


def _adjusted(p: Array) -> Array:
    """Give p values of [cases, ...] adjusted across the cases (Benjamini and Hochberg 1995)."""
    from scipy import stats

    return np.asarray(stats.false_discovery_control(p, axis=0, method="bh"))


def decide_outcome(
    log_ratio: Estimate,
    p: tuple[float, float],
    rule: tuple[float, float],
    noise: tuple[float, float, float],
    pairs: int,
) -> Outcome:
    """Give the outcome of one case from its computed figures, all in logarithms.

    p is (raw, adjusted), rule (alpha, least change), noise (of A/A comparisons, detectable, false alarms). With too
    few A/A pairs, noise is nan and no change is reported.
    """
    alpha, least = rule
    margin = math.nan if math.isnan(noise[0]) else max(least, noise[0])
    verdict: Verdict = "inconclusive"
    excludes = log_ratio.low > 0 or log_ratio.high < 0
    if p[1] < alpha and excludes and abs(log_ratio.value) > margin:
        verdict = "slower" if log_ratio.value > 0 else "faster"
    elif -least < log_ratio.low and log_ratio.high < least:
        verdict = "no change"
    return Outcome(
        verdict=verdict,
        change=Estimate(*(float(np.exp(v)) for v in (log_ratio.value, log_ratio.low, log_ratio.high))),
        p=p[0],
        adjusted=p[1],
        noise=float(np.expm1(noise[0])),
        detectable=float(np.expm1(noise[1])),
        false_alarms=noise[2],
        pairs=pairs,
    )


def compare(
    pairs: Mapping[str, Pairs],
    rule: Rule,
    look_index: int,
    final: bool,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Outcome]:
    """Judge every case at one look. `final` means that no look follows, whatever this one finds.

    With share = rule.share(look_index, final), alpha = rule.alpha * share, and all effects as logarithms:

    - change: the Hodges-Lehmann estimate of log(B / A), with the percentile bootstrap interval over pairs of
      confidence 1 - 0.05 share: all looks together miss with a probability of at most 0.05.
    - p, adjusted: Wilcoxon signed-rank, then Benjamini-Hochberg across the cases.
    - noise: of comparisons of the same number of pairs, resampled from the A/A pairs with random signs, the 0.99
      quantile of |estimate|.
    - slower, faster: adjusted < alpha, the interval excludes 1, and |estimate| exceeds the larger of rule.least and
      noise. Never if the noise is unknown.
    - no change: the interval lies inside 1 / (1 + least) to 1 + least, a statement of equivalence (two one-sided
      tests, D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987) 657). The margin does not grow with the noise: a
      noisy case is inconclusive, not unchanged.
    - false_alarms: the share of the same resampled comparisons that satisfy the conditions of a change, adjusted
      across the cases of one draw. There the interval's condition follows from p < alpha, by the signed-rank interval
      of confidence 1 - alpha instead of the bootstrap.
    - detectable: a resampled comparison shifted by d is flagged from d = max(margin - estimate, the shift that the
      signed-rank test needs at alpha / cases); the 0.95 quantile of that.

    A final look spends the error of the later looks. That is valid if the end does not depend on what was seen: the
    last look, or the end of the given time. It may then have fewer pairs than planned. Seeded: the same pairs give
    the same outcome in any order of the cases. All cases use the same draws, so that effects common to the
    processes stay. Raises ValueError if a look has too few pairs for this number of cases, or if the rule has no
    such look.
    """
    share = rule.share(look_index, final)
    if not pairs:
        return {}
    rule.check(len(pairs))
    alpha, confidence, least = rule.alpha * share, 1 - _INTERVAL * share, math.log1p(rule.least)
    longest = max(case.log_ratios.size for case in pairs.values())
    rng = np.random.default_rng(seed)
    places, null_places = rng.random((2, resamples, longest))
    signs = np.where(rng.random((resamples, longest)) < 0.5, -1.0, 1.0)

    p = np.array([_wilcoxon(case.log_ratios) for case in pairs.values()])
    adjusted = _adjusted(p)
    nulls = {
        name: _Null.drawn(case.null, case.log_ratios.size, null_places, signs, alpha / len(pairs))
        for name, case in pairs.items()
        if case.null.size >= _ENOUGH and case.log_ratios.size
    }
    certain = np.ones(resamples)  # a case without A/A pairs counts as a case, and is never flagged
    null_adjusted = _adjusted(np.array([nulls[name].p if name in nulls else certain for name in pairs]))

    outcomes = {}
    for row, (name, case) in enumerate(pairs.items()):
        d = case.log_ratios
        noise = detectable = alarms = math.nan
        if (null := nulls.get(name)) is not None:
            noise = float(np.quantile(np.abs(null.centres), _NOISE))
            margin = max(least, noise)
            alarms = float(np.mean((null_adjusted[row] < alpha) & (np.abs(null.centres) > margin)))
            shifts = np.maximum(margin - null.centres, null.needed)
            detectable = float(np.quantile(shifts, _POWER, method="higher"))
        centre = float(hodges_lehmann(d)) if d.size else math.nan
        low, high = _interval(d, places, confidence) if d.size else (-math.inf, math.inf)
        outcomes[name] = decide_outcome(
            Estimate(centre, low, high),
            (float(p[row]), float(adjusted[row])),
            (alpha, least),
            (noise, detectable, alarms),
            d.size,
        )
    return outcomes


def all_decided(outcomes: Mapping[str, Outcome]) -> bool:
    """Whether every case has a clear verdict, so that a planned look may end the run."""
    return all(outcome.verdict != "inconclusive" for outcome in outcomes.values())
