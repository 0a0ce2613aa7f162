# SPDX-License-Identifier: Apache-2.0
"""More functions of one matrix for `partly_sharded`: writes, shapes, products and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.functions.partly_sharded_functions import (
    Functions,
    both,
    columns_of,
    ends,
    signs,
    tied,
)

# Writes.


def combined(ufunc: Any, change: Callable[[Any], Any] = lambda v: v) -> Callable[[Any], Any]:
    """The NumPy definition of a scatter: the rows of x are combined one by one with rows at repeated indices."""

    def function(x: Any) -> Any:
        found = x.copy()
        ufunc.at(found, ends(np, x), change(x))
        return found

    return function


def in_parts(ufunc: Any, start: float) -> Callable[[Any], Any]:
    """The NumPy definition of a reduction of the rows of each of five segments."""

    def function(x: Any) -> Any:
        found = np.full((5, x.shape[1]), float(start))
        ids = (x[:, 0] % 6).astype(int)
        ufunc.at(found, ids[ids < 5], x[ids < 5])
        return found

    return function


def segments(x: Any) -> Any:
    """The segment of each row. Rows of the sixth segment are dropped."""
    return (x[:, 0] % 6).astype(jnp.int32)


def batched_write(x: Any) -> Any:
    """x with two elements added in each row, by a scatter with the rows as batch dimension."""
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1,),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=(1,),
        operand_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
    )
    return lax.scatter_add(x, columns_of(jnp, x)[:, :1], x[:, 1:3], numbers, mode="clip")


def added_in_rows(x: Any) -> Any:
    """`batched_write` in NumPy."""
    found, first = x.copy(), np.clip(columns_of(np, x)[:, 0], 0, x.shape[1] - 2)
    for row, k in enumerate(first):
        found[row, k : k + 2] += x[row, 1:3]
    return found


def written(x: Any) -> Any:
    """x with its first three rows and columns written at a row that depends on the data, and at column 1."""
    found, k = x.copy(), ends(np, x)[0] % 3
    found[k : k + 3, 1:4] = x[:3, :3]
    return found


def put_along(x: Any) -> Any:
    """x with one element of each row replaced by -1."""
    found = x.copy()
    np.put_along_axis(found, columns_of(np, x)[:, :1], -1.0, axis=1)
    return found


def counts(x: Any, bins: int = 8) -> Any:
    """The count of each number below `bins` in the first column, modulo `bins`."""
    return np.bincount((x[:, 0] % bins).astype(int), minlength=bins)


WRITES: Functions = {
    "add": (lambda x: x.at[ends(jnp, x)].add(x), combined(np.add)),
    "subtract": (lambda x: x.at[ends(jnp, x)].subtract(2 * x), combined(np.subtract, lambda v: 2 * v)),
    "mul": (
        lambda x: x.at[ends(jnp, x)].mul(signs(jnp, x)),
        combined(np.multiply, lambda v: signs(np, v)),
    ),
    "max": (lambda x: x.at[ends(jnp, x)].max(x), combined(np.maximum)),
    "min": (lambda x: x.at[ends(jnp, x)].min(x), combined(np.minimum)),
    "divide": (
        lambda x: x.at[jnp.array([1, -2, 99])].divide(2.0),
        lambda x: np.where(np.isin(np.arange(len(x)), (1, len(x) - 2))[:, None], x / 2, x),
    ),
    "power": (
        lambda x: x.at[jnp.array([0, -1])].power(2),
        lambda x: np.where(np.isin(np.arange(len(x)), (0, len(x) - 1))[:, None], x**2, x),
    ),
    "apply": (
        lambda x: x.at[jnp.array([2, -1])].apply(lambda v: 3 - v),
        lambda x: np.where(np.isin(np.arange(len(x)), (2, len(x) - 1))[:, None], 3 - x, x),
    ),
    "dropped": (
        lambda x: x.at[ends(jnp, x) + len(x) - 2].set(-1.0, mode="drop"),
        lambda x: np.where(np.isin(np.arange(len(x)), ends(np, x) + len(x) - 2)[:, None], -1, x),
    ),
    "columns": (
        lambda x: x.at[:, jnp.array([0, -1])].add(x[:, :2]),
        lambda x: np.concatenate([x[:, :1] * 2, x[:, 1:-1], x[:, -1:] + x[:, 1:2]], axis=1),
    ),
    "strided": (
        lambda x: x.at[1::2].set(0.0),
        lambda x: np.where(np.arange(len(x))[:, None] % 2 == 1, 0, x),
    ),
    "batched": (batched_write, added_in_rows),
    "segment_sum": (lambda x: jax.ops.segment_sum(x, segments(x), 5), in_parts(np.add, 0)),
    "segment_prod": (
        lambda x: jax.ops.segment_prod(signs(jnp, x), segments(x), 5),
        lambda x: products_of_segments(x),
    ),
    "segment_max": (lambda x: jax.ops.segment_max(x, segments(x), 5), in_parts(np.maximum, -np.inf)),
    "segment_min": (lambda x: jax.ops.segment_min(x, segments(x), 5), in_parts(np.minimum, np.inf)),
    "update": (
        lambda x: lax.dynamic_update_slice(x, x[:3, :3], (ends(jnp, x)[0] % 3, 1)),
        written,
    ),
    "put_along": (
        lambda x: jnp.put_along_axis(x, columns_of(jnp, x)[:, :1], -1.0, axis=1, inplace=False),
        put_along,
    ),
    "bincount": (lambda x: jnp.bincount((x[:, 0] % 8).astype(jnp.int32), length=8), counts),
    "histogram": (
        lambda x: jnp.histogram(x % 12, bins=6, range=(0, 12))[0],
        lambda x: np.histogram(x % 12, bins=6, range=(0, 12))[0],
    ),
    "one_hot": (
        lambda x: jax.nn.one_hot(segments(x), 5).T @ x,
        in_parts(np.add, 0),
    ),
}
"""By places that follow from the data, repeat or lie outside; segments and counts."""


def products_of_segments(x: Any) -> Any:
    """The products of the `signs` of the rows of each segment, in NumPy."""
    found, ids = np.ones((5, x.shape[1])), (x[:, 0] % 6).astype(int)
    np.multiply.at(found, ids[ids < 5], signs(np, x)[ids < 5])
    return found


# Shapes.


SHAPES: Functions = {
    "merged": both(lambda m, x: x.reshape(-1)),
    "turned_over": both(lambda m, x: x.reshape(x.shape[::-1])),
    "merged_transposed": both(lambda m, x: x.T.reshape(-1)[1:]),
    "split": both(lambda m, x: m.stack(m.split(x[:, : 2 * (x.shape[1] // 2)], 2, axis=1), 1)),
    "parts": (
        lambda x: jnp.array_split(x, 3, axis=0),
        lambda x: np.array_split(x, 3, axis=0),
    ),
    "joined": both(lambda m, x: m.concatenate([x[2:], x, x[:1]], axis=0)),
    "joined_columns": both(lambda m, x: m.concatenate([x[:, 1:], x], axis=1)),
    "ended": both(lambda m, x: m.concatenate([x[1:], 0 * x[:1] + 5], axis=0)),
    "reflected": both(lambda m, x: m.pad(x, ((2, 1), (0, 3)), mode="reflect")),
    "padded_edge": both(lambda m, x: m.pad(x, ((1, 2), (1, 0)), mode="edge")),
    "wrapped": both(lambda m, x: m.pad(x, ((1, 2), (0, 0)), mode="wrap")),
    "symmetric": both(lambda m, x: m.pad(x, ((0, 2), (2, 0)), mode="symmetric")),
    "repeated": both(lambda m, x: m.repeat(x, 3, axis=0)),
    "repeated_columns": both(lambda m, x: m.repeat(x, 2, axis=1)),
    "tiled": both(lambda m, x: m.tile(x, (2, 1))),
    "inserted": both(lambda m, x: m.insert(x, 2, -1.0, axis=0)),
    "deleted": both(lambda m, x: m.delete(x, 1, axis=0)),
    "rot90": both(lambda m, x: m.rot90(x)),
    "three": both(lambda m, x: m.moveaxis(m.stack([x, -x, 2 * x]), 0, 2).reshape(len(x), -1)),
    "folded": both(lambda m, x: m.concatenate([x, x]).reshape(2, *x.shape).swapaxes(0, 1)),
    "row_by_row": both(lambda m, x: m.broadcast_to(x[:, None], (len(x), 2, x.shape[1])).reshape(-1)),
    "resized": both(lambda m, x: m.resize(x, (x.shape[1], len(x) + 1))),
    "cut_twice": both(lambda m, x: x[1:-1, 1:].T[1:]),
}
"""Reshapes that merge and split, pads of every mode, joins and repeats."""


# Products.


def exact(function: Callable[..., Any]) -> Any:
    """(JAX function, NumPy function) of x mod 8. JAX takes the highest matmul precision, so that products are exact."""

    def in_jax(x: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(jnp, x % 8)

    return in_jax, lambda x: function(np, x % 8)


def of_bytes(x: Any) -> Any:
    """A product of int8 columns, accumulated in int32."""
    small = (31 * (x % 8) - 100).astype(jnp.int8)
    return lax.dot_general(small, small, (((0,), (0,)), ((), ())), preferred_element_type=jnp.int32)


def of_halves(x: Any) -> Any:
    """A product of bfloat16 rows, accumulated in float32."""
    small = (x % 8).astype(jnp.bfloat16)
    return jnp.einsum("ij,kj->ik", small, small, preferred_element_type=jnp.float32)


def systems(m: Any, x: Any) -> Any:
    """One lower triangular matrix per row, with a unit diagonal: [rows, 3, 3]."""
    a, b, c = (x[:, k] % 4 for k in range(3))
    one, zero = 0 * a + 1, 0 * a
    rows = m.stack([m.stack(r, -1) for r in ((one, zero, zero), (a, one, zero), (b, c, one))], -2)
    return rows


PRODUCTS: Functions = {
    "sum_of_products": exact(lambda m, x: m.einsum("ij,ij->", x, x[::-1])),
    "rows": exact(lambda m, x: m.einsum("ij,kj->ik", x, x)),
    "columns": exact(lambda m, x: m.einsum("ij,ik->jk", x, x)),
    "diagonal": exact(lambda m, x: m.einsum("ii->i", x[: x.shape[1], : len(x)][:4, :4])),
    "repeated": exact(lambda m, x: m.einsum("ij,ij,j->i", x, x[::-1], x[0])),
    "batch": exact(lambda m, x: m.einsum("bi,bj->bij", x[:, :3], x[:, 1:4])),
    "batched": exact(lambda m, x: m.einsum("bij,bjk->bik", m.stack([x, x + 1]), m.stack([x.T, x.T]))),
    "three": exact(lambda m, x: m.einsum("ij,j,ik->k", x, x[0], x)),
    "outer": exact(lambda m, x: m.outer(x[:, 0], x[0])),
    "kron": exact(lambda m, x: m.kron(x[:3, :2], x[:2, :3])),
    "tensordot": exact(lambda m, x: m.tensordot(x, x, axes=((0, 1), (0, 1)))),
    "matrix_vector": exact(lambda m, x: x @ x[0]),
    "vector_matrix": exact(lambda m, x: x[:, 1] @ x),
    "of_bytes": (of_bytes, lambda x: (31 * (x % 8) - 100).T @ (31 * (x % 8) - 100)),
    "of_halves": (of_halves, lambda x: (x % 8) @ (x % 8).T),
    "convolve": exact(lambda m, x: m.convolve(x[:, 0], m.array([1.0, 2, -1]), mode="same")),
    "correlate": exact(lambda m, x: m.correlate(x[:, 1], m.array([1.0, 2, -1]), mode="full")),
    "polyval": exact(lambda m, x: m.polyval(m.array([1.0, 0, -2]), x)),
    "interp": exact(lambda m, x: m.interp(x, m.array([0.0, 4, 8]), m.array([8.0, 0, 4]))),
    "cross": exact(lambda m, x: m.cross(x[:, :3], x[::-1, :3])),
    "vander": exact(lambda m, x: m.vander(x[:, 0] % 3, 4)),
    "trace": exact(lambda m, x: m.trace(x, offset=1)),
    "matrix_power": exact(lambda m, x: m.linalg.matrix_power(x[:3, :3] % 3, 3)),
    "inverse": exact(lambda m, x: m.rint(m.linalg.inv(systems(m, x)))),
    "solve": exact(lambda m, x: m.rint(m.linalg.solve(systems(m, x), x[:, :3, None]))),
    "determinant": exact(lambda m, x: m.rint(m.linalg.det(systems(m, x)))),
    "cholesky": exact(
        lambda m, x: m.rint(m.linalg.cholesky(systems(m, x) @ m.swapaxes(systems(m, x), 1, 2)))
    ),
}
"""Contractions of sharded dimensions, alone and together; sums in wider types; small systems for each row."""


# Loops.


def until_large(x: Any) -> Any:
    """2 x + 1, repeated until the largest element is at least 1000. The condition reads the sharded array."""
    return lax.while_loop(lambda y: jnp.max(y) < 1000, lambda y: 2 * y + 1, x)


def doubled(x: Any) -> Any:
    """`until_large` in NumPy."""
    while x.max() < 1000:
        x = 2 * x + 1
    return x


def one_by_one(x: Any) -> Any:
    """Row by row, in place: each row becomes its sum with the row before it, both modulo 64."""

    def step(k, y):
        return lax.dynamic_update_index_in_dim(y, y[k] % 64 + y[k - 1] % 64, k, 0)

    return lax.fori_loop(1, len(x), step, x)


def in_place(x: Any) -> Any:
    """`one_by_one` in NumPy."""
    found = x.copy()
    for k in range(1, len(x)):
        found[k] = found[k] % 64 + found[k - 1] % 64
    return found


def row_loops(x: Any) -> Any:
    """A loop per row. Its length depends on the row."""

    def of_row(row):
        return lax.while_loop(lambda c: c[0] < row[0] % 5, lambda c: (c[0] + 1, c[1] * 2), (0.0, row))[1]

    return jax.vmap(of_row)(x)


def chosen(x: Any) -> Any:
    """One of three branches, chosen by the row of the largest element of the first column."""
    branches = (lambda y: y[::-1], lambda y: -y, lambda y: jnp.roll(y, 1, axis=0))
    return lax.switch(jnp.argmax(x[:, 0]) % 3, branches, x)


LOOPS: Functions = {
    "until_large": (until_large, doubled),
    "one_by_one": (one_by_one, in_place),
    "row_loops": (row_loops, lambda x: x * 2 ** (x[:, :1] % 5)),
    "switch": (
        chosen,
        lambda x: (x[::-1], -x, np.roll(x, 1, axis=0))[int(np.argmax(x[:, 0])) % 3],
    ),
    "cond": (
        lambda x: lax.cond(jnp.sum(x[:, 1]) % 2 == 0, lambda y: y + 1, lambda y: y[::-1], x),
        lambda x: x + 1 if x[:, 1].sum() % 2 == 0 else x[::-1],
    ),
    "scan_columns": (
        lambda x: lax.scan(lambda c, k: (jnp.roll(c, 1, axis=0) + x[:, k][:, None], c[0]), x, jnp.arange(3))[
            1
        ],
        lambda x: scanned(x),
    ),
    "scanned_rows": (
        lambda x: lax.scan(lambda c, row: (c + row.sum(), row * 2 + c), 0.0, x)[1],
        lambda x: 2 * x + (np.cumsum(x.sum(axis=1)) - x.sum(axis=1))[:, None],
    ),
    "map": (
        lambda x: lax.map(lambda row: jnp.sort(tied(jnp, row)) + row[0], x, batch_size=2),
        lambda x: np.sort(tied(np, x), axis=1) + x[:, :1],
    ),
    "carried_cut": (
        lambda x: lax.fori_loop(0, 3, lambda k, y: jnp.concatenate([y[1:], y[:1] + k]), x),
        lambda x: np.concatenate([x[3:], x[:3] + np.arange(3)[:, None]]),
    ),
    "remat": (
        lambda x: jax.checkpoint(lambda y: jnp.cumsum(y, axis=0)[::-1] * 2)(x),
        lambda x: np.cumsum(x, axis=0)[::-1] * 2,
    ),
    "pairwise": (
        lambda x: jax.vmap(lambda p: jax.vmap(lambda q: jnp.max(p - q))(x))(x),
        lambda x: (x[:, None] - x).max(axis=2),
    ),
    "hfft": (
        lambda x: jnp.rint(jnp.fft.hfft(x[:, :3], axis=1)),
        lambda x: np.rint(np.fft.hfft(x[:, :3], axis=1)),
    ),
    "ihfft": (
        lambda x: jnp.rint(jnp.fft.ihfft(4 * x[:, :4], axis=1).real),
        lambda x: np.rint(np.fft.ihfft(4 * x[:, :4], axis=1).real),
    ),
    "irfftn": (
        lambda x: jnp.rint(jnp.fft.irfftn(16 * x[:4, :3], (4, 4), (0, 1))),
        lambda x: np.rint(np.fft.irfftn(16 * x[:4, :3], (4, 4), (0, 1))),
    ),
}
"""Loops and branches that a sharded array decides, rows of a batch, and transforms of four elements."""


def scanned(x: Any) -> Any:
    """`scan_columns` in NumPy."""
    carried, found = x, []
    for k in range(3):
        found.append(carried[0])
        carried = np.roll(carried, 1, axis=0) + x[:, k][:, None]
    return np.stack(found)
