# SPDX-License-Identifier: Apache-2.0
"""Every fault of the catalogue is caught, and without it the case that caught it passes."""

import jax
import pytest

from meshmark.core.verdicts import BAD, worst
from meshmark.judge.checks import Judge
from meshmark.levels import known_issues
from meshmark.operations import cases
from tests.studies.faults import CATALOGUE, hunt, in_order, likely_cases, load_families

load_families()

ISSUES = known_issues.load(jax.__version__, jax.default_backend())


def passes(case) -> bool:
    """Whether the case is a pass, or a known issue, without any fault."""
    lines = Judge(tuple(jax.devices())).run(case)
    known_issues.apply(ISSUES, case.id, lines)
    return worst(line.verdict for line in lines) not in BAD


@pytest.mark.parametrize("name", CATALOGUE)
def test_caught_by_the_standard_profile(name):
    """Only the cases that the fault is likely to touch; `python -m tests.studies.faults` runs whole profiles."""
    outcome = hunt(CATALOGUE[name], likely_cases(CATALOGUE[name], "standard"), ISSUES)
    assert outcome.caught, f"{name}: none of {outcome.judged} cases noticed"
    assert passes(cases.find(outcome.case, 8)), f"{outcome.case} fails without the fault too"


@pytest.mark.parametrize("name", [n for n, f in CATALOGUE.items() if f.core])
def test_the_core_is_caught_by_smoke(name):
    assert hunt(CATALOGUE[name], in_order(CATALOGUE[name], "smoke"), ISSUES).caught


def test_the_catalogue_is_as_large_as_promised():
    assert len(CATALOGUE) >= 140
    assert sum(f.core for f in CATALOGUE.values()) >= 25


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("numbers", "permutation reversed"),
        ("numbers", "lost shard"),
        ("replicas", "wrong replica on one device"),
        ("sharding", "replicated where sharded was asked for"),
        ("communication", "an extra all gather with the right numbers"),
        ("numbers", "psum rounds to bfloat16 on the way"),
    ],
)
def test_each_kind_of_check_turns_red(check, name):
    outcome = hunt(CATALOGUE[name], likely_cases(CATALOGUE[name], "smoke"), ISSUES)
    assert check in outcome.checks
