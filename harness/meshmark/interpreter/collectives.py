# SPDX-License-Identifier: Apache-2.0
"""Instructions that move or combine data between devices, and those that give a device its id.

There are four ways in which groups name devices: see openxla/xla, hlo/ir/collective_op_group_mode.h. The id of a device
is replica * partitions + partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core import groups as spellings
from meshmark.core.groups import Groups
from meshmark.core.hlo import pairs_of_send
from meshmark.core.hlo_module import Computation, Instruction
from meshmark.core.hlo_types import Refused, TupleShape, flat
from meshmark.interpreter.control import contexts, done, fresh
from meshmark.interpreter.elementwise import narrowed
from meshmark.interpreter.faults import Fault, Hang
from meshmark.interpreter.meanings import Function, called, dimension, flag, means
from meshmark.interpreter.reductions import fold, reduced
from meshmark.interpreter.values import AnyValue, Pending, Value, array, full, mask

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_FLAGS = ("replica_groups", "use_global_device_ids", "constrain_layout")


@means("partition-id")
def _partition_id(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return Value((evaluator.ids % evaluator.module.partitions).astype(np.uint32))


@means("replica-id")
def _replica_id(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return Value((evaluator.ids // evaluator.module.partitions).astype(np.uint32))


# Groups ------------------------------------------------------------------------------------------------------


def groups_of(evaluator: Evaluator, instruction: Instruction) -> Groups:
    """The groups of a collective, as device ids."""
    replicas, partitions = evaluator.module.replicas, evaluator.module.partitions
    text = instruction.attributes.get("replica_groups", "{}")
    everywhere = "channel_id" in instruction.attributes
    flattened = flag(instruction, "use_global_device_ids")
    if flattened and not everywhere:
        raise Refused("use_global_device_ids without channel_id")
    if flattened:
        return _expanded(text, replicas * partitions)
    kind = instruction.opcode.removesuffix("-start")
    if everywhere and kind in (
        "all-to-all",
        "collective-permute",
        "collective-broadcast",
        "ragged-all-to-all",
    ):
        return tuple(
            tuple(replica * partitions + member for member in group)
            for replica in range(replicas)
            for group in _expanded(text, partitions)
        )
    if everywhere:  # all partitions of the replicas of a group
        return tuple(
            tuple(replica * partitions + p for replica in group for p in range(partitions))
            for group in _expanded(text, replicas)
        )
    return tuple(
        tuple(replica * partitions + partition for replica in group)
        for partition in range(partitions)
        for group in _expanded(text, replicas)
    )


def _expanded(text: str, devices: int) -> Groups:
    try:
        return spellings.spelled(text, devices)
    except ValueError:
        raise Refused(f"replica_groups {text[:80]}") from None


def find_group_rows(evaluator: Evaluator, instruction: Instruction) -> list[np.ndarray]:
    """The groups of the devices that compute now, as rows of the arrays.

    Hang if only a part of a group computes now. Fault if a device is in two groups or does not exist."""
    every = groups_of(evaluator, instruction)
    place = {int(device): row for row, device in enumerate(evaluator.ids)}
    named = [device for group in every for device in group]
    if len(set(named)) < len(named):
        raise Fault(f"{instruction.name}: a device is in two groups")
    if any(not 0 <= device < evaluator.module.num_devices for device in named):
        raise Fault(f"{instruction.name}: a group names a device that there is not")
    found = []
    for group in every:
        here = [device for device in group if device in place]
        if here and len(here) < len(group):
            absent = sorted(set(group) - set(here))
            raise Hang(f"{instruction.name} waits for device {absent[0]}, which never reaches it")
        if here:
            found.append(np.array([place[device] for device in group]))
    return found


def _tables(found: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One table per size of groups: int [groups, members]."""
    sizes = sorted({len(group) for group in found})
    return [np.stack([group for group in found if len(group) == size]) for size in sizes]


