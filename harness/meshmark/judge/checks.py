# SPDX-License-Identifier: Apache-2.0
"""Judges one case: compiles it once, and checks sharding, communication, numbers and replicas of that program."""

from __future__ import annotations

import gc
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshmark.core import digests, interrupts, saying, values
from meshmark.core.calls import select_options
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.verdicts import Line, worst
from meshmark.devices import containment
from meshmark.judge import calls, precision
from meshmark.judge.communication import communication
from meshmark.judge.numbers import Numbers, compare_numbers, same_bits, without_subnormals
from meshmark.judge.placement import placement, typed
from meshmark.judge.programs import Program, make_gradient, mesh_over, place_array, x64
from meshmark.levels import deviations
from meshmark.operations.base import Argument, Missing, Result
from meshmark.operations.callbacks import drop_errors_of_callbacks, wait_for_callbacks
from meshmark.operations.cases import Case, Cell
from meshmark.operations.selection import CAPABILITY_PATTERNS

VALUES = ("numbers", "gradient")
"""The checks that compare values."""

CLEAR_EVERY = 200
"""The number of cases after which JAX's caches are dropped. Nothing is lost, because no program here is used
twice."""


def clear_sometimes(judged: int) -> None:
    """Drop JAX's caches if `judged`, the number of judged cases, is a multiple of CLEAR_EVERY."""
    if judged % CLEAR_EVERY == 0:
        jax.clear_caches()
        gc.collect()


@lru_cache(maxsize=4)
def prepare_cell(cell: Cell, seed: int) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray | None]]:
    """Make (arguments, expected results, bounds) of a cell, once for all of its modes."""
    arguments = cell.arguments(seed)
    given = [without_subnormals(a) for a in arguments] if flushed(cell) else arguments
    expected, bounds = cell.expected(given, precision.factor_roundoff(cell.plan, cell.request.dtype))
    return arguments, expected, bounds


def flushed(cell: Cell) -> float:
    """The threshold below which numbers count as zero, as a multiple of the smallest normal number of the cell's dtype.

    The judge applies it to the inputs of the reference and to the results. There are three values:

    - 0.0: nothing counts as zero.
    - 1.0: the inputs may hold subnormal numbers, the cell computes with them, and the device flushes them to zero.
    - n, the number of terms: the cell adds n numbers, tiny ones (subnormal ones on a device that keeps them, or the
      smallest normal one) among ordinary ones. An ordinary number absorbs a tiny one. If the ordinary numbers cancel,
      the order of the additions decides how many of the tiny ones are left: from none to n.
    """
    if not has_special_values(cell) or cell.plan.judge == "bits":
        return 0.0
    least = 1.0 if precision.flushes(cell.request.dtype) else 0.0
    kept = ("extreme",) if least else ("extreme", "subnormal")
    added = [
        a.options["terms"] for a in cell.plan.arguments
        if a.options.get("kind") in kept and a.options.get("base") is values.summands
        and dtype_of(cell.request.dtype).tiny
    ]  # fmt: skip
    return float(max(added, default=least))


def has_special_values(cell: Cell) -> bool:
    """Whether the cell's inputs hold values out of the ordinary, such as NaN or subnormal numbers."""
    return cell.request.variant.get("fill") is not None


