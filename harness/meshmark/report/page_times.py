# SPDX-License-Identifier: Apache-2.0
"""The page's data of one file's times: columns, fits, scaling, ceilings and rooflines, controls, and the noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from meshmark.core import statistics
from meshmark.core.escaping import plain
from meshmark.core.statistics import Estimate
from meshmark.records.reading import Records
from meshmark.report.page_definition import (
    ControlData,
    FactorData,
    FitData,
    NoiseData,
    RoofData,
    StepData,
    TimedData,
    TimingColumns,
)
from meshmark.report.page_parts import SHOWN_VERDICTS, RecordFile, Strings, format_collectives
from meshmark.report.rounding import rounded
from meshmark.timing import derived, factors, orders, rooflines, steps, timing_tables
from meshmark.timing.cells import Cells, by_cell, cell_of

TIMED_TEXTS = ("operation", "variant", "mode", "mesh", "dtype", "size", "cadence")
TIMED_NUMBERS = (
    *("median_s", "low_s", "high_s", "ratio", "ratio_low", "ratio_high", "busbw", "algbw", "flops_per_s"),
    *(f"{q}{end}" for q in ("p10", "p50", "p90", "p99") for end in ("_s", "_low_s", "_high_s")),
    *("launch_skew_s", "wire_s", "skew_s"),
    *("nbytes", "intensity", "moved_bytes", "share", "wire_bytes", "temp_bytes"),
    *("processes", "samples", "devices"),
)

SHARES = ("share_of", "bound_by")
"""The ceiling that a share refers to, and the part of the roofline that bounds it."""

ORDERS: Mapping[str, Literal[-1, 0, 1]] = {"faster": -1, "not resolved": 0, "slower": 1}
"""What a ratio to manual mode shows after correction over the table; None without a ratio."""


def good(row: Mapping[str, Any]) -> bool:
    """Whether the time of a row may be published: its values were verified."""
    return row["verdict"] in ("pass", "known") and bool(row.get("verified"))


def untimed() -> TimedData:
    """The data of a file without times."""
    return {
        "timings": None,
        "steps": [],
        "controls": [],
        "claims": {},
        "factors": [],
        "noise": None,
        "roofs": [],
        "ceilings": [],
        "fits": [],
        "scaling": [],
    }


def timed(source: RecordFile, strings: Strings) -> TimedData:
    """Times by column, controls, noise, ceilings, rooflines, fits and scaling of a file."""
    records, found = source.records, source.cells
    good_cells = by_cell([r for r in records.timings if good(r)])
    sent = {r["case"]: r.get("communication") for r in records.timings}
    kinds = {case: format_collectives(found) for case, found in sent.items() if isinstance(found, list)}
    names = (*TIMED_TEXTS, *TIMED_NUMBERS, *SHARES, "verdict", "reason", "kinds", "order", "best")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row in found:
        published = good(row)
        for name in TIMED_TEXTS:
            columns[name].append(strings(row[name]))
        for name in TIMED_NUMBERS:
            # Wrong values are never published as a time.
            timed = name.endswith(("_s", "ratio_low", "ratio_high", "ratio", "bw", "share"))
            columns[name].append(None if timed and not published else rounded(row.get(name)))
        columns["verdict"].append(SHOWN_VERDICTS.index(row["verdict"]))
        why = "" if published else row["reason"] or "its values were not verified"
        columns["reason"].append(strings(why))
        for name in SHARES:
            columns[name].append(strings(row.get(name, "")))
        columns["kinds"].append(strings(kinds.get(row["case"], "")))
        columns["order"].append(ORDERS.get(row.get("order", "")) if published else None)
        columns["best"].append(int(published and row["best"]))
    return {
        "timings": cast(TimingColumns, columns),
        "steps": list(_steps(records)),
        "controls": list(_controls(source.times)),
        "claims": _claims(source.times),
        "factors": list(_factors(source)),
        "noise": _noise(found),
        "roofs": list(_roofs(records)),
        "ceilings": [
            {
                "name": plain(c["name"]),
                "dtype": plain(c.get("dtype")),
                "value": rounded(c["value"]),
                "unit": plain(c["unit"]),
                "devices": rounded(c.get("devices")),
            }
            for c in records.ceilings
        ],
        "fits": list(_fits(good_cells)),
        "scaling": [
            {
                "name": plain(s["name"]),
                "kind": s["kind"],
                "points": [[d, rounded(t), rounded(e.value), *ends(e)] for d, t, e in s["points"]],
            }
            for s in derived.scaling(good_cells)
        ],
    }


def _steps(records: Records) -> Iterator[StepData]:
    """The decoder steps: tokens/s, MFU, payload by collective, memory."""
    for row in steps.step_rows(records):
        yield {
            "step": plain(row["step"]),
            "where": plain(row["where"]),
            "mode": plain(row["mode"]),
            "cadence": plain(row["cadence"]),
            "peak": plain(row["peak"]),
            "seconds": rounded(row["seconds"]),
            "tokens_per_s": rounded(row["tokens_per_s"]),
            "mfu": rounded(row["mfu"]),
            "memory": rounded(row["memory"]),
            "sent": [(plain(kind), rounded(nbytes)) for kind, nbytes in row["sent"].items()],
        }


def _roofs(records: Records) -> Iterator[RoofData]:
    """The roofs over the timed layers and contractions, one per dtype and precision: FLOP/s and bytes/s with names.
    Each is for one device, except for virtual devices: they share a machine, so theirs is for all together
    (`together`)."""
    of = timing_tables.rooflines_of(records)
    seen = {
        (r["dtype"], str(r.get("precision", ""))): None
        for r in records.timings
        if rooflines.intensity(r) and r["samples_s"]
    }
    for dtype, precision in seen:
        flops, memory = of.flops(dtype, precision, 1), of.memory(1)
        if flops and memory:
            yield {
                "dtype": plain(" ".join(filter(None, (dtype, precision)))),
                "flops": rounded(flops[0]),
                "flops_of": plain(flops[1]),
                "memory": rounded(memory[0]),
                "memory_of": plain(memory[1]),
                "together": of.virtual,
            }


def _controls(rows: Iterable[Mapping[str, Any]]) -> Iterator[ControlData]:
    """The control rows: the same program under two names, timed in the same rounds."""
    for row in rows:
        if row["mode"] == timing_tables.CONTROL and row.get("ratio") is not None and good(row):
            yield {
                "case": plain(row["case"]),
                "cadence": plain(row["cadence"]),
                "ratio": rounded(row.get("ratio")),
                "ratio_low": rounded(row.get("ratio_low")),
                "ratio_high": rounded(row.get("ratio_high")),
                "processes": rounded(row.get("processes")),
                "order": ORDERS.get(row.get("order", "")),
            }


def _claims(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int, str]]:
    """By cadence: the number of ratios in its table, the number of processes from which an order can be claimed, and
    why none is claimed all the same ("" if there is no such reason)."""
    ratios: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if "order" in row:
            ratios[row["cadence"]].append(row["doubt"])
    return {
        cadence: (len(each), orders.needed(len(each)), plain(each[0])) for cadence, each in ratios.items()
    }


def _split(cell: str) -> tuple[str, str, str]:
    operation, _, _, mesh, _, size = cell.split("/")
    return operation, mesh, size


GROUPS: tuple[Callable[[str], tuple[str, str, str]], ...] = (
    lambda cell: ("", "", ""),
    lambda cell: (_split(cell)[0], "", ""),
    _split,
)
"""The groups of cells whose factors are shown: by operation, mesh and size; "" means any."""


def _factors(source: RecordFile) -> Iterator[FactorData]:
    """The factor of each mode relative to manual mode, as a median over cells: over all cells, per operation, and per
    operation at one mesh and size. Without an interval, only the entry for all cells is given, with None and the number
    of processes. None is also given if the table's intervals are in doubt; `doubt` says why."""
    published = {(cell_of(r["case"]), r["cadence"], r["mode"]) for r in source.cells if good(r)}
    ratios, claims = factors.ratios(source.ratios, published), _claims(source.times)
    for group in GROUPS:
        for found in factors.find_factors(ratios, group):
            doubt = str(claims.get(found.cadence, (0, 0, ""))[2]) if found.known else ""
            sure = found.known and not doubt
            if sure or group is GROUPS[0]:
                operation, mesh, size = map(plain, found.group)
                yield {
                    "operation": operation,
                    "mesh": mesh,
                    "size": size,
                    "mode": plain(found.mode),
                    "cadence": plain(found.cadence),
                    "cells": found.cells,
                    "processes": found.processes,
                    "doubt": doubt,
                    "value": rounded(found.value.value) if sure else None,
                    "low": rounded(found.value.low) if sure else None,
                    "high": rounded(found.value.high) if sure else None,
                }


