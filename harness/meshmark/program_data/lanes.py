# SPDX-License-Identifier: Apache-2.0
"""The devices of a `shard_map` in NumPy: their coordinates, the blocks of an array, and what collectives do with one
array for each device.

A *lane* is what one device computes. Outside of a `shard_map` there is one lane.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meshmark.program_data.program import Spec

Axes = str | Sequence[str]
Values = list[np.ndarray]
"""One array for each lane."""


class Lanes:
    """The devices over some mesh axes, the first axis slowest."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.places = list(itertools.product(*(range(n) for n in sizes.values())))
        """The coordinates of each lane."""

    def coordinate(self, lane: int, axis: str) -> int:
        """The coordinate of a lane along one axis."""
        return self.places[lane][list(self.sizes).index(axis)]

    def groups(self, axes: Axes) -> list[list[int]]:
        """The lanes that communicate over these axes, group by group. In a group the first of the axes is slowest."""
        names = [axes] if isinstance(axes, str) else [*axes]
        found: dict[tuple[int, ...], list[int]] = {}
        for lane in range(len(self.places)):
            others = tuple(self.coordinate(lane, a) for a in self.sizes if a not in names)
            found.setdefault(others, []).append(lane)
        return [
            sorted(group, key=lambda lane: [self.coordinate(lane, a) for a in names])
            for group in found.values()
        ]

    def block(self, x: np.ndarray, spec: Spec, lane: int) -> np.ndarray:
        """The block of a whole array that a lane has."""
        return x[self._window(x.shape, spec, lane)]

    def _window(self, shape: Sequence[int], spec: Spec, lane: int) -> tuple[slice, ...]:
        window = []
        for d, n in enumerate(shape):
            at, parts = 0, 1
            for axis in spec[d] if d < len(spec) else ():
                at = at * self.sizes[axis] + self.coordinate(lane, axis)
                parts *= self.sizes[axis]
            size = n // parts
            window.append(slice(at * size, (at + 1) * size))
        return tuple(window)

    def whole(self, blocks: Values, spec: Spec) -> np.ndarray:
        """The whole array of which each lane has a block. Over axes that the spec does not name, lane 0 counts."""
        first = blocks[0]
        parts = [
            math.prod(self.sizes[a] for a in (spec[d] if d < len(spec) else ())) for d in range(first.ndim)
        ]
        made = np.empty([n * k for n, k in zip(first.shape, parts, strict=True)], first.dtype)
        for lane in reversed(range(len(blocks))):
            made[self._window(made.shape, spec, lane)] = blocks[lane]
        return made


def by_group(function: Callable[..., Values]) -> Callable[..., Values]:
    """A collective of lanes, made from one of a single group: it takes and gives one array for each member."""

    def run(lanes: Lanes, values: Values, axes: Axes, *args: Any, **kwargs: Any) -> Values:
        found: Values = [*values]
        for group in lanes.groups(axes):
            for lane, result in zip(
                group, function([values[k] for k in group], *args, **kwargs), strict=True
            ):
                found[lane] = result
        return found

    return run


def make_sum(function: np.ufunc) -> Callable[..., Values]:
    """psum, pmax or pmin of a group."""

    def run(given: Values) -> Values:
        total = function.reduce(np.stack(given), axis=0, dtype=given[0].dtype)
        return [np.asarray(total)] * len(given)

    return run


def pmean(given: Values) -> Values:
    """lax.pmean of a group."""
    total = np.stack(given).astype(np.float64).sum(axis=0) / len(given)
    return [total] * len(given)


def all_gather(given: Values, *, axis: int = 0, tiled: bool = False) -> Values:
    """lax.all_gather of a group."""
    found = np.concatenate(given, axis) if tiled else np.stack(given, axis)
    return [found] * len(given)


def psum_scatter(given: Values, *, scatter_dimension: int = 0, tiled: bool = False) -> Values:
    """lax.psum_scatter of a group."""
    total = np.stack(given).sum(axis=0, dtype=given[0].dtype)
    parts = np.split(total, len(given), scatter_dimension)
    return parts if tiled else [p.squeeze(scatter_dimension) for p in parts]


def all_to_all(given: Values, split_axis: int, concat_axis: int, *, tiled: bool = False) -> Values:
    """lax.all_to_all of a group."""
    sent = [np.split(x, len(given), split_axis) for x in given]
    if tiled:
        return [np.concatenate([parts[k] for parts in sent], concat_axis) for k in range(len(given))]
    return [
        np.stack([parts[k].squeeze(split_axis) for parts in sent], concat_axis) for k in range(len(given))
    ]


def pswapaxes(given: Values, axis: int) -> Values:
    """lax.pswapaxes of a group."""
    return all_to_all(given, axis, axis)


def ppermute(given: Values, perm: Sequence[Sequence[int]]) -> Values:
    """lax.ppermute of a group. Who receives nothing has zeros."""
    found = [np.zeros_like(x) for x in given]
    for source, to in perm:
        found[to] = given[source]
    return found


def pshuffle(given: Values, perm: Sequence[int]) -> Values:
    """lax.pshuffle of a group: member k has the array of member perm[k]."""
    return [given[source] for source in perm]


OF_A_GROUP: dict[str, Callable[..., Values]] = {
    "psum": make_sum(np.add),
    "pmax": make_sum(np.maximum),
    "pmin": make_sum(np.minimum),
    "pmean": pmean,
    "all_gather": all_gather,
    "psum_scatter": psum_scatter,
    "all_to_all": all_to_all,
    "pswapaxes": pswapaxes,
    "ppermute": ppermute,
    "pshuffle": pshuffle,
}
"""The collectives of one group, by the name of the function in jax.lax."""

COLLECTIVES: dict[str, Callable[..., Values]] = {
    f"lax.{name}": by_group(function) for name, function in OF_A_GROUP.items()
}
"""The collectives, by the operation's name in a program. Each takes the lanes, their arrays, and its own arguments."""
