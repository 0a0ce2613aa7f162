# SPDX-License-Identifier: Apache-2.0
"""Functions of `jax.numpy`, `jax.lax` and `jax.nn` whose results are rounded, and arrays that are made from numbers.
One program computes a group of functions of arguments between 0.25 and 0.75.

Definitions are power series and recurrences (Abramowitz and Stegun, Handbook of Mathematical Functions: 6.4.10 and 23.2
for polygamma and zeta, 6.5.29 for the incomplete gamma function, 26.5.4 for the incomplete beta function, 9.6.10 for
Bessel functions). The bound of an elementwise function is 64 units of roundoff, relative to the larger of one and its
result. A function that adds up over an array has one more unit per element. The incomplete beta function has 256: JAX
multiplies a continued fraction by the exponential of sums of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Plan
from meshmark.operations.functions.catalogue import Catalogue, Groups, Member, in_jax, in_numpy, newer
from meshmark.operations.functions.elementwise import ROUNDED, each, quarters, sigmoid

gamma = each(math.gamma)
TERMS = 60
"""Terms of a power series; its argument is below one, or the terms have factorials."""


def lower_gamma(a, x):
    """P(a, x) = x**a exp(-x) / Gamma(a + 1) * sum of x**n / ((a + 1) ... (a + n))."""
    total, term = np.ones_like(x), np.ones_like(x)
    for n in range(1, TERMS):
        term = term * x / (a + n)
        total = total + term
    return x**a * np.exp(-x) / gamma(a + 1) * total


def by_first(function, a, x):
    """The derivative of a function with respect to its first argument, by a central difference of four points."""
    h = 1e-3
    return (
        8 * (function(a + h, x) - function(a - h, x)) - function(a + 2 * h, x) + function(a - 2 * h, x)
    ) / (12 * h)


def beta_part(a, b, x):
    """I_x(a, b) = x**a / B(a, b) * sum of (1 - b) ... (n - b) / n! * x**n / (a + n)."""
    total, term = 1 / a, np.ones_like(x)
    for n in range(1, 4 * TERMS):
        term = term * (n - b) / n * x
        total = total + term / (a + n)
    return x**a * gamma(a + b) / gamma(a) / gamma(b) * total


def hurwitz(s, q):
    """zeta(s, q): the first 20 terms, and the Euler-Maclaurin formula from q + 20 on."""
    total = sum((q + n) ** -s for n in range(20))
    z = q + 20
    total = total + z ** (1 - s) / (s - 1) + z**-s / 2 + s * z ** (-s - 1) / 12
    return total - s * (s + 1) * (s + 2) * z ** (-s - 3) / 720


def bessel(order, x):
    """The modified Bessel function of the first kind, of order 0 or 1."""
    return sum((x / 2) ** (2 * k + order) / math.factorial(k) / math.factorial(k + order) for k in range(20))


def tanh_gelu(x):
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) / 2, the default approximation of jax.nn.gelu."""
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def lagrange(x, at, values):
    """The value at x of the parabola through three points."""
    total = 0.0
    for i in range(3):
        others = [j for j in range(3) if j != i]
        factors = [(x - at[j]) / (at[i] - at[j]) for j in others]
        total = total + values[i] * factors[0] * factors[1]
    return total


def covariance(x):
    """The covariance matrix of the first three rows: [3, 3]."""
    middle = x[:3] - x[:3].mean(axis=1, keepdims=True)
    return middle @ middle.T / (x.shape[1] - 1)


def correlation(x):
    """The correlation matrix of the first three rows: the covariance over both standard deviations."""
    c = covariance(x)
    return c / np.sqrt(np.outer(np.diag(c), np.diag(c)))


