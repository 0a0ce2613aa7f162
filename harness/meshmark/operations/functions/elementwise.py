# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions in groups: one program computes all functions of its group.

References are functions of NumPy or of Python's `math`. The bound of rounded functions is 64 units of roundoff,
relative to the larger of one and the result. Arguments lie between 0.25 and 0.75, where every function is well
conditioned, so the bound covers a few elementary functions of 8 units each (see `meshmark.core.bounds.Arithmetic`).
Devices exchange nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Argument, Plan, Request, Result
from meshmark.operations.functions.wholes import Form, WholeFunction

ROUNDED = 64
"""The bound of a rounded function, in units of roundoff."""


def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def each(function):
    """A function of Python numbers, applied to each element of an array. The result is float64."""
    return np.vectorize(function, otypes=[float])


def inverse_erf(y):
    """The x with erf(x) = y, by Newton's method."""
    x = np.zeros_like(y)
    for _ in range(30):
        x = x - (each(math.erf)(x) - y) / (2 / math.sqrt(math.pi) * np.exp(-x * x))
    return x


def digamma(x):
    """The derivative of lgamma: the recurrence from x to x + 30, and the asymptotic series at x + 30."""
    total = np.zeros_like(x)
    for k in range(30):
        total -= 1 / (x + k)
    z = x + 30
    return total + np.log(z) - 1 / (2 * z) - 1 / (12 * z**2) + 1 / (120 * z**4) - 1 / (252 * z**6)


ROOT = math.sqrt(math.pi)

