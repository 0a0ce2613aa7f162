# SPDX-License-Identifier: Apache-2.0
"""The cases: operations x variants x meshes x dtypes x sizes x modes, and the choice of a selection among them.

One rule selects the cases: the weights of their coordinates (meshmark.operations.weights) add up to no more than the
limit of the profile. Cells that depart from the ordinary in two ways are judged in one main mode by turns
(meshmark.operations.turns). Two kinds of cases join them: cases that cover pairs of classes
(meshmark.operations.pairs), and a few cases that judge an optional capability that a probe found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, product

import numpy as np

from meshmark.core import special_values, values
from meshmark.core.bounds import Arithmetic, Bounded, bounded
from meshmark.core.calls import call
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.errors import nearest
from meshmark.core.meshes import MeshShape
from meshmark.core.values import whole
from meshmark.operations import OPERATIONS, pairs
from meshmark.operations.base import SPECIAL_VALUES_WEIGHT, Argument, Operation, Plan, Request, owners_of
from meshmark.operations.selection import CAPABILITIES, Selection, SelectionError
from meshmark.operations.turns import MAIN_MODES, mode_in_turn
from meshmark.operations.weights import MODE_WEIGHTS, OPTIONAL_LIMIT, PROFILES


@dataclass(frozen=True, eq=False)
class Cell:
    """One operation, variant, mesh, dtype and size. All modes share it."""

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
        """The operation's plan of this cell. If the variant names special values, the first argument of the cell's
        dtype holds them."""
        plan, kind = self.operation.plan(self.request), self.request.variant.get("fill")
        if kind not in self.operation.fills:
            return plan
        first = next(i for i, a in enumerate(plan.arguments) if a.dtype == self.request.dtype)
        special = filled(plan.arguments[first], kind)
        return replace(plan, arguments=(*plan.arguments[:first], special, *plan.arguments[first + 1 :]))

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that the cell needs."""
        needs = (self.request.variant.capability, dtype_of(self.request.dtype).capability)
        return frozenset(filter(None, needs))

    def arguments(self, seed: int) -> list[np.ndarray]:
        """The whole input arrays."""
        return [whole_argument(a, seed, i) for i, a in enumerate(self.plan.arguments)]

    def expected(
        self, arguments: Sequence[np.ndarray], u_factor: float = 0.0
    ) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """The results of the NumPy reference for these arguments, and the bound of each result (None: it has none).

        u_factor: the unit roundoff to which contractions round their factors (see meshmark.judge.precision).

        Results of judge "bits" and "exact" have the result's dtype. Results of judge "bound" and their bounds are
        float64 (complex128).
        """
        with np.errstate(all="ignore"):  # special values overflow and give NaN, without a warning
            return self._expected(arguments, u_factor)

    def _expected(
        self, arguments: Sequence[np.ndarray], u_factor: float
    ) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
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


def filled(argument: Argument, kind: str) -> Argument:
    """The argument with special values of this kind among its ordinary values."""
    base = values.distinct if argument.fill is values.special else argument.fill
    return replace(
        argument, fill=special_values.replaced, options={"kind": kind, "base": base, **argument.options}
    )


def whole_argument(argument: Argument, seed: int, position: int) -> np.ndarray:
    """The whole array of one argument. Each argument of a cell has its own random stream."""
    return argument.block(seed * 16 + position, whole(argument.shape))


def exactly(array: np.ndarray, judge: str) -> np.ndarray:
    """The array in the dtype in which the reference computes: its own for moved data and booleans, otherwise the 64-bit
    dtype of its kind (complex128 for complex numbers, int64 for smaller unsigned integers)."""
    if judge == "bits" or array.dtype.kind == "b":
        return array
    unsigned = np.uint64 if array.dtype.itemsize == 8 else np.int64
    return array.astype({"i": np.int64, "u": unsigned, "c": np.complex128}.get(array.dtype.kind, np.float64))


def _outputs(value: object) -> list:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@dataclass(frozen=True, eq=False)
class Case:
    """One cell in one mode: one program, one verdict."""

    cell: Cell
    mode: str

    @cached_property
    def id(self) -> str:
        """The case id, such as all_gather/axes=y+x,dim=1,tiled/manual/2x4/float32/4KiB."""
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
        """The level that the case belongs to."""
        return self.cell.request.variant.get("level") or self.operation.level


Joining = dict[str, dict[str, tuple[Cell, list[str]]]]
"""The cells that join a profile, with their modes. The keys are the operation and the id of the cell."""

