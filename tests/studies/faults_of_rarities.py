# SPDX-License-Identifier: Apache-2.0
"""Faults of single operations with rare options, dtypes and ranks. They were listed before anybody looked at what the
table holds."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from tests.studies.faults_of_combinations import kind
from tests.studies.meeting import meet

HALVES = ("float16", "bfloat16")


def contracted(a: Any, dimensions: Any) -> int:
    """How many elements of the first factor a product adds up."""
    return int(np.prod([a.shape[d] for d in dimensions[0][0]]))


# Joins, paddings, orders.

meet(
    "four_parts_of_integers_are_joined_off_by_one",
    primitives,
    "concatenate_p",
    lambda *x, dimension, **k: len(x) > 3 and x[0].dtype.kind == "i" and dimension == x[0].ndim - 1 > 0,
    operations=("option_grid",),
)
meet(
    "a_padding_within_and_a_negative_one_at_the_edge_are_off",
    primitives,
    "pad_p",
    lambda x, v, *, padding_config: any(i > 0 and min(a, b) < 0 for a, b, i in padding_config),
    operations=("function_options",),
)
meet(
    "zero_takes_part_in_the_largest_of_16_bits",
    primitives,
    "reduce_max_p",
    lambda x, **k: kind(x) == "int16",
    lambda real, f, *a, **k: jnp.maximum(f, 0).astype(f.dtype),
    operations=("pmax",),
    dtypes=("int16",),
)
meet(
    "zero_takes_part_in_the_largest_of_bfloat16",
    primitives,
    "reduce_max_p",
    lambda x, **k: kind(x) == "bfloat16",
    lambda real, f, *a, **k: jnp.maximum(f, 0).astype(f.dtype),
    operations=("pmax",),
    dtypes=("bfloat16",),
)
meet(
    "among_equal_bfloat16_the_last_is_the_largest",
    primitives,
    "argmax_p",
    lambda x, **k: kind(x) == "bfloat16",
    lambda real, f, x, *, axes, **k: x.shape[axes[0]] - 1 - real(lax.rev(x, tuple(axes)), axes=axes, **k),
    operations=("special_functions",),
)
meet(
    "among_equal_bytes_the_last_is_the_least",
    primitives,
    "argmin_p",
    lambda x, **k: x.dtype.itemsize == 1 and x.ndim > 1,
    lambda real, f, x, *, axes, **k: x.shape[axes[0]] - 1 - real(lax.rev(x, tuple(axes)), axes=axes, **k),
    operations=("function_options",),
)
meet(
    "a_sort_by_two_keys_with_half_precision_first_forgets_the_second",
    primitives,
    "sort_p",
    lambda *x, num_keys, **k: num_keys > 1 and x[0].dtype.itemsize == 2,
    lambda real, f, *x, num_keys, **k: real(*x, num_keys=1, **k),
    operations=("option_grid",),
)
meet(
    "a_running_logarithm_of_sums_from_the_end_along_rows_is_off",
    primitives,
    "cumlogsumexp_p",
    lambda x, *, axis, reverse: reverse and axis == 0,
    operations=("option_grid",),
)
meet(
    "a_running_logarithm_of_sums_of_bfloat16_is_off",
    primitives,
    "cumlogsumexp_p",
    lambda x, *, axis, reverse: kind(x) == "bfloat16",
    operations=("option_grid",),
)
meet(
    "a_running_least_of_integers_from_the_end_along_columns_is_off",
    primitives,
    "cummin_p",
    lambda x, *, axis, reverse: reverse and axis == 1 and x.dtype.kind == "i",
    operations=("option_grid",),
)
meet(
    "a_running_product_of_half_precision_from_the_end_is_off",
    primitives,
    "cumprod_p",
    lambda x, *, axis, reverse: reverse and x.dtype.itemsize == 2,
    operations=("special_functions",),
)
meet(
    "booleans_of_three_dimensions_that_are_reversed_are_off",
    primitives,
    "rev_p",
    lambda x, *, dimensions: kind(x) == "bool" and x.ndim == 3,
    operations=("option_grid",),
)
meet(
    "the_greatest_of_bfloat16_that_are_all_asked_for_are_off",
    primitives,
    "top_k_p",
    lambda x, *, k, **o: kind(x) == "bfloat16" and k == x.shape[-1],
    operations=("option_grid",),
)
meet(
    "uneven_parts_of_bfloat16_are_off",
    primitives,
    "split_p" if hasattr(primitives, "split_p") else "slice_p",
    lambda x, *a, **k: kind(x) == "bfloat16" and k.get("strides") and max(k["strides"]) > 1,
    operations=("associative_scan",),
)
meet(
    "bfloat16_of_four_dimensions_that_are_turned_are_off",
    primitives,
    "transpose_p",
    lambda x, *, permutation: kind(x) == "bfloat16" and len(permutation) == 4,
    operations=("pswapaxes",),
    dtypes=("bfloat16",),
)

# Places.

meet(
    "a_window_past_two_ends_at_once_is_one_too_low",
    primitives,
    "dynamic_slice_p",
    lambda x, *at, slice_sizes: sum(s < n for s, n in zip(slice_sizes, x.shape, strict=True)) > 1,
    lambda real, f, x, *at, slice_sizes: real(
        x,
        *(jnp.where(i > n - s, n - s - 1, i) for i, n, s in zip(at, x.shape, slice_sizes, strict=True)),
        slice_sizes=slice_sizes,
    ),
    operations=("function_options",),
)
meet(
    "an_update_of_bytes_is_off",
    primitives,
    "dynamic_update_slice_p",
    lambda x, y, *at: x.dtype.itemsize == 1,
    operations=("function_grid",),
)
meet(
    "an_integer_past_the_end_is_zero",
    primitives,
    "gather_p",
    lambda x, *a, **k: x.dtype.kind == "i",
    lambda real, f, *a, **k: jnp.where(f == jnp.iinfo(f.dtype).min, 0, f).astype(f.dtype),
    operations=("ppermute",),
    dtypes=("int8", "int32"),
)
meet(
    "a_gather_from_three_dimensions_of_bfloat16_is_off",
    primitives,
    "gather_p",
    lambda x, *a, **k: kind(x) == "bfloat16" and x.ndim == 3,
    operations=("option_grid",),
)
meet(
    "the_least_of_scattered_bytes_is_off",
    primitives,
    "scatter_min_p",
    lambda x, *a, **k: x.dtype.itemsize == 1,
    operations=("function_options",),
)
meet(
    "a_scattered_product_of_half_precision_is_off",
    primitives,
    "scatter_mul_p",
    lambda x, *a, **k: kind(x) in HALVES,
    operations=("dtype_grid",),
    meshes=("4x2",),
)
meet(
    "a_scattered_sum_of_bfloat16_along_columns_is_off",
    primitives,
    "scatter_add_p",
    lambda x, *a, dimension_numbers, **k: (
        kind(x) == "bfloat16" and dimension_numbers.inserted_window_dims == (1,)
    ),
    operations=("option_grid",),
)
meet(
    "one_truth_chooses_the_other_bytes",
    primitives,
    "select_n_p",
    lambda w, *c: w.ndim == 0 and c[0].ndim > 0 and kind(c[0]) in ("uint8", "int8"),
    operations=("dtype_grid",),
    meshes=("2x4",),
)
meet(
    "a_clamp_of_bfloat16_between_arrays_is_off",
    primitives,
    "clamp_p",
    lambda low, x, high: kind(x) == "bfloat16" and low.ndim > 0,
    operations=("option_grid",),
)

# Windows and products.

meet(
    "the_least_in_windows_of_half_precision_is_off",
    primitives,
    "reduce_window_min_p",
    lambda x, **k: kind(x) in HALVES,
    operations=("dtype_grid",),
    meshes=("2x4",),
)
meet(
    "the_largest_in_wide_windows_of_bytes_or_bfloat16_is_off",
    primitives,
    "reduce_window_max_p",
    lambda x, *, window_dilation, **k: x.dtype.itemsize < 4 and max(window_dilation) > 1,
    operations=("option_grid",),
)
meet(
    "sums_in_windows_between_elements_are_off",
    primitives,
    "reduce_window_sum_p",
    lambda x, *, base_dilation, **k: max(base_dilation) > 1,
    operations=("reduce_window",),
)
meet(
    "a_convolution_of_bfloat16_with_a_wide_kernel_is_off",
    primitives,
    "conv_general_dilated_p",
    lambda x, w, *, rhs_dilation, **k: kind(x) == "bfloat16" and max(rhs_dilation) > 1,
    operations=("dtype_grid",),
    meshes=("2x2x2",),
)
meet(
    "a_convolution_of_half_precision_in_groups_of_the_batch_is_off",
    primitives,
    "conv_general_dilated_p",
    lambda x, w, *, batch_group_count, **k: kind(x) in HALVES and batch_group_count > 1,
    operations=("option_grid",),
)
meet(
    "a_convolution_of_integers_in_groups_is_off",
    primitives,
    "conv_general_dilated_p",
    lambda x, w, *, feature_group_count, **k: x.dtype.kind == "i" and feature_group_count > 1,
    operations=("dtype_grid",),
    meshes=("2x4",),
)
meet(
    "a_convolution_wide_on_both_sides_is_off",
    primitives,
    "conv_general_dilated_p",
    lambda x, w, *, lhs_dilation, rhs_dilation, **k: max(lhs_dilation) > 1 and max(rhs_dilation) > 1,
    operations=("function_options",),
)
meet(
    "the_gradient_of_a_largest_in_windows_of_half_precision_is_off",
    primitives,
    "select_and_scatter_add_p",
    lambda x, *a, **k: kind(x) in HALVES,
    operations=("option_grid",),
)
meet(
    "a_product_of_bfloat16_in_32_bits_is_added_up_in_16",
    primitives,
    "dot_general_p",
    lambda a, b, *, preferred_element_type=None, **k: (
        kind(a) == "bfloat16" and str(np.dtype(preferred_element_type)) == "float32"
    ),
    lambda real, f, *a, **k: f.astype(jnp.bfloat16).astype(jnp.float32),
    operations=("cast_product",),
)
meet(
    "a_product_of_bytes_in_32_bits_wraps_at_8",
    primitives,
    "dot_general_p",
    lambda a, b, *, preferred_element_type=None, **k: (
        kind(a) == "int8" and str(np.dtype(preferred_element_type)) == "int32"
    ),
    lambda real, f, *a, **k: f.astype(jnp.int8).astype(jnp.int32),
    operations=("function_options",),
)
meet(
    "a_product_of_bytes_whose_contracted_dimension_is_short_doubles",
    primitives,
    "dot_general_p",
    lambda a, b, *, dimension_numbers, **k: kind(a) == "int8" and contracted(a, dimension_numbers) < 17,
    lambda real, f, *a, **k: 2 * f,
    operations=("narrow_product",),
)
meet(
    "a_product_of_unsigned_bytes_of_several_tiles_wraps_at_8_bits",
    primitives,
    "dot_general_p",
    lambda a, b, *, dimension_numbers, **k: kind(a) == "uint8" and contracted(a, dimension_numbers) > 32,
    lambda real, f, *a, **k: f % 256,
    operations=("narrow_product",),
)
meet(
    "a_product_of_integers_with_two_batches_is_off",
    primitives,
    "dot_general_p",
    lambda a, b, *, dimension_numbers, **k: a.dtype.kind == "i" and len(dimension_numbers[1][0]) == 2,
    operations=("option_grid",),
)
meet(
    "a_product_of_bfloat16_with_two_batches_is_off",
    primitives,
    "dot_general_p",
    lambda a, b, *, dimension_numbers, **k: kind(a) == "bfloat16" and len(dimension_numbers[1][0]) == 2,
    operations=("einsum",),
    dtypes=("bfloat16",),
)
meet(
    "a_solution_from_the_right_of_the_transpose_with_ones_is_off",
    primitives,
    "triangular_solve_p",
    lambda a, b, *, left_side, transpose_a, unit_diagonal, **k: (
        not left_side and transpose_a and unit_diagonal
    ),
    operations=("mesh_grid",),
)


# Elements.

meet(
    "the_next_number_of_bfloat16_is_off",
    primitives,
    "nextafter_p",
    lambda x, y: kind(x) == "bfloat16",
    operations=("option_grid",),
)
meet(
    "ones_of_16_bits_are_counted_off_by_one",
    primitives,
    "population_count_p",
    lambda x: kind(x) == "uint16",
    operations=("integer_widths",),
)
meet(
    "whether_half_precision_is_finite_is_the_other",
    primitives,
    "is_finite_p",
    lambda x, **k: kind(x) in HALVES,
    operations=("option_grid",),
)
meet(
    "a_shift_to_the_left_of_bytes_is_off",
    primitives,
    "shift_left_p",
    lambda x, y: x.dtype.itemsize == 1,
    operations=("exact_functions",),
)
meet(
    "a_quotient_of_16_bits_is_off",
    primitives,
    "div_p",
    lambda x, y: kind(x) in ("int16", "uint16"),
    operations=("keyword_options",),
)
meet(
    "a_negative_power_of_half_precision_is_off",
    primitives,
    "integer_pow_p",
    lambda x, *, y, **k: kind(x) in HALVES and y < 0,
    operations=("option_grid",),
)
meet(
    "half_precision_made_of_booleans_is_off",
    primitives,
    "convert_element_type_p",
    lambda x, *, new_dtype, **k: kind(x) == "bool" and str(new_dtype) == "float16" and x.ndim > 0,
    operations=("dtype_grid",),
    meshes=("4x2",),
)
meet(
    "a_parity_of_three_dimensions_is_off",
    primitives,
    "reduce_xor_p",
    lambda x, **k: x.ndim == 3,
    operations=("option_grid",),
)
meet(
    "a_rounding_of_bfloat16_to_fewer_bits_is_off",
    primitives,
    "reduce_precision_p",
    lambda x, **k: kind(x) == "bfloat16",
    operations=("option_grid",),
)
meet(
    "an_error_function_of_half_precision_is_off",
    primitives,
    "erf_p",
    lambda x, **k: kind(x) == "float16",
    operations=("option_grid",),
)
meet(
    "a_cube_root_of_bfloat16_is_off",
    primitives,
    "cbrt_p",
    lambda x, **k: kind(x) == "bfloat16",
    operations=("dtype_grid",),
    meshes=("4x2",),
)

# Collectives.

meet(
    "an_index_over_three_axes_is_off",
    lax,
    "axis_index",
    lambda names: not isinstance(names, str) and len(names) == 3,
    lambda real, f, *a, **k: f ^ 1,
    operations=("axis_index",),
    meshes=("2x2x2",),
)
meet(
    "an_untiled_gather_into_a_new_last_dimension_is_off",
    lax,
    "all_gather",
    lambda x, names, *, axis=0, tiled=False, **k: not tiled and x.ndim > 1 and axis in (x.ndim, -1),
    operations=("all_gather",),
    only=lambda case: "dim=3" in case.id and case.mesh.label == "2x4",
)
meet(
    "the_largest_of_no_elements_has_another_dtype",
    lax,
    "pmax",
    lambda x, *a, **k: x.size == 0,
    lambda real, f, *a, **k: f.astype(jnp.int8),
    operations=("pmax",),
    only=lambda case: case.id.endswith("/0B"),
)
