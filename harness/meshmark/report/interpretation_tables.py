# SPDX-License-Identifier: Apache-2.0
"""How many programs of a compile-only run have numbers judged by interpretation, and why the others have not.

The table is made from the numbers and gradient lines that have the field `interpreted`. It is Markdown; all text of
records is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from meshmark.core.escaping import plain
from meshmark.core.text import number
from meshmark.records.reading import Records
from meshmark.report.topology_tables import markdown_table

CHECKS = ("numbers", "gradient")


@dataclass
class Coverage:
    """The programs of one topology."""

    place: str
    verdicts: Counter[str] = field(default_factory=Counter)
    """Programs by the verdict of their numbers."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Programs that are not judged, by what the interpreter does not support."""
    uncompiled: int = 0
    """The number of cases that gave no program."""
    compile_s: float = 0.0
    interpret_s: float = 0.0

    @property
    def programs(self) -> int:
        """The number of programs, judged or not."""
        return self.verdicts.total()

    @property
    def judged(self) -> int:
        """The number of programs whose numbers have a verdict."""
        return self.programs - self.verdicts["not_run"]

    def row(self) -> list[str]:
        """The table row of this topology."""
        wrong = self.judged - self.verdicts["pass"] - self.verdicts["known"]
        share = f"{self.judged / self.programs:.1%}" if self.programs else "-"
        counts = (self.verdicts["pass"], self.verdicts["known"], wrong, self.uncompiled)
        seconds = (f"{self.compile_s:,.0f}", f"{self.interpret_s:,.0f}")
        return [
            self.place,
            f"{self.programs:,}",
            f"{self.judged:,} ({share})",
            *(f"{n:,}" for n in counts),
            *seconds,
        ]


def coverage(files: Iterable[Records]) -> list[Coverage]:
    """The interpreted topologies of these records, in their order.

    A program that was not interpreted does not count, for example in a record of communication only.
    """
    found: dict[str, Coverage] = {}
    for records in files:
        for judged in records.cases.values():
            topology = next((li["topology"] for li in judged.lines if li.get("topology")), None)
            if not isinstance(topology, str):
                continue
            one = found.setdefault(plain(topology), Coverage(plain(topology)))
            line = next(
                (li for li in judged.lines if li["check"] in CHECKS and li.get("interpreted") is True), None
            )
            if line is None:
                one.uncompiled += not any("compile_s" in li for li in judged.lines)
                continue
            one.verdicts[line["verdict"]] += 1
            if line["verdict"] == "not_run":
                one.reasons[plain(line.get("refused") or line.get("reason") or "")] += 1
            seconds = [number(li.get("compile_s")) for li in judged.lines if "compile_s" in li]
            one.compile_s += sum(seconds)
            one.interpret_s += number(line.get("interpret_s", 0))
    return [one for one in found.values() if one.programs]


def chapter(found: list[Coverage], most: int | None = None) -> Iterator[str]:
    """Markdown: one row per topology, and the reasons why programs are not judged. Tables have at most `most` rows
    (None: all)."""
    if not found:
        return
    yield "## Numbers by interpretation"
    yield ""
    yield (
        "Nothing ran. The seconds are those of all workers together. A known program has a wrong number that is listed"
        " as a known issue."
    )
    yield ""
    columns = ["topology", "programs", "numbers judged", "right", "known", "wrong", "not compiled"]
    yield from markdown_table(
        [*columns, "s to compile", "s to interpret"], [one.row() for one in found], most
    )
    yield ""
    reasons = [
        [one.place, reason, str(times)] for one in found for reason, times in one.reasons.most_common()
    ]
    if reasons:
        yield from markdown_table(
            ["topology", "not judged: the interpreter does not know", "programs"], reasons, most
        )
        yield ""
