# SPDX-License-Identifier: Apache-2.0
"""Exact elementwise functions of small whole numbers: bits, arithmetic, predicates, and writes into rows.

They are groups of the operation `exact_functions`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.functions.catalogue import Member

BITS: dict[str, Member] = {
    "packbits": (
        lambda x, y: jnp.packbits(x > 4, axis=1).astype(jnp.int32),
        lambda x, y: np.packbits(x > 4, axis=1).astype(np.int32),
    ),
    "unpackbits": (
        lambda x, y: jnp.unpackbits(x.astype(jnp.uint8), axis=0).astype(jnp.int32),
        lambda x, y: np.unpackbits(x.astype(np.uint8), axis=0).astype(np.int32),
    ),
    "ravel_multi_index": (
        lambda x, y: jnp.ravel_multi_index((x.astype(int), y.astype(int)), (9, 9), mode="clip"),
        lambda x, y: (9 * x + y).astype(np.int64),
    ),
    "unravel_index": (
        lambda x, y: jnp.unravel_index((9 * x + y).astype(int), (9, 9)),
        lambda x, y: (x.astype(np.int64), y.astype(np.int64)),
    ),
    "divmod": (
        lambda x, y: jnp.divmod(x.astype(int), y.astype(int) + 1),
        lambda x, y: np.divmod(x.astype(np.int64), y.astype(np.int64) + 1),
    ),
    "mod": (
        lambda x, y: jnp.mod(-x.astype(int), y.astype(int) + 1),
        lambda x, y: np.mod(-x.astype(np.int64), y.astype(np.int64) + 1),
    ),
    "modf": (
        lambda x, y: jnp.modf(x.astype(jnp.float32) / 4),
        lambda x, y: np.modf(x.astype(float) / 4),
    ),
    "frexp": (
        lambda x, y: jnp.frexp(x.astype(jnp.float32) + 1),
        lambda x, y: np.frexp(x.astype(float) + 1),
    ),
    "ldexp": (
        lambda x, y: jnp.ldexp(x.astype(jnp.float32), y.astype(int)),
        lambda x, y: x * 2.0**y,
    ),
    "left_shift": (
        lambda x, y: jnp.left_shift(x.astype(int), y.astype(int)),
        lambda x, y: (x * 2**y).astype(np.int64),
    ),
    "right_shift": (
        lambda x, y: jnp.right_shift(-100 * x.astype(int), y.astype(int)),
        lambda x, y: np.floor(-100 * x / 2**y).astype(np.int64),
    ),
    "bitwise_left_shift": (
        lambda x, y: jnp.bitwise_left_shift(y.astype(int), x.astype(int)),
        lambda x, y: (y * 2**x).astype(np.int64),
    ),
    "bitwise_right_shift": (
        lambda x, y: jnp.bitwise_right_shift(300 * x.astype(int), y.astype(int)),
        lambda x, y: np.floor(300 * x / 2**y).astype(np.int64),
    ),
    "bitwise_invert": (
        lambda x, y: jnp.bitwise_invert(x.astype(int)),
        lambda x, y: (-1 - x).astype(np.int64),
    ),
    "lax.shift_left": (
        lambda x, y: lax.shift_left(x.astype(jnp.int32), y.astype(jnp.int32)),
        lambda x, y: (x * 2**y).astype(np.int64),
    ),
    "lax.shift_right_arithmetic": (
        lambda x, y: lax.shift_right_arithmetic(-99 * x.astype(jnp.int32), y.astype(jnp.int32)),
        lambda x, y: np.floor(-99 * x / 2**y).astype(np.int64),
    ),
    "lax.shift_right_logical": (
        lambda x, y: lax.shift_right_logical(-99 * x.astype(jnp.int32), y.astype(jnp.int32) + 1),
        lambda x, y: ((-99 * x.astype(np.int64)) % 2**32) // 2 ** (y.astype(np.int64) + 1),
    ),
    "lax.bitwise_and": (
        lambda x, y: lax.bitwise_and(x.astype(jnp.int32), y.astype(jnp.int32)),
        lambda x, y: x.astype(np.int64) & y.astype(np.int64),
    ),
    "lax.bitwise_or": (
        lambda x, y: lax.bitwise_or(x.astype(jnp.int32), y.astype(jnp.int32)),
        lambda x, y: x.astype(np.int64) | y.astype(np.int64),
    ),
    "lax.bitwise_xor": (
        lambda x, y: lax.bitwise_xor(x.astype(jnp.int32), y.astype(jnp.int32)),
        lambda x, y: x.astype(np.int64) ^ y.astype(np.int64),
    ),
    "lax.bitwise_not": (
        lambda x, y: lax.bitwise_not(x.astype(jnp.int32)),
        lambda x, y: (-1 - x).astype(np.int64),
    ),
    "lax.clz": (
        lambda x, y: lax.clz(x.astype(jnp.int32)),
        lambda x, y: (32 - np.ceil(np.log2(x + 1))).astype(np.int64),
    ),
    "lax.population_count": (
        lambda x, y: lax.population_count(x.astype(jnp.int32)),
        lambda x, y: sum((x.astype(np.int64) >> i) & 1 for i in range(4)),
    ),
}


def wrapped(x, power):
    """x times 2**power, wrapped to 32-bit signed integers."""
    return (x.astype(np.int64) * 2**power + 2**31) % 2**32 - 2**31


NUMBERS: dict[str, Member] = {
    "lax.abs": (lambda x, y: lax.abs(x - y), lambda x, y: np.abs(x - y)),
    "lax.mul": (lambda x, y: lax.mul(x, y), lambda x, y: x * y),
    "lax.add": (lambda x, y: lax.add(x, y), lambda x, y: x + y),
    "lax.sub": (lambda x, y: lax.sub(x, y), lambda x, y: x - y),
    "lax.neg": (lambda x, y: lax.neg(x), lambda x, y: -x),
    "lax.sign": (lambda x, y: lax.sign(x - 4), lambda x, y: np.sign(x - 4)),
    "lax.max": (lambda x, y: lax.max(x, y), lambda x, y: np.maximum(x, y)),
    "lax.min": (lambda x, y: lax.min(x, y), lambda x, y: np.minimum(x, y)),
    "lax.rem": (
        lambda x, y: lax.rem(x.astype(jnp.int32) - 4, y.astype(jnp.int32) + 1),
        lambda x, y: np.fmod(x - 4, y + 1).astype(np.int64),
    ),
    "lax.floor": (
        lambda x, y: lax.floor((x.astype(jnp.float32) - 4) / 4),
        lambda x, y: np.floor((x - 4) / 4),
    ),
    "lax.ceil": (lambda x, y: lax.ceil((x.astype(jnp.float32) - 4) / 4), lambda x, y: np.ceil((x - 4) / 4)),
    "lax.round": (
        lambda x, y: lax.round((x.astype(jnp.float32) - 4) / 4),
        lambda x, y: np.sign(x - 4) * np.floor(np.abs(x - 4) / 4 + 0.5),
    ),
    "round": (
        lambda x, y: jnp.round(x.astype(jnp.float32) / 4),
        lambda x, y: np.rint(x / 4),
    ),
    "around": (
        lambda x, y: jnp.around(y.astype(jnp.float32) / 4),
        lambda x, y: np.rint(y / 4),
    ),
    "lax.eq": (lambda x, y: lax.eq(x, y), lambda x, y: x == y),
    "lax.ne": (lambda x, y: lax.ne(x, y), lambda x, y: x != y),
    "lax.lt": (lambda x, y: lax.lt(x, y), lambda x, y: x < y),
    "lax.le": (lambda x, y: lax.le(x, y), lambda x, y: x <= y),
    "lax.gt": (lambda x, y: lax.gt(x, y), lambda x, y: x > y),
    "lax.ge": (lambda x, y: lax.ge(x, y), lambda x, y: x >= y),
    "lax.is_finite": (
        lambda x, y: lax.is_finite(jnp.where(x > 4, jnp.inf, 1.0)),
        lambda x, y: x <= 4,
    ),
    "lax.nextafter": (
        lambda x, y: lax.nextafter(x.astype(jnp.float32) + 1, jnp.full(x.shape, 99.0, jnp.float32)),
        lambda x, y: np.nextafter(x.astype(np.float32) + 1, np.float32(99)).astype(float),
    ),
    "nextafter": (
        lambda x, y: jnp.nextafter(x.astype(jnp.float32) + 1, jnp.float32(0)),
        lambda x, y: np.nextafter(x.astype(np.float32) + 1, np.float32(0)).astype(float),
    ),
    "spacing": (
        lambda x, y: jnp.spacing(x.astype(jnp.float32) + 1),
        lambda x, y: np.spacing(x.astype(np.float32) + 1).astype(float),
    ),
    "lax.reduce_precision": (
        lambda x, y: lax.reduce_precision(x.astype(jnp.float32) * 257, 8, 7),
        lambda x, y: x * 257 - (x * 257 + 0.0 - to_bfloat16(x * 257)),
    ),
    "nan_to_num": (
        lambda x, y: jnp.nan_to_num(jnp.where(x > 4, jnp.nan, y), nan=7.0),
        lambda x, y: np.where(x > 4, 7, y).astype(float),
    ),
    "lax.integer_pow": (lambda x, y: lax.integer_pow(x, 3), lambda x, y: x**3),
    "lax.stop_gradient": (lambda x, y: lax.stop_gradient(x), lambda x, y: x),
    "lax.stage": (lambda x, y: lax.stage(y), lambda x, y: y),
    "lax.composite": (
        lambda x, y: lax.composite(lambda a, b: a - b, "meshmark.subtraction")(x, y),
        lambda x, y: x - y,
    ),
    "frompyfunc": (
        lambda x, y: jnp.frompyfunc(lambda a, b: a - b, 2, 1)(x, y),
        lambda x, y: x - y,
    ),
}


def to_bfloat16(x):
    """Numbers rounded to bfloat16: seven bits of fraction, ties to even."""
    x = np.asarray(x, float)
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x), 1))) - 7)
    return np.rint(x / step) * step


def scattered(kind, combine):
    """(JAX function, NumPy function) of a scatter of two rows of y, which are combined with rows 2 and 0 of x."""

    def in_lax(x, y):
        return getattr(lax, f"scatter_{kind}")(x, np.array([[2], [0]]), y[:2], ROWS)

    def defined(x, y):
        x = x.copy()
        x[[2, 0]] = combine(x[[2, 0]], y[:2])
        return x

    return in_lax, defined


ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))

SCATTERED: dict[str, Member] = {
    "lax.scatter_add": scattered("add", np.add),
    "lax.scatter_sub": scattered("sub", np.subtract),
    "lax.scatter_mul": scattered("mul", np.multiply),
    "lax.scatter_min": scattered("min", np.minimum),
    "lax.scatter_max": scattered("max", np.maximum),
    "clip": (lambda x, y: jnp.clip(x, 2, y), lambda x, y: np.minimum(np.maximum(x, 2), y)),
}

QUESTIONS: dict[str, Member] = {
    "array_equal": (
        lambda x, y: (jnp.array_equal(x, y), jnp.array_equal(x, x)),
        lambda x, y: (np.array((x == y).all()), np.array(True)),
    ),
    "array_equiv": (
        lambda x, y: (jnp.array_equiv(x, x[0]), jnp.array_equiv(x[0], jnp.stack((x[0], x[0])))),
        lambda x, y: (np.array((x == x[0]).all()), np.array(True)),
    ),
    "allclose": (
        lambda x, y: (jnp.allclose(x, y), jnp.allclose(x, x)),
        lambda x, y: (np.array((x == y).all()), np.array(True)),
    ),
    "isclose": (lambda x, y: jnp.isclose(x, y), lambda x, y: x == y),
    "iscomplex": (lambda x, y: jnp.iscomplex(x), lambda x, y: np.zeros(x.shape, bool)),
    "real": (lambda x, y: jnp.real(x), lambda x, y: x),
    "imag": (lambda x, y: jnp.imag(x), lambda x, y: np.zeros_like(x)),
    "conj": (lambda x, y: jnp.conj(x), lambda x, y: x),
    "angle": (lambda x, y: jnp.angle(x.astype(jnp.float32)), lambda x, y: np.zeros(x.shape)),
}
