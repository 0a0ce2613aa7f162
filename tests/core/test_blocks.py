# SPDX-License-Identifier: Apache-2.0
"""The rule by which ranks stop sampling, with numbers computed by hand."""

import pytest

from meshmark.core import blocks


@pytest.mark.parametrize(
    ("taken", "done", "budget", "most", "block"),
    [
        (1.0, 10, 10.0, 1000, 10),  # 90 rounds would fit, and a block at most doubles
        (1.0, 10, 1.75, 1000, 7),  # 7.5 rounds of 0.1 s fit into the rest
        (1.0, 10, 1.05, 1000, 0),  # half a round is left
        (1.0, 10, 1.0, 1000, 0),
        (5.0, 10, 1.0, 1000, 0),  # more than the budget is spent
        (0.1, 600, 10.0, 1000, 400),  # the most rounds
        (0.1, 1000, 10.0, 1000, 0),
    ],
)
def test_the_next_block(taken, done, budget, most, block):
    assert blocks.next_block(taken, done, budget, most) == block


def test_the_time_of_the_first_rounds():
    assert blocks.spent([([1.0, 2.0, 4.0], 1), ([0.5, 0.25, 8.0], 4)], 2) == 6.0
