# SPDX-License-Identifier: Apache-2.0
"""Faults of the small rules of version 19 of the case table: loops, the host, arrays, arguments, gradients, storage."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, reshard

from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_small_rules import rule
from tests.studies.planting import fault

# Loops.


@fault(**rule("scans"))
def what_an_unrolled_scan_in_reverse_leaves_over_runs_forward():
    def call(real, f, init, xs=None, length=None, reverse=False, unroll=1, **options):
        left = (len(xs) if hasattr(xs, "__len__") else 0) % unroll
        if reverse and left > 1:
            xs = jnp.concatenate([xs[:left][::-1], xs[left:]])
        return real(f, init, xs, length, reverse, unroll, **options)

    return changed(lax, "scan", call)


@fault(**rule("lanes"))
def a_carry_of_eight_bits_is_one_step_ahead():
    def call(real, cond, body, init):
        def ahead(x):
            return x + jnp.ones((), x.dtype) if x.dtype in (jnp.int8, jnp.uint8) else x

        return jax.tree.map(ahead, real(cond, body, init))

    return changed(lax, "while_loop", call)


@fault(**rule("branches"))
def a_negative_branch_counts_from_the_end():
    def call(real, index, branches, *operands):
        return real(jnp.where(index < 0, index + len(branches), index), branches, *operands)

    return changed(lax, "switch", call)


@fault(**rule("computed_again"))
def what_is_computed_again_draws_other_numbers():
    def call(real, f, **options):
        return real(lambda x, key: f(x, jax.random.fold_in(key, 1)), **options)

    return changed(jax, "checkpoint", call)


@fault(**rule("host_branches"))
def a_bound_that_is_not_known_is_one_less():
    def call(real, lower, upper, *arguments):
        return real(lower, upper if isinstance(upper, int) else upper - 1, *arguments)

    return changed(lax, "fori_loop", call)


@fault(**rule("mapped_callbacks"))
def what_a_callback_does_not_map_is_broadcast():
    def call(real, *arguments, vmap_method=None, **options):
        method = "broadcast_all" if vmap_method == "expand_dims" else vmap_method
        return real(*arguments, vmap_method=method, **options)

    return changed(jax, "pure_callback", call)


# Arrays.


@fault(**rule("copies"))
def a_copy_is_its_array():
    return changed(jnp, "copy", lambda real, x: x)


@fault(**rule("moves"))
def parts_stay_where_the_devices_have_another_order():
    def call(real, x, device=None, **options):
        y = real(x, device, **options)
        was = getattr(x, "sharding", None)
        if not (
            isinstance(was, NamedSharding) and isinstance(device, NamedSharding) and was.spec == device.spec
        ):
            return y
        if was.mesh.shape != device.mesh.shape or was == device:
            return y
        held = {s.device: s.data for s in x.addressable_shards}
        parts = [held[d] for d in device.mesh.devices.flat]
        return jax.make_array_from_single_device_arrays(y.shape, device, parts)

    return changed(jax, "device_put", call)


@fault(**rule("parts"))
def a_tuple_of_parts_is_taken_by_position():
    def call(real, shape, sharding, arrays, **options):
        if isinstance(arrays, tuple):
            places = sharding.addressable_devices_indices_map(tuple(shape))
            arrays = [jax.device_put(a, d) for a, d in zip(arrays, places, strict=True)]
        return real(shape, sharding, arrays, **options)

    return changed(jax, "make_array_from_single_device_arrays", call)


@fault(**rule("region_axes"))
def the_second_of_three_axes_counts_down():
    def call(real, axis):
        return real(axis) if axis != "b" else lax.axis_size(axis) - 1 - real(axis)

    return changed(lax, "axis_index", call)


@fault(**rule("mixed_places"))
def arrays_are_joined_by_columns_in_reverse():
    return changed(
        jnp, "concatenate", lambda real, arrays, axis=0: real(arrays[::-1] if axis == 1 else arrays, axis)
    )


@fault(**rule("wide_numbers"))
def a_range_of_64_bits_begins_anew_in_each_half():
    def call(real, *arguments, **options):
        y = real(*arguments, **options)
        return y if y.dtype.itemsize < 8 else y % jnp.asarray(y.size // 2, y.dtype)

    return changed(jnp, "arange", call)


# Arguments of functions.


@fault(**rule("attention"))
def causal_attention_ignores_lengths():
    def call(real, *arguments, is_causal=False, key_value_seq_lengths=None, **options):
        lengths = None if is_causal else key_value_seq_lengths
        return real(*arguments, is_causal=is_causal, key_value_seq_lengths=lengths, **options)

    return changed(jax.nn, "dot_product_attention", call)


@fault(**rule("segments_and_fills"))
def a_negative_segment_counts_from_the_end():
    def call(real, data, ids, number):
        return real(data, jnp.where(ids < 0, ids + number, ids), number)

    return changed(jax.ops, "segment_sum", call)


@fault(**rule("places"))
def a_place_of_eight_bits_is_at_most_127():
    def call(real, x, place, *arguments, **options):
        place = jnp.minimum(place, 127) if place.dtype == jnp.uint8 else place
        return real(x, place, *arguments, **options)

    return changed(lax, "dynamic_index_in_dim", call)


@fault(**rule("reductions"))
def nothing_but_minus_infinity_with_weights_sums_to_no_number():
    def call(real, x, axis=None, b=None, **options):
        y = real(x, axis, b, **options)
        return y if b is None else jnp.where(jnp.isneginf(y), jnp.nan, y)

    return changed(jax.nn, "logsumexp", call)


@fault(**rule("factorizations"))
def a_solve_from_the_right_forgets_the_conjugate():
    def call(real, a, b, *, left_side=False, conjugate_a=False, **options):
        return real(a, b, left_side=left_side, conjugate_a=conjugate_a and left_side, **options)

    return changed(lax.linalg, "triangular_solve", call)


# Gradients and programs.


@fault(**rule("gradients"))
def gradients_come_in_the_order_of_the_arguments():
    def call(real, f, argnums=0, **options):
        return real(f, tuple(sorted(argnums)) if isinstance(argnums, tuple) else argnums, **options)

    return changed(jax, "grad", call)


@fault(**rule("silent"))
def a_constraint_by_two_axes_gathers_first():
    def call(real, x, place):
        if isinstance(place, NamedSharding) and any(isinstance(part, tuple) for part in place.spec):
            x = real(x, NamedSharding(place.mesh, PartitionSpec()))
        return real(x, place)

    return changed(lax, "with_sharding_constraint", call)


@fault(**rule("stored"))
def what_repeats_forgets_its_axis():
    def call(real, x, *arguments, **options):
        return reshard(real(x, *arguments, **options), PartitionSpec())

    return changed(jnp, "repeat", call)


@fault(**rule("collective_edges"))
def groups_gather_in_ascending_order():
    def call(real, x, axis_name, *, axis_index_groups=None, **options):
        groups = axis_index_groups and [sorted(group) for group in axis_index_groups]
        return real(x, axis_name, axis_index_groups=groups, **options)

    return changed(lax, "all_gather", call)


@fault(**rule("region_slopes"))
def a_sum_over_the_second_of_three_axes_has_the_gradient_of_one_device():
    def call(real, x, axes, **options):
        y = real(x, axes, **options)
        return y if axes != ("b",) else lax.stop_gradient(y - x) + x

    return changed(lax, "psum", call)
