# SPDX-License-Identifier: Apache-2.0
"""The comparison of results with answers within rounding: infinities and NaN in an answer hide nothing."""

import numpy as np
import pytest

from meshmark.operations.programs.cuts.running import compare_near

SPECIAL = np.array([1.0, np.inf, -np.inf, np.nan])


def test_what_is_near_is_accepted():
    compare_near(SPECIAL + np.array([1e-4, 0, 0, 0]), SPECIAL, "it")
    compare_near(np.array([True, False]), np.array([True, False]), "it")


@pytest.mark.parametrize("at, number", [(0, 1.1), (0, np.nan), (0, np.inf), (1, 1e30), (2, np.inf), (3, 0.0)])
def test_one_wrong_number_beside_infinities_and_nan_is_refused(at, number):
    seen = SPECIAL.copy()
    seen[at] = number
    with pytest.raises(RuntimeError, match="instead of"):
        compare_near(seen, SPECIAL, "it")


def test_another_shape_is_refused():
    with pytest.raises(RuntimeError, match="shape"):
        compare_near(np.zeros((2, 1)), np.zeros(2), "it")
