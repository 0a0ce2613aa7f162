# SPDX-License-Identifier: Apache-2.0
"""Reads optimized HLO text (`compiled.as_text()`) into a typed module.

The syntax is that of openxla/xla (xla/hlo/parser and HloInstruction::ToString), as JAX 0.10 to 0.12 print it. Lines of
an unknown form are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshmark.core.errors import BadInput
from meshmark.interpreter import shapes
from meshmark.interpreter.faults import Refused
from meshmark.interpreter.module import Computation, Instruction, Module

# Within a type, ")" is never followed by a space, a word and "(".
_INSTRUCTION = re.compile(r"\s*(ROOT )?%?(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) .*\{$")
_END = re.compile(r'\}(, execution_thread="\w+")?')
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\]]')
_SEPARATOR = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\],]')
_COMMENT = re.compile(r"/\*.*?\*/")
_OPERAND = re.compile(r"(?:.* )?%?([\w.-]+)$")
_TABLE = re.compile(r"(\d+) (.*)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


class NotHlo(BadInput, ValueError):
    """A text that is not an HLO module; the message is one line."""


def parse_module(text: str) -> Module:
    """The module of a text. NotHlo if the text is not HLO, Refused for a line or type of an unknown form."""
    computations: dict[str, Computation] = {}
    tables: dict[str, dict[int, str]] = {}
    header = entry = name = ""
    table: dict[int, str] | None = None
    instructions: list[Instruction] = []
    root: Instruction | None = None
    for line in text.split("\n"):
        if not line:
            table = None
        elif name:
            if line[0] == "}":
                if not _END.fullmatch(line):
                    raise Refused(f"the line {line[:80]!r}")
                if not instructions:
                    raise NotHlo(f"the computation {name} is empty")
                if name in computations:
                    raise Refused(f"two computations {name}")
                computations[name] = Computation(name, tuple(instructions), root or instructions[-1])
                instructions, root, name = [], None, ""
            else:
                is_root, instruction = _instruction(line)
                instructions.append(instruction)
                if is_root and root:
                    raise Refused(f"two roots in {name}")
                root = instruction if is_root else root
        elif line.startswith("HloModule"):
            header = line
        elif line in _TABLES:
            table = tables.setdefault(line, {})
        elif table is not None and (row := _TABLE.match(line)):
            table[int(row[1])] = row[2]
        elif match := _COMPUTATION.match(line):
            name = match[2]
            entry = name if match[1] else entry
        else:
            raise Refused(f"the line {line[:80]!r}")
    if not header or entry not in computations or name:
        raise NotHlo("the text is not a whole module of HLO: it has no header, or no entry computation")
    attributes = _attributes(header.partition(", ")[2])
    return Module(
        header.split()[1].rstrip(","),
        computations[entry],
        computations,
        int(attributes.get("replica_count", "1")),
        int(attributes.get("num_partitions", "1")),
        attributes,
        tables,
    )


def _instruction(line: str) -> tuple[bool, Instruction]:
    match = _INSTRUCTION.match(line)
    if not match:
        raise Refused(f"the line {line.strip()[:80]!r}")
    root, name, shape, opcode, rest = match.groups()
    end = _closing(rest)
    inside, attributes = rest[:end], _attributes(rest[end + 1 :].removeprefix(", "))
    names: tuple[str, ...] = ()
    if opcode not in ("constant", "parameter", "iota"):
        found = [_OPERAND.match(part) for part in split_list(inside)]
        if not all(found):
            raise Refused(f"the operands {inside[:80]!r} of {opcode}")
        names = tuple(match[1] for match in found if match)
    return bool(root), Instruction(
        name,
        shapes.parse_type(shape),
        opcode,
        names,
        "" if names else inside,
        attributes,
        attributes.pop("metadata", ""),
        attributes.pop("frontend_attributes", ""),
        attributes.pop("backend_config", ""),
        line.strip(),
    )


def _closing(text: str) -> int:
    """The index at which a bracket closes that was opened before this text."""
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


def _attributes(text: str) -> dict[str, str]:
    """The attributes of a text such as `a=1, b={2,3}`, by name. `mesh[...], device_ids=(...) {...}` is one value."""
    found: dict[str, str] = {}
    last = ""
    for part in split_list(text):
        name, equals, value = part.partition("=")
        if last == "replica_groups" and name == "device_ids":
            found[last] += f", {part}"
        elif equals and name not in found and re.fullmatch(r"[a-zA-Z_-]+", name):
            found[name], last = value, name
        elif name in ("is_host_transfer",):
            found[name] = "true"
        else:
            raise Refused(f"the attribute {part[:80]!r}")
    return found
