# SPDX-License-Identifier: Apache-2.0
"""Figures of reasons, and the relations between them that a known issue may name."""

import pytest

from meshmark.levels import figures

WRONG = "12 of 16 elements differ on cpu:0 (shard [8:16, 4:12]): at [15, 4] expected 9.0, seen 2.0; the rest"


def test_the_figures_of_wrong_elements():
    (read,) = figures.read_figures(WRONG)
    assert (read["wrong"], read["size"], read["expected"], read["seen"]) == (12, 16, 9.0, 2.0)
    assert (read["at"], read["start"], read["stop"], read["shape"]) == ([15, 4], [8, 4], [16, 12], [8, 8])


def test_the_figures_of_bytes():
    reasons = {
        "expected all-gather of 64 B over [[0, 1]], found all-gather of 128 B over 1x2": {
            "planned": 64,
            "found": 128,
        },
        "sends 90 B per device, over the ceiling of 60 B: all-gather": {"sent": 90, "ceiling": 60},
        "needs 7 B for temporaries on a device, and the plan allows 5": {"needed": 7, "allowed": 5},
    }
    for reason, figures_told in reasons.items():
        assert list(figures.read_figures(reason)) == [figures_told]


@pytest.mark.parametrize(
    ("relation", "holds"),
    [
        ("4 * wrong == 3 * size and at[0] + 1 == stop[0]", True),
        ("at == start", False),
        ("0.2 < seen / expected < 0.3", True),
        ("not (seen == expected) and wrong % 5 == 2 and size // wrong == 1", True),
        ("seen == -expected", False),
        ("at[2] == 0", False),  # a dimension too many
        ("wrong / (size - 16) > 1", False),  # a division by zero
        ("sent > 0", False),  # a figure that is not told
    ],
)
def test_a_relation_holds_or_not(relation, holds):
    assert figures.holds(relation, WRONG) is holds


def test_a_relation_must_hold_for_every_failure_that_is_told():
    other = WRONG.replace("seen 2.0", "seen 3.0")
    assert figures.holds("seen == 2", f"{WRONG} | {WRONG}")
    assert not figures.holds("seen == 2", f"{WRONG} | {other}")
    assert not figures.holds("seen == 2", "something else")


def test_nan_equals_nothing():
    assert not figures.holds("seen == seen", WRONG.replace("seen 2.0", "seen nan"))
    assert figures.holds("seen == seen", WRONG)


@pytest.mark.parametrize(
    "text",
    ["", "wrong +", "__import__('os')", "wrong.real", "colour == 1", "1 == 1", "wrong ** 9", "'a' == at"],
)
def test_what_is_not_a_relation_is_refused_in_one_line(text):
    with pytest.raises(figures.RelationError) as caught:
        figures.read_relation(text)
    assert "\n" not in str(caught.value)
