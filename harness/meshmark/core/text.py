"""Text for terminals and tables: printable lines, numbers of records, plain tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any


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


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a plain table: first column left-aligned, the others right-aligned."""
    grid = [[printable(str(value)) for value in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        return "  ".join(cells).rstrip()

    return [line(grid[0]), "  ".join("-" * w for w in widths), *map(line, grid[1:])]
