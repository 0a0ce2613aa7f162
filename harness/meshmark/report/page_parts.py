# SPDX-License-Identifier: Apache-2.0
"""The building blocks of the page's data: a record file, and texts in the form of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from meshmark.core.escaping import field as field_of
from meshmark.core.escaping import plain
from meshmark.core.text import number
from meshmark.core.verdicts import VERDICTS
from meshmark.records.product_definition import ProductData
from meshmark.records.reading import Records
from meshmark.report import rounding
from meshmark.timing import orders, timing_tables
from meshmark.timing.cells import by_cell

REASONS = 1_500_000
"""The most characters of all reasons together. Later reasons are cut to SHORT to keep the page small."""
SHORT = 80

INTERPRETED = "interpreted"
SHOWN_VERDICTS = (*VERDICTS[:-1], INTERPRETED, VERDICTS[-1])
"""The verdicts that the page shows. Numbers that pass by interpretation of the compiled text have their own mark. They
are not passes, because nothing ran."""


@dataclass(frozen=True)
class RecordFile:
    """A record file: its published name, its SHA-256, its records, and its product. Outside a results directory
    `product` is "" and `about` is None."""

    name: str
    sha256: str
    size: int
    records: Records
    release: str = ""
    product: str = ""
    about: ProductData | None = None

    @cached_property
    def times(self) -> list[dict[str, Any]]:
        """The tidy rows of its timings, with rounded figures. Comparisons, which hold two environments, have none."""
        if any("environment" in t for t in self.records.timings):
            return []
        return list(map(rounding.round_row, timing_tables.timing_rows(self.records, self.ratios)))

    @cached_property
    def ratios(self) -> dict[str, orders.Ratios]:
        """The ratios of its timings, by cadence."""
        return timing_tables.find_ratios(by_cell(self.records.timings))

    @cached_property
    def cells(self) -> list[dict[str, Any]]:
        """The rows of its cases, without controls."""
        return [row for row in self.times if row["mode"] != timing_tables.CONTROL]


class Strings:
    """A list of texts without duplicates."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}
        self._raw: dict[str, int] = {}

    def __call__(self, value: Any) -> int:
        """The index of a record's value as harmless text."""
        if isinstance(value, str):
            found = self._raw.get(value)
            if found is None:
                found = self._raw[value] = self.place(plain(value))
            return found
        return self.place(plain(value))

    def place(self, text: str) -> int:
        """The index of a text that is already harmless."""
        found = self._places.get(text)
        if found is None:
            found = self._places[text] = len(self.all)
            self.all.append(text)
        return found


class Budget:
    """Keeps reasons in full until the budget of characters is used up."""

    def __init__(self, strings: Strings, left: int = REASONS) -> None:
        self._strings, self._left, self._seen, self.cut = strings, left, dict[str, int](), 0

    def __call__(self, reason: str) -> int:
        """The index of a reason."""
        found = self._seen.get(reason)
        if found is None:
            text = plain(reason)
            if len(text) > self._left and len(text) > SHORT:
                text = text[:SHORT] + " … (in full in the record file)"
                self.cut += 1
            self._left -= len(text)
            found = self._seen[reason] = self._strings.place(text)
        return found


def format_collectives(collectives: Sequence[Any]) -> str:
    """The collectives and how often each runs, such as "2 all-gather, 1 all-reduce"; "none" if there are none."""
    found: dict[str, float] = {}
    for one in collectives:
        kind, trips = field_of(one, "kind"), field_of(one, "trips")
        if isinstance(kind, str):
            times = 1 if trips is None else number(trips)
            found[kind] = found.get(kind, 0) + (times if math.isfinite(times) else 1)
    return ", ".join(f"{times:g} {kind}" for kind, times in sorted(found.items())) or "none"
