# SPDX-License-Identifier: Apache-2.0
"""Faults of options and edges: narrow integers, indices outside of an array, masks and sums of nothing, row exchanges,
overflow, axes of one device, dimensions that are alike."""

from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.studies.faults import fault, patched
from tests.studies.faults_of_breadth import group

OPTIONS = {"operations": ("function_options",)}


def form(name: str) -> dict[str, Any]:
    """The cases of one option of collectives."""
    return {
        "operations": ("collective_option",),
        "only": lambda case: case.cell.request.variant.get("form") == name,
    }


def changed(owner: Any, name: str, call: Any) -> Any:
    """A function replaced by `call(real, *arguments)`."""
    return patched(owner, name, lambda real: lambda *a, **k: call(real, *a, **k))


# Narrow integers.


@fault(only=group("narrow"), **OPTIONS)
def bytes_with_a_sign_are_sorted_as_those_without():
    def sort(real, x, axis=-1):
        if x.dtype != jnp.int8:
            return real(x, axis=axis)
        return real(x.astype(jnp.uint8), axis=axis).astype(jnp.int8)

    return changed(jnp, "sort", sort)


@fault(only=group("narrow"), **OPTIONS)
def a_product_of_bytes_is_added_up_in_16_bits():
    def dot_general(real, x, y, numbers, preferred_element_type=None, **k):
        if x.dtype not in (jnp.int8, jnp.uint8):
            return real(x, y, numbers, preferred_element_type=preferred_element_type, **k)
        wide = real(x, y, numbers, preferred_element_type=jnp.int32)
        return wide.astype(jnp.int16).astype(preferred_element_type or x.dtype)

    return changed(lax, "dot_general", dot_general)


@fault(only=group("narrow"), **OPTIONS)
def the_least_of_scattered_bytes_is_found_as_if_they_had_a_sign():
    ref = type(jnp.zeros(1).at[0])

    def least(real, self, value, **k):
        if value.dtype != jnp.uint8:
            return real(self, value, **k)
        found = self.array.astype(jnp.int8).at[self.index].min(value.astype(jnp.int8))
        return found.astype(jnp.uint8)

    return changed(ref, "min", least)


@fault(only=group("narrow"), **OPTIONS)
def the_largest_of_16_bits_is_found_as_if_they_had_a_sign():
    def largest(real, x, axis=None, **k):
        if x.dtype != jnp.uint16:
            return real(x, axis=axis, **k)
        return real(x.astype(jnp.int16), axis=axis, **k).astype(jnp.uint16)

    return changed(jnp, "max", largest)


@fault(only=group("narrow"), **OPTIONS)
def a_mean_of_half_precision_overflows_on_the_way():
    def mean(real, x, axis=None, **k):
        if x.dtype != jnp.float16:
            return real(x, axis=axis, **k)
        return lax.reduce(x, np.float16(0), lax.add, (axis,)) / x.shape[axis]

    return changed(jnp, "mean", mean)


# Indices outside of an array.


@fault(only=group("taken"), **OPTIONS)
def a_clipped_index_below_zero_counts_from_the_end():
    def take(real, x, at, axis=None, mode=None, **k):
        if mode == "clip":
            at = jnp.where(at < 0, at + x.shape[axis], at)
        return real(x, at, axis=axis, mode=mode, **k)

    return changed(jnp, "take", take)


@fault(only=group("taken"), **OPTIONS)
def a_clipped_gather_starts_from_the_end_where_its_start_is_below_zero():
    def gather(real, x, starts, *more, mode=None, **k):
        if mode == "clip":
            starts = jnp.where(starts < 0, starts + x.shape[0], starts)
        return real(x, starts, *more, mode=mode, **k)

    return changed(lax, "gather", gather)


@fault(only=group("taken"), **OPTIONS)
def rows_of_no_segment_go_to_the_last():
    def segment_sum(real, x, ids, count):
        return real(x, jnp.where((ids < 0) | (ids >= count), count - 1, ids), count)

    return changed(jax.ops, "segment_sum", segment_sum)


# Orders of dimensions.


@fault(only=group("shaped"), **OPTIONS)
def a_cycle_of_equal_dimensions_goes_the_other_way():
    def transpose(real, x, axes=None):
        if axes is not None and len(set(x.shape)) == 1:
            axes = tuple(int(a) for a in np.argsort(axes))
        return real(x, axes)

    return changed(jnp, "transpose", transpose)


