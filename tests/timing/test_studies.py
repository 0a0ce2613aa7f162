# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the studies of figures: each distinguishes a right rule from a planted wrong one."""

import random

import numpy as np
import pytest

from meshmark.core.statistics import Estimate, median, series_median
from meshmark.timing import figures
from tests.studies import concurrent, coverage, fidelity, unseen


def processes(number=60, cases=10, control=1.0):
    """Lines of processes 10 percent apart whose samples are within 1 percent."""
    rng = np.random.default_rng(0)
    found = {}
    for case in range(cases):
        lines = []
        for process in range(number):
            level = float(np.exp(rng.normal(0, 0.1)))
            samples, twins = (np.exp(rng.normal(0, 0.01, (2, 20))) * level).tolist()
            twins = [control * t for t in twins]
            lines.append({"process": process, "samples_s": samples, "control_s": twins})
        found[str(case)] = lines
    return found


def test_coverage_holds_for_intervals_of_processes():
    result = coverage.judged(processes(), random.Random(0))
    assert result["of"] == result["controls"] == 100
    assert 90 <= result["held"] <= 100 and result["excluded"] <= 10
    assert "control rows that exclude 1" in coverage.table(result)[-1]


def test_coverage_finds_intervals_of_samples_and_controls_that_differ(monkeypatch):
    def of_samples(records):
        found: Estimate = median([s for r in records for s in r["samples_s"][:1]], 0.5)
        return found

    monkeypatch.setattr(figures, "pooled", of_samples)
    assert coverage.judged(processes(), random.Random(0))["held"] < 90
    assert coverage.judged(processes(control=1.1), random.Random(0))["excluded"] == 100


def test_fidelity_counts_intervals_outside_its_limits():
    case = next(iter(fidelity.OWN))

    def found(plain):
        others = {"shared": 1.0, "plain / shared": 1.0, "rotated": 1.1, "isolated": 1.1}
        return [{case: {"loop": 1e-5, "plain": p} | others} for p in plain]

    _, outside = fidelity.table(found([1.0, 1.001, 0.999, 1.002, 1.0, 1.001]))
    assert outside == 0
    assert fidelity.table(found([1.05, 1.051, 1.049, 1.052, 1.05, 1.051]))[1] == 1
    assert fidelity.table(found([1.0]))[1] == 1, "one process has no interval"


def test_overlap_is_that_of_the_osu_and_intel_benchmarks():
    assert concurrent.osu(2.0, 10.0, 10.0) == concurrent.intel(2.0, 10.0, 10.0) == 1
    assert concurrent.osu(2.0, 10.0, 12.0) == concurrent.intel(2.0, 10.0, 12.0) == 0
    assert concurrent.osu(4.0, 2.0, 5.0) == pytest.approx(0.25)
    assert concurrent.intel(4.0, 2.0, 5.0) == pytest.approx(0.5)
    assert concurrent.osu(1.0, 1.0, 9.0) == concurrent.intel(1.0, 1.0, 9.0) == 0


def test_neighbours_are_judged_in_their_order():
    """Slow and fast hours: the interval of a series holds more often than that of independent samples."""
    rng = np.random.default_rng(0)
    hours = {
        str(i): (1 + 0.3 * np.repeat(rng.integers(0, 2, 12), 5) + rng.normal(0, 0.01, 60)).tolist()
        for i in range(5)
    }
    shares = [
        held / of for held, of in (coverage.in_order(hours, 12, rule) for rule in (series_median, median))
    ]
    assert shares[0] > shares[1] + 0.05
    assert len(coverage.table_in_order(hours)) == 2 + len(coverage.IN_ORDER)


@pytest.mark.parametrize(
    "model", ["two values", "pairs share them, opposed", "groups opposed", "stable, 0.8"]
)
def test_unseen_noise_raises_few_false_alarms(model):
    """A sample of the study: at 1 percent of runs, three of 20 are seen once in a thousand times."""
    assert unseen.alarms(model, 20, 5) <= 2


def test_unseen_noise_of_modes():
    """Equal modes get no order, even where each has hours of its own, since controls and neighbours then say so."""
    for model in ("two speeds, 95 to 5", "groups opposed", "each case autocorrelated"):
        claimed, doubted = unseen.claims(model, 10, 1)
        assert claimed <= 2 and (doubted <= 3) == model.startswith("two")
    assert unseen.excluded("independent", 100, 1) <= 14 < unseen.excluded("each case autocorrelated", 100, 1)
    assert unseen.held("stable, 1.5", 200, 1, 6, False) >= 0.9 > unseen.held("random walk", 200, 1, 6, True)
    assert unseen.found("each case long, then short", 6, 1) >= 5
