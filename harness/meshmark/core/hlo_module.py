# SPDX-License-Identifier: Apache-2.0
"""The typed form of a compiled program: a module has computations, and a computation has instructions.

This is the only form of HLO text in this package. `read_module` makes it, and everything else follows from it: the
collectives, the flops of contractions, the work of loops, the schedule and the interpretation. Parts of an instruction
are parsed when they are asked for. So counting the collectives of a large program stays fast, and it does not depend on
text that it does not need. What has an unknown form is kept in `unread`. The interpreter refuses a module that has any
(`meshmark.interpreter.reader`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from meshmark.core.hlo_types import AnyShape, Refused, parse_logical_type, parse_type

# Within a type, ")" is never followed by a space, a word and "(".
_INSTRUCTION = re.compile(r"\s*(ROOT )?%?(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\]]')
# Names of mesh axes stand in single quotes, and may have brackets and commas.
_SEPARATOR = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|[(){}\[\],]""")
_COMMENT = re.compile(r"/\*.*?\*/")
_OPERAND = re.compile(r"(?:.* )?%?([\w.-]+)$")
_ATTRIBUTE = re.compile(r"[a-zA-Z_-]+")
_NAME = re.compile(r"%?([\w.-]+)")

CALLING = (
    *("body", "condition", "calls", "to_apply", "true_computation", "false_computation"),
    *("branch_computations", "called_computations"),
)
"""The attributes that name computations which an instruction calls."""

REPEATING = ("async-update", "async-done")
"""The opcodes whose instructions repeat the attributes of their async-start, and call nothing."""


class Instruction:
    """One instruction of the text. The values of attributes are texts, which the functions that use them parse."""

    def __init__(self, root: bool, name: str, type_text: str, opcode: str, rest: str, line: str) -> None:
        self.is_root, self.name, self.opcode = root, name, opcode
        self.type_text = type_text
        """The text of the type."""
        self.rest = rest
        """The text after the bracket that opens the operands."""
        self.line = line
        """The whole line, without leading spaces."""

    @classmethod
    def of(cls, line: str) -> Instruction | None:
        """The instruction in a line; None if the line has another form."""
        match = _INSTRUCTION.match(line)
        if not match:
            return None
        root, name, type_text, opcode, rest = match.groups()
        return cls(bool(root), name, type_text, opcode, rest, line.strip())

    def changed(self, **parts: Any) -> Instruction:
        """A copy with other parts, such as another opcode or shape."""
        copy = Instruction.__new__(Instruction)
        copy.__dict__.update(self.__dict__ | parts)
        return copy

    @cached_property
    def shape(self) -> AnyShape:
        """The type; Refused for an unknown form."""
        return parse_type(self.type_text)

    @cached_property
    def logical_shape(self) -> AnyShape:
        """The type without its layout (see `parse_logical_type`)."""
        return parse_logical_type(self.type_text)

    @cached_property
    def _parts(self) -> tuple[str, dict[str, str], tuple[str, ...]]:
        end = _closing(self.rest)
        return self.rest[:end], *parse_attributes(self.rest[end + 1 :].removeprefix(", "))

    @property
    def operand_text(self) -> str:
        """The text in the brackets after the opcode."""
        return self._parts[0]

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands; Refused for an unknown form."""
        if self.opcode in ("constant", "parameter", "iota"):
            return ()
        found = [_OPERAND.match(part) for part in split_list(self.operand_text)]
        if not all(found):
            raise Refused(f"the operands {self.operand_text[:80]!r} of {self.opcode}")
        return tuple(match[1] for match in found if match)

    @cached_property
    def literal(self) -> str:
        """The text in the brackets of an instruction without operands, such as a constant or parameter; else ""."""
        return "" if self.operands else self.operand_text

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """The attributes, without those that are properties of their own."""
        own = ("metadata", "frontend_attributes", "backend_config")
        return {name: value for name, value in self._parts[1].items() if name not in own}

    @property
    def unread(self) -> tuple[str, ...]:
        """The attributes of an unknown form."""
        return self._parts[2]

    @property
    def metadata(self) -> str:
        """The text of the metadata, with names and source lines (see `meshmark.interpreter.sources`)."""
        return self._parts[1].get("metadata", "")

    @property
    def frontend(self) -> str:
        """The text of the frontend attributes."""
        return self._parts[1].get("frontend_attributes", "")

    @property
    def backend_config(self) -> str:
        """The text of the backend's configuration."""
        return self._parts[1].get("backend_config", "")

    @property
    def target(self) -> str:
        """The target of a custom call; else ""."""
        return self.attributes.get("custom_call_target", "").strip('"')

    @cached_property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """(attribute, computation) of each computation that the instruction calls."""
        if "=%" not in self.rest and "={%" not in self.rest:
            return ()
        named = ((a, self.attributes[a]) for a in CALLING if a in self.attributes)
        return tuple((attribute, name) for attribute, value in named for name in _NAME.findall(value))


