# SPDX-License-Identifier: Apache-2.0
"""The closing text of a run in the terminal: operations by mode, verdict counts, and where the files are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from meshmark.core.text import counted, printable, text_table
from meshmark.core.verdicts import CHECKS, VERDICTS, worst
from meshmark.operations import OPERATIONS
from meshmark.operations.base import MODES
from meshmark.records.reading import Judged
from meshmark.report import sent

INTERPRETED = "interpreted"
"""The word for a compiled case whose numbers pass by interpretation. It is not a verdict, because nothing ran."""


def tally(verdicts: Sequence[str]) -> str:
    """How many cases pass: `12`; `10/12` and the worst verdict if some do not; `-` without cases. If nothing ran, how
    many pass by interpretation (`12 interpreted`, `10/12 interpreted`) or compiled without a failure (`12 not_run`)."""
    if not verdicts:
        return "-"
    passed, interpreted = verdicts.count("pass"), verdicts.count(INTERPRETED)
    compiled = verdicts.count("not_run") + interpreted
    if compiled == len(verdicts):
        if not interpreted:
            return f"{compiled} not_run"
        return f"{interpreted}{f'/{compiled}' * (interpreted < compiled)} {INTERPRETED}"
    verdicts = ["not_run" if v == INTERPRETED else v for v in verdicts]
    return str(passed) if passed == len(verdicts) else f"{passed}/{len(verdicts)} {worst(verdicts)}"


def by_mode(cases: Mapping[str, Judged]) -> tuple[list[str], list[list[str]]]:
    """(header, rows) of the table of operations by mode, grouped by level."""
    modes = [m for m in MODES if any(j["mode"] == m for j in cases.values())]
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for judged in cases.values():
        row = found.setdefault((judged["level"], judged["operation"]), {})
        row.setdefault(judged["mode"], []).append(INTERPRETED if judged.interpreted else judged.verdict)
    order = list(OPERATIONS)
    rows = [
        [f"{level} {name}", *(tally(row.get(mode, [])) for mode in modes)]
        for (level, name), row in sorted(
            found.items(),
            key=lambda kv: (kv[0][0], order.index(kv[0][1]) if kv[0][1] in order else len(order)),
        )
    ]
    return ["operation", *modes], rows


def counts(cases: Mapping[str, Judged]) -> str:
    """Verdict counts with their denominator: 5120 cases: 5100 pass, 20 known."""
    tallied = Counter(j.verdict for j in cases.values())
    shown = [f"{tallied[v]} {v}" for v in reversed(VERDICTS) if tallied[v]]
    fixed = sum(any(line.get("fixed") for line in j.lines) and j.verdict == "pass" for j in cases.values())
    matching = (
        f"{counted(fixed, 'passing case')} match{'es' * (fixed == 1)} a known issue, which may be fixed"
    )
    return (
        f"{counted(len(cases), 'case')}: "
        + ", ".join(shown or ["none"])
        + (f" ({matching})" if fixed else "")
    )


def levels(cases: Mapping[str, Judged]) -> list[str]:
    """One line per level: how many cases of it pass, with the counts of the other verdicts."""
    lines = []
    for level in sorted({j["level"] for j in cases.values()}):
        tallied = Counter(j.verdict for j in cases.values() if j["level"] == level)
        others = ", ".join(f"{tallied[v]} {v}" for v in VERDICTS if v != "pass" and tallied[v])
        lines.append(
            f"{level}: {tallied['pass']} of {sum(tallied.values())} pass" + (f" ({others})" if others else "")
        )
    return lines


def standing(cases: Mapping[str, Judged]) -> list[str]:
    """One line per level, as in `levels`; if nothing could run, how many cases compiled."""
    lines = []
    for line in levels(cases):
        own = [j.verdict for j in cases.values() if j["level"] == line.partition(":")[0]]
        if "pass" not in own and (compiled := own.count("not_run")):
            others = ", ".join(f"{n} {v}" for v in VERDICTS if v != "not_run" and (n := own.count(v)))
            level = line.partition(":")[0]
            line = f"{level}: {compiled} of {len(own)} compiled, nothing ran"
            if passing := sum(j.interpreted for j in cases.values() if j["level"] == level):
                line = f"{level} (interpreted): numbers of {passing} of {len(own)} pass, nothing ran"
            line += f" ({others})" if others else ""
        lines.append(line)
    return lines


def agreement(cases: Mapping[str, Judged]) -> str:
    """Of the cells whose modes all pass, in how many all modes gave the same bits."""
    cells: dict[tuple[str, ...], list[str | None]] = {}
    for judged in cases.values():
        bits = next((line["bits"] for line in judged.lines if isinstance(line.get("bits"), str)), None)
        if judged["mode"] not in ("pmap", "host"):  # these see other arrays, or stand alone
            cell = tuple(part for i, part in enumerate(judged.case.split("/")) if i != 2)
            cells.setdefault(cell, []).append(bits if judged.verdict == "pass" else None)
    passing = [bits for bits in cells.values() if len(bits) > 1 and None not in bits]
    same = sum(len(set(bits)) == 1 for bits in passing)
    if not passing:
        return ""
    others = "; in the others they are within their bounds" if same < len(passing) else ""
    return f"modes agree to the bit in {same} of {len(passing)} cells that pass in all of them{others}"


def communication(cases: Mapping[str, Judged], most: int = 5) -> list[str]:
    """The operations in which auto, explicit or pjit mode compiles to more bytes than manual mode does, the largest
    factor first. Then those without a manual case that send more than their theory."""
    return [
        f"{one.judged['operation']} in mode {one.judged['mode']} sends {times(one, *words)}"
        f" ({counted(count, 'case')})"
        for found, *words in (
            (sent.beside_manual(cases), "the bytes of manual mode", "manual mode sends nothing"),
            (sent.beside_theory(cases), "the bytes that it must send", "it must send nothing"),
        )
        for one, count in sent.largest(found)[:most]
    ]


def times(one: sent.Sent, compared: str, with_nothing: str) -> str:
    """The factor of a case in words. compared: the bytes that the factor multiplies. with_nothing: the words if these
    are none."""
    if math.isinf(one.times):
        return f"up to {one.bytes:,.0f} B per device, and {with_nothing}"
    digits = 0 if one.times >= 10 else 1 if one.times >= 1.05 else 3
    return f"up to {one.times:.{digits}f} times {compared}"


def checked(cases: Mapping[str, Judged]) -> list[str]:
    """If cases were compiled and not run: a line with the verdict counts of each check."""
    if not any(judged.verdict == "not_run" for judged in cases.values()):
        return []
    tallied: dict[str, Counter[str]] = {}
    for judged in cases.values():
        for line in judged.lines:
            name = str(line.get("check"))
            name += f" ({INTERPRETED})" if line.get("interpreted") is True else ""
            tallied.setdefault(name, Counter())[line["verdict"]] += 1
    found = [
        f"{check} " + " ".join(f"{tallied[check][v]} {v}" for v in reversed(VERDICTS) if tallied[check][v])
        for each in CHECKS
        for check in (each, f"{each} ({INTERPRETED})")
        if check in tallied
    ]
    return ["compiled and not run; by check: " + ", ".join(found)]


def closing(cases: Mapping[str, Judged], width: int | None = None) -> list[str]:
    """All closing lines of a run. Lines of the table have at most `width` characters."""
    lines = [*text_table(*by_mode(cases), width), "", *standing(cases)]
    lines += filter(None, [agreement(cases)])
    lines += checked(cases)
    lines += communication(cases)
    return [printable(line) for line in [*lines, counts(cases)]]
