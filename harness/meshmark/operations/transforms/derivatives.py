# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions that other operations judge by their values alone: sorts, running products, updates at traced
indices, linear algebra, Fourier transforms, special functions, batched and grouped products, second derivatives.

A group is one program. Its reference takes central differences of the NumPy definition in float64, one argument element
at a time. With a step of h their error is about h**2 plus a unit of roundoff of float64 over h: both are far below a
unit of roundoff of float32. Arguments are random between 0.25 and 0.75, and a step changes no order. Those of group
`zeros` are 0, 1 or 2; its functions are polynomials in every element.

A bound is a number of units of roundoff of the sum of the magnitudes of all terms of the gradient. The differences also
give that sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import axes_of
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Plan, Request, Variant
from meshmark.operations.functions.catalogue import Catalogue, Groups, Member, in_jax, in_numpy, outputs
from meshmark.operations.functions.elementwise import digamma, inverse_erf, quarters, sigmoid
from meshmark.operations.functions.rounded_functions import bessel, correlation, lower_gamma
from meshmark.operations.functions.wholes import Form

LARGEST = 8
"""The most devices of a mesh: the differences call the definition twice per element."""

STEP = 2.0**-20
ROUNDED = 256
"""The bound, in units of roundoff of the sum of the magnitudes of the terms."""

PIECE = 4
"""Rows or columns of the pieces that stay small on every mesh."""


def here(y: Any, place: int) -> Any:
    """An int32 index that is unknown at compile time: `place`, because y lies between 0 and 1."""
    return jnp.floor(y[0, 0]).astype(jnp.int32) + place


