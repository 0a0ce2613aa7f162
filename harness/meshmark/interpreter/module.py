# SPDX-License-Identifier: Apache-2.0
"""The typed form of a compiled program: a module has computations, and a computation has instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from meshmark.interpreter.shapes import AnyShape


@dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction of the text. The values of attributes are texts, which the functions that use them parse."""

    name: str
    shape: AnyShape
    opcode: str
    operands: tuple[str, ...]
    literal: str
    """The text in the brackets of an instruction without operands, such as a constant or parameter; else ""."""
    attributes: Mapping[str, str]
    metadata: str
    """The text of the metadata, with names and source lines (see `meshmark.interpreter.sources`)."""
    frontend: str
    """The text of the frontend attributes."""
    backend_config: str
    line: str
    """The whole line, without leading spaces."""


@dataclass(frozen=True, eq=False)
class Computation:
    """A list of instructions in an order in which they can run. The root gives the result."""

    name: str
    instructions: tuple[Instruction, ...]
    root: Instruction

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters, ordered by number."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: int(i.literal)))

    @cached_property
    def last_uses(self) -> dict[str, tuple[str, ...]]:
        """By name of an instruction, the values that nothing needs after it."""
        last: dict[str, str] = {}
        for instruction in self.instructions:
            for operand in instruction.operands:
                last[operand] = instruction.name
                if "AsyncCollective" in instruction.attributes.get("custom_call_target", ""):
                    # The start of a chain passes the operands of its collective on.
                    last |= dict.fromkeys(self.by_name[operand].operands, instruction.name)
        done: dict[str, list[str]] = {}
        for operand, user in last.items():
            if operand != self.root.name:
                done.setdefault(user, []).append(operand)
        return {user: tuple(names) for user, names in done.items()}

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """The instructions by name."""
        return {i.name: i for i in self.instructions}


@dataclass(frozen=True, eq=False)
class Module:
    """A compiled program."""

    name: str
    entry: Computation
    computations: Mapping[str, Computation]
    replicas: int = 1
    partitions: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """The tables FileNames, FunctionNames, FileLocations and StackFrames, to which metadata refers, as lines by
    number."""

    @property
    def num_devices(self) -> int:
        """The number of devices that run the program."""
        return self.replicas * self.partitions
