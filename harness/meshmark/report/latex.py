# SPDX-License-Identifier: Apache-2.0
"""Tables for a paper: LaTeX with the rules of the package booktabs, all text of records escaped."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark import __version__
from meshmark.core.escaping import plain
from meshmark.report import summary_tables

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
    '"': r"\texttt{\symbol{34}}",  # \textquotedbl is an error in the encoding that LaTeX starts with (OT1)
    "'": "'{}",  # two marks in a row, or one after ? or !, would become one other character
    "`": "`{}",
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


def _row(cells: Sequence[Any]) -> str:
    """One row of a table. LaTeX would read a bracket or a star at its start as an option of the line break above it."""
    text = " & ".join(map(escape_latex, cells))
    return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"


def table(
    label: str,
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    notes: Sequence[str] = (),
    most: int | None = None,
) -> Iterator[str]:
    """One table of at most `most` rows (None: all). The first column is left-aligned, the others right-aligned, and the
    notes are below it."""
    yield r"\begin{table}"
    yield r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"
    yield rf"\caption{{{escape_latex(caption)}}}\label{{tab:{label}}}"
    yield rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}"
    yield r"\toprule"
    yield _row(header)
    yield r"\midrule"
    for row in rows[:most]:
        yield _row(row)
    yield r"\bottomrule"
    yield r"\end{tabular}"
    if most is not None and len(rows) > most:
        notes = [f"{len(rows) - most} more rows: meshmark report --long prints all.", *notes]
    for note in notes:
        yield rf"\par\footnotesize {escape_latex(note)}"
    yield r"\end{table}"
    yield ""


# The report's tables ----------------------------------------------------------------------------------------

KIND = 12
"""The most characters of a device kind in the short name of a run."""


def tables(data: Mapping[str, Any], most: int | None) -> Iterator[str]:
    """The lines of tables.tex: levels by run, and for each cadence the modes against manual. Tables have at most `most`
    rows (None: all) and fit the width of an article's column of text. `data`: that of the page."""
    yield f"% Made by Meshmark {__version__} from the record files named below. Needs \\usepackage{{booktabs}}."
    for run in data["runs"]:
        note = f"{run['label']}: {run['file']}, SHA-256 {run['sha256'][:16]}..."
        yield f"% {escape_latex(note)}, suite {escape_latex(run['commit'][:12])}"
    yield ""
    yield from _levels(data, most)
    yield from _modes(data, most)


def _levels(data: Mapping[str, Any], most: int | None) -> Iterator[str]:
    names = short_names([run for run in data["runs"] if run["judged"] and run["levels"]])
    rows = [
        [names[run["key"]] if not n else "", (run.get("met") or "none") if not n else "", s["list"], s["level"],
         s["pass"] + s["known"], s["cases"], s["known"]]
        for run in data["runs"] if run["key"] in names
        for n, s in enumerate(run["levels"])
    ]  # fmt: skip
    if rows:
        caption = "Conformance: cases met of each level's must-pass list (Meshmark)."
        note = (
            "list: version of the must-pass lists. met: cases that pass, or are known and listed. known: those of them"
            " that are listed as known issues."
        )
        header = ["run", "level met", "list", "level", "met", "of", "known"]
        yield from table("meshmark-levels", caption, header, rows, [note, *_files(data, names)], most)


def _modes(data: Mapping[str, Any], most: int | None) -> Iterator[str]:
    names = short_names([run for run in data["runs"] if run["timings"]])
    by_cadence: dict[str, list[list[str]]] = {}
    for run, (mode, cadence, *cells) in summary_tables.mode_rows(data):
        short = mode.replace("manual-novma", "no-vma")
        by_cadence.setdefault(cadence, []).append([names[run["key"]], short, *cells])
    header = ["run", "mode", "cells", "times manual", "slower", "faster", "unresolved"]
    note = (
        "times manual: the median of the cells in each process, with its 95 percent interval over processes; fewer than"
        " six processes give none. slower and faster: the ratio excludes 1, corrected over all ratios of the cadence."
        " Virtual devices share the cores of one machine."
    )
    if any(row[1] == "no-vma" for rows in by_cadence.values() for row in rows):
        note += " no-vma: manual-novma, shard_map with check_vma=False."
    for cadence, rows in by_cadence.items():
        caption = (
            "Time of automatic and explicit sharding against shard_map: median of paired ratios,"
            f" cadence {cadence} (Meshmark)."
        )
        label = f"meshmark-modes-{re.sub('[^a-z]', '', cadence)}"
        own = {key: name for key, name in names.items() if any(row[0] == name for row in rows)}
        yield from table(label, caption, header, rows, [note, *_files(data, own)], most)


def _files(data: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[str]:
    """The record file behind each short name."""
    for run in data["runs"]:
        if run["key"] in names:
            yield f"{names[run['key']]}: {run['file']}"


def short_names(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A short name for each run, by its key: release and devices, such as "0.12.0.1, 8 virtual cpu" or "0.12.0.1, 2x4
    virtual cpu" for two processes of four devices. Equal names get numbers."""
    named = {run["key"]: _short_name(run) for run in runs}
    each = list(named.values())
    seen: Counter[str] = Counter()
    for key, name in named.items():
        if each.count(name) > 1:
            seen[name] += 1
            named[key] = f"{name} ({seen[name]})"
    return named


def _short_name(run: Mapping[str, Any]) -> str:
    if run["class"] == "compiled":
        return f"{run['release']}, {run['machine']}"
    number, over = run["devices"] or 0, run["processes"]
    devices = f"{over}x{number // over}" if over > 1 else str(number)
    kind = textwrap.shorten(run["kind"], KIND, placeholder="") or run["kind"][:KIND]
    return f"{run['release']}, {devices}{' virtual' * (run['class'] == 'virtual')} {kind}"
