# SPDX-License-Identifier: Apache-2.0
"""Judges one case: compiles it once, and checks sharding, communication, numbers and replicas of that program."""

from __future__ import annotations

import gc
import hashlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any

import jax
import numpy as np

from meshmark.core import layout
from meshmark.core.calls import select_options
from meshmark.core.dtypes import as_bits
from meshmark.core.verdicts import Line, worst
from meshmark.judge import precision
from meshmark.judge.communication import communication
from meshmark.judge.programs import Program, mesh_over, place
from meshmark.operations.base import Argument, Missing, Result
from meshmark.operations.cases import Case, Cell

CLEAR_EVERY = 200
"""Number of cases after which JAX's caches are dropped: no program here is used a second time."""


def clear_sometimes(judged: int) -> None:
    """Drop JAX's caches if `judged`, the number of judged cases, is a multiple of CLEAR_EVERY."""
    if judged % CLEAR_EVERY == 0:
        jax.clear_caches()
        gc.collect()


@lru_cache(maxsize=4)
def prepare_cell(cell: Cell, seed: int) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray | None]]:
    """Make (arguments, expected results, bounds) of a cell, once for all of its modes."""
    arguments = cell.arguments(seed)
    expected, bounds = cell.expected(arguments, precision.factor_roundoff(cell.plan, cell.request.dtype))
    return arguments, expected, bounds


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
    _placed: tuple[Cell | None, dict[Any, list[jax.Array]]] = field(default=(None, {}))
    _judged_cases: int = 0

    def run(self, case: Case) -> list[Line]:
        """All check lines of a case. An exception of the case becomes a line and is not raised."""
        lines: list[Line] = []
        self._judged_cases += 1
        clear_sometimes(self._judged_cases)
        try:
            lines += self._host(case) if case.mode == "host" else self._program(case)
        except Exception as error:
            lines.append(line_of_exception(case, error))
        return lines

    def _program(self, case: Case) -> Iterator[Line]:
        program = Program(case, self.devices)
        compiled = program.compile()
        contract = communication(case, compiled, self.counters.get(case.id))
        yield contract
        if self.meeting and (reason := self.meeting(case, contract.data.get("collectives", []))):
            yield Line("execute", "error", reason)
            return
        inputs = self.inputs(program)

        def execute() -> list[jax.Array]:
            with program.context():
                return jax.block_until_ready(jax.tree.leaves(compiled(*inputs)))

        yield from self.executed(program, execute)

    def executed(self, program: Program, execute: Callable[[], list[jax.Array]]) -> Iterator[Line]:
        """The lines of a compiled program that `execute` runs on the inputs."""
        _, expected, bounds = prepare_cell(program.case.cell, self.seed)
        results = program.case.plan.results
        wanted = [program.view(r, e) for r, e in zip(results, expected, strict=True)]
        limits = [None if b is None else program.view(r, b) for r, b in zip(results, bounds, strict=True)]
        yield from self._judged(program.case, execute, program.results, wanted, limits, program.traced_types)

    def _host(self, case: Case) -> Iterator[Line]:
        _, expected, bounds = prepare_cell(case.cell, self.seed)
        called = self.host_call(case)

        def execute() -> list[jax.Array]:
            return jax.block_until_ready(jax.tree.leaves(called()))

        yield from self._judged(case, execute, case.plan.results, expected, bounds, ())

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

    def inputs(self, program: Program) -> list[jax.Array]:
        """The inputs on the devices; modes of a cell with the same placement share them."""
        cell, placed = self._placed
        if cell is not program.case.cell:
            placed = {}
            self._placed = (program.case.cell, placed)
        key = (program.mesh, program.stacked)
        if key not in placed:
            placed[key] = placed_inputs(program, self.seed)
        return placed[key]