@dataclass
class Judge:
    """Runs cases on given devices. Each worker makes one; it keeps the placed inputs of the current cell."""

    devices: tuple[Any, ...]
    seed: int = 0
    repeat: int = 1
    counters: Mapping[str, str] = field(default_factory=dict)
    """The committed counters of this release and backend by case id (see meshmark.levels.counters)."""
    meeting: Callable[[Case, Sequence[Mapping[str, Any]]], str] | None = None
    """For several processes: takes the compiled collectives of a program, and returns why it must not run, or ""."""
    earlier: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Where there are no counters of this release: an older release and its counters by case id."""
    _placed: tuple[Cell | None, dict[Any, list[jax.Array]]] = field(default=(None, {}))
    _judged_cases: int = 0

    def run(self, case: Case) -> list[Line]:
        """All check lines of a case. Whatever the case raises becomes a line and is not raised."""
        lines: list[Line] = []
        self._judged_cases += 1
        clear_sometimes(self._judged_cases)
        drop_errors_of_callbacks()  # of what ran before, outside of any case
        try:
            with x64(case.cell):
                lines += self._host(case) if case.mode == "host" else self._program(case)
                # A callback may fail after its program has returned. Without this the next case that waits for
                # callbacks gets the error.
                wait_for_callbacks()
        except BaseException as error:  # SystemExit and pytest's outcomes are the case's own too
            if interrupts.from_outside(error):
                raise
            lines.append(line_of_exception(case, error))
            drop_errors_of_callbacks()
        return lines

    def _program(self, case: Case) -> Iterator[Line]:
        program = Program(case, self.devices)
        compiled = program.compile()
        contract = communication(
            case,
            compiled,
            self.counters.get(case.id),
            self.earlier.get(case.id),
            containment.words_so_far(),
        )
        yield contract
        if self.meeting and (reason := self.meeting(case, contract.data.get("collectives", []))):
            yield Line("execute", "error", reason)
            return
        inputs = self.inputs(program)

        def execute() -> list[jax.Array]:
            with program.context():
                return jax.block_until_ready(jax.tree.leaves(compiled(*inputs)))

        lines = [*self.executed(program, execute)]
        passes = worst(line.verdict for line in lines) == "pass"
        # Over several processes, what one of them saw must not decide what runs: the others would wait for it.
        after = self._after_calls(program, compiled, lines) if passes or self.meeting else lines
        yield from after if passes else lines

    def _after_calls(self, program: Program, compiled: Any, lines: list[Line]) -> list[Line]:
        """The same lines, or failing ones if a call with other values fails or a call has changed its inputs."""
        case, inputs = program.case, self.inputs(program)
        deviates = any("deviation" in line.data for line in lines)
        if calls.is_called_again(case, self.seed) and (self.meeting or not deviates):
            others = self.inputs(program, self.seed + calls.OTHER)
            with program.context():  # both in flight
                both = [jax.tree.leaves(compiled(*some)) for some in (inputs, others)]
            jax.block_until_ready(both)
            for seed, outputs in zip((self.seed, self.seed + calls.OTHER), both, strict=True):
                wanted, limits = self._wanted(program, seed)
                places = [self.devices[i] for i in case.mesh.ordinals.flat]
                found = outputs_lines(case, places, program.results, outputs, wanted, limits, ())
                if worst(line.verdict for line in found) != "pass" and not deviates:
                    for line in found:
                        line.reason = (
                            line.reason and f"called again, beside a call with other values: {line.reason}"
                        )
                    return [Line("execute"), *found]
        arguments, _, _ = prepare_cell(case.cell, self.seed)
        views = [program.view(a, array) for a, array in zip(case.plan.arguments, arguments, strict=True)]
        if changed := calls.changed_argument(views, inputs):
            self._placed = (None, {})
            return [Line("execute", "fail", changed), *lines[1:]]
        return lines

    def _wanted(self, program: Program, seed: int) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """The expected results of a program and their bounds, in the form of its results."""
        _, expected, bounds = prepare_cell(program.case.cell, seed)
        results = program.case.plan.results
        wanted = [program.view(r, e) for r, e in zip(results, expected, strict=True)]
        return wanted, [
            None if b is None else program.view(r, b) for r, b in zip(results, bounds, strict=True)
        ]

    def executed(self, program: Program, execute: Callable[[], list[jax.Array]]) -> Iterator[Line]:
        """The lines of a compiled program that `execute` runs on the inputs."""
        wanted, limits = self._wanted(program, self.seed)
        outputs: list[list[jax.Array]] = []

        def kept() -> list[jax.Array]:
            made = execute()
            if not outputs:
                outputs.append(made)
            return made

        lines = [*self._judged(program.case, kept, program.results, wanted, limits, program.traced_types)]
        yield from self._deviating(program, lines, outputs[0])

    def _deviating(self, program: Program, lines: list[Line], outputs: list[jax.Array]) -> list[Line]:
        """The same lines, or those of the comparison with JAX on one device in place of NumPy.

        The second comparison is made if the numbers fail and a committed row (`levels.deviations`) allows it.
        `outputs` are those of the first run. If other runs differ from it, the lines stay.
        """
        if any(line.data.get("differing_runs") for line in lines):
            return lines
        failed = next((line for line in lines if line.check in VALUES and line.verdict == "fail"), None)
        row = (
            deviations.find_deviation(program.case, jax.__version__, jax.default_backend())
            if failed
            else None
        )
        if failed is None or row is None:
            return lines
        arguments, _, _ = prepare_cell(program.case.cell, self.seed)
        own = next(d for d in self.devices if d.process_index == jax.process_index())
        alone = run_unsharded(program.case, arguments, own)
        wanted = [program.view(r, a) for r, a in zip(program.case.plan.results, alone, strict=True)]
        places = [self.devices[i] for i in program.case.mesh.ordinals.flat]
        none = [None] * len(wanted)
        found = outputs_lines(
            program.case, places, program.results, outputs, wanted, none, program.traced_types
        )
        again = [Line("execute"), *found]
        again[1].data |= {k: v for k, v in lines[1].data.items() if k.endswith("runs")}
        for line in again:
            if line.check in VALUES and line.verdict == "pass":
                line.data["deviation"] = row.why
        return again if all(line.verdict == "pass" for line in again) else lines

    def _host(self, case: Case) -> Iterator[Line]:
        arguments, expected, bounds = prepare_cell(case.cell, self.seed)
        called, before = self.host_call(case), [array.copy() for array in arguments]

        def execute() -> list[jax.Array]:
            return jax.block_until_ready(jax.tree.leaves(called()))

        lines = [*self._judged(case, execute, case.plan.results, expected, bounds, ())]
        if changed := calls.changed_host_array(before, arguments):
            prepare_cell.cache_clear()
            lines[0] = Line("execute", "fail", changed)
        yield from lines

    def host_call(self, case: Case) -> Callable[[], Any]:
        """A function that calls the host operation on the inputs."""
        arguments, _, _ = prepare_cell(case.cell, self.seed)
        mesh = mesh_over(self.devices, case.mesh)
        host = type(case.operation).host
        return partial(host, mesh, *arguments, **select_options(host, case.plan.options))

    def _judged(
        self,
        case: Case,
        execute: Callable[[], list[jax.Array]],
        results: Sequence[Argument | Result],
        wanted: Sequence[np.ndarray],
        limits: Sequence[np.ndarray | None],
        traced: Sequence[Any],
    ) -> Iterator[Line]:
        """Execute once, and again as often as requested. The first run that does not pass gives the lines."""
        places = [self.devices[i] for i in case.mesh.ordinals.flat]
        first = execute()
        lines = outputs_lines(case, places, results, first, wanted, limits, traced)
        differ = wrong = 0
        for _ in range(1, self.repeat):
            again = execute()
            if same_bits(first, again):
                continue
            differ += 1
            found = outputs_lines(case, places, results, again, wanted, limits, traced)
            if worst(line.verdict for line in found) != "pass":
                wrong += 1
                if worst(line.verdict for line in lines) == "pass":
                    lines = found
        if self.repeat > 1:
            lines[0].data |= {"runs": self.repeat, "differing_runs": differ, "wrong_runs": wrong}
        yield Line("execute")
        yield from lines

    def inputs(self, program: Program, seed: int | None = None) -> list[jax.Array]:
        """The inputs on the devices; modes of a cell with the same placement share them. `seed`: the judge's own."""
        seed = self.seed if seed is None else seed
        cell, placed = self._placed
        if cell is not program.case.cell:
            placed = {}
            self._placed = (program.case.cell, placed)
        key = (program.mesh, program.stacked, seed)
        if key not in placed:
            placed[key] = placed_inputs(program, seed)
        return placed[key]


