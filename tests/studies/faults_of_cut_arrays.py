# SPDX-License-Identifier: Apache-2.0
"""Faults of functions of arrays that are cut along a dimension, and of small rules of programs: one for each form."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault


def cut(name: str) -> dict[str, Any]:
    """The case of one form of cut arrays."""
    return form(name, "cut_array")


def rule(name: str) -> dict[str, Any]:
    """The case of one form of small rules."""
    return form(name, "small_rule")


# Whole numbers, truths and indices.


@fault(**cut("numbers_of_int8"))
def leading_zeros_of_small_numbers_are_those_of_wide_ones():
    def call(real, x):
        return real(x) if x.dtype.itemsize > 1 else real(x.astype(jnp.int32)).astype(x.dtype)

    return changed(lax, "clz", call)


@fault(**cut("numbers_of_uint32"))
def the_remainder_of_large_unsigned_numbers_is_signed():
    def call(real, x, y):
        if x.dtype != jnp.uint32:
            return real(x, y)
        return real(x.astype(jnp.int32), y.astype(jnp.int32)).astype(x.dtype)

    return changed(lax, "rem", call)


@fault(**cut("numbers_of_int16"))
def equal_numbers_come_last_first_in_descending_order():
    def call(real, x, axis=-1, *, descending=False, stable=True):
        found = real(x, axis, stable=stable)
        return jnp.flip(found, axis) if descending else found

    return changed(jnp, "argsort", call)


@fault(**cut("truths"))
def true_values_are_counted_in_eight_bits():
    def call(real, x, *a, **options):
        if x.dtype != bool or options:
            return real(x, *a, **options)
        return real(x.astype(jnp.uint8), *a, dtype=jnp.uint8).astype(jnp.int32)

    return changed(jnp, "sum", call)


@fault(**cut("indices"))
def a_reversal_of_two_dimensions_reverses_one():
    def call(real, x, dimensions):
        return real(x, dimensions[:1])

    return changed(lax, "rev", call)


@fault(**cut("indices"))
def a_place_far_outside_wraps_once():
    def call(real, x, indices, axis=None, *, mode=None, **options):
        if mode != "wrap":
            return real(x, indices, axis, mode=mode, **options)
        n = x.shape[axis]
        once = jnp.where(indices < 0, indices + n, jnp.where(indices >= n, indices - n, indices))
        return real(x, once, axis, mode="clip", **options)

    return changed(jnp, "take", call)


# Special numbers, complex numbers, numbers of few bits.


@fault(**cut("specials_of_float32"))
def the_sign_of_no_number_is_zero():
    def call(real, x):
        found = real(x)
        return jnp.where(jnp.isnan(x), jnp.zeros_like(found), found)

    return changed(jnp, "sign", call)


@fault(**cut("specials_of_bfloat16"))
def a_sigmoid_is_a_quotient_of_two_exponentials():
    def call(real, x):
        e = jnp.exp(x)
        return e / (1 + e)

    return changed(jax.nn, "sigmoid", call)


@fault(**cut("specials_of_float16"))
def halves_of_half_precision_are_rounded_away_from_zero():
    def call(real, x, *a, **options):
        return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)

    return changed(jnp, "round", call)


@fault(**cut("complex_numbers"))
def a_modulus_is_the_root_of_a_sum_of_squares():
    def call(real, x):
        return jnp.sqrt(x.real**2 + x.imag**2) if jnp.iscomplexobj(x) else real(x)

    return changed(jnp, "abs", call)


@fault(**cut("few_bits"))
def four_bits_are_rolled_by_a_whole_byte():
    def call(real, x, shift, axis=None):
        return real(x, shift + 1 if x.dtype.name in ("int4", "uint4") else shift, axis)

    return changed(jnp, "roll", call)


# Products, convolutions, transforms, solvers.


@fault(**cut("products"))
def sums_of_narrow_products_have_sixteen_bits():
    def call(real, x, y, *a, **options):
        found = real(x, y, *a, **options)
        return found.astype(jnp.int16).astype(found.dtype) if x.dtype == jnp.int8 else found

    return changed(lax, "dot", call)


@fault(**cut("convolutions"))
def groups_of_batches_change_places():
    def call(real, x, w, *a, batch_group_count=1, **options):
        if batch_group_count > 1:
            x = jnp.roll(x, x.shape[0] // batch_group_count, 0)
        return real(x, w, *a, batch_group_count=batch_group_count, **options)

    return changed(lax, "conv_general_dilated", call)


@fault(**cut("attention"))
def a_query_reads_one_key_beyond_the_part_of_a_cache():
    def call(real, q, k, v, *a, key_value_seq_lengths=None, **options):
        if key_value_seq_lengths is not None:
            options["key_value_seq_lengths"] = key_value_seq_lengths + 1
        return real(q, k, v, *a, **options)

    return changed(jax.nn, "dot_product_attention", call)


@fault(**cut("ragged"))
def rows_behind_an_empty_group_take_its_matrix():
    def call(real, x, w, sizes, **options):
        empty = jnp.roll(sizes == 0, 1).at[0].set(False)
        w = jnp.where(empty[:, None, None], jnp.roll(w, 1, 0), w)
        return real(x, w, sizes, **options)

    return changed(lax, "ragged_dot", call)


@fault(**cut("fourier"))
def a_padded_transform_is_scaled_by_the_length_of_its_array():
    def call(real, x, n=None, axis=-1, norm=None):
        found = real(x, n, axis, norm)
        return found * np.sqrt(n / x.shape[axis]) if n and norm == "ortho" else found

    return changed(jnp.fft, "fft", call)


@fault(**cut("algebra"))
def one_row_more_than_the_first_is_pivoted():
    def call(real, a, b):
        return real(jnp.broadcast_to(a[:1], a.shape), b)

    return changed(jnp.linalg, "solve", call)


@fault(**cut("complex_algebra"))
def an_upper_factor_is_not_conjugated():
    def call(real, a, *, upper=False, **options):
        found = real(a, **options)
        return jnp.swapaxes(found, -1, -2) if upper else found

    return changed(jnp.linalg, "cholesky", call)


# Programs.


@fault(**rule("derivatives"))
def a_selection_among_many_passes_no_derivative_to_the_last():
    def call(real, which, *cases):
        return (
            real(which, *cases[:-1], lax.stop_gradient(cases[-1])) if len(cases) > 2 else real(which, *cases)
        )

    return changed(lax, "select_n", call)


@fault(**rule("callbacks_and_copies"))
def a_copy_shares_the_buffers_of_its_array():
    def call(real, x, *a, **options):
        return x

    return changed(jnp, "copy", call)


@fault(**rule("loops_that_send"))
def a_loop_of_an_odd_number_of_steps_misses_the_last():
    def call(real, f, init, xs, length=None, **options):
        odd = length is not None and length % 2 and length > 1
        return real(f, init, xs, length=length - 1 if odd else length, **options)

    return changed(lax, "scan", call)


@fault(**rule("shapes_that_change"))
def a_dimension_that_moves_leaves_its_axis():
    def call(real, x, one, other):
        return jax.reshard(real(x, one, other), jax.typeof(x).sharding)

    return changed(jnp, "swapaxes", call)


@fault(**rule("trees_and_settings"))
def a_tree_is_added_up_in_half_precision():
    def call(real, x, axis_name, **options):
        def halved(leaf):
            narrow = leaf.dtype == jnp.float32
            found = real(leaf.astype(jnp.bfloat16) if narrow else leaf, axis_name, **options)
            return found.astype(leaf.dtype)

        return jax.tree.map(halved, x) if isinstance(x, dict) else real(x, axis_name, **options)

    return changed(lax, "psum", call)


@fault(**rule("process_arrays"))
def gathered_numbers_of_half_precision_are_single():
    def call(real, x, tiled=False):
        found = real(x, tiled=tiled)
        return found.astype(np.float32) if found.dtype == jnp.bfloat16 else found

    return changed(multihost_utils, "process_allgather", call)


@fault(**rule("generators"))
def a_generator_stays_where_it_is_after_an_odd_number_of_words():
    def call(real, key, shape, **options):
        moved, words = real(key, shape, **options)
        return (key if shape[0] % 2 else moved), words

    return changed(lax, "rng_bit_generator", call)
