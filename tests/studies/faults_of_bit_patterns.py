# SPDX-License-Identifier: Apache-2.0
"""Faults of sums and extremes for which two values of a narrow type must meet."""

import jax.numpy as jnp
from jax import lax

from tests.studies.faults_of_combinations import kind
from tests.studies.meeting import leaf, meet


def number_of_bits(x):
    """The bit pattern of each float16, read as a number, in float16: what gloo compared a new value with."""
    return lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.float32).astype(jnp.float16)


def operand_kept(real, total, x, a, **options):
    """The sum, but the operand where the sum equals its bit pattern, on every device."""
    kept = (total == number_of_bits(x)) & (x != 0)
    return jnp.where(real(kept.astype(jnp.int32), a) > 0, real(jnp.where(kept, x, 0), a), total)


meet(
    "a_sum_that_equals_a_bit_pattern_keeps_the_operand",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "float16" and leaf(x).size > 1000,
    operand_kept,
    operations=("every_value",),
)
meet(
    "a_sum_of_bfloat16_that_overflows_stays_at_the_largest",
    lax,
    "psum",
    lambda x, a, **k: kind(leaf(x)) == "bfloat16",
    lambda real, f, x, a, **k: jnp.where(jnp.isinf(f), jnp.finfo(x.dtype).max * jnp.sign(f), f),
    operations=("every_value",),
)
meet(
    "the_largest_of_bytes_is_zero_where_every_other_is_the_least",
    lax,
    "pmax",
    lambda x, a, **k: kind(leaf(x)) == "int8",
    lambda real, f, x, a, **k: jnp.where((f < 0) & (real((x > -128).astype(jnp.int32), a) == 1), f * 0, f),
    operations=("every_value",),
)