def run_unsharded(case: Case, arguments: Sequence[np.ndarray], device: Any) -> list[np.ndarray]:
    """The results of the operation's global function on one device, without any sharding."""
    spelling = type(case.operation).auto
    function: Callable[..., Any] = partial(spelling, **select_options(spelling, case.plan.options))
    if case.plan.wrt:
        function = make_gradient(function, case.plan.wrt, len(case.plan.forward))
    with jax.default_device(device):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*arguments))]


def placed_inputs(program: Program, seed: int) -> list[jax.Array]:
    """Make a program's inputs and put them on its devices."""
    arguments, _, _ = prepare_cell(program.case.cell, seed)
    return [
        place_array(program.mesh, seen.spec, program.view(argument, array))
        for argument, seen, array in zip(
            program.case.plan.arguments, program.arguments, arguments, strict=True
        )
    ]


def outputs_lines(
    case: Case,
    places: Sequence[Any],
    results: Sequence[Argument | Result],
    outputs: Sequence[jax.Array],
    wanted: Sequence[np.ndarray],
    limits: Sequence[np.ndarray | None],
    traced: Sequence[Any],
) -> list[Line]:
    """The lines of numbers (or gradient), replicas and sharding of one execution; `places` are the devices by
    flat mesh position."""
    check = numbers_check(case)
    if len(outputs) != len(results):
        return [Line(check, "fail", f"{len(outputs)} results instead of {len(results)}")]
    flush = flushed(case.cell)
    numbers = [
        compare_numbers(case, places, result, output, want, limit, flush)
        for result, output, want, limit in zip(results, outputs, wanted, limits, strict=True)
    ]
    lines = numbers_lines(case, numbers)
    if has_special_values(case.cell) and case.plan.judge != "bits":
        lines[0].data["subnormals"] = "flushed" if precision.flushes(case.cell.request.dtype) else "kept"
    if case.plan.precision:
        lines[0].data["precision"] = precision.format_precision(case.plan, case.cell.request.dtype)
    misplaced = [placement(case, places, r, o) for r, o in zip(results, outputs, strict=True)]
    types = [typed(case, r, t) for r, t in zip(results, traced, strict=False)]
    wrong_place = next(filter(None, [*misplaced, *types]), "")
    return [*lines, Line("sharding", "fail" if wrong_place else "pass", wrong_place)]


