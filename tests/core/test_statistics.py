# SPDX-License-Identifier: Apache-2.0
"""Known values, coverage by simulation, and a comparison whose every condition can say no.

Bounds of simulations: a figure that is right leaves them with probability below 1e-4 (binomial); seeds are fixed.
"""

import dataclasses
import math
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from meshmark.core import statistics
from meshmark.core.statistics import (
    Estimate,
    LineFit,
    Outcome,
    Pairs,
    Rule,
    all_decided,
    compare,
    fit_line,
    hodges_lehmann,
    median,
    ratio,
    tail,
)
from tests.studies import simulated

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
    assert [statistics._end_rank(int(n), confidence) for n in sizes] == list(
        stats.binom.ppf((1 - confidence) / 2, sizes, 0.5)
    )


def test_scipy_is_imported_by_who_needs_it():
    """Every command and every process that is timed would wait for it."""
    code = "import sys, meshmark.timing.timer, meshmark.commands.main; print('scipy.stats' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "False"


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
        (lambda: Pairs([0.1, math.nan], []), "log_ratios"),
        (lambda: Pairs([0.1], [[0.1]]), "null"),
        (lambda: Pairs.of([1.0, 0.0]), "positive"),
        (lambda: Rule(alpha=0.0), "alpha"),
        (lambda: Rule(alpha=0.1), "alpha"),
        (lambda: Rule(least=-0.1), "least"),
        (lambda: Rule(looks=()), "looks"),
        (lambda: Rule(looks=(40, 20)), "growing"),
        (lambda: Rule(looks=(8, 40)), "needs 9"),
        (lambda: Rule(cases=10_000), "needs 22"),
        (lambda: Rule().needed(0), "at least one case"),
        (lambda: Rule().share(2, False), "look_index"),
        (lambda: compare({}, Rule(), -1, False), "look_index"),
        (lambda: compare(dict.fromkeys(range(10_000), None), Rule(), 0, False), "needs 22"),
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
        assert min(2 * statistics._signed_rank_tail(n)[smaller], 1) == pytest.approx(wanted.pvalue, rel=1e-9)


def test_signed_rank_normal(monkeypatch):
    exact = statistics._signed_rank_tail(200)
    monkeypatch.setattr(statistics, "_EXACT", 199)
    normal = statistics._signed_rank_tail.__wrapped__(200)
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


# The comparison.


def test_pairs():
    """A is 1, B is 2; a drift of 1 percent a process has the same size everywhere, and cancels in the pairs' sum."""
    base = np.tile([1.0, 2.0, 2.0, 1.0], 3)
    pairs = Pairs.of(base * np.exp(0.01 * np.arange(12)))
    np.testing.assert_allclose(pairs.log_ratios, math.log(2) + 0.01 * np.array([1, -1, 1, -1, 1, -1]))
    np.testing.assert_allclose(pairs.null, np.full(5, 0.01))
    assert statistics.ORDER == "ABBA"


def test_pairs_lost():
    """A lost process costs its pair and its A/A pair; the others keep their sides."""
    base = np.tile([1.0, 2.0, 2.0, 1.0], 3)
    base[6] = math.nan
    pairs = Pairs.of(base)
    np.testing.assert_allclose(pairs.log_ratios, [math.log(2)] * 5)
    np.testing.assert_allclose(pairs.null, [0.0] * 4)
    assert Pairs.of([1.0, 2.0, 2.0]).log_ratios.size == 1
    assert Pairs.of([]).log_ratios.size == Pairs.of([1.0]).null.size == 0


def test_rule():
    assert Rule(looks=(40,)).needed(1) == 8 == math.ceil(math.log2(2 / 0.01))
    assert Rule(looks=(40,)).needed(50) == 14
    assert Rule().needed(50) == 15 == math.ceil(math.log2(2 * 50 / 0.005))
    assert Rule(alpha=2.0**-7, looks=(40,)).needed(1) == 9  # 2 / 2**8 is 2**-7 itself: not below it
    for cases in (1, 3, 50, 1000):
        needed = Rule(looks=(30, 40)).needed(cases)
        assert 2 * 0.5**needed * cases < 0.005 <= 2 * 0.5 ** (needed - 1) * cases
        Rule(looks=(needed, 40), cases=cases)
        with pytest.raises(ValueError, match=f"needs {needed}"):
            Rule(looks=(needed - 1, 40), cases=cases)
    rule = Rule(looks=(20, 30, 40))
    assert [rule.share(i, False) for i in range(3)] == [1 / 3] * 3
    assert [rule.share(i, True) for i in range(3)] == [1, 2 / 3, 1 / 3]


