# SPDX-License-Identifier: Apache-2.0
"""Faults of a further list that was written without a look at the table: calls that are right until one more condition
holds, such as a tie, a start past the end, a second constant or another order of devices."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.planting import axes_of, fault, patched


def updates() -> type:
    """The class of `x.at[...]`."""
    return type(jnp.zeros(1).at[0])


def is_a(x: Any, kind: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, kind)


def explicit(x: Any) -> bool:
    """Whether an array's type says how it is sharded."""
    return hasattr(x, "dtype") and any(part is not None for part in tuple(jax.typeof(x).sharding.spec))


def whole(x: Any) -> Any:
    return reshard(x, P()) if explicit(x) else x


@contextmanager
def both(*parts: Any) -> Iterator[None]:
    """Several patches that are one fault."""
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(part)
        yield


@fault(**rule("rules_with_constants"))
def a_backward_rule_gets_two_constants_in_the_wrong_order():
    def defvjp(real, self, fwd, bwd, *a, **k):
        n = len(self.nondiff_argnums)
        return real(self, fwd, (lambda *v: bwd(*v[:n][::-1], *v[n:])) if n > 1 else bwd, *a, **k)

    return changed(jax.custom_vjp, "defvjp", defvjp)


@fault(**rule("moved_between_orders"))
def parts_stay_in_place_where_the_devices_come_in_another_order():
    def device_put(real, x, device=None, **k):
        own = getattr(x, "sharding", None)
        if not (isinstance(own, NamedSharding) and isinstance(device, NamedSharding)):
            return real(x, device, **k)
        before, after = list(own.mesh.devices.flat), list(device.mesh.devices.flat)
        same = set(before) == set(after) and own.shard_shape(x.shape) == device.shard_shape(x.shape)
        if before == after or not same:
            return real(x, device, **k)
        at = {s.device: s.data for s in x.addressable_shards}
        return jax.make_array_from_single_device_arrays(x.shape, device, [at[d] for d in after])

    return changed(jax, "device_put", device_put)


@fault(**rule("asked_of_indices"))
def a_lookup_is_sharded_as_asked_along_its_first_dimension_alone():
    def get(real, self, *, out_sharding=None, **k):
        if isinstance(out_sharding, P) and len(out_sharding) > 1:
            out_sharding = P(out_sharding[0], *[None] * (len(out_sharding) - 1))
        return real(self, out_sharding=out_sharding, **k)

    return changed(updates(), "get", get)


@fault(**rule("slopes_at_ties"))
def the_slope_of_a_maximum_goes_to_the_first_of_equals():
    def largest(real, a, axis=None, **k):
        if not isinstance(axis, int):
            return real(a, axis, **k)
        f = jax.custom_jvp(lambda x: real(x, axis, **k))

        def slope(p, t):
            first = jnp.argmax(p[0], axis, keepdims=True)
            here = lax.broadcasted_iota(first.dtype, p[0].shape, axis % p[0].ndim) == first
            return f(p[0]), jnp.sum(jnp.where(here, t[0], 0), axis, keepdims=k.get("keepdims", False))

        f.defjvp(slope)
        return f(a)

    return changed(jnp, "max", largest)


@fault(**rule("fills_of_whole_numbers"))
def whole_numbers_outside_of_an_array_are_not_the_value_that_is_asked_for():
    def get(real, self, *, fill_value=None, **k):
        return real(self, fill_value=None if is_a(self.array, jnp.integer) else fill_value, **k)

    return changed(updates(), "get", get)


@fault(**rule("slopes_of_clamped_starts"))
def an_update_whose_start_is_clamped_has_no_slope():
    def update_slice(real, operand, update, starts, **k):
        past = functools.reduce(
            jnp.logical_or,
            [jnp.asarray(s) > n - w for s, n, w in zip(starts, operand.shape, update.shape, strict=True)],
        )
        f = jax.custom_jvp(lambda u, lost: u)
        f.defjvp(lambda p, t: (f(*p), jnp.where(p[1], 0, t[0])))
        return real(operand, f(update, past), starts, **k)

    return changed(lax, "dynamic_update_slice", update_slice)