def _noise(rows: Sequence[Mapping[str, Any]]) -> NoiseData:
    """The median half width of the intervals as a share of the time, and the ratio of the slowest process to the
    fastest."""
    widths, apart = [], []
    for row in rows:
        if row.get("median_s") and row["cadence"] == "isolated" and row["low_s"] is not None:
            widths.append((row["high_s"] - row["low_s"]) / 2 / row["median_s"])
        if row.get("processes", 0) > 1 and row.get("fastest_process_s"):
            apart.append(row["slowest_process_s"] / row["fastest_process_s"])
    return {
        "interval": rounded(statistics.median(widths).value, 3) if widths else None,
        "processes": rounded(statistics.median(apart).value, 4) if apart else None,
        "most": max((row.get("processes", 1) for row in rows), default=0),
    }


def _fits(cells: Cells) -> Iterator[FitData]:
    """The fit t = alpha + S / beta of each sweep over message sizes, with the ends of the intervals (None for one
    run)."""
    for fit in derived.fits(cells):
        operation, variant, _, mesh, dtype = map(plain, fit.cell.split("/"))
        yield {
            "operation": operation,
            "variant": variant,
            "mesh": mesh,
            "dtype": dtype,
            "mode": plain(fit.mode),
            "cadence": plain(fit.cadence),
            "points": fit.points,
            "alpha": rounded(fit.alpha.value),
            "beta": rounded(fit.beta.value),
            "alpha_ends": ends(fit.alpha),
            "beta_ends": ends(fit.beta),
            "factor": rounded(fit.factor),
            "worst": rounded(max(map(abs, fit.residuals)), 3),
        }


def ends(found: Estimate) -> list[float | None]:
    """The ends of an interval as the page stores them; [] for a single run. An upper end without a bound is None."""
    return [] if math.isinf(found.low) else [rounded(found.low), rounded(found.high)]
