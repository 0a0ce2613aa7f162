# SPDX-License-Identifier: Apache-2.0
"""Figures of samples: known values, and coverage by simulation.

Bounds of simulations: a right figure exceeds them with a probability below 1e-4 (binomial); seeds are fixed.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from meshmark.core import statistics
from meshmark.core.statistics import Estimate, LineFit, fit_line, hodges_lehmann, median, ratio, tail, tails

seeded = settings(max_examples=40, deadline=None, derandomize=True, database=None)
FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)
LISTS = st.lists(FLOATS, min_size=1, max_size=30)
RISK = 1e-4


def at_least(trials, probability):
    """The fewest hits that are likely where each trial hits with this probability."""
    return int(stats.binom.ppf(RISK, trials, probability))


def at_most(trials, probability):
    return int(stats.binom.isf(RISK, trials, probability))


# Figures of one sample.


def test_estimate():
    assert Estimate(10.0, 9.0, 12.0).relative == pytest.approx(0.15)
    assert Estimate(-10.0, -12.0, -9.0).relative == pytest.approx(0.15)
    assert Estimate(0.0, -1.0, 1.0).relative == math.inf
    assert Estimate(1.0, -math.inf, math.inf).relative == math.inf
    assert Estimate(math.nan, 0.0, math.inf).relative == math.inf


def test_median():
    """Ranks 2 and 9 of ten (David and Nagaraja's table: 0.979), 1 and 6 of six, and nothing known of five."""
    assert median(range(10, 0, -1)) == Estimate(5.5, 2.0, 9.0)
    assert median([3, 1, 2, 6, 5, 4]) == Estimate(3.5, 1.0, 6.0)
    assert median([1, 2, 3, 4, 5]) == Estimate(3.0, -math.inf, math.inf)
    assert median([7.0]) == Estimate(7.0, -math.inf, math.inf)
    assert median([1, 2, 3, 4, 5], 0.9) == Estimate(3.0, 1.0, 5.0)


@pytest.mark.parametrize("n", [6, 11, 40, 101])
def test_median_coverage(n):
    """Exactly what the binomial promises, and no less than asked, for samples that are far from normal."""
    rng, trials = np.random.default_rng(n), 1500
    found = [median(rng.exponential(1.0, n)) for _ in range(trials)]
    hits = sum(e.low <= math.log(2) <= e.high for e in found)
    r = next(r for r in range(n, 0, -1) if 2 * stats.binom.cdf(r - 1, n, 0.5) <= 0.05)
    promised = 1 - 2 * stats.binom.cdf(r - 1, n, 0.5)
    assert promised >= 0.95
    assert at_least(trials, promised) <= hits <= at_most(trials, promised)


@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.95, 0.99])
def test_the_ends_of_a_median_s_interval_are_scipy_s(confidence):
    sizes = np.arange(1, 1200)
    assert [statistics.end_rank(int(n), confidence) for n in sizes] == list(
        stats.binom.ppf((1 - confidence) / 2, sizes, 0.5)
    )


def test_scipy_is_imported_by_who_needs_it():
    """Every command and every process that is timed would wait for it."""
    code = "import sys, meshmark.timing.timer, meshmark.commands.main; print('scipy.stats' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "False"


def test_tails_are_those_of_numpy_to_the_bit():
    draw = np.random.default_rng(3)
    for n in (2, 3, 10, 40, 99, 100, 1000):
        x = (draw.gamma(2.0, size=n) * 1e-3).tolist()
        for q, found in zip((0.01, 0.1, 0.5, 0.9, 0.99), tails(x, (0.01, 0.1, 0.5, 0.9, 0.99)), strict=True):
            enough = n * min(q, 1 - q) >= 1 - 1e-9
            assert found == (float(np.quantile(x, q)) if enough else None)
    with pytest.raises(ValueError, match="finite"):
        tails([1.0, float("nan")], (0.5,))
    with pytest.raises(ValueError, match="between 0 and 1"):
        tails([1.0], (0.5, 1.0))