@fault(**rule("slopes_of_clamped_starts"))
def a_batch_of_slices_past_the_end_is_of_zeros():
    def cut(real, operand, starts, sizes):
        found = real(operand, starts, sizes)
        fits = [jnp.asarray(s) <= n - w for s, n, w in zip(starts, operand.shape, sizes, strict=True)]
        return jnp.where(functools.reduce(jnp.logical_and, fits), found, jnp.zeros_like(found))

    return changed(lax, "dynamic_slice", cut)


@fault(**rule("slopes_inside_remat"))
def the_slope_of_a_sum_inside_a_checkpoint_is_multiplied_by_the_axis():
    inside: list[int] = []

    def checkpoint(real, f, *a, **k):
        def traced(*v, **w):
            inside.append(1)
            try:
                return f(*v, **w)
            finally:
                inside.pop()

        return real(traced, *a, **k)

    def psum(real, x, axes, **k):
        if not inside:
            return real(x, axes, **k)
        size = lax.axis_size(axes)
        f = jax.custom_jvp(lambda v: v)
        f.defjvp(lambda p, t: (f(p[0]), t[0] * size))
        return f(real(x, axes, **k))

    return both(changed(jax, "checkpoint", checkpoint), changed(lax, "psum", psum))


@fault(**rule("jacobians_of_matrices"))
def a_forward_jacobian_has_the_dimensions_of_its_argument_reversed():
    def jacfwd(real, f, *a, **k):
        def derived(x):
            found = real(f, *a, **k)(x)
            first = found.ndim - x.ndim
            return jnp.transpose(found, (*range(first), *range(found.ndim - 1, first - 1, -1)))

        return derived

    return changed(jax, "jacfwd", jacfwd)


@fault(**rule("lowered_shapes"))
def a_shape_over_two_axes_at_once_is_lowered_without_its_sharding():
    def struct(real, shape, dtype, *, sharding=None, **k):
        several = any(isinstance(part, tuple) for part in getattr(sharding, "spec", ()))
        return real(shape, dtype, sharding=None if several else sharding, **k)

    return changed(jax, "ShapeDtypeStruct", struct)