MOST_OPERATIONS = 7
"""The number of operations of a family that judge an optional capability by default. It has a limit so that the time
does not grow with the table."""

MOST_OPERATIONS_BY_CAPABILITY = {"x64": 2}
"""The same number for the capabilities that nearly every family has."""

MOST_MESHES = 3
"""The number of meshes on which a case of an optional capability is looked for. One mesh is not enough, because groups
need an axis of four devices."""

NO_OPERATION: tuple[str, Iterator[tuple[Cell, list[str]]]] = ("", iter(()))
"""A pair that stands for the end of the operations: an empty name, and no cells."""


def cells(selection: Selection, num_devices: int) -> Iterator[tuple[Cell, list[str]]]:
    """Each selected cell with its selected modes, in the order of the table. For each operation, the cells that the
    weights choose come first, then the cells that join."""
    joining: Joining = {name: {} for name in OPERATIONS}
    for cell, mode in (*_covering(selection, num_devices), *optional(selection, num_devices)):
        modes = joining[cell.operation.name].setdefault(cell.id, (cell, []))[1]
        if mode not in modes:
            modes.append(mode)
    weighted = groupby(_by_weight(selection, num_devices), key=lambda chosen: chosen[0].operation.name)
    named, group = next(weighted, NO_OPERATION)
    for name, more in joining.items():
        if name == named:
            for cell, modes in group:
                also = more.pop(cell.id, (cell, []))[1]
                yield cell, [*modes, *(mode for mode in also if mode not in modes)]
            named, group = next(weighted, NO_OPERATION)
        yield from more.values()


def _by_weight(
    selection: Selection, num_devices: int, optional: bool = False
) -> Iterator[tuple[Cell, list[str]]]:
    """The cells and modes that the weights choose. `optional`: only the cells that need an optional capability."""
    weights = selection.weights
    limit = weights.profiles[selection.profile] if selection.limit is None else selection.limit
    turns_from = selection.turns_from
    shapes = weights.meshes(selection, num_devices)
    for operation in OPERATIONS.values():
        if selection.operations and operation.name not in selection.operations:
            continue
        if operation.processes and selection.processes == 1:
            continue
        dtypes = {
            dtype: weights.dtype(operation, dtype, selection)
            for dtype in _chosen(operation.dtypes, selection.dtypes)
            if _allowed(dtype_of(dtype).capability, selection)
        }
        sizes = weights.sizes(operation, selection)
        sizes = {size: sizes[size] for size in _chosen(sizes, selection.sizes)}
        for mesh, mesh_weight in shapes.items():
            mesh_weight = weights.mesh(operation, mesh_weight)
            if mesh_weight > limit:
                continue
            owners = owners_of(mesh, num_devices, selection.processes)
            for variant in weights.variants(operation, mesh, limit - mesh_weight):
                weight = mesh_weight + variant.weight
                if weight > limit or not _allowed(variant.capability, selection):
                    continue
                if selection.processes > 1 and operation.refuses(variant, mesh, owners):
                    continue
                if selection.levels and (variant.get("level") or operation.level) not in selection.levels:
                    continue
                every = {
                    mode: weights.mode(operation, mode, variant, selection)
                    for mode in operation.modes
                    if operation.absent(mode, variant, mesh) is None
                }
                modes = {mode: every[mode] for mode in _chosen(every, selection.modes)}
                for (dtype, dtype_weight), (size, size_weight) in product(dtypes.items(), sizes.items()):
                    if not special_values.allows(variant.get("fill"), operation.fills, dtype):
                        continue
                    if optional and not (variant.capability or dtype_of(dtype).capability):
                        continue
                    total = weight + dtype_weight + size_weight
                    used = [mode for mode, more in modes.items() if total + more <= limit]
                    request = Request(variant, mesh, dtype, size, selection.processes)
                    plain = total == variant.weight <= PROFILES["standard"]
                    demanded = variant.capability or dtype_of(dtype).capability
                    if turns_from is not None and total >= turns_from and not plain and not demanded:
                        main = [mode for mode in MAIN_MODES if total + every.get(mode, limit) <= limit]
                        own = main and mode_in_turn(operation, request, main, num_devices)
                        used = [mode for mode in used if mode == own or mode not in main]
                    if used:
                        yield Cell(operation, request, total), used


