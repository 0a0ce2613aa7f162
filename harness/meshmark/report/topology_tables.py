# SPDX-License-Identifier: Apache-2.0
"""Compiled communication by topology, and between two releases: the collectives and the bytes of each mode.

The tables are made from the communication lines of `pytest conformance --topology`. Such a line has the operation,
variant, mode and size of its case, and its topology after the `@` of the case id. The tables are Markdown for
publication and plain text for a terminal. All text of records is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshmark.core.escaping import escape_markdown, field, plain
from meshmark.core.text import counted, number, text_table
from meshmark.levels.counters import format_collectives
from meshmark.records.reading import Records

MODES = ("auto", "explicit", "manual")

COMPARED = ("collectives", "wire_bytes", "flops", "temp_bytes", "argument_bytes", "output_bytes")
"""The figures that must be equal in two releases."""

SHOWN = 500
"""The most rows of differences that are shown."""


@dataclass(frozen=True)
class Compiled:
    """The compiled communication of one case."""

    case: str
    operation: str
    variant: str
    mode: str
    place: str
    """The topology, with its layout if the layout is not plain."""
    kinds: str
    """The collectives and how often each runs, such as "2 all-gather, 1 all-reduce"; "none" if there are none."""
    sent: float
    """Bytes that one device sends."""
    contract: float
    """The bytes of manual mode's contract; NaN if a transformation makes its collectives."""

    @property
    def times(self) -> float:
        """The bytes divided by those of manual mode's contract."""
        if self.contract == 0:
            return math.inf if self.sent else 1.0
        return self.sent / self.contract


def find_compiled_cases(files: Iterable[Records]) -> list[Compiled]:
    """The cases of compile-only runs, in their order."""
    found = []
    for records in files:
        for judged in records.cases.values():
            line = next((li for li in judged.lines if isinstance(li.get("collectives"), list)), None)
            if line is None or not isinstance(line.get("topology"), str) or line.get("mode") not in MODES:
                continue
            sent, excess = number(line.get("wire_bytes")), number(line.get("excess_bytes"))
            layout = line.get("layout", "plain")
            found.append(
                Compiled(
                    case=judged.case,
                    operation=plain(line["operation"]),
                    variant=plain(line["variant"]),
                    mode=plain(line["mode"]),
                    place=plain(line["topology"]) + ("" if layout == "plain" else f"-{plain(layout)}"),
                    kinds=_kinds(line["collectives"]),
                    sent=sent,
                    contract=sent - excess,
                )
            )
    return found


def _kinds(collectives: Sequence[Any]) -> str:
    runs: dict[str, float] = {}
    for c in collectives:
        trips = number(field(c, "trips"))
        kind = plain(field(c, "kind"))
        runs[kind] = runs.get(kind, 0) + (1 if math.isnan(trips) else trips)
    return ", ".join(f"{runs[kind]:.0f} {kind}" for kind in sorted(runs)) or "none"


# Modes by topology ------------------------------------------------------------------------------------------


def chapter(found: Sequence[Compiled]) -> Iterator[str]:
    """Markdown: an overview of operations by topology, and the collectives of each mode if the modes differ."""
    if not found:
        return
    places = list({c.place: None for c in found})
    yield "## Modes by topology"
    yield ""
    yield (
        "The most that an operation's cases send in auto / explicit / manual mode, over what manual mode spells; one"
        " number where the three agree, - where a mode has no case. Compiled only."
    )
    yield ""
    yield from markdown_table(["operation", *places], overview(found, places))
    yield ""
    rows = differing(found)
    yield "### Where a mode sends more or gets other collectives than manual mode spells"
    yield ""
    if rows:
        yield from markdown_table(
            ["operation", "variant", "modes", "compiled to", "times spelled", "topologies"], rows
        )
    else:
        yield "Nowhere."
    yield ""


def overview(found: Sequence[Compiled], places: Sequence[str]) -> list[list[str]]:
    """One row per operation: the largest factor of each mode at each place."""
    rows = []
    for operation in {c.operation: None for c in found}:
        row = [operation]
        for place in places:
            worst = []
            for mode in MODES:
                times = [
                    c.times
                    for c in found
                    if (c.operation, c.place, c.mode) == (operation, place, mode) and not math.isnan(c.times)
                ]
                worst.append(factor(max(times)) if times else "-")
            row.append(worst[0] if len(set(worst)) == 1 else " / ".join(worst))
        if set(row[1:]) != {"-"}:
            rows.append(row)
    return rows