class Computation:
    """A list of instructions in an order in which they can run. The root gives the result."""

    def __init__(self, name: str, lines: Sequence[str]) -> None:
        self.name = name
        self.lines = lines
        """The lines of the text, without the first and the last."""

    @cached_property
    def _read(self) -> tuple[tuple[Instruction, ...], tuple[str, ...]]:
        found, unread = [], []
        for line in self.lines:
            if instruction := Instruction.of(line):
                found.append(instruction)
            else:
                unread.append(f"the line {line.strip()[:80]!r}")
        if sum(i.is_root for i in found) > 1:
            unread.append(f"two roots in {self.name}")
        return tuple(found), tuple(unread)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions, in the order of the text."""
        return self._read[0]

    @property
    def unread(self) -> tuple[str, ...]:
        """What has an unknown form."""
        return self._read[1]

    @cached_property
    def root(self) -> Instruction:
        """The instruction that gives the result: the marked one, or else the last one. LookupError if there is none."""
        marked = [i for i in self.instructions if i.is_root]
        return (marked or self.instructions)[-1]

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
                if "AsyncCollective" in instruction.target:
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

    header: str
    """The first line of the text; "" if it has none."""
    entry_name: str
    """The name of the entry computation; "" if the text has none."""
    computations: Mapping[str, Computation]
    tables: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """The tables FileNames, FunctionNames, FileLocations and StackFrames, to which metadata refers, as lines by
    number."""
    strange: tuple[str, ...] = ()
    """The lines outside of the computations that have an unknown form."""
    twice: tuple[str, ...] = ()
    """The names of which the text has several computations. Only the last of them is kept."""
    unfinished: str = ""
    """The computation in which the text ends; "" for a whole text."""

    @cached_property
    def _head(self) -> tuple[dict[str, str], tuple[str, ...]]:
        return parse_attributes(self.header.partition(", ")[2])

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes of the header."""
        return self._head[0]

    @property
    def unread(self) -> tuple[str, ...]:
        """What has an unknown form, outside of the computations."""
        lines = (f"the line {line[:80]!r}" for line in self.strange)
        return (*lines, *(f"two computations {name}" for name in self.twice), *self._head[1])

    @property
    def entry(self) -> Computation:
        """The entry computation."""
        return self.computations[self.entry_name]

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return int(self.attributes.get("replica_count", "1"))

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return int(self.attributes.get("num_partitions", "1"))

    @property
    def num_devices(self) -> int:
        """The number of devices that run the program."""
        return self.replicas * self.partitions

    def over(self, partitions: int) -> Module:
        """The same program for another number of partitions."""
        copy = replace(self)
        copy.__dict__["_head"] = {**self.attributes, "num_partitions": str(partitions)}, self._head[1]
        return copy

    def instructions(self) -> Iterator[tuple[Computation, Instruction]]:
        """(its computation, the instruction) of all instructions."""
        for computation in self.computations.values():
            for instruction in computation.instructions:
                yield computation, instruction

    # How often a computation runs ----------------------------------------------------------------------------

    @cached_property
    def callers(self) -> dict[str, list[tuple[str, int | None, bool]]]:
        """Callers by computation: (caller, calls per run of the caller, whether by async-start)."""
        callers: dict[str, list[tuple[str, int | None, bool]]] = {}
        for computation in self.computations.values():
            for line in computation.lines:
                # Searching for a plain string is several times faster than reading every line.
                if "=%" not in line and "={%" not in line:
                    continue
                instruction = Instruction.of(line)
                if instruction is None or instruction.opcode in REPEATING:
                    continue
                count = self.turns(computation, instruction) if instruction.opcode == "while" else 1
                for attribute, name in instruction.calls:
                    # A loop tests its condition one more time than it runs its body.
                    times = count + 1 if attribute == "condition" and count is not None else count
                    called = (computation.name, times, instruction.opcode == "async-start")
                    callers.setdefault(name, []).append(called)
        return callers

    def runs(self, name: str) -> tuple[int | None, bool]:
        """How often a computation runs in one execution (None: unknown), and whether an async-start calls it."""
        if name == self.entry_name or name not in self.callers:
            return 1, False
        trips: int | None = 0
        for caller, times, _ in self.callers[name]:
            outer, _ = self.runs(caller)
            trips = None if trips is None or outer is None or times is None else trips + outer * times
        return trips, any(asynchronous for *_, asynchronous in self.callers[name])

    def turns(self, caller: Computation, loop: Instruction) -> int | None:
        """How often a while loop of a computation runs its body: from the compiler's note, otherwise from its
        constants; None if unknown.

        TPU compilers leave no note, but keep a counted loop as i = start; while i < stop: i += step.
        """
        if noted := _TRIP_COUNT.search(loop.backend_config):
            return int(noted[1])
        try:
            called = dict(loop.calls)
            condition, body = self.computations[called["condition"]], self.computations[called["body"]]
            test = condition.root
            if test.opcode != "compare" or test.attributes["direction"] != "LT":
                return None
            i, stop = test.operands
            index = _tuple_index(condition, i)
            start = caller.by_name[loop.operands[0]].operands[index]
            i, step = _source(body, body.root.operands[index], "add").operands
            if _tuple_index(body, i) != index:
                return None
            distance, stride = _constant(condition, stop) - _constant(caller, start), _constant(body, step)
            return max(0, math.ceil(distance / stride)) if stride > 0 else None
        except (LookupError, ValueError):
            return None  # another form of loop


