# SPDX-License-Identifier: Apache-2.0
"""The orders that a table of ratios claims, and the two doubts that prevent a claim."""

import numpy as np
import pytest

from meshmark.timing import orders


def ordered(ratios, number):
    return orders.Table(number).order(ratios)


def test_the_best_mode_is_parted_from_all_others():
    """Two ratios need seven processes; the fastest of three modes is named if its interval meets no other."""

    def best(auto, explicit, n=7):
        spread_ = 1 + 0.001 * np.arange(n)
        against = {"auto": list(auto * spread_), "explicit": list(explicit * spread_)}
        return orders.Table(2).best(against, "manual")

    assert best(1.2, 1.3) == "manual" and best(0.8, 1.3) == "auto"
    assert best(0.8, 0.9) == "auto", "parted from manual and from explicit"
    assert best(0.8, 0.8) == "" and best(1.0, 1.3) == "", "two that meet are not parted"
    assert best(0.8, 0.9, n=6) == "" and orders.Table(2).best({}, "manual") == ""


def test_an_order_is_corrected_over_the_table():
    """20 ratios need 10 processes; nine that all agree resolve nothing."""
    assert orders.needed(1) == 6 and orders.needed(20) == 10 and orders.needed(114) == 13
    with pytest.raises(ValueError, match="at least one"):
        orders.needed(0)
    sure = [1.5 + 0.01 * i for i in range(10)]
    assert ordered(sure, 20) == "slower" and ordered([1 / r for r in sure], 20) == "faster"
    assert ordered(sure[:9], 20) == "not resolved" and ordered(sure[:9], 1) == "slower"
    assert ordered([*sure[:9], 0.5], 20) == "not resolved"
    assert ordered(sure[:5], 1) == "not resolved"
    rng = np.random.default_rng(1)
    claimed = sum(
        any(ordered(np.exp(rng.normal(0, 0.1, 12)), 20) != "not resolved" for _ in range(20))
        for _ in range(100)
    )
    assert claimed <= 15  # 5 of 100 are allowed by the rule; 15 have a probability below 1e-4


FINE, OFF = [1.01, 0.99, 1.02, 0.98, 1.0, 1.01], [1.05, 1.06, 1.04, 1.05, 1.07, 1.05]
"""Controls of six processes: one holds 1, and one does not."""


def test_controls_that_exclude_1_leave_a_table_in_doubt():
    for fine in ([FINE] * 4, [FINE] * 20 + [OFF], [], [OFF[:5]] * 4):
        assert orders.distrust_controls(fine) == ""
    assert "2 of 4 controls" in orders.distrust_controls([FINE, OFF, FINE, OFF])
    sure = [1.5, 1.52, 1.51, 1.53, 1.49, 1.5, 1.54, 1.48, 1.51]
    assert orders.Table.of([sure], [FINE] * 2).order(sure) == "slower"
    doubtful = orders.Table.of([sure], [OFF] * 2)
    assert doubtful.order(sure) == "not resolved" and doubtful.best({"auto": sure}, "manual") == ""


def test_neighbours_that_are_alike_leave_a_table_in_doubt():
    """Slow hours of one mode: the first processes of the run are not like the last ones."""
    rng = np.random.default_rng(3)
    hours = np.where(np.arange(11) < 6, 1.4, 1.2)
    slow = [list(hours * np.exp(rng.normal(0, 0.01, 11))) for _ in range(10)]
    assert "neighbours" in orders.Table.of(slow, []).doubt
    mixed = [[row[i] for i in (0, 10, 2, 8, 4, 6, 5, 7, 3, 9, 1)] for row in slow]
    assert orders.Table.of(mixed, []).doubt == "", "the same ratios in another order"
    assert orders.Table.of([row[:5] for row in slow], []).doubt == "", "five processes say nothing"
    assert orders.Table.of([[1.25] * 11] * 10, []).doubt == "", "equal ratios have no neighbours"


def test_ratios_that_depend_on_each_other_raise_no_doubt():
    """Forty copies of one ratio are no more evidence than one: at 1 percent, at most 9 of 300 (seen once in 300)."""
    rng = np.random.default_rng(0)
    doubted = sum(
        bool(orders.Table.of([list(np.exp(rng.normal(0, 0.1, 8)))] * 40, []).doubt) for _ in range(300)
    )
    assert doubted <= 9
