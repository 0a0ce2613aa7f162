# SPDX-License-Identifier: Apache-2.0
"""Faults of control flow, transfers, random numbers and functions of the library with rare options; and of what is sent
in another form. They were listed before anybody looked at what the table holds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from tests.studies.faults_of_combinations import kind
from tests.studies.meeting import leaf, meet
from tests.studies.planting import axes_of

HALVES = ("float16", "bfloat16")

# Control flow.

meet(
    "an_index_below_the_first_branch_takes_the_last",
    lax,
    "switch",
    lambda i, branches, *a, **k: True,
    lambda real, f, i, branches, *a, **k: real(jnp.where(i < 0, len(branches) - 1, i), branches, *a, **k),
    operations=("program_option",),
)
meet(
    "an_unrolled_loop_whose_length_does_not_divide_is_off",
    lax,
    "scan",
    lambda f, init, xs=None, length=None, reverse=False, unroll=1, **k: (
        unroll is not True and unroll > 1 and (length or len(jax.tree.leaves(xs)[0])) % unroll != 0
    ),
    operations=("keyword_options",),
)
meet(
    "an_unrolled_loop_backward_is_off",
    lax,
    "scan",
    lambda f, init, xs=None, length=None, reverse=False, unroll=1, **k: reverse and unroll not in (1, False),
    operations=("rare_form",),
)
meet(
    "a_scan_of_an_operation_backward_along_columns_is_off",
    lax,
    "associative_scan",
    lambda f, x, reverse=False, axis=0: reverse and axis == 1,
    operations=("program_option",),
)

# Transfers.


def spec(place: Any) -> tuple[Any, ...]:
    """The axes by dimension."""
    return tuple(place.spec) if isinstance(place, NamedSharding) else ()


def moved(x: Any, place: Any) -> bool:
    """Whether an array goes from one sharding to another."""
    return isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer) and spec(x.sharding) != spec(place)


meet(
    "a_transfer_between_two_orders_of_axes_on_three_axes_is_off",
    jax,
    "device_put",
    lambda x, place, **k: (
        moved(x, place) and len(place.mesh.shape) == 3 and any(spec(place)) and any(spec(x.sharding))
    ),
    operations=("device_put",),
    dtypes=("float32",),
)
meet(
    "a_transfer_of_16_bits_to_every_device_is_off",
    jax,
    "device_put",
    lambda x, place, **k: moved(x, place) and x.dtype.itemsize == 2 and not any(spec(place)),
    operations=("rare_form",),
)
meet(
    "a_reshard_of_bytes_to_every_device_is_off",
    jax,
    "reshard" if hasattr(jax, "reshard") else "device_put",
    lambda x, place, **k: x.dtype.itemsize == 1 and not any(tuple(getattr(place, "spec", place))),
    operations=("all_gather",),
    dtypes=("int8", "uint8"),
)
meet(
    "a_transfer_of_an_array_in_the_order_of_columns_takes_its_memory",
    jax,
    "device_put",
    lambda x, place=None, **k: (
        isinstance(x, np.ndarray) and x.ndim == 3 and x.flags.f_contiguous and not x.flags.c_contiguous
    ),
    lambda real, f, x, *a, **k: real(np.ascontiguousarray(x.ravel("K").reshape(x.shape)), *a, **k),
    operations=("rare_form",),
)


# Random numbers.

meet(
    "random_words_of_16_bits_are_off",
    jax.random,
    "bits",
    lambda key, shape=(), dtype=None, **k: dtype is not None and np.dtype(dtype).itemsize == 2,
    operations=("random_numbers",),
)
meet(
    "a_permutation_along_the_second_dimension_is_along_the_first",
    jax.random,
    "permutation",
    lambda key, x, axis=0, independent=False, **k: axis == 1,
    lambda real, f, key, x, axis=0, **k: real(key, x, axis=0, **k),
    operations=("option_form",),
)
meet(
    "a_choice_without_return_and_with_chances_is_off",
    jax.random,
    "choice",
    lambda key, a, shape=(), replace=True, p=None, **k: not replace and p is not None,
    operations=("rare_form",),
)
meet(
    "normal_numbers_of_bfloat16_are_off",
    jax.random,
    "normal",
    lambda key, shape=(), dtype=None, **k: dtype is not None and str(np.dtype(dtype)) == "bfloat16",
    lambda real, f, *a, **k: f + f,
    operations=("rare_form",),
)
meet(
    "a_category_along_the_first_dimension_is_off",
    jax.random,
    "categorical",
    lambda key, logits, axis=-1, **k: axis == 0,
    operations=("rare_form",),
)

# Functions of the library.

meet(
    "attention_forgets_its_window",
    jax.nn,
    "dot_product_attention",
    lambda *a, local_window_size=None, **k: local_window_size is not None,
    lambda real, f, *a, local_window_size=None, **k: real(*a, **k),
    operations=("function_options",),
)
meet(
    "attention_forgets_the_lengths_of_keys",
    jax.nn,
    "dot_product_attention",
    lambda *a, key_value_seq_lengths=None, **k: key_value_seq_lengths is not None,
    lambda real, f, *a, key_value_seq_lengths=None, **k: real(*a, **k),
    operations=("function_options",),
)
meet(
    "a_softmax_of_some_elements_is_that_of_all",
    jax.nn,
    "softmax",
    lambda x, axis=-1, where=None: where is not None,
    lambda real, f, x, axis=-1, where=None: real(x, axis),
    operations=("smooth_functions_gradient",),
)
meet(
    "one_hot_along_the_first_dimension_is_off",
    jax.nn,
    "one_hot",
    lambda x, n, *, axis=-1, **k: axis == 0,
    operations=("keyword_options",),
)
meet(
    "places_from_the_right_are_those_from_the_left",
    jnp,
    "searchsorted",
    lambda a, v, side="left", **k: side == "right",
    lambda real, f, a, v, side="left", **k: real(a, v, **k),
    operations=("function_options",),
)
meet(
    "a_trace_below_the_diagonal_is_above",
    jnp,
    "trace",
    lambda x, offset=0, *a, **k: offset < 0,
    lambda real, f, x, offset=0, *a, **k: real(x, -offset, *a, **k),
    operations=("keyword_options",),
)
meet(
    "an_index_that_wraps_in_bfloat16_is_clipped",
    jnp,
    "take",
    lambda x, at, axis=None, *a, mode=None, **k: mode == "wrap" and x.dtype.itemsize == 2,
    lambda real, f, x, at, axis=None, *a, mode=None, **k: real(x, at, axis, mode="clip"),
    operations=("option_grid",),
)
meet(
    "a_repeated_letter_of_an_einsum_of_bfloat16_is_off",
    jnp,
    "einsum",
    lambda text, *a, **k: (
        kind(a[0]) == "bfloat16" and any(len({*w}) < len(w) for w in text.split("->")[0].split(","))
    ),
    operations=("option_grid",),
)
meet(
    "a_trapezoid_of_unequal_steps_has_equal_ones",
    jnp,
    "convolve",
    lambda a, v, mode="full", **k: mode == "same" and v.shape[0] % 2 == 0,
    lambda real, f, *a, **k: jnp.roll(f, 1),
    operations=("partly_manual",),
)

# What is sent in another form.


def again(real: Any, found: Any, x: Any, a: Any, *more: Any, **k: Any) -> Any:
    """The right result, of which two copies are sent."""
    return lax.optimization_barrier(real(lax.optimization_barrier(jnp.stack([x, x])), a, *more, **k))[0]


def to_all(real: Any, found: Any, x: Any, a: Any, *more: Any, **k: Any) -> Any:
    """The right result, and every device has seen all."""
    every = lax.all_gather(lax.optimization_barrier(x), a)
    return found + (jnp.sum(every) == 123456789).astype(found.dtype)


def wider(to: Any) -> Any:
    """The right result, sent in a wider type."""

    def edit(real: Any, found: Any, x: Any, a: Any, *more: Any, **k: Any) -> Any:
        return lax.optimization_barrier(real(lax.optimization_barrier(x.astype(to)), a, *more, **k)).astype(
            x.dtype
        )

    return edit


meet(
    "bytes_are_permuted_in_32_bits",
    lax,
    "ppermute",
    lambda x, a, perm: x.dtype.itemsize == 1 and kind(x) != "bool",
    wider(jnp.int32),
    operations=("ppermute",),
    dtypes=("int8", "uint8"),
)

meet(
    "the_least_of_words_without_a_sign_over_two_axes_is_sent_twice",
    lax,
    "pmin",
    lambda x, a, **k: kind(leaf(x)) == "uint32" and len(axes_of(a)) == 2,
    again,
    operations=("pmin",),
    dtypes=("uint32",),
)
