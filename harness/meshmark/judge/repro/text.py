# SPDX-License-Identifier: Apache-2.0
"""Writes plain values, partition specs and long calls as the source of a script."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

Entry = str | tuple[str, ...] | None

WIDTH = 110
"""Characters of the longest line, as far as a line can be broken."""


def literal(value: object) -> str:
    """A value of plain types as source, strings in double quotes."""
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, tuple):
        return "(" + ", ".join(map(literal, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def spelled(spec: Sequence[Entry]) -> str:
    """A partition spec without the dimensions at its end that are not sharded: P("x", None, ("y", "z"))."""
    entries = [e[0] if isinstance(e, tuple) and len(e) == 1 else (e or None) for e in spec]
    while entries and entries[-1] is None:
        entries.pop()
    return f"P({', '.join(map(literal, entries))})"


def sharding(spec: Sequence[Entry]) -> str:
    """The sharding of a spec over the script's mesh."""
    return f"NamedSharding(mesh, {spelled(spec)})"


def listed(items: Sequence[str], square: bool = False) -> str:
    """Expressions as a tuple, or as a list."""
    text = ", ".join(items)
    return f"[{text}]" if square else f"({text}{',' if len(items) == 1 else ''})"


def call(name: str, parts: Sequence[str], end: str = "") -> Iterator[str]:
    """A call, on several lines where it is long."""
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{name}("
    inside = ", ".join(parts)
    if len(inside) + 4 <= WIDTH:
        yield f"    {inside}"
    else:
        yield from (f"    {part}," for part in parts)
    yield f"){end}"


def wrapped(line: str) -> list[str]:
    """A long statement of one array literal over several lines."""
    if len(line) <= WIDTH or "([" not in line:
        return [line]
    head, _, rest = line.partition("([")
    items, _, tail = rest.rpartition("]")
    return [
        f"{head}([",
        *textwrap.wrap(items, WIDTH, initial_indent="    ", subsequent_indent="    "),
        f"]{tail}",
    ]
