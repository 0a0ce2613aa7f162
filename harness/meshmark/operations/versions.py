# SPDX-License-Identifier: Apache-2.0
"""Versions of the case table: published records stay checkable when the table changes.

A run line names the version of the table that made its cases. Every check of a record asks this module which cases that
version has, and what it says of a case.

To change the table, raise TABLE_VERSION by one and add a TableChange for the new version to CHANGES. The code describes
the new version. The TableChange describes the version before it. An example, for a version 2 that corrects the cost of
one operation:

    def _with_old_cost(case: Case, plan: Plan) -> Plan:
        return replace(plan, cost=replace(plan.cost, factor=1.0)) if case.operation.name == "pmax" else plan

    CHANGES = {2: TableChange("pmax: the factor of its bus bandwidth", plan=_with_old_cost)}

Older versions have no new operations, and no new choices of an operation's options: meshmark.operations.additions knows
them. Any other new case needs `new`, which keeps it out of the older versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from meshmark.core import values
from meshmark.core.errors import BadInput
from meshmark.operations import cases
from meshmark.operations.additions import version_that_added
from meshmark.operations.base import Argument, Cost, Plan, nbytes
from meshmark.operations.cases import Case
from meshmark.operations.collective_base import CollectiveOperation
from meshmark.operations.collectives.all_reduce import Reduction
from meshmark.operations.collectives.gather_scatter import PsumScatter
from meshmark.operations.collectives.permutations import RaggedAllToAll
from meshmark.operations.functions.contraction import arranged, signs
from meshmark.operations.models.layers import Attention, Layer
from meshmark.operations.models.pipeline import PipelineGradient
from meshmark.operations.models.programs import added_gradients
from meshmark.operations.programs.forms.base import ProgramForm
from meshmark.operations.programs.found.base import nonzero
from meshmark.operations.selection import Selection, SelectionError
from meshmark.operations.weights import USUAL_DTYPES

TABLE_VERSION = 38
"""The version of the table that the code describes. Run lines name it as `table`."""


class TableError(BadInput, ValueError):
    """A version of the table that this suite does not know. The message is one line."""


@dataclass(frozen=True)
class CaseEntry:
    """The facts of one case that record lines repeat from the table."""

    level: str
    size_bytes: int
    """The bytes of one device's inputs."""
    cost: Cost


def _same(case: Case, entry: CaseEntry) -> CaseEntry:
    return entry


def _same_plan(case: Case, plan: Plan) -> Plan:
    return plan


def _none(case: Case) -> bool:
    return False


@dataclass(frozen=True)
class TableChange:
    """What a version of the table changed. The functions give the facts of the version before."""

    summary: str
    """A few words that describe the change."""
    plan: Callable[[Case, Plan], Plan] = _same_plan
    """A function that takes a case and its plan in this version. It returns the plan of the case in the version
    before."""
    entry: Callable[[Case, CaseEntry], CaseEntry] = _same
    """A function that takes a case and its entry in this version. It returns the entry of the case in the version
    before."""
    new: Callable[[Case], bool] = _none
    """A function that tells whether this version added the case to an operation that it had."""
    covering: bool = False
    """Whether this version added the cases that cover pairs of classes (see meshmark.operations.pairs)."""
    turning: bool = False
    """Whether this version was the first in which modes take turns (see meshmark.operations.turns)."""
    recompiled: Callable[[Case], bool] = _none
    """A function that tells whether the case compiled to another program in the version before, or had other numbers,
    although its entry was the same. Today's counters of collectives and answers do not apply to the earlier program."""


def _added(case: Case) -> bool:
    """Whether version 2 added the case to an operation of version 1: its dtype, values, blocks or size."""
    request, operation = case.cell.request, case.operation
    return (
        request.dtype not in USUAL_DTYPES
        or request.variant.get("fill") in operation.fills
        or (operation.family == "collectives" and request.size == "4MiB")
        or _odd(case)
    )


def _odd(case: Case) -> bool:
    """Whether the case has the odd blocks that version 1 gave to every payload."""
    return case.cell.request.variant.get("shape") == "odd"


def _in_tiles(case: Case) -> bool:
    """Whether version 2 gave the case another payload: whole tiles."""
    operation, request = case.operation, case.cell.request
    if isinstance(operation, CollectiveOperation):
        return operation.lane_tiled(request.variant, request.mesh)
    return isinstance(operation, Attention) and case.plan.arguments[0].shape[-1] != 16


