# SPDX-License-Identifier: Apache-2.0
"""The table of the instructions' meanings, and the attributes that each instruction may have."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from meshmark.core.groups import integers
from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused, Shape, TupleShape
from meshmark.interpreter.values import AnyValue

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

Function = Callable[["Evaluator", Instruction, Sequence[AnyValue]], AnyValue]

_FLAG, _NUMBER, _NAMES, _BRACES = (
    re.compile(form) for form in ("true|false", r"\d+", r"\{(%?[\w.-]+(, ?%?[\w.-]+)*)?\}", r"\{.*\}")
)
WITHOUT_MEANING: dict[str, re.Pattern[str]] = {
    "sharding": _BRACES,
    "control-predecessors": _NAMES,
    "origin": _BRACES,
    "original_value": _BRACES,
    "cross_program_prefetch_index": _NUMBER,
    "result_accuracy": _BRACES,
    "schedule": re.compile("SCHEDULE_(NONE|LATEST|EARLIEST)"),
    "execution_thread": re.compile(r'"\w+"'),
    "async_execution_thread": re.compile(r'"\w+"'),
    "async_group_id": _NUMBER,
    "kind": re.compile("k(Loop|Input|Output|Custom)"),
    "constrain_layout": _FLAG,
    "is_composite": _FLAG,
    "parameter_replication": _BRACES,
    "api_version": re.compile("API_VERSION_(ORIGINAL|STATUS_RETURNING|STATUS_RETURNING_UNIFIED|TYPED_FFI)"),
    "custom_call_has_side_effect": _FLAG,
    "called_computations": _NAMES,
}
"""Attributes that do not change numbers, with the form of their values: notes for placement, scheduling and the choice
of code."""

_FORMS: dict[str, re.Pattern[str]] = {
    **WITHOUT_MEANING,
    "channel_id": _NUMBER,
    "use_global_device_ids": _FLAG,
    "is_stable": _FLAG,
    "indices_are_sorted": _FLAG,
    "unique_indices": _FLAG,
    "is_host_transfer": _FLAG,
    "has_dynamic_root": re.compile("false"),  # else an operand names the sender
    "index": _NUMBER,
    "iota_dimension": _NUMBER,
    "index_vector_dim": _NUMBER,
    "slice": re.compile(r"\{(\[\d+:\d+(:\d+)?\](, )?)*\}"),
    "output_to_operand_aliasing": re.compile(r"\{(\{[\d, ]*\}: \(\d+, \{[\d, ]*\}\)(, )?)*\}"),
}
"""The forms of values that no function parses completely, by attribute."""

COMMON = frozenset(
    (
        *("sharding", "control-predecessors", "origin", "original_value", "cross_program_prefetch_index"),
        *("result_accuracy", "schedule", "execution_thread", "async_execution_thread"),
        *("output_to_operand_aliasing", "channel_id", "indices_are_sorted", "unique_indices"),
    )
)
"""The attributes that any instruction may have."""


@dataclass(frozen=True)
class Meaning:
    """The meaning of one instruction: the function that computes it, and the attributes that it may have."""

    function: Function
    attributes: frozenset[str]


MEANINGS: dict[str, Meaning] = {}
"""The meaning of each opcode."""


def means(*opcodes: str, attributes: Iterable[str] = ()) -> Callable[[Function], Function]:
    """A decorator that registers a function as the meaning of opcodes that may have these attributes."""

    def register(function: Function) -> Function:
        for opcode in opcodes:
            MEANINGS[opcode] = Meaning(function, frozenset(attributes) | COMMON)
        return function

    return register


def meaning(instruction: Instruction) -> Function:
    """The function that computes an instruction; Refused for an unknown opcode, attribute or form of a value."""
    found = MEANINGS.get(instruction.opcode)
    if found is None:
        raise Refused(f"instruction {instruction.opcode}")
    check_attributes(instruction, found.attributes)
    return found.function


def check_attributes(instruction: Instruction, known: Container[str]) -> None:
    """Refused for an attribute that is not one of these, or whose value has an unknown form."""
    for name, value in instruction.attributes.items():
        if name not in known:
            raise Refused(f"attribute {name} of {instruction.opcode}")
        if name in _FORMS and not _FORMS[name].fullmatch(value):
            raise Refused(f"attribute {name}={value[:60]} of {instruction.opcode}")


def array_shape(instruction: Instruction) -> Shape:
    """The type of an instruction that gives one array; Refused for a tuple."""
    if isinstance(instruction.shape, TupleShape):
        raise Refused(f"{instruction.opcode} with a tuple as its result")
    return instruction.shape


@lru_cache(maxsize=4096)
def numbers(text: str) -> tuple[int, ...]:
    """The numbers of an attribute such as {0,2} or 3; Refused for another form."""
    if not re.fullmatch(r"\{(\d+(, ?\d+)*)?\}|\d+", text):
        raise Refused(f"the attribute value {text[:60]}")
    return integers(text.strip("{}"))


_MAY_LACK = re.compile("[lr]hs_batch_dims|.*_batching_dims")


def dimensions(instruction: Instruction, name: str = "dimensions") -> tuple[int, ...]:
    """The numbers of an attribute; () if the instruction has no batch dimensions of this name.

    Refused if another attribute is missing, or if it names a dimension twice."""
    if name not in instruction.attributes:
        if not _MAY_LACK.fullmatch(name):
            raise Refused(f"{instruction.opcode} without {name}")
        return ()
    found = numbers(instruction.attributes[name])
    if not name.endswith(("_sizes", "_length")) and len(set(found)) < len(found):
        raise Refused(f"{instruction.opcode} with {name}={instruction.attributes[name][:60]}")
    return found


def dimension(instruction: Instruction) -> int:
    """The single dimension of an instruction; Refused if it has none or several."""
    found = dimensions(instruction)
    if len(found) != 1:
        raise Refused(f"{instruction.opcode} with {len(found)} dimensions")
    return found[0]


def flag(instruction: Instruction, name: str) -> bool:
    """Whether an instruction has a flag that is true."""
    return instruction.attributes.get(name) == "true"


def called(instruction: Instruction, name: str) -> str:
    """The name of the computation in an attribute; Refused if the attribute is missing."""
    if name not in instruction.attributes:
        raise Refused(f"{instruction.opcode} without {name}")
    return instruction.attributes[name].lstrip("%")
