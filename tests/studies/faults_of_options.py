# SPDX-License-Identifier: Apache-2.0
"""Faults of options and edges: narrow integers, indices outside of an array, masks and sums of nothing, row exchanges,
overflow, axes of one device, dimensions that are alike."""

from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.studies.faults_of_breadth import group
from tests.studies.planting import fault, patched

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


# Derivatives, loops, batches and calls.


def way(name: str) -> dict[str, Any]:
    """The cases of one way of calling functions."""
    return {
        "operations": ("function_form",),
        "only": lambda case: case.cell.request.variant.get("form") == name,
    }


@fault(**way("several_arguments"))
def gradients_of_several_arguments_are_in_the_order_of_the_function():
    def grad(real, f, argnums=0, **k):
        order = sorted(argnums) if isinstance(argnums, tuple) else argnums
        return real(f, argnums=tuple(order) if isinstance(order, list) else order, **k)

    return changed(jax, "grad", grad)


@fault(**way("pulled_twice"))
def a_pullback_gives_its_first_result_again():
    def vjp(real, f, *primals):
        value, pull = real(f, *primals)
        first: list[Any] = []

        def pulled(cotangent):
            first.append(pull(cotangent))
            return first[0]

        return value, pulled

    return changed(jax, "vjp", vjp)


@fault(**way("matrices_of_derivatives"))
def second_derivatives_are_those_of_each_variable_alone():
    def hessian(real, f):
        return lambda v: jnp.diag(jnp.diag(real(f)(v)))

    return changed(jax, "hessian", hessian)


@fault(**way("through_branches"))
def operands_of_a_branch_change_places():
    return changed(lax, "cond", lambda real, p, t, f, *operands: real(p, t, f, *operands[::-1]))


@fault(**way("ends_of_loops"))
def a_loop_of_no_step_runs_once():
    def fori_loop(real, low, high, body, init):
        return body(low, init) if high <= low else real(low, high, body, init)

    return changed(lax, "fori_loop", fori_loop)


@fault(**way("scans_from_the_right"))
def a_running_combination_from_the_right_runs_from_the_left():
    return changed(lax, "associative_scan", lambda real, f, x, reverse=False, axis=0: real(f, x, axis=axis))


@fault(**way("sizes_of_batches"))
def an_argument_without_a_batch_takes_the_batch_of_a_tree():
    def vmap(real, f, in_axes=0, **k):
        if isinstance(in_axes, tuple) and isinstance(in_axes[0], dict):
            return lambda tree, number: 2 * real(f, in_axes=in_axes, **k)(tree, number)
        return real(f, in_axes=in_axes, **k)

    return changed(jax, "vmap", vmap)


@fault(**way("numbers_in_turn"))
def a_named_argument_is_that_of_the_first_call():
    def jit(real, function, **options):
        found, first = real(function, **options), {}
        return lambda *a, **k: found(*a, **{name: first.setdefault(name, v) for name, v in k.items()})

    return changed(jax, "jit", jit)


@fault(**way("one_device"))
def an_array_for_one_device_goes_to_the_first():
    def device_put(real, x, place=None, **k):
        alone = isinstance(place, (jax.Device, jax.sharding.SingleDeviceSharding))
        return real(x, jax.devices()[0] if alone else place, **k)

    return changed(jax, "device_put", device_put)


@fault(**way("told_before"))
def the_shape_of_a_result_is_told_in_reverse():
    def eval_shape(real, f, *a):
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[::-1], s.dtype), real(f, *a))

    return changed(jax, "eval_shape", eval_shape)


@fault(**way("types_of_results"))
def the_place_of_a_maximum_has_no_sign():
    return changed(jnp, "argmax", lambda real, *a, **k: real(*a, **k).astype(jnp.uint32))


@fault(**way("specs_of_trees"))
def the_second_argument_under_one_spec_is_reversed():
    def shard_map(real, f, *, in_specs, **k):
        mapped = real(f, in_specs=in_specs, **k)
        if isinstance(in_specs, tuple) and not isinstance(in_specs, jax.P):
            return mapped
        return lambda first, *rest: mapped(first, *(r[::-1] for r in rest))

    return changed(jax, "shard_map", shard_map)


@fault(**way("axes_in_turn"))
def blocks_over_axes_in_turn_are_in_the_order_of_the_mesh():
    return changed(lax, "axis_index", lambda real, a: real(tuple(sorted(a)) if isinstance(a, tuple) else a))


@fault(only=group("ordered"), **OPTIONS)
def windows_of_rows_that_are_apart_are_of_neighbours():
    def reduce_window(real, x, *a, window_dilation=None, **k):
        return jnp.roll(real(x, *a, window_dilation=window_dilation, **k), 1, 0)

    return changed(lax, "reduce_window", reduce_window)


@fault(only=group("linear"), **OPTIONS)
def eigenvalues_are_in_falling_order():
    return changed(jnp.linalg, "eigh", lambda real, a: tuple(y[..., ::-1] for y in real(a)))


def kind(name: str) -> dict[str, Any]:
    """The cases of one refusal."""
    return {"operations": ("refusal",), "only": lambda case: case.cell.request.variant.get("kind") == name}


@fault(**kind("exchange_size"))
def an_exchange_of_parts_that_are_too_many_does_nothing():
    def all_to_all(real, x, a, split, concat, **k):
        right = k.get("tiled") or x.shape[split] == lax.axis_size(a)
        return real(x, a, split, concat, **k) if right else x

    return changed(lax, "all_to_all", all_to_all)


@fault(**kind("permutation_range"))
def places_outside_of_an_axis_are_left_out_of_a_permutation():
    def ppermute(real, x, a, perm):
        return real(x, a, [(i, j) for i, j in perm if max(i, j) < lax.axis_size(a)])

    return changed(lax, "ppermute", ppermute)


@fault(**kind("mesh_names"))
def dimensions_of_a_mesh_without_a_name_are_left_out():
    return changed(jax, "make_mesh", lambda real, shape, names, **k: real(shape[-len(names) :], names, **k))


@fault(**kind("larger_update"))
def an_update_that_is_too_large_is_cut():
    def update(real, x, y, start):
        return real(x, y[tuple(slice(n) for n in x.shape)], start)

    return changed(lax, "dynamic_update_slice", update)


@fault(**kind("mixed_dtypes"))
def arrays_of_several_dtypes_are_joined():
    return changed(lax, "concatenate", lambda real, xs, d: real([x.astype(xs[0].dtype) for x in xs], d))


@fault(**kind("unhashable_static"))
def a_list_is_taken_for_a_static_argument():
    def jit(real, function, static_argnums=None, **options):
        if static_argnums is None:
            return real(function, **options)
        return lambda *a: real(lambda y: function(y, *a[1:]))(a[0])

    return changed(jax, "jit", jit)
