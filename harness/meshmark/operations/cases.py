"""The cases: operations x variants x meshes x dtypes x sizes x modes, and the choice among them.

How much of the product is used is one rule. Every coordinate of a case has a weight, which says how far it
is from the ordinary one (float32, the most square mesh, 4 KiB, plain options, the three main modes: all 0),
and a profile takes the cases whose weights add up to no more than its limit. So `standard` holds every case
that departs from the ordinary in one or two small ways, and `full` their combinations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from meshmark.core import meshes
from meshmark.core.bounds import Arithmetic, Bounded, bounded
from meshmark.core.calls import call
from meshmark.core.dtypes import DTYPES
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.errors import BadInput, nearest, unknown
from meshmark.core.meshes import MeshShape
from meshmark.core.values import whole
from meshmark.operations import OPERATIONS
from meshmark.operations.base import MODES, Argument, Operation, Plan, Request, owners_of, parse_size

PROFILES = {"smoke": 0, "standard": 2, "full": 4}
"""Profiles and the largest weight that they take."""

TIMED_PROFILES = {"quick": 0, "standard": 2, "full": 4}
"""The same for what the benchmarks time."""

LEVELS = ("L0", "L1", "L2", "L3", "L4")

CAPABILITIES = {
    "x64": "64-bit types",
    "complex": "complex numbers",
    "groups": "axis_index_groups",
    "broadcast": "lax.pbroadcast (collective-broadcast)",
    "ragged": "lax.ragged_all_to_all",
    "checkpoint": "orbax-checkpoint",
}
"""What hardware may lack, by the name that --with takes."""

DTYPE_WEIGHTS = {"float32": 0}  # others: 2
TIMED_RARE = 2
"""What rare coordinates weigh more where they are timed, for time is spent on what people choose between: dtypes
other than bfloat16, the lesser modes, meshes with an axis of size 1, permuted or not over all devices."""
MODE_WEIGHTS = {"auto": 0, "explicit": 0, "manual": 0, "host": 0, "manual-novma": 2, "pmap": 1, "pjit": 2}


class SelectionError(BadInput, ValueError):
    """A choice that the table does not have; the message names it and the valid ones."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One operation, variant, mesh, dtype and size: what all modes of it share."""

    operation: Operation
    request: Request
    weight: int

    @property
    def id(self) -> str:
        """The case ids of the cell with `*` for the mode."""
        return self._id("*")

    def _id(self, mode: str) -> str:
        r = self.request
        return f"{self.operation.name}/{r.variant.label}/{mode}/{r.mesh.label}/{r.dtype}/{r.size}"

    @cached_property
    def plan(self) -> Plan:
        """The operation's plan of this cell."""
        return self.operation.plan(self.request)

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it needs."""
        needs = (self.request.variant.capability, dtype_of(self.request.dtype).capability)
        return frozenset(filter(None, needs))

    def arguments(self, seed: int) -> list[np.ndarray]:
        """The whole input arrays."""
        return [whole_argument(a, seed, i) for i, a in enumerate(self.plan.arguments)]

    def expected(
        self, arguments: Sequence[np.ndarray], u_factor: float = 0.0
    ) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """What the NumPy reference gives for these arguments, and the bound of each result (None: none).

        u_factor: the unit roundoff to which contractions round their factors (see meshmark.judge.precision).

        Results of judge "bits" and "exact" have the result's dtype; of judge "bound" float64 (complex128),
        as have the bounds.
        """
        plan = self.plan
        reference = self.operation.gradient if plan.wrt else self.operation.reference
        exact = [exactly(a, plan.judge) for a in arguments]
        if plan.judge == "bound":
            values = _outputs(call(reference, exact, plan.options))
            bounds = self.operation.bound(plan, arguments, values)
            if bounds is None:
                kind = dtype_of(self.request.dtype)
                own = Arithmetic(
                    u=kind.unit_roundoff,
                    u_sum=kind.unit_roundoff,
                    tiny=kind.tiny,
                    u_factor=u_factor,
                    largest=kind.largest,
                )
                arithmetic = replace(own, **plan.arithmetic)
                floats = [bounded(a, arithmetic) if a.dtype.kind in "fc" else a for a in exact]
                results = _outputs(call(reference, floats, plan.options))
                bounds = [r.error if isinstance(r, Bounded) else np.zeros_like(r) for r in results]
            return values, bounds
        values = _outputs(call(reference, exact, plan.options))
        kinds = [dtype_of(r.dtype).numpy for r in plan.results]
        return [np.asarray(v).astype(k) for v, k in zip(values, kinds, strict=True)], [None] * len(values)

    def case(self, mode: str) -> Case:
        """The case of this cell in one mode."""
        return Case(self, mode)


def whole_argument(argument: Argument, seed: int, position: int) -> np.ndarray:
    """The whole array of one argument; arguments of one cell differ in their random stream."""
    return argument.block(seed * 16 + position, whole(argument.shape))


def exactly(array: np.ndarray, judge: str) -> np.ndarray:
    """The array in a type in which the reference computes: its own for moved data, else the widest."""
    if judge == "bits" or array.dtype.kind == "b":
        return array
    return array.astype({"i": np.int64, "u": np.int64, "c": np.complex128}.get(array.dtype.kind, np.float64))


def _outputs(value: object) -> list:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@dataclass(frozen=True, eq=False)
class Case:
    """One cell in one mode: one program, one verdict."""

    cell: Cell
    mode: str

    @property
    def id(self) -> str:
        """all_gather/axes=y+x,dim=1,tiled/manual/2x4/float32/4KiB."""
        return self.cell._id(self.mode)

    @property
    def operation(self) -> Operation:
        """The row of the table."""
        return self.cell.operation

    @property
    def mesh(self) -> MeshShape:
        """The shape of its mesh."""
        return self.cell.request.mesh

    @property
    def plan(self) -> Plan:
        """The plan of its cell."""
        return self.cell.plan

    @property
    def level(self) -> str:
        """The level that it belongs to."""
        return self.cell.request.variant.get("level") or self.operation.level


@dataclass(frozen=True)
class Selection:
    """A choice of cases; empty tuples choose everything. Check it with `checked`."""

    profile: str = "standard"
    levels: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    meshes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    limit: int | None = field(default=None)
    """The largest weight, where it is not the profile's."""
    processes: int = 1
    """Number of processes that share the devices."""
    timed: bool = False
    """Whether to choose from what the benchmarks time: their sizes (any size that is named), variants and
    profiles."""

    def described(self) -> dict[str, Any]:
        """What was chosen, for the line of a run: nothing of what was left open, and no number of processes where
        there is one."""
        return {k: v for k, v in vars(self).items() if v not in ((), None) and (k, v) != ("processes", 1)}

    @property
    def profiles(self) -> dict[str, int]:
        """The profiles that it may name."""
        return TIMED_PROFILES if self.timed else PROFILES

    def checked(self, num_devices: int) -> Selection:
        """This selection; SelectionError for an unknown name or a mesh that the devices do not allow."""
        declared = {s for o in OPERATIONS.values() for s in (*o.sizes, *o.timed)}
        every_size = sorted(declared, key=lambda s: (s[0] == "n", parse_size(s)))
        for what, chosen, valid in (
            ("profile", (self.profile,), self.profiles),
            ("level", self.levels, LEVELS),
            ("capability", self.capabilities, CAPABILITIES),
            ("operation", self.operations, OPERATIONS),
            ("mode", self.modes, MODES),
            ("dtype", self.dtypes, DTYPES),
            ("size", self.sizes, every_size),
        ):
            for name in chosen:
                if what == "size" and self.timed:
                    try:
                        parse_size(name)
                    except ValueError as error:
                        raise SelectionError(str(error)) from None
                elif name not in valid:
                    raise SelectionError(unknown(what, name, valid, "meshmark list"))
        for label in self.meshes:
            try:
                mesh = meshes.parse(label)
            except ValueError as error:
                raise SelectionError(str(error)) from None
            if mesh.size > num_devices:
                fits = [m.label for m in meshes.weighted(num_devices, self.processes)]
                raise SelectionError(
                    f"mesh {label} needs {mesh.size} devices and there are {num_devices}:"
                    f" {' or '.join(fits[:3])} would fit (see `meshmark list`)"
                )
            if mesh.size <= num_devices - num_devices // self.processes:
                raise SelectionError(
                    f"mesh {label} leaves a process without a device: name one of more than"
                    f" {num_devices - num_devices // self.processes} devices"
                )
        return self


