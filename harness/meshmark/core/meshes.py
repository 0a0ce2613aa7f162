# SPDX-License-Identifier: Apache-2.0
"""Mesh shapes as plain integers, without devices: factorizations, labels and device order."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

AXIS_NAMES = ("x", "y", "z")
"""Axis names by position: a 2x4 mesh has x=2 and y=4."""


@dataclass(frozen=True)
class MeshShape:
    """The shape of a mesh over the first `size` devices, and the order in which it takes them.

    `order` is "" for the devices in their given order, "shuffled" for a fixed permutation of them (device i*k + 1
    mod n with k the smallest integer from 3 on that is coprime to n), or "interleaved" for alternating devices of the
    second and of the first half. With several processes, interleaved neighbours belong to different processes.
    """

    shape: tuple[int, ...]
    order: str = ""

    @property
    def label(self) -> str:
        """The label in case ids and options: 8, 2x4, 2x2x2, 2x4-shuffled."""
        return "x".join(map(str, self.shape)) + (f"-{self.order}" if self.order else "")

    def __str__(self) -> str:
        return self.label

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Axis names, in order."""
        return AXIS_NAMES[: len(self.shape)]

    @cached_property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.shape)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size by axis name."""
        return dict(zip(self.names, self.shape, strict=True))

    def product(self, axes: tuple[str, ...]) -> int:
        """The number of devices along these axes together."""
        return math.prod(self.sizes[a] for a in axes)

    def rest(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The other axes of the mesh, in mesh order."""
        return tuple(a for a in self.names if a not in axes)

    @cached_property
    def ordinals(self) -> np.ndarray:
        """Array of shape `shape`: the device at each position, as its index in the list of devices."""
        flat: np.ndarray = np.arange(self.size)
        if self.order == "shuffled":
            step = next(k for k in range(3, self.size + 4) if math.gcd(k, self.size) == 1)
            flat = (flat * step + 1) % self.size
        elif self.order == "interleaved":
            flat = np.roll(flat, self.size // 2).reshape(2, -1).T
        return flat.reshape(self.shape)

    def groups(self, axes: tuple[str, ...]) -> np.ndarray:
        """Flat mesh positions, int [number of groups, n]: the groups of a collective over `axes`.

        Within each group the last of `axes` runs fastest, as in JAX."""
        positions = np.arange(self.size).reshape(self.shape)
        order = [self.names.index(a) for a in (*self.rest(axes), *axes)]
        return positions.transpose(order).reshape(-1, self.product(axes))


_LABEL = re.compile(r"(\d+(?:x\d+){0,2})(?:-(shuffled|interleaved))?")


def parse_mesh(label: str) -> MeshShape:
    """The MeshShape of a label such as 2x4; ValueError, with the expected form, for any other text."""
    match = _LABEL.fullmatch(label)
    if not match or "0" in match[1].split("x"):
        raise ValueError(f"{label!r} is not a mesh shape: use one to three sizes such as 8, 2x4 or 2x2x2")
    shape = MeshShape(tuple(map(int, match[1].split("x"))), match[2] or "")
    if shape.order == "interleaved" and shape.size % 2:
        raise ValueError(f"{label!r} is not a mesh shape: interleaved needs an even number of devices")
    return shape


def factorizations(n: int, axes: int) -> Iterator[tuple[int, ...]]:
    """All ordered factorizations of n into `axes` factors, 1 included."""
    if axes == 1:
        yield (n,)
        return
    for first in range(1, n + 1):
        if n % first == 0:
            for others in factorizations(n // first, axes - 1):
                yield (first, *others)


@cache
def preferred(n: int) -> MeshShape:
    """The most square two-axis mesh of n devices, the smaller axis first: 8 -> 2x4."""
    return MeshShape(max((f for f in factorizations(n, 2) if f[0] <= f[1]), key=lambda f: f[0]))


EVERY_SHAPE = 16
"""The most devices for which every ordered factorization is a mesh; 1,024 devices would have 78."""


def shapes(n: int, axes: int) -> Iterator[tuple[int, ...]]:
    """The shapes with this many axes that are used for n devices: all of them, or only the extremes if n is large.

    The extremes are the shapes that are closest to a square or cube, the shapes with an axis of 2 (the smallest that
    communicates), 8 (the devices of a typical host) or 1 beside one large axis, and their reverses.
    """
    if n <= EVERY_SHAPE or axes == 1:
        yield from factorizations(n, axes)
        return
    rising = [f for f in factorizations(n, axes) if tuple(sorted(f)) == f]
    nearest = max(rising, key=lambda f: f[:-1])
    ends = [nearest, *(f for small in (1, 2, 8) for f in rising if f[:-1] == (small,) * (axes - 1))]
    for shape in dict.fromkeys(ends):
        yield from dict.fromkeys((shape, shape[::-1]))


def weighted(n: int, processes: int = 1) -> dict[MeshShape, int]:
    """The meshes of n devices with their weight: the distance from the preferred one, which has 0.

    The weight decides in which profiles a mesh is used (see `meshmark.operations.cases`). Sub-meshes of the first 3
    and 6 devices are included if n is larger and each process has one of those devices: a process without a device
    has no part in a program. With several processes there is an interleaved mesh too.
    """
    first = preferred(n)
    weights = {first: 0}
    for axes in (1, 2, 3):
        for shape in shapes(n, axes):
            # Axes of size 1 change little: three-axis shapes that have them come last.
            weights.setdefault(MeshShape(shape), 1 if 1 not in shape or axes == 1 else axes)
    if n > 2:
        weights[MeshShape(first.shape, "shuffled")] = 2
    if processes > 1 and n % 2 == 0:
        weights[MeshShape(first.shape, "interleaved")] = 1
    for odd in (3, 6):
        if n > odd > n - n // processes:
            weights[MeshShape((odd,))] = 2
            if odd == 6:
                weights |= {MeshShape((2, 3)): 2, MeshShape((3, 2)): 3}
    return weights
