# SPDX-License-Identifier: Apache-2.0
"""Faults of functions of libraries, of rare options and of their gradients, of trees, and of values: those of a second
list, written before anybody looked at the table, that version 10 missed and version 11 shows."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.studies.faults_of_combinations import kind, nudged
from tests.studies.meeting import meet

FLOATS = ("float32", "float16", "bfloat16", "float64")


def floating(x: Any) -> bool:
    """Whether an operand is of floats."""
    return kind(x) in FLOATS


def given(*names: str) -> Any:
    """A test whether these options are given, and not None or False."""
    return lambda *a, **k: all(k.get(n) is not None and k.get(n) is not False for n in names)


ALWAYS = given()


def off(found: Any) -> Any:
    """The first element of every array of a result one more."""
    return jax.tree.map(lambda y: nudged(y, True) if hasattr(y, "dtype") else y, found)


def later(real: Any, found: Any, *a: Any, **k: Any) -> Any:
    """A transform whose function gives results that are off."""
    return lambda *x, **o: off(found(*x, **o))


def steep(real: Any, found: Any, *a: Any, **k: Any) -> Any:
    """The same values, with twice the derivative."""

    def one(y: Any) -> Any:
        return y + (y - lax.stop_gradient(y)) if jnp.issubdtype(y.dtype, jnp.inexact) else y

    return jax.tree.map(one, found)


meet(
    "the_place_of_the_least_along_the_first_dimension_is_the_last",
    jnp,
    "argmin",
    lambda x, axis=None, **k: axis == 0,
    lambda real, f, x, axis=None, **k: x.shape[0] - 1 - real(jnp.flip(x, 0), axis, **k),
    operations=("spelling_form",),
)
meet(
    "a_negative_power_of_zero_is_zero",
    lax,
    "integer_pow",
    lambda x, y: y < 0,
    lambda real, f, x, y: jnp.where(x == 0, 0, f),
    operations=("spelling_form",),
)
meet(
    "the_next_number_after_zero_has_the_other_sign",
    jnp,
    "nextafter",
    lambda x, y: True,
    lambda real, f, x, y: jnp.where(x == 0, -f, f),
    operations=("spelling_form",),
)
meet(
    "a_sort_of_the_library_puts_nan_first",
    lax,
    "sort",
    lambda x, *a, **k: not isinstance(x, tuple) and floating(x),
    lambda real, f, x, *a, **k: jnp.where(jnp.isnan(x).any(), jnp.flip(f, k.get("dimension", -1)), f),
    operations=("spelling_form",),
)
meet(
    "the_arc_of_two_zeros_forgets_a_sign",
    jnp,
    "arctan2",
    lambda y, x: True,
    lambda real, f, y, x: jnp.where((y == 0) & (x == 0), 0, f),
    operations=("spelling_form",),
)
meet(
    "a_power_of_a_negative_number_is_nan",
    jnp,
    "power",
    lambda x, y: floating(x),
    lambda real, f, x, y: jnp.where(x < 0, jnp.nan, f),
    operations=("spelling_form",),
)
meet(
    "the_largest_of_all_nans_is_zero",
    jnp,
    "nanmax",
    lambda x, *a, **k: True,
    lambda real, f, *a, **k: jnp.where(jnp.isnan(f), 0, f),
    operations=("spelling_form",),
)
meet(
    "an_empty_part_takes_a_row_from_its_neighbour",
    jnp,
    "concatenate",
    lambda parts, *a, **k: any(p.size == 0 for p in parts),
    operations=("spelling_form",),
)
meet(
    "a_cut_before_padding_between_is_forgotten",
    lax,
    "pad",
    lambda x, v, config: any(lo < 0 and inner for lo, hi, inner in config),
    operations=("spelling_form",),
)
meet(
    "a_cycle_of_five_dimensions_is_off",
    jnp,
    "transpose",
    lambda x, axes=None: x.ndim == 5 and axes and any(axes[i] != j for j, i in enumerate(axes)),
    operations=("spelling_form",),
)
meet(
    "a_sum_by_keyword_of_its_axis_is_off",
    lax,
    "psum",
    lambda x, *, axis_name: True,
    operations=("spelling_form",),
)
meet(
    "a_list_of_axes_is_taken_as_its_first",
    lax,
    "psum",
    lambda x, a, **k: isinstance(a, list) and len(a) > 1,
    operations=("spelling_form",),
)
meet("the_least_by_approximation_is_off", lax, "approx_min_k", ALWAYS, operations=("spelling_form",))
meet(
    "an_update_from_the_end_is_at_the_start",
    lax,
    "dynamic_update_slice",
    lambda x, u, starts, *a, **k: True,
    lambda real, f, x, u, starts, *a, **k: real(x, u, [jnp.maximum(s, 0) for s in starts], *a, **k),
    operations=("spelling_form",),
)
meet(
    "an_upper_factor_is_a_lower",
    jnp.linalg,
    "cholesky",
    given("upper"),
    lambda real, f, x, **k: real(x),
    operations=("library_form",),
)
meet("the_product_of_a_segment_is_off", jax.ops, "segment_prod", ALWAYS, operations=("spelling_form",))
meet(
    "the_first_true_condition_is_the_last",
    jnp,
    "select",
    ALWAYS,
    lambda real, f, c, v, *d: real(c[::-1], v[::-1], *d),
    operations=("spelling_form",),
)
meet(
    "the_slope_of_a_scattered_sum_whose_dimension_goes_doubles",
    lax,
    "psum_scatter",
    lambda x, a, *, tiled=False, **k: not tiled,
    steep,
    operations=("slope_form",),
)
meet(
    "the_slope_of_a_logarithm_of_a_sum_with_factors_doubles",
    jax.nn,
    "logsumexp",
    given("b"),
    steep,
    operations=("slope_form",),
)
meet("the_slope_of_an_inverse_doubles", jnp.linalg, "inv", ALWAYS, steep, operations=("slope_form",))
meet(
    "the_slope_of_places_filled_past_the_end_doubles",
    jnp,
    "take",
    lambda x, i, *a, mode=None, **k: mode == "fill",
    steep,
    operations=("slope_form",),
)
meet(
    "the_slope_of_a_product_of_three_by_letters_doubles",
    jnp,
    "einsum",
    lambda s, *a, **k: len(a) == 3,
    steep,
    operations=("slope_form",),
)
meet("the_slope_of_a_deviation_doubles", jnp, "std", ALWAYS, steep, operations=("slope_form",))
meet(
    "the_slope_of_a_real_transform_of_fourier_doubles",
    jnp.fft,
    "rfft",
    ALWAYS,
    steep,
    operations=("slope_form",),
)
meet("the_slope_of_a_median_doubles", jnp, "median", ALWAYS, steep, operations=("slope_form",))
meet("the_slope_of_an_error_function_doubles", lax, "erf", ALWAYS, steep, operations=("slope_form",))
meet(
    "a_recomputation_with_a_policy_is_off",
    jax,
    "checkpoint",
    given("policy"),
    later,
    operations=("spelling_form",),
)
meet(
    "a_recomputation_that_may_be_merged_is_off",
    jax,
    "checkpoint",
    lambda *a, prevent_cse=True, **k: prevent_cse is False,
    later,
    operations=("spelling_form",),
)
meet(
    "a_recomputation_with_static_arguments_is_off",
    jax,
    "checkpoint",
    given("static_argnums"),
    later,
    operations=("spelling_form",),
)
meet(
    "a_loop_with_two_inputs_backward_is_off",
    lax,
    "scan",
    lambda f, i, xs=None, *a, reverse=False, **k: reverse and len(jax.tree.leaves(xs)) > 1,
    operations=("spelling_form",),
)
meet("a_gradient_of_ones_own_is_off", jax, "custom_gradient", ALWAYS, later, operations=("spelling_form",))
meet(
    "a_closure_of_a_function_is_off",
    jax,
    "closure_convert",
    ALWAYS,
    lambda real, f, *a, **k: (later(None, f[0]), f[1]),
    operations=("spelling_form",),
)
meet(
    "a_stopped_gradient_of_a_tree_is_off",
    lax,
    "stop_gradient",
    lambda x: isinstance(x, (dict, tuple, list)),
    operations=("spelling_form",),
)
meet(
    "an_answer_of_the_host_with_two_arrays_is_off",
    jax,
    "pure_callback",
    lambda f, t, *a, **k: isinstance(t, (tuple, list)),
    operations=("spelling_form",),
)
meet(
    "a_permutation_of_each_row_is_of_all",
    jax.random,
    "permutation",
    lambda k, x, axis=0, independent=False, **o: independent,
    lambda real, f, k, x, axis=0, independent=False, **o: real(k, x, axis, **o),
    operations=("spelling_form",),
)
meet(
    "a_sum_of_a_megabyte_and_more_in_half_precision_is_off",
    lax,
    "psum",
    lambda x, a, **k: x.size * x.dtype.itemsize >= 1 << 20 and x.dtype.itemsize == 2,
    operations=("spelling_form",),
)