def cells(selection: Selection, num_devices: int) -> Iterator[tuple[Cell, list[str]]]:
    """Each chosen cell with its chosen modes, in the order of the table.

    Of what is timed, a size, dtype or mode that is named is taken whatever the profile, and an operation that is
    named in its ordinary sizes at least.
    """
    limit = selection.profiles[selection.profile] if selection.limit is None else selection.limit
    shapes = meshes.weighted(num_devices, selection.processes)
    if selection.timed:
        shapes = {m: w + TIMED_RARE * (w > 1) for m, w in shapes.items()}
        shapes[meshes.MeshShape((num_devices,))] = 0  # one axis over all devices is what bandwidth is told of
    if selection.meshes:
        unnamed = 0 if selection.timed else 1
        shapes = {m: shapes.get(m, unnamed) for m in map(meshes.parse, selection.meshes)}
    for operation in OPERATIONS.values():
        if selection.operations and operation.name not in selection.operations:
            continue
        if operation.processes and selection.processes == 1:
            continue
        for mesh, mesh_weight in shapes.items():
            if operation.everywhere and not selection.timed:
                mesh_weight = min(mesh_weight, PROFILES["standard"])
            if mesh_weight > limit:
                continue
            owners = owners_of(mesh, num_devices, selection.processes)
            for variant in operation.timed_variants(mesh) if selection.timed else operation.variants(mesh):
                weight = mesh_weight + variant.weight
                if weight > limit or not _allowed(variant.capability, selection):
                    continue
                if selection.processes > 1 and operation.refuses(variant, mesh, owners):
                    continue
                if selection.levels and (variant.get("level") or operation.level) not in selection.levels:
                    continue
                modes = [
                    (mode, _mode_weight(mode, selection))
                    for mode in operation.modes
                    if (not selection.modes or mode in selection.modes)
                    and operation.absent(mode, variant, mesh) is None
                ]
                for dtype in _chosen(operation.dtypes, selection.dtypes):
                    if not _allowed(dtype_of(dtype).capability, selection):
                        continue
                    dtype_weight = DTYPE_WEIGHTS.get(dtype, 2)
                    if selection.timed and dtype_weight and dtype != "bfloat16":
                        dtype_weight += TIMED_RARE
                    if operation.dtypes[0] == dtype:  # an operation's first dtype is its ordinary one
                        dtype_weight = 0
                    if selection.timed and dtype in selection.dtypes:
                        dtype_weight = 0
                    for size, size_weight in _sizes(operation, selection).items():
                        total = weight + dtype_weight + size_weight
                        used = [mode for mode, more in modes if total + more <= limit]
                        if used:
                            request = Request(variant, mesh, dtype, size, selection.processes)
                            yield Cell(operation, request, total), used


