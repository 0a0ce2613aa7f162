# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions of jax.lax, jax.numpy and jax.nn, with the domains of their operands.

A name without a module stands for the function of that name in each module that has one. A new function of JAX needs
one word here. `tests/hunt/test_breadth.py` fails if a public function is neither here, nor drawn by another kind, nor
left out with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

MODULES = {"jnp": jnp, "lax": lax, "nn": jax.nn}
"""The modules in which a name without a module is looked up."""


@dataclass(frozen=True)
class Row:
    """Functions of one form.

    operands: what each operand may be, a type or a domain.

    number, float, float32, integer, boolean, complex    values of these types, unchanged
    positive, above                  floats from 0.5 to 2.5, from 1.5 to 3.5
    unit, fraction, small            floats from -0.75 to 0.75, from 0.125 to 0.875, from -3 to 3
    nonzero, halves, exponents       floats that are odd integers; constants such as 0.5 and 3; constants from 0 to 3
    odd, places                      odd integers, integers from 0 to 7
    """

    operands: tuple[str, ...]
    names: str


EXACT = (
    Row(("number",), "positive neg negative abs absolute square one_minus_square copy"),
    Row(("float",), "fabs nan_to_num relu relu6 hard_tanh nn.identity"),
    Row(("number", "number"), "add sub subtract mul multiply maximum minimum lax.max lax.min"),
    Row(("float", "float"), "fmax fmin"),
    Row(("complex",), "conj conjugate real imag neg negative positive square"),
    Row(("complex", "complex"), "add sub subtract mul multiply"),
    Row(("float32", "float32"), "complex"),
)
"""Functions whose results are exact for small integers, and continuous."""

STEPS = (
    Row(("number",), "sign isfinite isinf isnan isneginf isposinf isreal iscomplex logical_not"),
    Row(("float",), "floor ceil trunc rint round around is_finite modf"),
    Row(("nonzero",), "signbit"),
    Row(("float", "nonzero"), "copysign"),
    Row(("float", "float"), "heaviside"),
    Row(("integer",), "invert bitwise_not bitwise_invert bitwise_count population_count clz"),
    Row(("boolean",), "logical_not invert bitwise_not"),
    Row(
        ("number", "number"),
        "less less_equal greater greater_equal equal not_equal lt le gt ge eq ne"
        " logical_and logical_or logical_xor isclose",
    ),
    Row(("boolean", "boolean"), "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"),
    Row(("integer", "integer"), "bitwise_and bitwise_or bitwise_xor gcd lcm mulhi"),
    Row(("integer", "odd"), "remainder mod fmod floor_divide divmod rem lax.div"),
    Row(
        ("integer", "places"),
        "left_shift right_shift bitwise_left_shift bitwise_right_shift shift_left"
        " shift_right_logical shift_right_arithmetic",
    ),
    Row(("float", "halves"), "remainder mod fmod floor_divide divmod rem"),
    Row(("float", "exponents"), "ldexp"),
    Row(("complex", "complex"), "equal not_equal eq ne"),
)
"""Functions whose results are exact for small integers, but that jump, or take only types that can't be rounded."""

ROUNDED = (
    Row(
        ("float",),
        "sin cos tanh logistic sigmoid erf erfc arctan atan arcsinh asinh sinc deg2rad rad2deg degrees radians"
        " bessel_i0e bessel_i1e gelu silu softplus squareplus mish log_sigmoid celu elu selu soft_sign leaky_relu"
        " hard_sigmoid hard_silu sparse_sigmoid sparse_plus",
    ),
    Row(("small",), "exp exp2 expm1 sinh cosh i0"),
    Row(("positive",), "log log2 log10 log1p sqrt rsqrt cbrt reciprocal lgamma digamma log1mexp"),
    Row(("above",), "arccosh acosh"),
    Row(("unit",), "arcsin asin arccos acos arctanh atanh tan erf_inv"),
    Row(("float", "float"), "logaddexp logaddexp2 nextafter"),
    Row(("float", "positive"), "divide true_divide arctan2 atan2 lax.div"),
    Row(("positive", "float"), "hypot"),
    Row(("fraction", "small"), "pow power float_power"),
    Row(("positive", "positive"), "igamma igammac igamma_grad_a random_gamma_grad"),
    Row(("above", "positive"), "zeta"),
    Row(("positive", "positive", "fraction"), "betainc"),
    Row(("complex",), "exp sin cos tanh sinh cosh"),
)
"""Functions whose results are rounded, and continuous in their domains."""

ROUGH = (Row(("float",), "frexp spacing"), Row(("complex",), "angle"))
"""Functions whose results are rounded, or have more bits than their operands, and jump."""

OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "nn.gelu": {"approximate": (True, False)},
    "nn.elu": {"alpha": (1.0, 2.0)},
    "nn.celu": {"alpha": (1.0, 2.0)},
    "nn.leaky_relu": {"negative_slope": (0.01, 0.5)},
    "nn.squareplus": {"b": (4, 1)},
    "jnp.angle": {"deg": (True, False)},
    "jnp.isclose": {"atol": (0.5, 2), "equal_nan": (True, False)},
    "jnp.nan_to_num": {"nan": (0.0, 3.0)},
}
"""The values of options, by function. An option is given half of the time."""


def spell(names: str) -> Iterator[str]:
    """The full names of those functions that this JAX has."""
    for word in names.split():
        module, _, name = word.rpartition(".")
        for first in [module] if module else MODULES:
            if hasattr(MODULES[first], name):
                yield f"{first}.{name}"


@cache
def list_functions(rows: tuple[Row, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(full name, operands) of each function of these rows that this JAX has."""
    return tuple((name, row.operands) for row in rows for name in spell(row.names))


_EXACT = {name for row in (*EXACT, *STEPS) for name in spell(row.names)}

ALWAYS_ROUNDED = frozenset(n for row in (*ROUNDED, *ROUGH) for n in spell(row.names) if n not in _EXACT)
"""The full names of functions whose results are never exact. lax.div is not one of them: it is exact for integers."""