def differing(found: Sequence[Compiled]) -> list[list[str]]:
    """One row per operation, variant and compiled form whose bytes differ from the contract of manual
    mode; equal rows of several modes and topologies are joined."""
    groups: dict[tuple[str, ...], list[Compiled]] = {}
    for c in found:
        if not math.isnan(c.times) and abs(c.times - 1) > 0.005:
            groups.setdefault((c.operation, c.variant, c.kinds), []).append(c)
    rows = []
    for (operation, variant, kinds), of in groups.items():
        low, high = min(c.times for c in of), max(c.times for c in of)
        times = factor(low) if factor(low) == factor(high) else f"{factor(low)} to {factor(high)}"
        modes = ", ".join(m for m in MODES if any(c.mode == m for c in of))
        places = ", ".join({c.place: None for c in of})
        rows.append([operation, variant, modes, kinds, times, places])
    return rows


def factor(value: float) -> str:
    """1, 1.75, 88, 1,980, inf."""
    return f"{value:,.0f}" if 1000 <= value < math.inf else f"{value:.3g}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown; cells are escaped."""
    yield "| " + " | ".join(map(escape_markdown, header)) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(map(escape_markdown, row)) + " |"


# Two releases -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CounterDifference:
    """A counter of a case that differs between two runs."""

    case: str
    quantity: str
    old: str
    new: str


def compare_counters(old: Records, new: Records) -> tuple[list[CounterDifference], int]:
    """(the differences, the number of compared cases), for the cases that compiled in both."""
    found, compared = [], 0
    for case, judged in new.cases.items():
        if case not in old.cases:
            continue
        before, after = _data(old.cases[case].lines), _data(judged.lines)
        if before.get("collectives") is None or after.get("collectives") is None:
            continue
        compared += 1
        for name in COMPARED:
            was, now = before.get(name), after.get(name)
            if was is not None and now is not None and was != now:
                found.append(CounterDifference(case, name, was, now))
    return found, compared


def _data(lines: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    merged = {k: v for line in lines for k, v in line.items()}
    collectives = merged.get("collectives")
    data: dict[str, str | None] = {"collectives": None}
    if isinstance(collectives, list) and all(
        isinstance(c, dict) and {"kind", "bytes", "groups", "trips"} <= set(c) for c in collectives
    ):
        data["collectives"] = plain(format_collectives(collectives))
    for name in COMPARED[1:]:
        value = number(merged.get(name))
        data[name] = None if math.isnan(value) else f"{value:.0f}"
    return data


def report(
    found: Sequence[CounterDifference], compared: int, old: Records, new: Records, width: int | None = None
) -> Iterator[str]:
    """The lines of the comparison: the two releases, the counts, and each difference once with its cases.

    width: the most characters of a table line; None for no limit.
    """
    yield f"old: {release(old)}"
    yield f"new: {release(new)}"
    groups: dict[tuple[str, ...], list[str]] = {}
    for d in found:
        operation, variant, mode, *_ = (*d.case.split("/"), "", "", "")
        place = d.case.partition("@")[2]
        groups.setdefault((d.quantity, operation, variant, mode, place, d.old, d.new), []).append(d.case)
    ordered = sorted(groups.items(), key=lambda item: COMPARED.index(item[0][0]))
    rows = []
    for (quantity, operation, variant, mode, place, was, now), cases in ordered[:SHOWN]:
        rows.append([quantity, f"{operation}/{variant}", mode, place, was, now, str(len(cases))])
    if rows:
        yield ""
        header = ["quantity", "operation", "mode", "topology", "old", "new", "cases"]
        yield from text_table(header, rows, width, left=True)
        if len(groups) > SHOWN:
            yield f"and {len(groups) - SHOWN} more"
        yield ""
    counts = {name: sum(d.quantity == name for d in found) for name in COMPARED}
    shown = ", ".join(f"{name} of {count}" for name, count in counts.items() if count) or "nothing"
    yield f"{counted(compared, 'case')} compiled in both; different: {shown}"


def release(records: Records) -> str:
    """jax 0.12.0.1, libtpu 0.0.52."""
    facts = records.runs[0].get("facts")
    compiler = field(facts, "compiler")
    named = {"jax": field(field(facts, "versions"), "jax")} | (compiler if isinstance(compiler, dict) else {})
    return ", ".join(f"{plain(k)} {plain(v)}" for k, v in named.items())
