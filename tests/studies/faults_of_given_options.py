# SPDX-License-Identifier: Apache-2.0
"""Faults of a sixteenth list, which was written from the words of an issue and without a look at the table: of options
that are given beside a place, wide numbers, donated arrays, callbacks, and values that all devices share. And faults of
rules of threads, nested regions, transposes and policies that had none of their own."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_ties_and_ends import both
from tests.studies.planting import fault

ARRAY = type(jnp.zeros(()))


def axes_of(names: Any) -> tuple[Any, ...]:
    """The axes of a collective as a tuple."""
    return tuple(names) if isinstance(names, (tuple, list)) else (names,)


@fault(**rule("special_everywhere"))
def a_maximum_over_devices_starts_at_the_lowest_finite_number():
    def pmax(real, x, axis_name, **k):
        def finite(leaf):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                return leaf
            return jnp.where(leaf == -jnp.inf, jnp.finfo(leaf.dtype).min, leaf)

        return real(jax.tree.map(finite, x), axis_name, **k)

    return changed(lax, "pmax", pmax)


@fault(**rule("collectives_of_64_bits"))
def a_sum_of_64_bits_is_added_in_32():
    def psum(real, x, axis_name, **k):
        less = {"float64": jnp.float32, "complex128": jnp.complex64}.get(str(getattr(x, "dtype", "")))
        return (
            real(x, axis_name, **k) if less is None else real(x.astype(less), axis_name, **k).astype(x.dtype)
        )

    return changed(lax, "psum", psum)


@fault(**rule("sums_of_python_numbers"))
def a_sum_of_a_python_number_counts_the_whole_mesh():
    def psum(real, x, axis_name, **k):
        found, mesh = real(x, axis_name, **k), jax.sharding.get_abstract_mesh()
        if not isinstance(x, (int, float)) or mesh.empty:
            return found
        return found * int(np.prod([n for a, n in mesh.shape.items() if a not in axes_of(axis_name)]))

    return changed(lax, "psum", psum)


@fault(**rule("means_in_partial_regions"))
def a_mean_in_a_partial_region_divides_by_all_devices():
    def pmean(real, x, axis_name, **k):
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or set(mesh.manual_axes) == set(mesh.axis_names):
            return real(x, axis_name, **k)
        return lax.psum(x, axis_name) / mesh.size

    return changed(lax, "pmean", pmean)


@fault(**rule("indices_in_nested_regions"))
def the_index_of_the_outer_axis_is_zero_in_an_inner_region():
    outer: list[tuple[str, ...]] = []

    def shard_map(real, f, *a, **k):
        names = tuple(k.get("axis_names", ()))

        @functools.wraps(f)
        def inside(*args):
            outer.append(names)
            try:
                return f(*args)
            finally:
                outer.pop()

        return real(inside, *a, **k)

    def axis_index(real, axis_name):
        found = real(axis_name)
        return found * 0 if len(outer) > 1 and axis_name in outer[0] else found

    return both(changed(jax, "shard_map", shard_map), changed(lax, "axis_index", axis_index))


@fault(**rule("steps_in_groups"))
def a_carry_lacks_the_steps_that_are_left_over():
    def scan(real, f, init, xs=None, length=None, *, unroll=1, **k):
        found = real(f, init, xs, length, unroll=unroll, **k)
        leaves = jax.tree.leaves(xs)
        if (
            not leaves
            or unroll is True
            or unroll < 2
            or len(leaves[0]) < unroll
            or len(leaves[0]) % unroll == 0
        ):
            return found
        whole = len(leaves[0]) // unroll * unroll
        return real(f, init, jax.tree.map(lambda v: v[:whole], xs), None, unroll=unroll, **k)[0], found[1]

    return changed(lax, "scan", scan)


@fault(**rule("untiled_from_the_end"))
def a_gather_that_adds_a_dimension_counts_it_from_the_end_of_its_operand():
    def all_gather(real, x, axis_name, *, axis=0, tiled=False, **k):
        return real(x, axis_name, axis=axis if tiled or axis >= 0 else axis % x.ndim, tiled=tiled, **k)

    return changed(lax, "all_gather", all_gather)


@fault(**rule("modes_with_a_place"))
def rows_that_get_a_place_forget_their_mode():
    def get(real, self, *, out_sharding=None, mode=None, fill_value=None, **k):
        if out_sharding is not None:
            return real(self, out_sharding=out_sharding, **k)
        return real(self, mode=mode, fill_value=fill_value, **k)

    return changed(type(jnp.zeros(1).at[0]), "get", get)


@fault(**rule("ends_with_a_place"))
def a_linspace_with_a_place_has_its_end():
    def linspace(real, start, stop, num=50, endpoint=True, *a, **k):
        return real(start, stop, num, endpoint or k.get("device") is not None, *a, **k)

    return changed(jnp, "linspace", linspace)


@fault(**rule("ends_with_a_place"))
def a_range_with_a_place_starts_at_zero():
    def arange(real, *a, **k):
        if k.get("device") is None or len(a) < 2:
            return real(*a, **k)
        return real(*a, **k) - a[0]

    return changed(jnp, "arange", arange)


@fault(**rule("axes_of_one_device_in_specs"))
def a_put_drops_axes_of_one_device():
    def device_put(real, x, device=None, **k):
        if isinstance(device, NamedSharding) and 1 in device.mesh.shape.values():
            left = [tuple(a for a in axes_of(e or ()) if device.mesh.shape[a] > 1) for e in device.spec]
            device = NamedSharding(device.mesh, P(*(e or None for e in left)))
        return real(x, device, **k)

    return changed(jax, "device_put", device_put)


@fault(**rule("weak_values_in_constraints"))
def a_constrained_value_keeps_its_dtype_for_good():
    def with_sharding_constraint(real, x, *a, **k):
        return jax.tree.map(lambda v: lax.convert_element_type(v, v.dtype), real(x, *a, **k))

    return changed(lax, "with_sharding_constraint", with_sharding_constraint)


@fault(**rule("rows_permuted_apart"))
def rows_are_permuted_alike():
    def permutation(real, key, x, axis=0, independent=False, **k):
        return real(key, x, axis, False, **k)

    return changed(jax.random, "permutation", permutation)


@fault(**rule("callbacks_of_each_device"))
def each_device_gets_what_the_first_one_called():
    def pure_callback(real, *a, **k):
        found, mesh = real(*a, **k), jax.sharding.get_abstract_mesh()
        names = () if mesh.empty else tuple(mesh.manual_axes)
        return jax.tree.map(lambda v: lax.all_gather(v, names)[0], found) if names else found

    return changed(jax, "pure_callback", pure_callback)


@fault(**rule("errors_of_callbacks"))
def an_error_in_a_callback_gives_zeros():
    def pure_callback(real, callback, shapes, *a, **k):
        def quiet(*args):
            try:
                return callback(*args)
            except ValueError:
                return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)

        return real(quiet, shapes, *a, **k)

    return changed(jax, "pure_callback", pure_callback)


def around_donation(after: Any) -> Any:
    """`jax.jit` whose donating functions end with after(arguments, results) -> results."""

    def jit(real, fun=None, **k):
        if fun is None:
            return lambda f: jax.jit(f, **k)
        run = real(fun, **k)
        if "donate_argnums" not in k:
            return run
        return lambda *a: run(*a) if isinstance(jax.tree.leaves(a)[0], jax.core.Tracer) else after(a, run(*a))

    return changed(jax, "jit", jit)


@fault(**rule("donated_numpy"))
def a_donated_array_of_numpy_is_written_over():
    def after(given, found):
        for array in given:
            if isinstance(array, np.ndarray) and array.shape == getattr(found, "shape", None):
                array[...] = np.asarray(found)
        return found

    return around_donation(after)


@fault(**rule("donated_alike"))
def two_donated_arrays_of_one_shape_come_back_exchanged():
    def after(given, found):
        leaves, tree = jax.tree.flatten(found)
        alike = [k for k, leaf in enumerate(leaves) if leaf.shape == leaves[0].shape]
        if len(alike) > 1 and len(leaves) > len(alike):
            leaves[alike[-1]], leaves[alike[-2]] = leaves[alike[-2]], leaves[alike[-1]]
        return jax.tree.unflatten(tree, leaves)

    return around_donation(after)


@fault(**rule("read_before_it_was_donated"))
def a_deleted_array_that_was_read_can_be_read_again():
    kept: dict[int, Any] = {}

    def array(real, self, *a, **k):
        if self.is_deleted() and id(self) in kept:
            return kept[id(self)][1]
        kept[id(self)] = self, real(self, *a, **k)  # the array too, so that no other one gets its id
        return kept[id(self)][1]

    return changed(ARRAY, "__array__", array)


@fault(**rule("scalars_in_host_memory"))
def numbers_of_a_tree_stay_in_the_memory_of_the_device():
    def device_put(real, x, device=None, **k):
        def usual(place):
            kind = place.mesh.devices.flat[0].default_memory().kind
            return NamedSharding(place.mesh, place.spec, memory_kind=kind)

        if not isinstance(device, dict):
            return real(x, device, **k)
        return real(x, {n: place if np.ndim(x[n]) else usual(place) for n, place in device.items()}, **k)

    return changed(jax, "device_put", device_put)


@fault(**rule("gathered_by_processes"))
def a_gather_over_processes_has_the_order_of_device_ids():
    def process_allgather(real, tree, tiled=False):
        def by_id(leaf, found):
            where = leaf.sharding.devices_indices_map(leaf.shape)
            if leaf.sharding.is_fully_replicated:
                return found
            return np.concatenate([found[where[d]] for d in sorted(where, key=lambda d: d.id)])

        return jax.tree.map(by_id, tree, real(tree, tiled=tiled))

    return changed(multihost_utils, "process_allgather", process_allgather)


@fault(**rule("made_over_explicit_axes"))
def the_identity_in_a_program_forgets_its_place():
    def eye(real, *a, device=None, **k):
        found = real(*a, device=device, **k)
        return reshard(found, P()) if isinstance(found, jax.core.Tracer) and device is not None else found

    return changed(jnp, "eye", eye)


@fault(**rule("joined_packed_numbers"))
def numbers_of_four_bits_are_joined_in_reversed_order():
    def concatenate(real, arrays, *a, **k):
        small = all(str(getattr(v, "dtype", "")) in ("int4", "uint4") for v in arrays)
        return real(list(arrays)[::-1] if small else arrays, *a, **k)

    return changed(jnp, "concatenate", concatenate)


@fault(**rule("rounded_ranges"))
def a_range_of_half_precision_is_counted_up():
    def arange(real, *a, **k):
        if k.get("dtype") != jnp.float16 or len(a) != 1:
            return real(*a, **k)
        return lax.scan(lambda c, _: (c + 1, c), jnp.float16(0), length=a[0])[1]

    return changed(jnp, "arange", arange)


@fault(**rule("settings_of_threads"))
def a_thread_sees_the_mesh_that_another_one_has_set():
    set_ = []

    def set_mesh(real, mesh, *a, **k):
        set_.append(mesh.abstract_mesh)
        return real(mesh, *a, **k)

    def get_abstract_mesh(real):
        found = real()
        return set_[-1] if found.empty and set_ else found

    return both(
        changed(jax, "set_mesh", set_mesh), changed(jax.sharding, "get_abstract_mesh", get_abstract_mesh)
    )


@fault(**rule("shapes_ahead"))
def a_program_compiled_before_takes_unused_arguments_of_any_shape():
    def call(real, self, *a, **k):
        try:
            return real(self, *a, **k)
        except (TypeError, ValueError):
            infos, tree = jax.tree.flatten(self.args_info)
            leaves = jax.tree.leaves((a, k))
            if len(leaves) != len(infos):
                raise
            same = [
                leaf
                if leaf.shape == info.shape and leaf.dtype == info.dtype
                else jnp.zeros(info.shape, info.dtype)
                for leaf, info in zip(leaves, infos, strict=True)
            ]
            a, k = jax.tree.unflatten(tree, same)
            return real(self, *a, **k)

    return changed(jax.stages.Compiled, "__call__", call)


@fault(**rule("manual_axes_of_any_size"))
def a_turn_of_one_device_gives_nothing():
    def ppermute(real, x, axis_name, perm):
        return jnp.zeros_like(x) if list(perm) == [(0, 0)] else real(x, axis_name, perm)

    return changed(lax, "ppermute", ppermute)


@fault(**rule("loops_in_nested_regions"))
def a_map_in_a_region_in_a_region_forgets_its_last_row():
    def map_(real, f, xs, **k):
        found = real(f, xs, **k)
        if len(jax.sharding.get_abstract_mesh().manual_axes) < 2:
            return found
        return jax.tree.map(lambda v: v.at[-1].set(v[0]), found)

    return changed(lax, "map", map_)


@fault(**rule("pmap_in_transforms"))
def a_pmap_in_a_jit_puts_its_results_first():
    def pmap(real, fun, *a, **k):
        run = real(fun, *a, **k)
        if k.get("out_axes") != 1:
            return run
        first = real(fun, *a, **{**k, "out_axes": 0})
        return lambda *args: (first if isinstance(args[0], jax.core.Tracer) else run)(*args)

    return changed(jax, "pmap", pmap)


@fault(**rule("slopes_of_some_results"))
def a_policy_that_keeps_products_counts_the_slope_of_a_number_twice():
    def checkpoint(real, fun, **k):
        if k.get("policy") is not jax.checkpoint_policies.dots_saveable:
            return real(fun, **k)

        def twice(*a, **options):
            found = fun(*a, **options)
            return jax.tree.map(lambda v: v if v.ndim else v + (v - lax.stop_gradient(v)), found)

        return real(twice, **k)

    return changed(jax, "checkpoint", checkpoint)


@fault(**rule("rules_that_send"))
def a_rule_that_saves_nothing_passes_its_slope_on():
    def defvjp(real, self, fwd, bwd, *a, **k):
        return real(self, fwd, lambda saved, d: (d,) if saved is None else bwd(saved, d), *a, **k)

    return changed(jax.custom_vjp, "defvjp", defvjp)


@fault(**rule("transposed_again"))
def the_transpose_of_a_transpose_of_a_transpose_is_doubled():
    depth = []

    def linear_transpose(real, fun, *likes, **k):
        def inner(*a):
            depth.append(1)
            try:
                return fun(*a)
            finally:
                depth.pop()

        run = real(inner, *likes, **k)
        deep = len(depth) >= 2
        return lambda *d: jax.tree.map(lambda v: 2 * v, run(*d)) if deep else run(*d)

    return changed(jax, "linear_transpose", linear_transpose)


@fault(**rule("equal_contexts"))
def a_constraint_by_a_spec_stays_over_the_first_mesh_of_its_names():
    first: dict[Any, Any] = {}

    def set_mesh(real, mesh, *a, **k):
        return real(first.setdefault(mesh.axis_names, mesh), *a, **k)

    return changed(jax, "set_mesh", set_mesh)


@fault(**rule("numpy_beside_types"))
def a_product_by_numpy_from_the_left_is_kept_whole():
    kind = type(jnp.zeros(()))

    def rmatmul(real, self, other):
        return (
            reshard(real(self, other), P()) if jax.typeof(self).sharding.mesh.size > 1 else real(self, other)
        )

    return changed(kind, "__rmatmul__", rmatmul)
