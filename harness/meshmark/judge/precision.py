# SPDX-License-Identifier: Apache-2.0
"""Finds by tests on one device how it computes: to what precision a default matmul rounds its factors, and whether
subnormal numbers are flushed to zero.

JAX's default lets a backend multiply float32 in a narrower type (bfloat16 on TPU, TF32 on recent GPUs), and no API
gives that type. A product with the identity rounds nothing else, so its error is the rounding of the factors. A
default narrower than the dtype is not a fault: cases at default precision are judged with it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Plan


@lru_cache
def default_roundoff(dtype: str) -> float:
    """The unit roundoff to which a device rounds the factors of a default product of this dtype:
    a power of two, or 0.0 if it does not round them.

    The largest relative error over 4,096 values with full significands, rounded as the left factor and as the right
    one, to the next power of two: 2**-8 for bfloat16, 2**-11 for TF32, 2**-10 if TF32 truncates. Products of whole and
    of complex numbers are judged by exact values, which no device rounds: 0.0 without a probe.
    """
    if dtype_of(dtype).kind != "float":
        return 0.0
    kind = dtype_of(dtype).numpy
    shape = (64, 64)
    index = values.flat_index(shape, values.whole(shape))
    given = values.distinct(values.random_bits(1, index), index, shape, kind)
    one = np.eye(64, dtype=kind)
    with jax.default_device(jax.local_devices()[0]):
        product = jax.jit(lambda a, b: jnp.matmul(a, b, precision="default"))
        seen = [np.asarray(product(given, one)), np.asarray(product(one, given))]
    error = max(float(np.max(np.abs(s / given.astype(np.float64) - 1.0))) for s in seen)
    return 2.0 ** math.ceil(math.log2(error)) if error else 0.0


def factor_roundoff(plan: Plan, dtype: str) -> float:
    """The `u_factor` for judging a plan: the probe's result at default precision, otherwise 0.0."""
    asked = plan.precision == "default" and plan.judge == "bound"
    return default_roundoff(dtype) if asked else 0.0


def format_precision(plan: Plan, dtype: str) -> str:
    """The precision in the form of records: highest, or default (8 bits)."""
    if plan.precision != "default" or dtype_of(dtype).kind != "float":
        return plan.precision
    found = default_roundoff(dtype)
    return f"default ({round(-math.log2(found)) if found else dtype_of(dtype).digits} bits)"


@lru_cache
def flushes(dtype: str) -> bool:
    """Whether a device takes subnormal numbers of this dtype for zeros when it adds or compares them.

    Such a device may flush them in any operation: XLA's CPU backend flushes the float32 sum of two subnormals, and
    keeps their maximum.
    """
    kind = dtype_of(dtype)
    if not kind.tiny:
        return False
    given = np.full((4,), kind.tiny / 4, kind.numpy)
    with jax.default_device(jax.local_devices()[0]):
        return not np.asarray(jax.jit(lambda x: x + x)(given)).any()
