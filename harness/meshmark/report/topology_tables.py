# SPDX-License-Identifier: Apache-2.0
"""Compiled communication by topology, and between two releases: the collectives and the bytes of each mode.

The tables are made from the communication lines of `pytest conformance --topology`. Such a line has the operation,
variant, mode and size of its case, and its topology after the `@` of the case id. Bytes are relative to manual mode as
it was compiled (report.sent). The compiler may send more than manual mode spells too, and has a column of its own. The
tables are Markdown for publication and plain text for a terminal. All text of records is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshmark.core.escaping import escape_markdown, field, plain
from meshmark.core.text import counted, number, text_table
from meshmark.core.verdicts import BAD
from meshmark.levels.counters import format_collectives
from meshmark.records.reading import Records
from meshmark.report.sent import manual_bytes

MODES = ("auto", "explicit", "manual")
GLOBAL = MODES[:2]

SAME = 0.005
"""Factors that differ by less from 1 count as 1: a table shows three digits."""

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
    manual: float
    """The bytes of manual mode in the same cell, as compiled; NaN if it has no such case, or a bad one."""
    spelled: float
    """The bytes of manual mode's contract; NaN if a transformation makes its collectives."""

    @property
    def times(self) -> float:
        """The bytes divided by those that manual mode compiles to; NaN if these are unknown."""
        return _over(self.sent, self.manual)

    @property
    def over_spelled(self) -> float:
        """The bytes that manual mode compiles to, divided by those that it spells; NaN if either is unknown."""
        return _over(self.manual, self.spelled)


def _over(sent: float, other: float) -> float:
    """The ratio of two numbers of bytes; infinite if only the second is 0, and 1 if both are."""
    if other == 0:
        return math.nan if math.isnan(sent) else math.inf if sent else 1.0
    return sent / other


def find_compiled_cases(files: Iterable[Records]) -> list[Compiled]:
    """The cases of compile-only runs, in their order, without those that have a bad verdict."""
    found = []
    for records in files:
        for judged in records.cases.values():
            line = next((li for li in judged.lines if isinstance(li.get("collectives"), list)), None)
            if line is None or not isinstance(line.get("topology"), str) or line.get("mode") not in MODES:
                continue
            if judged.verdict in BAD:
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
                    manual=manual_bytes(judged.case, records.cases),
                    spelled=sent - excess,
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


def chapter(found: Sequence[Compiled], most: int | None = None) -> Iterator[str]:
    """Markdown: overviews of operations by topology, and the collectives of each mode if the modes differ. Tables have
    at most `most` rows (None: all)."""
    if not found:
        return
    places = list({c.place: None for c in found})
    yield "## Modes by topology"
    yield ""
    yield (
        "Bytes that a device sends in auto / explicit mode, divided by those that manual mode compiles to: the largest"
        " factor among an operation's cases. One number where both modes agree; inf where manual mode sends none; -"
        " where no case stands beside a manual one. Compiled only."
    )
    yield ""
    yield from markdown_table(["operation", *places], overview(found, places), most)
    yield ""
    yield "### Where manual mode itself sends more than it spells"
    yield ""
    if rows := beyond_spelling(found, places):
        yield "The bytes that manual mode compiles to, divided by those of what it spells: the largest factor."
        yield ""
        yield from markdown_table(["operation", *places], rows, most)
    else:
        yield "Nowhere."
    yield ""
    yield "### Where a mode sends other bytes than manual mode, or manual mode other bytes than it spells"
    yield ""
    if rows := differing(found):
        header = ["operation", "variant", "modes", "compiled to", "times manual", "manual over spelled"]
        yield from markdown_table([*header, "topologies"], rows, most)
    else:
        yield "Nowhere."
    yield ""


def overview(found: Sequence[Compiled], places: Sequence[str]) -> list[list[str]]:
    """One row per operation: the largest factor of each global mode over manual mode at each place. The operation with
    the largest factor comes first."""
    rows = []
    for operation in {c.operation: None for c in found}:
        of = [c for c in found if c.operation == operation and c.mode in GLOBAL]
        known = [c.times for c in of if not math.isnan(c.times)]
        row = [operation]
        for place in places:
            worst = [_largest(c.times for c in of if (c.place, c.mode) == (place, mode)) for mode in GLOBAL]
            row.append(worst[0] if len(set(worst)) == 1 else " / ".join(worst))
        if known:
            rows.append((max(known), row))
    return [row for _, row in sorted(rows, key=lambda one: _first_largest(one[0]))]


def _first_largest(factor: float) -> tuple[bool, float]:
    """A key of sorting: finite factors come first, the largest of them before the others."""
    return (math.isinf(factor), -factor)


def beyond_spelling(found: Sequence[Compiled], places: Sequence[str]) -> list[list[str]]:
    """One row per operation whose manual mode sends more than it spells: the largest factor at each place."""
    rows = []
    for operation in {c.operation: None for c in found}:
        of = [c for c in found if c.operation == operation and c.mode == "manual"]
        if any(c.over_spelled > 1 + SAME for c in of):
            rows.append([operation, *(_largest(c.over_spelled for c in of if c.place == p) for p in places)])
    return rows


def _largest(factors: Iterable[float]) -> str:
    """The largest of some factors as text; "-" if none is known."""
    return factor(max(known)) if (known := [f for f in factors if not math.isnan(f)]) else "-"


def differing(found: Sequence[Compiled]) -> list[list[str]]:
    """One row per operation, variant and compiled form whose bytes differ from manual mode's, or from the contract of
    manual mode. Equal rows of several modes and topologies are joined. The largest factor over manual mode comes
    first."""
    groups: dict[tuple[str, ...], list[Compiled]] = {}
    for c in found:
        if any(abs(f - 1) > SAME for f in (c.times, c.over_spelled) if not math.isnan(f)):
            groups.setdefault((c.operation, c.variant, c.kinds), []).append(c)
    ordered = sorted(
        groups.items(),
        key=lambda kv: _first_largest(max((c.times for c in kv[1] if not math.isnan(c.times)), default=0)),
    )
    rows = []
    for (operation, variant, kinds), of in ordered:
        modes = ", ".join(m for m in MODES if any(c.mode == m for c in of))
        places = ", ".join({c.place: None for c in of})
        times, spelled = (_range(f) for f in ([c.times for c in of], [c.over_spelled for c in of]))
        rows.append([operation, variant, modes, kinds, times, spelled, places])
    return rows


def _range(factors: Sequence[float]) -> str:
    """The smallest and the largest of some factors as text; "-" if none is known."""
    known = [f for f in factors if not math.isnan(f)]
    return " to ".join({factor(end): None for end in (min(known), max(known))}) if known else "-"


def factor(value: float) -> str:
    """1, 1.75, 88, 1,980, inf."""
    return f"{value:,.0f}" if 1000 <= value < math.inf else f"{value:.3g}"


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], most: int | None = None
) -> Iterator[str]:
    """The lines of a table in Markdown of at most `most` rows (None: all); cells are escaped."""
    yield "| " + " | ".join(map(escape_markdown, header)) + " |"
    yield "|" + "---|" * len(header)
    for row in rows[:most]:
        yield "| " + " | ".join(map(escape_markdown, row)) + " |"
    yield from more_rows(len(rows), most)


def more_rows(number: int, most: int | None) -> Iterator[str]:
    """The lines below a table of which only `most` rows are shown."""
    if most is not None and number > most:
        yield ""
        yield f"{counted(number - most, 'more row')}: `--long` prints all. The CSV files have every case."


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
