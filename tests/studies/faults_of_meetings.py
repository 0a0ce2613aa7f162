# SPDX-License-Identifier: Apache-2.0
"""Faults of collectives where two unusual coordinates meet: a dtype and an axis, an order of axes and a mesh, an
option and a rank. They were listed before anybody looked at what the table holds."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from tests.studies.faults_of_combinations import kind
from tests.studies.faults_of_nesting import within
from tests.studies.meeting import leaf, meet, n_of, reversed_along, sizes
from tests.studies.planting import axes_of, fault, patched


def shape() -> tuple[int, ...]:
    """The sizes of the mesh over which a manual program runs."""
    return tuple(sizes().values())


HALVES = ("float16", "bfloat16")

# Sums and extremes.

meet(
    "a_sum_of_unsigned_words_stays_at_the_largest",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "uint32",
    lambda real, f, x, a, **k: jnp.where(
        real(x.astype(jnp.float32), a, **k) >= 2.0**32, jnp.uint32(2**32 - 1), f
    ),
    operations=("psum",),
    dtypes=("uint32",),
)
meet(
    "the_largest_of_unsigned_words_is_that_of_signed_ones",
    lax,
    "pmax",
    lambda x, a, **k: kind(leaf(x)) == "uint32",
    lambda real, f, x, a, **k: real(x.astype(jnp.int32), a, **k).astype(jnp.uint32),
    operations=("pmax",),
    dtypes=("uint32",),
)
meet(
    "the_least_of_unsigned_words_is_that_of_signed_ones",
    lax,
    "pmin",
    lambda x, a, **k: kind(leaf(x)) == "uint32",
    lambda real, f, x, a, **k: real(x.astype(jnp.int32), a, **k).astype(jnp.uint32),
    operations=("pmin",),
    dtypes=("uint32",),
)
meet(
    "the_least_of_half_precision_over_two_axes_is_off",
    lax,
    "pmin",
    lambda x, a, **k: kind(leaf(x)) in HALVES and len(axes_of(a)) == 2,
    operations=("pmin",),
    dtypes=("bfloat16", "float16"),
)
meet(
    "a_sum_of_bfloat16_over_the_last_of_three_axes_is_off",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "bfloat16" and len(shape()) == 3 and axes_of(a) == ("z",),
    operations=("collective_chain",),
)
meet(
    "a_sum_of_half_precision_over_the_middle_of_three_axes_is_off",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "float16" and len(shape()) == 3 and axes_of(a) == ("y",),
    operations=("axis_grid",),
)
meet(
    "a_number_of_16_bits_is_added_up_wrongly_over_several_axes",
    lax,
    "psum",
    lambda x, a, **k: jnp.ndim(leaf(x)) == 0 and leaf(x).dtype.itemsize == 2 and len(axes_of(a)) > 1,
    operations=("scalar_result",),
)
meet(
    "a_number_of_8_bits_is_added_up_wrongly_over_one_axis_of_two",
    lax,
    "psum",
    lambda x, a, **k: jnp.ndim(leaf(x)) == 0 and leaf(x).dtype.itemsize == 1 and len(axes_of(a)) == 1,
    operations=("axis_grid",),
)
meet(
    "the_last_array_of_a_tree_of_three_is_summed_wrongly",
    lax,
    "psum",
    lambda x, a, **k: len(jax.tree.leaves(x)) > 2,
    operations=("tree_collective",),
)
meet(
    "a_sum_of_bytes_over_the_second_axis_of_4x2_is_off",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "int8" and shape() == (4, 2) and axes_of(a) == ("y",),
    operations=("axis_grid",),
)
meet(
    "the_imaginary_part_of_a_sum_is_one_device_s",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "complex64",
    lambda real, f, x, a, **k: lax.complex(f.real, f.imag / n_of(a)),
    operations=("derivative_form",),
)
meet(
    "a_mean_of_half_precision_over_one_of_three_axes_is_off",
    lax,
    "pmean",
    lambda x, a, **k: kind(leaf(x)) in HALVES and len(shape()) == 3 and len(axes_of(a)) == 1,
    operations=("axis_grid",),
)
meet(
    "a_mean_of_integers_is_rounded_down",
    lax,
    "pmean",
    lambda x, a, **k: leaf(x).dtype.kind in "iu",
    lambda real, f, x, a, **k: jnp.floor(f),
    operations=("axis_grid",),
)
meet(
    "the_largest_integer_over_axes_in_another_order_is_off",
    lax,
    "pmax",
    lambda x, a, **k: kind(leaf(x)) == "int32" and axes_of(a) == ("y", "x"),
    operations=("pmax",),
    dtypes=("int32",),
)
meet(
    "the_least_of_bytes_over_three_axes_is_off",
    lax,
    "pmin",
    lambda x, a, **k: kind(leaf(x)) in ("uint8", "int8") and len(axes_of(a)) == 3,
    operations=("collective_grid",),
)
meet(
    "the_largest_of_bfloat16_minus_infinities_is_the_lowest_number",
    lax,
    "pmax",
    lambda x, a, **k: kind(leaf(x)) == "bfloat16",
    lambda real, f, x, a, **k: jnp.where(f == -jnp.inf, jnp.finfo(jnp.bfloat16).min, f),
    operations=("collective_option",),
)
meet(
    "a_sum_of_integers_over_an_axis_of_one_device_doubles",
    lax,
    "psum",
    lambda x, a, **k: leaf(x).dtype.kind in "iu" and n_of(a) == 1,
    lambda real, f, x, a, **k: jax.tree.map(lambda y: y + y, f),
    operations=("scalar_result",),
)
meet(
    "infinities_of_both_signs_add_up_to_infinity_in_half_precision",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "float16",
    lambda real, f, x, a, **k: jnp.where(
        jnp.isnan(f) & (real(jnp.isnan(x).astype(jnp.int32), a, **k) == 0), jnp.inf, f
    ).astype(f.dtype),
    operations=("psum",),
    dtypes=("float16", "bfloat16"),
)
meet(
    "a_sum_over_six_devices_of_16_bits_is_off",
    lax,
    "psum",
    lambda x, a, **k: leaf(x).dtype.itemsize == 2 and n_of(a) == 6,
    operations=("collective_grid",),
)
meet(
    "a_mean_over_three_devices_of_bfloat16_is_off",
    lax,
    "pmean",
    lambda x, a, **k: kind(leaf(x)) == "bfloat16" and n_of(a) == 3,
    operations=("axis_grid",),
)
meet(
    "a_sum_in_groups_of_half_precision_is_off",
    lax,
    "psum",
    lambda x, a, *, axis_index_groups=None, **k: axis_index_groups and leaf(x).dtype.itemsize == 2,
    operations=("rare_form",),
)
meet(
    "the_least_in_groups_of_bytes_is_off",
    lax,
    "pmin",
    lambda x, a, *, axis_index_groups=None, **k: axis_index_groups and leaf(x).dtype.itemsize == 1,
    operations=("rare_form",),
)

# Gathers, scattered sums, exchanges.

meet(
    "a_gather_along_the_last_of_three_dimensions_comes_in_reverse",
    lax,
    "all_gather",
    lambda x, a, *, axis=0, tiled=False, **k: tiled and x.ndim == 3 and axis == 2,
    reversed_along(2),
    operations=("algebra",),
)
meet(
    "booleans_gathered_into_a_new_second_dimension_come_in_reverse",
    lax,
    "all_gather",
    lambda x, a, *, axis=0, tiled=False, **k: not tiled and kind(x) == "bool" and axis == 1,
    reversed_along(1),
    operations=("all_gather",),
    dtypes=("bool",),
)
meet(
    "a_gather_over_the_first_and_the_last_of_three_axes_is_in_the_other_order",
    lax,
    "all_gather",
    lambda x, a, **k: axes_of(a) == ("x", "z"),
    lambda real, f, x, a, **k: real(x, ("z", "x"), **k),
    operations=("axis_grid",),
)
meet(
    "a_gather_of_bfloat16_over_the_last_and_the_middle_axis_is_off",
    lax,
    "all_gather",
    lambda x, a, **k: kind(x) == "bfloat16" and axes_of(a) == ("z", "y"),
    operations=("axis_grid",),
)
meet(
    "a_gather_of_half_precision_from_one_device_is_zero",
    lax,
    "all_gather",
    lambda x, a, **k: x.dtype.itemsize == 2 and n_of(a) == 1,
    lambda real, f, *a, **k: f * 0,
    operations=("rare_form",),
)
meet(
    "a_gather_in_groups_of_bytes_has_the_groups_members_in_reverse",
    lax,
    "all_gather",
    lambda x, a, *, axis_index_groups=None, **k: axis_index_groups and x.dtype.itemsize == 1,
    reversed_along(0),
    operations=("rare_form",),
)
meet(
    "half_precision_is_scattered_backward_along_a_second_dimension_that_goes",
    lax,
    "psum_scatter",
    lambda x, a, *, scatter_dimension=0, tiled=False, **k: (
        not tiled and scatter_dimension == 1 and x.dtype.itemsize == 2
    ),
    lambda real, f, x, a, **k: real(jnp.flip(x, 1), a, **k),
    operations=("axis_grid",),
)
meet(
    "a_scattered_sum_of_bytes_stays_at_the_largest",
    lax,
    "psum_scatter",
    lambda x, a, **k: kind(x) == "int8",
    lambda real, f, x, a, **k: jnp.clip(real(x.astype(jnp.int32), a, **k), -128, 127).astype(jnp.int8),
    operations=("psum_scatter",),
    dtypes=("int8", "uint8"),
)
meet(
    "integers_are_scattered_over_axes_of_4x2_in_the_order_of_the_mesh",
    lax,
    "psum_scatter",
    lambda x, a, **k: kind(x) == "int32" and shape() == (4, 2) and axes_of(a) == ("y", "x"),
    lambda real, f, x, a, **k: real(x, ("x", "y"), **k),
    operations=("axis_grid",),
)
meet(
    "a_scattered_sum_of_bfloat16_over_two_of_three_axes_is_off",
    lax,
    "psum_scatter",
    lambda x, a, **k: kind(x) == "bfloat16" and len(shape()) == 3 and len(axes_of(a)) == 2,
    operations=("psum_scatter",),
    dtypes=("bfloat16",),
)
meet(
    "a_scattered_sum_in_groups_along_the_second_dimension_is_off",
    lax,
    "psum_scatter",
    lambda x, a, *, scatter_dimension=0, axis_index_groups=None, **k: (
        axis_index_groups and scatter_dimension == 1
    ),
    operations=("rare_form",),
)
meet(
    "bfloat16_exchanged_from_a_later_dimension_to_an_earlier_comes_in_reverse",
    lax,
    "all_to_all",
    lambda x, a, s, c, *, tiled=False, **k: kind(x) == "bfloat16" and s > c and tiled,
    lambda real, f, x, a, s, c, **k: jnp.flip(f, c),
    operations=("all_to_all",),
    dtypes=("bfloat16",),
)
meet(
    "bytes_that_eight_devices_on_one_axis_exchange_are_off",
    lax,
    "all_to_all",
    lambda x, a, s, c, **k: x.dtype.itemsize == 1 and shape() == (8,),
    operations=("all_to_all",),
    dtypes=("int8", "uint8"),
)
meet(
    "an_exchange_over_the_middle_of_three_axes_is_off",
    lax,
    "all_to_all",
    lambda x, a, s, c, **k: len(shape()) == 3 and axes_of(a) == ("y",),
    operations=("axis_grid",),
    meshes=("2x2x2",),
)
meet(
    "an_exchange_in_groups_along_one_dimension_is_off",
    lax,
    "all_to_all",
    lambda x, a, s, c, *, axis_index_groups=None, **k: axis_index_groups and s == c,
    operations=("program_condition",),
)
meet(
    "integers_swapped_with_axes_in_another_order_are_off",
    lax,
    "pswapaxes",
    lambda x, a, axis, **k: kind(leaf(x)) == "int32" and axes_of(a) == ("y", "x"),
    operations=("axis_grid",),
)
meet(
    "axes_swapped_in_groups_are_off",
    lax,
    "pswapaxes",
    lambda x, a, axis, *, axis_index_groups=None: bool(axis_index_groups),
    operations=("rare_form",),
)
meet(
    "axes_swapped_with_a_last_dimension_of_bytes_are_off",
    lax,
    "pswapaxes",
    lambda x, a, axis, **k: leaf(x).dtype.itemsize == 1 and axis == leaf(x).ndim - 1,
    operations=("axis_grid",),
)

# Permutations and places.


def partial(perm: Any, axes: Any) -> bool:
    """Whether some device gets nothing."""
    return len({j for _, j in perm}) < n_of(axes)


meet(
    "bytes_that_are_sent_to_nobody_over_two_axes_stay",
    lax,
    "ppermute",
    lambda x, a, perm: x.dtype.itemsize == 1 and len(axes_of(a)) > 1 and partial(perm, a),
    lambda real, f, x, a, perm: jnp.where(
        jnp.isin(lax.axis_index(axes_of(a)), jnp.array([j for _, j in perm])), f, x
    ),
    operations=("ppermute",),
    dtypes=("int8", "uint8"),
)
meet(
    "a_NaN_of_half_precision_that_is_sent_becomes_zero",
    lax,
    "ppermute",
    lambda x, a, perm: kind(x) == "float16",
    lambda real, f, x, a, perm: jnp.where(jnp.isnan(f), jnp.zeros_like(f), f),
    operations=("rare_form",),
)
meet(
    "booleans_sent_along_the_middle_of_three_axes_are_off",
    lax,
    "ppermute",
    lambda x, a, perm: kind(x) == "bool" and len(shape()) == 3 and axes_of(a) == ("y",),
    operations=("axis_grid",),
)
meet(
    "booleans_that_two_of_eight_devices_on_two_axes_swap_are_off",
    lax,
    "ppermute",
    lambda x, a, perm: (
        kind(x) == "bool" and len(shape()) == 2 and len(perm) == 2 and tuple(perm[0]) == tuple(perm[1])[::-1]
    ),
    operations=("ppermute",),
    dtypes=("bool",),
)
meet(
    "what_a_device_sends_itself_among_few_is_lost",
    lax,
    "ppermute",
    lambda x, a, perm: partial(perm, a) and any(i == j for i, j in perm),
    lambda real, f, x, a, perm: real(x, a, [(i, j) for i, j in perm if i != j]),
    operations=("program_condition",),
)
meet(
    "a_number_alone_that_is_sent_over_two_axes_is_off",
    lax,
    "ppermute",
    lambda x, a, perm: jnp.ndim(x) == 0 and len(axes_of(a)) > 1,
    operations=("axis_grid",),
)
meet(
    "a_shuffle_of_booleans_is_off",
    lax,
    "pshuffle",
    lambda x, a, perm: kind(leaf(x)) == "bool",
    operations=("axis_grid",),
)
meet(
    "a_shuffle_of_half_precision_over_two_axes_is_off",
    lax,
    "pshuffle",
    lambda x, a, perm: leaf(x).dtype.itemsize == 2 and len(axes_of(a)) > 1,
    operations=("pshuffle",),
    dtypes=("float16", "bfloat16"),
)
meet(
    "a_place_among_two_of_three_axes_in_another_order_counts_by_the_mesh",
    lax,
    "axis_index",
    lambda a: len(shape()) == 3 and len(axes_of(a)) == 2 and [*axes_of(a)] != sorted(axes_of(a)),
    lambda real, f, a: real(tuple(sorted(axes_of(a)))),
    operations=("axis_grid",),
)

# Collectives within what traces them.


def nested(title: str, collective: str, *names: str, **likely: Any) -> None:
    """Register a collective that doubles while these functions trace."""

    def make() -> Any:
        return within(collective, *names)

    make.__name__ = title
    NESTED[title] = (collective, names)
    fault(**likely)(make)


NESTED: dict[str, tuple[str, tuple[str, ...]]] = {}

nested(
    "a_gather_in_a_branch_that_is_differentiated_doubles",
    "all_gather",
    "grad",
    "shard_map",
    "cond",
    operations=("nested_transform",),
)
nested(
    "a_permutation_in_a_loop_without_an_end_whose_tangent_is_taken_doubles",
    "ppermute",
    "jvp",
    "shard_map",
    "while_loop",
    operations=("nested_transform",),
)
nested(
    "a_scattered_sum_in_a_loop_of_a_batch_doubles",
    "psum_scatter",
    "vmap",
    "shard_map",
    "scan",
    operations=("nested_transform",),
)
nested("a_largest_in_a_switch_doubles", "pmax", "shard_map", "switch", operations=("rare_form",))
nested(
    "an_exchange_in_a_counted_loop_of_a_batch_doubles",
    "all_to_all",
    "vmap",
    "shard_map",
    "fori_loop",
    operations=("nested_transform",),
)
nested(
    "a_permutation_in_a_batch_of_batches_doubles",
    "ppermute",
    "vmap",
    "vmap",
    operations=("nested_transform",),
)
nested(
    "a_gather_in_a_branch_of_a_rematerialized_step_doubles",
    "all_gather",
    "checkpoint",
    "cond",
    operations=("rare_form",),
)
nested("a_least_in_a_loop_doubles", "pmin", "shard_map", "scan", operations=("rare_form",))
nested(
    "a_permutation_in_a_linearized_loop_doubles",
    "ppermute",
    "linearize",
    "shard_map",
    "scan",
    operations=("nested_transform",),
)
nested("a_mean_in_a_loop_of_a_branch_doubles", "pmean", "cond", "fori_loop", operations=("rare_form",))


# Batches in each place, and results in another sharding.


@fault(operations=("batch_grid",))
def a_batch_in_the_fourth_dimension_is_reversed():
    """The batching rule of whatever is called gives the rows of the batch in another order."""

    def make(real):
        def vmap(function, in_axes=0, out_axes=0, **options):
            batched = real(function, in_axes, out_axes, **options)
            if in_axes != 3:
                return batched
            return lambda *arrays: jnp.flip(batched(*arrays), out_axes)

        return vmap

    return patched(jax, "vmap", make)


def constraint_that_turns(chosen):
    """A constraint reverses the last dimension of an array where `chosen(array, spec)` holds."""

    def make(real):
        def with_sharding_constraint(x, shardings):
            turned = isinstance(shardings, NamedSharding) and chosen(x, shardings)
            return real(jnp.flip(x, -1) if turned else x, shardings)

        return with_sharding_constraint

    return patched(lax, "with_sharding_constraint", make)


@fault(operations=("resharded",), meshes=("2x2x2",))
def a_constraint_of_four_dimensions_on_three_axes_is_off():
    return constraint_that_turns(lambda x, s: x.ndim == 4 and len(s.mesh.axis_names) == 3)


@fault(operations=("resharded",), meshes=("2x4",))
def a_constraint_onto_columns_over_two_axes_in_reverse_is_off():
    return constraint_that_turns(lambda x, s: tuple(s.spec) == (None, ("y", "x")))
