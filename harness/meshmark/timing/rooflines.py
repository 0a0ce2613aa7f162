# SPDX-License-Identifier: Apache-2.0
"""Computes rooflines: the least time of the same work, by published peaks of the devices or by measured ceilings.

The model is the roofline (S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009) with a third part,
the network:

    compute = flops / peak FLOP/s               flops of the plan's model, all devices together
    memory  = bytes moved / memory bandwidth    arguments read once and results written once, per device
    network = the time that the links need      the collectives of the theory, see devices.projection

The longest part is the ceiling that binds. The share of the ceiling is its time over the measured time. The arithmetic
intensity is flops over bytes moved. The bytes moved are the least that the program must move, so further traffic for
temporaries makes the share smaller. A program whose arrays stay in a cache can exceed the memory's ceiling.

A collective (a case with a factor of bus bandwidth) has only the network part. Its links are those that its groups can
use: the axes of the torus along which they lie, shared by all groups at once, or the switch of the host and its network
adapters. Its peak of bus bandwidth is S f over the time that these links need, with S and f of the bandwidth table of
nccl-tests (doc/PERFORMANCE.md).

Published peaks come from devices.chips. For a kind of device that is not listed there, the ceilings that the same run
measured (timing.ceilings) replace them, and texts name them as measured. Virtual devices have no network part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from meshmark.core import meshes
from meshmark.core.errors import BadInput
from meshmark.devices import chips, projection
from meshmark.devices.chips import Chip
from meshmark.devices.projection import Fabric
from meshmark.judge import theory
from meshmark.operations import cases
from meshmark.operations.base import Traffic
from meshmark.records.definition import CeilingLine, TimingLine
from meshmark.records.run_definition import Device, RunFacts


@dataclass(frozen=True)
class Ceiling:
    """One part of a roofline."""

    part: str
    """compute, memory or network."""
    seconds: float
    """The least time of this part."""
    name: str
    """What the peak is of, and whether it was published or measured."""


@dataclass(frozen=True)
class Rooflines:
    """The peaks and ceilings of one run: its kind of device, the places of its devices, and its ceiling lines."""

    device_kind: str = ""
    virtual: bool = False
    ceilings: Sequence[CeilingLine] = field(default_factory=tuple)
    devices: Sequence[Device] = field(default_factory=tuple)
    """`id`, `process` and `coords` of each device, in the order in which meshes take them; () if not known."""
    _traffic: dict[str, tuple[Traffic, ...] | None] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, facts: RunFacts, ceilings: Iterable[CeilingLine]) -> Rooflines:
        """Make them from the facts of a run and its ceiling lines."""
        devices = tuple(d for d in facts.get("devices") or () if isinstance(d, dict))
        return cls(str(facts.get("device_kind")), bool(facts.get("virtual")), tuple(ceilings), devices)

    @cached_property
    def chip(self) -> Chip | None:
        """The listed chip of this kind of device."""
        return chips.chip_of(self.device_kind)

    def binding(self, record: TimingLine) -> Ceiling | None:
        """The ceiling that binds a timing record: the longest of the parts that are known; None if none is."""
        return max(self.roofline(record), key=lambda one: one.seconds, default=None)

    def roofline(self, record: TimingLine) -> list[Ceiling]:
        """The known parts of a timing record's roofline; no part of zero seconds."""
        cost = record.get("cost") or {}
        parts = [self._network(record)]
        if not cost.get("factor"):
            parts += [self._compute(record), self._memory(record)]
        return [part for part in parts if part is not None and part.seconds > 0]

    # Compute and memory ---------------------------------------------------------------------------------------

    def _compute(self, record: TimingLine) -> Ceiling | None:
        flops = (record.get("cost") or {}).get("flops", 0)
        peak = self.flops(record["dtype"], record.get("precision", ""), _devices(record)) if flops else None
        return Ceiling("compute", flops / peak[0], peak[1]) if peak else None

    def flops(self, dtype: str, precision: str, devices: int) -> tuple[float, str] | None:
        """(FLOP/s of `devices` devices together, name of the peak)."""
        if self.chip:
            peak = chips.peak_flops(self.chip, dtype, precision)
            return None if peak is None else (devices * peak, f"{self.chip.name} {dtype}, published")
        found = self._measured("largest matmul", dtype)
        return (
            None
            if found is None
            else (self._together(found, devices), f"largest {dtype} matmul measured here")
        )

    def _memory(self, record: TimingLine) -> Ceiling | None:
        nbytes, devices = moved(record), _devices(record)
        peak = self.memory(devices)
        return Ceiling("memory", nbytes * devices / peak[0], peak[1]) if nbytes and peak else None

    def memory(self, devices: int) -> tuple[float, str] | None:
        """(bytes/s between `devices` devices together and their memories, name of the peak)."""
        if self.chip:
            each = self.chip.memory_bandwidth / self.chip.devices_per_chip
            return devices * each, f"{self.chip.name} memory, published"
        found = self._measured("copy bandwidth")
        return None if found is None else (self._together(found, devices), "copy bandwidth measured here")

    def _measured(self, name: str, dtype: str = "") -> tuple[float, float] | None:
        """(the best of one device, of all together)."""
        values = [
            (c["value"] / c.get("devices", 1), c["value"])
            for c in self.ceilings
            if c["name"] == name and dtype in ("", c.get("dtype"))
        ]
        return max(values, default=None)

    def _together(self, found: tuple[float, float], devices: int) -> float:
        """The rate of `devices` devices. Virtual devices: all cores work, even if few devices take part."""
        per_device, total = found
        return total if self.virtual else devices * per_device

    # The network ----------------------------------------------------------------------------------------------

    def _network(self, record: TimingLine) -> Ceiling | None:
        """The ceiling of the links. Virtual devices have none: their messages go through caches and share the cores, so
        no bandwidth of the machine bounds them."""
        if self.virtual:
            return None
        cost = record.get("cost") or {}
        bus = cost.get("nbytes", 0) * cost.get("factor", 0.0)
        chip = self.chip
        if chip is None:
            found = self._measured("copy bandwidth") if bus else None
            return Ceiling("network", bus / found[0], "copy bandwidth measured here") if found else None
        fabric = self._fabric(record)
        traffic = self._traffic_of(record) if fabric else None
        if fabric and traffic is not None:
            return Ceiling("network", *_least(traffic, fabric))
        if not bus:
            return None
        every = chip.links * chip.link_bandwidth / chip.devices_per_chip
        return Ceiling("network", bus / every, f"{chip.name}, all {chip.links} links, published")

    def _fabric(self, record: TimingLine) -> Fabric | None:
        """The links between the devices of a record's mesh; None if the record does not give enough."""
        chip = self.chip
        try:
            order = meshes.parse_mesh(record.get("mesh", "")).ordinals.ravel()
        except (ValueError, TypeError):
            return None
        if chip is None or len(self.devices) <= max(order):
            return None
        if chip.network == "switch":
            return projection.switched(chip, self._hosts[order].tolist())
        slice_ = self._slice
        return (
            None
            if slice_ is None
            else projection.torus(chip, slice_[order], (slice_.max(axis=0) + 1).tolist())
        )

    @cached_property
    def _hosts(self) -> np.ndarray:
        """int [devices]: the host of each device. Records hold no names of hosts: devices are numbered host by host,
        and a host has as many as its chip's switch joins."""
        assert self.chip
        return np.arange(len(self.devices)) // self.chip.domain

    @cached_property
    def _slice(self) -> np.ndarray | None:
        """int [devices, dimensions]: where each device's chip lies in its slice; None for devices without coordinates,
        and for several slices, whose chips repeat coordinates: the network between slices is not described."""
        assert self.chip
        coordinates = [tuple(d.get("coords") or ())[: self.chip.dimensions] for d in self.devices]
        if any(len(c) < self.chip.dimensions or not all(type(n) is int for n in c) for c in coordinates):
            return None
        if max(map(coordinates.count, set(coordinates))) > self.chip.devices_per_chip:
            return None
        found = np.array(coordinates)
        return np.asarray(found - found.min(axis=0))

    def _traffic_of(self, record: TimingLine) -> tuple[Traffic, ...] | None:
        """The collectives that the record's case must run, by its operation's plan; None if it names none. A theory
        that is a function of moves or rules names no collectives, but bytes."""
        case = record.get("case", "")
        if case not in self._traffic:
            try:
                plan = cases.find(case, len(self.devices)).plan
                self._traffic[case] = plan.traffic if callable(plan.owed) else theory.owed_traffic_of(plan)
            except (BadInput, ValueError):  # not in this table
                self._traffic[case] = None
        return self._traffic[case]


def moved(record: TimingLine) -> float:
    """Bytes that one device must read and write at least: its arguments and its results; 0 if they are not known."""
    parts = [record.get("argument_bytes"), record.get("output_bytes")]
    return float(sum(p for p in parts if isinstance(p, (int, float)))) if None not in parts else 0.0


def intensity(record: TimingLine) -> float | None:
    """The arithmetic intensity of a timing record: the model's flops of one device over the bytes that it moves at
    least, in FLOP/B. None for a collective, or without flops or bytes."""
    cost, nbytes = record.get("cost") or {}, moved(record)
    if cost.get("factor") or not cost.get("flops") or not nbytes:
        return None
    return float(cost["flops"] / _devices(record) / nbytes)


def _devices(record: TimingLine) -> int:
    return int(record.get("devices") or 1)


def _least(traffic: Sequence[Traffic], fabric: Fabric) -> tuple[float, str]:
    """The least time of these collectives one after the other, and the name of the links that take longest."""
    each = [projection.slowest_links(theory.as_collective(one), fabric) for one in traffic]
    _, name = max(each, default=(0.0, ""))
    return float(sum(seconds for seconds, _ in each)), f"{fabric.chip.name} links {name}, published"