FUNCTIONS: dict[str, dict[str, tuple[Any, Any]]] = {
    "trigonometric": {
        "sin": (np.sin, np.cos),
        "cos": (np.cos, lambda x: -np.sin(x)),
        "tan": (np.tan, lambda x: 1 / np.cos(x) ** 2),
        "arcsin": (np.arcsin, lambda x: 1 / np.sqrt(1 - x * x)),
        "arccos": (np.arccos, lambda x: -1 / np.sqrt(1 - x * x)),
        "arctan": (np.arctan, lambda x: 1 / (1 + x * x)),
        "deg2rad": (np.deg2rad, lambda x: np.full_like(x, math.pi / 180)),
        "rad2deg": (np.rad2deg, lambda x: np.full_like(x, 180 / math.pi)),
    },
    "hyperbolic": {
        "sinh": (np.sinh, np.cosh),
        "cosh": (np.cosh, np.sinh),
        "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        "arcsinh": (np.arcsinh, lambda x: 1 / np.sqrt(x * x + 1)),
        "arctanh": (np.arctanh, lambda x: 1 / (1 - x * x)),
    },
    "exponential": {
        "exp": (np.exp, np.exp),
        "exp2": (np.exp2, lambda x: np.exp2(x) * math.log(2)),
        "expm1": (np.expm1, np.exp),
        "log": (np.log, lambda x: 1 / x),
        "log2": (np.log2, lambda x: 1 / (x * math.log(2))),
        "log10": (np.log10, lambda x: 1 / (x * math.log(10))),
        "log1p": (np.log1p, lambda x: 1 / (1 + x)),
        "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        "cbrt": (np.cbrt, lambda x: 1 / (3 * np.cbrt(x) ** 2)),
        "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: -0.5 * x**-1.5),
        "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2),
        "square": (np.square, lambda x: 2 * x),
    },
    "special": {
        "erf": (each(math.erf), lambda x: 2 / ROOT * np.exp(-x * x)),
        "erfc": (each(math.erfc), lambda x: -2 / ROOT * np.exp(-x * x)),
        "erf_inv": (inverse_erf, lambda x: ROOT / 2 * np.exp(inverse_erf(x) ** 2)),
        "i0": (np.i0, None),
        "digamma": (digamma, None),
    },
    "gamma": {"lgamma": (each(math.lgamma), digamma)},
    "cardinal": {"sinc": (np.sinc, lambda x: (np.cos(np.pi * x) - np.sinc(x)) / x)},
    "activation": {
        "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
        "relu6": (lambda x: np.clip(x, 0, 6), lambda x: (x > 0) * 1.0),
        "sigmoid": (sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
        "log_sigmoid": (lambda x: np.log(sigmoid(x)), lambda x: 1 - sigmoid(x)),
        "softplus": (lambda x: np.log1p(np.exp(x)), sigmoid),
        "soft_sign": (lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2),
        "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x)))),
        "elu": (lambda x: np.where(x > 0, x, np.expm1(x)), lambda x: np.where(x > 0, 1, np.exp(x))),
        "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), lambda x: np.where(x > 0, 1, 0.01)),
        "hard_tanh": (lambda x: np.clip(x, -1, 1), lambda x: (np.abs(x) < 1) * 1.0),
        "hard_sigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, lambda x: np.full_like(x, 1 / 6)),
        "hard_silu": (lambda x: x * np.clip(x + 3, 0, 6) / 6, lambda x: (2 * x + 3) / 6),
        "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), None),
        "squareplus": (lambda x: (x + np.sqrt(x * x + 4)) / 2, lambda x: (1 + x / np.sqrt(x * x + 4)) / 2),
        "sparse_plus": (lambda x: (x + 1) ** 2 / 4, lambda x: (x + 1) / 2),
        "sparse_sigmoid": (lambda x: (x + 1) / 2, lambda x: np.full_like(x, 0.5)),
        "selu": (lambda x: 1.0507009873554805 * x, lambda x: np.full_like(x, 1.0507009873554805)),
        "celu": (lambda x: np.maximum(x, np.expm1(np.minimum(x, 0))), lambda x: np.ones_like(x)),
    },
}
"""Functions of one number by group: the NumPy reference and its derivative (None: not in the gradients)."""

DEFINED = {name: pair[0] for group in FUNCTIONS.values() for name, pair in group.items()}

TWINS = {
    "lax_circular": {
        **{f"lax.{name}": name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
        **{f"lax.a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "tanh")},
    },
    "lax_exponential": {
        **{f"lax.{name}": name for name in ("exp", "exp2", "expm1", "log", "log1p", "sqrt", "cbrt")},
        **{f"lax.{name}": name for name in ("reciprocal", "square")},
        "lax.logistic": "sigmoid",
    },
    "other_names": {
        **{f"jnp.a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "tanh")},
        "jnp.radians": "deg2rad",
        "jnp.degrees": "rad2deg",
    },
}
"""The same functions under other public names, by group: the name that the reference has."""

FUNCTIONS |= {
    group: {name: (DEFINED[of], None) for name, of in names.items()} for group, names in TWINS.items()
}


def function_of(name):
    """A public function of JAX by its name, with or without the name of its module."""
    module, _, rest = name.rpartition(".")
    if module:
        return getattr({"lax": lax, "jnp": jnp}[module], rest)
    for module in (jax.nn, jnp, lax, jax.scipy.special):
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(name)


class Elementwise(WholeFunction):
    """Rounded functions of one number. One program computes all functions of a group."""

    name = "elementwise"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for group, functions in FUNCTIONS.items():
            yield int(group in TWINS), {"group": group}
            for function in functions:
                yield 3, {"function": function}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def differentiable(self, options: Mapping[str, Any]) -> bool:
        return bool(self.names(options))

    def names(self, options: Any) -> tuple[str, ...]:
        """The functions of a choice."""
        found = [options["function"]] if options.get("function") else FUNCTIONS[options["group"]]
        table = {name: pair for group in FUNCTIONS.values() for name, pair in group.items()}
        return tuple(name for name in found if not self.differentiated or table[name][1] is not None)

    def form(self, request: Request, x: Argument) -> Form:
        names = self.names(dict(request.variant.options))
        x = Argument(x.shape, x.dtype, x.spec, quarters)
        return Form(
            (x,),
            (Result(x.shape, x.dtype, x.spec),) * len(names),
            {"names": names},
            mixed=((),),
            kept=((),) * len(names),
            judge="bound",
            ruled=True,
            wrt=(0,),
            terms=1 << 16,
        )

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """The bound of the module's docstring. For a gradient, it holds for each term of the sum of cotangents."""
        u = dtype_of(plan.results[0].dtype).unit_roundoff
        if not plan.wrt:
            return [ROUNDED * u * np.maximum(np.abs(e), 1.0) for e in expected]
        x, *seeds = (a.astype(np.float64) for a in arguments)
        sizes = np.maximum(np.abs(derivatives(x, plan.options["names"])), 1.0)
        return [(ROUNDED + len(seeds)) * u * sum(s * np.abs(g) for s, g in zip(sizes, seeds, strict=True))]

    @staticmethod
    def whole(x, *, names):
        found = tuple(function_of(name)(x) for name in names)
        return found if len(found) > 1 else found[0]

    @staticmethod
    def reference(x, *, names):
        table = {name: pair for group in FUNCTIONS.values() for name, pair in group.items()}
        found = tuple(table[name][0](x) for name in names)
        return found if len(found) > 1 else found[0]

    @staticmethod
    def gradient(x, *seeds, names):
        return sum(d * g for d, g in zip(derivatives(x, names), seeds, strict=True))


def derivatives(x: np.ndarray, names: Sequence[str]) -> list[np.ndarray]:
    """The derivative of each function at x."""
    table = {name: pair for group in FUNCTIONS.values() for name, pair in group.items()}
    return [table[name][1](x) for name in names]


def quarters(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Random values between 0.25 and 0.75."""
    return (0.5 + values.uniform(bits, index, shape, np.dtype(np.float64)) / 4).astype(dtype)


EXACT = {
    "rounding": (
        "floor",
        "ceil",
        "trunc",
        "rint",
        "sign",
        "absolute",
        "negative",
        "fabs",
        "positive",
        "conjugate",
    ),
    "questions": ("isnan", "isfinite", "isinf", "signbit", "isposinf", "isneginf", "logical_not", "isreal"),
    "arithmetic": ("add", "subtract", "multiply", "maximum", "minimum", "fmax", "fmin", "copysign"),
    "comparison": ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    "logic": ("logical_and", "logical_or", "logical_xor", "heaviside"),
    "bits": ("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"),
    "whole": ("floor_divide", "remainder", "fmod", "float_power"),
    "counts": ("bitwise_count", "invert", "bitwise_not"),
}
"""Exact functions of the same name in NumPy and JAX, by group."""

BINARY = ("arithmetic", "comparison", "logic", "bits", "whole")


class ExactElementwise(WholeFunction):
    """Functions of one or two numbers whose results are exact or correctly rounded. One program computes all functions
    of a group."""

    name = "elementwise_exact"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for group in EXACT:
            yield 0, {"group": group}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        group = request.variant["group"]
        names = EXACT[group]
        kind = "int32" if group in ("bits", "whole", "counts") else x.dtype
        fill = values.tokens if group in ("bits", "whole") else values.distinct
        below = {"below": 9} if group == "whole" else {"below": 4096} if group == "bits" else {}
        x = Argument(x.shape, kind, x.spec, fill, below)
        y = Argument(x.shape, kind, x.spec, odd_tokens if group == "whole" else fill, below)
        count = 2 if group in BINARY else 1
        small = np.ones((1,), dtype_of(kind).numpy)
        narrow = {"float64": "float32", "int64": "int32", "uint8": "int32"}  # NumPy gives wider dtypes
        kinds = [str(getattr(np, name)(*[small] * count).dtype) for name in names]
        kinds = [narrow.get(k, k) for k in kinds]
        return Form(
            (x, y)[:count],
            tuple(Result(x.shape, k, x.spec) for k in kinds),
            {"names": names, "kinds": tuple(kinds)},
            mixed=((),) * count,
            kept=((),) * len(names),
            ruled=True,
        )

    @staticmethod
    def whole(*arrays, names, kinds):
        return tuple(function_of(n)(*arrays).astype(k) for n, k in zip(names, kinds, strict=True))

    @staticmethod
    def reference(*arrays, names):
        return tuple(getattr(np, name)(*arrays) for name in names)


def odd_tokens(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, below: int
) -> np.ndarray:
    """Random positive odd numbers below 2 * `below`."""
    return 2 * values.tokens(bits, index, shape, dtype, below=below) + np.array(1, dtype)


class Chain(WholeFunction):
    """The chains of elementwise functions in the tutorials: `2 * sin(x) + 1`, and `4 * x + 8 * y` of two arrays with
    the same sharding. They contain Python scalars and, in one choice, a row."""

    name = "chain"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"way": "sine"}
        yield 0, {"way": "sum"}
        yield 0, {"way": "row"}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        way = request.variant["way"]
        x = Argument(x.shape, x.dtype, x.spec, quarters)
        row = Argument(x.shape[1:], x.dtype, x.spec[1:], quarters)
        arguments = {"sine": (x,), "sum": (x, x), "row": (x, row)}[way]
        return Form(
            arguments,
            (Result(x.shape, x.dtype, x.spec),),
            {"way": way},
            mixed=((),) * len(arguments),
            kept=((),),
            judge="bound",
            ruled=True,
            wrt=tuple(range(len(arguments))),
            terms=2,
        )

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """Sixteen roundings of the largest term. A sum of cotangents over the rows has one more rounding per row."""
        u = dtype_of(plan.results[0].dtype).unit_roundoff
        if not plan.wrt:
            return [16 * u * np.maximum(np.abs(e), 8.0) for e in expected]
        x, g = arguments[0].astype(np.float64), np.abs(arguments[-1].astype(np.float64))
        sums = (16 * u + len(x) * u) * 8 * g.sum(axis=0)
        return [16 * u * 8 * g if e.ndim == 2 else sums for e in expected]

    @staticmethod
    def whole(*arrays, way):
        if way == "sine":
            return 2 * jnp.sin(arrays[0]) + 1
        if way == "sum":
            return 4 * arrays[0] + 8 * arrays[1]
        return arrays[0] * 3.0 - arrays[1]

    @staticmethod
    def reference(*arrays, way):
        if way == "sine":
            return 2 * np.sin(arrays[0]) + 1
        if way == "sum":
            return 4 * arrays[0] + 8 * arrays[1]
        return arrays[0] * 3.0 - arrays[1]

    @staticmethod
    def gradient(*arrays, way):
        g = arrays[-1]
        if way == "sine":
            return (2 * np.cos(arrays[0]) * g,)
        if way == "sum":
            return 4 * g, 8 * g
        return 3 * g, -g.sum(axis=0)
