# SPDX-License-Identifier: Apache-2.0
"""The comparison of two environments: every condition of the rule matters, and its rates on simulated machines.

Bounds of simulations: a right figure exceeds them with a probability below 1e-4 (binomial); seeds are fixed.
"""

import dataclasses
import itertools
import math
import time
from functools import partial

import numpy as np
import pytest
from scipy import stats

from meshmark.core import pairs as comparison
from meshmark.core.pairs import (
    Outcome,
    Pairs,
    Rule,
    all_decided,
    compare_pairs,
    detectable_before,
    unchanged,
    upper_limit,
)
from meshmark.core.statistics import Estimate
from tests.studies import noise, simulated

RISK = 1e-4

percent = partial(Rule, alpha=0.01)
"""The rule of most tests: shares of one percent are easily computed by hand."""


def at_least(trials, probability):
    """The fewest hits that are likely where each trial hits with this probability."""
    return int(stats.binom.ppf(RISK, trials, probability))


def at_most(trials, probability):
    return int(stats.binom.isf(RISK, trials, probability))


def brute(x):
    return float(np.median([(x[i] + x[j]) / 2 for i in range(len(x)) for j in range(i, len(x))]))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Pairs([0.1, math.nan], []), "log_ratios"),
        (lambda: Pairs([0.1], [[0.1]]), "null"),
        (lambda: Pairs.of([1.0, 0.0], [1.0, 1.0]), "positive"),
        (lambda: Pairs.of([1.0], [1.0, 1.0]), "equal length"),
        (lambda: Rule(alpha=0.0), "alpha"),
        (lambda: Rule(alpha=0.1), "alpha"),
        (lambda: percent(least=-0.1), "least"),
        (lambda: percent(looks=()), "looks"),
        (lambda: percent(looks=(40, 20)), "growing"),
        (lambda: percent(looks=(8, 40)), "needs 9"),
        (lambda: percent(cases=10_000), "needs 22"),
        (lambda: percent().needed(0), "at least one case"),
        (lambda: percent().share(2, False), "look_index"),
        (lambda: compare_pairs({}, percent(), -1, False), "look_index"),
        (lambda: compare_pairs(dict.fromkeys(range(10_000), None), percent(), 0, False), "needs 22"),
        (lambda: upper_limit(3, 2), "hits"),
    ],
)
def test_refusals(call, says):
    """One line that says what is wrong."""
    with pytest.raises(ValueError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


# The comparison.


def test_pairs():
    """A is 1, B is 2; the A/A pairs are A and A, B and B, of pairs 0 and 1, then of 2 and 3."""
    drift = np.exp(0.01 * np.arange(5))
    found = Pairs.of(drift, 2 * drift)
    np.testing.assert_allclose(found.log_ratios, [math.log(2)] * 5)
    np.testing.assert_allclose(found.null, [0.01] * 4)
    uneven = Pairs.of([1.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 4.0])
    np.testing.assert_allclose(np.exp(uneven.null), [2.0, 1.0, 1.0, 4.0])


def test_pairs_lost():
    """A lost process costs its pair and its A/A pair; the others keep their sides."""
    found = Pairs.of([1.0, 1.0, 1.0, math.nan, 1.0, 1.0], [2.0] * 6)
    np.testing.assert_allclose(found.log_ratios, [math.log(2)] * 5)
    np.testing.assert_allclose(found.null, [0.0] * 5)
    assert Pairs.of([1.0, math.nan], [2.0, 2.0]).null.size == 1
    assert Pairs.of([], []).log_ratios.size == Pairs.of([1.0], [1.0]).null.size == 0


def test_rule():
    assert percent(looks=(40,)).needed(1) == 8 == math.ceil(math.log2(2 / 0.01))
    assert percent(looks=(40,)).needed(50) == 14
    assert percent().needed(50) == 15 == math.ceil(math.log2(2 * 50 / 0.005))
    assert Rule(alpha=2.0**-7, looks=(40,)).needed(1) == 9  # 2 / 2**8 is 2**-7 itself: not below it
    for cases in (1, 3, 50, 1000):
        needed = percent(looks=(30, 40)).needed(cases)
        assert 2 * 0.5**needed * cases < 0.005 <= 2 * 0.5 ** (needed - 1) * cases
        percent(looks=(needed, 40), cases=cases)
        with pytest.raises(ValueError, match=f"needs {needed}"):
            percent(looks=(needed - 1, 40), cases=cases)
    rule = percent(looks=(20, 30, 40))
    assert [rule.share(i, False) for i in range(3)] == [1 / 3] * 3
    assert [rule.share(i, True) for i in range(3)] == [1, 2 / 3, 1 / 3]


def made(change, n=40, spread=0.03, seed=0, null=None):
    rng = np.random.default_rng(seed)
    pairs = Pairs(rng.normal(math.log1p(change), spread, n), rng.normal(0, spread, n - 1))
    return pairs if null is None else dataclasses.replace(pairs, null=null)


def judged(pairs, rule=None, look=1, final=True, **options):
    return compare_pairs({"case": pairs}, rule or percent(), look, final, **options)["case"]


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
    found = compare_pairs(pairs, percent(), 1, True)
    p = [stats.wilcoxon(case.log_ratios).pvalue for case in pairs.values()]
    assert [o.p for o in found.values()] == p
    np.testing.assert_allclose([o.adjusted for o in found.values()], stats.false_discovery_control(p))
    for name, case in pairs.items():
        assert found[name].change.value == pytest.approx(math.exp(brute(case.log_ratios)))
    assert stats.false_discovery_control([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])  # by hand


def test_compare_repeats():
    """The same pairs give the same outcome, twice, and in another order of cases."""
    pairs = {str(i): made(0.02 * i, n=20 + i, seed=i) for i in range(4)}
    found = compare_pairs(pairs, percent(), 1, True)
    assert found == compare_pairs(pairs, percent(), 1, True)
    assert found == compare_pairs(dict(reversed(pairs.items())), percent(), 1, True)
    assert found != compare_pairs(pairs, percent(), 1, True, seed=1)
    assert compare_pairs({}, percent(), 0, False) == {} and all_decided({})


def test_margin():
    """A certain change of 2 percent is no news to a rule of 3, and one to a rule without that margin."""
    pairs = made(0.02, spread=0.005)
    assert judged(pairs).p < 1e-6
    assert judged(pairs).verdict == "no change"
    assert judged(pairs, percent(least=0.0)).verdict == "slower"


def test_margin_flags_less():
    """Over many comparisons whose truth is 2 percent: with the margin hardly any is flagged, without it most."""
    trials = 30
    flagged = {
        least: sum(
            judged(made(0.02, seed=s), percent(least=least), resamples=300).verdict == "slower"
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
    nearly = judged(made(0.5, n=7, null=null), percent(), 0, True)
    assert nearly.change.low > 1.1 and nearly.p == 2 / 2**7 > 0.01 and nearly.verdict == "inconclusive"
    assert judged(made(0.5, n=8, null=null), percent(), 0, True).verdict == "slower"
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
    assert judged(pairs, percent(looks=(20,)), look=0, final=False).verdict == "slower"


def test_each_end_that_was_gone_on_from_halves_what_is_left():
    """Ending, looking and going on until something is found would else find something."""
    shares = [percent(looks=(40, 80), earlier=k).share(1, True) for k in range(30)]
    assert shares[:3] == [1 / 2, 1 / 4, 1 / 8] and sum(2 * s for s in shares) <= 2
    assert percent(earlier=3).needed(1) == percent().needed(1) + 3
    pairs = made(0.5, n=8, null=made(0.0).null)
    once = judged(pairs, percent(), 0, True)
    again = judged(pairs, percent(looks=(20, 40), earlier=1), 0, True)
    assert (
        once.verdict == "slower" and again.verdict == "inconclusive" and again.change.high > once.change.high
    )


def test_many_cases_ask_for_more():
    """A p that is enough alone is not among fifty: Benjamini and Hochberg."""
    n = 10
    alone = made(0.5, n=n, null=made(0.0).null)
    others = {str(i): made(0.0, n=20, seed=i + 1) for i in range(49)}
    rule = percent(looks=(20, 40), cases=50)
    assert judged(alone).verdict == "slower"
    among = compare_pairs({"case": alone, **others}, rule, 1, True)["case"]
    assert among.p == 2 / 2**n and among.adjusted == pytest.approx(50 * among.p)
    assert among.verdict == "inconclusive"
    assert among.detectable == math.inf > judged(alone).detectable


def test_the_signed_ranks_are_exact_with_ties():
    """Every choice of signs is as likely: the p of tied, quantised and zero differences is that of all 2**n of them."""
    rng = np.random.default_rng(3)
    for d in (
        [1, 1, 1, 1, 1, 1, 1, 1, 1, -1],
        [0, 0, 0, 2, 2, 1, 1, -1, 3],
        rng.integers(-3, 4, 11),
        [0.1, -0.2],
    ):
        d = np.asarray(d, dtype=float)
        kept = d[d != 0]
        ranks = stats.rankdata(np.abs(kept))
        signs = np.array(list(itertools.product([0, 1], repeat=kept.size)))
        sums = signs @ ranks
        seen = ranks[kept > 0].sum()
        wanted = min(1, 2 * min(np.mean(sums <= seen), np.mean(sums >= seen)))
        assert comparison.signed_rank_p(d) == pytest.approx(wanted, rel=1e-12)
    smooth = rng.normal(0.3, 1, 25)
    assert comparison.signed_rank_p(smooth) == pytest.approx(stats.wilcoxon(smooth, method="exact").pvalue)
    long = rng.normal(0.1, 1, 300)
    assert comparison.signed_rank_p(long) == pytest.approx(stats.wilcoxon(long).pvalue, rel=0.02)
    assert comparison.signed_rank_p(np.zeros(20)) == comparison.signed_rank_p(np.zeros(0)) == 1


@pytest.mark.parametrize("n", [8, 12, 20])
def test_the_interval_holds_with_few_pairs(n):
    """A resampled interval gave 0.915 instead of 0.95 with 8 and 12 pairs. It excludes 1 where the test rejects."""
    trials, confidence = 1500, 0.95
    rng = np.random.default_rng(n)
    held = 0
    for _ in range(trials):
        d = rng.standard_t(3, n)
        low, high = comparison.interval(d, confidence)
        held += low <= 0 <= high
        assert (comparison.signed_rank_p(d) < 1 - confidence) == (low > 0 or high < 0)
    assert at_least(trials, 0.95) <= held <= at_most(trials, 0.98)


def test_neighbours_that_differ_more_than_pairs_of_one_environment_are_noise():
    """Long, then short: A/A pairs, which lie further apart, look calm. The pairs themselves say what can be found."""
    rng = np.random.default_rng(0)
    calm, wild = rng.normal(0, 0.01, 40), rng.normal(0, 0.1, 40)
    found = judged(Pairs(wild, calm))
    assert found.noise > 5 * judged(Pairs(calm, calm)).noise
    assert found.detectable > 2 * judged(Pairs(calm, calm)).detectable
    assert judged(Pairs(calm, wild)).noise == pytest.approx(found.noise, rel=0.5), "nor are calm pairs enough"
    shifted = judged(Pairs(calm + 0.5, calm))
    assert shifted.verdict == "slower" and shifted.noise < 0.02, "the change itself is no noise"


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
    found = comparison._Null.drawn(null, n, (order + 0.5) / n, signs, level)
    for row, d in enumerate(np.abs(null)[order] * signs):
        assert found.centres[row] == pytest.approx(brute(d))
        assert found.p[row] == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
        for shift, seen in ((found.needed[row] - 1e-9, False), (found.needed[row] + 1e-9, True)):
            shifted = stats.wilcoxon(d + shift, method="exact", alternative="greater")
            assert (2 * shifted.pvalue < level) == seen


def test_detectable_by_search():
    """Bisection over shifted comparisons, each judged by scipy, finds the same smallest change."""
    pairs, rule = made(0.0, n=20), percent(looks=(20,))
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
    among = compare_pairs({str(s): made(0.0, n=20, seed=s) for s in range(20)}, rule, 0, True)
    assert 0 < np.mean([o.false_alarms for o in among.values()]) < 0.005
    assert judged(made(0.0, n=20), dataclasses.replace(rule, least=0.1), 0).false_alarms == 0


def test_interval_coverage():
    """The interval of 20 pairs, 0.95 for one look that is all."""
    trials, rule = 400, percent(looks=(20,))
    hits = 0
    for seed in range(trials):
        found = judged(made(0.05, n=20, seed=seed), rule, 0, resamples=2).change
        hits += found.low <= 1.05 <= found.high
    assert at_least(trials, 0.95) <= hits <= at_most(trials, 0.97)


def test_fast():
    """Fifty cases of 40 pairs with 1000 resamples; 1.5 s were measured on one core of two."""
    pairs = {str(i): made(0.0, seed=i) for i in range(50)}
    began = time.process_time()
    compare_pairs(pairs, percent(cases=50), 1, True)
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
    rng = np.random.default_rng(0)
    found, used = simulated.paired(samples, np.ones(2 * simulated.PROCESSES), simulated.RULE, rng)
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


# Noise that all processes share.


@pytest.mark.parametrize("model", ["heavy tails", "autocorrelation", "drift", "regimes", "period of 4"])
def test_shared_noise_raises_few_false_alarms(model):
    """A sample of the study: at most 1 percent of runs of 40 cases; `python -m tests.studies.noise` has the rates."""
    runs = 40
    assert noise.alarms(model, runs, 3) <= at_most(runs, 0.01)


def test_a_fixed_order_resonates():
    """What the drawn order is for: A B B A under a period of four flags what did not change."""
    assert noise.alarms("period of 4", 20, 3, order="ABBA") >= 5
    assert noise.alarms("period of 4", 20, 3) <= at_most(20, 0.01)


def test_real_pairs_of_one_environment_show_what_the_machine_does():
    """Sound A/A pairs are not flagged; pairs of which the second always takes longer are, whatever the resampling says
    of their sizes."""
    rng = np.random.default_rng(0)
    quiet = {str(i): Pairs.of(*np.exp(rng.normal(0, 0.01, (2, 40)))) for i in range(10)}
    assert unchanged(quiet, percent(cases=10), 1, True) == (0, 10)
    few = {"case": Pairs.of(*np.exp(rng.normal(0, 0.01, (2, 8))))}
    assert unchanged(few, percent(), 1, True) == (0, 0)
    signs = np.where(np.random.default_rng([0, 40]).random(40) < 0.5, -1.0, 1.0)  # those that it draws
    skewed = {"case": Pairs(np.zeros(40), signs * np.linspace(0.05, 0.1, 40))}
    noise_known = dataclasses.replace(skewed["case"], null=0.9 * skewed["case"].null)
    assert judged(noise_known).verdict == "no change"
    assert unchanged(skewed, percent(least=0.0), 1, True)[1] == 1


def test_upper_limit():
    """The rule of three, and a table's values."""
    assert upper_limit(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100)) == pytest.approx(0.0295, abs=1e-3)
    assert upper_limit(2, 10) == pytest.approx(0.507, abs=1e-3)
    assert upper_limit(5, 5) == upper_limit(0, 0) == 1


def test_what_can_be_detected_is_known_before():
    """The figure told before the first pair is what A/A pairs of that spread give afterwards."""
    before = detectable_before(0.03, 40, percent(looks=(40,)), 1)
    after = np.median([
        judged(made(0.0, spread=0.03 * math.sqrt(2), seed=s), percent(looks=(40,)), 0).detectable for s in range(12)
    ])  # fmt: skip
    assert before == pytest.approx(after, rel=0.25)
    assert detectable_before(0.3, 40, percent(), 1) > 5 * before
    assert detectable_before(0.03, 5, percent(), 1) == math.inf
    assert detectable_before(0.001, 40, percent(), 1) == pytest.approx(0.03, abs=0.01)
