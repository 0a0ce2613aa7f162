# SPDX-License-Identifier: Apache-2.0
"""The forms over explicit axes: an error beyond rounding is found, and only the refusal of a size is accepted."""

import functools
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest

from meshmark.core.verdicts import worst
from meshmark.judge.checks import Judge
from meshmark.operations import cases
from meshmark.operations.programs.explicit import forms as explicit_forms

CASE = "option_form/form={}/host/2x4/float32/4KiB"


def verdict(form):
    lines = Judge(tuple(jax.devices())).run(cases.find(CASE.format(form), 8))
    return worst(line.verdict for line in lines)


def changed(change):
    """Makes of a draw one that is changed where its result is sharded."""

    def make(real):
        @functools.wraps(real)
        def draw(*a, out_sharding=None, **k):
            found = real(*a, out_sharding=out_sharding, **k)
            return found if out_sharding is None else change(found)

        return draw

    return make


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bits", lambda found: found ^ jnp.uint32(1)),
        ("uniform", lambda found: jnp.nextafter(found, jnp.float32(2))),
        ("gumbel", lambda found: found + jnp.float32(2.0**-17)),
    ],
)
def test_a_draw_into_a_sharding_is_held_to_its_bits_or_its_rounding(name, change):
    if not explicit_forms.takes(getattr(jax.random, name), "out_sharding"):
        pytest.skip(f"jax.random.{name} of this release takes no out_sharding")
    with patch.object(jax.random, name, changed(change)(getattr(jax.random, name))):
        assert verdict("into_shardings") == "error"


def test_a_pull_that_is_off_by_more_than_rounding_is_found():
    real = jax.vjp

    def vjp(f, w):
        r, pull = real(f, w)
        return r, lambda ct: tuple(g * jnp.float32(1 + 2.0**-16) for g in pull(ct))

    with patch.object(jax, "vjp", vjp):
        assert verdict("complex_pulls") == "error"


def test_only_a_size_that_is_not_divided_is_a_refusal():
    assert explicit_forms.refuses(ValueError("it does not evenly divide the dimension size 5"))
    assert explicit_forms.refuses(TypeError("out dim (13) is not divisible by mesh axes (4)"))
    for error in (TypeError("'NoneType' object is not callable"), RuntimeError("13 is not divisible by 4")):
        assert not explicit_forms.refuses(error)