def _exchanged(
    evaluator: Evaluator,
    found: Sequence[np.ndarray],
    value: Value,
    exchange: Callable[[np.ndarray], np.ndarray],
    marks: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Value:
    """A value that each group computes from its members' parts.

    exchange: takes [groups, members, *dims] and gives [groups, members, *result]. marks: does the same with the poison
    (default: `exchange`). The result of a device in no group is poison."""

    def over(data: np.ndarray, how: Callable[[np.ndarray], np.ndarray], missing: object) -> np.ndarray:
        whole = full(data, evaluator.devices)
        result: np.ndarray | None = None
        for table in _tables(found):
            part = how(whole[table])
            if result is None:
                result = np.full((evaluator.devices, *part.shape[2:]), missing, part.dtype)
            result[table] = part
        if result is None:
            raise Refused("a collective without groups")
        return result

    data = over(value.data, exchange, 0)
    alone = sum(map(len, found)) < evaluator.devices
    if value.poison is None and not alone:
        return Value(data)
    return Value(data, over(mask(value), marks or exchange, True))


# Reductions --------------------------------------------------------------------------------------------------


def _summed(evaluator: Evaluator, instruction: Instruction) -> Callable[[np.ndarray], np.ndarray]:
    """A function that reduces [groups, members, *dims] along the members."""
    name = called(instruction, "to_apply")

    def reduce(data: np.ndarray) -> np.ndarray:
        if data.shape[1] == 1:
            return data[:, 0]
        return reduced(evaluator, name, data, 1)

    return reduce


def _all_reduce(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    found = find_group_rows(evaluator, instruction)
    computation = evaluator.computation(called(instruction, "to_apply"))
    if len(computation.parameters) > 2:
        return _joint_all_reduce(evaluator, instruction, values, found)
    reduce = _summed(evaluator, instruction)

    def exchange(data: np.ndarray) -> np.ndarray:
        return np.broadcast_to(reduce(data)[:, None], data.shape)

    def marks(poison: np.ndarray) -> np.ndarray:
        return np.broadcast_to(poison.any(axis=1, keepdims=True), poison.shape)

    results = tuple(_exchanged(evaluator, found, value, exchange, marks) for value in values)
    # TPU: summed in float32, and rounded once to the type that the all-reduce states, as in a reduce.
    results = tuple(
        Value(narrowed(r.data, shape.numpy), r.poison)
        for r, shape in zip(results, flat(instruction.shape), strict=True)
    )
    return results if isinstance(instruction.shape, TupleShape) else results[0]


def _joint_all_reduce(
    evaluator: Evaluator, instruction: Instruction, values: Sequence[Value], found: Sequence[np.ndarray]
) -> AnyValue:
    """The all-reduce of several arrays by one computation."""
    name = called(instruction, "to_apply")
    wholes = [full(value.known(instruction.name), evaluator.devices) for value in values]
    results = [np.array(whole) for whole in wholes]
    for group in found:
        parts = fold(evaluator, name, [np.moveaxis(whole[group], 0, -1) for whole in wholes])
        for result, part in zip(results, parts, strict=True):
            result[group] = part
    return tuple(map(Value, results))


def _reduce_scatter(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    found, reduce = find_group_rows(evaluator, instruction), _summed(evaluator, instruction)
    d = dimension(instruction)

    def scattered(data: np.ndarray, size: int) -> np.ndarray:
        """[groups, *dims] split along a dimension into [groups, members, *part]."""
        return np.stack(np.split(data, size, d + 1), axis=1)

    results = tuple(
        _exchanged(
            evaluator,
            found,
            value,
            lambda data: scattered(reduce(data), data.shape[1]),
            lambda poison: scattered(np.any(poison, axis=1), poison.shape[1]),
        )
        for value in values
    )
    return results if isinstance(instruction.shape, TupleShape) else results[0]


# Moves -------------------------------------------------------------------------------------------------------


def _all_gather(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    found, d = find_group_rows(evaluator, instruction), dimension(instruction)

    def exchange(data: np.ndarray) -> np.ndarray:
        groups, size, *dims = data.shape
        dims[d] *= size
        whole = np.moveaxis(data, 1, d + 1).reshape(groups, 1, *dims)
        return np.broadcast_to(whole, (groups, size, *dims))

    results = tuple(_exchanged(evaluator, found, value, exchange) for value in values)
    return results if len(results) > 1 else results[0]


def _all_to_all(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    found = find_group_rows(evaluator, instruction)
    if isinstance(instruction.shape, TupleShape):
        return _tuple_all_to_all(evaluator, instruction, values, found)
    d = dimension(instruction)

    def exchange(data: np.ndarray) -> np.ndarray:
        size = data.shape[1]
        parts = np.stack(np.split(data, size, d + 2), axis=1)  # [groups, to, from, *part]
        groups, _, _, *dims = parts.shape
        dims[d] *= size
        return np.moveaxis(parts, 2, d + 2).reshape(groups, size, *dims)

    return _exchanged(evaluator, found, values[0], exchange)


def _tuple_all_to_all(
    evaluator: Evaluator, instruction: Instruction, values: Sequence[Value], found: Sequence[np.ndarray]
) -> AnyValue:
    """The j-th operand goes to the j-th member; the i-th result comes from the i-th member."""
    if any(len(group) != len(values) for group in found):
        raise Fault(f"{instruction.name}: {len(values)} parts for groups of another size")
    devices = evaluator.devices
    stacked = np.stack([full(value.data, devices) for value in values], axis=1)
    poisoned = any(value.poison is not None for value in values)
    marks = np.stack([np.broadcast_to(mask(v), stacked[:, 0].shape) for v in values], 1) if poisoned else None
    results = np.zeros_like(stacked)
    spoiled = None if marks is None else np.zeros_like(marks)
    for group in found:
        results[group] = stacked[group].swapaxes(0, 1)
        if marks is not None and spoiled is not None:
            spoiled[group] = marks[group].swapaxes(0, 1)
    return tuple(Value(results[:, i], None if spoiled is None else spoiled[:, i]) for i in range(len(values)))


def pairs_of(evaluator: Evaluator, instruction: Instruction) -> tuple[tuple[int, int], ...]:
    """(source, target) of each pair of a permute, or of a send or recv between devices, as device ids.

    With a channel they name partitions of every replica, else replicas of every partition. Refused for an unknown
    form."""
    text = instruction.attributes.get("source_target_pairs") or pairs_of_send(instruction)
    try:
        pairs = spellings.spelled_pairs(text)
    except ValueError:
        raise Refused("source_target_pairs of another form") from None
    replicas, partitions = evaluator.module.replicas, evaluator.module.partitions
    if "channel_id" in instruction.attributes:
        return tuple((r * partitions + a, r * partitions + b) for r in range(replicas) for a, b in pairs)
    return tuple((a * partitions + p, b * partitions + p) for p in range(partitions) for a, b in pairs)


def _permute(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(o, instruction.name) for o in operands]
    found = permuted(evaluator, instruction.name, values, pairs_of(evaluator, instruction))
    return found if isinstance(instruction.shape, TupleShape) else found[0]


def permuted(
    evaluator: Evaluator, name: str, values: Sequence[Value], pairs: Sequence[tuple[int, int]]
) -> tuple[Value, ...]:
    """Values that move from the source to the target of each pair; zeros where nothing arrives.

    Fault for a device that sends or receives twice, or that does not exist. Hang for one that never comes. name: that
    of the instruction, for the message."""
    if len({b for _, b in pairs}) < len(pairs) or len({a for a, _ in pairs}) < len(pairs):
        raise Fault(f"{name}: a device sends or receives twice")
    place = {int(device): row for row, device in enumerate(evaluator.ids)}
    for a, b in pairs:
        if max(a, b) >= evaluator.module.num_devices:
            raise Fault(f"{name}: a pair names a device that there is not")
        if (a in place) != (b in place):
            absent = b if a in place else a
            raise Hang(f"{name} waits for device {absent}, which never reaches it")
    here = [(place[a], place[b]) for a, b in pairs if a in place]
    sources, targets = ([pair[k] for pair in here] for k in (0, 1))

    def move(data: np.ndarray) -> np.ndarray:
        result = np.zeros((evaluator.devices, *data.shape[1:]), data.dtype)
        result[targets] = full(data, evaluator.devices)[sources]
        return result

    return tuple(Value(move(v.data), None if v.poison is None else move(mask(v))) for v in values)


def _broadcast(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The first member of each group sends to the others. Devices in no group have zeros."""
    value, found = array(operands[0], instruction.name), find_group_rows(evaluator, instruction)

    def move(data: np.ndarray) -> np.ndarray:
        whole = full(data, evaluator.devices)
        result = np.zeros_like(whole)
        for group in found:
            result[group] = whole[group[0]]
        return result

    return Value(move(value.data), None if value.poison is None else move(mask(value)))


def _ragged(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """Each member gets send_sizes rows, from input_offsets of the operand to output_offsets of its result."""
    value, output, *numbers = (array(operand, instruction.name) for operand in operands)
    devices = evaluator.devices
    starts, sizes, places, received = (
        full(n.known(instruction.name).astype(np.int64), devices) for n in numbers
    )
    data, marks = full(value.data, devices), np.broadcast_to(mask(value), full(value.data, devices).shape)
    result = np.array(full(output.data, devices))
    spoiled = np.array(np.broadcast_to(mask(output), result.shape))
    for group in find_group_rows(evaluator, instruction):
        if sizes.shape[1] != len(group):
            raise Fault(f"{instruction.name}: {sizes.shape[1]} sizes for a group of {len(group)}")
        for i, sender in enumerate(group):
            for j, receiver in enumerate(group):
                size, start, place = sizes[sender, j], starts[sender, j], places[sender, j]
                if size != received[receiver, i]:
                    raise Fault(
                        f"{instruction.name}: {size} rows are sent and {received[receiver, i]} awaited"
                    )
                if start + size > data.shape[1] or place + size > result.shape[1] or min(start, place) < 0:
                    raise Fault(f"{instruction.name} reads or writes past the end of an array")
                result[receiver, place : place + size] = data[sender, start : start + size]
                spoiled[receiver, place : place + size] = marks[sender, start : start + size]
    poisoned = value.poison is not None or output.poison is not None
    return Value(result, spoiled if poisoned else None)


_COLLECTIVES: dict[str, tuple[Function, tuple[str, ...]]] = {
    "all-reduce": (_all_reduce, (*_FLAGS, "to_apply")),
    "reduce-scatter": (_reduce_scatter, (*_FLAGS, "to_apply", "dimensions")),
    "all-gather": (_all_gather, (*_FLAGS, "dimensions")),
    "all-to-all": (_all_to_all, (*_FLAGS, "dimensions")),
    "collective-permute": (_permute, ("source_target_pairs",)),
    "collective-broadcast": (_broadcast, (*_FLAGS, "has_dynamic_root")),
    "ragged-all-to-all": (_ragged, _FLAGS),
}


def _started(kind: str, function: Function) -> Function:
    """The start of a collective. Its tuple holds the operands, the pending result, and contexts."""

    def start(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
        shape = instruction.shape
        nested = isinstance(shape, TupleShape) and isinstance(shape.parts[0], TupleShape)
        if kind == "all-reduce" and not nested:  # TPU: its type is only that of the result
            return Pending(function(evaluator, instruction, operands))
        if not isinstance(shape, TupleShape) or len(shape.parts) < 2:
            raise Refused(f"{instruction.opcode} of type {shape}")
        result = function(evaluator, instruction.changed(shape=shape.parts[1]), operands)
        # GPU: the operands are in a tuple, even a single one.
        return contexts(shape, [tuple(operands) if nested else operands[0], Pending(result)])

    return start


def _finished(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return done(operands[0], 1)


def _chained(function: Function) -> Function:
    """A collective that a chain of TPU fusions starts, steps and ends. The text of each of these fusions has it, but
    only the last one has its result."""

    def collective(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
        result = function(evaluator, instruction, operands)
        if "chain_id" in instruction.frontend and not ends_chain(evaluator.computation_now):
            return fresh(instruction.shape)
        return result

    return collective


def ends_chain(computation: Computation) -> bool:
    """Whether a computation ends an asynchronous chain of fusions."""
    return any(
        '"AsyncCollectiveDone"' in i.attributes.get("custom_call_target", "")
        for i in computation.instructions
    )


for _kind, (_function, _attributes) in _COLLECTIVES.items():
    means(_kind, attributes=_attributes)(_chained(_function))
    means(f"{_kind}-start", attributes=_attributes)(_started(_kind, _function))
    means(f"{_kind}-done")(_finished)

COLLECTIVES = frozenset(opcode for kind in _COLLECTIVES for opcode in (kind, f"{kind}-start", f"{kind}-done"))
"""The opcodes that move or combine data between devices."""
