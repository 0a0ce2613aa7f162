# SPDX-License-Identifier: Apache-2.0
"""A resumed run of ranks takes over the cases that all ranks finished before, and the failures of any rank."""

from types import SimpleNamespace

import pytest

from meshmark.core.verdicts import Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.pytest_plugin import rank as rank_module
from meshmark.pytest_plugin.stashed import EXPECTED, FACTS, FINISHED, WRITER
from meshmark.ranks.handover import Marker
from meshmark.records.reading import Judged

AUTO, EXPLICIT, MANUAL = (f"psum/axes=x+y/{mode}/2x4/float32/4KiB" for mode in ("auto", "explicit", "manual"))


def judged(name, verdict="pass"):
    reason = "" if verdict == "pass" else "wrong"
    return Judged(name, case_lines(cases.find(name, 8, 2), [Line("numbers", verdict, reason)], 0, 0.25))


@pytest.fixture
def taken_over(tmp_path, monkeypatch):
    """Takes over: what this rank has finished, what the other one has, and the marks that they left."""
    monkeypatch.setattr(rank_module.handover, "describe_last_group", lambda: "")

    def take(own, other, marks=({}, {})):
        written = []
        plugin = object.__new__(rank_module.RankPlugin)
        plugin.config = SimpleNamespace(stash=pytest.Stash(), getoption=lambda name: 0)
        stash = plugin.config.stash
        stash[FACTS] = SimpleNamespace(num_devices=8, to_json=dict)
        stash[WRITER] = SimpleNamespace(write=written.extend)
        stash[EXPECTED] = SimpleNamespace(issues=lambda facts: [])
        plugin.marker, plugin._suspect = Marker(tmp_path / "records.jsonl.rank0.at"), {}
        said = {"finished": lambda value: [value, other], "markers": lambda value: list(marks)}
        channel = SimpleNamespace(exchange=lambda what, value: (None, said[what](value)))
        plugin.group = SimpleNamespace(size=2, rank=0, channel=channel)
        plugin._take_over(own)
        return {name: one.verdict for name, one in stash[FINISHED].items()}, written, plugin._suspect

    return take


def test_a_case_that_the_other_rank_had_not_finished_is_judged_again(taken_over):
    done, written, _ = taken_over({n: judged(n) for n in (AUTO, EXPLICIT, MANUAL)}, {AUTO: ["pass", ""]})
    assert done == {AUTO: "pass"} and not written


def test_a_case_that_only_the_other_rank_had_finished_is_judged_again(taken_over):
    assert taken_over({}, {AUTO: ["pass", ""]})[0] == {}


@pytest.mark.parametrize("verdict", ["fail", "error", "crash", "hang"])
def test_a_failure_of_one_rank_stands_though_the_other_has_not_finished(taken_over, verdict):
    assert taken_over({AUTO: judged(AUTO, verdict)}, {})[0] == {AUTO: verdict}
    assert taken_over({}, {AUTO: [verdict, "wrong"]})[0] == {AUTO: verdict}
    assert taken_over({AUTO: judged(AUTO)}, {AUTO: [verdict, "wrong"]})[0] == {AUTO: verdict}


def test_a_case_that_a_group_ended_in_is_begun_once_more_and_then_a_crash(taken_over):
    done, written, suspect = taken_over({}, {}, ({"case": AUTO, "times": 1}, {}))
    assert (done, written, suspect) == ({}, [], {AUTO: 1})
    done, written, _ = taken_over({}, {}, ({"case": AUTO, "times": 2}, {"case": AUTO, "times": 2}))
    assert done == {AUTO: "crash"} and len(written) == 1