def made(change, n=40, spread=0.03, seed=0, null=None):
    rng = np.random.default_rng(seed)
    pairs = Pairs(rng.normal(math.log1p(change), spread, n), rng.normal(0, spread, n - 1))
    return pairs if null is None else dataclasses.replace(pairs, null=null)


def judged(pairs, rule=None, look=1, final=True, **options):
    return compare({"case": pairs}, rule or Rule(), look, final, **options)["case"]


def test_compare_finds():
    for change, verdict in ((0.08, "slower"), (-0.08, "faster"), (0.0, "no change")):
        found = judged(made(change))
        assert found.verdict == verdict
        assert found.change.low < 1 + change < found.change.high
        assert found.change.low < found.change.value < found.change.high
        assert found.pairs == 40 and all_decided({"case": found})
        assert 0 < found.noise < found.detectable < 0.08 and found.false_alarms < 0.01


def test_compare_formulas():
    """The figures of an outcome are those of their sources."""
    pairs = {str(i): made(0.02 * i, seed=i) for i in range(4)}
    found = compare(pairs, Rule(), 1, True)
    p = [stats.wilcoxon(case.log_ratios).pvalue for case in pairs.values()]
    assert [o.p for o in found.values()] == p
    np.testing.assert_allclose([o.adjusted for o in found.values()], stats.false_discovery_control(p))
    for name, case in pairs.items():
        assert found[name].change.value == pytest.approx(math.exp(brute(case.log_ratios)))
    assert stats.false_discovery_control([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])  # by hand


def test_compare_repeats():
    """The same pairs give the same outcome, twice, and in another order of cases."""
    pairs = {str(i): made(0.02 * i, n=20 + i, seed=i) for i in range(4)}
    found = compare(pairs, Rule(), 1, True)
    assert found == compare(pairs, Rule(), 1, True)
    assert found == compare(dict(reversed(pairs.items())), Rule(), 1, True)
    assert found != compare(pairs, Rule(), 1, True, seed=1)
    assert compare({}, Rule(), 0, False) == {} and all_decided({})


def test_margin():
    """A certain change of 2 percent is no news to a rule of 3, and one to a rule without that margin."""
    pairs = made(0.02, spread=0.005)
    assert judged(pairs).p < 1e-6
    assert judged(pairs).verdict == "no change"
    assert judged(pairs, Rule(least=0.0)).verdict == "slower"


def test_margin_flags_less():
    """Over many comparisons whose truth is 2 percent: with the margin hardly any is flagged, without it most."""
    trials = 30
    flagged = {
        least: sum(
            judged(made(0.02, seed=s), Rule(least=least), resamples=300).verdict == "slower"
            for s in range(trials)
        )
        for least in (0.0, 0.03)
    }
    assert flagged[0.03] <= at_most(trials, 0.05) < flagged[0.0]


def test_noise():
    """A change inside what A/A comparisons of that very case give is not reported, however certain."""
    pairs = made(0.08)
    wild = dataclasses.replace(pairs, null=20 * pairs.null)
    assert judged(pairs).verdict == "slower"
    assert judged(wild).noise > 0.08 and judged(wild).verdict == "inconclusive"


def test_unknown_noise():
    """Fewer than ten A/A pairs: nan, never a made-up number, and no change is reported."""
    pairs = made(0.08)
    few = dataclasses.replace(pairs, null=pairs.null[:9])
    enough = dataclasses.replace(pairs, null=pairs.null[:10])
    found = judged(few)
    assert all(math.isnan(v) for v in (found.noise, found.detectable, found.false_alarms))
    assert found.verdict == "inconclusive" and judged(enough).verdict == "slower"
    assert (
        judged(dataclasses.replace(made(0.0), null=[])).verdict == "no change"
    )  # the interval says so by itself


def test_too_few_pairs():
    """Whatever their size, few pairs prove nothing and have no interval; no pairs have no figure at all."""
    null = made(0.0).null
    found = judged(made(0.5, n=5, null=null))
    assert (found.verdict, found.change.low, found.change.high) == ("inconclusive", 0.0, math.inf)
    assert found.detectable == math.inf and not all_decided({"case": found})
    nearly = judged(made(0.5, n=7, null=null), Rule(), 0, True)
    assert nearly.change.low > 1.1 and nearly.p == 2 / 2**7 > 0.01 and nearly.verdict == "inconclusive"
    assert judged(made(0.5, n=8, null=null), Rule(), 0, True).verdict == "slower"
    none = judged(Pairs([], null))
    assert (
        none.verdict == "inconclusive" and none.p == 1 and none.pairs == 0 and math.isnan(none.change.value)
    )
    assert (none.change.low, none.change.high) == (0.0, math.inf) and math.isnan(none.noise)