def test_tail():
    hundred = np.arange(100.0)
    assert tail(hundred, 0.99) == pytest.approx(98.01)
    assert tail(hundred[:99], 0.99) is None
    assert tail(hundred, 0.01) == pytest.approx(0.99)
    assert tail(hundred[:99], 0.01) is None
    assert tail(hundred, 0.999) is None
    assert tail(hundred[:10], 0.9) == pytest.approx(8.1)
    assert tail([1.0], 0.5) is None and tail([1.0, 2.0], 0.5) == 1.5
    assert tail([], 0.5) is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: median([]), "one or more"),
        (lambda: median([[1.0]]), "shape"),
        (lambda: median([1.0, math.nan]), "1 of 2"),
        (lambda: median([1.0], 1.0), "confidence"),
        (lambda: tail([1.0], 1.0), "q must"),
        (lambda: tail([1.0, math.inf], 0.5), "finite"),
        (lambda: hodges_lehmann([]), "no samples"),
        (lambda: ratio([1.0], [1.0, 2.0]), "equal in number"),
        (lambda: ratio([1.0], [0.0]), "positive"),
        (lambda: fit_line([1, 2, 3], [1.0, 2.0]), "equal in number"),
        (lambda: fit_line([1, 2, 3], [1.0, 2.0, 0.0]), "above 0"),
        (lambda: fit_line([-1, 2, 3], [1.0, 2.0, 3.0]), "at least 0"),
    ],
)
def test_refusals(call, says):
    """One line that says what is wrong."""
    with pytest.raises(ValueError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


# Hodges and Lehmann, and the signed ranks.


def brute(x):
    return float(np.median([(x[i] + x[j]) / 2 for i in range(len(x)) for j in range(i, len(x))]))


def test_hodges_lehmann():
    """Of 1, 2, 6 the Walsh averages are 1, 1.5, 2, 3.5, 4, 6."""
    assert hodges_lehmann([6.0, 1.0, 2.0]) == 2.75
    assert hodges_lehmann([5.0]) == 5.0
    x = np.random.default_rng(0).normal(size=(3, 7, 4))
    for axis in range(3):
        found = hodges_lehmann(x, axis)
        assert found.shape == np.delete(x.shape, axis).tolist() or found.shape == tuple(
            np.delete(x.shape, axis)
        )
        np.testing.assert_allclose(found, np.apply_along_axis(brute, axis, x))


@seeded
@given(LISTS, FLOATS)
def test_hodges_lehmann_properties(x, shift):
    """Equal to its definition, follows a shift and a change of sign, and lies between the extremes."""
    x = np.array(x)
    found = float(hodges_lehmann(x))
    close = pytest.approx
    assert found == close(brute(x), rel=1e-12, abs=1e-9)
    assert hodges_lehmann(x + shift) == close(found + shift, rel=1e-9, abs=1e-8)
    assert hodges_lehmann(-x) == close(-found, rel=1e-12, abs=1e-9)
    assert x.min() <= found <= x.max()


def test_hodges_lehmann_thinned():
    """Beyond 400 samples: near the exact figure, and independent of their order."""
    x = np.random.default_rng(1).exponential(1.0, 1501)
    exact = np.median(((x[:, None] + x) / 2)[np.triu_indices(len(x))])
    found = float(hodges_lehmann(x))
    assert found == pytest.approx(exact, abs=0.05 / math.sqrt(len(x)))  # a small part of the standard error
    assert hodges_lehmann(np.sort(x)) == found
    assert hodges_lehmann(x[:400]) == pytest.approx(brute(x[:400]))


@pytest.mark.parametrize("n", [1, 5, 12, 60, 200])
def test_signed_rank(n):
    """The exact distribution is scipy's; from 200 the normal one is near it."""
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.2, 0.5):
        d = rng.normal(shift, 1.0, n)
        wanted = stats.wilcoxon(d, method="exact")
        smaller = round(min(wanted.statistic, n * (n + 1) / 2 - wanted.statistic))
        assert min(2 * statistics.signed_rank_tail(n)[smaller], 1) == pytest.approx(wanted.pvalue, rel=1e-9)


def test_signed_rank_normal(monkeypatch):
    exact = statistics.signed_rank_tail(200)
    monkeypatch.setattr(statistics, "_EXACT", 199)
    normal = statistics.signed_rank_tail.__wrapped__(200)
    assert not np.array_equal(exact, normal)
    np.testing.assert_allclose(normal, exact, atol=5e-4)
    assert normal[7916] == pytest.approx(stats.norm.cdf((7916.5 - 10050) / math.sqrt(200 * 201 * 401 / 24)))


def test_ratio_known():
    """Of six pairs the interval is the whole range; of five nothing is known."""
    a, b = np.exp([0.1, 0.2, 0.3, 0.4, 0.5, 0.9]), np.ones(6)
    found = ratio(a, b)
    assert (found.low, found.high) == (pytest.approx(math.exp(0.1)), pytest.approx(math.exp(0.9)))
    assert found.value == pytest.approx(math.exp(brute(np.log(a))))
    assert ratio(a[:5], b[:5]) == Estimate(pytest.approx(math.exp(0.3)), 0.0, math.inf)
    assert ratio(b, a).low == pytest.approx(1 / found.high)


@pytest.mark.parametrize("n", [8, 20, 33])
def test_ratio_inverts_the_test(n):
    """A centre just inside the interval is not rejected by scipy's signed-rank test, one just outside is."""
    logs = np.random.default_rng(n).normal(0.1, 0.3, n)
    found = ratio(np.exp(logs), np.ones(n))
    for end, outwards in ((math.log(found.low), -1e-6), (math.log(found.high), 1e-6)):
        assert stats.wilcoxon(logs - end - outwards, method="exact").pvalue < 0.05
        assert stats.wilcoxon(logs - end + outwards, method="exact").pvalue >= 0.05


