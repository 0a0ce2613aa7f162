# SPDX-License-Identifier: Apache-2.0
"""Faults of settings of random numbers in turn, and of draws of sharded rows."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp

from tests.studies.faults import fault, patched
from tests.studies.faults_of_conditions import changed, form


def random_setting(name: str) -> dict[str, Any]:
    """The case of one setting of random numbers."""
    return form(name, "random_setting")


@fault(**random_setting("kinds_of_keys"))
def a_context_of_a_kind_of_keys_changes_nothing():
    return patched(jax, "default_prng_impl", lambda real: lambda kind: contextlib.nullcontext())


@fault(**random_setting("orders_of_threefry"))
def the_order_of_threefry_stays_that_of_the_first_call():
    return patched(jax, "threefry_partitionable", lambda real: lambda on: real(True))


@fault(**random_setting("offset_of_seeds"))
def an_offset_of_seeds_is_lost_inside_of_programs():
    def key(real, seed, **k):
        inside = isinstance(real(0, **k), jax.core.Tracer)
        lost = jax.config.jax_random_seed_offset if inside else 0
        return real(seed - lost, **k)

    return changed(jax.random, "key", key)


@fault(**random_setting("choices_of_rows"))
def a_permutation_takes_one_row_twice():
    return changed(jax.random, "permutation", lambda real, *a, **k: real(*a, **k).at[0].set(real(*a, **k)[1]))


@fault(**random_setting("choices_of_rows"))
def categories_without_weight_are_drawn():
    return changed(
        jax.random, "categorical", lambda real, key, chance, **k: real(key, jnp.maximum(chance, -1), **k)
    )
