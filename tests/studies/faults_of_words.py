# SPDX-License-Identifier: Apache-2.0
"""Faults of the small rules of version 22: orders of norms, methods of functions, names beside dimensions, whole
ranges, placed initializers, and many functions of one array."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_small_rules import rule
from tests.studies.planting import fault


@fault(**rule("norms"))
def the_least_norm_of_columns_is_the_greatest():
    def call(real, x, ord=None, axis=None, keepdims=False):
        return real(x, 1 if ord == -1 and isinstance(axis, tuple) else ord, axis, keepdims)

    return changed(jnp.linalg, "norm", call)


@fault(**rule("norms"))
def the_norm_of_half_an_order_is_of_order_one():
    def call(real, x, ord=None, axis=None, keepdims=False):
        return real(x, 1 if ord == 0.5 else ord, axis, keepdims)

    return changed(jnp.linalg, "norm", call)


@fault(**rule("methods_of_functions"))
def a_reduction_between_falling_indices_takes_rising_ones():
    def call(real, self, a, indices, axis=0, **options):
        return real(self, a, jnp.sort(indices), axis, **options)

    return changed(jnp.ufunc, "reduceat", call)


@fault(**rule("methods_of_functions"))
def an_update_at_repeated_indices_is_made_once():
    def call(real, self, a, indices, b=None, **options):
        first = np.unique(np.asarray(indices), return_index=True)[1]
        return real(self, a, indices[first], b[first], **options)

    return changed(jnp.ufunc, "at", call)


@fault(**rule("names_and_dimensions"))
def a_maximum_over_a_dimension_before_a_name_forgets_the_name():
    def call(real, x, axis_name, **options):
        if isinstance(axis_name, tuple) and isinstance(axis_name[0], int):
            return jnp.max(x, tuple(a for a in axis_name if isinstance(a, int)))
        return real(x, axis_name, **options)

    return changed(lax, "pmax", call)


@fault(**rule("whole_ranges"))
def a_draw_of_a_whole_range_lacks_the_greatest_number():
    def call(real, key, shape=(), minval=0, maxval=1, dtype=int, **options):
        drawn = real(key, shape, minval, maxval, dtype, **options)
        return jnp.minimum(drawn, np.iinfo(dtype).max - 1) if np.iinfo(dtype).bits < 32 else drawn

    return changed(jax.random, "randint", call)


@fault(**rule("initializers_placed"))
def an_initializer_with_a_place_draws_by_another_key():
    def call(real, *arguments, **options):
        made = real(*arguments, **options)

        def initialize(key, *given, **place):
            return made(jax.random.fold_in(key, 1) if "out_sharding" in place else key, *given, **place)

        return initialize

    return changed(jax.nn.initializers, "he_normal", call)


def _the_first_of_an_array(real):
    """A function whose result for an array that it had before is the earlier result of the same shape."""
    seen = {}

    def call(_, x, *arguments, **options):
        made = real(x, *arguments, **options)
        return seen.setdefault((id(x), made.shape), made) if isinstance(x, jax.core.Tracer) else made

    return call


@fault(**rule("functions_together"))
def a_second_roll_of_an_array_is_the_first():
    return changed(jnp, "roll", _the_first_of_an_array(jnp.roll))


@fault(**rule("cumulative_together"))
def a_second_cumulative_maximum_of_an_array_is_the_first():
    return changed(lax, "cummax", _the_first_of_an_array(lax.cummax))
