# SPDX-License-Identifier: Apache-2.0
"""Functions of `jax.numpy` and `jax.lax` that only move elements, and their gradients. They are judged to the bit."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.operations.functions.catalogue import Catalogue, Groups, in_jax, in_numpy


def odd(length):
    """A boolean mask of every other element. It is a constant, so that the function only moves elements."""
    return np.arange(length) % 2 == 1


def odd_ones(shape):
    """A boolean mask of this shape in the pattern of a chessboard."""
    return np.add.outer(np.arange(shape[0]), np.arange(shape[1])) % 2 == 1


FROM_ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
TO_ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))


def placed_rows(x, y):
    """x with the first row of y as row 2 and the second row of y as row 0."""
    x = x.copy()
    x[2], x[0] = y[0], y[1]
    return x


def written_block(x, y):
    """x with y[:2, :2] written to x[1:3, 1:3]."""
    x = x.copy()
    x[1:3, 1:3] = y[:2, :2]
    return x


def put(x, flat, new):
    """x with new elements at flat indices."""
    x = x.copy()
    x.reshape(-1)[flat] = new
    return x


MOVES: Groups = {
    "joined": {
        "append": (lambda x, y: jnp.append(x, y, axis=0), lambda x, y: np.append(x, y, axis=0)),
        "concat": (lambda x, y: jnp.concat((x, y), axis=1), lambda x, y: np.concatenate((x, y), axis=1)),
        "vstack": (lambda x, y: jnp.vstack((x, y)), lambda x, y: np.vstack((x, y))),
        "hstack": (lambda x, y: jnp.hstack((y, x)), lambda x, y: np.hstack((y, x))),
        "dstack": (lambda x, y: jnp.dstack((x, y)), lambda x, y: np.dstack((x, y))),
        "column_stack": (
            lambda x, y: jnp.column_stack((x[:, 0], y[:, 1])),
            lambda x, y: np.column_stack((x[:, 0], y[:, 1])),
        ),
        "block": (lambda x, y: jnp.block([[x, y], [y, x]]), lambda x, y: np.block([[x, y], [y, x]])),
        "lax.concatenate": (lambda x, y: lax.concatenate((y, x), 0), lambda x, y: np.concatenate((y, x))),
        "lax.stack": (lambda x, y: lax.stack((x, y), axis=1), lambda x, y: np.stack((x, y), axis=1)),
        "lax.select": (
            lambda x, y: lax.select(jnp.array(odd_ones(x.shape)), x, y),
            lambda x, y: np.where(odd_ones(x.shape), x, y),
        ),
        "select": (
            lambda x, y: jnp.select([odd_ones(x.shape)], [y], x),
            lambda x, y: np.where(odd_ones(x.shape), y, x),
        ),
        "choose": (
            lambda x, y: jnp.choose(odd_ones(x.shape).astype(int), [x, y], mode="wrap"),
            lambda x, y: np.where(odd_ones(x.shape), y, x),
        ),
        "piecewise": (
            lambda x, y: jnp.piecewise(x, [odd_ones(x.shape)], [lambda v: v, lambda v: v]),
            lambda x, y: x,
        ),
    },
    "parted": {
        "split": (
            lambda x, y: jnp.split(x, [1, 3], axis=1),
            lambda x, y: np.split(x, [1, 3], axis=1),
        ),
        "array_split": (
            lambda x, y: jnp.array_split(x, 3, axis=0),
            lambda x, y: np.array_split(x, 3, axis=0),
        ),
        "hsplit": (lambda x, y: jnp.hsplit(y, np.array([2])), lambda x, y: np.hsplit(y, [2])),
        "vsplit": (lambda x, y: jnp.vsplit(y, np.array([1])), lambda x, y: np.vsplit(y, [1])),
        "dsplit": (lambda x, y: jnp.dsplit(x[None], np.array([2])), lambda x, y: np.dsplit(x[None], [2])),
        "unstack": (lambda x, y: jnp.unstack(x[:3]), lambda x, y: tuple(x[:3])),
        "lax.unstack": (lambda x, y: lax.unstack(y[:, :2], axis=1), lambda x, y: tuple(y[:, :2].T)),
        "lax.split": (
            lambda x, y: lax.split(x, (1, x.shape[0] - 1), axis=0),
            lambda x, y: np.split(x, [1]),
        ),
    },
    "shaped": {
        "atleast_1d": (lambda x, y: jnp.atleast_1d(x[0, 0]), lambda x, y: x[:1, 0]),
        "atleast_2d": (lambda x, y: jnp.atleast_2d(x[0]), lambda x, y: x[:1]),
        "atleast_3d": (lambda x, y: jnp.atleast_3d(x), lambda x, y: x[:, :, None]),
        "expand_dims": (lambda x, y: jnp.expand_dims(x, 1), lambda x, y: x[:, None]),
        "squeeze": (lambda x, y: jnp.squeeze(x[:, None]), lambda x, y: x),
        "ravel": (lambda x, y: jnp.ravel(y), lambda x, y: y.reshape(-1)),
        "resize": (
            lambda x, y: jnp.resize(x, (2 * x.shape[0], x.shape[1])),
            lambda x, y: np.concatenate((x, x)),
        ),
        "permute_dims": (lambda x, y: jnp.permute_dims(x, (1, 0)), lambda x, y: x.T),
        "matrix_transpose": (lambda x, y: jnp.matrix_transpose(y), lambda x, y: y.T),
        "transpose": (lambda x, y: jnp.transpose(x), lambda x, y: x.T),
        "rollaxis": (lambda x, y: jnp.rollaxis(x, 1), lambda x, y: x.T),
        "rot90": (lambda x, y: jnp.rot90(x), lambda x, y: np.rot90(x)),
        "fliplr": (lambda x, y: jnp.fliplr(x), lambda x, y: x[:, ::-1]),
        "flipud": (lambda x, y: jnp.flipud(y), lambda x, y: y[::-1]),
        "copy": (lambda x, y: jnp.copy(x), lambda x, y: x),
        "asarray": (lambda x, y: jnp.asarray(y), lambda x, y: y),
        "astype": (lambda x, y: jnp.astype(x, x.dtype), lambda x, y: x),
        "broadcast_arrays": (
            lambda x, y: jnp.broadcast_arrays(x[:1], y)[0],
            lambda x, y: np.broadcast_to(x[:1], x.shape),
        ),
        "nn.identity": (lambda x, y: jax.nn.identity(x), lambda x, y: x),
        "apply_along_axis": (
            lambda x, y: jnp.apply_along_axis(lambda row: row[::-1], 1, x),
            lambda x, y: x[:, ::-1],
        ),
        "vectorize": (
            lambda x, y: jnp.vectorize(lambda row: row[::-1], signature="(n)->(n)")(y),
            lambda x, y: y[:, ::-1],
        ),
    },
    "lax_shaped": {
        "lax.broadcast": (lambda x, y: lax.broadcast(x, (2,)), lambda x, y: np.stack((x, x))),
        "lax.broadcast_in_dim": (
            lambda x, y: lax.broadcast_in_dim(x, (x.shape[0], 3, x.shape[1]), (0, 2)),
            lambda x, y: np.repeat(x[:, None], 3, axis=1),
        ),
        "lax.broadcast_like": (
            lambda x, y: lax.broadcast_like(x[:1], y),
            lambda x, y: np.broadcast_to(x[:1], x.shape),
        ),
        "lax.broadcast_to_rank": (lambda x, y: lax.broadcast_to_rank(x, 3), lambda x, y: x[None]),
        "lax.collapse": (lambda x, y: lax.collapse(x, 0, 2), lambda x, y: x.reshape(-1)),
        "lax.expand_dims": (lambda x, y: lax.expand_dims(x, (0, 2)), lambda x, y: x[None, :, None]),
        "lax.squeeze": (lambda x, y: lax.squeeze(y[None], (0,)), lambda x, y: y),
        "lax.reshape": (
            lambda x, y: lax.reshape(x, (x.shape[1], x.shape[0])),
            lambda x, y: x.reshape(x.shape[::-1]),
        ),
        "lax.rev": (lambda x, y: lax.rev(x, (0, 1)), lambda x, y: x[::-1, ::-1]),
        "lax.transpose": (lambda x, y: lax.transpose(x, (1, 0)), lambda x, y: x.T),
        "lax.tile": (lambda x, y: lax.tile(y, (1, 2)), lambda x, y: np.tile(y, (1, 2))),
        "lax.map": (lambda x, y: lax.map(lambda row: row[::-1], x), lambda x, y: x[:, ::-1]),
        "lax.convert_element_type": (lambda x, y: lax.convert_element_type(x, x.dtype), lambda x, y: x),
        "lax.platform_dependent": (
            lambda x, y: lax.platform_dependent(x, default=lambda v: v[::-1]),
            lambda x, y: x[::-1],
        ),
    },
    "cut": {
        "diag": (lambda x, y: jnp.diag(x[:3, :3]), lambda x, y: np.diag(x[:3, :3])),
        "lax.slice": (
            lambda x, y: lax.slice(x, (1, 0), (x.shape[0], x.shape[1]), (1, 2)),
            lambda x, y: x[1:, ::2],
        ),
        "lax.index_in_dim": (lambda x, y: lax.index_in_dim(y, 1, 0), lambda x, y: y[1:2]),
        "lax.dynamic_index_in_dim": (
            lambda x, y: lax.dynamic_index_in_dim(x, jnp.int32(2), 1),
            lambda x, y: x[:, 2:3],
        ),
        "lax.dynamic_slice": (
            lambda x, y: lax.dynamic_slice(x, (jnp.int32(1), jnp.int32(2)), (2, 2)),
            lambda x, y: x[1:3, 2:4],
        ),
        "lax.index_take": (
            lambda x, y: lax.index_take(x, jnp.array([[2, 0]]), (0,)),
            lambda x, y: x[[2, 0]],
        ),
        "lax.gather": (
            lambda x, y: lax.gather(x, np.array([[2], [0]]), FROM_ROWS, (1, x.shape[1])),
            lambda x, y: x[[2, 0]],
        ),
        "compress": (
            lambda x, y: jnp.compress(odd(x.shape[0]), x, axis=0, size=x.shape[0] // 2),
            lambda x, y: x[1::2],
        ),
        "extract": (
            lambda x, y: jnp.extract(odd_ones(x.shape), x, size=4),
            lambda x, y: x[odd_ones(x.shape)][:4],
        ),
        "delete": (lambda x, y: jnp.delete(y, 1, axis=1), lambda x, y: np.delete(y, 1, axis=1)),
        "apply_over_axes": (
            lambda x, y: jnp.apply_over_axes(lambda a, axis: jnp.flip(a, axis), x, (0, 1)),
            lambda x, y: x[::-1, ::-1],
        ),
    },
    "written": {
        "insert": (lambda x, y: jnp.insert(x, 1, y[0], axis=0), lambda x, y: np.insert(x, 1, y[0], axis=0)),
        "lax.dynamic_update_slice": (
            lambda x, y: lax.dynamic_update_slice(x, y[:2, :2], (jnp.int32(1), jnp.int32(1))),
            written_block,
        ),
        "lax.dynamic_update_index_in_dim": (
            lambda x, y: lax.dynamic_update_index_in_dim(x, y[1], jnp.int32(0), 0),
            lambda x, y: np.concatenate((y[1:2], x[1:])),
        ),
        "put": (
            lambda x, y: jnp.put(x, np.array([3, 1]), y[0, :2], inplace=False),
            lambda x, y: put(x, [3, 1], y[0, :2]),
        ),
        "put_along_axis": (
            lambda x, y: jnp.put_along_axis(x, np.full((x.shape[0], 1), 2), y[:, :1], 1, inplace=False),
            lambda x, y: np.concatenate((x[:, :2], y[:, :1], x[:, 3:]), axis=1),
        ),
        "place": (
            lambda x, y: jnp.place(x, np.arange(x.size).reshape(x.shape) == 4, y[0, :1], inplace=False),
            lambda x, y: put(x, [4], y[0, :1]),
        ),
        "lax.scatter": (
            lambda x, y: lax.scatter(x, np.array([[2], [0]]), y[:2], TO_ROWS),
            placed_rows,
        ),
        "lax.scatter_apply": (
            lambda x, y: lax.scatter_apply(
                x, jnp.array([[2]]), lambda v: v, TO_ROWS, update_shape=(1, x.shape[1])
            ),
            lambda x, y: x,
        ),
    },
}
"""Moves by group."""


class Rearranging(Catalogue):
    """Functions that join, split, reshape, slice and write arrays."""

    name = "rearranging"
    family = "shapes"
    moves = True
    verdict = "bits"
    groups = MOVES
    fill: ClassVar[Any] = (values.distinct, {})

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        return in_jax(MOVES[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(MOVES[group], x, y, names)
