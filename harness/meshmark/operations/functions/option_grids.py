# SPDX-License-Identifier: Apache-2.0
"""Functions with rare options of every dtype, and families of functions on every mesh. The matrices are sharded over
some mesh axes.

`dtype_grids` has the ordinary options, on the even meshes in turns. Here one program of `option_grid` has the options
that it lacks, of one dtype. One program of `mesh_grid` has functions that compute, with linear algebra, on one mesh;
the devices may be in another order. The values are those of `dtype_grids`, so results are exact. The result of a
function that rounds is whether it is near NumPy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.functions.catalogue import outputs, spread
from meshmark.operations.functions.dtype_grids import (
    KINDS,
    MOST,
    PRODUCTS,
    REDUCED,
    SHAPES,
    Pair,
    both,
    dot,
    fill_of,
    first_at,
    greatest,
    kind_of,
    rows_of,
    signed,
    threes,
)


def pattern(m: Any, x: Any) -> Any:
    """Whole numbers from 0 to 10 that differ from their neighbours, with the shape, dtype and sharding of x."""
    made = (5 * np.arange(x.shape[0])[:, None] + 3 * np.arange(x.shape[1])) % 11
    return x * fill_of(x, 0) + m.asarray(made.astype(x.dtype))


def near(function: Callable[[Any], Any], define: Callable[[float], float], most: float = 4.0) -> Pair:
    """A pair whose results are booleans: whether a function is within `most` units in the last place of a definition in
    64 bits."""
    right = np.array([define(v) for v in (0.5, 1.0, 1.5)])

    def close(x: Any, k: str) -> Any:
        found = function(x / 2 + fill_of(x, 1) / 2)
        want = jnp.asarray(right.astype(np.float32))[x.astype(jnp.int32)]
        unit = most * float(jnp.finfo(x.dtype).eps)
        return (jnp.abs(found.astype(jnp.float32) - want) <= unit * jnp.abs(want)) & (found.dtype == x.dtype)

    return close, lambda x, k: np.ones(x.shape, bool)


def columns_of(x: Any) -> Any:
    """Column indices, some of them twice."""
    return np.arange(x.shape[1]) * 3 % x.shape[1] // 2


def updated(x: Any) -> Any:
    """x with its first three rows and columns written at row 2 and column x[0, 0]."""
    found, at = x.copy(), int(x[0, 0])
    found[2:5, at : at + 3] = x[:3, :3]
    return found


def by_two_keys(x: Any, k: str) -> Any:
    """The first two columns, sorted by both keys, and the order of the rows."""
    order = np.lexsort((x[:, 1], x[:, 0]))
    return x[order, 0], x[order, 1], order.astype(np.int32)


def in_both(x: Any) -> Any:
    """x as a batch with two channels: [rows / 2, 2, columns]."""
    return x.reshape(len(x) // 2, 2, -1)


def taps(x: Any, kind: Any) -> Any:
    """A convolution kernel [2 channels out, 2 channels in, 3]."""
    return np.array([[[1, 2, 1], [2, 0, 1]], [[0, 1, 2], [1, 1, 0]]]).astype(kind)


def correlated(image: Any, kernel: Any, reach: int = 1) -> Any:
    """A convolution without padding in NumPy: [batch, channels, width] to [batch, channels out, width - 2 * reach]. The
    three taps are `reach` apart."""
    width = image.shape[2] - 2 * reach
    return sum(
        np.einsum("ncw,oc->now", image[:, :, i * reach : i * reach + width], kernel[:, :, i])
        for i in range(3)
    )


def by_batch(x: Any) -> Any:
    """A convolution in NumPy with two batch groups: each output channel takes its half of the batch."""
    image, kernel = in_both(x), taps(x, x.dtype)
    halves = np.split(image, 2)
    found = [correlated(half, kernel[i : i + 1]) for i, half in enumerate(halves)]
    return np.concatenate(found, axis=1).transpose(0, 2, 1)


def both_dilated(x: Any) -> Any:
    """A convolution in NumPy with dilated image and dilated kernel."""
    image = in_both(x)
    wide = np.zeros((*image.shape[:2], 2 * image.shape[2] - 1), x.dtype)
    wide[:, :, ::2] = image
    return correlated(wide, taps(x, x.dtype), 2).transpose(0, 2, 1)


def convolved(x: Any, **options: Any) -> Any:
    """A convolution of x in JAX. The channels of the result come last."""
    found = lax.conv_general_dilated(in_both(x), jnp.asarray(taps(x, x.dtype)), (1,), [(0, 0)], **options)
    return found.transpose(0, 2, 1)


def four(x: Any) -> Any:
    """x as [2, 2, rows / 4, columns]."""
    return x.reshape(2, 2, len(x) // 4, -1)


ANY: dict[str, Pair] = {
    "joined_four": both(lambda m, x, k: m.concatenate([x[:, :1], x[:, 2:4], x[:, 1:2], x[:, 4:]], axis=1)),
    "reversed": both(lambda m, x, k: m.flip(threes(x), (0, 2))),
    "turned_four": both(lambda m, x, k: m.transpose(four(x), (2, 0, 3, 1))),
    "two_keys": (
        lambda x, k: lax.sort((x[:, 0], x[:, 1], jnp.arange(len(x))), num_keys=2, is_stable=True),
        by_two_keys,
    ),
    "updated": (
        lambda x, k: lax.dynamic_update_slice(x, x[:3, :3], (2, x[0, 0].astype(jnp.int32))),
        lambda x, k: updated(x),
    ),
    "taken": both(lambda m, x, k: m.take(threes(x), m.arange(len(x) // 2) * 3 % (len(x) // 2), axis=0)),
    "wrapped": both(lambda m, x, k: m.take(x, rows_of(m, x) * 4 - 3, axis=0, mode="wrap")),
}
"""Of every dtype."""

NUMBERS: dict[str, Pair] = {
    "greatest": (lambda x, k: lax.top_k(x, x.shape[1]), lambda x, k: greatest(x, x.shape[1])),
    "downward": (
        lambda x, k: jnp.argsort(x, axis=1, descending=True, stable=True).astype(jnp.int32),
        lambda x, k: np.argsort(-x, axis=1, kind="stable").astype(np.int32),
    ),
    "cummin_back": (
        lambda x, k: lax.cummin(signed(x, k), axis=1, reverse=True),
        lambda x, k: np.minimum.accumulate(signed(x, k)[:, ::-1], axis=1)[:, ::-1],
    ),
    "columns": (
        lambda x, k: x.at[:, columns_of(x)].add(x[:, ::-1]),
        lambda x, k: added_columns(x),
    ),
    "clamped": (
        lambda x, k: lax.clamp(x * fill_of(x, 0) + fill_of(x, 1), pattern(jnp, x), x + fill_of(x, 3)),
        lambda x, k: np.minimum(np.maximum(pattern(np, x), 1), x + 3),
    ),
    "windows_wide": (
        lambda x, k: lax.reduce_window(
            x, fill_of(x, 0), lax.max, (3, 2), (1, 1), "VALID", window_dilation=(2, 3)
        ),
        lambda x, k: windows_wide(x),
    ),
    "windows_least": (
        lambda x, k: lax.reduce_window(
            x + fill_of(x, 1), fill_of(x, 9), lax.min, (1, 3), (1, 1), ((0, 0), (1, 1))
        ),
        lambda x, k: (lambda p: np.min([p[:, i : i + x.shape[1]] for i in range(3)], axis=0))(
            np.pad(x + 1, ((0, 0), (1, 1)), constant_values=9)
        ),
    ),
    "by_batch": (lambda x, k: convolved(x, batch_group_count=2), lambda x, k: by_batch(x)),
    "dilated": (
        lambda x, k: convolved(x, lhs_dilation=(2,), rhs_dilation=(2,)),
        lambda x, k: both_dilated(x),
    ),
    "two_batches": (
        lambda x, k: dot(four(x), four(signed(x, k)), ((3,), (3,)), ((0, 1), (0, 1))),
        lambda x, k: np.einsum("abik,abjk->abij", four(x), four(signed(x, k))),
    ),
    "repeated_letter": both(lambda m, x, k: m.einsum("iij->j", x[:4].reshape(2, 2, -1))),
    "middle": both(
        lambda m, x, k: m.convolve(x[0], m.asarray(np.array([1, 2]).astype(x.dtype)), mode="same").astype(x.dtype)
    ),
}  # fmt: skip
"""Of all but booleans."""


def windows_wide(x: Any) -> Any:
    """The maxima of windows of three rows, two apart, and two columns, three apart."""
    rows, columns = len(x) - 4, x.shape[1] - 3
    parts = [x[2 * i :, 3 * j :][:rows, :columns] for i in range(3) for j in range(2)]
    return np.max(parts, axis=0)


def added_columns(x: Any) -> Any:
    """x with its columns, in reverse order, added to the columns `columns_of(x)`."""
    found = x.copy()
    for at, column in zip(columns_of(x), x[:, ::-1].T, strict=True):
        found[:, at] += column
    return found


WHOLE: dict[str, Pair] = {
    "parity": (
        lambda x, k: lax.reduce_xor(jnp.stack([x, x[::-1], x + fill_of(x, 1)], axis=1), (1,)),
        lambda x, k: x ^ x[::-1] ^ (x + 1),
    ),
    "ones": (lambda x, k: lax.population_count(x), lambda x, k: np.minimum(x, 1)),
    "shifted": both(lambda m, x, k: m.left_shift(x, x + fill_of(x, 1))),
}
"""Of integers."""


def two_of(x: Any) -> Any:
    """The maxima of pairs of adjacent columns."""
    return lax.reduce_window(x, -x.dtype.type(np.inf), lax.max, (1, 2), (1, 2), "VALID")


def pulled(x: Any) -> Any:
    """The gradient of `two_of`, weighted by the row index modulo 5."""
    weights = jnp.asarray((np.arange(len(x)) % 5)[:, None].astype(x.dtype))
    return jax.grad(lambda y: (two_of(y) * weights).sum().astype(jnp.float32))(pattern(jnp, x))


def pulled_in_numpy(x: Any) -> Any:
    """`pulled` in NumPy."""
    y = pattern(np, x).reshape(len(x), -1, 2)
    largest = (y == y.max(axis=2, keepdims=True)).astype(x.dtype)
    return (largest * (np.arange(len(x)) % 5)[:, None, None]).reshape(x.shape)


def bits_up(x: Any) -> Any:
    """Whether the bit pattern of the next larger number is the next bit pattern."""
    width = {2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    up = lax.nextafter(x, jnp.full_like(x, 9))
    return lax.bitcast_convert_type(up, width) - lax.bitcast_convert_type(x, width) == 1


def in_two_bits(x: Any) -> Any:
    """Whole numbers rounded to two bits after the leading bit, ties to even."""
    unit = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(x, 1))) - 2, 0)
    return np.round(x / unit) * unit


def no_numbers(m: Any, x: Any) -> Any:
    """`pattern` with infinity in place of 3 and NaN in place of 5."""
    made = pattern(m, x)
    return m.where(made == 3, x.dtype.type(np.inf), m.where(made == 5, x.dtype.type(np.nan), made))


def running_logarithms(x: Any) -> Any:
    """Whether the reversed `lax.cumlogsumexp` is near NumPy's, along each dimension."""
    y, unit = pattern(jnp, x), 8 * float(jnp.finfo(x.dtype).eps)
    made = ((5 * np.arange(x.shape[0])[:, None] + 3 * np.arange(x.shape[1])) % 11).astype(np.float64)
    found = []
    for axis in (0, 1):
        back = lax.cumlogsumexp(y, axis=axis, reverse=True).astype(jnp.float32)
        right = np.flip(np.logaddexp.accumulate(np.flip(made, axis), axis=axis), axis).astype(np.float32)
        found.append(jnp.abs(back - right) <= unit * (1 + jnp.abs(right)))
    return tuple(found)