def tangent(function: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of a function at x along y. Its gradient takes second derivatives."""
    return lambda x, y: jax.jvp(function, (x,), (y,))[1]


# Sorts and running products.


def rows_in_order(x, y):
    """Each column of x sorted, and y in the same order."""
    order = np.argsort(x, axis=0, kind="stable")
    return np.take_along_axis(x, order, 0), np.take_along_axis(y, order, 0)


def between(x, at, axis):
    """The quantile `at` along an axis, interpolated between two neighbours."""
    ranked, place = np.sort(x, axis=axis), at * (x.shape[axis] - 1)
    low = int(place)
    parts = [np.take(ranked, i, axis=axis) for i in (low, low + 1)]
    return parts[0] + (place - low) * (parts[1] - parts[0])


ORDERS: dict[str, Member] = {
    "lax.sort": (
        lambda x, y: tuple(lax.sort((x, y), dimension=0, num_keys=1)),
        rows_in_order,
    ),
    "quantile": (lambda x, y: jnp.quantile(x, 0.3, axis=1), lambda x, y: between(x, 0.3, 1)),
    "lax.top_k": (lambda x, y: lax.top_k(x, 3)[0], lambda x, y: -np.sort(-x, axis=1)[:, :3]),
    "segment_max": (
        lambda x, y: jax.ops.segment_max(x, jnp.arange(x.shape[0]) % 3, num_segments=3),
        lambda x, y: np.stack([x[k::3].max(axis=0) for k in range(3)]),
    ),
    "lax.cumlogsumexp": (
        lambda x, y: lax.cumlogsumexp(x, axis=1),
        lambda x, y: np.log(np.cumsum(np.exp(x), axis=1)),
    ),
    "lax.cumprod": (
        lambda x, y: lax.cumprod(2 * y, axis=1, reverse=True),
        lambda x, y: np.cumprod(2 * y[:, ::-1], axis=1)[:, ::-1],
    ),
}

ZEROS: dict[str, Member] = {
    "prod": (lambda x, y: jnp.prod(x, axis=1), lambda x, y: np.prod(x, axis=1)),
    "cumprod": (lambda x, y: jnp.cumprod(y, axis=1), lambda x, y: np.cumprod(y, axis=1)),
    "power": (lambda x, y: jnp.power(y, 2.0), lambda x, y: y * y),
    "lax.integer_pow": (lambda x, y: lax.integer_pow(x, 2), lambda x, y: x * x),
    "multiply": (lambda x, y: jnp.multiply(x, y), lambda x, y: x * y),
}

# Updates at indices.


def updated(x, y, place):
    """x with PIECE rows of y written one after the other from row `place` on; rows past the end go to the last row."""
    x = x.copy()
    for i in range(PIECE):
        x[min(place + i, len(x) - 1)] = y[i]
    return x


def cache(x, y):
    """`updated` in JAX, in a loop with a traced start."""
    first = here(y, x.shape[0] - 2)
    return lax.fori_loop(
        0, PIECE, lambda i, c: lax.dynamic_update_slice_in_dim(c, y[i][None], first + i, 0), x
    )


def with_rows(x, at, rows):
    """x with the rows `at` replaced."""
    x = x.copy()
    x[at] = rows
    return x


AT = np.array([2, 0])
FAR = np.array([1, 99, 0, 99])

PLACES: dict[str, Member] = {
    "cache": (cache, lambda x, y: updated(x, y, len(x) - 2)),
    "lax.dynamic_update_slice": (
        lambda x, y: lax.dynamic_update_slice_in_dim(x, y[:3], here(y, x.shape[0]), 0),
        lambda x, y: with_rows(x, slice(len(x) - 3, None), y[:3]),
    ),
    "get": (
        lambda x, y: x.at[:, FAR].get(mode="fill", fill_value=0),
        lambda x, y: x[:, [1, 0, 0, 0]] * np.array([1, 0, 1, 0]),
    ),
    "multiply": (
        lambda x, y: x.at[AT].multiply(y[:2], unique_indices=True),
        lambda x, y: with_rows(x, AT, x[AT] * y[:2]),
    ),
    "max": (
        lambda x, y: x.at[AT].max(y[:2]),
        lambda x, y: with_rows(x, AT, np.maximum(x[AT], y[:2])),
    ),
    "where": (lambda x, y: jnp.where(x > y, x * y, y), lambda x, y: np.where(x > y, x * y, y)),
    "clip": (lambda x, y: jnp.clip(x, 0.375, y), lambda x, y: np.minimum(np.maximum(x, 0.375), y)),
    "abs": (lambda x, y: jnp.abs(x - y), lambda x, y: np.where(x > y, x - y, y - x)),
}

# Linear algebra on 2 x 2 matrices. Their eigenvalues and singular values are well separated.

DIAGONAL = np.array([[2.0, 0.0], [0.0, 4.0]], np.float32)


def squares(x):
    """A batch of 2 x 2 matrices with a dominant diagonal."""
    return x[:, :PIECE].reshape(-1, 2, 2) + DIAGONAL


def symmetric(x):
    """A batch of symmetric positive definite matrices."""
    a = squares(x)
    return a + a.swapaxes(-1, -2)


def factor(a):
    """The Cholesky factors of 2 x 2 matrices."""
    first = np.sqrt(a[:, 0, 0])
    below = a[:, 1, 0] / first
    zero = np.zeros_like(first)
    return np.stack([first, zero, below, np.sqrt(a[:, 1, 1] - below**2)], -1).reshape(-1, 2, 2)


def inverse(a):
    """The inverses of 2 x 2 matrices by cofactors."""
    det = a[:, 0, 0] * a[:, 1, 1] - a[:, 0, 1] * a[:, 1, 0]
    cofactors = np.stack([a[:, 1, 1], -a[:, 0, 1], -a[:, 1, 0], a[:, 0, 0]], -1).reshape(-1, 2, 2)
    return cofactors / det[:, None, None]


def solved_below(a, y):
    """The solution of systems whose 2 x 2 matrices are lower triangular with ones on the diagonal."""
    first = y[:, 0]
    return np.stack([first, y[:, 1] - a[:, 1, 0] * first], axis=1)[:, :, None]


def precisely(function):
    """The function with the highest precision for the products inside library functions and their derivatives. These
    functions take no precision argument, and by default a TPU rounds the factors of products to bfloat16."""

    def called(x, y):
        with jax.default_matmul_precision("highest"):
            return function(x, y)

    return called


ALGEBRA: dict[str, Member] = {
    "cholesky": (lambda x, y: jnp.linalg.cholesky(symmetric(x)), lambda x, y: factor(symmetric(x))),
    "solve": (
        lambda x, y: jnp.linalg.solve(squares(x), y[:, :2, None]),
        lambda x, y: inverse(squares(x)) @ y[:, :2, None],
    ),
    "det": (
        lambda x, y: jnp.linalg.det(squares(y)),
        lambda x, y: squares(y)[:, 1, 1] / inverse(squares(y))[:, 0, 0],
    ),
    "eigvalsh": (
        lambda x, y: jnp.linalg.eigvalsh(symmetric(y)),
        lambda x, y: np.linalg.eigvalsh(symmetric(y)),
    ),
    "qr": (
        lambda x, y: jnp.abs(jnp.linalg.qr(squares(y))[1]),
        lambda x, y: factor(squares(y).swapaxes(-1, -2) @ squares(y)).swapaxes(-1, -2),
    ),
    "norm": (
        lambda x, y: jnp.linalg.norm(squares(x), axis=(-2, -1)),
        lambda x, y: np.sqrt((squares(x) ** 2).sum(axis=(-2, -1))),
    ),
    "lax.linalg.triangular_solve": (
        lambda x, y: lax.linalg.triangular_solve(
            squares(x), y[:, :2, None], left_side=True, lower=True, unit_diagonal=True
        ),
        lambda x, y: solved_below(squares(x), y),
    ),
}
ALGEBRA = {name: (precisely(function), own) for name, (function, own) in ALGEBRA.items()}

# Fourier transforms: real and imaginary parts.


def parts(z):
    """Real part and imaginary part, as two arrays."""
    return z.real, z.imag


FOURIER: dict[str, Member] = {
    "fft": (
        lambda x, y: parts(jnp.fft.fft(x + 1j * y, axis=0)),
        lambda x, y: parts(np.fft.fft(x + 1j * y, axis=0)),
    ),
    "irfft": (
        lambda x, y: jnp.fft.irfft(x + 1j * y, n=5, axis=1),
        lambda x, y: np.fft.irfft(x + 1j * y, n=5, axis=1),
    ),
    "lax.fft": (
        lambda x, y: parts(lax.fft(y.reshape(2, -1, PIECE), "RFFT", (PIECE,))),
        lambda x, y: parts(np.fft.rfft(y.reshape(2, -1, PIECE))),
    ),
    "fftn": (
        lambda x, y: parts(jnp.fft.fftn((y + 1j * x).reshape(2, -1, PIECE))),
        lambda x, y: parts(np.fft.fftn((y + 1j * x).reshape(2, -1, PIECE))),
    ),
}

# Elementwise functions.

SPECIAL: dict[str, Member] = {
    "arctan2": (lambda x, y: jnp.arctan2(x, -y), lambda x, y: np.arctan2(x, -y)),
    "hypot": (lambda x, y: jnp.hypot(x, y), lambda x, y: np.sqrt(x * x + y * y)),
    "logaddexp": (lambda x, y: jnp.logaddexp(x, y), lambda x, y: np.log(np.exp(x) + np.exp(y))),
    "power": (lambda x, y: jnp.power(x, y), lambda x, y: np.exp(y * np.log(x))),
    "divide": (lambda x, y: jnp.divide(x, y), lambda x, y: x / y),
    "lax.igamma": (
        lambda x, y: lax.igamma(jnp.full_like(x, 2.0), y),
        lambda x, y: lower_gamma(2.0 + 0 * x, y),
    ),
    "lax.bessel_i1e": (lambda x, y: lax.bessel_i1e(y), lambda x, y: bessel(1, y) * np.exp(-y)),
    "lax.digamma": (lambda x, y: lax.digamma(x + 1), lambda x, y: digamma(x + 1)),
    "lax.erf_inv": (lambda x, y: lax.erf_inv(x), lambda x, y: inverse_erf(x)),
    "nn.log1mexp": (lambda x, y: jax.nn.log1mexp(x), lambda x, y: np.log(1 - np.exp(-x))),
    "interp": (
        lambda x, y: jnp.interp(x, np.array([0.0, 0.501, 1.0]), np.array([0.0, 2.0, 1.0])),
        lambda x, y: np.where(x < 0.501, x * 2 / 0.501, 2 - (x - 0.501) / 0.499),
    ),
}

SECOND: dict[str, Member] = {
    "sin": (tangent(lambda x: jnp.sin(x)), lambda x, y: np.cos(x) * y),
    "tanh": (tangent(lambda x: jnp.tanh(x)), lambda x, y: (1 - np.tanh(x) ** 2) * y),
    "log1p": (tangent(lambda x: jnp.log1p(x)), lambda x, y: y / (1 + x)),
    "sqrt": (tangent(lambda x: jnp.sqrt(x)), lambda x, y: 0.5 * x**-0.5 * y),
    "reciprocal": (tangent(lambda x: jnp.reciprocal(x)), lambda x, y: -(x**-2) * y),
    "nn.sigmoid": (tangent(lambda x: jax.nn.sigmoid(x)), lambda x, y: sigmoid(x) * (1 - sigmoid(x)) * y),
    "cumsum": (
        tangent(lambda x: jnp.cumsum(x * x, axis=0)),
        lambda x, y: np.cumsum(2 * x * y, axis=0),
    ),
    "nn.softmax": (
        tangent(lambda x: jax.nn.softmax(x, axis=1)),
        lambda x, y: softmax(x) * (y - (softmax(x) * y).sum(axis=1, keepdims=True)),
    ),
    "matmul": (
        tangent(lambda x: jnp.matmul(x, x.T, precision="highest")),
        lambda x, y: x @ y.T + y @ x.T,
    ),
}


def softmax(x):
    """The softmax of each row."""
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


# Products and statistics.


def cubes(x):
    """[2, 2, rows, columns]: two batch dimensions."""
    return x[:, :PIECE].reshape(2, 2, -1, PIECE)


def signals(x):
    """[4, 4, places]: batch, channels, places."""
    return x.reshape(PIECE, PIECE, -1)


def taps(y):
    """[4, 2, 2]: output channels, input channels per group, places."""
    return y[:PIECE, :PIECE].reshape(PIECE, 2, 2)


def convolved(x, kernel):
    """The convolution [batch, out, places - 1] of [batch, in, places] with [out, in, 2]."""
    return np.einsum("nip,oi->nop", x[:, :, :-1], kernel[:, :, 0]) + np.einsum(
        "nip,oi->nop", x[:, :, 1:], kernel[:, :, 1]
    )


def in_groups(x, kernel):
    """The convolution with two feature groups: each half of the channels gives half of the outputs."""
    return np.concatenate([convolved(x[:, :2], kernel[:2]), convolved(x[:, 2:], kernel[2:])], axis=1)


def in_batches(x, kernel):
    """The convolution with two batch groups: each half of the batch gives half of the outputs."""
    return np.concatenate([convolved(x[:2, :2], kernel[:2]), convolved(x[2:, :2], kernel[2:])], axis=1)


PRODUCTS: dict[str, Member] = {
    "lax.dot_general": (
        lambda x, y: lax.dot_general(
            cubes(x),
            cubes(y),
            (((3,), (3,)), ((0, 1), (1, 0))),
            precision="highest",
            preferred_element_type=jnp.float32,
        ),
        lambda x, y: np.einsum("abik,bajk->abij", cubes(x), cubes(y)),
    ),
    "feature_groups": (
        lambda x, y: lax.conv_general_dilated(
            signals(x), taps(y), (1,), "VALID", feature_group_count=2, precision="highest"
        ),
        lambda x, y: in_groups(signals(x), taps(y)),
    ),
    "batch_groups": (
        lambda x, y: lax.conv_general_dilated(
            signals(x)[:, :2], taps(y), (1,), "VALID", batch_group_count=2, precision="highest"
        ),
        lambda x, y: in_batches(signals(x), taps(y)),
    ),
    "var": (lambda x, y: jnp.var(y, axis=1, ddof=1), lambda x, y: y.var(axis=1, ddof=1)),
    "average": (
        lambda x, y: jnp.average(x, axis=0, weights=y),
        lambda x, y: (x * y).sum(axis=0) / y.sum(axis=0),
    ),
    "corrcoef": (lambda x, y: jnp.corrcoef(y[:3]), lambda x, y: correlation(y)),
    "masked_softmax": (
        lambda x, y: jax.nn.softmax(x, axis=1, where=jnp.arange(x.shape[1]) < 3),
        lambda x, y: np.concatenate([softmax(x[:, :3]), 0 * x[:, 3:]], axis=1),
    ),
}

SMOOTH: Groups = {
    "orders": ORDERS,
    "places": PLACES,
    "second": SECOND,
    "zeros": ZEROS,
    "fourier": FOURIER,
    "special": SPECIAL,
    "algebra": ALGEBRA,
    "products": PRODUCTS,
}
FILLS: dict[str, tuple[Any, dict[str, Any]]] = {"zeros": (values.tokens, {"below": 3})}
"""The fill and its options of groups whose values differ from `SmoothFunctions.fill`."""


def differences(
    members: Mapping[str, Member], x: Any, y: Any, names: Sequence[str], seeds: Sequence[Any]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The gradients of sum(seeds * results) by both arguments, and the sums of their terms' magnitudes."""
    given = [np.asarray(x, np.float64), np.asarray(y, np.float64)]
    found, sizes = [np.zeros(a.shape) for a in given], [np.zeros(a.shape) for a in given]
    for number, array in enumerate(given):
        for place in np.ndindex(*array.shape):

            def moved(steps: int, number: int = number, place: tuple[int, ...] = place) -> list[np.ndarray]:
                arguments = [a.copy() for a in given]
                arguments[number][place] += steps * STEP
                return [np.asarray(r) for n in names for r in outputs(members[n][1](*arguments))]

            for seed, up, down in zip(seeds, moved(1), moved(-1), strict=True):
                terms = seed * (up - down) / (2 * STEP)
                found[number][place] += terms.sum()
                sizes[number][place] += np.abs(terms).sum()
    return found, sizes


class SmoothFunctions(Catalogue):
    """Gradients of functions in groups; other operations judge the functions' values."""

    name = "smooth_functions"
    family = "transforms"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    sizes: ClassVar[Mapping[str, int]] = {"64B": 0}
    verdict = "bound"
    groups = SMOOTH
    fill: ClassVar[Any] = (quarters, {})
    magnified = 16 / (STEP * ROUNDED)
    """The rounding of a value is divided by the step, and its seed is at most 16 times the least scale of the bound,
    which is ROUNDED roundings of that scale."""

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The standard profile runs only the gradients."""
        for group, members in self.groups.items():
            yield 0 if self.differentiated else 2, {"group": group}
            for function in members:
                yield 3, {"group": group, "function": function}

    def rarely(self, options: Mapping[str, Any]) -> bool:
        return False

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        return super().variants(mesh) if mesh.size <= LARGEST else iter(())

    def needs(self, options: Mapping[str, Any]) -> str | None:
        return "complex" if options["group"] == "fourier" else None

    def form(self, request: Request, x: Argument) -> Form:
        n = request.mesh.size
        rows, columns = max(2 * n, 2 * PIECE), n * max(1, -(-PIECE // n))
        pieces = {"products": PIECE * PIECE, "fourier": 2 * PIECE}.get(request.variant["group"], 1)
        if (
            rows % request.mesh.product(axes_of(x.spec[0]))
            or (rows * PIECE) % pieces
            or (rows * columns) % pieces
        ):
            rows = math.lcm(n, PIECE * PIECE)
        form = super().form(request, replace(x, shape=(rows, columns)))
        fill, options = FILLS.get(request.variant["group"], self.fill)
        arguments = tuple(replace(a, fill=fill, options=options) for a in form.arguments)
        return replace(form, arguments=arguments, wrt=(0, 1))

    def plan(self, request: Request) -> Plan:
        """Each function may gather its arguments separately."""
        plan = super().plan(request)
        return replace(plan, repeats=len(plan.options["names"]))

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """ROUNDED units of roundoff. The scale of a gradient is the sum of its terms' magnitudes plus a sixteenth of
        the largest seed; the scale of a value is the larger of one and its magnitude."""
        units = [dtype_of(r.dtype).unit_roundoff for r in plan.results]
        if not plan.wrt:
            return [ROUNDED * u * np.maximum(np.abs(e), 1.0) for u, e in zip(units, expected, strict=True)]
        x, y, *seeds = arguments
        _, sizes = differences(SMOOTH[plan.options["group"]], x, y, plan.options["names"], seeds)
        least = max(np.abs(seed).max() for seed in seeds) / 16
        return [ROUNDED * u * (s + least) for u, s in zip(units, sizes, strict=True)]

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        with jax.default_matmul_precision("highest"):
            return in_jax(SMOOTH[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(SMOOTH[group], x, y, names)

    @staticmethod
    def gradient(x, y, *seeds, group, names):
        return tuple(differences(SMOOTH[group], x, y, names, seeds)[0])
