# SPDX-License-Identifier: Apache-2.0
"""Faults of settings of random numbers in turn, of draws of sharded rows, of functions of partly sharded arrays, and of
collectives that only some devices reach."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import xla_metadata

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
        return mine and function in own.together(group, variant["turn"], case.mesh)

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