def scaled(x, y, block):
    """x @ transpose(y) with block-scaled x and y: each block of columns has a scale, here always 2."""
    factor = np.repeat(np.full((1, x.shape[1] // block), 2.0), block, axis=1)
    return (x * factor) @ (y * factor).T


def joined_digits(text):
    """The numbers in a text with spaces between them, as a float array."""
    return np.array([float(part) for part in text.split()])


TEXT = "3 1 4 1 5"

BINARY: dict[str, Member] = {
    "arctan2": (lambda x, y: jnp.arctan2(x, -y), lambda x, y: np.arctan2(x, -y)),
    "atan2": (lambda x, y: jnp.atan2(x, y), lambda x, y: np.arctan2(x, y)),
    "lax.atan2": (lambda x, y: lax.atan2(-x, y), lambda x, y: np.arctan2(-x, y)),
    "divide": (lambda x, y: jnp.divide(x, y), lambda x, y: x / y),
    "true_divide": (lambda x, y: jnp.true_divide(y, x), lambda x, y: y / x),
    "lax.div": (lambda x, y: lax.div(x, y), lambda x, y: x / y),
    "hypot": (lambda x, y: jnp.hypot(x, y), lambda x, y: np.hypot(x, y)),
    "logaddexp": (lambda x, y: jnp.logaddexp(x, y), lambda x, y: np.logaddexp(x, y)),
    "logaddexp2": (lambda x, y: jnp.logaddexp2(x, y), lambda x, y: np.logaddexp2(x, y)),
    "power": (lambda x, y: jnp.power(x, y), lambda x, y: x**y),
    "pow": (lambda x, y: jnp.pow(y, x), lambda x, y: y**x),
    "lax.pow": (lambda x, y: lax.pow(x, y), lambda x, y: x**y),
    "float_power": (lambda x, y: jnp.float_power(x, y), lambda x, y: x**y),
    "lax.bessel_i0e": (lambda x, y: lax.bessel_i0e(x), lambda x, y: bessel(0, x) * np.exp(-x)),
    "lax.bessel_i1e": (lambda x, y: lax.bessel_i1e(y), lambda x, y: bessel(1, y) * np.exp(-y)),
    "lax.acosh": (lambda x, y: lax.acosh(x + 2), lambda x, y: np.arccosh(x + 2)),
    "arccosh": (lambda x, y: jnp.arccosh(y + 2), lambda x, y: np.arccosh(y + 2)),
    "acosh": (lambda x, y: jnp.acosh(x + y + 1), lambda x, y: np.arccosh(x + y + 1)),
    "nn.gelu": (lambda x, y: jax.nn.gelu(x), lambda x, y: tanh_gelu(x)),
    "nn.log1mexp": (lambda x, y: jax.nn.log1mexp(x), lambda x, y: np.log1p(-np.exp(-x))),
    "nn.swish": (lambda x, y: jax.nn.swish(x), lambda x, y: x * sigmoid(x)),
    "nn.hard_swish": (lambda x, y: jax.nn.hard_swish(y), lambda x, y: y * (y + 3) / 6),
    "nn.glu": (
        lambda x, y: jax.nn.glu(jnp.concatenate((x, y), axis=1), axis=1),
        lambda x, y: x * sigmoid(y),
    ),
}

SERIES: dict[str, Member] = {
    "lax.igamma": (lambda x, y: lax.igamma(x + 1, y), lambda x, y: lower_gamma(x + 1, y)),
    "lax.igammac": (lambda x, y: lax.igammac(x + 1, y), lambda x, y: 1 - lower_gamma(x + 1, y)),
    "lax.igamma_grad_a": (
        lambda x, y: lax.igamma_grad_a(x + 1, y),
        lambda x, y: by_first(lower_gamma, x + 1, y),
    ),
    "lax.random_gamma_grad": (
        lambda x, y: lax.random_gamma_grad(x + 1, y),
        lambda x, y: -by_first(lower_gamma, x + 1, y) * gamma(x + 1) / (y**x * np.exp(-y)),
    ),
    "lax.polygamma": (
        lambda x, y: lax.polygamma(jnp.ones_like(x), y + 1),
        lambda x, y: hurwitz(2.0, y + 1),
    ),
    "lax.zeta": (lambda x, y: lax.zeta(x + 2, y + 1), lambda x, y: hurwitz(x + 2, y + 1)),
}


def divided(u, v):
    """Quotient and remainder of polynomials of degrees two and one, by long division."""
    first = u[0] / v[0]
    second = (u[1] - first * v[1]) / v[0]
    return np.array([first, second]), np.array([0.0, 0.0, u[2] - second * v[1]])


STATISTICS: dict[str, Member] = {
    "average": (
        lambda x, y: jnp.average(x, axis=0, weights=y),
        lambda x, y: (x * y).sum(axis=0) / y.sum(axis=0),
    ),
    "std": (lambda x, y: jnp.std(x, axis=0), lambda x, y: x.std(axis=0)),
    "nanstd": (lambda x, y: jnp.nanstd(x, axis=1), lambda x, y: x.std(axis=1)),
    "nanvar": (lambda x, y: jnp.nanvar(x, axis=0), lambda x, y: x.var(axis=0)),
    "cov": (lambda x, y: jnp.cov(x[:3]), lambda x, y: covariance(x)),
    "corrcoef": (lambda x, y: jnp.corrcoef(x[:3]), lambda x, y: correlation(x)),
    "interp": (
        lambda x, y: jnp.interp(x, np.linspace(0, 1, 5), np.linspace(0, 1, 5) ** 2),
        lambda x, y: np.interp(x, np.linspace(0, 1, 5), np.linspace(0, 1, 5) ** 2),
    ),
    "unwrap": (
        lambda x, y: jnp.unwrap(8 * x[:, :4], axis=1),
        lambda x, y: np.unwrap(8 * x[:, :4], axis=1),
    ),
    "lax.cumlogsumexp": (
        lambda x, y: lax.cumlogsumexp(x, axis=1),
        lambda x, y: np.log(np.cumsum(np.exp(x), axis=1)),
    ),
    "nn.logmeanexp": (
        lambda x, y: jax.nn.logmeanexp(x, axis=0),
        lambda x, y: np.log(np.exp(x).mean(axis=0)),
    ),
    "polyint": (
        lambda x, y: jnp.polyint(x[0]),
        lambda x, y: np.append(x[0] / np.arange(x.shape[1], 0, -1), 0.0),
    ),
    "polyfit": (
        lambda x, y: (
            jnp.array(jnp.polyfit(np.array([0.0, 1.0, 2.0]), y[0, :3], 2))
            @ np.array([2.25, 1.5, 1.0], np.float32)
        ),
        lambda x, y: lagrange(1.5, (0.0, 1.0, 2.0), y[0, :3]),
    ),
    "polydiv": (
        lambda x, y: jnp.polydiv(x[0, :3], y[0, :2] + np.array([1, 0], np.float32)),
        lambda x, y: divided(x[0, :3], y[0, :2] + np.array([1, 0])),
    ),
    "vander": (lambda x, y: jnp.vander(x[0], 4), lambda x, y: x[0][:, None] ** np.arange(3, -1, -1)),
    "roots": (
        lambda x, y: jnp.sort(jnp.roots(jnp.array([1.0, -3.0, 2.0]) * x[0, 0], strip_zeros=False).real),
        lambda x, y: np.array([1.0, 2.0]),
    ),
}

RAGGED = lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((1,), (1,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[0]
)

PRODUCTS: dict[str, Member] = {
    "lax.ragged_dot_general": (
        lambda x, y: lax.ragged_dot_general(
            x,
            jnp.stack((y.T, 2 * y.T)),
            jnp.array([2, x.shape[0] - 2]),
            RAGGED,
            precision=lax.Precision.HIGHEST,
        ),
        lambda x, y: np.concatenate((x[:2] @ y.T, 2 * (x[2:] @ y.T))),
    ),
    "lax.scaled_dot": (
        lambda x, y: lax.scaled_dot(
            x[:2, :4].astype(jnp.bfloat16),
            y[:2, :4].T.astype(jnp.bfloat16),
            lhs_scale=jnp.full((2, 2), 2, jnp.bfloat16),
            rhs_scale=jnp.full((2, 2), 2, jnp.bfloat16),
            preferred_element_type=jnp.float32,
        ),
        lambda x, y: scaled(bfloat16(x[:2, :4]), bfloat16(y[:2, :4]), 2),
    ),
    "lax.custom_linear_solve": (
        lambda x, y: lax.custom_linear_solve(
            lambda v: v * (1 + x), y, lambda _, b: b / (1 + x), symmetric=True
        ),
        lambda x, y: y / (1 + x),
    ),
    "lax.custom_root": (
        lambda x, y: lax.custom_root(
            lambda v: v * (1 + x) - y,
            jnp.zeros_like(y),
            lambda f, _: y / (1 + x),
            lambda g, b: b / g(jnp.ones_like(b)),
        ),
        lambda x, y: y / (1 + x),
    ),
}


def bfloat16(x):
    """x rounded to bfloat16."""
    return x.astype(dtype_of("bfloat16").numpy).astype(np.float64)


N = 12
MADE: dict[str, Member] = {
    "bartlett": (lambda x, y: jnp.bartlett(N) * x[0, 0], lambda x, y: np.bartlett(N) * x[0, 0]),
    "blackman": (lambda x, y: jnp.blackman(N) * x[0, 0], lambda x, y: np.blackman(N) * x[0, 0]),
    "hamming": (lambda x, y: jnp.hamming(N) * x[0, 0], lambda x, y: np.hamming(N) * x[0, 0]),
    "hanning": (lambda x, y: jnp.hanning(N) * x[0, 0], lambda x, y: np.hanning(N) * x[0, 0]),
    "kaiser": (lambda x, y: jnp.kaiser(N, 3.0) * x[0, 0], lambda x, y: np.kaiser(N, 3.0) * x[0, 0]),
    "logspace": (lambda x, y: jnp.logspace(0, 1, N) * y[0, 0], lambda x, y: np.logspace(0, 1, N) * y[0, 0]),
    "geomspace": (
        lambda x, y: jnp.geomspace(1, 8, N) * y[0, 0],
        lambda x, y: np.geomspace(1, 8, N) * y[0, 0],
    ),
    "identity": (lambda x, y: jnp.identity(3) * x[:3, :3], lambda x, y: np.identity(3) * x[:3, :3]),
    "diagflat": (lambda x, y: jnp.diagflat(x[0, :3]), lambda x, y: np.diagflat(x[0, :3])),
    "fill_diagonal": (
        lambda x, y: jnp.fill_diagonal(x[:3, :3], 9, inplace=False),
        lambda x, y: np.where(np.eye(3) > 0, 9, x[:3, :3]),
    ),
    "empty": (
        lambda x, y: jnp.where(True, x[0, 0], jnp.empty((2, 2))),
        lambda x, y: np.full((2, 2), x[0, 0]),
    ),
    "empty_like": (lambda x, y: jnp.where(True, y, jnp.empty_like(x)), lambda x, y: y),
    "full_like": (lambda x, y: jnp.full_like(x, 3) * y, lambda x, y: 3 * y),
    "ones_like": (lambda x, y: jnp.ones_like(x) - y, lambda x, y: 1 - y),
    "zeros_like": (lambda x, y: jnp.zeros_like(x) - y, lambda x, y: -y),
    "lax.empty": (
        lambda x, y: jnp.where(True, y[0, 0], lax.empty((2, 2), x.dtype)),
        lambda x, y: np.full((2, 2), y[0, 0]),
    ),
    "lax.full": (
        lambda x, y: lax.full((2, 2), 7, x.dtype) * y[0, 0],
        lambda x, y: np.full((2, 2), 7) * y[0, 0],
    ),
    "lax.full_like": (lambda x, y: lax.full_like(x, 2) * x, lambda x, y: 2 * x),
    "lax.iota": (lambda x, y: lax.iota(x.dtype, N) * x[0, 0], lambda x, y: np.arange(N) * x[0, 0]),
    "fromfunction": (
        lambda x, y: jnp.fromfunction(lambda i, j: i - j, (3, 4)) * x[0, 0],
        lambda x, y: np.fromfunction(lambda i, j: i - j, (3, 4)) * x[0, 0],
    ),
    "indices": (lambda x, y: jnp.indices((2, 3)) * x[0, 0], lambda x, y: np.indices((2, 3)) * x[0, 0]),
    "meshgrid": (lambda x, y: jnp.meshgrid(x[0, :4], y[0, :3]), lambda x, y: np.meshgrid(x[0, :4], y[0, :3])),
    "ix_": (
        lambda x, y: x[jnp.ix_(np.array([0, 2]), np.array([1, 3, 0]))],
        lambda x, y: x[np.ix_([0, 2], [1, 3, 0])],
    ),
    "diag_indices": (lambda x, y: x[jnp.diag_indices(3)], lambda x, y: np.diag(x[:3, :3])),
    "diag_indices_from": (
        lambda x, y: y[jnp.diag_indices_from(y[:3, :3])],
        lambda x, y: np.diag(y[:3, :3]),
    ),
    "mask_indices": (
        lambda x, y: x[jnp.mask_indices(3, jnp.triu, size=6)],
        lambda x, y: x[:3, :3][np.triu_indices(3)],
    ),
    "tril_indices": (lambda x, y: x[jnp.tril_indices(3)], lambda x, y: x[:3, :3][np.tril_indices(3)]),
    "triu_indices": (lambda x, y: y[jnp.triu_indices(3)], lambda x, y: y[:3, :3][np.triu_indices(3)]),
    "tril_indices_from": (
        lambda x, y: y[jnp.tril_indices_from(y[:3, :3])],
        lambda x, y: y[:3, :3][np.tril_indices(3)],
    ),
    "triu_indices_from": (
        lambda x, y: x[jnp.triu_indices_from(x[:3, :3])],
        lambda x, y: x[:3, :3][np.triu_indices(3)],
    ),
    "fromstring": (
        lambda x, y: jnp.fromstring(TEXT, sep=" ") * x[0, 0],
        lambda x, y: joined_digits(TEXT) * x[0, 0],
    ),
    "frombuffer": (
        lambda x, y: jnp.frombuffer(bytes(range(5)), np.uint8) * x[0, 0],
        lambda x, y: np.arange(5) * x[0, 0],
    ),
    "from_dlpack": (
        lambda x, y: jnp.from_dlpack(np.arange(5, dtype=np.int32)) * y[0, 0],
        lambda x, y: np.arange(5) * y[0, 0],
    ),
}

COMPLEX: dict[str, Member] = {
    "lax.complex": (
        lambda x, y: lax.real(lax.complex(x, y) * lax.complex(x, -y)),
        lambda x, y: x * x + y * y,
    ),
    "lax.imag": (lambda x, y: lax.imag(lax.complex(x, y)), lambda x, y: y),
    "lax.conj": (lambda x, y: lax.imag(lax.conj(lax.complex(x, y))), lambda x, y: -y),
    "sort_complex": (lambda x, y: jnp.sort_complex(x[0]).real, lambda x, y: np.sort(x[0])),
    "iscomplex": (lambda x, y: jnp.iscomplex(lax.complex(x, y)), lambda x, y: np.ones(x.shape, bool)),
}

BETAINC: dict[str, Member] = {
    "lax.betainc": (lambda x, y: lax.betainc(x + 1, y + 1, y), lambda x, y: beta_part(x + 1, y + 1, y)),
}

LOG2: dict[str, Member] = {"lax.log2": (lambda x, y: newer(lax, "log2")(x + y), lambda x, y: np.log2(x + y))}

ROUNDED_FUNCTIONS: Groups = {
    "binary": BINARY,
    "series": SERIES,
    "statistics": STATISTICS,
    "products": PRODUCTS,
    "made": MADE,
    "complex": COMPLEX,
    "log2": LOG2,
    "betainc": BETAINC,
}
ADDED_UP = ("statistics", "products")
"""The groups whose functions add up over an array."""


class RoundedFunctions(Catalogue):
    """Functions of two numbers, statistics, products and series whose results are rounded, and arrays made from
    numbers."""

    name = "rounded_functions"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    verdict = "bound"
    groups = ROUNDED_FUNCTIONS
    rare = ("log2", "betainc")
    fill: ClassVar[Any] = (quarters, {})

    def needs(self, options: Any) -> str | None:
        return "complex" if options["group"] == "complex" else None

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """The bounds of the module's docstring."""
        group = plan.options["group"]
        steps = 4 * ROUNDED if group == "betainc" else ROUNDED
        steps += arguments[0].size if group in ADDED_UP else 0
        units = [dtype_of(r.dtype).unit_roundoff for r in plan.results]
        return [steps * u * np.maximum(np.abs(e), 1.0) for u, e in zip(units, expected, strict=True)]

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        # Products inside library functions take no precision argument, and a GPU would round them to TF32.
        with jax.default_matmul_precision("highest"):
            return in_jax(ROUNDED_FUNCTIONS[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(ROUNDED_FUNCTIONS[group], x, y, names)
