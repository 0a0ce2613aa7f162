# SPDX-License-Identifier: Apache-2.0
"""Faults of combinations: one function, of one dtype, with one option or for one length alone; and of what a second use
of a function, of an array or of a callback gives.

Those of single operations are planted below the public functions (`bound`), so that every way to call one shows it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import primitives

from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_transforms import of
from tests.studies.planting import axes_of, fault


@contextmanager
def bound(name: str, call: Callable[..., Any]) -> Iterator[None]:
    """A primitive whose results are those of `call(real, *operands, **parameters)`, traced anew."""
    primitive = getattr(primitives, name)
    real = primitive.bind
    inside = [False]

    def bind(*operands: Any, **parameters: Any) -> Any:
        if inside[0]:
            return real(*operands, **parameters)
        inside[0] = True
        try:
            return call(real, *operands, **parameters)
        finally:
            inside[0] = False

    jax.clear_caches()
    try:
        with patch.object(primitive, "bind", bind):
            yield
    finally:
        jax.clear_caches()


def kind(x: Any) -> str:
    """The dtype of an operand."""
    return str(getattr(x, "dtype", type(x).__name__))


def nudged(found: Any, where: bool) -> Any:
    """The first element of a result one more, or the other truth, where it is wrong."""
    if not where or not found.size:
        return found
    first = jnp.arange(found.size).reshape(found.shape) == 0
    other = ~found if found.dtype == bool else found + jnp.ones((), found.dtype)
    return jnp.where(first, other, found)


def wrong_where(test: Callable[..., bool]) -> Callable[..., Any]:
    """A call whose first element is wrong where the operands and parameters pass a test."""

    def call(real: Any, *operands: Any, **parameters: Any) -> Any:
        found = real(*operands, **parameters)
        if not test(*operands, **parameters):
            return found
        if isinstance(found, (list, tuple)):
            return type(found)([*found[:-1], nudged(found[-1], True)])
        return nudged(found, True)

    return call


# Collectives.


def sent(operation: str, *parts: str) -> dict[str, Any]:
    """The cases of an operation whose id has these parts."""
    return {"operations": (operation,), "only": lambda case: all(part in case.id for part in parts)}


@fault(**sent("collective_grid", "usual", "/2x4/"))
def one_row_of_bfloat16_for_each_device_is_scattered_to_the_next():
    def psum_scatter(real, x, axes, *, scatter_dimension=0, tiled=False, **k):
        n = lax.axis_size(axes)
        if kind(x) == "bfloat16" and x.shape[scatter_dimension] == n > 1:
            x = jnp.roll(x, 1, scatter_dimension)
        return real(x, axes, scatter_dimension=scatter_dimension, tiled=tiled, **k)

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**sent("all_to_all", "split=0,concat=0", "int8"))
def bytes_that_are_exchanged_within_one_dimension_come_in_reverse():
    def all_to_all(real, x, axes, split_axis, concat_axis, *, tiled=False, **k):
        found = real(x, axes, split_axis, concat_axis, tiled=tiled, **k)
        if kind(x) == "int8" and split_axis == concat_axis and tiled:
            return jnp.flip(found, concat_axis)
        return found

    return changed(lax, "all_to_all", all_to_all)


@fault(**sent("pmax", "axes=x+z,", "/2x2x2/"))
def the_largest_over_the_first_and_the_last_axis_of_three_is_that_over_neighbours():
    def pmax(real, x, axes, **k):
        return real(x, ("x", "y") if axes_of(axes) == ("x", "z") else axes, **k)

    return changed(lax, "pmax", pmax)


@fault(**sent("all_gather", "0B"))
def a_gather_of_arrays_of_no_rows_has_one():
    def all_gather(real, x, axes, *, axis=0, tiled=False, **k):
        found = real(x, axes, axis=axis, tiled=tiled, **k)
        return jnp.zeros((1, *found.shape[1:]), found.dtype) if found.size == 0 and tiled else found

    return changed(lax, "all_gather", all_gather)


NAMED = {"operations": ("second_use",), "only": of("form=within_a_batch")}


def batched(axes: Any) -> bool:
    """Whether one of these axes is not of the mesh."""
    return any(name not in jax.sharding.get_abstract_mesh().shape for name in axes_of(axes))


@fault(**NAMED)
def a_permutation_within_a_batch_goes_the_other_way():
    def ppermute(real, x, axes, pairs):
        return real(x, axes, [(b, a) for a, b in pairs] if batched(axes) else pairs)

    return changed(lax, "ppermute", ppermute)


@fault(**NAMED)
def a_scattered_sum_within_a_batch_goes_to_the_next():
    def psum_scatter(real, x, axes, *, scatter_dimension=0, **k):
        if batched(axes):
            x = jnp.roll(x, 1, scatter_dimension)
        return real(x, axes, scatter_dimension=scatter_dimension, **k)

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**NAMED)
def an_exchange_within_a_batch_keeps_its_parts():
    def all_to_all(real, x, axes, split_axis, concat_axis, **k):
        found = real(x, axes, split_axis, concat_axis, **k)
        return x if batched(axes) and found.shape == x.shape else found

    return changed(lax, "all_to_all", all_to_all)


@fault(**NAMED)
def the_place_in_a_batch_beside_devices_counts_from_the_end():
    def axis_index(real, axes):
        found = real(axes)
        mesh = jax.sharding.get_abstract_mesh().shape
        return lax.axis_size(axes) - 1 - found if batched(axes) and mesh else found

    return changed(lax, "axis_index", axis_index)


# Single operations of one dtype, with one option.


def operation(name: str, test: Callable[..., bool]) -> Callable[[], Any]:
    """A function that plants a wrong first element of a primitive."""
    return lambda: bound(name, wrong_where(test))


def single(title: str, name: str, group: str, dtype: str, test: Callable[..., bool]) -> None:
    """Register a fault of one primitive, and the case that holds its functions of a dtype."""
    make = operation(name, test)
    make.__name__ = title  # type: ignore[attr-defined]
    fault(only=of(f"group={group}", f"kind={dtype}"), **GRIDS)(make)


GRIDS = {"operations": ("dtype_grid",)}


single(
    "a_product_of_a_batch_in_half_precision_is_off_by_one",
    "dot_general_p",
    "products",
    "float16",
    lambda a, b, *, dimension_numbers, **k: kind(a) == "float16" and len(dimension_numbers[1][0]) > 0,
)
single(
    "a_product_of_bytes_along_rows_is_off_by_one",
    "dot_general_p",
    "products",
    "int8",
    lambda a, b, *, dimension_numbers, **k: kind(a) == "int8" and tuple(dimension_numbers[0][0]) == (0,),
)
single(
    "a_product_of_two_dtypes_is_off_by_one",
    "dot_general_p",
    "widened",
    "int8",
    lambda a, b, **k: kind(a) != kind(b),
)
single(
    "a_product_over_two_dimensions_of_bfloat16_is_off_by_one",
    "dot_general_p",
    "products",
    "bfloat16",
    lambda a, b, *, dimension_numbers, **k: kind(a) == "bfloat16" and len(dimension_numbers[0][0]) > 1,
)
single(
    "a_product_of_unsigned_words_is_off_by_one",
    "dot_general_p",
    "products",
    "uint32",
    lambda a, b, **k: kind(a) == "uint32",
)
single(
    "a_product_of_all_elements_of_bytes_is_off_by_one",
    "reduce_prod_p",
    "reduced",
    "int8",
    lambda x, **k: kind(x) in ("int8", "uint8"),
)
single(
    "the_least_of_two_dimensions_in_half_precision_is_off_by_one",
    "reduce_min_p",
    "reduced",
    "float16",
    lambda x, *, axes, **k: kind(x) == "float16" and len(axes) == 2,
)
single(
    "whether_any_of_two_dimensions_is_true_is_the_other",
    "reduce_or_p",
    "truths",
    "bool",
    lambda x, *, axes, **k: kind(x) == "bool" and len(axes) == 2,
)
single(
    "a_running_sum_from_the_end_of_16_bits_is_off_by_one",
    "cumsum_p",
    "reduced",
    "int16",
    lambda x, *, reverse, **k: reverse and kind(x) == "int16",
)
single(
    "a_running_product_of_bytes_is_off_by_one",
    "cumprod_p",
    "reduced",
    "int8",
    lambda x, **k: kind(x) == "int8",
)
single(
    "a_running_minimum_of_bfloat16_from_the_end_is_off_by_one",
    "cummin_p",
    "reduced",
    "bfloat16",
    lambda x, *, reverse, **k: reverse and kind(x) == "bfloat16",
)
single(
    "bytes_made_of_half_precision_are_off_by_one",
    "convert_element_type_p",
    "converted",
    "float16",
    lambda x, *, new_dtype, **k: kind(x) == "float16" and str(new_dtype) == "int8",
)
single(
    "bfloat16_made_of_half_precision_is_off_by_one",
    "convert_element_type_p",
    "converted",
    "float16",
    lambda x, *, new_dtype, **k: kind(x) == "float16" and str(new_dtype) == "bfloat16",
)
single(
    "words_made_of_16_bits_are_off_by_one",
    "convert_element_type_p",
    "converted",
    "uint16",
    lambda x, *, new_dtype, **k: kind(x) == "uint16" and str(new_dtype) == "int32",
)
single(
    "a_choice_of_three_is_off_by_one",
    "select_n_p",
    "places",
    "int32",
    lambda which, *c, **k: len(c) == 3,
)
single(
    "a_choice_of_booleans_is_the_other",
    "select_n_p",
    "places",
    "bool",
    lambda which, *c, **k: kind(c[0]) == "bool",
)
single(
    "a_scattered_product_of_16_bits_is_off_by_one",
    "scatter_mul_p",
    "summed",
    "int16",
    lambda x, *a, **k: kind(x) in ("int16", "uint16"),
)
single(
    "the_largest_of_scattered_bfloat16_is_off_by_one",
    "scatter_max_p",
    "places",
    "bfloat16",
    lambda x, *a, **k: kind(x) == "bfloat16",
)
single(
    "three_parts_of_half_precision_are_joined_off_by_one",
    "concatenate_p",
    "shapes",
    "float16",
    lambda *x, **k: len(x) == 3 and kind(x[0]) == "float16",
)
single(
    "a_negative_padding_of_bytes_is_off_by_one",
    "pad_p",
    "shapes",
    "int8",
    lambda x, v, *, padding_config, **k: (
        kind(x) == "int8" and any(p[0] < 0 or p[1] < 0 for p in padding_config)
    ),
)
single(
    "a_padding_between_elements_of_bfloat16_is_off_by_one",
    "pad_p",
    "shapes",
    "bfloat16",
    lambda x, v, *, padding_config, **k: kind(x) == "bfloat16" and any(p[2] for p in padding_config),
)
single(
    "a_matrix_of_booleans_is_turned_with_the_other_truth",
    "transpose_p",
    "shapes",
    "bool",
    lambda x, *, permutation, **k: kind(x) == "bool" and len(permutation) > 2,
)
single(
    "the_largest_in_windows_of_bytes_is_off_by_one",
    "reduce_window_max_p",
    "reduced",
    "int8",
    lambda x, **k: kind(x) in ("int8", "uint8"),
)
single(
    "the_sum_in_windows_of_half_precision_is_off_by_one",
    "reduce_window_sum_p",
    "reduced",
    "float16",
    lambda x, **k: kind(x) == "float16",
)
single(
    "a_convolution_in_bfloat16_with_a_stride_is_off_by_one",
    "conv_general_dilated_p",
    "products",
    "bfloat16",
    lambda x, w, *, window_strides, **k: kind(x) == "bfloat16" and max(window_strides) > 1,
)
single(
    "a_convolution_of_bytes_is_off_by_one",
    "conv_general_dilated_p",
    "products",
    "int8",
    lambda x, w, **k: kind(x) == "int8",
)
single(
    "the_greatest_elements_of_bytes_are_off_by_one",
    "top_k_p",
    "summed",
    "int8",
    lambda x, **k: kind(x) in ("int8", "uint8"),
)
single(
    "a_clamp_of_16_bits_by_scalars_is_off_by_one",
    "clamp_p",
    "summed",
    "int16",
    lambda low, x, high: kind(x) in ("int16", "uint16") and getattr(low, "ndim", 0) == 0,
)
single(
    "a_whole_power_of_bfloat16_is_off_by_one",
    "integer_pow_p",
    "summed",
    "bfloat16",
    lambda x, *, y, **k: kind(x) == "bfloat16" and y > 2,
)


@fault(only=of("group=shapes", "kind=int8"), **GRIDS)
def uneven_parts_of_bytes_change_places():
    def split(real, x, sizes, axis=0):
        found = real(x, sizes, axis)
        return [*found][::-1] if kind(x) == "int8" and len({*sizes}) > 1 else found

    return changed(lax, "split", split)


single(
    "the_remainder_of_bytes_is_off_by_one",
    "rem_p",
    "summed",
    "int8",
    lambda x, y: kind(x) == "int8",
)
single(
    "the_place_of_the_least_in_half_precision_is_off_by_one",
    "argmin_p",
    "reduced",
    "float16",
    lambda x, **k: kind(x) == "float16",
)
single(
    "a_sort_of_booleans_beside_others_has_the_other_truth",
    "sort_p",
    "shapes",
    "bool",
    lambda *x, **k: len(x) > 1 and any(kind(v) == "bool" for v in x),
)
single(
    "a_dynamic_slice_of_bool_is_the_other",
    "dynamic_slice_p",
    "places",
    "bool",
    lambda x, *a, **k: kind(x) == "bool",
)
single(
    "a_hyperbolic_tangent_in_half_precision_is_off_by_one",
    "tanh_p",
    "floats",
    "float16",
    lambda x, **k: kind(x) == "float16",
)
single(
    "a_power_of_two_in_bfloat16_is_off_by_one",
    "exp2_p",
    "floats",
    "bfloat16",
    lambda x, **k: kind(x) == "bfloat16",
)
