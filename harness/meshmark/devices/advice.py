# SPDX-License-Identifier: Apache-2.0
"""Advises a mesh shape for each kind of parallelism on the given devices: rules of thumb, each with its reason.

Every rule follows from two facts. A collective on the critical path of every layer (tensor, sequence, expert
parallelism) needs the fastest links, those within a process or along a ring of the torus. A collective that runs once
per step (data parallelism), or that only sends activations to the next stage (pipeline parallelism), tolerates slow
links. So its axis is the outermost, which crosses processes. The suite can measure whether the rules hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from meshmark.devices.facts import Facts

WIDEST = 8
"""The widest advised tensor axis: on a wider one a layer's blocks are small and its collectives slow."""


@dataclass(frozen=True)
class Advice:
    """One parallelism: the shape and the axis names, outermost first, and why."""

    parallelism: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    why: str

    @property
    def mesh(self) -> str:
        """The shape and the axis names as text: 2x4 (data, model)."""
        return f"{'x'.join(map(str, self.shape))} ({', '.join(self.axes)})"


def local_devices(facts: Facts) -> int:
    """The number of devices per process; the fewest, if processes differ."""
    return min(Counter(d["process"] for d in facts.devices).values(), default=facts.num_devices)


def torus(facts: Facts) -> tuple[int, ...]:
    """The extent of the devices' coordinates, without dimensions of size 1; () if the devices have no coordinates."""
    coords = [d["coords"] for d in facts.devices]
    if not coords or not all(coords):
        return ()
    return tuple(n for n in (len(set(line)) for line in zip(*coords, strict=False)) if n > 1)


def inner_size(facts: Facts) -> int:
    """The size of the fast axis: within a process, along one side of the torus if there is one, at most
    WIDEST, with room for another axis if there are four devices or more."""
    total, local, sides = facts.num_devices, local_devices(facts), torus(facts)
    most = min([WIDEST, local, *([max(sides)] if sides else []), max(total // 2, 1) if total >= 4 else total])
    return max(d for d in range(1, most + 1) if total % d == 0 and (local % d == 0 or local >= total))


def advise(facts: Facts) -> list[Advice]:
    """The advice for these devices, the simplest parallelism first."""
    n, processes = facts.num_devices, facts.num_processes
    if n == 1:
        return [Advice("none", (1,), ("data",), "one device: every sharding is the whole array")]
    return list(_several(n, processes, local_devices(facts), inner_size(facts)))


def _several(n: int, processes: int, local: int, inner: int) -> Iterator[Advice]:
    outer = n // inner
    yield Advice(
        "data",
        (n,),
        ("data",),
        f"the batch divides by {n}; one all-reduce of the gradients per step, which overlaps with the backward"
        " pass: this axis tolerates slow links, so in a larger mesh make it the outermost, across processes",
    )
    hybrid = processes > 1 and local > 1 and processes * local == n
    where = "keep it within a process, and replicate across processes" if hybrid else "it needs fast links"
    yield Advice(
        "fully sharded data",
        (processes, local) if hybrid else (n,),
        ("replica", "data") if hybrid else ("data",),
        "parameters and optimizer state are sharded too; each layer is all-gathered and its gradient"
        f" reduce-scattered, 1.5 times the bytes of data parallelism and in every layer: {where}",
    )
    if inner == 1:
        yield Advice("tensor", (1, n), ("data", "model"), _awkward(n, processes))
        return
    yield Advice(
        "tensor",
        (outer, inner),
        ("data", "model"),
        "two all-reduces per layer are on the critical path: use the smallest, fastest axis, within a process or"
        f" along a ring of the ICI; heads, hidden width and vocabulary divide by {inner}",
    )
    yield Advice(
        "sequence or context",
        (outer, inner),
        ("data", "seq"),
        "keys and values go around a ring (ppermute) or are all-gathered in every layer: neighbours on fast"
        f" links; the sequence divides by {inner}",
    )
    yield Advice(
        "expert",
        (outer, inner),
        ("data", "expert"),
        "two all_to_alls per layer load all links at once: keep them within a process; the number of experts"
        f" divides by {inner}",
    )
    stages = processes if hybrid else outer
    yield Advice(
        "pipeline",
        (stages, n // stages),
        ("stage", "data"),
        "each stage sends activations only to the next one (ppermute), the least traffic of all: use the outermost"
        f" axis, across processes; the layers divide by {stages}, and {4 * stages} microbatches or more keep"
        " the idle part below a fifth",
    )
    if three := _three(outer, inner):
        yield Advice(
            "data, fully sharded data and tensor",
            three,
            ("replica", "data", "model"),
            "three axes by how often they communicate: once per step, once per layer, several times per layer",
        )


def _three(outer: int, inner: int) -> tuple[int, int, int] | None:
    """Three factors of outer * inner: the outer one divided, otherwise the inner one; None if neither divides."""
    for d in range(2, outer):
        if outer % d == 0:
            return d, outer // d, inner
    for d in range(2, inner):
        if inner % d == 0 and outer > 1:
            return outer, d, inner // d
    return None


def _awkward(n: int, processes: int) -> str:
    if processes == n:
        return (
            "each process has one device: every axis crosses processes, which makes tensor parallelism slow"
        )
    return f"{n} devices have no smaller factor: heads and widths must divide by {n}, or use fewer devices"


def notes(facts: Facts) -> list[str]:
    """Further notes on the placement of these devices."""
    found = []
    if facts.virtual:
        found.append("virtual devices share the cores of one machine: shapes can be tried here, speeds can't")
    if sides := torus(facts):
        found.append(
            f"the devices form a torus of {'x'.join(map(str, sides))}: an axis that is a full side, or a"
            " product of sides, is a ring of neighbours; jax.make_mesh orders the devices this way"
        )
    if facts.num_processes > 1:
        local = local_devices(facts)
        found.append(
            f"{facts.num_processes} processes of {local} devices: innermost axes whose product divides"
            f" {local} stay within a process; jax.experimental.mesh_utils.create_hybrid_device_mesh orders"
            " devices this way"
        )
    if math.log2(facts.num_devices) % 1:
        found.append(
            f"{facts.num_devices} is not a power of two: most heads and widths are multiples of powers of two"
        )
    found.append(
        "in Python: jax.make_mesh((2, 4), ('data', 'model'), axis_types=(AxisType.Auto,) * 2); without"
        " axis_types its axes are Explicit"
    )
    return found