_TRIP_COUNT = re.compile(r"known_trip_count\W+n\W+(\d+)")


def _source(computation: Computation, name: str, opcode: str) -> Instruction:
    """The instruction `name`, or the one that it copies; its opcode must be `opcode`."""
    instruction = computation.by_name[name]
    while instruction.opcode in ("copy", "copy-start", "copy-done"):
        instruction = computation.by_name[instruction.operands[0]]
    if instruction.opcode != opcode:
        raise LookupError(name)
    return instruction


def _tuple_index(computation: Computation, name: str) -> int:
    """Which element of the computation's parameter `name` is."""
    element = _source(computation, name, "get-tuple-element")
    _source(computation, element.operands[0], "parameter")
    return int(element.attributes["index"])


def _constant(computation: Computation, name: str) -> int:
    return int(_source(computation, name, "constant").literal)


# Text --------------------------------------------------------------------------------------------------------


def _closing(text: str) -> int:
    """The index at which a bracket closes that was opened before this text; Refused if none does."""
    quick = text.find(")")
    if quick >= 0 and "(" not in text[:quick] and '"' not in text[:quick]:
        return quick
    depth = 1
    for match in _BRACKET.finditer(text):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth -= 1
            if not depth:
                return match.start()
    raise Refused(f"the open bracket in {text[:80]!r}")


def split_list(text: str) -> Iterator[str]:
    """The parts of a list, split at commas outside all brackets and quotes, without comments."""
    text = _COMMENT.sub("", text).strip() if "/*" in text else text.strip()
    if not text:
        return
    if not any(character in text for character in '({["'):
        for part in text.split(","):
            yield part.strip()
        return
    depth = start = 0
    for match in _SEPARATOR.finditer(text):
        character = match[0]
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
        elif character == "," and not depth:
            yield text[start : match.start()].strip()
            start = match.end()
    yield text[start:].strip()


def parse_attributes(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """(the attributes of a text such as `a=1, b={2,3}`, by name; the parts of an unknown form).
    `mesh[...], device_ids=(...) {...}` is one value."""
    found: dict[str, str] = {}
    unread = []
    last = ""
    for part in split_list(text):
        name, equals, value = part.partition("=")
        if last == "replica_groups" and name == "device_ids":
            found[last] += f", {part}"
        elif equals and name not in found and _ATTRIBUTE.fullmatch(name):
            found[name], last = value, name
        elif name in ("is_host_transfer",):
            found[name] = "true"
        else:
            unread.append(f"the attribute {part[:80]!r}")
    return found, tuple(unread)
