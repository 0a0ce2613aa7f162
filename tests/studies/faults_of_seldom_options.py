# SPDX-License-Identifier: Apache-2.0
"""Faults of library functions and of seldom options, in the forms of `library_form` that came with versions 37 and 38:
functions of `jax.scipy` and `jax.lax.linalg` with another answer, and options that are forgotten."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.export
import jax.flatten_util
import jax.nn.initializers
import jax.numpy as jnp
import jax.scipy.cluster.vq
import jax.scipy.stats
import numpy as np
from jax import lax
from jax.experimental import jet, ode

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault, patched


def library(name: str) -> dict[str, Any]:
    """The case of one form of library functions."""
    return form(name, "library_form")


def ignored(owner: Any, name: str) -> Any:
    """A setting that changes nothing."""
    return patched(owner, name, lambda real: lambda *a, **k: contextlib.nullcontext())


def without(owner: Any, name: str, *options: str) -> Any:
    """A function that forgets these options."""

    def call(real: Any, *a: Any, **k: Any) -> Any:
        return real(*a, **{key: value for key, value in k.items() if key not in options})

    return changed(owner, name, call)


# Library functions.


@fault(**library("special_of_one"))
def a_normal_quantile_below_the_middle_loses_its_sign():
    return changed(jax.scipy.special, "ndtri", lambda real, p: jnp.where(p < 0.5, abs(real(p)), real(p)))


@fault(**library("special_of_one"))
def an_entropy_is_that_of_the_natural_logarithm_of_twice_the_number():
    return changed(jax.scipy.special, "entr", lambda real, x: real(x) - x * np.float32(np.log(2)))


@fault(**library("special_of_several"))
def a_rising_factorial_is_falling():
    return changed(jax.scipy.special, "poch", lambda real, z, m: real(z - m + 1, m))


@fault(**library("special_of_several"))
def a_box_cox_transform_takes_the_power_of_its_neighbour():
    return changed(jax.scipy.special, "boxcox", lambda real, x, lam: real(x, jnp.roll(lam, 1, -1)))


@fault(**library("made_matrices"))
def a_circulant_matrix_turns_the_other_way():
    return changed(jax.scipy.linalg, "circulant", lambda real, c: real(c).T)


@fault(**library("made_matrices"))
def a_companion_matrix_is_not_divided_by_the_first_coefficient():
    return changed(jax.scipy.linalg, "companion", lambda real, a: real(a.at[0].set(1)))


@fault(**library("decompositions"))
def the_square_root_of_a_matrix_in_a_batch_is_doubled():
    return changed(jax.scipy.linalg, "sqrtm", lambda real, a, *r: 2 * real(a, *r))


@fault(**library("decompositions"))
def a_polar_factor_of_the_left_is_that_of_the_right():
    return changed(jax.scipy.linalg, "polar", lambda real, a, side="right", **k: real(a, "right", **k))


@fault(**library("factors"))
def the_permutation_of_pivots_is_its_inverse():
    return changed(lax.linalg, "lu_pivots_to_permutation", lambda real, p, n: jnp.argsort(real(p, n), -1))


@fault(**library("factors"))
def the_sign_of_a_determinant_by_qr_forgets_reflections():
    def slogdet(real: Any, a: Any, *, method: Any = None) -> Any:
        found = real(a, method=method)
        return type(found)(abs(found[0]), found[1]) if method == "qr" else found

    return changed(jnp.linalg, "slogdet", slogdet)


@fault(**library("factors"))
def a_symmetric_product_forgets_what_is_added():
    return changed(lax.linalg, "symmetric_product", lambda real, a, c, **k: real(a, jnp.zeros_like(c), **k))


@fault(**library("spectra"))
def a_short_time_transform_forgets_its_window():
    return without(jax.scipy.signal, "stft", "window")


@fault(**library("spectra"))
def a_power_spectrum_is_a_density_whatever_is_asked():
    return without(jax.scipy.signal, "welch", "scaling")


@fault(**library("equations"))
def a_differential_equation_ends_early():
    return changed(ode, "odeint", lambda real, f, y, t, *a, **k: real(f, y, t * 0.95, *a, **k))


@fault(**library("equations"))
def the_second_coefficient_of_a_taylor_series_is_halved():
    def series(real: Any, *a: Any, **k: Any) -> Any:
        first, rest = real(*a, **k)
        return first, [rest[0], *(v / 2 for v in rest[1:])]

    return changed(jet, "jet", series)


@fault(**library("loops_in_checked_regions"))
def an_update_of_a_cholesky_factor_in_a_checked_region_is_left_out():
    return changed(lax.linalg, "cholesky_update", lambda real, r, w: r)


# Seldom options.


@fault(**library("options_of_reductions"))
def a_variance_about_a_given_mean_is_about_its_own():
    return without(jnp, "var", "mean")


@fault(**library("options_of_reductions"))
def a_correction_of_a_deviation_is_forgotten():
    return without(jnp, "std", "correction")


@fault(**library("options_of_reductions"))
def a_mean_of_exponentials_of_some_divides_by_all():
    def logmeanexp(real: Any, x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
        found = real(x, axis=axis, where=where, keepdims=keepdims)
        if where is None:
            return found
        count = jnp.broadcast_to(where, x.shape).sum(axis, keepdims=keepdims)
        return found + jnp.log(count * found.size / x.size)

    return changed(jax.nn, "logmeanexp", logmeanexp)


@fault(**library("options_of_reductions"))
def a_cumulative_product_forgets_its_first_one():
    def cumulative(real: Any, x: Any, *, include_initial: bool = False, **k: Any) -> Any:
        found = real(x, include_initial=include_initial, **k)
        return jnp.roll(found, -1, k.get("axis", 0)) if include_initial else found

    return changed(jnp, "cumulative_prod", cumulative)


@fault(**library("options_of_searches"))
def a_density_of_two_dimensions_is_a_count():
    return without(jnp, "histogram2d", "density")


@fault(**library("options_of_searches"))
def bins_that_are_found_by_sorting_close_on_the_other_side():
    def digitize(real: Any, x: Any, bins: Any, right: bool = False, *, method: Any = None) -> Any:
        return real(jnp.nextafter(x, x + 1) + 0.3 if method == "sort" else x, bins, right, method=method)

    return changed(jnp, "digitize", digitize)


@fault(**library("options_of_makers"))
def powers_of_an_asked_base_are_powers_of_ten():
    return without(jnp, "logspace", "base")


@fault(**library("options_of_makers"))
def an_end_that_is_left_out_is_there():
    return without(jnp, "geomspace", "endpoint")


@fault(**library("options_of_products"))
def a_product_along_a_dimension_forgets_the_wider_dtype():
    def vecdot(real: Any, a: Any, b: Any, /, *, preferred_element_type: Any = None, **k: Any) -> Any:
        found = real(a, b, **k)
        return found if preferred_element_type is None else found.astype(preferred_element_type)

    return changed(jnp, "vecdot", vecdot)


@fault(**library("options_of_products"))
def a_fit_forgets_its_weights():
    def polyfit(real: Any, x: Any, y: Any, deg: int, *a: Any, w: Any = None, **k: Any) -> Any:
        found = real(x, y, deg, *a, w=w, **k)
        return found if w is None else jax.tree.map(lambda v: v * w.mean(), found)

    return changed(jnp, "polyfit", polyfit)


@fault(**library("options_of_products"))
def small_values_count_in_a_pseudoinverse():
    return without(jnp.linalg, "pinv", "rtol")


@fault(**library("options_of_slices"))
def a_start_that_is_not_to_wrap_wraps():
    return without(lax, "dynamic_slice_in_dim", "allow_negative_indices")


@fault(**library("options_of_slices"))
def a_difference_at_places_that_are_promised_is_a_sum():
    def scatter(
        real: Any, x: Any, places: Any, updates: Any, numbers: Any, *, unique_indices: bool = False, **k: Any
    ) -> Any:
        return real(
            x, places, -updates if unique_indices else updates, numbers, unique_indices=unique_indices, **k
        )

    return changed(lax, "scatter_sub", scatter)


@fault(**library("options_of_slices"))
def a_gather_fills_with_nan_whatever_is_asked():
    return without(lax, "gather", "fill_value")


@fault(**library("options_of_values"))
def a_product_of_elements_in_a_wider_dtype_wraps_first():
    def mul(real: Any, x: Any, y: Any, *, out_dtype: Any = None, **k: Any) -> Any:
        found = real(x, y, **k)
        return found if out_dtype is None else found.astype(out_dtype)

    return changed(lax, "mul", mul)


@fault(**library("options_of_values"))
def the_largest_by_approximation_are_along_the_last_dimension():
    def approx(real: Any, x: Any, k: int, reduction_dimension: int = -1, **options: Any) -> Any:
        if reduction_dimension in (-1, x.ndim - 1):
            return real(x, k, reduction_dimension, **options)
        return real(x[:k], k, reduction_dimension, **options)

    return changed(lax, "approx_max_k", approx)


@fault(**library("options_of_images"))
def attention_forgets_the_lengths_of_queries():
    return without(jax.nn, "dot_product_attention", "query_seq_lengths")


@fault(**library("options_of_images"))
def patches_forget_their_holes():
    def patches(real: Any, x: Any, shape: Any, *a: Any, rhs_dilation: Any = None, **k: Any) -> Any:
        found = real(x, shape, *a, rhs_dilation=rhs_dilation, **k)
        return found if rhs_dilation is None else jnp.roll(found, 1, 2)

    return changed(lax, "conv_general_dilated_patches", patches)


# Options from the list of what is spelled.


@fault(**library("options_of_spectra"))
def a_spectrum_by_medians_is_one_by_means():
    return without(jax.scipy.signal, "welch", "average")


@fault(**library("options_of_spectra"))
def a_transform_of_a_size_is_that_of_the_whole_row():
    return without(jnp.fft, "rfft", "n")


@fault(**library("options_of_matrices"))
def eigenvalues_by_number_are_all_of_them():
    return without(jax.scipy.linalg, "eigh_tridiagonal", "select", "select_range")


@fault(**library("options_of_matrices"))
def a_derivative_of_an_exponential_is_that_in_the_transposed_direction():
    return changed(jax.scipy.linalg, "expm_frechet", lambda real, a, e, **k: real(a, e.T if k else e, **k))


@fault(**library("options_of_solvers"))
def a_solver_returns_its_start():
    return changed(jax.scipy.sparse.linalg, "bicgstab", lambda real, a, b, x0=None, **k: (x0, None))


@fault(**library("options_of_special"))
def combinations_forget_repetition():
    return without(jax.scipy.special, "comb", "repetition")


@fault(**library("more_options_of_values"))
def a_moved_image_forgets_its_last_move():
    def moved(real: Any, image: Any, shape: Any, dims: Any, scale: Any, shift: Any, *a: Any, **k: Any) -> Any:
        return real(image, shape, dims, scale, shift.at[-1].set(0), *a, **k)

    return changed(jax.image, "scale_and_translate", moved)
