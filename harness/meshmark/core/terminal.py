# SPDX-License-Identifier: Apache-2.0
"""The terminal: its width, its colours, and lines for standard output and standard error."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from meshmark.core.text import printable, wrap

COLOURS = {
    **dict.fromkeys(("pass", "faster", "accepted"), "green"),
    **dict.fromkeys(("fail", "error", "crash", "hang", "slower", "refused"), "red"),
    **dict.fromkeys(("known", "unsupported", "inconclusive"), "yellow"),
    **dict.fromkeys(("not_run", "compiled"), "cyan"),
}
"""The colour of each verdict: of a case, of a comparison, of a bundle."""

CODES = {"red": 31, "green": 32, "yellow": 33, "cyan": 36}
"""ANSI's numbers of the colours."""

LONGEST = 2000
"""Characters of the longest line on standard error."""

_VERDICT = re.compile(rf"(?<![\w/=-])({'|'.join(COLOURS)})(?![\w/=-])")


def width() -> int:
    """The characters of a line: COLUMNS if it is set, otherwise the terminal's width, or 80 without a terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def has_colours(stream: TextIO) -> bool:
    """Whether colours may be written to this stream: a terminal that knows them, and no NO_COLOR."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def pieces(line: str) -> Iterator[tuple[str, str]]:
    """(text, colour) of the pieces of a line. Verdicts have a colour; other pieces have ""."""
    for text in filter(None, _VERDICT.split(line)):
        yield text, COLOURS.get(text, "")


def paint(line: str) -> str:
    """The line with its verdicts in colour, in ANSI's codes."""
    return "".join(f"\x1b[{CODES[colour]}m{text}\x1b[0m" if colour else text for text, colour in pieces(line))


def show(*parts: Iterable[str], verdicts: bool = False) -> None:
    """Print lines, wrapped to the width of the terminal; verdicts in colour where it has any."""
    colours = verdicts and has_colours(sys.stdout)
    for part in parts:
        for line in part:
            for text in wrap(printable(line), width()):
                print(paint(text) if colours else text)


def show_json(value: Any) -> None:
    """Print JSON for people and programs."""
    print(json.dumps(value, indent=2, allow_nan=False))


def remark(text: str) -> None:
    """Print a remark on the output above to standard error, wrapped as that output is."""
    print("\n".join(wrap(f"meshmark: {printable(text[:LONGEST])}", width())), file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print one line to standard error."""
    print(fit(f"meshmark: {printable(text[:LONGEST])}"), file=sys.stderr)


def fit(line: str) -> str:
    """A line for standard error: whole for a program that reads it or a log; if that is a terminal, wrapped to its
    width."""
    return "\n".join(wrap(line, width()) if sys.stderr.isatty() else [line])
