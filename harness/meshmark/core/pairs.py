# SPDX-License-Identifier: Apache-2.0
"""Compares two environments by pairs of processes: the rule, its noise, and the changes that it can detect.

In a comparison the process is the replicate. Each pair is one process of A and one of B, in an order that is drawn at
random: a fixed order resonates with a disturbance of the same period. Each process gives one figure. The two processes
of one environment in two neighbouring pairs are an A/A pair of that comparison, and need no extra runs.
docs/comparing.md shows how the rule behaves on simulated machines.

This module is plain arithmetic, as meshmark.core.statistics is; scipy is imported where it is used.

Sources: F. Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945) 80; Y. Benjamini and
Y. Hochberg, Controlling the false discovery rate, J. R. Statist. Soc. B 57 (1995) 289; M. Hollander, D. A. Wolfe and
E. Chicken, Nonparametric statistical methods, 3rd ed., Wiley 2014.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from meshmark.core.statistics import (
    Array,
    Estimate,
    Floats,
    critical,
    hodges_lehmann,
    middle,
    signed_rank_tail,
    walsh_order,
)

Verdict = Literal["slower", "faster", "no change", "inconclusive"]

BLOCK = 2
"""Neighbouring pairs that give A/A pairs: one of A and one of B."""

_ENOUGH = 10  # the fewest A/A pairs: their spread is then known to 1 / sqrt(2 * 10) = 22 percent
_EXACT = 200  # the most pairs for which the signed ranks are summed exactly
INTERVAL = 0.05  # all looks together: the probability that an interval misses is at most this
_NOISE = 0.99  # the noise of a comparison is this quantile of its A/A estimates
_LIMIT = 0.95  # the confidence of an upper limit of a share
_POWER = 0.95  # a detectable change is found with this probability


@dataclass(frozen=True)
class Pairs:
    """The comparison of two environments by the processes of one case, as natural logarithms of ratios of times."""

    log_ratios: Array
    """[n] log(B / A) of neighbouring processes of the two environments."""
    null: Array
    """[k] log ratios of two processes of the same environment, from neighbouring pairs."""

    def __post_init__(self) -> None:
        for name in ("log_ratios", "null"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or not np.isfinite(values).all():
                raise ValueError(f"{name} must be a list of finite numbers: leave out lost processes")
            object.__setattr__(self, name, values)

    @property
    def residuals(self) -> Array:
        """[n] what is left of the log ratios without the change: how much pairs themselves differ."""
        return self.log_ratios - hodges_lehmann(self.log_ratios) if self.log_ratios.size else self.log_ratios

    @classmethod
    def of(cls, a: Floats, b: Floats) -> Self:
        """Make pairs of one figure per process: a[i] and b[i] are of pair i, in the order in which pairs ran.

        Pairs 2j and 2j + 1 give two A/A pairs, one of each environment; no process is in two of them. A lost process is
        nan: it costs its pair and its A/A pair. Raises ValueError for lists of unequal length and for a figure
        that is not positive.
        """
        first, second = (np.asarray(x, dtype=np.float64) for x in (a, b))
        if first.shape != second.shape or first.ndim != 1:
            raise ValueError("the figures of A and B must be two lists of equal length")
        if any((x <= 0).any() or np.isinf(x).any() for x in (first, second)):
            raise ValueError("seconds must be positive numbers, nan for a lost process")
        logs = np.log(np.stack([first, second]))
        between = logs[1] - logs[0]
        blocks = logs[:, : logs.shape[1] // BLOCK * BLOCK].reshape(2, -1, BLOCK)
        same = (blocks[..., 1] - blocks[..., 0]).T.ravel()
        return cls(between[np.isfinite(between)], same[np.isfinite(same)])


@dataclass(frozen=True)
class Rule:
    """The rule by which a change is reported. It is fixed before the first sample."""

    alpha: float = 0.005
    """The share of false discoveries of the whole comparison, over all its looks; at most 0.05. In random order the
    test is exact, so at 0.01 some kinds of noise flag one run in a hundred; half of it keeps all of them below."""
    least: float = 0.03
    """A change smaller than this is not reported: 0.03 is a ratio above 1.03 or below 1 / 1.03."""
    looks: tuple[int, ...] = (20, 40)
    """The numbers of pairs at which a look may end the comparison. Each look has alpha / len(looks)."""
    cases: int = 1
    """The number of cases that are compared. It serves to refuse looks that can find nothing."""
    earlier: int = 0
    """How often these pairs were judged to an end before, and gone on with: each such end was a look that nobody had
    planned. What may be spent is halved each time, so that all of them together spend at most twice alpha."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= INTERVAL:
            raise ValueError(f"alpha must be above 0 and at most {INTERVAL}, not {self.alpha}")
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
        return math.floor(math.log2(2 * cases * len(self.looks) * 2**self.earlier / self.alpha)) + 1

    def check(self, cases: int) -> None:
        """Raise ValueError if the first look has too few pairs to find a change among `cases` cases."""
        if self.looks[0] < (least := self.needed(cases)):
            raise ValueError(
                f"a look at {self.looks[0]} pairs can find nothing among {cases} cases: the first look needs {least}"
            )

    def share(self, look_index: int, final: bool) -> float:
        """Give the part of the error that this look may spend: 1 / len(looks), and for a final look all that is left;
        half of it for each earlier end.

        Raises ValueError if this rule has no look of that index.
        """
        if not 0 <= look_index < len(self.looks):
            raise ValueError(f"look_index must be 0 to {len(self.looks) - 1}, not {look_index}")
        return (len(self.looks) - look_index if final else 1) / len(self.looks) / 2**self.earlier


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


