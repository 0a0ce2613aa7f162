# SPDX-License-Identifier: Apache-2.0
"""Projections of time: the least that one execution of a compiled program can take, by published peaks.

A projection is arithmetic, not a measurement, and is always called a projection. Its parts are

    compute = flops / peak FLOP/s
    memory  = bytes accessed / bandwidth of the chip's memory
    network = sum over the collectives of network_seconds

for one device. The projection is the largest of them: a roofline (S. Williams, A. Waterman, D. Patterson, "Roofline",
CACM 52(4), 2009), in which computing, memory and network overlap perfectly. A program without any overlap takes the
sum of the parts; programs lie between the two or above. A part whose peak is not published is None and left out.
flops and bytes are those of XLA's cost analysis, which counts the operands and results of each fused operation: if
these stay in a cache or in VMEM, the memory part is too long.

Network. For any set R of chips, a collective must bring a certain number of bytes into R and out of R, with any
algorithm, and these bytes cross the links at R's boundary. So

    network_seconds = max over R of  max(bytes in, bytes out) / (links across * bandwidth of a link, one way).

For a group of n members with a of them inside R, b = n - a outside, and payload S as in `meshmark.core.hlo.Collective`:

    kind                bytes in   bytes out
    all-gather          S b / n    S a / n      each shard from outside enters at least once
    reduce-scatter      S a / n    S b / n      contributions are added up before they cross
    all-to-all          S a b / n  S a b / n
    all-reduce          a reduce-scatter, then an all-gather; on a switch that adds up: S and S
    collective-permute  S per pair that crosses, and at least S / (one route's bandwidth)
    broadcast           S

On a torus R runs over the corner chip, the rows and planes through it, and all slabs; this gives the textbook
figures: a ring of k with wraparound links all-gathers S (k-1)/k in S (k-1)/k / 2W, w axes together in 1/w of that, an
all-reduce takes twice as long, and an all-to-all is bound by the bisection, k S / 8W ("How to Scale Your Model",
https://jax-ml.github.io/scaling-book/sharding; P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms",
2009). Slices have wraparound links along an axis of 16 (v5e, v6e), or, if all axes are multiples of 4, along all axes
(v4, v5p, tpu7x). Twisted tori are not supported. Behind a switch R is one chip, and one host with its network adapters.
Latency, and traffic between the two devices of one chip (tpu7x), are left out: both only add time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshmark.core.hlo import Collective
from meshmark.devices.chips import Chip, peak_flops


@dataclass(frozen=True)
class Region:
    """A set of chips, and the bandwidth of the links across its boundary."""

    name: str
    """What the set is, for sentences: "out of a corner of 1x4 chips"."""
    members: np.ndarray
    """bool [devices of the mesh]: which devices are inside."""
    bandwidth: float
    """Bytes/s into the set, and the same out of it."""
    one_chip: bool = False
    """Whether the set is a single chip behind a switch."""


@dataclass(frozen=True)
class Fabric:
    """The network between the devices of a mesh."""

    chip: Chip
    regions: tuple[Region, ...]
    chips: np.ndarray
    """int [devices of the mesh]: which devices share a chip."""
    route: float
    """The most bytes/s between one source and one target."""


@dataclass(frozen=True)
class Projection:
    """The projected seconds of one execution, part by part; None if a peak is not published."""

    compute: float | None
    memory: float | None
    network: float | None

    @property
    def seconds(self) -> float | None:
        """The largest known part: the least time of a program that overlaps all three."""
        return max((part for part in self.parts.values() if part is not None), default=None)

    @property
    def parts(self) -> dict[str, float | None]:
        """The parts by name."""
        return {"compute": self.compute, "memory": self.memory, "network": self.network}

    @property
    def limit(self) -> str:
        """The name of the largest part; "" if none is known or all are zero."""
        known = {name: part for name, part in self.parts.items() if part}
        return max(known, key=known.__getitem__, default="")


def wraparound(chip: Chip, shape: Sequence[int]) -> tuple[bool, ...]:
    """For each axis, whether a slice of this physical shape has wraparound links along it."""
    if chip.dimensions == 2:
        return tuple(k == 16 for k in shape)
    cubes = all(k % 4 == 0 for k in shape)
    return tuple(cubes and k >= 4 for k in shape)


def torus(chip: Chip, coordinates: np.ndarray, shape: Sequence[int]) -> Fabric:
    """The fabric of a slice of this physical shape; coordinates is int [devices of the mesh, axes], in the
    order of the flattened mesh. ValueError if they do not lie in the slice."""
    where = np.asarray(coordinates)
    if where.ndim != 2 or where.shape[1] != len(shape) or (where >= shape).any() or (where < 0).any():
        raise ValueError(f"coordinates {where.shape} do not lie in a slice of shape {tuple(shape)}")
    wraps = wraparound(chip, shape)
    axes = [axis for axis, k in enumerate(shape) if k > 1]
    regions = []
    for number in range(1, len(axes) + 1):
        for fixed in itertools.combinations(axes, number):
            inside = (where[:, list(fixed)] == 0).all(axis=1)
            chips = math.prod(k for axis, k in enumerate(shape) if axis not in fixed)
            links = chips * sum(2 if wraps[axis] else 1 for axis in fixed)
            name = "x".join("1" if axis in fixed else str(k) for axis, k in enumerate(shape))
            regions.append(Region(f"out of a corner of {name} chips", inside, links * chip.link_bandwidth))
    for axis in axes:
        across = math.prod(shape) // shape[axis] * (2 if wraps[axis] else 1)
        for end in range(2, shape[axis]):
            inside = where[:, axis] < end
            name = f"out of the first {end} of {shape[axis]} chips along axis {axis}"
            regions.append(Region(name, inside, across * chip.link_bandwidth))
    order = np.ravel_multi_index(tuple(where.T), tuple(shape))
    return Fabric(chip, tuple(regions), order, chip.link_bandwidth)


def switched(chip: Chip, hosts: Sequence[int]) -> Fabric:
    """The fabric of hosts whose chips share a switch; hosts is int [devices of the mesh], in the order of the
    flattened mesh."""
    host = np.asarray(hosts)
    inner = chip.links * chip.link_bandwidth
    several = bool((host != host[0]).any())
    outer = (chip.host_bandwidth or math.inf) if several else 0.0
    positions = np.arange(len(host))
    regions = [
        Region("out of one chip", positions == i, inner + outer, one_chip=True) for i in {0, len(host) - 1}
    ]
    if several and chip.host_bandwidth is not None:
        for h in {int(host[0]), int(host[-1])}:
            regions.append(Region("out of one host", host == h, chip.domain * chip.host_bandwidth))
    return Fabric(chip, tuple(regions), positions, inner)


def fabric_of(chip: Chip, shape: Sequence[int], devices: Sequence[Any], slices: int = 1) -> Fabric | None:
    """The fabric between JAX devices in the order of the flattened mesh: a slice of this physical shape of a
    torus, by their `coords`, or hosts with a switch, by their `process_index`. None for several slices, because the
    network between slices is not described."""
    if slices > 1:
        return None
    if chip.network == "torus":
        return torus(chip, np.array([d.coords[: len(shape)] for d in devices]), shape)
    return switched(chip, [d.process_index for d in devices])


def network_seconds(collective: Collective, fabric: Fabric) -> float:
    """The least time of one collective, with its trips (an unknown number counts as one)."""
    return slowest_links(collective, fabric)[0]


def slowest_links(collective: Collective, fabric: Fabric) -> tuple[float, str]:
    """(the least time of one collective with its trips, the links that take it); (0, "") if nothing crosses links."""
    times = [(_seconds(collective, fabric, region), region.name) for region in fabric.regions]
    if collective.kind == "collective-permute" and len(_moved(collective, fabric)):
        times.append((collective.nbytes / fabric.route, "on one route"))
    seconds, name = max(times, key=lambda one: one[0], default=(0.0, ""))
    return seconds * (1 if collective.trips is None else collective.trips), name if seconds else ""


def project(
    collectives: Iterable[Collective],
    fabric: Fabric,
    flops: float | None,
    bytes_accessed: float | None,
    dtype: str,
    precision: str = "default",
) -> Projection:
    """The projection of a compiled program. One device does `flops` and accesses `bytes_accessed`
    (None: unknown), in products of this dtype and precision."""
    chip = fabric.chip
    peak = peak_flops(chip, dtype, precision)
    bandwidth = chip.memory_bandwidth / chip.devices_per_chip
    return Projection(
        compute=None if flops is None or peak is None else flops / peak,
        memory=None if bytes_accessed is None else bytes_accessed / bandwidth,
        network=sum(network_seconds(c, fabric) for c in collectives),
    )


def exposed_seconds(
    collective: Collective,
    fabric: Fabric,
    flops: float,
    main_bytes: float,
    dtype: str,
    precision: str = "default",
) -> float:
    """The projected time of one run of an asynchronous collective that the work between its start and done does not
    hide: max(0, communication - work). The work is `flops` and `main_bytes`, bytes of the main memory, of one device.
    Its time is the roofline by the published peaks. Both are least times, so the difference is not a bound."""
    once = replace(collective, trips=1)
    done = project((), fabric, flops, main_bytes, dtype, precision)
    return max(0.0, network_seconds(once, fabric) - (done.seconds or 0.0))


def _moved(collective: Collective, fabric: Fabric) -> np.ndarray:
    """The pairs of a collective-permute that go from one chip to another, int [pairs, 2]."""
    pairs = np.array(collective.pairs, dtype=np.int64).reshape(-1, 2)
    return pairs[fabric.chips[pairs[:, 0]] != fabric.chips[pairs[:, 1]]]


def _seconds(c: Collective, fabric: Fabric, region: Region) -> float:
    """The bytes that cross the region's boundary, divided by the bandwidth there."""
    if c.kind == "collective-permute":
        source, target = region.members[_moved(c, fabric)].T
        into, out = int((target & ~source).sum()), int((source & ~target).sum())
        return c.nbytes * max(into, out) / region.bandwidth
    if c.kind != "all-reduce":
        return max(_crossing(c, c.kind, region)) / region.bandwidth
    if fabric.chip.switch_reduces and region.one_chip:
        return max(_crossing(c, "all-reduce", region)) / region.bandwidth
    phases = ("reduce-scatter", "all-gather")
    return sum(max(_crossing(c, phase, region)) for phase in phases) / region.bandwidth


def _crossing(c: Collective, kind: str, region: Region) -> tuple[float, float]:
    """(bytes in, bytes out) of all groups together."""
    into = out = 0.0
    for members, n in _by_size(c, region.members):
        a = members.sum(axis=1)
        a = a[(a > 0) & (a < n)].astype(float)
        b = n - a
        if kind == "all-gather":
            shares = b / n, a / n
        elif kind == "reduce-scatter":
            shares = a / n, b / n
        elif kind in ("all-to-all", "ragged-all-to-all"):
            shares = a * b / n, a * b / n
        else:
            shares = np.ones_like(a), np.ones_like(a)
        into += c.nbytes * float(shares[0].sum())
        out += c.nbytes * float(shares[1].sum())
    return into, out


def _by_size(c: Collective, inside: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """(bool [groups, n], n) for the groups of each size n."""
    for n in {len(group) for group in c.groups}:
        yield inside[np.array([group for group in c.groups if len(group) == n])], n
