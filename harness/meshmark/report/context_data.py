# SPDX-License-Identifier: Apache-2.0
"""The page's data beside judged cases and times: the weather of releases, growth to pods, and JAX beside torch and MPI.

None of it is a verdict, and none of these files is a run of the suite.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

from meshmark.core import statistics
from meshmark.core.escaping import plain
from meshmark.core.text import number
from meshmark.core.verdicts import BAD
from meshmark.growth import curves
from meshmark.growth import lines as growth_lines
from meshmark.records import reading
from meshmark.records.reading import Records
from meshmark.report.page_definition import (
    BesideData,
    Figure,
    FileData,
    GrowthData,
    OthersData,
    OthersRow,
    WeatherData,
    WeatherPlace,
    WeatherStep,
)
from meshmark.report.rounding import rounded
from meshmark.weather import history

OTHERS = "meshmark-others-1"
"""The schema of what `python -m benchmarks.others` records."""

TOTALS = (
    "collectives",
    "sent",
    "asynchronous",
    "hidden",
    "exposed",
    "memory",
    "peak",
    "temporaries",
    "copies",
)
"""The counters of the weather whose sums are shown."""

MOST_CHANGES = 2000
"""The most changed counters of one step that the page lists."""

JAX = "jax"
"""The contestant that the others are compared with."""

_KIND = re.compile(r'"kind": ?"(growth|schedule)"')

QUANTITIES = ("wire_bytes", "memory_bytes", "collective_runs")


@dataclass
class Beside:
    """The files of other programs: their names, hashes and contents."""

    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 by name."""
    kinds: dict[str, str] = field(default_factory=dict)
    """What each file holds, by name (see `kind_of`)."""
    weather: list[Records] = field(default_factory=list)
    growth: list[Mapping[str, Any]] = field(default_factory=list)
    others: list[list[Mapping[str, Any]]] = field(default_factory=list)

    def add(self, kind: str, path: Path, name: str, sha256: str) -> list[str]:
        """Read a file of this kind (see `kind_of`); gives what is wrong with its lines. RecordError if it can't be
        read."""
        self.files[name], self.kinds[name] = sha256, kind
        if kind == "schedule":
            self.weather.append(reading.read_records(path))
            return self.weather[-1].problems
        problems: list[str] = []
        lines = list(_lines(path, problems))
        if kind == "growth":
            for place, line in lines:
                why = growth_lines.problem(line) if line.get("kind") == "growth" else ""
                if why:
                    problems.append(f"{place}: a growth line {why}: it is left out, make the file again")
                elif line.get("kind") == "growth":
                    self.growth.append(line)
        else:
            self.others.append([line for _, line in lines])
            if _of_others(self.others[-1]) is None:
                problems.append(
                    f"{path}: no times of others that can be shown: make it again (docs/others.md)"
                )
        return problems