def signed_rank_p(d: Array) -> float:
    """Give the exact two-sided p of the signed-rank test of [n], also with ties; 1 if no pair differs.

    Given the magnitudes, each of the 2**n choices of signs is equally likely, because the order of a pair is drawn at
    random. Zeros are left out, and equal magnitudes share the mean of their ranks (Hollander, Wolfe and Chicken,
    section 3.1; scipy uses the normal approximation for samples with ties). Beyond 200 pairs the normal approximation
    is used.
    """
    from scipy import stats

    d = d[d != 0]
    if d.size > _EXACT:
        return float(stats.wilcoxon(d, method="asymptotic", correction=True).pvalue)
    doubled = np.rint(2 * stats.rankdata(np.abs(d))).astype(np.intp)  # shared ranks end in a half
    total = int(doubled.sum())
    mass = np.zeros(total + 1)
    mass[0] = 1.0
    for rank in doubled:
        mass[rank:] = mass[rank:] + mass[:-rank]
        mass /= 2
    positive = int(doubled[d > 0].sum())
    return min(1.0, 2 * float(mass[: min(positive, total - positive) + 1].sum()))


def interval(d: Array, confidence: float) -> tuple[float, float]:
    """Give the interval that the signed-rank test does not reject, between Walsh averages (Hollander, Wolfe and
    Chicken, section 3.3); -inf to inf if this number of pairs cannot reject anything at this confidence.

    It is exact at every number of pairs, as the test is. Resampled pairs gave less than they claimed: 0.915 instead of
    0.95 with 8 and 12 pairs, 0.96 instead of 0.975 with 20.
    """
    smallest = critical(d.size, 1 - confidence)
    if smallest is None:
        return -math.inf, math.inf
    count = d.size * (d.size + 1) // 2
    low, high = walsh_order(d[None], (smallest, count - 1 - smallest))[0]
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
        p = np.minimum(2 * signed_rank_tail(n)[np.minimum(positive, count - positive)], 1.0)
        below, above = middle(n)
        rank = critical(n, level)
        order = walsh_order(magnitudes * signs[:, :n], (below, above, 0 if rank is None else rank))
        never = np.full(len(order), math.inf)
        return cls(order[:, :2].mean(axis=-1), p, never if rank is None else -order[:, 2])


def adjust(p: Array) -> Array:
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


