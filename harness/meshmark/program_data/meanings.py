# SPDX-License-Identifier: Apache-2.0
"""Collectives over several mapped axes: they gather along one axis after the other, and select from the result.

The hunt computes the right result of a `shard_map` by `vmap` with axis names. But vmap's own ppermute takes only one
axis and a permutation of all devices, and its gathers and scatters take only one axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

Axes = str | Sequence[str]

COLLECTIVES = (
    *("psum", "pmax", "pmin", "pmean", "all_gather", "psum_scatter", "all_to_all", "ppermute"),
    *("pshuffle", "pswapaxes"),
)
"""The names of the collectives in jax.lax that programs have."""


def names_of(axes: Axes) -> tuple[str, ...]:
    """The names of one or several axes, as a tuple."""
    return (axes,) if isinstance(axes, str) else tuple(axes)


def gathered(x: Any, axes: Axes) -> Any:
    """The values of all positions along a new first dimension. The first axis varies slowest."""
    names = names_of(axes)
    for name in reversed(names):
        x = lax.all_gather(x, name)
    return x.reshape((-1, *x.shape[len(names) :]))


def place(axes: Axes) -> Any:
    """The position along all of these axes, as one index. The first axis varies slowest."""
    at: Any = 0
    for name in names_of(axes):
        at = at * lax.axis_size(name) + lax.axis_index(name)
    return at


def ppermute(x: Any, axis_name: Axes, perm: Sequence[Sequence[int]]) -> Any:
    """lax.ppermute. Positions that receive nothing have zeros."""
    every = gathered(x, axis_name)
    sources = [-1] * every.shape[0]
    for start, end in perm:
        sources[end] = start
    source = jnp.array(sources)[place(axis_name)]
    return jnp.where(source >= 0, every[jnp.maximum(source, 0)], jnp.zeros_like(x))


def pshuffle(x: Any, axis_name: Axes, perm: Sequence[int]) -> Any:
    """lax.pshuffle."""
    return ppermute(x, axis_name, [(source, to) for to, source in enumerate(perm)])


def all_gather(x: Any, axis_name: Axes, *, axis: int = 0, tiled: bool = False) -> Any:
    """lax.all_gather."""
    every = jnp.moveaxis(gathered(x, axis_name), 0, axis)
    if not tiled:
        return every
    shape = every.shape
    return every.reshape((*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def psum_scatter(x: Any, axis_name: Axes, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """lax.psum_scatter."""
    names = names_of(axis_name)
    total = lax.psum(x, names)
    count = math.prod(lax.axis_size(name) for name in names)
    size = total.shape[scatter_dimension] // count
    part = lax.dynamic_slice_in_dim(total, place(names) * size, size, scatter_dimension)
    return part if tiled else jnp.squeeze(part, scatter_dimension)


def all_to_all(x: Any, axis_name: Axes, split_axis: int, concat_axis: int, *, tiled: bool = False) -> Any:
    """lax.all_to_all. For an unmapped value vmap's own gives one dimension too many, so the value is mapped here."""
    varying = jnp.where(place(axis_name) < 0, jnp.zeros_like(x), x)
    return lax.all_to_all(varying, axis_name, split_axis, concat_axis, tiled=tiled)


def pswapaxes(x: Any, axis_name: Axes, axis: int) -> Any:
    """lax.pswapaxes."""
    return all_to_all(x, axis_name, axis, axis)


MEANINGS: dict[str, Callable[..., Any]] = {
    "lax.ppermute": ppermute,
    "lax.pshuffle": pshuffle,
    "lax.pswapaxes": pswapaxes,
    "lax.all_gather": all_gather,
    "lax.psum_scatter": psum_scatter,
    "lax.all_to_all": all_to_all,
}
"""The functions by the operation's name in a program."""
