# SPDX-License-Identifier: Apache-2.0
"""Reads optimized HLO text (`compiled.as_text()`) into a typed module.

The syntax is that of openxla/xla (xla/hlo/parser and HloInstruction::ToString), as JAX 0.10 to 0.12 print it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from meshmark.core.hlo_module import Computation, Module

_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) ")
_END = re.compile(r'\}(, execution_thread="\w+")?')
_TABLE = re.compile(r"(\d+) (.*)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


@lru_cache(maxsize=3)
def read_module(text: str) -> Module:
    """The module of a text. It refuses nothing: what has an unknown form is in `unread`. The last three are kept,
    because the checks of a program all read the same text, and those of a stream read three."""
    computations: dict[str, Computation] = {}
    tables: dict[str, dict[int, str]] = {}
    strange, twice = list[str](), list[str]()
    header = entry = name = ""
    table: dict[int, str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        if not line:
            table = None
        elif name and line[0] != "}":
            lines.append(line)
        elif name:
            if not _END.fullmatch(line):
                strange.append(line)
            name = ""
        elif line[-1] == "{" and (match := _COMPUTATION.match(line)):
            name = match[2]
            entry = name if match[1] else entry
            twice += [name] if name in computations else []
            lines = []
            computations[name] = Computation(name, lines)
        elif line.startswith("HloModule"):
            header = line
        elif line in _TABLES:
            table = tables.setdefault(line, {})
        elif table is not None and (row := _TABLE.match(line)):
            table[int(row[1])] = row[2]
        else:
            strange.append(line)
    return Module(header, entry, computations, tables, tuple(strange), tuple(twice), name)
