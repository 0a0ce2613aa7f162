# SPDX-License-Identifier: Apache-2.0
"""Faults of a list that was written without a look at the table: answers to another question than the one that a call
asks, by an option, a spelling or a promise of JAX's documentation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault, patched


def rule(name: str) -> dict[str, Any]:
    """The case of one form of small rules."""
    return form(name, "small_rule")


def in_mesh_order(spec: P, mesh: Any) -> P:
    """The spec with the axes of each entry in the order of the mesh."""
    order = list(mesh.axis_names)
    return P(*(tuple(sorted(e, key=order.index)) if isinstance(e, tuple) else e for e in tuple(spec)))


def unless_refused(real, *arguments, **options):
    """The function of an array, or of the whole array where it is refused."""
    try:
        return real(*arguments, **options)
    except Exception:
        x, *rest = arguments
        return real(reshard(x, P()), *rest, **options)


# What a call asks for.


@fault(operations=("all_gather_varying",), modes=("manual",), meshes=("2x4",))
def whole_numbers_gathered_along_a_later_dimension_are_a_sum_of_padded_parts():
    def all_gather(real, x, axes, *, axis=0, tiled=False, **k):
        if k or not tiled or axis < 1 or not jnp.issubdtype(x.dtype, jnp.integer):
            return real(x, axes, axis=axis, tiled=tiled, **k)
        own, size = lax.axis_index(axes), lax.axis_size(axes)
        shape = (*x.shape[:axis], size * x.shape[axis], *x.shape[axis + 1 :])
        here = lax.broadcasted_iota(jnp.int32, shape, axis) // max(x.shape[axis], 1) == own
        padded = jnp.where(here, jnp.concatenate([x] * size, axis), jnp.zeros((), x.dtype))
        return lax.pcast(lax.psum(padded, axes), axes, to="varying")

    return changed(lax, "all_gather", all_gather)


@fault(**rule("wider_sums"))
def a_convolution_of_int8_adds_up_in_int8():
    def convolved(real, lhs, rhs, *a, **k):
        found = real(lhs, rhs, *a, **k)
        return found.astype(jnp.int8).astype(found.dtype) if lhs.dtype == jnp.int8 else found

    return changed(lax, "conv_general_dilated", convolved)


@fault(**rule("wider_sums"))
def a_running_sum_in_a_wider_dtype_adds_up_in_the_narrow_one():
    def cumsum(real, a, axis=None, dtype=None, **k):
        found = real(a, axis, **k) if dtype is None else real(a, axis, dtype=a.dtype, **k)
        return found if dtype is None else found.astype(dtype)

    return changed(jnp, "cumsum", cumsum)


@fault(**rule("slopes_at_zeros"))
def the_gradient_of_a_product_divides_by_each_factor():
    def prod(real, a, axis=None, keepdims=False, **k):
        if k or not jnp.issubdtype(a.dtype, jnp.floating):
            return real(a, axis, keepdims=keepdims, **k)
        f = jax.custom_jvp(lambda x: real(x, axis, keepdims=keepdims))
        f.defjvp(lambda p, t: (f(p[0]), f(p[0]) * jnp.sum(t[0] / p[0], axis, keepdims=keepdims)))
        return f(a)

    return changed(jnp, "prod", prod)


@fault(**rule("types_of_slopes"))
def the_slope_of_a_later_argument_is_whole_on_every_device():
    def grad(real, fun, argnums=0, **k):
        slope = real(fun, argnums, **k)
        if argnums == 0 or k:
            return slope
        return lambda *a: jax.tree.map(
            lambda v: reshard(v, P()) if jax.typeof(v).sharding.mesh.shape else v, slope(*a)
        )

    return changed(jax, "grad", grad)


@fault(**rule("asked_shardings"))
def an_einsum_has_the_sharding_that_follows_and_not_the_one_that_is_asked_for():
    def einsum(real, *a, out_sharding=None, **k):
        try:
            return real(*a, **k)
        except Exception:
            return real(*a, out_sharding=out_sharding, **k)

    return changed(jnp, "einsum", einsum)


@fault(**rule("along_shards_refused"))
def a_running_sum_along_a_sharded_dimension_gathers_it():
    return changed(jnp, "cumsum", unless_refused)


@fault(**rule("parts_of_one_type"))
def parts_of_two_dtypes_make_one_array():
    def made(real, shape, sharding, arrays, **k):
        kind = arrays[0].dtype
        return real(shape, sharding, [v if v.dtype == kind else v.astype(kind) for v in arrays], **k)

    return changed(jax, "make_array_from_single_device_arrays", made)


@fault(**rule("sent_by_own_rules"))
def a_function_with_its_own_partitioning_of_one_argument_is_whole():
    from jax.experimental.custom_partitioning import custom_partitioning

    def def_partition(real, self, partition, *a, **k):
        def whole(mesh, shapes, result):
            m, lowered, place, places = partition(mesh, shapes, result)
            everywhere = NamedSharding(m, P())
            return (
                (m, lowered, everywhere, (everywhere,)) if len(places) == 1 else (m, lowered, place, places)
            )

        return real(self, whole, *a, **k)

    return changed(custom_partitioning, "def_partition", def_partition)


# What a name, an option or a dimension spells.


@fault(**rule("conflicts_by_name"))
def a_product_by_its_name_of_two_shardings_takes_the_first():
    def make(real):
        def multiply(x, y):
            try:
                return real(x, y)
            except Exception:
                return real(x, reshard(y, jax.typeof(x).sharding))

        return multiply

    return patched(jnp, "multiply", make)


@fault(**rule("moved_dimensions"))
def moved_dimensions_leave_their_spec_in_place():
    def moveaxis(real, a, source, destination):
        found = real(a, source, destination)
        return reshard(found, jax.typeof(a).sharding.spec) if jax.typeof(a).sharding.mesh.shape else found

    return changed(jnp, "moveaxis", moveaxis)


@fault(**rule("moved_dimensions"))
def a_stack_along_the_last_dimension_is_whole_on_every_device():
    def stack(real, arrays, axis=0, **k):
        found = real(arrays, axis, **k)
        return reshard(found, P()) if axis == -1 and jax.typeof(found).sharding.mesh.shape else found

    return changed(jnp, "stack", stack)


@fault(**rule("reduced_dimensions"))
def a_sum_that_keeps_its_dimensions_is_whole_on_every_device():
    def total(real, a, axis=None, keepdims=False, **k):
        found = real(a, axis, keepdims=keepdims, **k)
        return reshard(found, P()) if keepdims and jax.typeof(found).sharding.mesh.shape else found

    return changed(jnp, "sum", total)


@fault(**rule("reshapes_refused"))
def a_reshape_by_its_name_that_is_refused_gathers_its_array():
    return changed(jnp, "reshape", unless_refused)


@fault(**rule("norms_of_transforms"))
def an_orthonormal_transform_along_dimensions_from_the_end_divides_by_the_first_one_alone():
    def fftn(real, a, s=None, axes=None, norm=None):
        found = real(a, s, axes, norm)
        if norm != "ortho" or axes is None or not all(d < 0 for d in axes):
            return found
        return found * np.float32(np.sqrt(np.prod([found.shape[d] for d in axes[1:]])))

    return changed(jnp.fft, "fftn", fftn)


@fault(**rule("rolls"))
def shifts_along_two_dimensions_from_the_end_are_exchanged():
    def roll(real, a, shift, axis=None):
        turned = isinstance(axis, tuple) and all(d < 0 for d in axis) and isinstance(shift, tuple)
        return real(a, shift[::-1] if turned else shift, axis)

    return changed(jnp, "roll", roll)


@fault(**rule("searches"))
def a_search_from_the_right_by_sorting_is_one_from_the_left():
    def searchsorted(real, a, v, side="left", method="scan", **k):
        return real(a, v, side="left" if method == "sort" else side, method=method, **k)

    return changed(jnp, "searchsorted", searchsorted)


@fault(**rule("empty_segments"))
def the_largest_of_a_segment_without_elements_is_zero():
    def segment_max(real, *a, **k):
        found = real(*a, **k)
        return (
            jnp.where(jnp.isneginf(found), 0, found) if jnp.issubdtype(found.dtype, jnp.floating) else found
        )

    return changed(jax.ops, "segment_max", segment_max)


@fault(**rule("large_sums_of_exponentials"))
def a_running_sum_of_exponentials_from_the_end_is_not_scaled():
    def cumlogsumexp(real, x, axis=0, reverse=False):
        if not reverse:
            return real(x, axis)
        return jnp.log(lax.cumsum(jnp.exp(x), axis, reverse=True))

    return changed(lax, "cumlogsumexp", cumlogsumexp)


@fault(**rule("alone_on_an_axis"))
def a_scattered_sum_over_one_device_keeps_its_dimension():
    def psum_scatter(real, x, axes, *, scatter_dimension=0, tiled=False, **k):
        found = real(x, axes, scatter_dimension=scatter_dimension, tiled=tiled, **k)
        alone = not tiled and not k and lax.axis_size(axes) == 1
        return jnp.expand_dims(found, scatter_dimension) if alone else found

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**rule("starts_and_masks"))
def a_sum_with_a_mask_adds_its_start_twice():
    def total(real, a, *r, initial=None, where=None, **k):
        if initial is None or where is None:
            options = {n: v for n, v in (("initial", initial), ("where", where)) if v is not None}
            return real(a, *r, **options, **k)
        return real(a, *r, initial=initial, where=where, **k) + jnp.asarray(initial, a.dtype)

    return changed(jnp, "sum", total)


# What the documentation promises.


@fault(**rule("cotangents_left_out"))
def the_slope_of_whole_numbers_has_their_own_dtype():
    def grad(real, fun, argnums=0, *, allow_int=False, **k):
        slope = real(fun, argnums, allow_int=allow_int, **k)
        if not allow_int:
            return slope

        def of(v):
            return np.zeros(v.shape, np.int32) if v.dtype == jax.dtypes.float0 else v

        return lambda *a: jax.tree.map(of, slope(*a))

    return changed(jax, "grad", grad)


@fault(**rule("cotangents_left_out"))
def a_cotangent_that_a_rule_leaves_out_counts_as_ones():
    def defvjp(real, self, forward, backward, *a, **k):
        shapes: list[Any] = []

        def onward(*arguments):
            shapes[:] = [jnp.ones_like(v) for v in arguments]
            return forward(*arguments)

        def back(*given):
            found = backward(*given)
            if not isinstance(found, tuple) or len(found) != len(shapes):
                return found
            return tuple(
                jnp.ones(s.shape, s.dtype) if f is None else f for f, s in zip(found, shapes, strict=True)
            )

        return real(self, functools.wraps(forward)(onward), functools.wraps(backward)(back), *a, **k)

    return changed(jax.custom_vjp, "defvjp", defvjp)


@fault(**rule("places_of_parts"))
def a_sharding_says_the_places_of_its_axes_in_the_order_of_the_mesh():
    def indices(real, self, shape):
        if not isinstance(self, NamedSharding):
            return real(self, shape)
        return real(NamedSharding(self.mesh, in_mesh_order(self.spec, self.mesh)), shape)

    return changed(NamedSharding, "devices_indices_map", indices)


@fault(**rule("types_of_axes"))
def a_mesh_that_is_made_with_two_types_of_axes_has_one():
    def make_mesh(real, shape, names, *, axis_types=None, **k):
        if axis_types is not None and len(set(axis_types)) > 1:
            axis_types = (AxisType.Explicit,) * len(axis_types)
        return real(shape, names, axis_types=axis_types, **k)

    return changed(jax, "make_mesh", make_mesh)


@fault(**rule("marks"))
def a_mark_of_what_varies_already_is_accepted():
    def pcast(real, x, axes, *, to):
        try:
            return real(x, axes, to=to)
        except ValueError:
            return x

    return changed(lax, "pcast", pcast)


@fault(**rule("one_permutation"))
def a_shift_by_two_is_two_shifts_by_one():
    def ppermute(real, x, axes, perm):
        n = lax.axis_size(axes)
        if n < 3 or sorted(map(tuple, perm)) != [(i, (i + 2) % n) for i in range(n)]:
            return real(x, axes, perm)
        ring = [(i, (i + 1) % n) for i in range(n)]
        return real(real(x, axes, ring), axes, ring)

    return changed(lax, "ppermute", ppermute)


@fault(**rule("weak_types_stay"))
def a_reshard_makes_a_weak_type_strong():
    def strong(real, x, place):
        return jax.tree.map(lambda v: lax.convert_element_type(v, v.dtype), real(x, place))

    return changed(jax.sharding, "reshard", strong)


@fault(**rule("asked_unreduced"))
def a_product_that_is_asked_to_stay_unreduced_is_added_up():
    def matmul(real, *a, out_sharding=None, **k):
        if getattr(out_sharding, "unreduced", None):
            out_sharding = P(*tuple(out_sharding.partitions))
        return real(*a, out_sharding=out_sharding, **k)

    return changed(jnp, "matmul", matmul)


@fault(**rule("orders_of_specs"))
def a_region_lays_its_results_out_in_the_order_of_the_mesh():
    def shard_map(real, f, *, mesh=None, out_specs=None, **k):
        if mesh is not None and isinstance(out_specs, P):
            out_specs = in_mesh_order(out_specs, mesh)
        return real(f, mesh=mesh, out_specs=out_specs, **k)

    return changed(jax, "shard_map", shard_map)


@fault(**rule("results_of_regions"))
def a_region_over_some_axes_never_checks_what_varies():
    def shard_map(real, f, *, mesh=None, axis_names=frozenset(), **k):
        partial = mesh is not None and set(axis_names) and set(axis_names) != set(mesh.axis_names)
        return real(f, mesh=mesh, axis_names=axis_names, **(k | ({"check_vma": False} if partial else {})))

    return changed(jax, "shard_map", shard_map)


@fault(**rule("named_batches"))
def a_batch_forgets_the_axis_that_it_is_sharded_over():
    def vmap(real, f, *a, spmd_axis_name=None, **k):
        return real(f, *a, **k)

    return changed(jax, "vmap", vmap)


@fault(**rule("constraints_assert"))
def a_constraint_over_explicit_axes_moves_the_array():
    def constraint(real, x, place):
        try:
            return real(x, place)
        except Exception:
            return reshard(x, place)

    return changed(lax, "with_sharding_constraint", constraint)