@fault(**form("cycle"))
def a_cycle_of_equal_sharded_dimensions_goes_the_other_way():
    def transpose(real, x, axes=None):
        if axes is not None and len(set(x.shape)) == 1:
            axes = tuple(int(a) for a in np.argsort(axes))
        return real(x, axes)

    return changed(jnp, "transpose", transpose)


@fault(only=group("shaped"), **OPTIONS)
def a_maximum_over_dimensions_that_are_apart_takes_those_between():
    tracer = jax.core.Tracer
    real = tracer.max

    def largest(x, axis=None, **k):
        if isinstance(axis, tuple) and axis == (1, 3):
            found = real(x, axis=(1, 2), **k)
            return jnp.resize(found, tuple(n for d, n in enumerate(x.shape) if d not in axis))
        return real(x, axis=axis, **k)

    return patch.object(tracer, "max", largest, create=True)


@fault(only=group("shaped"), **OPTIONS)
def a_sum_over_dimensions_that_are_apart_takes_the_first_two():
    tracer = jax.core.Tracer
    real = tracer.sum

    def total(x, axis=None, **k):
        if axis == (0, 2):
            found = real(x, axis=(0, 1), **k)
            return jnp.resize(found, tuple(n for d, n in enumerate(x.shape) if d not in axis))
        return real(x, axis=axis, **k)

    return patch.object(tracer, "sum", total, create=True)


# Masks, and sums of nothing.


@fault(only=group("masked"), **OPTIONS)
def a_variance_forgets_its_mask():
    return changed(jnp, "var", lambda real, x, axis=None, where=None, **k: real(x, axis=axis, **k))


@fault(only=group("masked"), **OPTIONS)
def a_sum_of_exponentials_of_nothing_is_NaN():
    def logsumexp(real, x, *a, axis=None, **k):
        found = real(x, *a, axis=axis, **k)
        if isinstance(found, tuple):
            return found
        return jnp.where(jnp.max(x, axis=axis) == -jnp.inf, jnp.nan, found)

    return changed(jax.nn, "logsumexp", logsumexp)


@fault(only=group("masked"), **OPTIONS)
def a_running_sum_of_exponentials_starts_with_NaN():
    def cumlogsumexp(real, x, axis=0, reverse=False):
        return jnp.where(x == -jnp.inf, x - x, real(x, axis=axis, reverse=reverse))

    return changed(lax, "cumlogsumexp", cumlogsumexp)


# Linear systems.


@fault(only=group("linear"), **OPTIONS)
def a_unit_diagonal_is_read():
    def solve(real, a, b, unit_diagonal=False, **k):
        return real(a, b, **k)

    return changed(lax.linalg, "triangular_solve", solve)


@fault(only=group("linear"), **OPTIONS)
def a_system_is_solved_without_its_row_exchanges():
    def solve(real, a, b):
        return real(a, jnp.take_along_axis(b, lax.linalg.lu(a)[2][..., None], 1))

    return changed(jnp.linalg, "solve", solve)


@fault(only=group("linear"), **OPTIONS)
def the_sign_of_a_determinant_forgets_row_exchanges():
    return changed(jnp.linalg, "det", lambda real, a: jnp.abs(real(a)))


@fault(only=group("linear"), **OPTIONS)
def pivots_are_those_of_the_identity():
    def lu(real, a):
        found, pivots, order = real(a)
        return found, jnp.broadcast_to(jnp.arange(4, dtype=pivots.dtype), pivots.shape), order

    return changed(lax.linalg, "lu", lu)


# Transforms, attention and ragged products.


@fault(only=group("fourier"), capabilities=("complex",), **OPTIONS)
def an_inverse_transform_of_odd_length_is_of_even_length():
    def irfft(real, x, n=None, axis=-1, **k):
        if n is None or n % 2 == 0:
            return real(x, n=n, axis=axis, **k)
        return jnp.resize(real(x, n=n - 1, axis=axis, **k), (x.shape[0], n))

    return changed(jnp.fft, "irfft", irfft)


@fault(only=group("fourier"), capabilities=("complex",), **OPTIONS)
def an_inverse_transform_of_two_dimensions_runs_forward_along_one():
    def ifft2(real, x):
        return jnp.fft.fft(jnp.fft.ifft(x, axis=0), axis=1) / x.shape[1]

    return changed(jnp.fft, "ifft2", ifft2)


