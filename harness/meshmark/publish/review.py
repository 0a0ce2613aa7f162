# SPDX-License-Identifier: Apache-2.0
"""The findings of a review of one product: complaints, notes, totals and the level statement."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from meshmark.levels.statements import Statement
from meshmark.publish.definition import Totals
from meshmark.records.definition import AnyLine, ConformanceLine, TimingLine

MOST = 1000
"""The most complaints that are collected."""

MOST_OF_A_KIND = 20
"""The most complaints of one kind and file that are shown one by one."""

AS_WRITTEN = "submit the file as it was written"

Entry = tuple[int, AnyLine]
"""A record with its line number."""

CaseEntry = tuple[int, ConformanceLine]
TimingEntry = tuple[int, TimingLine]


@dataclass
class Review:
    """The findings about one product."""

    place: str
    complaints: list[str] = field(default_factory=list)
    """Each is `file:line: what is wrong: how to correct it`."""
    notes: list[str] = field(default_factory=list)
    totals: Totals | None = None
    """None if the records can't be read."""
    statement: Statement | None = None
    left_out: int = 0
    """The number of passing cases whose numbers were not computed again."""
    measured: str = ""
    """The date of the newest run, as YYYY-MM-DD; "" if there is none."""
    prints: Any = None
    """What identifies the measurements (publish.duplicates.Prints), for the products that are checked after it."""
    _of_a_kind: Counter[tuple[str, str]] = field(default_factory=Counter)

    def complain(self, name: str, text: str, line: int = 0, kind: str = "") -> None:
        """Add a complaint about a file ("" for the product) and, if given, its line."""
        place = "/".join(filter(None, (self.place, name))) + (f":{line}" if line else "")
        key = (name, kind or text)
        self._of_a_kind[key] += 1
        if kind and self._of_a_kind[key] > MOST_OF_A_KIND:
            return
        if len(self.complaints) < MOST:
            self.complaints.append(f"{place}: {text}")

    def close(self) -> Review:
        """Note how many complaints of each kind were left out."""
        for (name, kind), number in self._of_a_kind.items():
            if number > MOST_OF_A_KIND and len(self.complaints) <= MOST:
                more = number - MOST_OF_A_KIND
                self.complaints.append(f"{self.place}/{name}: {more} more like these ({kind})")
        return self