def kind_of(path: Path) -> str:
    """What a file holds, by its first two lines: schedule, growth or others; "" for records of the suite."""
    try:
        with reading.opened(path) as file:
            first, second = file.readline(1 << 16), file.readline(1 << 16)
    except (OSError, EOFError, gzip.BadGzipFile):
        return ""
    if re.search(rf'"schema": ?"{OTHERS}"', first):
        return "others"
    found = _KIND.search(second)
    return found[1] if found else ""


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(FILE:LINE, the JSON object) of the lines of a file. Other lines are left out, and `problems` names them."""
    try:
        with reading.opened(path) as file:
            for number, text in enumerate(file, 1):
                try:
                    line = json.loads(text)
                except (ValueError, RecursionError) as error:
                    problems.append(f"{path}:{number}: not JSON ({str(error)[:80]}); it is left out")
                    continue
                if isinstance(line, dict):
                    yield f"{path}:{number}", line
                else:
                    problems.append(f"{path}:{number}: no object of JSON; it is left out")
    except (OSError, EOFError) as error:
        raise reading.RecordError(f"can't read {path}: {error}") from None


def build(beside: Beside) -> BesideData:
    """The data of the page: weather, growth and others (each None without records), and the files that they come
    from."""
    files: list[FileData] = [
        {"name": plain(n), "sha256": beside.files[n], "kind": kind} for n, kind in beside.kinds.items()
    ]
    return {
        "files": files,
        "weather": _weather(history.releases(beside.weather)),
        "growth": _growth(beside.growth),
        "others": [found for one in beside.others if (found := _of_others(one))],
    }


# The weather -------------------------------------------------------------------------------------------------


def _weather(releases: Sequence[history.Release]) -> WeatherData | None:
    if not releases:
        return None
    return {
        "releases": [
            {"label": plain(r.label), "jax": plain(r.jax), "suite": plain(r.suite)} for r in releases
        ],
        "counters": [(name, meaning) for name, (meaning, _) in history.COUNTERS.items()],
        "places": [_place(place, releases) for place in history.places(releases)],
    }


def _place(place: str, releases: Sequence[history.Release]) -> WeatherPlace:
    cases = history.common(releases, place)
    of = {name: history.known(releases, place, name) for name in TOTALS}
    there = [(n, release) for n, release in enumerate(releases) if place in release.lines]
    steps: list[WeatherStep] = []
    for (old_n, old), (new_n, new) in itertools.pairwise(there):
        found = sorted(
            (c for c in history.changes(old, new) if c.place == place),
            key=lambda c: (-min(c.distance, 1e9), c.case, c.counter),
        )
        verdicts = [v for v in history.verdicts(old, new) if v[0] == place]
        steps.append(
            {
                "from": old_n,
                "to": new_n,
                "programs": len({c.case for c in found}),
                "changed": len(found),
                "changes": [
                    (plain(c.case), list(history.COUNTERS).index(c.counter), rounded(c.was), rounded(c.now))
                    for c in found[:MOST_CHANGES]
                ],
                "broken": [plain(case) for _, case, _, now in verdicts if now["verdict"] in BAD],
                "mended": [plain(case) for _, case, _, now in verdicts if now["verdict"] not in BAD],
            }
        )
    return {
        "name": plain(place),
        "programs": len(cases),
        "sums": {
            name: [
                rounded(history.total(r, place, of[name], name)) if place in r.lines else None
                for r in releases
            ]
            for name in TOTALS
        },
        "without": {name: len(cases) - len(of[name]) for name in TOTALS if 0 < len(of[name]) < len(cases)},
        "steps": steps,
    }


# Growth ------------------------------------------------------------------------------------------------------


def _growth(lines: Sequence[Mapping[str, Any]]) -> list[GrowthData]:
    """The growth series: for each quantity, its values and the theory over numbers of devices."""
    every = curves.group_lines(lines) if lines else []
    faster = {(id(f.series), f.quantity) for f in curves.find_excess_growth(every)}
    found = []
    for one in every:
        manual = curves.manual_of(one, every)
        row: dict[str, Any] = {
            name: plain(getattr(one, name)) for name in ("chip", "operation", "variant", "mode")
        }
        row |= {"scaling": one.scaling, "faster": [q for q in QUANTITIES if (id(one), q) in faster]}
        for quantity in QUANTITIES:
            expected = one.expected(quantity, None if manual is one else manual)
            row[quantity] = [(n, rounded(v)) for n, v in one.seen(quantity)]
            row[f"{quantity}_theory"] = [(n, rounded(v)) for n, v in expected]
        found.append(cast(GrowthData, row))
    return found


# Beside others -----------------------------------------------------------------------------------------------


def _of_others(lines: Sequence[Mapping[str, Any]]) -> OthersData | None:
    """The result of `_others`; None if the file does not have its schema."""
    try:
        return _others(lines)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _others(lines: Sequence[Mapping[str, Any]]) -> OthersData | None:
    """Times of JAX and of others by operation and size, and the ratios of pairs of rounds. As in benchmarks.others, a
    sample is the time of the slowest rank, and the figure of a round is the median of its samples. The two other
    numbers of a figure are the quartiles of the rounds: one launch gives no interval."""
    run = lines[0] if lines else {}
    if run.get("schema") != OTHERS or not isinstance(run.get("contestants"), list):
        return None
    rounds: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
    wrong = set()
    for line in lines:
        if line.get("kind") == "block":
            key = str(line["operation"]), int(line["nbytes"]), str(line["contestant"])
            rounds[key][int(line["round"])] = median(map(max, zip(*line["samples_us"], strict=True))) * 1e-6
            if line.get("wrong") is not None:
                wrong.add(key)
    labels = {str(c["name"]): plain(c["label"]) for c in run["contestants"] if isinstance(c, dict)}
    rows = []
    for operation, nbytes in sorted({key[:2] for key in rounds}):
        row: OthersRow = {"operation": plain(operation), "bytes": nbytes, "times": {}, "ratios": {}}
        own = rounds.get((operation, nbytes, JAX), {})
        for name in labels:
            key = operation, nbytes, name
            if key not in rounds or key in wrong:
                continue
            row["times"][name] = _estimate(statistics.middle_half(list(rounds[key].values())))
            shared = sorted(set(own) & set(rounds[key]))
            if name != JAX and shared and (operation, nbytes, JAX) not in wrong:
                ratios = [own[n] / rounds[key][n] for n in shared]
                row["ratios"][name] = _estimate(statistics.middle_half(ratios))
        rows.append(row)
    machine: Mapping[str, Any] = run.get("machine") or {}
    return {
        "names": list(labels),
        "labels": labels,
        "rows": rows,
        "processes": number(run.get("processes")),
        "machine": plain(", ".join(str(machine.get(k, "")) for k in ("processor", "system"))),
        "cores": machine.get("cores") if type(machine.get("cores")) is int else None,
        "started": plain(run.get("time")),
        "versions": {
            str(line["contestant"]): plain(
                ", ".join(f"{k} {v}" for k, v in (line.get("facts") or {}).items())
            )
            for line in lines
            if line.get("kind") == "ready" and line.get("contestant") in labels
        },
    }


def _estimate(found: statistics.Estimate) -> tuple[Figure, Figure, Figure]:
    return rounded(found.value), rounded(found.low), rounded(found.high)