@fault(only=group("attention"), **OPTIONS)
def lengths_of_keys_and_values_are_ignored():
    def attention(real, *a, key_value_seq_lengths=None, **k):
        return real(*a, **k)

    return changed(jax.nn, "dot_product_attention", attention)


@fault(only=group("attention"), **OPTIONS)
def a_window_reaches_one_key_further():
    def attention(real, *a, local_window_size=None, **k):
        if local_window_size is not None:
            local_window_size = (local_window_size[0] + 1, local_window_size[1])
        return real(*a, local_window_size=local_window_size, **k)

    return changed(jax.nn, "dot_product_attention", attention)


@fault(only=group("ragged"), **OPTIONS)
def rows_past_the_groups_take_the_last_matrix():
    def ragged_dot(real, x, y, sizes, **k):
        return real(x, y, sizes.at[-1].add(x.shape[0] - sizes.sum()), **k)

    return changed(lax, "ragged_dot", ragged_dot)


# Collectives.


@fault(**form("half_overflow"))
def a_sum_of_half_precision_saturates():
    def psum(real, x, a, **k):
        found = real(x, a, **k)
        if getattr(x, "dtype", None) == jnp.float16:
            return jnp.clip(found, -65504, 65504).astype(found.dtype)
        return found

    return changed(lax, "psum", psum)


@fault(**form("nothing_but_infinity"))
def the_largest_of_negative_infinities_is_a_number():
    def pmax(real, x, a, **k):
        found = real(x, a, **k)
        least = float(jnp.finfo(found.dtype).min) if jnp.issubdtype(found.dtype, jnp.floating) else None
        return found if least is None else jnp.maximum(found, jnp.array(least, found.dtype))

    return changed(lax, "pmax", pmax)


@fault(**form("signs"))
def the_largest_of_32_bits_is_found_as_if_they_had_a_sign():
    def pmax(real, x, a, **k):
        if x.dtype != jnp.uint32:
            return real(x, a, **k)
        return lax.bitcast_convert_type(real(lax.bitcast_convert_type(x, jnp.int32), a, **k), jnp.uint32)

    return changed(lax, "pmax", pmax)


@fault(**form("constants"))
def a_constant_is_added_up_over_the_first_axis_alone():
    def psum(real, x, a, **k):
        return real(x, a[0] if isinstance(x, (int, float)) and isinstance(a, tuple) else a, **k)

    return changed(lax, "psum", psum)


@fault(**form("scattered_third"))
def parts_along_the_third_dimension_are_those_of_the_next_device():
    def psum_scatter(real, x, a, *, scatter_dimension=0, tiled=False, **k):
        if scatter_dimension == 2:
            x = jnp.roll(x, -(x.shape[2] // lax.axis_size(a)), 2)
        return real(x, a, scatter_dimension=scatter_dimension, tiled=tiled, **k)

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**form("batch_and_devices"))
def a_sum_over_a_batch_and_devices_leaves_out_the_batch():
    def psum(real, x, a, **k):
        return real(x, a[1] if isinstance(a, tuple) and a[0] == "k" else a, **k)

    return changed(lax, "psum", psum)


@fault(**form("batched"))
def a_gathered_batch_is_the_first_dimension():
    def vmap(real, f, in_axes=0, out_axes=0, **k):
        if out_axes != 2:
            return real(f, in_axes=in_axes, out_axes=out_axes, **k)
        return lambda *a: jnp.reshape(
            real(f, in_axes=in_axes, out_axes=0, **k)(*a), real(f, in_axes=in_axes, out_axes=2, **k)(*a).shape
        )

    return changed(jax, "vmap", vmap)


@fault(**form("axis_of_one"))
def a_gather_over_an_axis_of_one_device_is_zero():
    def all_gather(real, x, a, **k):
        return real(x, a, **k) * (a != "one")

    return changed(lax, "all_gather", all_gather)


@fault(**form("axis_of_one"))
def rows_taken_beside_an_axis_of_one_device_are_in_order():
    def take(real, x, at, axis=None, **k):
        return real(x, np.sort(at) if isinstance(at, np.ndarray) else at, axis=axis, **k)

    return changed(jnp, "take", take)


@fault(**form("made_alike"))
def an_array_made_like_another_is_on_one_device():
    def zeros_like(real, x, dtype=None, **k):
        if k or not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
            return real(x, dtype=dtype, **k)
        return jnp.zeros(x.shape, dtype or x.dtype)

    return changed(jnp, "zeros_like", zeros_like)