def test_a_look_has_its_share():
    """p = 2 / 2**8 lies between a half of 0.01 and the whole: enough for the last look of all, not for one of two."""
    pairs = made(0.5, n=8, null=made(0.0).null)
    assert 0.005 < judged(pairs).p < 0.01
    assert judged(pairs, look=0, final=False).verdict == "inconclusive"
    assert judged(pairs, look=1, final=True).verdict == "inconclusive"
    assert judged(pairs, look=0, final=True).verdict == "slower"
    assert judged(pairs, Rule(looks=(20,)), look=0, final=False).verdict == "slower"


def test_many_cases_ask_for_more():
    """A p that is enough alone is not among fifty: Benjamini and Hochberg."""
    n = 10
    alone = made(0.5, n=n, null=made(0.0).null)
    others = {str(i): made(0.0, n=20, seed=i + 1) for i in range(49)}
    rule = Rule(looks=(20, 40), cases=50)
    assert judged(alone).verdict == "slower"
    among = compare({"case": alone, **others}, rule, 1, True)["case"]
    assert among.p == 2 / 2**n and among.adjusted == pytest.approx(50 * among.p)
    assert among.verdict == "inconclusive"
    assert among.detectable == math.inf > judged(alone).detectable


def test_interval_must_agree():
    """Where the signed ranks see a change and the resampled interval does not, none is reported."""
    d = np.concatenate([0.01 * np.arange(1, 12) / 11, [-1.0, -1.001], [1.1, 1.11]])
    assert stats.wilcoxon(d).pvalue < 0.05
    found = judged(Pairs(d, np.full(20, 1e-9)), Rule(alpha=0.05, least=0.0, looks=(15,)), 0)
    assert found.adjusted < 0.05 and found.change.value > 1 + found.noise and found.change.low < 1
    assert found.verdict == "inconclusive"


def test_no_change_needs_a_narrow_interval():
    """A noisy case is inconclusive: the margin of equivalence is 3 percent, and not what the noise makes of it."""
    found = judged(made(0.0, spread=0.2))
    assert found.noise > 0.05 and found.verdict == "inconclusive"


def test_identical():
    """Times that do not differ at all are no change, without a warning or a nan."""
    found = judged(Pairs(np.zeros(40), np.zeros(39)))
    assert found == Outcome("no change", Estimate(1.0, 1.0, 1.0), 1.0, 1.0, 0.0, found.detectable, 0.0, 40)
    assert found.detectable == pytest.approx(0.03)


@pytest.mark.parametrize("n", [15, 40])
def test_null_against_scipy(n):
    """The vectorized comparisons of A/A pairs are those that scipy and the definitions give, one by one."""
    rng = np.random.default_rng(n)
    null, rows, level = rng.normal(0, 0.03, n), 25, 0.005
    order = np.stack([rng.permutation(n) for _ in range(rows)])
    signs = rng.choice([-1.0, 1.0], (rows, n))
    found = statistics._Null.drawn(null, n, (order + 0.5) / n, signs, level)
    for row, d in enumerate(np.abs(null)[order] * signs):
        assert found.centres[row] == pytest.approx(brute(d))
        assert found.p[row] == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
        for shift, seen in ((found.needed[row] - 1e-9, False), (found.needed[row] + 1e-9, True)):
            shifted = stats.wilcoxon(d + shift, method="exact", alternative="greater")
            assert (2 * shifted.pvalue < level) == seen


def test_detectable_by_search():
    """Bisection over shifted comparisons, each judged by scipy, finds the same smallest change."""
    pairs, rule = made(0.0, n=20), Rule(looks=(20,))
    found = judged(pairs, rule, 0)
    rng = np.random.default_rng(5)
    margin = math.log1p(max(found.noise, rule.least))
    k = pairs.null.size
    trials = 400
    drawn = np.abs(pairs.null)[rng.integers(0, k, (trials, 20))] * rng.choice([-1.0, 1.0], (trials, 20))
    centres = np.array([brute(d) for d in drawn])

    def power(shift):
        p = stats.wilcoxon(drawn + shift, axis=-1).pvalue
        return np.mean((p < 0.01) & (centres + shift > margin))

    shift = math.log1p(found.detectable)
    # Other draws than compare's: 0.95 within four standard errors, and a tenth of a change away it is another figure.
    assert abs(power(shift) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)
    assert power(0.8 * shift) < 0.85


