# SPDX-License-Identifier: Apache-2.0
"""The table of what each instruction means, and the attributes that each may have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from meshmark.core.groups import integers
from meshmark.interpreter.faults import Refused
from meshmark.interpreter.module import Instruction
from meshmark.interpreter.shapes import Shape, TupleShape
from meshmark.interpreter.values import AnyValue

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

Function = Callable[["Evaluator", Instruction, Sequence[AnyValue]], AnyValue]

HARMLESS = frozenset(
    (
        "sharding",
        "control-predecessors",
        "origin",
        "original_value",
        "cross_program_prefetch_index",
        "output_to_operand_aliasing",
        "channel_id",
        "indices_are_sorted",
        "unique_indices",
        "result_accuracy",
        "schedule",
        "execution_thread",
        "async_execution_thread",
    )
)
"""Attributes that change no value: notes for placement, scheduling and aliasing, and promises. `channel_id` alone has a
meaning, for collectives, which read it."""


@dataclass(frozen=True)
class Meaning:
    """What one instruction does: the function that computes it, and the attributes that it reads."""

    function: Function
    attributes: frozenset[str]


MEANINGS: dict[str, Meaning] = {}
"""The meaning of each opcode."""


def means(*opcodes: str, attributes: Iterable[str] = ()) -> Callable[[Function], Function]:
    """Register a function as the meaning of opcodes that may have these attributes."""

    def register(function: Function) -> Function:
        for opcode in opcodes:
            MEANINGS[opcode] = Meaning(function, frozenset(attributes) | HARMLESS)
        return function

    return register


def meaning(instruction: Instruction) -> Function:
    """The function that computes an instruction; Refused for an unknown opcode or attribute."""
    found = MEANINGS.get(instruction.opcode)
    if found is None:
        raise Refused(f"instruction {instruction.opcode}")
    for name in instruction.attributes:
        if name not in found.attributes:
            raise Refused(f"attribute {name} of {instruction.opcode}")
    return found.function


def array_shape(instruction: Instruction) -> Shape:
    """The type of an instruction that gives one array; Refused for a tuple."""
    if isinstance(instruction.shape, TupleShape):
        raise Refused(f"{instruction.opcode} with a tuple as its result")
    return instruction.shape


@lru_cache(maxsize=4096)
def numbers(text: str) -> tuple[int, ...]:
    """The numbers of an attribute such as {0,2} or 3; Refused for another form."""
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if not re.fullmatch(r"[\d, ]*", inner):
        raise Refused(f"the attribute value {text[:60]}")
    return integers(inner)


def dimensions(instruction: Instruction, name: str = "dimensions") -> tuple[int, ...]:
    """The numbers of an attribute; () where the instruction does not have it."""
    return numbers(instruction.attributes.get(name, "{}"))


def called(instruction: Instruction, name: str) -> str:
    """The name of the computation that an attribute names."""
    if name not in instruction.attributes:
        raise Refused(f"{instruction.opcode} without {name}")
    return instruction.attributes[name].lstrip("%")
