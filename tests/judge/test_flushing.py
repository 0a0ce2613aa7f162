# SPDX-License-Identifier: Apache-2.0
"""Whether a device flushes subnormal numbers is asked of several programs: one that flushes is enough."""

import jax.numpy as jnp
import pytest

from meshmark.judge import precision


@pytest.fixture(autouse=True)
def asked_anew():
    precision.flushes.cache_clear()
    yield
    precision.flushes.cache_clear()


def test_what_keeps_subnormal_numbers_is_told():
    """XLA's CPU backend computes float16 in float32, where they are ordinary numbers."""
    assert not precision.flushes("float16") and precision.flushes("float32")
    assert not precision.flushes("int32")


@pytest.mark.parametrize("number", range(len(precision.ADDED)))
def test_one_program_that_flushes_is_enough(monkeypatch, number):
    added = list(precision.ADDED)
    own = added[number]
    added[number] = lambda x: jnp.where(jnp.abs(y := own(x)) < jnp.finfo(x.dtype).tiny, 0, y)
    monkeypatch.setattr(precision, "ADDED", tuple(added))
    assert precision.flushes("float16")
