# SPDX-License-Identifier: Apache-2.0
"""Faults of a seventeenth list, which was written from JAX's sources and without a look at the table: refusals that are
lost, and what a call does not keep of what it was given. Each stands for one kind of the list."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Format
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_given_options import axes_of
from tests.studies.faults_of_ties_and_ends import both
from tests.studies.planting import fault, patched

ARRAY = type(jnp.zeros(()))


# Refusals that are lost.


@fault(**rule("bad_collectives"))
def a_shuffle_that_is_no_permutation_leaves_every_block():
    def pshuffle(real, x, axis_name, perm):
        return real(x, axis_name, perm) if len(set(perm)) == len(perm) else x

    return changed(lax, "pshuffle", pshuffle)


@fault(**rule("bad_regions"))
def a_list_of_manual_axes_is_taken_as_a_set():
    def shard_map(real, *a, axis_names=frozenset(), **k):
        return real(*a, axis_names=set(axis_names), **k)

    return changed(jax, "shard_map", shard_map)


@fault(**rule("bad_calls_of_jit"))
def a_static_argument_past_the_last_is_ignored():
    def jit(real, fun, **k):
        past = k.get("static_argnums")
        if isinstance(past, int) and past >= len(inspect.signature(fun).parameters):
            del k["static_argnums"]
        return real(fun, **k)

    return changed(jax, "jit", jit)


@fault(**rule("bad_parts"))
def data_of_one_process_may_have_another_shape():
    def made(real, sharding, data, shape=None, **k):
        return real(sharding, data, **k)

    return changed(jax, "make_array_from_process_local_data", made)


@fault(**rule("bad_specs"))
def a_part_of_an_uneven_dimension_is_rounded_up():
    def shard_shape(real, self, shape):
        try:
            return real(self, shape)
        except ValueError:
            return tuple(-(-size // self.num_devices) for size in shape)

    return changed(NamedSharding, "shard_shape", shard_shape)


@fault(**rule("bad_meshes"))
def the_mesh_of_the_context_is_told_inside_of_jit():
    def get_mesh(real):
        try:
            return real()
        except ValueError:
            return jax.sharding.get_abstract_mesh()

    return changed(jax.sharding, "get_mesh", get_mesh)


@fault(**rule("shardings_refused"))
def a_result_may_vary_over_an_axis_that_its_spec_leaves_out():
    def shard_map(real, *a, **k):
        return real(*a, **k | {"check_vma": False})

    return changed(jax, "shard_map", shard_map)


@fault(**rule("bad_shapes"))
def the_largest_minus_one_are_none():
    def top_k(real, x, k, **o):
        return real(x, max(k, 0), **o)

    return changed(lax, "top_k", top_k)


@fault(**rule("bad_products"))
def groups_past_the_last_matrix_are_dropped():
    def ragged_dot(real, a, b, sizes, **k):
        return real(a, b, sizes[: len(b)], **k)

    return changed(lax, "ragged_dot", ragged_dot)


@fault(**rule("bad_indices"))
def an_unknown_mode_of_take_wraps():
    def take(real, a, indices, axis=None, *rest, mode=None, **k):
        return real(a, indices, axis, *rest, mode="wrap" if mode == "around" else mode, **k)

    return changed(jnp, "take", take)


@fault(**rule("bad_loops"))
def a_negative_number_of_steps_at_once_is_one():
    def scan(real, f, init, xs=None, length=None, *, unroll=1, **k):
        return real(f, init, xs, length, unroll=unroll if unroll is True else max(unroll, 1), **k)

    return changed(lax, "scan", scan)


@fault(**rule("bad_derivatives"))
def a_batch_that_is_not_to_be_returned_is_returned_in_front():
    def vmap(real, fun, *a, out_axes=0, **k):
        return real(fun, *a, out_axes=0 if out_axes is None else out_axes, **k)

    return changed(jax, "vmap", vmap)


# What a call keeps.


@fault(**rule("facts_of_unreduced"))
def summands_are_told_to_be_whole():
    def told(real):
        get = real.fget if isinstance(real, property) else real.__get__
        return property(lambda self: get(self) or bool(self.spec.unreduced and not any(self.spec.partitions)))

    return patched(NamedSharding, "is_fully_replicated", told)


@fault(**rule("stored_in_words"))
def a_pickled_sharding_forgets_its_memory():
    def reduce(real, self):
        return NamedSharding, (self.mesh, self.spec)

    return changed(NamedSharding, "__reduce__", reduce)


@fault(**rule("types_of_batched_products"))
def a_product_in_a_batch_forgets_the_dtype_that_is_asked_for():
    deep: list[int] = []

    def vmap(real, fun, *a, **k):
        run = real(fun, *a, **k)

        def batch(*given, **options):
            deep.append(1)
            try:
                return run(*given, **options)
            finally:
                deep.pop()

        return batch

    def dot(real, a, b, *rest, preferred_element_type=None, **k):
        return real(a, b, *rest, preferred_element_type=None if deep else preferred_element_type, **k)

    return both(changed(jax, "vmap", vmap), changed(lax, "dot", dot))


@fault(**rule("types_of_reshapes"))
def a_type_names_the_first_of_joined_axes_alone():
    def typeof(real, x):
        found = real(x)
        spec = tuple(found.sharding.spec)
        if not any(isinstance(part, tuple) for part in spec):
            return found
        first = P(*(part[0] if isinstance(part, tuple) else part for part in spec))
        return SimpleNamespace(sharding=SimpleNamespace(spec=first, mesh=found.sharding.mesh))

    return changed(jax, "typeof", typeof)


@fault(**rule("types_over_mixed_axes"))
def draws_over_mixed_axes_forget_their_place():
    def normal(real, *a, out_sharding=None, **k):
        kinds = set(jax.sharding.get_abstract_mesh().axis_types)
        return real(*a, **k) if AxisType.Auto in kinds else real(*a, out_sharding=out_sharding, **k)

    return changed(jax.random, "normal", normal)


@fault(**rule("layouts_of_results"))
def the_layout_of_a_result_is_forgotten():
    def jit(real, fun, **k):
        asked = k.get("out_shardings")
        return real(fun, **k | ({"out_shardings": asked.sharding} if isinstance(asked, Format) else {}))

    return changed(jax, "jit", jit)


@fault(**rule("shardings_told_to_rules"))
def a_rule_is_told_the_sharding_of_the_first_argument_for_all():
    def def_partition(real, self, partition, *a, **k):
        def told(mesh, arguments, result):
            first = arguments[0].sharding
            alike = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=first) for one in arguments)
            return partition(mesh, alike, result)

        return real(self, told, *a, **k)

    def by_keyword(real, self, *a, partition=None, **k):
        return def_partition(real, self, partition or a[0], *a[1:], **k)

    return changed(custom_partitioning, "def_partition", by_keyword)


@fault(**rule("lowered_as_spelled"))
def a_scattered_sum_over_two_axes_is_a_whole_sum():
    def psum_scatter(real, x, axis_name, *, scatter_dimension=0, tiled=False, **k):
        if len(axes_of(axis_name)) < 2 or not tiled or k:
            return real(x, axis_name, scatter_dimension=scatter_dimension, tiled=tiled, **k)
        size = x.shape[scatter_dimension] // lax.axis_size(axis_name)
        start = lax.axis_index(axis_name) * size
        return lax.dynamic_slice_in_dim(lax.psum(x, axis_name), start, size, scatter_dimension)

    return changed(lax, "psum_scatter", psum_scatter)


# One thing that is used again.


@fault(**rule("jitted_twice"))
def a_function_that_is_jitted_again_keeps_the_place_of_its_first_results():
    first: dict[Any, Any] = {}

    def jit(real, fun, **k):
        if "out_shardings" in k:
            k["out_shardings"] = first.setdefault(fun, k["out_shardings"])
        return real(fun, **k)

    return changed(jax, "jit", jit)


@fault(**rule("donated_beside_unused"))
def an_argument_beside_an_unused_one_is_donated_too():
    def jit(real, fun, **k):
        names = list(inspect.signature(fun).parameters)
        donated = k.get("donate_argnums")
        if names[:1] == ["unused"] and isinstance(donated, int) and not k.get("keep_unused"):
            k["donate_argnums"] = tuple({donated, min(donated + 1, len(names) - 1)})
        return real(fun, **k)

    return changed(jax, "jit", jit)


@fault(**rule("elements_of_long_arrays"))
def a_row_that_is_left_over_is_lost():
    def rows(real, self):
        found = list(real(self))
        return iter(found[:-1] if len(found) > 1 and len(found) % 100 == 1 else found)

    return changed(ARRAY, "__iter__", rows)


@fault(**rule("contexts_after_errors"))
def the_mesh_of_a_context_stays_after_an_error():
    class Context:
        def __init__(self, real: Any) -> None:
            self.real = real

        def __enter__(self) -> Any:
            return self.real.__enter__()

        def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
            return None if kind else self.real.__exit__(kind, error, trace)

    def set_mesh(real, mesh):
        return Context(real(mesh))

    return changed(jax, "set_mesh", set_mesh)


@fault(**rule("copies_on_request"))
def a_copy_that_is_asked_for_is_an_alias():
    def device_put(real, x, *a, may_alias=None, **k):
        return real(x, *a, **k)

    return changed(jax, "device_put", device_put)


@fault(**rule("arrays_over_other_devices"))
def the_same_spec_over_other_devices_is_the_same_place():
    def same(real, self, other, ndim):
        alike = isinstance(other, NamedSharding) and self.spec == other.spec
        return real(self, other, ndim) or (alike and self.mesh.axis_names == other.mesh.axis_names)

    return changed(NamedSharding, "is_equivalent_to", same)


@fault(**rule("arrays_like"))
def zeros_like_an_array_with_a_dtype_of_their_own_lie_on_one_device():
    def zeros_like(real, x, dtype=None, **k):
        return real(x, dtype, **k) if dtype in (None, x.dtype) else jnp.zeros(x.shape, dtype)

    return changed(jnp, "zeros_like", zeros_like)


@fault(**rule("host_local_arrays"))
def an_array_of_a_host_is_made_whole():
    def made(real, given, mesh, spec):
        return real(given, mesh, P())

    return changed(multihost_utils, "host_local_array_to_global_array", made)


# Batches and places.


@fault(**rule("filled_in_batches"))
def a_fill_value_is_forgotten_in_a_batch():
    deep: list[int] = []

    def vmap(real, fun, *a, **k):
        def inside(*given):
            deep.append(1)
            try:
                return fun(*given)
            finally:
                deep.pop()

        return real(inside, *a, **k)

    def take(real, a, indices, axis=None, *rest, fill_value=None, **k):
        return real(a, indices, axis, *rest, fill_value=None if deep else fill_value, **k)

    return both(changed(jax, "vmap", vmap), changed(jnp, "take", take))


@fault(**rule("exchanges_in_batches"))
def an_exchange_over_the_axis_of_a_batch_joins_its_parts_backwards():
    def all_to_all(real, x, axis_name, split_axis, concat_axis, *, tiled=False, **k):
        found = real(x, axis_name, split_axis, concat_axis, tiled=tiled, **k)
        if axis_name != "i" or not tiled or split_axis == concat_axis:
            return found
        return jnp.concatenate(jnp.split(found, lax.axis_size("i"), concat_axis)[::-1], concat_axis)

    return changed(lax, "all_to_all", all_to_all)


@fault(**rule("slopes_of_grouped_exchanges"))
def a_mean_over_groups_divides_by_all_devices():
    def pmean(real, x, axis_name, *, axis_index_groups=None, **k):
        if axis_index_groups is None:
            return real(x, axis_name, **k)
        return lax.psum(x, axis_name, axis_index_groups=axis_index_groups) / lax.axis_size(axis_name)

    return changed(lax, "pmean", pmean)


@fault(**rule("dynamic_places"))
def a_negative_place_of_a_slice_is_the_first():
    def dynamic_slice(real, x, starts, sizes, **k):
        return real(x, [jnp.maximum(start, 0) for start in starts], sizes, **k)

    return changed(lax, "dynamic_slice", dynamic_slice)


@fault(**rule("slopes_of_convolutions"))
def the_gradient_of_a_deep_convolution_turns_two_of_three_dimensions():
    def convolution(real, x, kernel, *a, **k):
        found = real(x, kernel, *a, **k)
        if np.ndim(x) != 5:
            return found
        turned = real(x, jnp.flip(kernel, 2), *a, **k)
        return lax.stop_gradient(found) + turned - lax.stop_gradient(turned)

    return changed(lax, "conv_general_dilated", convolution)
