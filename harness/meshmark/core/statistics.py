# SPDX-License-Identifier: Apache-2.0
"""Computes figures of samples: medians and ratios of pairs with their intervals, tails, and lines over sizes.

This module is plain arithmetic: numpy and scipy, no JAX, and no other module of this project. Times are in seconds,
sizes in bytes, changes are relative (0.03 is 3 percent) unless a name says log. No sample is ever removed. scipy is
imported where it is used: it takes longer to import than JAX, and most commands and all timed processes do not need
it.

Sources: J. L. Hodges and E. L. Lehmann, Estimates of location based on rank tests, Ann. Math. Statist. 34 (1963) 598;
F. Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945) 80; M. Hollander, D. A. Wolfe and
E. Chicken, Nonparametric statistical methods, 3rd ed., Wiley 2014; R. J. Hyndman and Y. Fan, Sample quantiles in
statistical packages, Am. Statist. 50 (1996) 361.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Floats = Sequence[float] | npt.NDArray[np.floating]

_THINNED = 400  # a larger sample is replaced by this number of its quantiles: 80,200 Walsh averages
_EXACT = 200  # the most pairs for which the signed-rank distribution is summed exactly
_BLOCK = 2_000_000  # Walsh averages in memory at a time: 16 MB


@dataclass(frozen=True)
class Estimate:
    """A figure with its confidence interval (`middle_half`: with the middle half of its sample); an end that the sample
    cannot determine is infinite."""

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


def inside(value: float, name: str) -> float:
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
    r = end_rank(x.size, inside(confidence, "confidence"))
    low, high = (x[r - 1], x[-r]) if r else (-math.inf, math.inf)
    return Estimate(float((x[(x.size - 1) // 2] + x[x.size // 2]) / 2), float(low), float(high))


def middle_half(samples: Floats) -> Estimate:
    """The median of a sample between its quartiles, infinite for fewer than four numbers: how the sample spreads, and
    no claim about another one. ValueError for what _sample refuses."""
    x = _sample(samples)
    low, high = np.quantile(x, (0.25, 0.75)) if x.size >= 4 else (-math.inf, math.inf)
    return Estimate(float(np.median(x)), float(low), float(high))


def series_median(samples: Floats, confidence: float = 0.95) -> Estimate:
    """Give `median` of samples, in the order in which they were taken, that may resemble their neighbours.

    On a machine with slow and fast hours, twelve processes in a row count as fewer than twelve independent ones. So the
    interval is that of n (1 - r) / (1 + r) samples, r being the first autocorrelation of the ranks (without its bias of
    -1 / n), and of no fewer samples than an interval needs. It is never narrower than that of `median`. It does not
    cover hours in which no sample was taken.
    """
    x = _sample(samples)
    plain = median(x, confidence)
    rank = end_rank(x.size, confidence)
    if rank < 2:
        return plain
    order = np.sort(x)
    places = (
        np.searchsorted(order, x, "left") + np.searchsorted(order, x, "right") - x.size
    )  # twice, without its mean
    if not places.any():
        return plain
    r = float(places[1:] @ places[:-1] / (places @ places)) + 1 / x.size
    count = min(x.size, math.floor(x.size * (1 - r) / (1 + r)))
    if count >= x.size:
        return plain
    while not end_rank(count, confidence):
        count += 1
    rank = min(rank, max(1, math.floor((end_rank(count, confidence) - 0.5) * x.size / count + 0.5)))
    return Estimate(plain.value, float(order[rank - 1]), float(order[-rank]))


@functools.cache
def end_rank(n: int, confidence: float) -> int:
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
    return tails(samples, (q,))[0]


def tails(samples: Floats, levels: Sequence[float]) -> list[float | None]:
    """Give `tail` for each of these quantiles.

    The samples are sorted once, and the values are those of np.quantile, which takes ten times as long.
    """
    for q in levels:
        inside(q, "q")
    most = max(min(q, 1 - q) for q in levels)
    if len(samples) * most < _ENOUGH:
        return [None] * len(levels)
    x = np.sort(_sample(samples)).tolist()
    return [_between(x, q) if len(x) * min(q, 1 - q) >= _ENOUGH else None for q in levels]


_ENOUGH = 1 - 1e-9
"""Samples beyond a quantile that determine it: rounding makes 100 * (1 - 0.99) a little less than 1."""


def _between(ordered: Sequence[float], q: float) -> float:
    """The quantile q of ordered samples, linear between the two that are next to it, as NumPy rounds it."""
    place = (len(ordered) - 1) * q
    below = int(place)
    share, low = place - below, ordered[below]
    high = ordered[min(below + 1, len(ordered) - 1)]
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


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


def walsh_order(x: Array, places: Sequence[int]) -> Array:
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


def middle(n: int) -> tuple[int, int]:
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
    return np.asarray(walsh_order(rows, middle(rows.shape[-1])).mean(axis=-1).reshape(moved.shape[:-1]))


@functools.lru_cache(maxsize=64)
def signed_rank_tail(n: int) -> Array:
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


def critical(n: int, level: float) -> int | None:
    """Give the largest t with 2 P(T <= t) < level, or None if no outcome of n pairs is that rare."""
    below = int(np.searchsorted(2 * signed_rank_tail(n), level, side="left")) - 1
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
    smallest = critical(logs.size, 1 - inside(confidence, "confidence"))
    thin = _thinned(logs)
    below, above = middle(thin.size)
    if smallest is None:
        return Estimate(math.exp(walsh_order(thin[None], (below, above)).mean()), 0.0, math.inf)
    averages, all_averages = (n * (n + 1) // 2 for n in (thin.size, logs.size))
    # Rank `smallest` (from 0) is the smallest Walsh average that is not rejected: as many averages lie below it.
    rank = smallest if averages == all_averages else int(smallest / all_averages * averages)
    found = walsh_order(thin[None], (below, above, rank, averages - 1 - rank))[0]
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
