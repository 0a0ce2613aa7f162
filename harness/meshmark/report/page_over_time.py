# SPDX-License-Identifier: Apache-2.0
"""The page's data over releases of JAX: verdicts, bytes and memory of the cases that all releases have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from meshmark.core.verdicts import BAD
from meshmark.records.reading import Records
from meshmark.report import page_times
from meshmark.report.page_definition import (
    Figure,
    JudgedColumns,
    OverTimeData,
    OverTimeRow,
    RunData,
    TrendData,
)
from meshmark.report.page_parts import INTERPRETED, SHOWN_VERDICTS
from meshmark.report.rounding import rounded
from meshmark.timing import factors, figures
from meshmark.timing.cells import BASE, by_cell

QUIET = ("pass", "not_run", INTERPRETED)
"""The verdicts of cases without a fault."""

PASS, KNOWN, FAILS = 0, 1, 2
_STANDING = [
    PASS if v in QUIET else KNOWN if v == "known" else FAILS if v in BAD else None for v in SHOWN_VERDICTS
]


Times = Mapping[tuple[str, str], Mapping[int, float]]
"""Seconds of manual mode in each process, by cell and cadence."""


def find_times(records: Records) -> Times:
    """The publishable manual-mode times of one file."""
    cells = by_cell([r for r in records.timings if r["mode"] == BASE and page_times.good(r)])
    return {key: each for key, modes in cells.items() if (each := figures.by_process(modes[BASE]))}


def build(runs: Sequence[RunData], times: Mapping[str, Times]) -> Iterator[OverTimeData]:
    """One series per kind of devices and machine with several releases, the oldest run first.

    runs: the runs of the page, the newest first. For each release and machine, the first run that judged cases counts.
    times: by run key. For each release and machine, the run with the most times counts, because processes of different
    runs can't be combined.
    """
    timed: dict[tuple[str, ...], Times] = {}
    for run in runs:
        place = run["class"], run["machine"], run["release"]
        if len(times.get(run["key"], ())) > len(timed.get(place, ())):
            timed[place] = times[run["key"]]
    found: dict[tuple[str, str], dict[str, tuple[str, JudgedColumns]]] = {}
    for run in runs:
        if run["judged"]:
            releases = found.setdefault((run["class"], run["machine"]), {})
            releases.setdefault(run["release"], (run["key"], run["judged"]))
    for (kind, machine), by_release in found.items():
        if len(by_release) > 1:
            releases = dict(reversed(by_release.items()))
            shared, rows = _rows([judged for _, judged in releases.values()])
            yield {
                "class": kind,
                "machine": machine,
                "runs": [key for key, _ in releases.values()],
                "cases": shared,
                "rows": rows,
                **_trend([timed.get((kind, machine, release), {}) for release in releases]),
            }


def _trend(times: Sequence[Times]) -> TrendData:
    """`times`: for each release the number of processes, and the factor relative to the oldest release with the ends of
    its interval (None if there are fewer than six processes); [] if the releases share no time. `timed`: how many times
    they share."""
    number, found = factors.find_trend(times)
    values: list[tuple[int, Figure, Figure, Figure]] = [
        (count, rounded(e.value), rounded(e.low), rounded(e.high))
        if math.isfinite(e.high) and math.isfinite(e.low)
        else (count, None, None, None)
        for count, e in found
    ]
    return {"timed": number, "times": values}


def _rows(judged: Sequence[JudgedColumns]) -> tuple[int, list[OverTimeRow]]:
    """(the number of cases that every release has, one row per release). A row has the cases that pass, are known or
    fail, the bytes sent and temporary memory of all programs together, and the number of programs whose collectives
    differ from the release before (None for the first release)."""
    places = [dict(zip(one["case"], range(len(one["case"])), strict=True)) for one in judged]
    shared = [case for case in places[0] if all(case in other for other in places[1:])]
    rows: list[OverTimeRow] = []
    before: list[int] | None = None
    for one, place in zip(judged, places, strict=True):
        at = [place[case] for case in shared]
        standing = [_STANDING[one["verdict"][i]] for i in at]
        kinds = [one["kinds"][i] for i in at]
        rows.append(
            {
                "pass": standing.count(PASS),
                "known": standing.count(KNOWN),
                "bad": standing.count(FAILS),
                "wire": sum(one["wire"][i] or 0 for i in at),
                "temp": sum(one["temp"][i] or 0 for i in at),
                "changed": None
                if before is None
                else sum(a != b for a, b in zip(before, kinds, strict=True)),
            }
        )
        before = kinds
    return len(shared), rows