def test_false_alarms():
    """One A/A comparison in a hundred exceeds the noise; the test and its adjustment leave fewer of those, not none."""
    rule = Rule(alpha=0.05, least=0.0, looks=(20,))
    alone = [judged(made(0.0, n=20, seed=s), rule, 0).false_alarms for s in range(10)]
    assert 0.005 < np.mean(alone) <= 0.01
    among = compare({str(s): made(0.0, n=20, seed=s) for s in range(20)}, rule, 0, True)
    assert 0 < np.mean([o.false_alarms for o in among.values()]) < 0.005
    assert judged(made(0.0, n=20), dataclasses.replace(rule, least=0.1), 0).false_alarms == 0


def test_interval_coverage():
    """The bootstrap interval of 20 pairs, nominally 0.95 for one look that is all: no less than 0.92."""
    trials, rule = 400, Rule(looks=(20,))
    hits = 0
    for seed in range(trials):
        found = judged(made(0.05, n=20, seed=seed), rule, 0, resamples=400).change
        hits += found.low <= 1.05 <= found.high
    assert at_least(trials, 0.92) <= hits <= at_most(trials, 0.97)


def test_fast():
    """Fifty cases of 40 pairs with 1000 resamples; 1.5 s were measured on one core of two."""
    pairs = {str(i): made(0.0, seed=i) for i in range(50)}
    began = time.process_time()
    compare(pairs, Rule(cases=50), 1, True)
    assert time.process_time() - began < 15


# Simulated machines: docs/comparing.md in small.


def test_simulated_machine():
    """The machine varies as it says."""
    rng = np.random.default_rng(0)
    samples = simulated.MACHINE.samples(rng, 50)
    medians = np.log(np.median(samples, axis=-1))
    assert medians.std() == pytest.approx(math.hypot(0.03, 0.03 * 1.25 / math.sqrt(20)), rel=0.05)
    within = samples / np.median(samples, axis=-1, keepdims=True)
    assert 0.035 < np.mean(within > 1.1) < 0.05  # most of the 5 percent of spikes
    steps = np.array([np.log(simulated.MACHINE.walk(rng))[-1] for _ in range(400)])
    assert steps.std() == pytest.approx(0.05, rel=0.15)


def test_simulated_order():
    """Each process of A and B stands once in the sequence, at an A or at a B."""
    samples = np.ones((1, 2, simulated.PROCESSES, simulated.SAMPLES))
    samples[:, 1] *= 1.5
    found, used = simulated.paired(samples, np.ones(2 * simulated.PROCESSES), simulated.RULE)
    assert found["0"].verdict == "slower" and used == 20
    assert found["0"].change.value == pytest.approx(1.5) and found["0"].noise == 0


def test_simulated_rates():
    """A/A at most 1 percent, early stopping included; +5 percent found in at least 95 percent."""
    trials = 60
    calm, _, _ = simulated.ours(0.0, trials, 1)
    found, _, used = simulated.ours(0.05, trials, 2)
    assert calm.flagged <= at_most(trials, 0.01)
    assert found.slower >= at_least(trials, 0.95)
    assert found.flagged == found.slower
    assert 20 <= np.mean(used) < 30


def test_simulated_promise():
    """What is called detectable is found in 95 percent: what an A/A comparison says holds in the next one."""
    trials = 30
    assert simulated.promised(1.0, trials, 3).slower >= at_least(trials, 0.9)
    assert simulated.promised(0.5, 10, 3).slower < at_least(10, 0.9)


def test_simulated_others():
    """The other tools' own code sees a change of one half, none where there is none, and asv a gain too."""
    pytest.importorskip("asv")
    pytest.importorskip("pytest_benchmark")
    samples = simulated.MACHINE.samples(np.random.default_rng(0))
    a = samples[0, 0, :2, :5]
    assert [simulated.asv_verdict(a, a * f, 1.1) for f in (1.0, 1.5, 0.6)] == [" ", "+", "-"]
    assert [simulated.benchmark_verdict(a[0], a[0] * f) for f in (1.0, 1.5, 0.6)] == [" ", "+", " "]
    tallies = simulated.others(0.5, 2, 0)
    assert len(tallies) == 10 and all(t.slower == t.trials == 2 for t in tallies.values())
