# SPDX-License-Identifier: Apache-2.0
"""The functions of the grid in `transformed`: collectives, products, indexing, sorts, reductions.

Each maps a matrix to a matrix of its shape. The n**2 rows are sharded over n devices. Each function has three
programs: for the local block, for the whole array, and in NumPy. Piecewise, each is a polynomial of degree 2 at
most with integer coefficients, so derivatives are exact (`polynomials`). The keys of sorts and maxima are distinct.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.functions.wholes import gathered, own_block


def weights(rows):
    """float32[rows, rows]: three integers in each row and each column, so that products cross every block."""
    found = np.zeros((rows, rows), np.float32)
    for shift, value in ((0, 1), (rows // 2, 2), (rows - 1, -1)):
        found[np.arange(rows), (np.arange(rows) + shift) % rows] += value
    return found


def targets(rows):
    """An index that takes every second row twice, in a mixed order."""
    return (np.arange(rows) * (rows - 1) + 2) % rows // 2 * 2


def matmul(a, b):
    """A matrix product of small integers."""
    return jnp.matmul(jnp.asarray(a, b.dtype), b, precision="highest")


def own(constant, axes, dim=0):
    """The device's own block of a constant array."""
    return own_block(jnp.asarray(constant), ((dim, axes),))


def summed(full, axes):
    """The device's own rows of the sum over devices."""
    return lax.psum_scatter(full, axes, scatter_dimension=0, tiled=True)


def ring(n, step):
    """The (source, target) pairs of a shift by `step` around a ring of n."""
    return [(i, (i + step) % n) for i in range(n)]


def convolved(x, padding):
    """The convolution along rows with the weights 1, 2 and -1."""
    kernel = jnp.asarray([[[1, 2, -1]]], x.dtype)
    return lax.conv_general_dilated(x.T[:, None], kernel, (1,), padding, precision="highest")[:, 0].T


# For the local block: x and mesh axes.


def _local_all_gather(x, axes):
    return x * own_block(jnp.roll(lax.all_gather(x, axes, axis=0, tiled=True), 1, axis=0), ((0, axes),))


def _local_psum_scatter(x, axes):
    return x * summed(jnp.concatenate([x * (1 + k % 2) for k in range(lax.axis_size(axes))]), axes)


def _local_ppermute(x, axes):
    return x * lax.ppermute(x, axes, ring(lax.axis_size(axes), 1))


def _local_all_to_all(x, axes):
    return x * lax.all_to_all(x, axes, 0, 0, tiled=True)


def _local_psum(x, axes):
    return x * lax.psum(x, axes)


def _local_pmean(x, axes):
    return x * lax.pmean(x, axes)


def _local_contraction(x, axes):
    part = own(weights(x.shape[0] * lax.axis_size(axes)), axes, 1)
    return x * summed(matmul(part, x), axes)


def _local_convolution(x, axes):
    n = lax.axis_size(axes)
    before = lax.ppermute(x[-1:], axes, ring(n, 1)[:-1])
    after = lax.ppermute(x[:1], axes, ring(n, -1)[1:])
    return x * convolved(jnp.concatenate([before, x, after]), "VALID")


def _local_layer(x, axes):
    matrix = weights(x.shape[0] * lax.axis_size(axes))
    hidden = jax.nn.relu(2 * matmul(own(matrix, axes), gathered(x, ((0, axes),))) - 1)
    return summed(matmul(own(matrix.T, axes, 1), hidden), axes)


def _local_gather(x, axes):
    index = own(targets(x.shape[0] * lax.axis_size(axes)), axes)
    return x * gathered(x, ((0, axes),))[index]


def _local_scatter(x, axes):
    rows = x.shape[0] * lax.axis_size(axes)
    empty = jnp.zeros((rows, *x.shape[1:]), x.dtype)
    return x * summed(empty.at[own(targets(rows), axes)].add(x), axes)


def _local_cumsum(x, axes):
    mine = jnp.cumsum(x, axis=0)
    totals = lax.all_gather(mine[-1], axes)
    before = jnp.arange(len(totals)) < lax.axis_index(axes)
    return x * (mine + jnp.where(before[:, None], totals, 0).sum(axis=0))


def _local_sort(x, axes):
    rows = x.shape[0] * lax.axis_size(axes)
    places = own(np.arange(rows, dtype=np.float32)[::-1, None], axes)
    keys = x * rows + places.astype(x.dtype)
    return own_block(jnp.sort(gathered(keys, ((0, axes),)), axis=0), ((0, axes),))


def _local_max(x, axes):
    n = lax.axis_size(axes)
    keys = x * n + (n - 1 - lax.axis_index(axes)).astype(x.dtype)
    return x * lax.all_gather(keys, axes).max(axis=0)


# For the whole array: x and the number of blocks.


