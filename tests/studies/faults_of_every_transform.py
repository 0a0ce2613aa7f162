# SPDX-License-Identifier: Apache-2.0
"""Faults of examples under every transform, and of calls at their edges."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import ad_checkpoint, flatten_util, lax

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault


def example(name: str) -> dict[str, Any]:
    """The case of one example under every transform."""
    return form(name, "every_transform")


def call_edge(name: str) -> dict[str, Any]:
    """The case of one form of calls at their edges."""
    return form(name, "call_edge")


# Examples under every transform.


@fault(**example("shard_map_specs"))
def a_gradient_by_several_arguments_has_their_order_in_the_function():
    def call(real, f, argnums=0, **options):
        return real(f, tuple(sorted(argnums)) if isinstance(argnums, tuple) else argnums, **options)

    return changed(jax, "grad", call)


@fault(**example("unchecked_specs"))
def a_batch_along_the_last_dimension_comes_back_along_the_first():
    def call(real, f, in_axes=0, out_axes=0, **options):
        return real(f, in_axes, 0 if out_axes == -1 else out_axes, **options)

    return changed(jax, "vmap", call)


@fault(**example("collectives"))
def the_second_of_two_permutations_of_an_array_is_the_first():
    seen = {}

    def call(real, x, axis_name, perm):
        return seen.setdefault(id(x), real(x, axis_name, perm))

    return changed(lax, "ppermute", call)


@fault(**example("several_axes"))
def a_permutation_over_several_axes_counts_the_first_as_the_fastest():
    def call(real, x, axis_name, perm):
        turned = isinstance(axis_name, tuple) and len(axis_name) > 1
        return real(x, axis_name[::-1] if turned else axis_name, perm)

    return changed(lax, "ppermute", call)


@fault(**example("loops"))
def an_unrolled_loop_from_the_end_stacks_from_the_start():
    def call(real, f, init, xs=None, *, reverse=False, unroll=1, **options):
        carry, ys = real(f, init, xs, reverse=reverse, unroll=unroll, **options)
        return carry, jax.tree.map(lambda y: y[::-1], ys) if reverse and unroll > 1 else ys

    return changed(lax, "scan", call)


@fault(**example("loop_of_unknown_length"))
def a_loop_of_unknown_length_has_no_tangent_of_what_begins_at_zero():
    def call(real, condition, body, start):
        *rest, last = real(condition, body, start)
        return (
            (*rest, lax.stop_gradient(last))
            if isinstance(start, tuple) and len(start) == 4
            else (*rest, last)
        )

    return changed(lax, "while_loop", call)


@fault(**example("branches"))
def a_switch_takes_a_number_below_zero_from_the_end():
    def call(real, index, branches, *operands):
        return real(jnp.where(index < 0, index + len(branches), index), branches, *operands)

    return changed(lax, "switch", call)


@fault(**example("associative_scans"))
def a_scan_from_the_end_swaps_its_operands():
    def call(real, fn, elems, reverse=False, axis=0):
        return real((lambda p, q: fn(q, p)) if reverse else fn, elems, reverse, axis)

    return changed(lax, "associative_scan", call)


@fault(**example("custom_rules"))
def a_narrow_number_is_not_stopped():
    def call(real, x):
        return x if getattr(x, "dtype", None) == jnp.bfloat16 else real(x)

    return changed(lax, "stop_gradient", call)


@fault(**example("checkpoints"))
def a_number_that_is_kept_by_name_is_rounded():
    def call(real, x, name):
        return real(lax.reduce_precision(x, 8, 7), name)

    return changed(ad_checkpoint, "checkpoint_name", call)


@fault(**example("places"))
def an_update_of_one_number_is_clamped_a_row_too_early():
    def call(real, operand, update, starts, *rest, **options):
        if update.size == 1:
            starts = (jnp.minimum(starts[0], operand.shape[0] - 2), *starts[1:])
        return real(operand, update, starts, *rest, **options)

    return changed(lax, "dynamic_update_slice", call)


@fault(**example("orders"))
def the_largest_numbers_have_the_gradient_of_the_first():
    def call(real, x, k, **options):
        values, index = real(x, k, **options)
        return lax.stop_gradient(values) + (values - lax.stop_gradient(values))[..., :1], index

    return changed(lax, "top_k", call)


@fault(**example("products"))
def two_batch_dimensions_of_a_product_are_turned():
    def call(real, subscripts, *operands, **options):
        found = real(subscripts, *operands, **options)
        turned = subscripts == "nij,mjk->nmik" and found.shape[0] == found.shape[1]
        return found.swapaxes(0, 1) if turned else found

    return changed(jnp, "einsum", call)


@fault(**example("shapes"))
def a_selection_has_the_tangent_of_the_other_case():
    def call(real, which, on_true, on_false):
        found = real(which, on_true, on_false)
        other = real(which, on_false, on_true)
        return lax.stop_gradient(found) + other - lax.stop_gradient(other)

    return changed(lax, "select", call)


# Calls at their edges.


@fault(**call_edge("batched_rules"))
def a_batch_with_a_name_is_turned_where_it_is_not_first():
    def call(real, f, in_axes=0, out_axes=0, *, axis_name=None, **options):
        mapped = real(f, in_axes, out_axes, axis_name=axis_name, **options)
        if axis_name is None or in_axes != 1:
            return mapped
        return lambda x: mapped(x[:, ::-1])

    return changed(jax, "vmap", call)


@fault(**call_edge("callbacks_in_batches"))
def a_callback_with_expanded_dimensions_gets_whole_batches():
    def call(real, *arguments, vmap_method=None, **options):
        method = "broadcast_all" if vmap_method == "expand_dims" else vmap_method
        return real(*arguments, vmap_method=method, **options)

    return changed(jax, "pure_callback", call)


@fault(**call_edge("keys"))
def a_grid_of_keys_is_filled_column_by_column():
    def call(real, key, num=2):
        found = real(key, num)
        return found.T.reshape(found.shape) if isinstance(num, tuple) and len(num) == 2 else found

    return changed(jax.random, "split", call)


@fault(**call_edge("signatures"))
def two_results_in_the_place_of_donated_arguments_change_places():
    def call(real, f, *rest, donate_argnums=(), out_shardings=None, **options):
        made = real(f, *rest, donate_argnums=donate_argnums, out_shardings=out_shardings, **options)
        return (lambda *v: made(*v)[::-1]) if donate_argnums == (0, 1) else made

    return changed(jax, "jit", call)


@fault(**call_edge("second_mesh"))
def what_a_description_says_has_no_spec():
    def call(real, f, *arguments, **options):
        found = real(f, *arguments, **options)
        replicated = jax.sharding.PartitionSpec()
        return jax.tree.map(
            lambda s: s.update(sharding=s.sharding.update(spec=replicated)) if s.sharding else s, found
        )

    return changed(jax, "eval_shape", call)


@fault(**call_edge("trees"))
def a_flat_vector_gives_leaves_of_its_own_dtype():
    def call(real, tree):
        flat, back = real(tree)
        return flat, lambda v: jax.tree.map(lambda leaf: leaf.astype(flat.dtype), back(v))

    return changed(flatten_util, "ravel_pytree", call)


@fault(**call_edge("large"))
def rows_of_a_large_array_turn_within_a_part():
    def call(real, a, shift, axis=None):
        return real(a, shift % 1000 if a.size > 1 << 18 else shift, axis)

    return changed(jnp, "roll", call)


@fault(**call_edge("square_mesh"))
def the_place_of_a_maximum_is_that_within_half_of_the_columns():
    def call(real, a, axis=None, **options):
        found = real(a, axis, **options)
        return found % (a.shape[1] // 2) if axis == 1 else found

    return changed(jnp, "argmax", call)


@fault(**call_edge("uneven_rows"))
def an_uneven_constraint_of_whole_numbers_loses_the_last_row():
    def call(real, x, shardings):
        uneven = x.ndim == 2 and x.shape[0] % 2 and jnp.issubdtype(x.dtype, jnp.integer)
        return real(x.at[-1].set(0) if uneven else x, shardings)

    return changed(lax, "with_sharding_constraint", call)


@fault(**call_edge("numbers"))
def nothing_is_nan_under_compiler_options():
    def call(real, f, *rest, compiler_options=None, **options):
        made = real(f, *rest, compiler_options=compiler_options, **options)
        if not compiler_options or "xla_dump_max_hlo_modules" not in compiler_options:
            return made
        return lambda v: (jnp.zeros_like(v, bool), *made(v)[1:])

    return changed(jax, "jit", call)
