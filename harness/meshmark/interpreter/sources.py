# SPDX-License-Identifier: Apache-2.0
"""Reads the origin of an instruction from its metadata: names and source lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from meshmark.core.hlo_module import Instruction, Module

_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_FILE = re.compile(r'source_file="([^"]*)"')
_LINE = re.compile(r"source_line=(\d+)")


@dataclass(frozen=True)
class SourceOperation:
    """The operation that an instruction was made from. Texts are empty and the line is 0 if the metadata lacks them."""

    operation: str
    """The path of names, such as jit(f)/psum."""
    file: str
    """The file, without its folders."""
    line: int
    function: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")
        return ", ".join(filter(None, (self.operation, place if self.file else "")))


def source(module: Module, instruction: Instruction) -> SourceOperation:
    """The source of an instruction."""
    text = instruction.metadata
    name = _NAME.search(text)
    operation = name[1] if name else ""
    if frame := _FRAME.search(text):
        frames = module.tables.get("StackFrames", {}).get(int(frame[1]), "")
        location = module.tables.get("FileLocations", {}).get(_find_number(frames, "file_location_id"), "")
        files, functions = module.tables.get("FileNames", {}), module.tables.get("FunctionNames", {})
        file = files.get(_find_number(location, "file_name_id"), "").strip('"')
        function = functions.get(_find_number(location, "function_name_id"), "").strip('"')
        return SourceOperation(operation, file.rpartition("/")[2], _find_number(location, "line"), function)
    found, line = _FILE.search(text), _LINE.search(text)
    return SourceOperation(
        operation, found[1].rpartition("/")[2] if found else "", int(line[1]) if line else 0, ""
    )


def path(callers: Sequence[Instruction], instruction: Instruction) -> str:
    """The path of names of an instruction that is reached through calls: the names of the calls, then its own. A
    compiler that inlines the calls makes the same path."""
    names = (_NAME.search(i.metadata) for i in (*(c for c in callers if c.opcode == "call"), instruction))
    return "/".join(name[1] for name in names if name)


def _find_number(text: str, name: str) -> int:
    match = re.search(rf"\b{name}=(\d+)", text)
    return int(match[1]) if match else 0