def _first_plan(case: Case, plan: Plan) -> Plan:
    """The plan of a case in version 1."""
    operation, request = case.operation, case.cell.request
    if _in_tiles(case):
        variant = request.variant
        odd = replace(variant, options=(*variant.options, ("shape", "odd")))
        plan = operation.plan(replace(request, variant=odd))
    cost = plan.cost
    if isinstance(operation, (Reduction, PsumScatter)):  # version 1 counted the collective's additions
        cost = replace(cost, flops=math.prod(plan.arguments[0].shape))
    elif isinstance(operation, RaggedAllToAll):  # version 1 counted the whole operand
        n = request.mesh.product(request.variant["axes"])
        cost = Cost(0, nbytes(plan.arguments[0], request.mesh), (n - 1) / n)
    elif isinstance(operation, Layer) and operation.wrt:  # with a product that the compiler leaves out
        cost = replace(cost, flops=round(cost.flops * 3 / (2 + operation.recomputed)))
    return replace(plan, cost=cost)


def _small_plan(case: Case, plan: Plan) -> Plan:
    """The plan of a case in version 6: program forms had small arrays on one or two devices."""
    size = case.mesh.size
    if not isinstance(case.operation, ProgramForm) or size > 2:
        return plan
    shape = (4 * size, 2 * size)
    return replace(
        plan,
        arguments=tuple(replace(a, shape=shape) for a in plan.arguments),
        results=tuple(replace(r, shape=shape) for r in plan.results),
    )


def _without_new_theory(case: Case, plan: Plan) -> Plan:
    """The plan of a case in version 25. A theory of version 26 is a function, and an earlier one is a tuple."""
    return replace(plan, owed=None) if callable(plan.owed) else plan


def _with_sums_once(case: Case, plan: Plan) -> Plan:
    """The plan of a case in version 26, which counted the sums of a pipeline's gradients once."""
    if not isinstance(case.operation, PipelineGradient):
        return plan
    sent = case.operation.forward(case.cell.request).traffic or ()
    chosen = [plan.arguments[i] for i in plan.wrt]
    return replace(plan, owed=(*sent, *sent, *added_gradients(case.mesh, chosen)))


def _with_other_numbers(case: Case) -> bool:
    """Whether version 14 had other numbers in the case: another largest uint64, or a cast beyond the dtype, which
    matrices of more than eight devices had."""
    request = case.cell.request
    if case.operation.name == "partly_sharded" and request.variant.get("group") == "reduced":
        return case.mesh.size > 8
    return request.dtype == "uint64" and request.variant.get("fill") == "extreme"


def _with_parts_that_may_be_equal(case: Case) -> bool:
    """Whether version 22 had other numbers in the case: stacked factors, and small arrays of small integers, of which
    two parts could be equal."""
    return any(
        (_fill(a) in (values.plus_minus, signs) and _matrices(a) > 1)
        or (a.fill is nonzero and math.prod(a.shape) <= 15)
        for a in case.plan.arguments
    )


def _fill(argument: Argument) -> object:
    return argument.options["fill"] if argument.fill is arranged else argument.fill


def _matrices(argument: Argument) -> int:
    """The number of matrices of an argument, which has its rows and columns last unless it is arranged."""
    stacked = argument.options["groups"][0] if argument.fill is arranged else range(len(argument.shape) - 2)
    return math.prod(argument.shape[d] for d in stacked)