@fault(**rule("middles"))
def the_median_of_an_even_number_is_the_lower_of_two():
    def median(real, a, axis=None, **k):
        if axis is None or a.shape[axis] % 2:
            return real(a, axis, **k)
        return jnp.take(jnp.sort(a, axis), a.shape[axis] // 2 - 1, axis)

    return changed(jnp, "median", median)


@fault(**rule("largest_along"))
def the_places_of_the_largest_along_an_earlier_dimension_come_sorted():
    def top_k(real, operand, k, *, axis=-1, **o):
        values, places = real(operand, k, axis=axis, **o)
        later = axis % operand.ndim == operand.ndim - 1
        return values, places if later else lax.sort(places, dimension=axis % operand.ndim)

    return changed(lax, "top_k", top_k)


@fault(**rule("ends_of_sums"))
def the_logarithm_of_a_sum_of_nothing_is_nan():
    def logsumexp(real, a, axis=None, **k):
        found = real(a, axis, **k)
        return jnp.where(found == -jnp.inf, jnp.nan, found)

    return changed(jax.nn, "logsumexp", logsumexp)


@fault(**rule("ends_of_sums"))
def a_mean_of_float16_adds_up_in_float16():
    def mean(real, a, axis=None, **k):
        if not is_a(a, jnp.float16) or k:
            return real(a, axis, **k)
        found = jnp.sum(a, axis)
        return found / np.float16(a.size // found.size)

    return changed(jnp, "mean", mean)


@fault(**rule("counts_of_axes"))
def a_mean_of_whole_numbers_over_devices_is_a_whole_number():
    def pmean(real, x, axes, **k):
        if not is_a(x, jnp.integer):
            return real(x, axes, **k)
        return lax.psum(x, axes) // lax.axis_size(axes)

    return changed(lax, "pmean", pmean)


@fault(**rule("counts_of_axes"))
def the_sum_of_one_over_two_axes_is_the_size_of_the_first():
    def psum(real, x, axes, **k):
        if isinstance(x, int) and len(axes_of(axes)) > 1:
            return x * lax.axis_size(axes_of(axes)[0])
        return real(x, axes, **k)

    return changed(lax, "psum", psum)


@fault(**rule("windows_with_padding"))
def the_largest_of_a_padded_window_is_at_least_zero():
    def windows(real, operand, start, reduce, sizes, steps=None, padding="VALID", **k):
        if reduce is not lax.max or padding == "VALID":
            return real(operand, start, reduce, sizes, steps, padding, **k)
        pads = padding
        if isinstance(padding, str):
            pads = lax.padtype_to_pads(operand.shape, sizes, steps, padding)
        wide = lax.pad(operand, jnp.zeros((), operand.dtype), [(low, high, 0) for low, high in pads])
        return real(wide, start, reduce, sizes, steps, "VALID", **k)

    return changed(lax, "reduce_window", windows)


@fault(**rule("permutations_of_other_orders"))
def a_permutation_counts_devices_by_their_number():
    order: list[list[int]] = []

    def shard_map(real, f, *, mesh=None, **k):
        def traced(*a):
            numbers = [d.id for d in mesh.devices.flat]
            order.append([sorted(numbers).index(n) for n in numbers])
            try:
                return f(*a)
            finally:
                order.pop()

        return real(traced, mesh=mesh, **k)

    def ppermute(real, x, axes, perm):
        place = order[-1]
        return real(x, axes, [(place[a], place[b]) for a, b in perm])

    outer = patched(jax, "shard_map", lambda real: lambda f, **k: shard_map(real, f, **k))
    return both(outer, changed(lax, "ppermute", ppermute))


@fault(**rule("carries_refused"))
def a_scan_casts_a_carry_of_another_dtype():
    def scan(real, f, init, *a, **k):
        def body(c, x):
            new, y = f(c, x)
            return jax.tree.map(lambda n, o: n.astype(o.dtype), new, c), y

        return real(body, init, *a, **k)

    return changed(lax, "scan", scan)


@fault(**rule("rows_set_explicitly"))
def rows_that_are_set_make_an_explicit_array_whole():
    def update(real, self, values, **k):
        found = real(self, values, **k)
        return found if "out_sharding" in k else whole(found)

    return changed(updates(), "set", update)


@fault(**rule("products_refused"))
def an_ambiguous_product_is_computed():
    def matmul(real, a, b, **k):
        try:
            return real(a, b, **k)
        except Exception:
            return real(whole(a), whole(b), **k)

    return changed(jnp, "matmul", matmul)


@fault(**rule("matrices_of_indices"))
def a_matrix_of_indices_along_a_later_dimension_is_read_by_columns():
    def take(real, a, indices, axis=None, **k):
        if np.ndim(indices) == 2 and axis:
            indices = jnp.asarray(indices).T.reshape(np.shape(indices))
        return real(a, indices, axis, **k)

    return changed(jnp, "take", take)


@fault(**rule("made_in_place"))
def zeros_over_two_dimensions_are_sharded_along_the_first():
    def zeros(real, shape, *a, device=None, **k):
        if len(getattr(device, "spec", ())) > 1:
            device = NamedSharding(device.mesh, P(device.spec[0]))
        return real(shape, *a, device=device, **k)

    return changed(jnp, "zeros", zeros)


@fault(**rule("specs_that_stay"))
def zeros_like_an_array_of_another_dtype_are_whole():
    def like(real, a, dtype=None, **k):
        found = real(a, dtype, **k)
        return found if dtype is None else whole(found)

    return changed(jnp, "zeros_like", like)


@fault(**rule("specs_that_stay"))
def what_a_scan_stacks_is_whole():
    def scan(real, *a, **k):
        carry, stacked = real(*a, **k)
        return carry, jax.tree.map(whole, stacked)

    return changed(lax, "scan", scan)


@fault(**rule("parts_in_any_order"))
def parts_of_an_array_are_taken_in_the_order_of_the_list():
    def made(real, shape, sharding, arrays, **k):
        order = list(sharding.addressable_devices_indices_map(shape))
        return real(shape, sharding, [jax.device_put(a, d) for a, d in zip(arrays, order, strict=True)], **k)

    return changed(jax, "make_array_from_single_device_arrays", made)