def placed_inputs(program: Program, seed: int) -> list[jax.Array]:
    """Make a program's inputs and put them on its devices."""
    arguments, _, _ = prepare_cell(program.case.cell, seed)
    return [
        place(program.mesh, seen.spec, program.view(argument, array))
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
    check = "gradient" if case.plan.wrt else "numbers"
    if len(outputs) != len(results):
        return [Line(check, "fail", f"{len(outputs)} results instead of {len(results)}")]
    numbers = [
        compare(case, places, result, output, want, limit)
        for result, output, want, limit in zip(results, outputs, wanted, limits, strict=True)
    ]
    largest = max(numbers, key=lambda n: n.badness)
    data = {"error": largest.error, "bound": largest.bound, "bits": _digest([n.assembled for n in numbers])}
    if case.plan.precision:
        data["precision"] = precision.format_precision(case.plan, case.cell.request.dtype)
    replica = next((n.replica for n in numbers if n.replica), "")
    misplaced = [placement(case, places, r, o) for r, o in zip(results, outputs, strict=True)]
    types = [typed(case, r, t) for r, t in zip(results, traced, strict=False)]
    wrong_place = next(filter(None, [*misplaced, *types]), "")
    return [
        Line(check, "fail" if largest.badness > 1 else "pass", largest.reason, data),
        Line("replicas", "fail" if replica else "pass", replica),
        Line("sharding", "fail" if wrong_place else "pass", wrong_place),
    ]


def same_bits(some: Sequence[jax.Array], others: Sequence[jax.Array]) -> bool:
    """Whether two executions have the same bits on every device."""
    return all(
        np.array_equal(as_bits(np.asarray(a.data)), as_bits(np.asarray(b.data)))
        for one, other in zip(some, others, strict=True)
        for a, b in zip(one.addressable_shards, other.addressable_shards, strict=True)
    )


@dataclass
class Numbers:
    """The comparison of one result: `badness` is the largest error as a multiple of its bound (inf if the bound
    is zero and the numbers differ)."""

    badness: float = 0.0
    error: float = 0.0
    bound: float = 0.0
    reason: str = ""
    replica: str = ""
    assembled: np.ndarray = field(default_factory=lambda: np.zeros(0))


def compare(
    case: Case,
    places: Sequence[Any],
    result: Argument | Result,
    output: jax.Array,
    want: np.ndarray,
    bound: np.ndarray | None,
) -> Numbers:
    """Compare every device's shard with its part of the reference, and replicas with each other to the bit.

    A device's part follows from the mesh and the expected spec, by this project's own arithmetic. JAX must give the
    same index for the shard.
    """
    verdict = Numbers()
    if output.shape != result.shape or output.dtype.name != result.dtype:
        return Numbers(
            np.inf,
            reason=f"result is {output.dtype}{list(output.shape)} instead of {result.dtype}{list(result.shape)}",
        )
    if absent := hidden(places, output):
        return Numbers(np.inf, reason=absent)
    parts = dict(zip(places, layout.indices(result.shape, result.spec, case.mesh.sizes), strict=True))
    first: dict[tuple, tuple[Any, np.ndarray]] = {}
    assembled = np.zeros(result.shape, output.dtype)
    for shard in output.addressable_shards:
        index = parts.get(shard.device)
        seen = np.asarray(shard.data)
        if index is None or seen.shape != want[index].shape:
            # The placement check reports the wrong sharding; here the existing data are compared.
            index = tuple(slice(*i.indices(n)[:2]) for i, n in zip(shard.index, result.shape, strict=True))
        if seen.shape != want[index].shape:
            return Numbers(
                np.inf,
                reason=f"{shard.device} holds {list(seen.shape)} where its sharding says {_show(index)}",
            )
        key = tuple((i.start, i.stop) for i in index)
        if key in first:
            other, block = first[key]
            if not verdict.replica and not np.array_equal(as_bits(block), as_bits(seen)):
                verdict.replica = (
                    f"devices {other} and {shard.device} hold different replicas of {_show(index)}"
                )
        else:
            first[key] = (shard.device, seen)
            assembled[index] = seen
        found = difference(case.plan.judge, seen, want[index], None if bound is None else bound[index])
        if found is not None and found[0] > verdict.badness:
            verdict.badness, verdict.error, verdict.bound, where, count = found
            if verdict.badness > 1:
                place_ = tuple(int(w) + i.start for w, i in zip(where, index, strict=True))
                verdict.reason = (
                    f"{count} of {seen.size} elements differ on {shard.device} (shard {_show(index)}): at"
                    f" {list(place_)} expected {want[index][where]}, seen {seen[where]}"
                )
    verdict.assembled = assembled
    return verdict


def hidden(places: Sequence[Any], output: jax.Array) -> str:
    """Why the shards of an output are not one on each device of the mesh that this process owns, or "".

    The comparison loops over the shards that there are, so a shard that is not shown would pass unseen.
    """
    here = jax.process_index()
    own = {device for device in places if device.process_index == here}
    shown = Counter(shard.device for shard in output.addressable_shards)
    if missing := sorted(own - shown.keys(), key=str):
        return f"{len(missing)} of {len(own)} devices of this process show no shard, such as {missing[0]}"
    if foreign := sorted(shown.keys() - own, key=str):
        return f"{foreign[0]} shows a shard and is not a device of the mesh and this process"
    twice = next((device for device, number in shown.items() if number > 1), None)
    return "" if twice is None else f"{twice} shows {shown[twice]} shards instead of one"


def difference(
    judge: str, seen: np.ndarray, want: np.ndarray, bound: np.ndarray | None
) -> tuple[float, float, float, tuple, int] | None:
    """(badness, error, bound, where, how many) of the worst element; None if no element differs."""
    if bound is None:
        if np.array_equal(as_bits(seen), as_bits(want)):
            return None
        wrong = as_bits(seen) != as_bits(want) if judge == "bits" else seen != want
        wrong = wrong.reshape(*seen.shape, -1).any(axis=-1)
        if not wrong.any():
            return None
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        with np.errstate(all="ignore"):
            error = np.abs(_wide(seen) - _wide(want))[wrong].max()
        return np.inf, float(error), 0.0, where, int(wrong.sum())
    if not seen.size:
        return None
    if not np.isfinite(bound).all():
        raise ValueError("the reference has no finite bound for this case, so no result could fail")
    error = np.abs(_wide(seen) - want)
    with np.errstate(all="ignore"):
        ratio = np.where(error == 0, 0.0, error / bound)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    where = tuple(int(i) for i in np.unravel_index(np.argmax(ratio), ratio.shape))
    return float(ratio[where]), float(error[where]), float(bound[where]), where, int((ratio > 1).sum())


def placement(case: Case, places: Sequence[Any], result: Argument | Result, output: jax.Array) -> str:
    """The difference between the output's placement and the spec; "" if there is none."""
    want = dict(zip(places, layout.indices(result.shape, result.spec, case.mesh.sizes), strict=True))
    for shard in output.addressable_shards:
        index = tuple(slice(*i.indices(n)[:2]) for i, n in zip(shard.index, result.shape, strict=True))
        if want.get(shard.device) != index:
            return f"{shard.device} holds {_show(index)} instead of {_show(want.get(shard.device))} ({output.sharding})"
    if len(output.sharding.device_set) != case.mesh.size:
        return f"on {len(output.sharding.device_set)} devices instead of {case.mesh.size}"
    return ""


def typed(case: Case, result: Argument | Result, seen: Any) -> str:
    """The difference between the type at trace time (explicit mode) and the expected spec; "" if there is none."""
    sizes, ndim = case.mesh.sizes, len(result.shape)
    got = layout.normal(tuple(seen.sharding.spec), sizes, ndim)
    want = layout.normal(result.spec, sizes, ndim)
    return "" if got == want else f"typed {seen} while tracing: spec {got} instead of {want}"


def line_of_exception(case: Case, error: Exception) -> Line:
    """The line of an exception: unsupported if a stated precondition is missing, or if an optional capability is not
    implemented; otherwise error."""
    message = next(iter(str(error).splitlines()), "")
    missing = isinstance(error, NotImplementedError) or "UNIMPLEMENTED" in message
    unsupported = isinstance(error, Missing) or (missing and case.cell.capabilities)
    verdict = "unsupported" if unsupported else "error"
    frames = [
        f"{PurePath(f.filename).stem}:{f.name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)
    ]
    return Line("execute", verdict, f"{type(error).__name__}: {message}"[:500], {"stack": frames[-12:]})


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _show(index: Sequence[slice] | None) -> str:
    return "nothing" if index is None else "[" + ", ".join(f"{i.start}:{i.stop}" for i in index) + "]"


def _digest(arrays: Sequence[np.ndarray]) -> str:
    state = hashlib.blake2b(digest_size=8)
    for array in arrays:
        state.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return state.hexdigest()