FLOATS: dict[str, Pair] = {
    "pulled": (lambda x, k: pulled(x), lambda x, k: pulled_in_numpy(x)),
    "next": (lambda x, k: bits_up(x), lambda x, k: np.ones(x.shape, bool)),
    "finite": both(lambda m, x, k: m.isfinite(no_numbers(m, x))),
    "power": (
        lambda x, k: lax.integer_pow(
            jnp.asarray(np.array([0.5, 1, 2]).astype(x.dtype))[x.astype(jnp.int32)], -2
        ),
        lambda x, k: 2.0 ** (-2 * (x - 1)),
    ),
    "in_two_bits": (
        lambda x, k: lax.reduce_precision(pattern(jnp, x) * fill_of(x, 3), exponent_bits=5, mantissa_bits=2),
        lambda x, k: in_two_bits(pattern(np, x) * 3),
    ),
    "logarithms": (lambda x, k: running_logarithms(x), lambda x, k: (np.ones(x.shape, bool),) * 2),
    "erf": near(lax.erf, math.erf),
    "erfc": near(lax.erfc, math.erfc),
    "cbrt": near(lax.cbrt, lambda v: v ** (1 / 3)),
    "tan": near(lax.tan, math.tan),
    "rsqrt": near(lax.rsqrt, lambda v: v**-0.5),
    "log1p": near(lax.log1p, math.log1p),
    "sinh": near(lax.sinh, math.sinh),
    "asinh": near(lax.asinh, math.asinh),
    "logistic": near(lax.logistic, lambda v: 1 / (1 + math.exp(-v))),
}
"""Of floats."""


