# SPDX-License-Identifier: Apache-2.0
"""The growth of a program's cost with the number of devices, compared with theory.

A series is one operation, variant, mode and scaling over topologies of one chip, from few devices to many. Each
topology has a mesh of two axes that are dimensions of the topology (`mesh_of`). Strong scaling keeps the size of all
arguments. Weak scaling keeps the size of each device's part. Sizes are powers of two, as near as the operation allows;
the chosen size is recorded.

The theory of each quantity of one device:

    bytes on the wire   the contract of manual mode: f S of each specified collective (core.hlo.wire_bytes)
    flops               the operation's flops divided by the number of devices
    memory              for operations that move data: arguments, results, and the payload of the largest specified
                        collective; for contractions, layers and training, whose temporaries the compiler chooses:
                        the memory of manual mode
    collectives run     the number in manual mode; for manual mode, the number on the fewest devices
    compile seconds     growth no faster than the number of devices

A quantity that grows faster is a finding: the ratio of the seen value to theory, over the number of devices, has a
slope of more than SLOPE on logarithmic scales, and its last value is at least FACTOR and FACTOR times its first. A
constant factor (padding, a mode that always sends twice the bytes) is not growth; the tables show it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshmark.core import meshes
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.errors import BadInput
from meshmark.core.hlo import Collective, wire_bytes
from meshmark.devices import topologies
from meshmark.devices.topologies import Topology
from meshmark.operations import OPERATIONS
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant, nbytes, parse_size
from meshmark.operations.cases import Case, Cell

MARK = "meshmark-growth "
"""The start of a line of the compiling child: compilers print other lines."""

MODES = ("auto", "explicit", "manual")
SCALINGS = ("strong", "weak")
SLOPE, FACTOR = 0.02, 1.25

MOVING = ("collectives", "placement", "arrays")
"""The families that move data and compute little."""

FAMILIES = {
    "v5e": "2x2 2x4 4x4 4x8 8x8 8x16 16x16",
    "v6e": "2x2 2x4 4x4 4x8 8x8 8x16 16x16",
    "v5p": "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x16 16x16x32",
    "tpu7x": "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x16",
    "h100": "4 8 16 32 64 128 256 512 1024 2048 4096 8192",
    "h200": "4 8 16 32 64 128 256 512 1024 2048 4096 8192",
    "b200": "4 8 16 32 64 128 256 512 1024 2048 4096 8192",
}
"""The shapes by name of the chip: 4 to 256 chips of v5e and v6e, otherwise up to 8,192 devices."""

OPERATIONS_BY_DEFAULT = (
    *("psum", "all_gather", "psum_scatter", "all_to_all", "ppermute"),
    *("matmul", "mlp", "attention", "data_parallel"),
)

WHOLE = {"bytes": 2**26, "dimension": 2048}
"""Strong scaling: bytes of all arguments if the operation's sizes are bytes, else the dimension."""
PART = {"bytes": 2**20, "dimension": 1024}
"""Weak scaling: bytes of one device's block if the sizes are bytes, else the dimension on the fewest devices."""


class GrowthError(BadInput, ValueError):
    """A series can't be made; the message is one line with the solution."""


# Programs ---------------------------------------------------------------------------------------------------


def family(name: str) -> list[str]:
    """The topologies of a name: v5p gives v5p:2x2x1 to v5p:16x16x32, and v5p:4x4x4 gives itself."""
    if ":" in name:
        return [name]
    if name not in FAMILIES:
        raise GrowthError(f"unknown chip {name!r}: choose from {', '.join(FAMILIES)}, or name topologies")
    return [f"{name}:{shape}" for shape in FAMILIES[name].split()]


def find_variant(name: str, mesh: meshes.MeshShape) -> tuple[Operation, Variant]:
    """The operation and variant of a name such as `mlp` (its most ordinary variant) or `mlp/batch=x,model=y`."""
    operation_name, _, label = name.partition("/")
    operation = OPERATIONS.get(operation_name)
    if operation is None:
        raise GrowthError(
            f"unknown operation {operation_name!r}: `meshmark list` prints them; by default"
            f" {', '.join(OPERATIONS_BY_DEFAULT)}"
        )
    variants = [v for v in operation.variants(mesh) if not v.get("published")]
    found = [v for v in variants if v.label == label] if label else ordinary(operation, mesh)
    if not found and not label:
        raise GrowthError(f"{operation_name} compiles in none of {', '.join(MODES)}: it has no program")
    if not found:
        known = "; ".join(v.label for v in variants[:6])
        raise GrowthError(
            f"{operation_name} has no variant {label!r} on {mesh.label}: choose one such as {known}"
        )
    return operation, found[0]


def ordinary(operation: Operation, mesh: meshes.MeshShape) -> list[Variant]:
    """The variants with a program in one of MODES and without a capability, the most ordinary ones first."""
    found = (v for v in operation.variants(mesh) if not v.get("published") and v.capability is None)
    spelled = [v for v in found if any(operation.absent(m, v, mesh) is None for m in MODES)]
    return sorted(spelled, key=lambda v: v.weight)