def compare_pairs(
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

    - change: the Hodges-Lehmann estimate of log(B / A), with the exact signed-rank interval over pairs of confidence
      1 - 0.05 share: all looks together miss with a probability of at most 0.05.
    - p, adjusted: Wilcoxon signed-rank, then Benjamini-Hochberg across the cases.
    - noise: of comparisons of the same number of pairs, resampled from the A/A pairs with random signs, the 0.99
      quantile of |estimate|; or of those resampled from the pairs' own deviations, where these are larger. A long
      process that a short one follows makes neighbours differ more than A/A pairs, which lie further apart.
    - slower, faster: adjusted < alpha, the interval excludes 1, and |estimate| exceeds the larger of rule.least and
      noise. Never if the noise is unknown.
    - no change: the interval lies inside 1 / (1 + least) to 1 + least, a statement of equivalence (two one-sided
      tests, D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987) 657). The margin does not grow with the noise: a
      noisy case is inconclusive, not unchanged.
    - false_alarms: the share of the same resampled comparisons that satisfy the conditions of a change, adjusted
      across the cases of one draw. The interval's condition follows from p < alpha.
    - detectable: a resampled comparison shifted by d is flagged from d = max(margin - estimate, the shift that the
      signed-rank test needs at alpha / cases); the 0.95 quantile of that, and the larger one of both kinds of noise.

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
    alpha, confidence, least = rule.alpha * share, 1 - INTERVAL * share, math.log1p(rule.least)
    longest = max(case.log_ratios.size for case in pairs.values())
    rng = np.random.default_rng(seed)
    null_places = rng.random((resamples, longest))
    signs = np.where(rng.random((resamples, longest)) < 0.5, -1.0, 1.0)

    p = np.array([signed_rank_p(case.log_ratios) for case in pairs.values()])
    adjusted = adjust(p)
    draw = functools.partial(_Null.drawn, places=null_places, signs=signs, level=alpha / len(pairs))
    nulls = {
        name: [draw(x, case.log_ratios.size) for x in (case.null, case.residuals)]
        for name, case in pairs.items()
        if case.null.size >= _ENOUGH and case.log_ratios.size
    }
    certain = np.ones(resamples)  # a case without A/A pairs counts as a case, and is never flagged
    null_adjusted = adjust(np.array([nulls[name][0].p if name in nulls else certain for name in pairs]))

    outcomes = {}
    for row, (name, case) in enumerate(pairs.items()):
        d = case.log_ratios
        noise = detectable = alarms = math.nan
        if name in nulls:
            noise = max(float(np.quantile(np.abs(null.centres), _NOISE)) for null in nulls[name])
            margin = max(least, noise)
            alarms = float(np.mean((null_adjusted[row] < alpha) & (np.abs(nulls[name][0].centres) > margin)))
            detectable = max(
                float(np.quantile(np.maximum(margin - null.centres, null.needed), _POWER, method="higher"))
                for null in nulls[name]
            )
        centre = float(hodges_lehmann(d)) if d.size else math.nan
        low, high = interval(d, confidence) if d.size else (-math.inf, math.inf)
        outcomes[name] = decide_outcome(
            Estimate(centre, low, high),
            (float(p[row]), float(adjusted[row])),
            (alpha, least),
            (noise, detectable, alarms),
            d.size,
        )
    return outcomes


def unchanged(
    pairs: Mapping[str, Pairs],
    rule: Rule,
    look_index: int,
    final: bool,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[int, int]:
    """Apply the rule to real A/A pairs, and give (cases flagged, cases judged).

    Each case's A/A pairs are judged as pairs of A and B. Which of the two processes is called B is drawn at random,
    alike for all cases. Nothing is resampled, so the result includes what the machine did between the processes. A case
    with too few A/A pairs to flag anything is not judged. Raises ValueError as `compare_pairs` does.
    """
    enough = {name: case for name, case in pairs.items() if case.null.size >= max(_ENOUGH, rule.needed(1))}
    longest = max((case.null.size for case in enough.values()), default=0)
    signs = np.where(np.random.default_rng([seed, longest]).random(longest) < 0.5, -1.0, 1.0)
    called = {name: Pairs(case.null * signs[: case.null.size], case.null) for name, case in enough.items()}
    outcomes = compare_pairs(called, rule, look_index, final, resamples=resamples, seed=seed)
    return sum(o.verdict in ("slower", "faster") for o in outcomes.values()), len(outcomes)


def upper_limit(hits: int, trials: int) -> float:
    """Give the exact one-sided upper limit of a share, from `hits` in `trials` independent trials.

    Its confidence is 0.95. Without trials it is 1.

    Source: C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404. Raises ValueError for hits outside 0 to trials.
    """
    from scipy import stats

    if not 0 <= hits <= trials:
        raise ValueError(f"hits must lie between 0 and the number of trials {trials}, not {hits}")
    if hits == trials:
        return 1.0
    return float(stats.beta.ppf(_LIMIT, hits + 1, trials - hits))


def detectable_before(spread: float, pairs: int, rule: Rule, cases: int, resamples: int = 1000) -> float:
    """Give the smallest slowdown that this many pairs find with probability 0.95, before the first sample.

    spread: the standard deviation of log times of identical processes, which are taken as normal and independent.
    The look is the last one of the rule. 0.1 is 10 percent; inf if this many pairs find nothing.
    """
    rng = np.random.default_rng(0)
    places = (np.arange(pairs) + rng.random((resamples, pairs))) / pairs
    normal = rng.normal(0, spread * math.sqrt(2), 10_000)
    signs = np.where(rng.random((resamples, pairs)) < 0.5, -1.0, 1.0)
    level = rule.alpha * rule.share(len(rule.looks) - 1, True) / cases
    null = _Null.drawn(normal, pairs, places, signs, level)
    margin = max(math.log1p(rule.least), float(np.quantile(np.abs(null.centres), _NOISE)))
    return float(
        np.expm1(np.quantile(np.maximum(margin - null.centres, null.needed), _POWER, method="higher"))
    )


def all_decided(outcomes: Mapping[str, Outcome]) -> bool:
    """Whether every case has a clear verdict, so that a planned look may end the run."""
    return all(outcome.verdict != "inconclusive" for outcome in outcomes.values())