def _covering(selection: Selection, num_devices: int) -> Iterator[tuple[Cell, str]]:
    """The selected cells and modes that cover pairs of classes."""
    if not selection.covers:
        return
    for one in pairs.picked(num_devices, selection.processes, selection.operations):
        request, operation = one.request, one.operation
        level = request.variant.get("level") or operation.level
        if all(
            not wanted or name in wanted
            for name, wanted in (
                (operation.name, selection.operations),
                (one.mode, selection.modes),
                (request.mesh.label, selection.meshes),
                (request.dtype, selection.dtypes),
                (request.size, selection.sizes),
                (level, selection.levels),
            )
        ) and _allowed(dtype_of(request.dtype).capability, selection):
            yield Cell(operation, request, SPECIAL_VALUES_WEIGHT), one.mode


def optional(selection: Selection, num_devices: int) -> Iterator[tuple[Cell, str]]:
    """The cells and modes that judge the capabilities that join a profile. For a few operations per family, this is the
    lightest cell on the lightest of MESHES meshes that has one, in the modes of the shortest profile. The profile
    `full` also takes the cells that `standard` takes if the capability is demanded."""
    left = selection.joining
    if not left:
        return
    plain = replace(selection, capabilities=left, present=(), covering=False)
    weighted = selection.weights.meshes(selection, num_devices)
    for mesh in sorted(weighted, key=lambda mesh: weighted[mesh])[:MOST_MESHES]:
        here = replace(plain, capabilities=left, meshes=(mesh.label,), limit=OPTIONAL_LIMIT)
        lightest: dict[tuple[str, str], tuple[Cell, list[str]]] = {}
        for cell, modes in _by_weight(here, num_devices, optional=True):
            if len(cell.capabilities) == 1:
                place = (cell.operation.name, next(iter(cell.capabilities)))
                if place not in lightest or cell.weight < lightest[place][0].weight:
                    lightest[place] = (cell, modes)
        taken: Counter[tuple[str, str]] = Counter()
        for (_, name), (cell, modes) in lightest.items():
            taken[cell.operation.family, name] += 1
            if taken[cell.operation.family, name] > MOST_OPERATIONS_BY_CAPABILITY.get(name, MOST_OPERATIONS):
                continue
            yield from ((cell, mode) for mode in modes if not MODE_WEIGHTS[mode])
        left = tuple(name for name in left if name not in {name for _, name in lightest})
        if not left:
            break
    if selection.profile == "full":
        for cell, modes in _by_weight(replace(plain, profile="standard"), num_devices, optional=True):
            yield from ((cell, mode) for mode in modes)


def cases(selection: Selection, num_devices: int) -> Iterator[Case]:
    """The selected cases. The cases of one cell are adjacent."""
    for cell, modes in cells(selection, num_devices):
        for mode in modes:
            yield cell.case(mode)


def not_empty(selection: Selection, num_devices: int) -> None:
    """Raise SelectionError if nothing is selected. The message says how to select something."""
    if next(cases(selection, num_devices), None) is not None:
        return
    named = [OPERATIONS[name] for name in selection.operations]
    if selection.processes == 1 and named and all(operation.processes for operation in named):
        raise SelectionError(
            f"{', '.join(selection.operations)} takes several processes: start them with `meshmark launch`"
        )
    every = replace(selection, capabilities=tuple(CAPABILITIES))
    largest = Selection("full", timed=True, capabilities=tuple(CAPABILITIES), operations=selection.operations)
    if selection.timed and named and next(cells(largest, num_devices), None) is None:
        raise SelectionError(
            f"{' and '.join(selection.operations)} {'is' if len(named) == 1 else 'are'} judged and not timed:"
            " `meshmark bench` without --operations times what has a speed"
        )
    needed = {c for cell, _ in cells(every, num_devices) for c in cell.capabilities}
    mend = f"add --with {','.join(sorted(needed))}" if needed else "take a larger profile, or select more"
    raise SelectionError(f"no case is chosen: {mend} (see `meshmark list`)")


def find(case_id: str, num_devices: int, processes: int = 1) -> Case:
    """The case with this id, of any weight. SelectionError if the table has none.

    Benchmarks and comparisons call this function by its name in other commits of the suite, so the name stays."""
    parts = case_id.split("/")
    if len(parts) != 6:
        raise SelectionError(
            f"{case_id[:200]!a} is not a case id: write operation/variant/mode/mesh/dtype/size, as"
            " `meshmark list --cases` prints it"
        )
    name, _, mode, mesh, dtype, size = parts
    selection = Selection(
        "full",
        timed=True,  # the first search allows any size
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
        raise SelectionError(f"{name} takes several processes: see docs/processes.md")
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