CHANGES: dict[int, TableChange] = {
    38: TableChange(
        "options of jax.scipy, of Fourier transforms and convolutions, and tools, from a list of what is spelled"
    ),
    37: TableChange(
        "functions and options that no case asked for: jax.scipy, jax.lax.linalg, seldom used options, settings, and"
        " tools around programs; convolutions of sharded rows, and updates from below"
    ),
    36: TableChange("small rules of conditions that JAX's own tests name"),
    35: TableChange(
        "small rules from reports that no list named: unreduced and reduced values, Explicit axes, references, regions,"
        " donation, and programs made ahead of time"
    ),
    34: TableChange(
        "small rules of seldom batches and derivatives, of moves between memories, and of slopes far from zero"
    ),
    33: TableChange(
        "small rules of calls that JAX must refuse, by the lines of JAX that no case executed, and of options, layouts,"
        " types and places that a call keeps in batches and second uses"
    ),
    32: TableChange(
        "small rules of narrow and wide types, callbacks, donated arrays, references, values that all devices share and"
        " options beside a place"
    ),
    31: TableChange(
        "small rules of long and empty blocks, threads, programs made ahead of time, partial regions, pullbacks and"
        " things that meet"
    ),
    30: TableChange("programs that the generator of the hunt drew, against their definitions in NumPy"),
    29: TableChange("small rules of ties, ends, orders of devices and types that stay"),
    28: TableChange(
        "all_gather with its default type of result, small rules of what a call asks for, and pipelines of whole arrays"
        " whose first state is placed and not shifted"
    ),
    27: TableChange("the gradients of a pipeline's weights are added in each tick", plan=_with_sums_once),
    26: TableChange(
        "what changes of sharding, other moves, gradients of functions and collectives, transformed sums and forms of"
        " arguments must send",
        plan=_without_new_theory,
    ),
    25: TableChange("gathers inside a shard_map that is manual over one axis of several"),
    24: TableChange(
        "pairs of cumulative functions and of windows of one array, as programs that are compiled for topologies too"
    ),
    23: TableChange(
        "no two devices hold the same part of a stack of factors or of a small array of small integers",
        recompiled=_with_parts_that_may_be_equal,
    ),
    22: TableChange(
        "more calls of NumPy's functions and their gradients; small rules of orders of norms, methods of NumPy's"
        " functions, reductions over names and dimensions together, whole ranges of integers, initializers by their"
        " place, many functions of one array in one program, names in every order, unsorted groups, shuffles,"
        " batches of collectives, stated sizes, masked functions, draws without replacement, and arrays that are made"
        " at a place"
    ),
    21: TableChange(
        "functions of arrays over Explicit axes by JAX's own sharding rules; gradients of calls of NumPy's functions;"
        " small rules of methods of arrays and keys, puts, donation, stored programs, arrays made or described,"
        " options and loops inside shard_map, derivatives outside of jit, callbacks, and types of Explicit axes"
    ),
    20: TableChange(
        "calls of NumPy's functions with their options; small rules of rows that are read, functions over hosts,"
        " context meshes, donated results, open constraints, stored shardings, places of narrow types, numbers that a"
        " narrower type can't hold, signs of zeros, keys, placed draws, untiled collectives, windows, shifts, tangents"
        " of matrices, images, masked gradients, extremes at every place and long counts"
    ),
    19: TableChange(
        "small rules of loops and branches, of results of the host, of functional checks, of reads, copies and moves of"
        " arrays, of arguments of functions in each combination, of gradients of linear functions, of stored programs,"
        " and of functions that send nothing"
    ),
    18: TableChange(
        "functions of arrays that are cut along each dimension in turn, by dtype and kind; results that vary because an"
        " input of theirs does; unreduced arguments of each function; programs over two meshes"
    ),
    17: TableChange(
        "small rules, many in one case: refusals, objects of shardings, types of results, bytes on the wire, second"
        " calls, forms of arguments, contexts, training, every bit that moves, overflow, orders, narrow dtypes and"
        " random numbers"
    ),
    16: TableChange(
        "examples under every transform: tangents and cotangents by some and by all arguments, batches along every"
        " dimension, checkpoints, programs that are compiled ahead of time; calls at their edges"
    ),
    15: TableChange(
        "linear collectives with their tangents and cotangents, over groups, orders of axes and batches; functions and"
        " placements at their edges; the largest uint64 among extreme values; casts within the dtype on more than"
        " eight devices",
        recompiled=_with_other_numbers,
    ),
    14: TableChange("products of 8 and 4 bits whose contracted dimension is short"),
    13: TableChange(
        "the profiles take cases that are far from the ordinary mesh or size in one main mode by turns",
        turning=True,
    ),
    12: TableChange(
        "collectives in a batch, with the batch dimension in every place; functions of whole arrays whose results get"
        " another sharding than their argument",
    ),
    11: TableChange(
        "reductions of any two values of a narrow type; functions of jax.scipy, rare options of functions and of their"
        " gradients, collectives of trees, one program on several meshes; kinds of programs that people reported:"
        " functions that loop by themselves inside of a shard_map that checks what varies, functions over Explicit"
        " axes by their own rules, keys that are sent, callbacks, constraints and exported programs",
    ),
    10: TableChange(
        "collectives over every choice of axes in every order, of every dtype; functions with rare options of every"
        " dtype; families of functions and linear algebra on each mesh, devices in another order included; forms that"
        " few programs have",
    ),
    9: TableChange(
        "functions that compute, of every dtype, on partly sharded matrices; transformations of transformations of"
        " collectives in loops, branches and rules; second uses of one function, and what arrays say of themselves",
    ),
    8: TableChange(
        "options of functions, derivatives, batches, collectives and placements that no case set; functions of partly"
        " sharded matrices that are drawn, eager, in batches over a mesh axis and between manual axes",
    ),
    7: TableChange(
        "settings of random numbers in turn in one process, and choices of sharded rows; what the hunt found of parts"
        " of sorted rows and of narrow sums beside an automatic axis; functions of arrays that are sharded over some"
        " axes, whole and in uneven parts, and their gradients; collectives that some devices reach; manual axes beside"
        " others",
        plan=_small_plan,
    ),
    6: TableChange(
        "stencils with halos, their transposes and gradients; what the hunt found of shards of uneven sizes, padded"
        " windows, Fourier transforms and axes of one device; contexts of width and precision, options of the compiler,"
        " memories, callbacks in order and host arrays in every form of memory; complex derivatives, rules and"
        " solutions; collectives in nested, partial and eager shard_maps; more refusals",
    ),
    5: TableChange(
        "every collective, its gradient and every moving function of every dtype on each mesh, in one program each;"
        " what holds on one device, for one length or by one argument alone; what is done with arrays besides calls;"
        " refusals of dimensions and groups",
    ),
    4: TableChange(
        "options and edges of functions and collectives: narrow integers, indices outside of an array, masks, row"
        " exchanges, overflow, axes of one device; ways to call derivatives, loops and batches;"
        " unreduced types, mutable arrays, layouts; more refusals; what the hunt found last",
    ),
    3: TableChange(
        "gradients of what was judged by values alone; functions at the ends of their domains, and integers of every"
        " width; Flax NNX and Datarax; more draws, keys, creation functions, options and refusals; functions in a"
        " shard_map over some axes",
    ),
    2: TableChange(
        "special values, every dtype, and pairs of classes; payloads that are timed are whole tiles; flops are those"
        " of the compiled contractions; the bytes of"
        " ragged_all_to_all are those that leave a member",
        plan=_first_plan,
        new=_added,
        covering=True,
        recompiled=_in_tiles,
    ),
}
"""The change of every version after the first."""


