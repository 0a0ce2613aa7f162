# SPDX-License-Identifier: Apache-2.0
"""The numbers of samples that a run can have, and samples that contradict their run."""

import math
import random

import pytest

from meshmark.publish import consistent, sampling

RUN = {"timing": {"seconds": 0.06, "least": 10, "most": 1000}, "facts": {"devices": [{"process": 0}]}}
COUNTS = {"auto": 66, "explicit": 67, "manual": 71}


def lines(cadence, counts, calls=1):
    """The timing lines of one cell, whose samples fill the time of the run."""
    random.seed(1)
    return [
        (
            number,
            {
                "case": f"psum/axes=x/{mode}/8/float32/4KiB",
                **{"run": "r", "process": 0, "cadence": cadence, "calls": calls},
                "samples_s": [0.06 / COUNTS[mode] * random.uniform(0.95, 1.05) for _ in range(count)],
            },
        )
        for number, (mode, count) in enumerate(counts.items(), 1)
    ]


def said(found):
    return [reason for _, reason in sampling.of_file(found, {"r": RUN})]


def test_modes_that_are_sampled_alone_may_have_other_numbers_of_samples():
    assert said(lines("plain", COUNTS)) == []
    assert "each round sampled all of them" in said(lines("isolated", COUNTS))[0]


@pytest.mark.parametrize("cadence", ["plain", "isolated"])
def test_half_of_the_samples_is_missed(cadence):
    halves = dict.fromkeys(COUNTS, 30) if cadence == "isolated" else COUNTS | {"explicit": 30}
    assert any("of the time that the run gives" in reason for reason in said(lines(cadence, halves)))


def test_a_plain_sample_is_one_call():
    assert "4 calls per sample of plain calls" in said(lines("plain", COUNTS, calls=4))[0]


def test_samples_of_one_rank_are_not_those_of_two():
    draw = random.Random(1)
    own = [1e-5 * math.exp(draw.gauss(0, 0.02)) for _ in range(20)]
    for made_up in (own, own[::-1], [1.3 * s for s in sorted(own)]):
        assert "ranks 0 and 2 have the same samples" in consistent.of_one_rank([own, [1e-5] * 20, made_up])
    assert consistent.of_one_rank([own[:5], own[:5]]) == "", "a few samples are alike by chance"
    for seed in range(200):  # a clock of a nanosecond, and calls of ten microseconds
        draw = random.Random(seed)
        honest = [[round(1e-5 * math.exp(abs(draw.gauss(0, 0.005))), 9) for _ in range(20)] for _ in range(2)]
        assert consistent.of_one_rank(honest) == ""
