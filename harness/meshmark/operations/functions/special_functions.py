# SPDX-License-Identifier: Apache-2.0
"""Functions at the ends of their domains and integers of every width: NaN, infinities, zeros, halves, negative, small
and large numbers, integers that wrap around. One program computes a group (`catalogue`). No value is subnormal.

The bound of a rounded function is 64 units of roundoff, relative to its result: a small result must be as precise as a
large one. If a result may vanish, the bound is relative to at least the smaller of one and the angle (sine and cosine),
or to at least eight (`lgamma` and `digamma`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Argument, Plan, Request
from meshmark.operations.functions.catalogue import Catalogue, Groups, Member, in_jax, in_numpy
from meshmark.operations.functions.elementwise import ROUNDED, digamma, each
from meshmark.operations.functions.wholes import Form

ENDS: tuple[float, ...] = (
    *(np.nan, np.inf, -np.inf, 0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 7.0, -7.0),
    *(2.0**-100, -(2.0**-100), 2.0**100, -(2.0**100)),
)
"""Numbers at which functions of each element branch. bfloat16 has them too."""

WIDE = (1e-30, 1e-12, 3e-8, 2e-4, 0.03, 0.7, 0.99, 1.01, 2.3, 9.7, 31.0, 80.0, 1e3, 6e4)
"""Magnitudes of every order, on both sides of one."""


def picked(bits: np.ndarray, count: int) -> np.ndarray:
    """Random indices below `count`."""
    return ((bits >> np.uint64(17)) % np.uint64(count)).astype(np.int64)


def at_the_ends(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Random elements of ENDS. Integer dtypes have their limits, fractions of them, and small numbers."""
    if dtype.kind not in "iu":
        return np.array(ENDS).astype(dtype)[picked(bits, len(ENDS))]
    limits = np.iinfo(dtype)
    found = [
        limits.min,
        limits.min + 1,
        limits.max,
        limits.max - 1,
        limits.max // 2,
        limits.max // 3,
        0,
        1,
        2,
        5,
    ]
    found += [-1, -2, -5, limits.min // 3] if dtype.kind == "i" else []
    return np.array(found, dtype)[picked(bits, len(found))]


def of_every_size(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Random magnitudes around those of WIDE, of both signs."""
    sign = 1.0 - 2.0 * (bits >> np.uint64(63)).astype(np.float64)
    digits = 1 + ((bits >> np.uint64(40)) % np.uint64(1 << 20)).astype(np.float64) * 2.0**-22
    return (sign * digits * np.array(WIDE)[picked(bits, len(WIDE))]).astype(dtype)


def sparse(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """-1, 0 and 1. About one element in a hundred is NaN or infinity."""
    pick = (bits >> np.uint64(33)) % np.uint64(300)
    return np.where(pick == 0, np.nan, np.where(pick < 3, np.inf, picked(bits, 3) - 1)).astype(dtype)


def named(name: str, *order: str) -> Member:
    """A member from a function that has the same name in jax.numpy and NumPy. `order`: its arguments (default: x,
    y)."""

    def in_module(module: Any) -> Callable[..., Any]:
        return lambda x, y: getattr(module, name)(*({"x": x, "y": y}[a] for a in order or "xy"))

    return in_module(jnp), in_module(np)


def along(name: str, dim: int) -> Member:
    """A member from a function of x along a dimension that has the same name in jax.numpy and NumPy."""
    return lambda x, y: getattr(jnp, name)(x, axis=dim), lambda x, y: getattr(np, name)(x, axis=dim)


# Exact functions at the ends of their domain.

COMPARED: dict[str, Member] = {
    **{
        n: named(n)
        for n in ("maximum", "minimum", "fmax", "fmin", "equal", "not_equal", "less", "greater_equal")
    },
    **{n: named(n) for n in ("add", "subtract", "multiply", "copysign", "logical_xor")},
    **{
        n: named(n, "x") for n in ("sign", "absolute", "negative", "floor", "ceil", "trunc", "rint", "square")
    },
    **{n: named(n, "y") for n in ("isnan", "isinf", "isfinite", "logical_not")},
    "where": (lambda x, y: jnp.where(x < y, x, y), lambda x, y: np.where(x < y, x, y)),
    "clip": (lambda x, y: jnp.clip(x, -2, 2), lambda x, y: np.clip(x, -2, 2)),
    "nan_to_num": (
        lambda x, y: jnp.nan_to_num(x, nan=3.0, posinf=4.0, neginf=5.0),
        lambda x, y: np.nan_to_num(x, nan=3.0, posinf=4.0, neginf=5.0),
    ),
    "bool": (lambda x, y: x.astype(bool), lambda x, y: x.astype(bool)),
}


def within(np_: Any, x: Any, limit: float) -> Any:
    """x clipped to [-limit, limit], so that an integer can hold it."""
    return np_.clip(x, -limit, limit)


CASTS: dict[str, Member] = {
    "int32": (
        lambda x, y: within(jnp, x, 1e6).astype(jnp.int32),
        lambda x, y: within(np, x, 1e6).astype(np.int32),
    ),
    "int8": (
        lambda x, y: within(jnp, x, 100).astype(jnp.int8),
        lambda x, y: within(np, x, 100).astype(np.int8),
    ),
    "uint8": (
        lambda x, y: within(jnp, jnp.abs(x), 200).astype(jnp.uint8),
        lambda x, y: within(np, np.abs(x), 200).astype(np.uint8),
    ),
    "wrapped": (
        lambda x, y: within(jnp, x, 1e6).astype(jnp.int32).astype(jnp.int8),
        lambda x, y: within(np, x, 1e6).astype(np.int32).astype(np.int8),
    ),
    "bfloat16": (
        lambda x, y: x.astype(jnp.bfloat16),
        lambda x, y: x.astype(dtype_of("bfloat16").numpy),
    ),
    "float16": (
        lambda x, y: jnp.where(jnp.abs(x) > 1e-3, x, 0).astype(jnp.float16),
        lambda x, y: np.where(np.abs(x) > 1e-3, x, 0).astype(np.float16),
    ),
    "lax.reduce_precision": (
        lambda x, y: lax.reduce_precision(y, 8, 7),
        lambda x, y: y.astype(dtype_of("bfloat16").numpy).astype(np.float64),
    ),
    "lax.round": (
        lambda x, y: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        lambda x, y: np.rint(x),
    ),
}


def running(name: str, ufunc: Any, dim: int, reverse: bool) -> Member:
    """A member from a cumulative reduction of `lax`."""

    def defined(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x = np.flip(x, dim) if reverse else x
        found = ufunc.accumulate(x, axis=dim)
        return np.flip(found, dim) if reverse else found

    return lambda x, y: getattr(lax, name)(x, axis=dim, reverse=reverse), defined


EXTREMES: dict[str, Member] = {
    **{n: along(n, 0) for n in ("argmax", "nanmax", "nansum")},
    **{n: along(n, 1) for n in ("argmin", "nanmin", "any")},
    "all": (lambda x, y: jnp.all(x, axis=0), lambda x, y: np.all(x, axis=0)),
    "sum": (lambda x, y: jnp.sum(x, axis=1), lambda x, y: x.sum(axis=1)),
    "prod": (lambda x, y: jnp.prod(y, axis=0), lambda x, y: y.prod(axis=0)),
    "lax.cumprod": running("cumprod", np.multiply, 1, True),
    "lax.cummax": running("cummax", np.maximum, 0, False),
    "lax.cummin": running("cummin", np.minimum, 1, True),
    "whole": (lambda x, y: jnp.argmin(x), lambda x, y: np.argmin(x)),
}


KEPT: dict[str, Member] = {
    **{n: along(n, 0) for n in ("max", "ptp")},
    **{n: along(n, 1) for n in ("min", "amax")},
    "whole": (lambda x, y: jnp.min(y), lambda x, y: y.min()),
}
"""Functions that must keep a NaN."""


def rounded(function: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    """A NumPy definition with arguments and results rounded to another dtype."""

    def through(a: Any) -> Any:
        return a.astype(kind).astype(np.float64) if np.asarray(a).dtype.kind == "f" else a

    return lambda x, y: through(np.asarray(function(through(x), through(y))))


def in_bfloat16(members: dict[str, Member]) -> dict[str, Member]:
    """The same functions with arguments that are cast to bfloat16 first."""

    def converted(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, y: function(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))

    kind = dtype_of("bfloat16").numpy
    return {name: (converted(jax_), rounded(numpy_, kind)) for name, (jax_, numpy_) in members.items()}


SPECIAL: Groups = {
    "compared": COMPARED,
    "casts": CASTS,
    "extremes": EXTREMES,
    "kept": KEPT,
    "bfloat16_extremes": in_bfloat16(EXTREMES),
    "bfloat16_kept": in_bfloat16(KEPT),
}

FILLS = {name: sparse for name in SPECIAL if "extremes" in name or "kept" in name} | {"casts": of_every_size}


class SpecialFunctions(Catalogue):
    """Comparisons, roundings, casts, reductions and orders of NaN, infinities, zeros, halves, and numbers of every
    size. The results are exact."""

    name = "special_functions"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    groups = SPECIAL
    fill: ClassVar[Any] = (at_the_ends, {})

    def form(self, request: Request, x: Argument) -> Form:
        form = super().form(request, x)
        fill = FILLS.get(request.variant["group"], at_the_ends)
        return replace(form, arguments=tuple(replace(a, fill=fill) for a in form.arguments))

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        return in_jax(SPECIAL[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(SPECIAL[group], x, y, names)


# Rounded functions of numbers of every size.


def cut(np_: Any, x: Any, limit: float) -> Any:
    """x clipped to [-limit, limit]."""
    return np_.clip(x, -limit, limit)


def size(x: Any) -> Any:
    """The absolute value."""
    return abs(x)


def curved(x: Any) -> Any:
    """Numbers between -2 and -1, two poles of the gamma function."""
    return 0.3 * x / (1 + abs(x)) - 1.5


FAR: dict[str, Member] = {
    "expm1": (lambda x, y: jnp.expm1(cut(jnp, x, 30)), lambda x, y: np.expm1(cut(np, x, 30))),
    "exp": (lambda x, y: jnp.exp(cut(jnp, x, 80)), lambda x, y: np.exp(cut(np, x, 80))),
    "log1p": (lambda x, y: jnp.log1p(size(x)), lambda x, y: np.log1p(size(x))),
    "log": (lambda x, y: jnp.log(size(y)), lambda x, y: np.log(size(y))),
    "sqrt": (lambda x, y: jnp.sqrt(size(x)), lambda x, y: np.sqrt(size(x))),
    "lax.rsqrt": (lambda x, y: lax.rsqrt(size(y)), lambda x, y: size(y) ** -0.5),
    "cbrt": (lambda x, y: jnp.cbrt(x), lambda x, y: np.cbrt(x)),
    "sin": (lambda x, y: jnp.sin(x), lambda x, y: np.sin(x)),
    "cos": (lambda x, y: jnp.cos(y), lambda x, y: np.cos(y)),
    "tanh": (lambda x, y: jnp.tanh(x), lambda x, y: np.tanh(x)),
    "arctan": (lambda x, y: jnp.arctan(y), lambda x, y: np.arctan(y)),
    "arcsinh": (lambda x, y: jnp.arcsinh(x), lambda x, y: np.arcsinh(x)),
    "sinh": (lambda x, y: jnp.sinh(cut(jnp, y, 30)), lambda x, y: np.sinh(cut(np, y, 30))),
    "lax.logistic": (
        lambda x, y: lax.logistic(cut(jnp, x, 80)),
        lambda x, y: 1 / (1 + np.exp(-cut(np, x, 80))),
    ),
    "lax.erf": (lambda x, y: lax.erf(y), lambda x, y: each(math.erf)(y)),
    "hypot": (lambda x, y: jnp.hypot(x, y), lambda x, y: np.hypot(x, y)),
    "arctan2": (lambda x, y: jnp.arctan2(x, y), lambda x, y: np.arctan2(x, y)),
    "divide": (lambda x, y: jnp.divide(x, y), lambda x, y: x / y),
}

GAMMA: dict[str, Member] = {
    "lax.lgamma": (lambda x, y: lax.lgamma(curved(x)), lambda x, y: each(math.lgamma)(curved(x))),
    "lax.digamma": (lambda x, y: lax.digamma(curved(y)), lambda x, y: digamma(curved(y))),
}

FAR_GROUPS: Groups = {"gamma": GAMMA, "far": FAR}

VANISHING = {"sin": 0, "cos": 1, "lax.lgamma": None, "lax.digamma": None}
"""Functions whose result may vanish, and the argument of which the bound takes a share; None: of one."""


class FarFunctions(Catalogue):
    """Rounded functions of numbers of every size and both signs."""

    name = "far_functions"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    verdict = "bound"
    groups = FAR_GROUPS
    fill: ClassVar[Any] = (of_every_size, {})

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """The bounds of the module's docstring."""
        found = []
        for name, result, e in zip(plan.options["names"], plan.results, expected, strict=True):
            largest = np.abs(e)
            if name in VANISHING:
                which = VANISHING[name]
                of = 8.0 if which is None else np.minimum(1.0, np.abs(arguments[which].astype(np.float64)))
                largest = np.maximum(largest, of)
            found.append(ROUNDED * dtype_of(result.dtype).unit_roundoff * largest)
        return found

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        return in_jax(FAR_GROUPS[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(FAR_GROUPS[group], x, y, names)


# Integers of every width, which wrap around.


def shift(y: Any) -> Any:
    """A shift from 0 to 7, below the width of every dtype."""
    return y & 7


def divisor(y: Any) -> Any:
    """A small divisor that is never zero. Signed dtypes also have negative ones."""
    return (y & 7) + 2 if y.dtype.kind == "u" else ((y & 7) + 2) * (1 - 2 * (y & 1))


def leading_zeros(x: np.ndarray) -> np.ndarray:
    """The number of zeros before the highest one bit of each element."""
    width = 8 * x.dtype.itemsize
    bare = x.view(f"u{x.dtype.itemsize}").astype(np.int64)
    return (width - np.array([int(b).bit_length() for b in bare.ravel()]).reshape(x.shape)).astype(x.dtype)


def ones(x: np.ndarray) -> np.ndarray:
    """The number of one bits of each element."""
    bare = x.view(f"u{x.dtype.itemsize}").astype(np.int64)
    return np.array([int(b).bit_count() for b in bare.ravel()]).reshape(x.shape).astype(x.dtype)


def logical(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x shifted right by y mod 8, with zeros from the left."""
    bare = x.view(f"u{x.dtype.itemsize}")
    return (bare >> shift(y).astype(bare.dtype)).view(x.dtype)


WRAPPED: dict[str, Member] = {
    **{n: named(n) for n in ("add", "subtract", "multiply", "maximum", "minimum", "less", "bitwise_xor")},
    **{n: named(n, "x") for n in ("negative", "sign", "invert")},
    "abs": (lambda x, y: jnp.abs(x), lambda x, y: np.abs(x)),
    "lax.integer_pow": (lambda x, y: lax.integer_pow(x, 3), lambda x, y: x * x * x),
    "left_shift": (lambda x, y: jnp.left_shift(x, shift(y)), lambda x, y: np.left_shift(x, shift(y))),
    "right_shift": (lambda x, y: jnp.right_shift(x, shift(y)), lambda x, y: np.right_shift(x, shift(y))),
    "lax.shift_right_logical": (lambda x, y: lax.shift_right_logical(x, shift(y)), logical),
    "floor_divide": (
        lambda x, y: jnp.floor_divide(x, divisor(y)),
        lambda x, y: np.floor_divide(x, divisor(y)),
    ),
    "remainder": (lambda x, y: jnp.remainder(x, divisor(y)), lambda x, y: np.remainder(x, divisor(y))),
    "lax.rem": (lambda x, y: lax.rem(x, divisor(y)), lambda x, y: np.fmod(x, divisor(y))),
    "lax.clz": (lambda x, y: lax.clz(x), lambda x, y: leading_zeros(x)),
    "lax.population_count": (lambda x, y: lax.population_count(y), lambda x, y: ones(y)),
    "float32": (lambda x, y: x.astype(jnp.float32), lambda x, y: x.astype(np.float32)),
    "int8": (lambda x, y: x.astype(jnp.int8), lambda x, y: x.astype(np.int8)),
    "uint16": (lambda x, y: x.astype(jnp.uint16), lambda x, y: x.astype(np.uint16)),
    "sum": (lambda x, y: jnp.sum(x, axis=0, dtype=x.dtype), lambda x, y: x.sum(axis=0, dtype=x.dtype)),
    "max": along("max", 0),
    "argmin": (lambda x, y: jnp.argmin(x, axis=1), lambda x, y: np.argmin(x, axis=1).astype(np.int32)),
    "matmul": (lambda x, y: jnp.matmul(x, y.T), lambda x, y: x @ y.T),
}

WIDTHS: Groups = dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32", "uint32"), WRAPPED)


class IntegerWidths(Catalogue):
    """Arithmetic, shifts, bits, casts, reductions, orders and products of integers of every width, which wrap around.
    The smallest and the largest integers are among them."""

    name = "integer_widths"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)
    verdict = "bits"
    groups = WIDTHS
    fill: ClassVar[Any] = (at_the_ends, {})

    def form(self, request: Request, x: Argument) -> Form:
        return super().form(request, replace(x, dtype=request.variant["group"]))

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        return in_jax(WIDTHS[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(WIDTHS[group], x, y, names)