def blocks(x, n):
    """[n, rows / n, ...]: the blocks of rows."""
    return x.reshape(n, x.shape[0] // n, *x.shape[1:])


def everywhere(block, n):
    """One block repeated n times along the rows."""
    return jnp.broadcast_to(block, (n, *block.shape)).reshape(n * block.shape[0], *block.shape[1:])


def _whole_all_gather(x, n):
    return x * jnp.roll(x, 1, axis=0)


def _whole_psum_scatter(x, n):
    weight = 1 + jnp.arange(n)[:, None, None] % 2
    return x * (weight.astype(x.dtype) * blocks(x, n).sum(axis=0)).reshape(x.shape)


def _whole_ppermute(x, n):
    return x * jnp.roll(x, x.shape[0] // n, axis=0)


def _whole_all_to_all(x, n):
    return x * x.reshape(n, n, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def _whole_psum(x, n):
    return x * everywhere(blocks(x, n).sum(axis=0), n)


def _whole_pmean(x, n):
    return x * everywhere(blocks(x, n).mean(axis=0), n)


def _whole_contraction(x, n):
    return x * matmul(weights(x.shape[0]), x)


def _whole_convolution(x, n):
    return x * convolved(x, [(1, 1)])


def _whole_layer(x, n):
    matrix = weights(x.shape[0])
    return matmul(matrix.T, jax.nn.relu(2 * matmul(matrix, x) - 1))


def _whole_gather(x, n):
    return x * x[targets(x.shape[0])]


def _whole_scatter(x, n):
    return x * jnp.zeros_like(x).at[targets(x.shape[0])].add(x)


def _whole_cumsum(x, n):
    return x * jnp.cumsum(x, axis=0)


def _whole_sort(x, n):
    places = np.arange(x.shape[0])[::-1, None]
    return jnp.sort(x * x.shape[0] + jnp.asarray(places, x.dtype), axis=0)


def _whole_max(x, n):
    order = jnp.asarray(np.arange(n)[::-1, None, None], x.dtype)
    return x * everywhere((blocks(x, n) * n + order).max(axis=0), n)


# In NumPy: x and the number of blocks.


def _numpy_all_gather(x, n):
    return x * x[np.arange(-1, len(x) - 1)]


def _numpy_psum_scatter(x, n):
    total = sum(np.split(x, n))
    return x * np.concatenate([(1 + k % 2) * total for k in range(n)])


def _numpy_ppermute(x, n):
    parts = np.split(x, n)
    return x * np.concatenate([parts[-1], *parts[:-1]])


def _numpy_all_to_all(x, n):
    pieces = [np.split(block, n) for block in np.split(x, n)]
    return x * np.concatenate([pieces[j][i] for i in range(n) for j in range(n)])


def _numpy_psum(x, n):
    return x * np.concatenate([sum(np.split(x, n))] * n)


def _numpy_pmean(x, n):
    return _numpy_psum(x, n) / n


def _numpy_contraction(x, n):
    return x * (weights(len(x)) @ x)


def _numpy_convolution(x, n):
    none = np.zeros_like(x[:1])
    return x * (np.concatenate([none, x[:-1]]) + 2 * x - np.concatenate([x[1:], none]))


def _numpy_layer(x, n):
    matrix = weights(len(x))
    hidden = 2 * (matrix @ x) - 1
    return matrix.T @ (hidden * (hidden > 0))


def _numpy_gather(x, n):
    return x * np.stack([x[i] for i in targets(len(x))])


def _numpy_scatter(x, n):
    found = np.zeros_like(x)
    for row, i in zip(x, targets(len(x)), strict=True):
        found[i] += row
    return x * found


def _numpy_cumsum(x, n):
    return x * (np.tri(len(x)) @ x)


def _numpy_sort(x, n):
    return np.array([*map(sorted, (x * len(x) + np.arange(len(x))[::-1, None]).T)]).T


def _numpy_max(x, n):
    found = np.full_like(x[: len(x) // n], -np.inf)
    for k, block in enumerate(np.split(x, n)):
        found = np.where(n * block + (n - 1 - k) > found, n * block + (n - 1 - k), found)
    return x * np.concatenate([found] * n)


Function = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]

FUNCTIONS: dict[str, Function] = {
    "all_gather": (_local_all_gather, _whole_all_gather, _numpy_all_gather),
    "psum_scatter": (_local_psum_scatter, _whole_psum_scatter, _numpy_psum_scatter),
    "ppermute": (_local_ppermute, _whole_ppermute, _numpy_ppermute),
    "all_to_all": (_local_all_to_all, _whole_all_to_all, _numpy_all_to_all),
    "psum": (_local_psum, _whole_psum, _numpy_psum),
    "contraction": (_local_contraction, _whole_contraction, _numpy_contraction),
    "convolution": (_local_convolution, _whole_convolution, _numpy_convolution),
    "layer": (_local_layer, _whole_layer, _numpy_layer),
    "pmean": (_local_pmean, _whole_pmean, _numpy_pmean),
    "gather": (_local_gather, _whole_gather, _numpy_gather),
    "scatter": (_local_scatter, _whole_scatter, _numpy_scatter),
    "cumsum": (_local_cumsum, _whole_cumsum, _numpy_cumsum),
    "sort": (_local_sort, _whole_sort, _numpy_sort),
    "max": (_local_max, _whole_max, _numpy_max),
}
"""The programs of each function: for the local block, for the whole array, and in NumPy."""

GROUPS: dict[str, tuple[str, ...]] = {
    "collectives": ("all_gather", "psum_scatter", "ppermute", "all_to_all", "psum"),
    "products": ("contraction", "convolution", "layer", "pmean"),
    "elements": ("gather", "scatter", "cumsum", "sort", "max"),
}
"""The functions that one program of the standard profile transforms. A program per function would cost three times as
much."""


def exact_for(name, n):
    """Whether a function's results are exact on n devices. A mean divides by n."""
    return name != "pmean" or n & (n - 1) == 0


def of_blocks(name, axes):
    """The function for the local block."""
    return partial(FUNCTIONS[name][0], axes=axes)


def of_the_whole(name, n):
    """The function for the whole array."""
    return partial(FUNCTIONS[name][1], n=n)


def in_numpy(name, n):
    """The function in NumPy."""
    return partial(FUNCTIONS[name][2], n=n)
