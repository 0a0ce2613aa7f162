# SPDX-License-Identifier: Apache-2.0
"""--expect-devices and --expect-level: an expectation that is not met is an error, and nothing else is."""

from types import SimpleNamespace

import pytest

from meshmark.devices.facts import Facts
from meshmark.levels import must_pass
from meshmark.operations.selection import Selection, SelectionError
from meshmark.pytest_plugin import expecting
from meshmark.pytest_plugin.stashed import FACTS, SELECTION

L0 = must_pass.must_pass("L0", 4).cases


def config(devices=4, processes=1, **options):
    facts = Facts({"jax": "0.12.0.1"}, "cpu", "cpu", devices, processes, [], {}, {})
    given = {"expect_devices": None, "expect_level": None, "collectonly": False, "blocked": ()} | options
    return SimpleNamespace(
        stash={FACTS: facts, SELECTION: Selection()},
        getoption=given.get,
        option=SimpleNamespace(collectonly=given["collectonly"]),
        pluginmanager=SimpleNamespace(is_blocked=lambda name: name in given["blocked"]),
    )


def judged(names, verdict="pass"):
    return {name: SimpleNamespace(verdict=verdict) for name in names}


def test_nothing_is_expected_by_default():
    assert expecting.find_unmet_expectations(config(), {}) == []


def test_devices_that_are_missing_or_too_many_are_told():
    assert expecting.find_unmet_expectations(config(expect_devices=4), {}) == []
    for number in (3, 8):
        (problem,) = expecting.find_unmet_expectations(config(expect_devices=number), {})
        assert problem == f"{number} devices were expected, and JAX shows 4"


@pytest.mark.parametrize("verdict", ["pass", "fail", "crash", "known"])
def test_a_level_whose_cases_all_have_a_verdict_of_their_own_is_judged(verdict):
    assert expecting.find_unmet_expectations(config(expect_level="L0"), judged(L0, verdict)) == []


@pytest.mark.parametrize("verdict", ["unsupported", "not_run", None])
def test_a_case_without_one_is_named(verdict):
    found = judged(L0) | (judged(L0[:1], verdict) if verdict else {})
    if not verdict:
        del found[L0[0]]
    (problem,) = expecting.find_unmet_expectations(config(expect_level="L0"), found)
    assert f"1 of {len(L0)} must-pass cases of L0 have no verdict of their own: {L0[0]}" in problem


def test_a_level_expects_those_below_it():
    (problem, *_) = expecting.find_unmet_expectations(config(expect_level="L1"), {})
    assert f"{len(L0)} of {len(L0)} must-pass cases of L0" in problem and problem.endswith(", ...")


def test_a_level_of_several_processes_is_none_of_one():
    (problem,) = expecting.find_unmet_expectations(config(expect_level="L4"), {})
    assert "L4 is a level of several processes" in problem
    (problem,) = expecting.find_unmet_expectations(config(8, 2, expect_level="L0"), {})
    assert "L0 is a level of one process" in problem


def test_a_level_that_there_is_not_is_bad_input():
    with pytest.raises(SelectionError, match="'L9'"):
        expecting.check_level_options(config(expect_level="L9"))
    expecting.check_level_options(config(expect_level="L4"))


def test_the_closing_line_counts_what_is_unjudged():
    line = expecting.unjudged(config(), judged(L0[1:]))
    assert line.startswith(f"not judged: 1 of {len(L0)} must-pass cases of L0; ")


@pytest.mark.parametrize("expected", [{"expect_level": "L0"}, {"expect_devices": 4}])
def test_what_judges_nothing_can_expect_nothing(expected):
    expecting.check_level_options(config(**expected))
    expecting.check_level_options(config(collectonly=True))
    with pytest.raises(SelectionError, match="--collect-only judges nothing: leave one out"):
        expecting.check_level_options(config(collectonly=True, **expected))


@pytest.mark.parametrize("plugin", expecting.COUNTING)
def test_what_counts_the_verdicts_stays(plugin):
    with pytest.raises(SelectionError, match=f"-p no:{plugin} takes away what counts the verdicts"):
        expecting.check_level_options(config(blocked=(plugin,)))
