# SPDX-License-Identifier: Apache-2.0
"""Text for terminals and tables: printable lines, numbers of records, wrapped lines, plain tables."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

GAP = 2
"""Spaces between two columns."""


def printable(text: str) -> str:
    """The text in one line, with control characters escaped so that a terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def number(value: Any) -> float:
    """A number of a record ("inf" and "nan" are strings there); NaN for a value that is not a number."""
    if isinstance(value, str) and value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the plural unless it is one: "1 case", "3 cases"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def names(text: str) -> tuple[str, ...]:
    """The names of a comma-separated list."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def wrap(line: str, width: int, hang: int = 2) -> list[str]:
    """The line in lines of at most `width` characters.

    Those behind the first are indented by `hang` more. A word that is longer, such as a case id, stays whole.
    """
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip(" ")))
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


# Tables -----------------------------------------------------------------------------------------------------


def text_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None, left: bool = False
) -> list[str]:
    """Lines of a plain table: the first column to the left and the others to the right, or all to the left.

    width: the most characters of a line; None for no limit. In a table that is too wide, cells are wrapped (if `left`),
    or each row's first cell gets a line of its own. If that is too wide too, each row becomes `name: value` texts.
    """
    grid = [[printable(str(value)) for value in row] for row in (header, *rows)]
    return _fitted(grid, width, left)


def text_tables(
    header: Sequence[str], rows: Iterable[Sequence[str]], parts: Sequence[int], width: int | None = None
) -> list[str]:
    """Lines of one plain table, or of as many as keep their cells in columns, with a blank line between them.

    parts: the indices at which the columns may be divided, the most important division last. Each table has the first
    column. The last table that is still too wide is as `text_table` makes it.
    """
    grid = [[printable(str(value)) for value in row] for row in (header, *rows)]
    tables: list[list[list[str]]] = []
    for number in range(len(parts) + 1):
        ends = [1, *sorted(parts[len(parts) - number :]), len(header)]
        tables = [[[row[0], *row[a:b]] for row in grid] for a, b in itertools.pairwise(ends)]
        drawn = [_in_columns(table, width, False) for table in tables]
        if all(drawn):
            break
    lines: list[str] = []
    for table in tables:
        lines += [""] * bool(lines) + _fitted(table, width, False)
    return lines


def _fitted(grid: Sequence[Sequence[str]], width: int | None, left: bool) -> list[str]:
    """The lines of a table in columns, or in pairs if it is too wide for that."""
    lines = _in_columns(grid, width, left)
    return lines if lines or width is None else _in_pairs(grid, width)


def _in_columns(grid: Sequence[Sequence[str]], width: int | None, left: bool) -> list[str]:
    """The lines of a table whose cells stand in columns; empty if it is too wide for that."""
    parts = _breaks_anywhere if left else _breaks_before_brackets
    natural = [max(map(len, column)) for column in zip(*grid, strict=True)]
    if width is None or _total(natural) <= width:
        return _flat(_drawn(grid, natural, left, str.split))
    least = [max(len(p) for cell in column for p in parts(cell)) for column in zip(*grid, strict=True)]
    if left and _total(least) <= width:
        return _flat(_drawn(grid, _shrunk(natural, least, width), left, parts))
    if len(grid[0]) > 1 and not left and GAP + _total(least[1:]) <= width:
        return _headed(grid, _shrunk(natural[1:], least[1:], width - GAP), parts)
    return []


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrunk(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Widths between `least` and `natural` that fit into `width`. The widest column is narrowed first."""
    widths = list(natural)
    while _total(widths) > width:
        at = max((i for i, w in enumerate(widths) if w > least[i]), key=lambda i: widths[i])
        widths[at] -= 1
    return widths


def _breaks_anywhere(cell: str) -> list[str]:
    return cell.split() or [""]


def _breaks_before_brackets(cell: str) -> list[str]:
    """The parts of a figure that stay whole: `1.02 ms` and `±3%`, `1.02` and `(0.98-1.07)`; `auto/` and `manual`."""
    return re.split(r" (?=[(±])|(?<=[a-z]/)(?=[a-z])", cell)


def _cell(cell: str, width: int, parts: Any) -> list[str]:
    """The lines of one cell."""
    if len(cell) <= width:
        return [cell]
    lines = [""]
    for part in parts(cell):
        glue = "" if not lines[-1] or lines[-1].endswith("/") else " "
        if lines[-1] and len(lines[-1] + glue + part) > width:
            lines.append(part)
        else:
            lines[-1] += glue + part
    return lines


def _drawn(grid: Sequence[Sequence[str]], widths: Sequence[int], left: bool, parts: Any) -> list[list[str]]:
    """The lines of each row; those of the header end with a rule."""
    blocks = []
    for row in grid:
        cells = [_cell(cell, width, parts) for cell, width in zip(row, widths, strict=True)]
        block = []
        for number_ in range(max(map(len, cells))):
            shown = [
                text.ljust(width) if left or not column else text.rjust(width)
                for column, (own, width) in enumerate(zip(cells, widths, strict=True))
                for text in [own[number_] if number_ < len(own) else ""]
            ]
            block.append((" " * GAP).join(shown).rstrip())
        blocks.append(block)
    blocks[0].append((" " * GAP).join("-" * width for width in widths))
    return blocks


def _headed(grid: Sequence[Sequence[str]], widths: Sequence[int], parts: Any) -> list[str]:
    """Each row's first cell on a line of its own, and the others below it."""
    below = [["", *row[1:]] for row in grid]
    blocks = _drawn(below, [0, *widths], False, parts)
    blocks[0][-1] = " " * GAP + blocks[0][-1].lstrip()
    return _flat([row[0], *block] for row, block in zip(grid, blocks, strict=True))


def _in_pairs(grid: Sequence[Sequence[str]], width: int) -> list[str]:
    """Each row as its first cell and `name: value; name: value`; rows with the same first cell share it."""
    lines: list[str] = []
    before = None
    for row in grid[1:]:
        named = zip(grid[0][1:], row[1:], strict=True)
        told = "; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)
        if row[0] != before:
            lines.append(row[0])
        before = row[0]
        lines += wrap(" " * GAP + told, width)
    return lines


def _flat(blocks: Iterable[Sequence[str]]) -> list[str]:
    return [line for block in blocks for line in block]