@dataclass(frozen=True)
class Table:
    """The case table as of one version."""

    version: int

    @property
    def _later(self) -> list[TableChange]:
        """The changes after this version, the newest first."""
        return [CHANGES[n] for n in range(TABLE_VERSION, self.version, -1)]

    def has(self, case: Case) -> bool:
        """Whether this version has a case of today's table."""
        added = version_that_added(case.operation.name, case.cell.request.variant, TABLE_VERSION)
        return added <= self.version and not any(change.new(case) for change in self._later)

    def plan(self, case: Case) -> Plan:
        """The plan of a case in this version."""
        plan = case.plan
        for change in self._later:
            plan = change.plan(case, plan)
        return plan

    def entry(self, case: Case) -> CaseEntry:
        """What this version says of a case."""
        plan = self.plan(case)
        entry = CaseEntry(case.level, sum(nbytes(a, case.mesh) for a in plan.arguments), plan.cost)
        for change in self._later:
            entry = change.entry(case, entry)
        return entry

    def compiles_as_today(self, case: Case) -> bool:
        """Whether the case's programs are today's, so that the committed counters of collectives apply."""
        if any(change.recompiled(case) for change in self._later):
            return False
        return self.version == TABLE_VERSION or self.entry(case) == as_of().entry(case)

    def select(self, selection: Selection) -> Selection:
        """The selection, with the rules of this version for the choice of cases."""
        return replace(
            selection,
            covering=selection.covering and not any(change.covering for change in self._later),
            turning=selection.turning and not any(change.turning for change in self._later),
        )

    def cases(self, selection: Selection, num_devices: int) -> Iterator[Case]:
        """The chosen cases that this version has."""
        return filter(self.has, cases.cases(self.select(selection), num_devices))

    def find(self, case_id: str, num_devices: int, processes: int = 1) -> Case:
        """The case with this id, of any weight. SelectionError if this version has none."""
        case = cases.find(case_id, num_devices, processes)
        if not self.has(case):
            raise SelectionError(f"version {self.version} of the case table has no case {case_id!r}")
        return case


def as_of(version: int | None = None) -> Table:
    """The table as of a version (default: the current one). TableError if this suite does not know the version."""
    if version is None:
        version = TABLE_VERSION
    if type(version) is not int or not 1 <= version <= TABLE_VERSION:
        known = "version 1" if TABLE_VERSION == 1 else f"versions 1 to {TABLE_VERSION}"
        raise TableError(
            f"version {str(version)[:40]} of the case table is unknown, and this suite knows {known}: use the suite"
            " that wrote the records, or a newer one"
        )
    return Table(version)
