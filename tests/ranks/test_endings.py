# SPDX-License-Identifier: Apache-2.0
"""The messages about a run of several ranks that ended early."""

import pytest

from meshmark.ranks.channel import Ending
from meshmark.ranks.endings import describe_ending, line_of_ending, lost_a_rank

HANG = Ending(
    "hang",
    "past its deadline of 20 s: rank 0 waits for the others; rank 1 in module:function:12",
    {
        "stacks": {"1": ["in module:function:12"]},
        "said": {"0": [{"check": "numbers", "verdict": "fail", "reason": "3 of 8"}, {"verdict": "pass"}]},
    },
)


def test_what_a_rank_had_found_is_told_with_the_reason():
    assert describe_ending(HANG) == f"{HANG.reason}; rank 0 had ended it with fail: 3 of 8"


def test_the_line_of_the_case_keeps_the_stacks():
    line = line_of_ending(HANG)
    assert (line.check, line.verdict, line.reason) == ("execute", "hang", describe_ending(HANG))
    assert line.data == {"stacks": {"1": ["in module:function:12"]}}


@pytest.mark.parametrize(
    "given", ["1 all-reduce 64B", 0.5, None, [0.5, 1], {"a": 1}, [{"verdict": "pass"}], [{}]]
)
def test_values_that_are_not_findings_say_nothing(given):
    assert describe_ending(Ending("hang", "late", {"said": {"0": given}})) == "late"


def test_a_run_that_somebody_ended_lost_no_rank():
    assert lost_a_rank(HANG)
    assert lost_a_rank(Ending("", "rank 1 ended: its connection closed", {"ended_rank": 1}))
    assert not lost_a_rank(Ending("", "rank 1 was ended: SIGTERM"))