def functions_of(kind: str) -> dict[str, Pair]:
    """The functions of `option_grid` for one dtype."""
    own = {
        "float": {**NUMBERS, **FLOATS},
        "int": {**NUMBERS, **WHOLE},
        "uint": {**NUMBERS, **WHOLE},
        "bool": {},
    }
    return {**ANY, **own[kind_of(kind)]}


# Families of functions on each mesh.


LOWER = np.array([[1, 0, 0], [2, 1, 0], [1, 3, 1]], np.float32)


def scales(x: Any) -> Any:
    """A factor from 1 to 3 per row: [rows, 1, 1]."""
    return (x[:, 0] + fill_of(x, 1))[:, None, None]


def sides(x: Any) -> Any:
    """The right-hand sides: the first three columns as [rows, 1, 3]."""
    return x[:, None, :3]


def solved(x: Any) -> Any:
    """The y with y @ transpose(L) = b, rounded. L is lower triangular with a unit diagonal."""
    a = jnp.asarray(LOWER) * scales(x)
    found = lax.linalg.triangular_solve(
        a, sides(x), left_side=False, lower=True, transpose_a=True, unit_diagonal=True
    )
    return jnp.round(found)


def solved_in_numpy(x: Any) -> Any:
    """`solved` in NumPy."""
    a = np.tril(LOWER * scales(x), -1) + np.eye(3)
    return np.round(np.linalg.solve(a, sides(x).transpose(0, 2, 1)).transpose(0, 2, 1))


