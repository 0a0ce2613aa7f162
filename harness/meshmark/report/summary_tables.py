# SPDX-License-Identifier: Apache-2.0
"""The tables of the summary: levels by run, what is wrong, the modes against manual, and the record files.

They are made from the page's data (report.page_data). `latex.tables` makes the tables for papers from the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meshmark.report import tables


def summary(data: Mapping[str, Any], most: int | None = tables.ONE_PAGE) -> Iterator[str]:
    """The lines of summary.md, with tables of at most `most` rows (None: all). The README has its first table."""
    yield "# Results"
    yield ""
    yield from tables.section("Levels", *levels(data), empty="No conformance records.", most=most)
    yield (
        "Cases met (pass, or known and listed) of the frozen must-pass list of each level. *list* is the version of the"
        " must-pass lists: the newest one whose cases the run judged completely. Runs by different versions met"
        " different lists. L4 repeats L0 to L3 over several processes. A run of one process cannot meet it."
    )
    yield ""
    yield from tables.section("What is wrong", *findings(data), empty="Nothing.", most=most)
    yield "Failures that are not known come first, then by severity. *passes in*: runs where each of its cases passes."
    yield ""
    yield from tables.section("Modes against manual", *modes(data), empty="No times.", most=most)
    yield (
        "Median of the ratios of times over processes. slower and faster: the ratio excludes 1, corrected over all"
        " ratios of its cadence, which takes ceil(log2(2 m / 0.05)) processes. Virtual devices share the"
        " cores of one machine: their times compare modes, not hardware."
    )
    yield ""
    yield from provenance(data, most)


def levels(data: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """(header, rows): the result of each run, with denominators."""
    ran = [r for r in data["runs"] if r["judged"] and r["levels"]]
    names = sorted({s["level"] for r in ran for s in r["levels"]})
    rows = []
    for run in ran:
        by = {s["level"]: s for s in run["levels"]}
        cells = []
        for name in names:
            s = by.get(name)
            cells.append(
                ""
                if s is None
                else f"{s['pass'] + s['known']} of {s['cases']}"
                + (f", {s['known']} known" if s["known"] else "")
            )
        old = " (expired)" if run["expired"] else ""
        rows.append([run["label"] + old, run["class"], run.get("met") or "none", list_of(run), *cells])
    return ["run", "devices", "level met", "list", *names], rows


def list_of(run: Mapping[str, Any]) -> str:
    """The version of the must-pass lists by which a run is judged."""
    return ", ".join(map(str, sorted({s["list"] for s in run["levels"]})))


def findings(data: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """(header, rows): what is wrong, one row per finding, with the runs that show it."""
    labels = {run["key"]: run["label"] for run in data["runs"]}
    rows = [
        [
            f"{one['kind']}, known" if one["known"] else one["kind"],
            f"{', '.join(one['operations'][:6])}{' ...' if len(one['operations']) > 6 else ''}",
            ", ".join(one["modes"]),
            one["text"][:160],
            ", ".join(f"{labels[run]} ({number})" for run, number, _ in one["runs"]),
            ", ".join(labels[run] for run in one["passes"]),
            tables.Markdown(tables.link(one["link"])),
        ]
        for one in data["wrong"]
    ]
    return ["kind", "operations", "modes", "what", "in (cases)", "passes in", "link"], rows


def modes(data: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """(header, rows): auto and explicit compared with manual, one row per run, mode and cadence."""
    rows = [[run["label"], run["class"], *row] for run, row in mode_rows(data)]
    return ["run", "devices", *MODE_HEADER], rows


MODE_HEADER = ("mode", "cadence", "cells", "times manual", "slower", "faster", "not resolved")


def mode_rows(data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
    """(run, cells under MODE_HEADER) of each run, mode and cadence. The factor is the median of the cells, with its
    interval over processes. It is not shown for fewer than six processes."""
    strings = data["strings"]
    for run in data["runs"]:
        t = run["timings"]
        if not t:
            continue
        found: dict[tuple[str, str], list[int]] = {}
        for i, value in enumerate(t["ratio"]):
            if value is not None:
                key = strings[t["mode"][i]], strings[t["cadence"][i]]
                found.setdefault(key, []).append(t["order"][i] or 0)
        factors = {(f["mode"], f["cadence"]): f for f in run["factors"] if not f["operation"]}
        for (mode, cadence), ratios in sorted(found.items()):
            slow, fast = (ratios.count(order) for order in (1, -1))
            factor = _factor(factors.get((mode, cadence)))
            counts = (slow, fast, len(ratios) - slow - fast)
            yield run, [mode, cadence, str(len(ratios)), factor, *map(str, counts)]


def _factor(found: Mapping[str, Any] | None) -> str:
    """A factor with its interval, or the reason why there is no factor. orders.Table explains when a table is in
    doubt."""
    if found is None:
        return ""
    if found["doubt"]:
        return "in doubt"
    if found["value"] is None:
        return "single run" if found["processes"] == 1 else f"{found['processes']} processes: no interval"
    return f"{found['value']:.2f} ({found['low']:.2f}-{found['high']:.2f})"


def provenance(data: Mapping[str, Any], most: int | None = tables.ONE_PAGE) -> Iterator[str]:
    """The record files with the versions that made them and their hashes: at most `most` rows (None: all)."""
    rows = [
        [
            *(r["label"], r["class"], r["jaxlib"], r["flags"] or "none"),
            r["commit"][:12] + ("" if r["clean"] else " (not clean)"),
            _noise(r),
            r["file"],
            r["sha256"],
        ]
        for r in data["runs"]
    ]
    header = ["run", "devices", "jaxlib", "flags", "suite", "noise", "record file", "SHA-256"]
    yield from tables.section("Record files", header, rows, most=most)


def _noise(run: Mapping[str, Any]) -> str:
    noise = run["noise"]
    if not noise or noise["interval"] is None:
        return ""
    several = (
        f", slowest process {noise['processes']} times the fastest"
        if noise["processes"]
        else ", one process"
        if run["processes"] == 1
        else ", started once"
    )
    return f"±{100 * noise['interval']:.2g} %{several}"
