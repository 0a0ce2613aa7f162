# SPDX-License-Identifier: Apache-2.0
"""Reads, writes and pieces of arrays that are cut along each dimension in turn, with places that are negative, far
outside, of narrow dtypes, or repeated. Answers are NumPy's."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.cuts.running import hold, mixed


def _numbers(n: int) -> np.ndarray:
    """[rows, columns] int32 from 0 to 96, for n devices, of which both dimensions are multiples."""
    rows = 2 * n + 2
    return mixed((rows + -rows % n, 4 * n), 97).astype(np.int32)


def _places(line, grid):
    """Places that are negative, far outside, of narrow dtypes, or repeated, in reads and writes."""
    x = _numbers(line.size)
    rows, columns = x.shape
    far = np.array([0, -1, rows - 1, rows, 2 * rows + 3, -rows, -2 * rows - 1, 5 * rows], np.int32)
    near = np.array([0, -1, rows - 1, -rows, 1, 1, -1, 2], np.int32)
    values = mixed((8, columns), 31).astype(np.int32)
    clipped, inside = np.clip(far, 0, rows - 1), (far >= -rows) & (far < rows)
    # A negative place counts from the end once; what is then outside is clipped.
    counted = np.clip(np.where(far < 0, far + rows, far), 0, rows - 1)
    narrow = {f"from the end by {np.dtype(k)}": k for k in (np.int8, np.int16, np.int32)}

    def written(method, places, start):
        out = start.copy()
        for place, row in zip(places, values, strict=True):
            if -rows <= place < rows:
                out[place] = method(out[place], row)
        return out

    members = {
        "take wrap": (lambda x, f, e, v: jnp.take(x, f, 0, mode="wrap"), x[far % rows]),
        "take clip": (lambda x, f, e, v: jnp.take(x, f, 0, mode="clip"), x[clipped]),
        "take fill": (
            lambda x, f, e, v: jnp.take(x, f, 0, mode="fill", fill_value=-5),
            np.where(inside[:, None], x[counted], -5),
        ),
        "get clip": (lambda x, f, e, v: x.at[f].get(mode="clip"), x[counted]),
        "get fill": (
            lambda x, f, e, v: x.at[f].get(mode="fill", fill_value=9),
            np.where(inside[:, None], x[counted], 9),
        ),
        "take_along_axis": (
            lambda x, f, e, v: jnp.take_along_axis(x, (x % 3).astype(jnp.int32), 1),
            np.take_along_axis(x, x % 3, 1),
        ),
        "add": (lambda x, f, e, v: x.at[e].add(v), written(np.add, near, x)),
        "add outside": (lambda x, f, e, v: x.at[f].add(v, mode="drop"), written(np.add, far, x)),
        "max": (lambda x, f, e, v: x.at[e].max(v), written(np.maximum, near, x)),
        "min": (lambda x, f, e, v: x.at[e].min(v), written(np.minimum, near, x)),
        "multiply": (lambda x, f, e, v: x.at[e].multiply(v), written(np.multiply, near, x)),
        "set": (
            lambda x, f, e, v: x.at[e[:5]].set(v[:5]),
            written(lambda a, b: b, np.append(near[:5], [rows] * 3), x),
        ),
        **{
            what: (
                lambda x, f, e, v, k=k: (
                    lax.dynamic_slice(x, ((f[1] * 2).astype(k), k(-columns)), (2, 3)),
                    lax.dynamic_index_in_dim(x, (f[1] * 3).astype(k), 1, keepdims=False),
                    lax.dynamic_update_slice(x, v[:2, :2], (k(-2), (f[1] * 3).astype(k))),
                ),
                (x[-2:, :3], x[:, -3], _updated(x, values[:2, :2], rows - 2, columns - 3)),
            )
            for what, k in narrow.items()
        },
        "searchsorted": (
            lambda x, f, e, v: jnp.searchsorted(jnp.sort(x[:, 0]), v[0]),
            np.searchsorted(np.sort(x[:, 0]), values[0]).astype(np.int32),
        ),
    }
    hold(line, grid, members, x, far, near, values)


def _segments(line, grid):
    """Rows that are combined, counted or repeated by the number of their owner."""
    x = _numbers(line.size)
    rows, columns = x.shape
    owners = mixed((rows,), 5).astype(np.int32)
    wild = np.where(owners == 4, 99, owners)

    def summed(ids, start, method=np.add):
        out = np.full((5, columns), start, np.int32)
        for place, row in zip(ids, x, strict=True):
            if 0 <= place < len(out):
                out[place] = method(out[place], row)
        return out

    members = {
        "segment_sum": (lambda x, o: jax.ops.segment_sum(x, o, 5), summed(owners, 0)),
        "segment_sum of some": (
            lambda x, o: jax.ops.segment_sum(x, jnp.where(o == 4, 99, o), 5),
            summed(wild, 0),
        ),
        "segment_sum in buckets": (
            lambda x, o: jax.ops.segment_sum(x, o, 5, bucket_size=5),
            summed(owners, 0),
        ),
        "segment_max in buckets": (
            lambda x, o: jax.ops.segment_max(x, o, 5, bucket_size=5),
            summed(owners, np.iinfo(np.int32).min, np.maximum),
        ),
        "segment_prod": (
            lambda x, o: jax.ops.segment_prod(x % 2 + 1, o, 5),
            np.stack([np.prod((x % 2 + 1)[owners == k], 0, dtype=np.int32) for k in range(5)]),
        ),
        "repeat of some": (
            lambda x, o: jnp.repeat(x, (o % 3).at[-1].set(2), axis=0, total_repeat_length=2 * rows),
            _lengthened(np.repeat(x, np.append(owners[:-1] % 3, 2), 0), 2 * rows),
        ),
        # 256 and 257 are one number in bfloat16.
        "one_hot": (
            lambda x, o: tuple(
                jax.nn.one_hot(o + 254, 300, dtype=k).argmax(-1)
                + 1000 * jax.nn.one_hot(o + 254, 300, dtype=k).sum(-1).astype(int)
                for k in (jnp.bfloat16, jnp.float32, jnp.int32)
            ),
            (owners + np.int32(1254),) * 3,
        ),
        "bincount": (
            lambda x, o: jnp.bincount(x.ravel(), length=97),
            np.bincount(x.ravel(), minlength=97).astype(np.int32),
        ),
    }
    hold(line, grid, members, x, owners)


def _pieces(line, grid):
    """Pieces, orders, reductions with a start, and windows of an array."""
    n = line.size
    x = _numbers(n)
    rows, columns = x.shape
    members = {
        "repeat": (lambda x: jnp.repeat(x, 2, 0), np.repeat(x, 2, 0)),
        "reversed": (
            lambda x: (lax.rev(x, (0, 1)), lax.rev(x, (0,)), lax.rev(x, (1,)), jnp.rot90(x, 2)),
            (x[::-1, ::-1], x[::-1], x[:, ::-1], np.rot90(x, 2)),
        ),
        "rolled": (
            lambda x: (jnp.roll(x, (3, -2), (0, 1)), jnp.roll(x, 5), jnp.roll(x, -1, 1)),
            (np.roll(x, (3, -2), (0, 1)), np.roll(x, 5), np.roll(x, -1, 1)),
        ),
        "padded": (
            lambda x: (
                lax.pad(x, 7, ((1, -2, 0), (-1, 2, 0))),
                lax.pad(x, 7, ((-1, -2, 0), (0, 1, 0))),
                lax.pad(x, 7, ((0, -2, 0), (-2, 0, 0))),
            ),
            tuple(
                _padded(x, c)
                for c in (((1, -2, 0), (-1, 2, 0)), ((-1, -2, 0), (0, 1, 0)), ((0, -2, 0), (-2, 0, 0)))
            ),
        ),
        "slices": (
            lambda x: (
                x[1:-1, 1:],
                x[::2, 1::3],
                x[-3:, :-2],
                lax.slice(x, (1, 3), (3, columns)),
            ),
            (x[1:-1, 1:], x[::2, 1::3], x[-3:, :-2], x[1:3, 3:]),
        ),
        "top_k": (
            lambda x: (lax.top_k(x, 2)[0], lax.top_k(x.T, 2)[1]),
            (np.sort(x, 1)[:, :-3:-1], np.argsort(-x.T, 1, kind="stable")[:, :2].astype(np.int32)),
        ),
        "unique": (
            lambda x: jnp.unique(x, size=120, fill_value=-1),
            np.append(np.unique(x), np.full(120 - np.unique(x).size, -1)).astype(np.int32),
        ),
        "nonzero": (
            lambda x: jnp.nonzero(x % 3 == 0, size=x.size, fill_value=-1),
            tuple(_lengthened(np.append(p, -1), x.size).astype(np.int32) for p in np.nonzero(x % 3 == 0)),
        ),
        "reduce from a start": (
            lambda x: (
                jnp.sum(x, 1, initial=9),
                jnp.sum(x, 0, initial=100),
                jnp.max(x, 0, initial=50),
                jnp.min(x, 1, initial=50),
                jnp.prod(x % 2 + 1, 0, initial=3),
            ),
            (
                x.sum(1, dtype=np.int32) + np.int32(9),
                x.sum(0, dtype=np.int32) + np.int32(100),
                np.maximum(x.max(0), 50),
                np.minimum(x.min(1), 50),
                (x % 2 + 1).prod(0, dtype=np.int32) * np.int32(3),
            ),
        ),
        "dilated windows": (
            lambda x: lax.reduce_window(
                x, np.int32(np.iinfo(np.int32).min), lax.max, (2, 2), (1, 1), "VALID", window_dilation=(1, 2)
            ),
            np.maximum.reduce([x[1:, 2:], x[:-1, 2:], x[1:, :-2], x[:-1, :-2]]),
        ),
        "sums of three dimensions": (
            lambda x: jnp.sum(x.reshape(n, -1, 2, n, 2), (0, 2, 4)).astype(jnp.int32),
            x.reshape(n, -1, 2, n, 2).sum((0, 2, 4)).astype(np.int32),
        ),
        "sums of three dimensions of floats": (
            lambda x: jnp.sum(x.astype(jnp.float32).reshape(n, -1, 2, n, 2), (0, 2, 4)),
            x.reshape(n, -1, 2, n, 2).sum((0, 2, 4)).astype(np.float32),
        ),
        "numbers": (
            lambda x: (
                jnp.arange(rows) + x[:, 0],
                lax.broadcasted_iota(jnp.int32, x.shape, 1) + x,
            ),
            (np.arange(rows, dtype=np.int32) + x[:, 0], np.arange(columns, dtype=np.int32) + x),
        ),
    }
    hold(line, grid, members, x)


def _indices(line, grid):
    """Reads, writes, segments and pieces of arrays of whole numbers."""
    _places(line, grid)
    _segments(line, grid)
    _pieces(line, grid)


def _updated(x: np.ndarray, piece: np.ndarray, row: int, column: int) -> np.ndarray:
    out = x.copy()
    out[row : row + piece.shape[0], column : column + piece.shape[1]] = piece
    return out


def _lengthened(x: np.ndarray, rows: int) -> np.ndarray:
    """The array with its last row again and again, up to so many rows; the first of them if it has more."""
    return np.concatenate([x, np.repeat(x[-1:], max(0, rows - len(x)), 0)])[:rows]


def _padded(x: np.ndarray, config: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """lax.pad with 7: numbers between the elements first, then both ends, which negative numbers crop."""
    for axis, (low, high, inner) in enumerate(config):
        moved = np.moveaxis(x, axis, 0)
        spread = np.full(((len(moved) - 1) * (inner + 1) + 1, *moved.shape[1:]), 7, x.dtype)
        spread[:: inner + 1] = moved
        ends = [(max(low, 0), max(high, 0))] + [(0, 0)] * (x.ndim - 1)
        spread = np.pad(spread, ends, constant_values=7)
        x = np.moveaxis(spread[max(-low, 0) : len(spread) - max(-high, 0)], 0, axis)
    return x


CUT_INDICES: dict[str, Callable[..., None]] = {"indices": _indices}