def numbers_check(case: Case) -> str:
    """The check that judges a case's numbers: numbers, or gradient."""
    return "gradient" if case.plan.wrt else "numbers"


def numbers_lines(case: Case, numbers: Sequence[Numbers]) -> list[Line]:
    """The lines of numbers (or gradient) and replicas, from the comparison of each result."""
    largest = max(numbers, key=lambda n: n.badness)
    data = {
        "error": largest.error,
        "bound": largest.bound,
        "bits": digests.of_arrays([n.assembled for n in numbers]),
    }
    replica = next((n.replica for n in numbers if n.replica), "")
    return [
        Line(numbers_check(case), "fail" if largest.badness > 1 else "pass", largest.reason, data),
        Line("replicas", "fail" if replica else "pass", replica),
    ]


SUMS = ("psum", "pmean")


@lru_cache(maxsize=1)
def has_grouped_sums() -> bool:
    """Whether this release traces `lax.psum` over axis_index_groups under check_vma, by a probe on one device.

    A release that can't raises a NotImplementedError without a message. So its message can't name the capability.
    """
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    probe = jax.shard_map(
        lambda x: jax.lax.psum(x, "x", axis_index_groups=[[0]]), mesh=mesh, in_specs=P("x"), out_specs=P("x")
    )
    try:
        jax.make_jaxpr(probe)(np.zeros(1, np.float32))
    except NotImplementedError:
        return False
    return True


def line_of_exception(case: Case, error: BaseException) -> Line:
    """The line of an exception, with the verdict unsupported or error.

    It is unsupported if a stated precondition is missing, or if the backend says that an optional capability of the
    case is not implemented. The message must name that capability: a NotImplementedError alone is an error.
    """
    message = saying.first_line(error)
    missing = isinstance(error, NotImplementedError) or "UNIMPLEMENTED" in message
    named = any(
        re.search(CAPABILITY_PATTERNS[name], message, re.IGNORECASE) for name in case.cell.capabilities
    )
    if missing and not message and case.mode == "manual" and case.operation.name in SUMS:
        named = "groups" in case.cell.capabilities and not has_grouped_sums()
        message = "this release has no psum over axis_index_groups under check_vma" if named else message
    verdict = "unsupported" if isinstance(error, Missing) or (missing and named) else "error"
    frames = [
        f"{PurePath(f.filename).stem}:{f.name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)
    ]
    return Line("execute", verdict, f"{type(error).__name__}: {message}"[:500], {"stack": frames[-12:]})