def counts(x: Any) -> Any:
    """The numbers of rows of three groups. The second group is empty."""
    return np.array([len(x) // 2 - 1, 0, len(x) - len(x) // 2 + 1], np.int32)


def kernels(x: Any) -> Any:
    """A matrix per group: [3, columns, 2]."""
    return (np.arange(6 * x.shape[1]) % 3).reshape(3, x.shape[1], 2).astype(x.dtype)


def ragged(x: Any) -> Any:
    """`lax.ragged_dot` in NumPy: each group of rows times its own matrix."""
    ends, w = np.cumsum(counts(x)), kernels(x)
    return np.concatenate([x[e - n : e] @ w[i] for i, (e, n) in enumerate(zip(ends, counts(x), strict=True))])


def expected_bits(shape: tuple[int, ...]) -> Any:
    """The random bits that one device draws."""
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.random.bits(jax.random.key(7), shape))


def same_bits(x: Any) -> Any:
    """Whether random bits in the program are those of one device."""
    return jax.random.bits(jax.random.key(7), x.shape) == expected_bits(x.shape)


def laid(m: Any, x: Any) -> Any:
    """Four matrices, stacked along a last dimension that no mesh axis shards: [rows, columns, 4]."""
    return m.stack([x, x[::-1], x[:, ::-1], x + fill_of(x, 1)], axis=2)


def squares(m: Any, x: Any) -> Any:
    """`laid` as [rows, columns, 2, 2]."""
    return laid(m, x).reshape(*x.shape, 2, 2)


ALGEBRA: dict[str, Pair] = {
    "cholesky": (
        lambda x, k: jnp.round(lax.linalg.cholesky(jnp.asarray(LOWER @ LOWER.T) * scales(x) ** 2)),
        lambda x, k: LOWER.astype(np.float64) * scales(x),
    ),
    "solved": (lambda x, k: solved(x), lambda x, k: solved_in_numpy(x)),
    "ragged": (
        lambda x, k: lax.ragged_dot(x, jnp.asarray(kernels(x)), jnp.asarray(counts(x))),
        lambda x, k: ragged(x),
    ),
}

FOURIER: dict[str, Pair] = {
    "transformed": (
        lambda x, k: jnp.round(jnp.fft.rfft(laid(jnp, x), axis=2).real),
        lambda x, k: np.round(np.fft.rfft(laid(np, x), axis=2).real),
    ),
    "transformed_back": (
        lambda x, k: jnp.round(jnp.fft.irfft2(jnp.fft.rfft2(squares(jnp, x), norm="ortho"), norm="ortho")),
        lambda x, k: squares(np, x),
    ),
}

MORE: dict[str, Pair] = {
    "first": both(lambda m, x, k: first_at(m, m.argmax(x, axis=0))),
    "first_of_all": both(lambda m, x, k: first_at(m, m.argmax(signed(x, k)))),
    "sorted": both(lambda m, x, k: m.sort(x, axis=0)),
    "rolled": both(lambda m, x, k: m.roll(x, (3, -1), (0, 1))),
    "folded": both(lambda m, x, k: m.reshape(x, (len(x) // 2, -1))),
    "repeated": both(lambda m, x, k: m.repeat(x, 2, axis=0)),
    "bits": (lambda x, k: same_bits(x), lambda x, k: np.ones(x.shape, bool)),
}

PARTS = ("joined", "cut_pad", "turned", "stacked", "sorted_pair")


def on_each_mesh(kind: str) -> dict[str, Pair]:
    """The functions of `mesh_grid` for one dtype."""
    shapes = {name: SHAPES[name] for name in PARTS}
    own = ALGEBRA if kind == "float32" else {"max": both(lambda m, x, k: m.max(signed(x, k), axis=0))}
    return {**PRODUCTS, **REDUCED, **shapes, **MORE, **own}


# The operations.


def in_numpy(pair: Pair, x: np.ndarray, kind: str) -> tuple[np.ndarray, ...]:
    """The results of a function in NumPy: computed in 64 bits, and cast to the dtypes of JAX's results."""
    wide = x if kind == "bool" else x.astype(np.float64 if kind_of(kind) == "float" else np.int64)
    made = []
    for found in outputs(pair[1](wide, kind_of(kind))):
        found = np.asarray(found)
        own = kind if found.dtype == wide.dtype else found.dtype.name
        made.append(found.astype(dtype_of("int32" if own == "int64" else own).numpy))
    return tuple(made)


def members(table: str, kind: str) -> Mapping[str, Pair]:
    """The functions of one operation and dtype."""
    if table == "fourier_grid":
        return FOURIER
    return functions_of(kind) if table == "option_grid" else on_each_mesh(kind)


@lru_cache(maxsize=1024)
def shapes_of(table: str, name: str, shape: tuple[int, ...], kind: str) -> tuple[tuple[Any, str], ...]:
    """(shape, dtype) of each result."""
    sample = np.zeros(shape, dtype_of(kind).numpy)
    return tuple((a.shape, a.dtype.name) for a in in_numpy(members(table, kind)[name], sample, kind))


class OptionGrid(Operation):
    """Functions with rare options, of one dtype, in one program. The matrix is sharded over some mesh axes."""

    name = "option_grid"
    family = "forms"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """One variant per dtype. On eight devices the standard profile has each dtype on one of three meshes, in turns:
        the preferred one, that of three axes, or 4x2."""
        if (1 in mesh.shape and mesh.size > 1) or mesh.size > MOST:
            return
        first, many = mesh == preferred(mesh.size), len(mesh.shape) == 3
        for number, kind in enumerate(KINDS):
            turn = number % 3
            own = first if turn == 0 or mesh.size != 8 else many if turn == 1 else mesh.shape == (4, 2)
            yield Variant.of((2 if first else 1) if own and not mesh.order else 3, kind=kind)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the time of a group of functions says nothing about one function."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        m = mesh.size if mesh.size > 3 else (4, 4, 4, 6)[mesh.size]  # the functions need the fifth column
        first, last = mesh.names[0], mesh.names[-1]
        turn = (KINDS.index(kind) + sum(mesh.shape) + len(mesh.order)) % 4
        spec = ((last, None), (None, first), (first, last), (mesh.names, None))[turn]
        if first == last and turn == 2:
            spec = (last, None)
        fill: Any = (values.distinct, {}) if kind == "bool" else (values.tokens, {"below": 3})
        x = Argument((4 * m, 2 * m), kind, spec, *fill)
        results = tuple(
            Result(shape, own, spread(shape, x, mesh.sizes))
            for name in members(self.name, kind)
            for shape, own in shapes_of(self.name, name, x.shape, kind)
        )
        options = {"table": self.name, "kind": kind, "specs": tuple(r.spec for r in results), "place": spec}
        return Plan((x,), results, options, judge="exact")

    @staticmethod
    def host(mesh, x, *, table, kind, specs, place):
        def all_of_them(y):
            pairs = members(table, kind).values()
            return tuple(itertools.chain.from_iterable(outputs(f(y, kind_of(kind))) for f, _ in pairs))

        places = tuple(NamedSharding(mesh, P(*spec)) for spec in specs)
        there = jax.device_put(x, NamedSharding(mesh, P(*place)))
        return jax.jit(all_of_them, out_shardings=places)(there)

    @staticmethod
    def reference(x, *, table, kind):
        return tuple(
            itertools.chain.from_iterable(in_numpy(p, x, kind) for p in members(table, kind).values())
        )


class MeshGrid(OptionGrid):
    """Functions that compute, move and order, and linear algebra, on one mesh in one program. The devices of the mesh
    may be in another order."""

    name = "mesh_grid"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """float32 and int8 on every mesh without an axis of size 1."""
        if (1 in mesh.shape and mesh.size > 1) or mesh.size > MOST:
            return
        lightest = mesh == preferred(mesh.size) or mesh in (MeshShape((3,)), MeshShape((6,)))
        for kind in ("float32", "int8"):
            yield Variant.of(
                2 if mesh == preferred(mesh.size) else 0 if lightest or mesh.order else 1, kind=kind
            )


class FourierGrid(MeshGrid):
    """Fourier transforms along dimensions that no axis shards. Other dimensions are sharded."""

    name = "fourier_grid"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The variants of MeshGrid with float32."""
        yield from (variant for variant in super().variants(mesh) if variant["kind"] == "float32")