def _mode_weight(mode: str, selection: Selection) -> int:
    weight = MODE_WEIGHTS[mode]
    if not selection.timed or not weight:
        return weight
    return 0 if mode in selection.modes else weight + TIMED_RARE


def _sizes(operation: Operation, selection: Selection) -> dict[str, int]:
    """The chosen sizes of an operation with their weight: a benchmark takes any that is named, in bytes where
    the operation counts bytes, a dimension where it counts dimensions."""
    known = dict(operation.sizes)
    if selection.timed:
        full = TIMED_PROFILES["full"]
        known = dict(operation.timed) or dict.fromkeys((s for s, w in known.items() if not w), full)
        dimension = next(iter(operation.sizes)).startswith("n")
        if operation.timed:
            known |= {s: 0 for s in selection.sizes if s.startswith("n") == dimension}
        if selection.operations:
            ordinary = min(known.values())
            known = {size: weight - ordinary for size, weight in known.items()}
    return {size: weight for size, weight in known.items() if not selection.sizes or size in selection.sizes}


def cases(selection: Selection, num_devices: int) -> Iterator[Case]:
    """The chosen cases, those of one cell next to each other."""
    for cell, modes in cells(selection, num_devices):
        for mode in modes:
            yield cell.case(mode)


def not_empty(selection: Selection, num_devices: int) -> None:
    """SelectionError where nothing is chosen, with what may be missing."""
    if next(cases(selection, num_devices), None) is not None:
        return
    named = [OPERATIONS[name] for name in selection.operations]
    if selection.processes == 1 and named and all(operation.processes for operation in named):
        raise SelectionError(
            f"{', '.join(selection.operations)} takes several processes: start them with `meshmark launch`"
        )
    every = replace(selection, capabilities=tuple(CAPABILITIES))
    needed = {c for cell, _ in cells(every, num_devices) for c in cell.capabilities}
    mend = f"add --with {','.join(sorted(needed))}" if needed else "take a larger profile, or narrow less"
    raise SelectionError(f"no case is chosen: {mend} (see `meshmark list`)")


def find(case_id: str, num_devices: int, processes: int = 1) -> Case:
    """The case with this id, whatever its weight; SelectionError where the table has none."""
    parts = case_id.split("/")
    if len(parts) != 6:
        raise SelectionError(
            f"{case_id[:200]!a} is not a case id: write operation/variant/mode/mesh/dtype/size, as"
            " `meshmark list --cases` prints it"
        )
    name, _, mode, mesh, dtype, size = parts
    selection = Selection(
        "full",
        timed=True,  # any size, at first
        capabilities=tuple(CAPABILITIES),
        operations=(name,),
        modes=(mode,),
        meshes=(mesh,),
        dtypes=(dtype,),
        sizes=(size,),
        limit=99,
        processes=processes,
    ).checked(num_devices)
    others: dict[str, None] = {}
    for timed in (False, True):
        for case in cases(replace(selection, timed=timed), num_devices):
            if case.id == case_id:
                return case
            others[case.id] = None
    if processes == 1 and OPERATIONS[name].processes:
        raise SelectionError(f"{name} takes several processes: see README.md, Many processes")
    near = nearest(case_id, others)
    raise SelectionError(
        f"unknown case {case_id[:200]!a}:"
        + (f" did you mean {' or '.join(near)}?" if near else "")
        + f" (see `meshmark list --cases --operations {name} --profile full`)"
    )


def _allowed(capability: str | None, selection: Selection) -> bool:
    return capability is None or capability in selection.capabilities


def _chosen(names: Iterable[str], wanted: tuple[str, ...]) -> list[str]:
    return [name for name in names if not wanted or name in wanted]
