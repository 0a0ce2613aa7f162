# SPDX-License-Identifier: Apache-2.0
"""Faults of settings of random numbers in turn, of draws of sharded rows, of functions of partly sharded arrays, and of
collectives that only some devices reach."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import xla_metadata
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault, patched


def random_setting(name: str) -> dict[str, Any]:
    """The case of one setting of random numbers."""
    return form(name, "random_setting")


@fault(**random_setting("kinds_of_keys"))
def a_context_of_a_kind_of_keys_changes_nothing():
    return patched(jax, "default_prng_impl", lambda real: lambda kind: contextlib.nullcontext())


@fault(**random_setting("orders_of_threefry"))
def the_order_of_threefry_stays_that_of_the_first_call():
    return patched(jax, "threefry_partitionable", lambda real: lambda on: real(True))


@fault(**random_setting("offset_of_seeds"))
def an_offset_of_seeds_is_lost_inside_of_programs():
    def key(real, seed, **k):
        inside = isinstance(real(0, **k), jax.core.Tracer)
        lost = jax.config.jax_random_seed_offset if inside else 0
        return real(seed - lost, **k)

    return changed(jax.random, "key", key)


@fault(**random_setting("choices_of_rows"))
def a_permutation_takes_one_row_twice():
    return changed(jax.random, "permutation", lambda real, *a, **k: real(*a, **k).at[0].set(real(*a, **k)[1]))


@fault(**random_setting("choices_of_rows"))
def categories_without_weight_are_drawn():
    return changed(
        jax.random, "categorical", lambda real, key, chance, **k: real(key, jnp.maximum(chance, -1), **k)
    )


# Functions of arrays that are sharded over some axes.


def holding(group: str, function: str, operation: str = "partly_sharded") -> dict[str, Any]:
    """The programs that hold a function."""

    def only(case):
        variant, own = case.cell.request.variant, case.operation
        mine = variant.get("group") == group and variant.get("function") is None
        return mine and function in own.together(group, variant["turn"], case.mesh, variant.get("way"))

    return {"operations": (operation,), "only": only}


@fault(**holding("running", "cumsum_back"))
def a_running_sum_from_the_end_starts_at_the_front():
    return changed(lax, "cumsum", lambda real, x, axis=0, reverse=False: real(x, axis=axis))


@fault(**holding("running", "affine"))
def a_scan_of_pairs_joins_them_in_the_other_order():
    def associative_scan(real, then, pairs, **k):
        turned = (lambda f, g: then(g, f)) if isinstance(pairs, tuple) else then
        return real(turned, pairs, **k)

    return changed(lax, "associative_scan", associative_scan)


@fault(**holding("orders", "sort_downward"))
def a_sort_downward_goes_upward():
    return changed(jnp, "sort", lambda real, x, axis=-1, descending=False: real(x, axis=axis))


@fault(**holding("orders", "two_keys"))
def a_sort_by_two_keys_takes_the_first_alone():
    return changed(lax, "sort", lambda real, x, num_keys=1, **k: real(x, num_keys=1, **k))


@fault(**holding("reduced", "two_operands"))
def a_reduction_of_two_operands_counts_rows_from_one():
    def reduce(real, arrays, *a):
        found = real(arrays, *a)
        return (found[0], found[1] + 1) if isinstance(arrays, tuple) else found

    return changed(lax, "reduce", reduce)


@fault(**holding("reduced", "windows_of_two"))
def a_window_of_two_operands_takes_the_second_of_another():
    def reduce_window(real, arrays, *a):
        found = real(arrays, *a)
        return (found[0], jnp.roll(found[1], 1, axis=0)) if isinstance(arrays, tuple) else found

    return changed(lax, "reduce_window", reduce_window)


@fault(**holding("reads", "batched"))
def a_gather_with_a_batch_reads_the_next_row():
    def gather(real, x, places, numbers, *a, **k):
        return real(jnp.roll(x, 1, axis=0) if numbers.operand_batching_dims else x, places, numbers, *a, **k)

    return changed(lax, "gather", gather)


@fault(**holding("shapes", "symmetric"))
def a_symmetric_pad_leaves_out_the_edge():
    def pad(real, x, width, mode="constant"):
        return real(x, width, mode="reflect" if mode == "symmetric" else mode)

    return changed(jnp, "pad", pad)


@fault(**holding("products", "kron"))
def a_kronecker_product_has_its_factors_in_the_other_order():
    return changed(jnp, "kron", lambda real, x, y: real(y, x))


@fault(**holding("loops", "until_large"))
def a_loop_with_a_sharded_condition_goes_on_once_more():
    return changed(lax, "while_loop", lambda real, more, step, start: step(real(more, step, start)))


@fault(**holding("running", "cummin", "partly_sharded_gradient"))
def a_running_minimum_has_no_gradient():
    return changed(lax, "cummin", lambda real, x, **k: lax.stop_gradient(real(x, **k)))


@fault(**holding("reads", "take_along_columns", "partly_sharded_gradient"))
def the_gradient_of_elements_of_columns_goes_to_rows():
    def take_along_axis(real, x, places, axis):
        found = real(x, places, axis=axis)
        return found + (x - lax.stop_gradient(x)) if axis == 0 else found

    return changed(jnp, "take_along_axis", take_along_axis)


# Corners of programs.


def corner(name: str) -> dict[str, Any]:
    """The case of one corner."""
    return form(name, "block_corner")


@fault(**corner("branches_of_some"))
def a_branch_of_the_next_line_is_taken():
    return changed(lax, "switch", lambda real, at, ways, *a: real((at + 1) % len(ways), ways, *a))


@fault(**corner("loops_of_some"))
def a_loop_ends_one_turn_late_on_every_line():
    return changed(lax, "while_loop", lambda real, more, step, start: step(real(more, step, start)))


@fault(**corner("carried"))
def what_a_loop_carries_is_sent_the_other_way():
    def ppermute(real, x, axes, pairs):
        return real(x, axes, [(target, source) for source, target in pairs])

    return changed(lax, "ppermute", ppermute)


@fault(**corner("trees"))
def the_largest_of_the_leaves_of_one_dtype_is_zero():
    def pmax(real, tree, axes):
        return real({k: 0 * v if k == "uint8" else v for k, v in tree.items()}, axes)

    return changed(lax, "pmax", pmax)


@fault(**corner("uneven_between"))
def a_part_between_manual_axes_is_rolled_the_other_way():
    return changed(jnp, "roll", lambda real, x, by, axis: real(x, -by, axis=axis))


@fault(**corner("three_types"))
def a_move_beside_manual_axes_adds_one():
    return changed(lax, "with_sharding_constraint", lambda real, x, place: real(x, place) + 1)


@fault(**corner("batch_over_an_axis"))
def a_batch_over_an_axis_is_turned_around():
    def make(real):
        def vmap(f, **k):
            run = real(f, **k)
            return (lambda x: run(x)[::-1]) if "spmd_axis_name" in k else run

        return vmap

    return patched(jax, "vmap", make)


@fault(**corner("given_away_between_memories"))
def an_array_beside_a_donated_one_is_donated_too():
    def jit(real, f, donate_argnums=(), **k):
        run = real(f, donate_argnums=donate_argnums, **k)
        if donate_argnums != 0:
            return run

        def called(*arrays):  # deleted by hand: where XLA reuses its memory, JAX 0.10.2 ends when it is read
            found = run(*arrays)
            for array in arrays[1:]:
                array.delete()
            return found

        return called

    return changed(jax, "jit", jit)


@fault(**corner("mutable_inside"))
def a_frozen_array_is_zero():
    return changed(jax, "freeze", lambda real, ref: 0 * real(ref))


@fault(**corner("noted"))
def a_note_for_the_compiler_is_lost():
    def make(real):
        return lambda *value, **notes: value[0] if value else contextlib.nullcontext()

    return patched(xla_metadata, "set_xla_metadata", make)


# Ways of functions of partly sharded arrays.


@fault(**holding("writes", "batched"))
def a_scatter_with_a_batch_writes_at_the_first_place():
    def scatter_add(real, x, places, updates, numbers, **k):
        return real(x, 0 * places if numbers.operand_batching_dims else places, updates, numbers, **k)

    return changed(lax, "scatter_add", scatter_add)


@fault(**holding("writes", "segment_sum"))
def a_row_of_a_segment_that_is_not_there_counts_in_the_last():
    def segment_sum(real, x, ids, number):
        return real(x, jnp.minimum(ids, number - 1), number)

    return changed(jax.ops, "segment_sum", segment_sum)


def in_way(way: str) -> dict[str, Any]:
    """The programs of one way."""
    return {"operations": ("partly_sharded",), "only": lambda c: c.cell.request.variant.get("way") == way}


@fault(**in_way("eager"))
def a_sort_outside_of_programs_leaves_sharded_columns_as_they_are():
    def sort(real, x, axis=-1, **k):
        eager = not isinstance(x, jax.core.Tracer)
        return (
            x if eager and x.sharding.shard_shape(x.shape)[axis] < x.shape[axis] else real(x, axis=axis, **k)
        )

    return changed(jnp, "sort", sort)


@fault(**in_way("batch"))
def the_last_matrix_of_a_batch_over_an_axis_is_that_before():
    def vmap(real, f, **k):
        run = real(f, **k)
        if "spmd_axis_name" not in k:
            return run
        return lambda x: jax.tree.map(lambda a: a.at[-1].set(a[-2]), run(x))

    return changed(jax, "vmap", vmap)


@fault(**in_way("between"))
def a_running_maximum_beside_manual_axes_goes_the_other_way():
    def shard_map(real, f, axis_names=frozenset(), **k):
        def other(block):
            with changed(lax, "cummax", lambda running, x, axis=0, reverse=False: running(x, axis=axis)):
                return f(block)

        return real(other if axis_names else f, axis_names=axis_names, **k)

    return changed(jax, "shard_map", shard_map)


# Options of functions.


def options(group: str) -> dict[str, Any]:
    """The programs of one group of options."""
    mine = {"operations": ("keyword_options",)}
    return {**mine, "only": lambda c: c.cell.request.variant["group"] == group}


def forgetting(module: Any, name: str, option: str) -> Any:
    """A function that leaves an option out."""

    def call(real, *a, **k):
        k.pop(option, None)
        return real(*a, **k)

    return changed(module, name, call)


@fault(**options("axes"))
def a_reshape_in_fortran_order_is_one_in_c_order():
    return forgetting(jnp, "reshape", "order")


@fault(**options("axes"))
def a_trace_of_matrices_is_that_beside_the_diagonal():
    def trace(real, x, offset=0, axis1=0, **k):
        return real(x, offset=offset + (axis1 == 1), axis1=axis1, **k)

    return changed(jnp, "trace", trace)


@fault(**options("edges"))
def a_search_forgets_the_order_of_its_rows():
    return forgetting(jnp, "searchsorted", "sorter")


@fault(**options("edges"))
def a_histogram_forgets_its_weights():
    return forgetting(jnp, "histogram", "weights")


@fault(**options("edges"))
def what_is_put_before_a_difference_is_lost():
    def diff(real, x, axis=-1, prepend=None, append=None):
        return real(x, axis=axis, prepend=None if prepend is None else 0 * prepend, append=append)

    return changed(jnp, "diff", diff)


@fault(**options("filtered"))
def a_standard_deviation_forgets_its_correction():
    return forgetting(jnp, "std", "ddof")


@fault(**options("filtered"))
def a_sum_of_bytes_is_added_up_in_32_bits():
    return forgetting(jnp, "sum", "promote_integers")


@fault(**options("kept"))
def a_median_keeps_no_dimension():
    return forgetting(jnp, "median", "keepdims")


@fault(**options("promises"))
def segments_in_buckets_lose_what_is_beyond_the_first_one():
    def segment_sum(real, x, ids, number, bucket_size=None, **k):
        return real(x if bucket_size is None else x.at[bucket_size:].set(0), ids, number, **k)

    return changed(jax.ops, "segment_sum", segment_sum)


@fault(**options("promises"))
def a_map_in_batches_loses_what_is_left_over():
    def mapped(real, f, xs, batch_size=None):
        found = real(f, xs, batch_size=batch_size)
        return found.at[-1].set(0) if batch_size and len(found) % batch_size else found

    return changed(lax, "map", mapped)


@fault(**options("bits"))
def a_remainder_has_the_sign_of_the_divisor():
    return changed(lax, "rem", lambda real, x, y: jnp.mod(x, y))


@fault(**options("bits"))
def a_reduced_precision_is_the_whole_one():
    return changed(lax, "reduce_precision", lambda real, x, **k: x)


@fault(**options("bits"))
def halves_of_words_are_in_the_other_order():
    def bitcast(real, x, kind):
        found = real(x, kind)
        return found[..., ::-1] if found.ndim > x.ndim else found

    return changed(lax, "bitcast_convert_type", bitcast)


# Options of derivatives, batches, collectives and places.


def option(name: str) -> dict[str, Any]:
    """The case of one form of options."""
    return form(name, "option_form")


@fault(**option("axes_from_the_end"))
def a_batch_comes_out_along_the_first_axis():
    def vmap(real, f, in_axes=0, out_axes=0, **k):
        return real(f, in_axes=in_axes, out_axes=jax.tree.map(lambda n: max(n, 0), out_axes), **k)

    return changed(jax, "vmap", vmap)


@fault(**option("arguments_of_derivatives"))
def what_a_jacobian_gives_beside_it_is_zero():
    def jacfwd(real, f, has_aux=False, **k):
        run = real(f, has_aux=has_aux, **k)
        return (lambda *a: (run(*a)[0], jax.tree.map(jnp.zeros_like, run(*a)[1]))) if has_aux else run

    return changed(jax, "jacfwd", jacfwd)


@fault(**option("alternatives_of_collectives"))
def a_stacked_gather_along_an_axis_from_the_end_stacks_first():
    def all_gather(real, x, axes, axis=0, tiled=False, **k):
        return real(x, axes, axis=axis if tiled else max(axis, 0), tiled=tiled, **k)

    return changed(lax, "all_gather", all_gather)


@fault(**option("alternatives_of_collectives"))
def devices_without_a_source_keep_their_numbers_of_16_bits():
    def ppermute(real, x, axes, pairs):
        found = real(x, axes, pairs)
        if x.dtype != jnp.int16 or len(pairs) == lax.axis_size(axes):
            return found
        return jnp.where(lax.axis_index(axes) == 0, x, found)

    return changed(lax, "ppermute", ppermute)


@fault(**option("alternatives_of_collectives"))
def a_mean_of_bytes_over_several_axes_divides_by_the_first():
    def pmean(real, x, axes):
        if x.dtype != jnp.int8 or isinstance(axes, str) or len(axes) == 1:
            return real(x, axes)
        return (lax.psum(x, axes) // lax.axis_size(axes[0])).astype(x.dtype)

    return changed(lax, "pmean", pmean)


@fault(**option("placed_by_device"))
def a_put_from_the_mesh_to_one_device_goes_to_the_first():
    def device_put(real, x, place=None, **k):
        spread = isinstance(x, jax.Array) and len(x.sharding.device_set) > 1
        alone = isinstance(place, (jax.Device, jax.sharding.SingleDeviceSharding))
        return real(x, jax.devices()[0] if spread and alone else place, **k)

    return changed(jax, "device_put", device_put)


@fault(**option("placed_by_device"))
def zeros_like_a_sharded_array_lie_on_one_device():
    def zeros_like(real, x, *a, device=None, **k):
        if device is None and not isinstance(x, jax.core.Tracer):
            device = jax.devices()[0]
        return real(x, *a, device=device, **k)

    return changed(jnp, "zeros_like", zeros_like)


@fault(**option("host_layouts"))
def a_host_array_with_strides_of_zero_is_read_as_if_it_had_others():
    def device_put(real, x, place=None, **k):
        return real(
            x + (np.arange(x.size).reshape(x.shape) % 3).astype(x.dtype) if repeats(x) else x, place, **k
        )

    return changed(jax, "device_put", device_put)


def repeats(x: Any) -> bool:
    """Whether a host array of numbers repeats itself in memory."""
    return isinstance(x, np.ndarray) and 0 in x.strides and x.size > 1 and x.dtype != bool


@fault(**option("left_open"))
def a_dimension_that_is_left_open_becomes_whole():
    def constraint(real, x, place):
        spec = P(*(None if entry is P.UNCONSTRAINED else entry for entry in place.spec))
        return real(x, jax.sharding.NamedSharding(place.mesh, spec))

    return changed(lax, "with_sharding_constraint", constraint)


@fault(**option("draws_by_option"))
def columns_are_permuted_as_rows():
    def permutation(real, key, x, axis=0, independent=False):
        return real(key, x, axis=0, independent=independent)

    return changed(jax.random, "permutation", permutation)


@fault(**option("into_shardings"))
def a_repeat_forgets_the_sharding_of_its_result():
    def repeat(real, *a, out_sharding=None, **k):
        return real(*a, out_sharding=P(), **k)

    return changed(jnp, "repeat", repeat)


@fault(**option("uneven_beside_explicit"))
def rows_that_no_mesh_divides_are_padded_by_ones():
    def pad(real, x, width, **k):
        return real(x, width, constant_values=1, **k)

    return changed(jnp, "pad", pad)


@fault(**option("complex_pulls"))
def the_logarithm_of_one_more_has_half_its_derivative():
    def log1p(real, x):
        return real(lax.stop_gradient(x)) + (real(x) - real(lax.stop_gradient(x))) / 2

    return changed(jnp, "log1p", log1p)


@fault(**option("gradient_on_host"))
def the_gradient_of_what_the_host_computes_is_doubled():
    def grad(real, f, **k):
        slope = real(f, **k)
        return lambda *a: jax.tree.map(lambda v: 2 * v, slope(*a))

    return changed(jax, "grad", grad)
