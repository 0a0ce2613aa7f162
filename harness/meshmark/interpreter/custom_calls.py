# SPDX-License-Identifier: Apache-2.0
"""The custom calls that the interpreter knows, by target. Any other target is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction, split_list
from meshmark.core.hlo_types import Refused, TupleShape
from meshmark.interpreter.collectives import COLLECTIVES
from meshmark.interpreter.control import contexts, fresh
from meshmark.interpreter.faults import Fault
from meshmark.interpreter.meanings import Function, Meaning, array_shape, means
from meshmark.interpreter.reductions import largest
from meshmark.interpreter.values import AnyValue, Value, array, moved

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

TARGETS: dict[str, Meaning] = {}
"""The meaning of each target, and the attributes that it has in addition to those of every custom call."""

_ATTRIBUTES = (
    *("custom_call_target", "operand_layout_constraints", "api_version", "custom_call_has_side_effect"),
    *("called_computations", "schedule"),
)
_OF_CONVOLUTIONS = ("window", "dim_labels", "feature_group_count", "batch_group_count", "operand_precision")
"""Attributes that a custom call may have if its target reads them."""


def target(*names: str, attributes: Iterable[str] = ()) -> Callable[[Function], Function]:
    """A decorator that registers a function as the meaning of targets whose calls may have these attributes."""

    def register(function: Function) -> Function:
        TARGETS.update(dict.fromkeys(names, Meaning(function, frozenset(attributes))))
        return function

    return register


def check_names(what: str, config: Mapping[str, object], known: Iterable[str]) -> None:
    """Refused if the configuration of a call has an entry with another name than these."""
    if unknown := set(config) - set(known):
        raise Refused(f"{what} with {min(unknown)}")


Attribute = bool | int | str
_TYPED = re.compile(r'(\w+) = (?:(true|false)|(-?\d+)(?: : \w+)?|"([^"]*)")')


def typed_attributes(instruction: Instruction) -> dict[str, Attribute]:
    """The attributes in a typed call's configuration, by name; Refused for an unknown form."""
    text = instruction.backend_config
    found: dict[str, Attribute] = {}
    for part in split_list(text[1:-1]):
        match = _TYPED.fullmatch(part)
        if not match:
            raise Refused(f"the attribute {part[:60]!r} of a custom call")
        name, truth, number, word = match.groups()
        found[name] = truth == "true" if truth else int(number) if number else word
    return found


@means("custom-call", attributes=(*_ATTRIBUTES, *_OF_CONVOLUTIONS))
def _custom_call(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    name = instruction.attributes["custom_call_target"].strip('"')
    if name not in TARGETS:
        raise Refused(f"custom call {name}")
    known = TARGETS[name]
    for attribute in _OF_CONVOLUTIONS:
        if attribute in instruction.attributes and attribute not in known.attributes:
            raise Refused(f"attribute {attribute} of custom call {name}")
    return known.function(evaluator, instruction, operands)


@target("AllocateBuffer", "CreateBuffer")
def _buffer(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return fresh(instruction.shape)


@target(
    "AssumeGatherIndicesInBound",
    "GatherScatterIndicesBitpacked",
    "Sharding",
    "annotate_device_placement",
    "MoveToHost",
    "MoveToDevice",
    "LayoutConstraint",
    "PinToVmem",
    "Pin",
    "Unpin",
)
def _same(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """Notes for the compiler, which do not change the value. (Indices that were packed into words are unpacked by
    shifts and masks before this call.)"""
    return operands[0] if len(operands) == 1 else tuple(operands)


@target("ZeroCrop")
def _zero_crop(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The array with the padding of its tiles as elements, which are zeros. A collective then takes whole tiles."""
    value, dims = array(operands[0], instruction.name), array_shape(instruction).dims
    more = [(0, n - m) for n, m in zip(dims, value.data.shape[1:], strict=True)]
    return moved(lambda data: np.pad(data, [(0, 0), *more]), value)


@target("AsyncCollectiveStart")
def _chain_start(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The start of a chain of TPU fusions: the operand of the collective, then unwritten memory for its result and
    contexts."""
    collective = evaluator.computation_now.by_name[instruction.operands[0]]
    if collective.opcode not in COLLECTIVES or len(collective.operands) != 1:
        raise Refused(f"AsyncCollectiveStart of {collective.opcode}")
    given = evaluator.value(collective.operands[0])
    return contexts(instruction.shape, [given])


@target("AsyncCollectiveDone")
def _chain_done(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The end of a chain: the result of its collective, which the text of the fusion repeats."""
    for name, operand in zip(instruction.operands, operands, strict=True):
        if evaluator.computation_now.by_name[name].opcode in COLLECTIVES:
            return operand
    raise Fault(f"{instruction.name} ends a chain without its collective")


@target("TopK")
def _top_k(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    if not isinstance(instruction.shape, TupleShape):
        raise Refused("TopK without indices")
    first = instruction.shape.parts[0]
    return largest(array(operands[0], instruction.name), first.dims[-1])  # type: ignore[union-attr]


@target("__gpu$TopK")
def _gpu_top_k(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    attributes = typed_attributes(instruction)
    if attributes != {"is_stable": True, "order": "TOTAL"}:
        raise Refused(f"custom call __gpu$TopK with {attributes}")
    if not isinstance(instruction.shape, TupleShape):
        raise Refused("TopK without indices")
    first = instruction.shape.parts[0]
    value = array(operands[0], instruction.name)
    return largest(value, first.dims[-1], totally=True)  # type: ignore[union-attr]


# 64-bit integers on TPU, as two words ------------------------------------------------------------------------


def _words(instruction: Instruction, operands: Sequence[AnyValue]) -> tuple[Value, np.ndarray]:
    value = array(operands[0], instruction.name)
    if value.data.dtype.kind not in "iu":
        raise Refused(f"{instruction.attributes['custom_call_target']} of {value.data.dtype}")
    return value, value.data.astype(np.uint64)


@target("X64SplitLow")
def _low(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    value, words = _words(instruction, operands)
    low = (words & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return Value(low.view(array_shape(instruction).numpy), value.poison)


@target("X64SplitHigh")
def _high(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    value, words = _words(instruction, operands)
    high = (words >> np.uint64(32)).astype(np.uint32)
    return Value(high.view(array_shape(instruction).numpy), value.poison)


@target("X64Combine")
def _combine(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    low, high = (array(operand, instruction.name) for operand in operands)
    kind = array_shape(instruction).numpy
    if kind.kind not in "iu" or low.data.dtype.kind not in "iu":
        raise Refused(f"X64Combine to {kind}")
    words = (high.data.view(np.uint32).astype(np.uint64) << np.uint64(32)) | low.data.view(np.uint32)
    poison = (
        low.poison if high.poison is None else high.poison if low.poison is None else low.poison | high.poison
    )
    return Value(words.view(kind), poison)
