# SPDX-License-Identifier: Apache-2.0
"""Groups timing records by cell, so that the times of one cell's modes are side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from meshmark.records.definition import TimingLine

BASE = "manual"
"""The mode with which the others are compared."""

Key = tuple[str, str]
"""A cell's id and a cadence."""

Cells = Mapping[Key, Mapping[str, list[TimingLine]]]
"""Timing records by cell and cadence, then by mode; a list holds one per process."""


def by_cell(timings: Sequence[TimingLine]) -> dict[Key, dict[str, list[TimingLine]]]:
    """Timing records by cell and cadence, then by mode; a list holds one per process."""
    found: dict[Key, dict[str, list[TimingLine]]] = defaultdict(lambda: defaultdict(list))
    for record in timings:
        found[cell_of(record["case"]), record["cadence"]][record["mode"]].append(record)
    return found


def cell_of(case: str) -> str:
    """The id of a case's cell."""
    parts = case.split("/")
    return "/".join([*parts[:2], "*", *parts[3:]]) if len(parts) == 6 else case
