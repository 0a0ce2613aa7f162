# SPDX-License-Identifier: Apache-2.0
"""Faults of the small rules of version 22: orders of norms, methods of functions, names beside dimensions, whole
ranges, placed initializers, and many functions of one array."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.studies.faults_of_conditions import changed, form
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


@fault(**form("numpy_options", "cut_array"))
def a_covariance_with_both_weights_forgets_one():
    def call(real, m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None):
        both = fweights is not None and aweights is not None
        return real(m, y, rowvar, bias, ddof, fweights, None if both else aweights)

    return changed(jnp, "cov", call)


@fault(**form("numpy_options", "cut_array"))
def a_correlation_of_complex_numbers_is_a_convolution():
    def call(real, a, v, mode="valid"):
        return real(a, jnp.conj(v) if jnp.iscomplexobj(v) else v, mode)

    return changed(jnp, "correlate", call)


@fault(**form("slopes_options", "cut_array"))
def the_gradient_of_a_cumulative_product_doubles():
    def call(real, x, *arguments, **options):
        y = real(x, *arguments, **options)
        return y + (y - lax.stop_gradient(y))

    return changed(jnp, "cumprod", call)


@fault(**rule("axis_indices"))
def an_index_by_three_names_counts_from_the_last():
    def call(real, name):
        return real(name[::-1] if isinstance(name, tuple) and len(name) > 2 else name)

    return changed(lax, "axis_index", call)


@fault(**rule("shuffles"))
def a_shuffle_of_three_is_undone():
    def call(real, x, name, permutation):
        return real(x, name, [*np.argsort(permutation)] if len(permutation) == 3 else permutation)

    return changed(lax, "pshuffle", call)


@fault(**rule("unsorted_groups"))
def an_exchange_sorts_the_members_of_a_group():
    def call(real, x, name, axis, *, axis_index_groups=None, **options):
        groups = axis_index_groups and [sorted(group) for group in axis_index_groups]
        return real(x, name, axis, axis_index_groups=groups, **options)

    return changed(lax, "pswapaxes", call)


@fault(**rule("batches_of_collectives"))
def a_batch_behind_splits_another_dimension():
    def call(real, f, in_axes=0, out_axes=0, **options):
        mapped = real(f, in_axes, out_axes, **options)
        return (lambda *a: jnp.flip(mapped(*a), 0)) if in_axes == -1 else mapped

    return changed(jax, "vmap", call)


@fault(**rule("sized_results"))
def the_second_filling_of_places_is_the_first():
    def call(real, a, *, size=None, fill_value=None):
        return real(a, size=size, fill_value=fill_value[0] if isinstance(fill_value, tuple) else fill_value)

    return changed(jnp, "nonzero", call)


@fault(**rule("masked_functions"))
def a_softmax_of_nothing_is_not_a_number():
    def call(real, x, axis=-1, where=None, **options):
        y = real(x, axis, where=where, **options)
        return y if where is None else jnp.where(jnp.any(where, axis, keepdims=True), y, jnp.nan)

    return changed(jax.nn, "softmax", call)


@fault(**rule("drawn_once"))
def a_draw_without_replacement_forgets_the_chances():
    def call(real, key, a, shape=(), replace=True, p=None, axis=0, **options):
        return real(key, a, shape, replace, p if replace else None, axis, **options)

    return changed(jax.random, "choice", call)


@fault(**rule("made_at_a_place"))
def a_product_of_three_ignores_its_place():
    def call(real, subscripts, *operands, out_sharding=None, **options):
        return real(
            subscripts, *operands, out_sharding=out_sharding if len(operands) < 3 else None, **options
        )

    return changed(jnp, "einsum", call)