@pytest.mark.parametrize(("n", "trials"), [(7, 1000), (25, 1000), (300, 300), (900, 200)])
def test_ratio_coverage(n, trials):
    """At least 0.95 where it is exact; with ties to 0.95 where it is thinned and normal."""
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(trials):
        b = rng.lognormal(0, 0.5, n)
        found = ratio(1.1 * b * np.exp(rng.laplace(0, 0.1, n)), b)
        hits += found.low <= 1.1 <= found.high
    assert (
        at_least(trials, 0.95) <= hits <= at_most(trials, 0.985)
    )  # 2 P(T <= 2 of 28) at n = 7: 0.953 to 0.984


# Messages of many sizes.


def test_line():
    sizes = 2.0 ** np.arange(10, 31, 2)
    fit = fit_line(sizes, 20e-6 + sizes / 5e9)
    assert (fit.alpha, fit.beta) == (pytest.approx(20e-6), pytest.approx(5e9))
    np.testing.assert_allclose(fit.residuals, 0, atol=1e-9)


def test_line_is_relative():
    """Ten percent at any size moves the fit alike; least squares of seconds would lose alpha altogether."""
    sizes = 2.0 ** np.arange(10, 31, 2)
    noise = np.random.default_rng(2).normal(0, 0.02, sizes.size)
    t = (20e-6 + sizes / 5e9) * (1 + noise)
    fit = fit_line(sizes, t)
    assert fit.alpha == pytest.approx(20e-6, rel=0.05)
    assert fit.beta == pytest.approx(5e9, rel=0.05)
    np.testing.assert_allclose(fit.residuals, noise, atol=0.03)
    rows = np.stack([np.ones_like(sizes), sizes], axis=1)
    assert abs(np.linalg.lstsq(rows, t, rcond=None)[0][0] / 20e-6 - 1) > 1
    slow = t.copy()
    slow[-1] *= 1.5
    assert fit_line(sizes, slow).residuals[-1] > 0.2  # a point above the line is positive


def test_line_edges():
    assert fit_line([], []) is None
    assert fit_line([1, 2], [1.0, 2.0]) is None
    assert fit_line([1, 2, 2, 1], [1.0, 2.0, 2.0, 1.0]) is None
    falling = fit_line([1, 10, 100], [3.0, 2.0, 1.0])
    assert falling.beta == math.inf and 1 < falling.alpha < 3
    steep = fit_line([10, 20, 30], [1.0, 3.0, 5.0])  # the unbounded line starts at -1
    assert steep.alpha == 0 and steep.beta > 0
    assert isinstance(steep, LineFit) and len(steep.residuals) == 3


def series(rng, length, stay):
    """A first-order autoregression."""
    x = rng.normal(0, 1, length)
    for i in range(1, length):
        x[i] = stay * x[i - 1] + math.sqrt(1 - stay**2) * x[i]
    return x


def test_samples_that_are_like_their_neighbours_count_for_fewer():
    """12 and 24 in a row of a machine that changes slowly: the plain interval holds 0.6 of the time, this one 0.8; of
    independent samples both hold as they say."""
    rng = np.random.default_rng(2)
    held = {}
    for stay in (0.0, 0.8):
        for n in (12, 24):
            drawn = [series(rng, n + 50, stay)[50:] for _ in range(500)]
            for rule in (statistics.median, statistics.series_median):
                found = [rule(x) for x in drawn]
                held[stay, n, rule.__name__] = np.mean([e.low <= 0 <= e.high for e in found])
    for n in (12, 24):
        assert 0.95 <= held[0.0, n, "series_median"] <= 0.999
        assert held[0.8, n, "series_median"] > held[0.8, n, "median"] + 0.12
        assert held[0.8, n, "series_median"] > 0.8


def test_a_series_never_has_a_narrower_interval():
    rng = np.random.default_rng(0)
    for n in (1, 5, 6, 8, 9, 12, 30):
        for x in (rng.normal(0, 1, n), np.sort(rng.normal(0, 1, n)), np.ones(n), rng.integers(0, 2, n)):
            plain, found = statistics.median(x), statistics.series_median(x)
            assert found.value == plain.value and found.low <= plain.low and found.high >= plain.high
    rising = statistics.series_median(np.arange(12.0))
    assert (rising.low, rising.high) == (0.0, 11.0), "a machine that drifts: all that was seen"
    assert statistics.series_median(np.ones(12)) == statistics.median(np.ones(12))
    assert statistics.series_median(np.arange(5.0)).high == math.inf
