# SPDX-License-Identifier: Apache-2.0
"""Tables for a paper: LaTeX with the rules of the package booktabs, all text of records escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshmark.core.escaping import plain

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "µ": r"$\mu$",
    "·": r"$\cdot$",
    "–": "\0",
}
DASH = SPECIAL["–"]


def escape_latex(value: Any) -> str:
    """A value as LaTeX text that shows exactly these characters; a character unknown to plain LaTeX becomes `?`."""
    shown = "".join(SPECIAL.get(c, c if c.isascii() else "?") for c in plain(value))
    return shown.replace("--", "-{}-").replace(DASH, "--")


def table(
    label: str, caption: str, header: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()
) -> Iterator[str]:
    """One table: the first column is left-aligned, the others right-aligned, and the notes are below it."""
    yield r"\begin{table}"
    yield r"\centering\small"
    yield rf"\caption{{{escape_latex(caption)}}}\label{{tab:{label}}}"
    yield rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}"
    yield r"\toprule"
    yield " & ".join(map(escape_latex, header)) + r" \\"
    yield r"\midrule"
    for row in rows:
        yield " & ".join(map(escape_latex, row)) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    for note in notes:
        yield rf"\par\footnotesize {escape_latex(note)}"
    yield r"\end{table}"
    yield ""
