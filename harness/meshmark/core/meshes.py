"""Mesh shapes without devices: factorizations, labels and device order, in plain integers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

AXIS_NAMES = ("x", "y", "z")
"""Axis names by position: a 2x4 mesh has x=2 and y=4."""


@dataclass(frozen=True)
class MeshShape:
    """The shape of a mesh over the first `size` devices, and the order in which it takes them.

    `order` is "" for the devices as they come, "shuffled" for a fixed permutation of them (device i*k + 1 mod n
    with k the smallest integer from 3 on that is coprime to n), or "interleaved" for one device of the second half
    and one of the first in turn: neighbours then belong to different processes wherever there are several.
    """

    shape: tuple[int, ...]
    order: str = ""

    @property
    def label(self) -> str:
        """How people and case ids spell it: 8, 2x4, 2x2x2, 2x4-shuffled."""
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
        """The axes of the mesh that are not among these, in mesh order."""
        return tuple(a for a in self.names if a not in axes)

    @cached_property
    def ordinals(self) -> np.ndarray:
        """Array of shape `shape`: which device (by position in the list of devices) stands where."""
        flat: np.ndarray = np.arange(self.size)
        if self.order == "shuffled":
            step = next(k for k in range(3, self.size + 4) if math.gcd(k, self.size) == 1)
            flat = (flat * step + 1) % self.size
        elif self.order == "interleaved":
            flat = np.roll(flat, self.size // 2).reshape(2, -1).T
        return flat.reshape(self.shape)

    def groups(self, axes: tuple[str, ...]) -> np.ndarray:
        """Flat mesh positions of shape [number of groups, n]: the groups that a collective over `axes`
        forms, each ordered with the last of `axes` running fastest, as in JAX."""
        positions = np.arange(self.size).reshape(self.shape)
        order = [self.names.index(a) for a in (*self.rest(axes), *axes)]
        return positions.transpose(order).reshape(-1, self.product(axes))


_LABEL = re.compile(r"(\d+(?:x\d+){0,2})(?:-(shuffled|interleaved))?")


def parse(label: str) -> MeshShape:
    """The MeshShape of a label such as 2x4; ValueError says what a label looks like."""
    match = _LABEL.fullmatch(label)
    if not match or "0" in match[1].split("x"):
        raise ValueError(f"{label!r} is no mesh shape: use one to three sizes such as 8, 2x4 or 2x2x2")
    shape = MeshShape(tuple(map(int, match[1].split("x"))), match[2] or "")
    if shape.order == "interleaved" and shape.size % 2:
        raise ValueError(f"{label!r} is no mesh shape: an odd number of devices has no halves to interleave")
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


def preferred(n: int) -> MeshShape:
    """The most square two-axis mesh of n devices, the smaller axis first: 8 -> 2x4."""
    return MeshShape(max((f for f in factorizations(n, 2) if f[0] <= f[1]), key=lambda f: f[0]))


EVERY_SHAPE = 16
"""Devices up to which every ordered factorization is a mesh; 1,024 devices would have 78."""


def shapes(n: int, axes: int) -> Iterator[tuple[int, ...]]:
    """The shapes of so many axes that are used for n devices: all, or of many devices those at the ends.

    At the ends are the shapes that come closest to a square or cube, those with an axis of 2 (the smallest that
    communicates), of 8 (what one host holds, as a rule) or of 1 beside one large axis, and their reverses.
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
    """The meshes of n devices with their weight: how far each stands from the preferred one (0).

    The weight decides from which profile on a mesh is used (see `meshmark.operations.cases`). Sub-meshes of the
    first 3 and 6 devices are included where there are as many, and where each of the processes has one of them: a
    process without a device has no part in a program. Several processes have an interleaved mesh too.
    """
    first = preferred(n)
    weights = {first: 0}
    for axes in (1, 2, 3):
        for shape in shapes(n, axes):
            # Axes of size 1 change little: shapes of three axes with them come last.
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
