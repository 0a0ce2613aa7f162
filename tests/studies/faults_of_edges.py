# SPDX-License-Identifier: Apache-2.0
"""Faults of linear collectives and their derivatives, and of functions and placements at their edges. Most are of kinds
that were listed by somebody who had not looked at the table."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import serialize_executable

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault


def linear(name: str) -> dict[str, Any]:
    """The case of one form of linear collectives."""
    return form(name, "linear_collective")


def edge(name: str) -> dict[str, Any]:
    """The case of one form of functions at their edges."""
    return form(name, "function_edge")


def place(name: str) -> dict[str, Any]:
    """The case of one form of placements at their edges."""
    return form(name, "placement_edge")


# Linear collectives.


@fault(**linear("groups"))
def a_mean_over_groups_divides_by_the_whole_axis():
    def call(real, x, axis_name, *, axis_index_groups=None):
        found = real(x, axis_name, axis_index_groups=axis_index_groups)
        if axis_index_groups is None:
            return found
        return found * len(axis_index_groups[0]) / lax.axis_size(axis_name)

    return changed(lax, "pmean", call)


@fault(**linear("orders_of_axes"))
def a_sum_of_truth_values_over_two_axes_is_their_disjunction():
    def call(real, x, axis_name, **options):
        found = real(x, axis_name, **options)
        several = isinstance(axis_name, tuple) and len(axis_name) > 1
        return (found > 0).astype(found.dtype) if several and jnp.asarray(x).dtype == bool else found

    return changed(lax, "psum", call)


@fault(**linear("complex_numbers"))
def a_tiled_gather_of_complex_numbers_conjugates():
    def call(real, x, axis_name, **options):
        found = real(x, axis_name, **options)
        return jnp.conj(found) if options.get("tiled") and jnp.iscomplexobj(x) else found

    return changed(lax, "all_gather", call)


@fault(**linear("batch"))
def an_exchange_along_one_axis_over_a_batch_does_nothing():
    def call(real, x, axis_name, split_axis, concat_axis, **options):
        same = axis_name == "k" and split_axis == concat_axis
        return x if same else real(x, axis_name, split_axis, concat_axis, **options)

    return changed(lax, "all_to_all", call)


@fault(**linear("partial_permutations"))
def whole_numbers_stay_where_nothing_arrives():
    def call(real, x, axis_name, perm):
        found = real(x, axis_name, perm)
        if not jnp.issubdtype(x.dtype, jnp.integer):
            return found
        arrives = jnp.isin(lax.axis_index(axis_name), jnp.array([j for _, j in perm]))
        return jnp.where(arrives, found, x)

    return changed(lax, "ppermute", call)


@fault(**linear("swapped_trees"))
def a_swap_of_a_tree_turns_leaves_of_three_dimensions():
    def call(real, x, axis_name, axis, **options):
        found = real(x, axis_name, axis, **options)
        return jax.tree.map(lambda v: v[::-1] if v.ndim == 3 else v, found)

    return changed(lax, "pswapaxes", call)


# Functions.


@fault(**edge("orders"))
def an_order_by_three_keys_uses_two():
    def call(real, operand, *, num_keys=1, **options):
        return real(operand, num_keys=min(num_keys, 2), **options)

    return changed(lax, "sort", call)


@fault(**edge("sums"))
def a_variance_of_chosen_elements_ignores_ddof():
    def call(real, a, axis=None, *, where=None, ddof=0, **options):
        return real(a, axis=axis, where=where, ddof=0 if where is not None else ddof, **options)

    return changed(jnp, "var", call)


@fault(**edge("slopes"))
def the_gradient_of_a_maximum_goes_to_the_first_of_equal_numbers():
    def call(real, a, axis=None, **options):
        if axis != 0 or getattr(a, "ndim", 0) != 2:
            return real(a, axis=axis, **options)
        return jnp.take_along_axis(a, jnp.argmax(a, axis=0)[None], 0)[0]

    return changed(jnp, "max", call)


@fault(**edge("places"))
def an_update_that_hangs_over_the_end_is_dropped():
    def call(real, operand, update, start_indices, **options):
        hangs = any(
            int(s) + n > m for s, n, m in zip(start_indices, update.shape, operand.shape, strict=True)
        )
        return operand if hangs else real(operand, update, start_indices, **options)

    return changed(lax, "dynamic_update_slice", call)


@fault(**edge("kinds"))
def a_choice_with_a_python_number_is_of_float32():
    def call(real, condition, x=None, y=None, **options):
        return real(condition, x, jnp.float32(y) if isinstance(y, float) else y, **options)

    return changed(jnp, "where", call)


@fault(**edge("networks"))
def rows_of_no_group_are_multiplied_by_the_last_matrix():
    def call(real, lhs, rhs, group_sizes, **options):
        found = real(lhs, rhs, group_sizes, **options)
        left = jnp.arange(lhs.shape[0]) >= jnp.sum(group_sizes)
        return jnp.where(left[:, None], lhs @ rhs[-1], found)

    return changed(lax, "ragged_dot", call)


@fault(**edge("control"))
def the_last_of_many_branches_is_the_one_before():
    def call(real, index, branches, *operands, **options):
        most = len(branches) - (2 if len(branches) > 4 else 1)
        return real(jnp.minimum(index, most), branches, *operands, **options)

    return changed(lax, "switch", call)


@fault(**edge("explicit"))
def a_maximum_over_explicit_axes_starts_from_zero():
    def call(real, a, *rest, **options):
        found = real(a, *rest, **options)
        typed = any(jax.typeof(a).sharding.spec)
        return jnp.maximum(found, jnp.zeros_like(found)) if typed else found

    return changed(jnp, "max", call)


@fault(**edge("calls"))
def data_folded_into_a_key_loses_its_highest_bit():
    return changed(jax.random, "fold_in", lambda real, key, data: real(key, np.uint32(data & 0x7FFFFFFF)))


# Placements.


@fault(**place("meshes"))
def a_mesh_of_given_devices_sorts_them():
    def call(real, shape, names, *, devices=None, **options):
        return real(shape, names, devices=devices and sorted(devices, key=lambda d: d.id), **options)

    return changed(jax, "make_mesh", call)


@fault(**place("moves"))
def an_array_that_goes_to_devices_in_another_order_is_a_row_off():
    def call(real, x, device=None, **options):
        before, after = getattr(x, "sharding", None), getattr(device, "mesh", None)
        if after is None or not hasattr(before, "mesh"):
            return real(x, device, **options)
        same = [*before.mesh.devices.flat] == [*after.devices.flat]
        return real(x if same else np.roll(np.asarray(x), 1, 0), device, **options)

    return changed(jax, "device_put", call)


@fault(**place("made_of_parts"))
def transposed_local_data_is_read_in_the_order_of_its_memory():
    def call(real, sharding, data, *rest):
        return real(sharding, np.ravel(data, order="K").reshape(data.shape), *rest)

    return changed(jax, "make_array_from_process_local_data", call)


@fault(**place("several_results"))
def the_results_of_auto_axes_have_the_sharding_of_the_first():
    def call(real, f, *, out_sharding=None, **options):
        if isinstance(out_sharding, tuple) and len(out_sharding) > 1 and type(out_sharding) is tuple:
            out_sharding = (out_sharding[0],) * len(out_sharding)
        return real(f, out_sharding=out_sharding, **options)

    return changed(jax.sharding, "auto_axes", call)


@fault(**place("unused_arguments"))
def a_loaded_program_takes_the_argument_that_it_does_not_use_last():
    def call(real, *stored):
        program = real(*stored)
        return lambda first, *others: program(first, *others[::-1])

    return changed(serialize_executable, "deserialize_and_load", call)


@fault(**place("gradients"))
def a_callback_for_debugging_misses_every_eighth_call():
    def call(real, callback, *operands, **options):
        calls = []

        def some(*values, **named):
            calls.append(1)
            if len(calls) % 8:
                callback(*values, **named)

        return real(some, *operands, **options)

    return changed(jax.debug, "callback", call)