def mesh_of(topology: Topology) -> meshes.MeshShape:
    """The mesh of two axes for a topology. For TPUs: whole dimensions of the slice, as near to a square as possible,
    the smaller axis first (JAX has no other layout on the chips). For GPUs: hosts by GPUs per host, or the most square
    mesh if one of these is 1."""
    if topology.platform == "cuda":
        inner = min(topologies.GPUS_PER_HOST, topology.num_devices)
        sides = [inner] if topology.num_devices > inner else []
    else:
        dims = [k for k in topology.shape if k > 1]
        sides = [math.prod(c) for size in range(1, len(dims)) for c in itertools.combinations(dims, size)]
    pairs = [(topology.num_devices // side, side) for side in sides]
    if topology.platform == "tpu":
        pairs = [(min(pair), max(pair)) for pair in pairs]
    shapes = [meshes.MeshShape(pair) for pair in pairs]
    return max(shapes, key=lambda m: min(m.shape), default=meshes.preferred(topology.num_devices))


def unit(operation: Operation) -> str:
    """The unit of the operation's sizes: "bytes" of a block, or a "dimension"."""
    return "dimension" if next(iter(operation.sizes)).startswith("n") else "bytes"


def label_of(size: int, unit: str) -> str:
    """A size label, such as n4096, 64B, 4KiB or 1MiB."""
    if unit == "dimension":
        return f"n{size}"
    for name, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size % factor == 0:
            return f"{size // factor}{name}"
    return f"{size}B"


def whole_bytes(plan: Plan) -> int:
    """The bytes of all arguments, without copies on several devices."""
    return sum(math.prod(a.shape) * dtype_of(a.dtype).itemsize for a in plan.arguments)


def part_bytes(items: Iterable[Argument | Result], mesh: meshes.MeshShape) -> int:
    """The bytes of one device's blocks of these arrays."""
    return sum(nbytes(item, mesh) for item in items)


def size_request(operation: Operation, request: Request, scaling: str, target: int) -> Request:
    """The request with the power of two as size that is nearest to the target, in bytes: of all arguments (strong) or
    of one device's part of them (weak). Of two equally near sizes, the one with fewer bytes. Of sizes with the same
    arrays, the largest."""

    def distance(exponent: int) -> tuple[float, int, int]:
        tried = replace(request, size=label_of(2**exponent, unit(operation)))
        plan = operation.plan(tried)
        seen = whole_bytes(plan) if scaling == "strong" else part_bytes(plan.arguments, request.mesh)
        return round(abs(math.log(max(seen, 1) / target)), 6), seen, -exponent

    low = 2 if unit(operation) == "bytes" else 3
    best = min(map(distance, range(low, 28 if unit(operation) == "bytes" else 18)))
    return replace(request, size=label_of(2 ** -best[2], unit(operation)))


def series(
    name: str, shapes: Iterable[meshes.MeshShape], scaling: str, dtype: str = "float32"
) -> Iterator[Cell]:
    """The cells of one operation over these meshes, from the fewest devices to the most."""
    target = 0
    for mesh in sorted(shapes, key=lambda m: m.size):
        operation, variant = find_variant(name, mesh)
        if dtype not in operation.dtypes:
            raise GrowthError(
                f"{operation.name} has no dtype {dtype}: choose from {', '.join(operation.dtypes)}"
            )
        kind = unit(operation)
        request = Request(
            variant, mesh, dtype, label_of((WHOLE if scaling == "strong" else PART)[kind], kind)
        )
        if not target:
            if scaling == "strong":
                target = whole_bytes(operation.plan(request)) if kind == "dimension" else WHOLE[kind]
            else:
                target = part_bytes(operation.plan(request).arguments, mesh)
        yield Cell(operation, size_request(operation, request, scaling, target), 0)


def cell(operation: str, variant: str, mesh: str, dtype: str, size: str) -> Cell:
    """The cell with these labels."""
    shape = meshes.parse_mesh(mesh)
    parse_size(size)
    made, chosen_variant = find_variant(f"{operation}/{variant}", shape)
    return Cell(made, Request(chosen_variant, shape, dtype, size), 0)


def spelled_bytes(plan: Plan) -> float | None:
    """Bytes on the wire of one device in manual mode, by the plan's contract; None if it has none."""
    if plan.traffic is None:
        return None
    total = 0.0
    for t in plan.traffic:
        permute = t.kind == "collective-permute"
        pairs = tuple((a, b) for a, b in t.groups) if permute else ()
        total += wire_bytes(Collective(t.kind, t.nbytes, "", () if permute else t.groups, pairs))
    return total


def theory(case: Case) -> dict[str, float | None]:
    """The theory for one device: wire_bytes, flops and memory_bytes; None if there is none."""
    plan, mesh = case.plan, case.mesh
    payload = max((t.nbytes for t in plan.traffic or ()), default=0) / plan.repeats
    return {
        "wire_bytes": spelled_bytes(plan),
        "flops": plan.cost.flops / mesh.size or None,
        "memory_bytes": part_bytes((*plan.arguments, *plan.results), mesh) + payload,
    }


# Records ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """The growth lines of one operation, variant, mode and scaling on one chip, the fewest devices first."""

    chip: str
    operation: str
    variant: str
    mode: str
    scaling: str
    lines: tuple[Mapping[str, Any], ...]

    def seen(self, quantity: str) -> list[tuple[int, float]]:
        """(devices, value) for each number of devices with a known value."""
        return _known((line["devices"], line.get(quantity)) for line in self.lines)

    def expected(self, quantity: str, manual: Series | None = None) -> list[tuple[int, float]]:
        """(devices, theory) for each number of devices with a theory; `manual` is the series of manual mode, if any."""
        layered = OPERATIONS[self.operation].family not in MOVING
        if quantity == "collective_runs" and manual:
            return manual.seen(quantity)
        if quantity == "memory_bytes" and layered:
            return manual.seen(quantity) if manual and self.mode != "manual" else []
        if quantity == "collective_runs":
            runs = self.seen(quantity)
            return [(n, runs[0][1]) for n, _ in runs]
        if quantity == "compile_s":
            first = self.seen(quantity)[:1]
            return [(n, s * n / m) for m, s in first for n, _ in self.seen(quantity)]
        return _known((line["devices"], (line.get("theory") or {}).get(quantity)) for line in self.lines)


def _known(pairs: Iterable[tuple[int, Any]]) -> list[tuple[int, float]]:
    return [(n, float(v)) for n, v in pairs if isinstance(v, (int, float)) and not isinstance(v, bool)]


QUANTITIES = {
    "wire_bytes": "bytes sent per device",
    "collective_runs": "collectives run",
    "memory_bytes": "memory per device",
    "flops": "flops per device",
    "compile_s": "compile seconds",
}
"""The quantities that are compared with theory, with their names."""


def group_lines(lines: Iterable[Mapping[str, Any]]) -> list[Series]:
    """The series in these growth lines, in their order; programs that failed are left out."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        key = tuple(str(line[k]) for k in ("chip", "operation", "variant", "mode", "scaling"))
        found.setdefault(key, [])
        if line.get("verdict") == "pass":
            found[key].append(line)
    return [
        Series(
            chip, operation, variant, mode, scaling, tuple(sorted(items, key=lambda line: line["devices"]))
        )
        for (chip, operation, variant, mode, scaling), items in found.items()
        if items
    ]


@dataclass(frozen=True)
class ExcessGrowth:
    """A quantity that grows faster than its theory."""

    series: Series
    quantity: str
    slope: float
    first: float
    last: float
    devices: tuple[int, int]

    @property
    def text(self) -> str:
        """The text of the finding without the mode."""
        few, many = self.devices
        s = self.series
        first = "once" if f"{self.first:.3g}" == "1" else f"{self.first:.3g} times"
        return (
            f"{QUANTITIES[self.quantity]}, {s.operation}, {s.scaling} scaling on {s.chip}: {self.last:.3g} times theory"
            f" on {many:,} devices and {first} on {few} (n^{self.slope:.2f} beyond theory)"
        )

    def __str__(self) -> str:
        return f"{self.text} in mode {self.series.mode}"


def find_excess_growth(every: Iterable[Series]) -> Iterator[ExcessGrowth]:
    """The quantities that grow faster than their theory."""
    every = list(every)
    for one in every:
        manual = manual_of(one, every)
        for quantity in QUANTITIES:
            expected = dict(one.expected(quantity, None if manual is one else manual))
            ratios = []
            for n, seen in one.seen(quantity):
                theory = expected.get(n)
                if theory == 0 and seen > 0 and quantity == "wire_bytes":
                    ratios.append((n, math.inf))
                elif theory and seen > 0:
                    ratios.append((n, seen / theory))
            finding = _grows(one, quantity, ratios)
            if finding:
                yield finding


def manual_of(one: Series, every: Iterable[Series]) -> Series | None:
    """The series of manual mode that corresponds to this one; None if there is none."""
    key = replace(one, mode="manual", lines=())
    return next((other for other in every if replace(other, lines=()) == key), None)


def _grows(one: Series, quantity: str, ratios: Sequence[tuple[int, float]]) -> ExcessGrowth | None:
    ends = (ratios[0][0], ratios[-1][0]) if ratios else (0, 0)
    if any(math.isinf(r) for _, r in ratios):
        return ExcessGrowth(one, quantity, math.inf, ratios[0][1], ratios[-1][1], ends)
    if len(ratios) < 2:
        return None
    slope = exponent(ratios)
    first, last = ratios[0][1], ratios[-1][1]
    if slope > SLOPE and last >= FACTOR * max(first, 1.0):
        return ExcessGrowth(one, quantity, slope, first, last, ends)
    return None


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """The least squares slope of log value over log devices; values are positive."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(v) for _, v in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0
