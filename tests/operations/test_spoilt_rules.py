# SPDX-License-Identifier: Apache-2.0
"""A small rule is broken by one changed element of what it reads, and by another result of each function it calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.operation import SMALL_RULES
from tests.studies import spoilt_rules
from tests.studies.spoilt_rules import Outcome, spoil, unexplained


@pytest.fixture
def rules(monkeypatch):
    """Small rules of this test alone."""
    found = {}
    monkeypatch.setattr(spoilt_rules, "SMALL_RULES", found)
    # The functions are spoiled in calls from the package alone, and these rules are a part of it here.
    monkeypatch.setitem(globals(), "__name__", "meshmark.rules")
    return found


def test_a_rule_that_compares_all_is_broken_each_time(rules):
    def compares(line, grid):
        expect(np.asarray(lax.sort(jnp.array([3, 1, 2]))), np.array([1, 2, 3], np.int32), "a sort")

    rules["compares"] = compares
    assert spoil("compares", (None, None), 0) == Outcome("compares", reads=1, calls=1)


def test_a_read_and_a_call_that_decide_nothing_are_named(rules):
    def looks_away(line, grid):
        np.asarray(lax.rev(jnp.arange(3), (0,)))
        expect(np.asarray(jnp.arange(2)), np.arange(2, dtype=np.int32), "a range")

    rules["looks_away"] = looks_away
    outcome = spoil("looks_away", (None, None), 0)
    assert outcome.held == ["a read", "jax.lax.rev"]
    assert unexplained(outcome) == outcome.held


def test_a_rule_that_is_broken_already_is_not_asked(rules):
    def broken(line, grid):
        expect(1, 2, "one")

    rules["broken"] = broken
    outcome = spoil("broken", (None, None), 0)
    assert "one is 1 instead of 2" in outcome.skipped and not outcome.held


@pytest.mark.parametrize(
    ("seen", "another"),
    [
        (np.array([True, True]), np.array([True, False])),
        (np.array([4, 4], np.uint8), np.array([4, 5], np.uint8)),
        (np.array([1, 2], np.float32), np.array([1, 4], np.float32)),
        (np.array([1, np.nan]), np.array([1.0, 1.0])),
        (np.array([1, 0]).astype(jnp.int4), np.array([1, 1]).astype(jnp.int4)),
        (np.zeros(0), np.zeros(0)),
    ],
)
def test_another_last_element(seen, another):
    found = spoilt_rules.changed(seen)
    assert found.dtype == another.dtype and np.array_equal(found, another)


def test_each_row_that_allows_something_names_a_rule_and_gives_a_reason():
    for (rule, what), reason in spoilt_rules.allowed().items():
        assert rule in SMALL_RULES
        assert what == "a read" or what.startswith("jax.")
        assert len(reason) > 10


CRASHES = ("empty_beside_full_blocks", "rows_clipped_by_narrow_indices")
"""These end the process on some release."""


@pytest.mark.one_in(60)
@pytest.mark.skipif(not jax.__version__.startswith("0.12."), reason="the rows were made with JAX 0.12.0.1")
@pytest.mark.parametrize("rule", [rule for rule in SMALL_RULES if rule not in CRASHES])
def test_what_a_rule_gets_from_jax_decides(rule):
    assert not unexplained(spoil(rule, spoilt_rules.meshes_of_all_devices(), 2))
