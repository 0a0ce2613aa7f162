# SPDX-License-Identifier: Apache-2.0
"""Instructions that call computations or pass values on: fusions, calls, loops, branches, tuples, async pairs.

Each device has its own predicates and trip counts. A loop or a branch is computed for only those devices that take it.
A collective in it hangs if some members of its group never reach it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction, split_list
from meshmark.core.hlo_types import AnyShape, Refused, TupleShape
from meshmark.interpreter.faults import Fault
from meshmark.interpreter.meanings import MEANINGS, Function, called, means
from meshmark.interpreter.values import AnyValue, Pending, Value, array, full, mask, unwritten

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
"""The trip count in the configuration of a loop. A compiler may use it instead of the condition."""

MOST_TRIPS = 50_000
"""The most trips of all loops of a program together, which take five seconds or more. A program with more is not
judged: nothing here tells a long loop from an endless one."""


@means("fusion", attributes=("kind", "calls"))
def _fusion(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return evaluator.run(called(instruction, "calls"), operands)


@means("call", attributes=("to_apply", "is_composite"))
def _call(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return evaluator.run(called(instruction, "to_apply"), operands)


@means("tuple")
def _tuple(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return tuple(operands)


@means("get-tuple-element", attributes=("index",))
def _element(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    whole = operands[0]
    if not isinstance(whole, tuple):
        raise Fault(f"{instruction.name} takes an element of what is not a tuple")
    return whole[int(instruction.attributes["index"])]


@means("opt-barrier")
def _barrier(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return operands[0] if len(operands) == 1 else tuple(operands)


@means("after-all")
def _after_all(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return ()


@means("add-dependency")
def _dependency(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return operands[0]


# Values of some devices --------------------------------------------------------------------------------------


def take_rows(value: AnyValue, rows: np.ndarray, devices: int) -> AnyValue:
    """The parts of a value of `devices` devices that belong to some of them."""
    if isinstance(value, tuple):
        return tuple(take_rows(part, rows, devices) for part in value)
    if isinstance(value, Pending):
        return Pending(take_rows(value.value, rows, devices))
    if value.data.shape[0] != devices and (value.poison is None or value.poison.shape[0] != devices):
        return value
    poison = None if value.poison is None else full(value.poison, devices)[rows]
    return Value(full(value.data, devices)[rows], poison)


def merged(parts: Sequence[tuple[np.ndarray, AnyValue]], devices: int) -> AnyValue:
    """The value of all devices, from (rows, value) of some devices each."""
    first = parts[0][1]
    if len(parts) == 1 and len(parts[0][0]) == devices:
        return first
    if isinstance(first, tuple):
        return tuple(
            merged([(rows, value[i]) for rows, value in parts], devices)  # type: ignore[index]
            for i in range(len(first))
        )
    arrays = [(rows, array(value, "a branch")) for rows, value in parts]
    sample = arrays[0][1].data
    data = np.empty((devices, *sample.shape[1:]), sample.dtype)
    for rows, value in arrays:
        data[rows] = value.data
    if all(value.poison is None for _, value in arrays):
        return Value(data)
    poison = np.zeros(data.shape, bool)
    for rows, value in arrays:
        poison[rows] = mask(value)
    return Value(data, poison)


# Branches and loops ------------------------------------------------------------------------------------------


@means("conditional", attributes=("branch_computations", "true_computation", "false_computation"))
def _conditional(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    selector = array(operands[0], instruction.name).known(instruction.name)
    if "branch_computations" in instruction.attributes:
        inner = instruction.attributes["branch_computations"].strip("{}")
        names = [part.lstrip("%") for part in split_list(inner)]
    else:
        names = [called(instruction, f"{which}_computation") for which in ("true", "false")]
    if selector.dtype == bool:
        index = np.where(selector, 0, 1)
    else:  # an index out of range selects the last branch
        index = np.where((selector < 0) | (selector >= len(names)), len(names) - 1, selector)
    devices = evaluator.devices
    each = np.broadcast_to(index.reshape(-1), (devices,)) if index.size == 1 else index.reshape(-1)
    parts = []
    for branch in sorted(set(each.tolist())):
        rows = np.flatnonzero(each == branch)
        argument = take_rows(operands[1 + branch], rows, devices)
        with evaluator.among(rows):
            parts.append((rows, evaluator.run(names[branch], [argument])))
    return merged(parts, devices)


@means("while", attributes=("condition", "body"))
def _while(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    condition, body = called(instruction, "condition"), called(instruction, "body")
    state = operands[0] if len(operands) == 1 else tuple(operands)
    devices = evaluator.devices
    rows = np.arange(devices)
    finished: list[tuple[np.ndarray, AnyValue]] = []
    promised = _TRIPS.search(instruction.backend_config)
    trips = 0
    while True:
        with evaluator.among(rows):
            test = array(evaluator.run(condition, [state]), instruction.name).known(instruction.name)
            goes_on = np.broadcast_to(test.reshape(-1), (len(rows),))
        if not goes_on.all():
            if promised and int(promised[1]) != trips:
                raise Fault(f"{instruction.name} ends after {trips} trips, and its text says {promised[1]}")
            ended = np.flatnonzero(~goes_on)
            finished.append((rows[ended], take_rows(state, ended, len(rows))))
            kept = np.flatnonzero(goes_on)
            state, rows = take_rows(state, kept, len(rows)), rows[kept]
            if not len(rows):
                return merged(finished, devices)
        trips += 1
        evaluator.trips += 1
        if evaluator.trips > MOST_TRIPS:
            raise Refused(f"more than {MOST_TRIPS:,} trips of loops")
        with evaluator.among(rows):
            state = evaluator.run(body, [state])


# Asynchronous pairs ------------------------------------------------------------------------------------------


def contexts(shape: AnyShape, known: Sequence[AnyValue]) -> tuple[AnyValue, ...]:
    """The tuple of a start: the known parts, followed by contexts that no instruction may read."""
    if not isinstance(shape, TupleShape):
        raise Refused(f"an asynchronous start of type {shape}")
    return (*known, *(fresh(part) for part in shape.parts[len(known) :]))


def fresh(shape: AnyShape) -> AnyValue:
    """An unwritten value of this type."""
    if isinstance(shape, TupleShape):
        return tuple(fresh(part) for part in shape.parts)
    if shape.dtype == "token":
        return ()
    return unwritten(shape.dims, shape.numpy)


@means("copy-start")
def _copy_start(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return contexts(instruction.shape, [Pending(operands[0]), operands[0]])


@means("copy-done")
def _copy_done(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return done(operands[0], 0)


def done(started: AnyValue, at: int) -> AnyValue:
    """The result of an asynchronous start, at the index `at` of its tuple."""
    if isinstance(started, Pending):
        return started.value
    if isinstance(started, tuple) and len(started) > at and isinstance(started[at], Pending):
        return started[at].value  # type: ignore[union-attr]
    raise Fault("a done without its start")


@means("async-start", attributes=("calls", "async_group_id"))
def _async_start(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    result = evaluator.run(called(instruction, "calls"), operands)
    return contexts(instruction.shape, [tuple(operands), Pending(result)])


@means("async-update", attributes=("calls", "async_group_id"))
def _async_update(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return operands[0]


@means("async-done", attributes=("calls", "async_group_id"))
def _async_done(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return done(operands[0], 1)


def starting(function: Function, opcode: str) -> Function:
    """The start of an instruction that is usually synchronous, such as slice-start. Its attributes are the
    instruction's."""

    def start(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
        shape = instruction.shape
        if not isinstance(shape, TupleShape) or len(shape.parts) < 2:
            raise Refused(f"{instruction.opcode} of type {shape}")
        result = function(evaluator, instruction.changed(opcode=opcode, shape=shape.parts[1]), operands)
        return contexts(shape, [tuple(operands), Pending(result)])

    return start


@means("call-start", attributes=("to_apply",))
def _call_start(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """A call on another core. On tpu7x it may start without its operands, which an update then passes."""
    computation = evaluator.computation(called(instruction, "to_apply"))
    if len(operands) < len(computation.parameters):
        if operands:
            raise Refused("a call-start with some of its operands")
        return fresh(instruction.shape)
    return starting(_call, "call")(evaluator, instruction, operands)


@means("call-update", attributes=("to_apply",))
def _call_update(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    first, *handed = operands
    if not handed:
        return first
    start = evaluator.computation_now.by_name[instruction.operands[0]]
    if start.opcode != "call-start" or start.operands:
        raise Refused("a call-update that hands over operands to another than a bare call-start")
    result = evaluator.run(called(start, "to_apply"), handed)
    return contexts(instruction.shape, [tuple(handed), Pending(result)])


@means("call-done", attributes=("to_apply",))
def _call_done(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return done(operands[0], 1)


def register_asynchronous() -> None:
    """Register a start, an update and a done for each instruction that does not have its own.

    XLA prints an async-start around one instruction this way: slice-start on TPU, fusion-start on GPU."""
    for opcode, known in list(MEANINGS.items()):
        own = any(f"{opcode}-{part}" in MEANINGS for part in ("start", "done"))
        if own or opcode.endswith(("-start", "-update", "-done")):
            continue
        means(f"{opcode}-start", attributes=known.attributes)(starting(known.function, opcode))
        means(f"{opcode}-update")(_async_update)
        means(f"{opcode}-done")(_async_done)
