# SPDX-License-Identifier: Apache-2.0
"""Makes tables of timing records: modes side by side, sweeps with their fit, scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from meshmark.core import statistics
from meshmark.core.statistics import Estimate
from meshmark.core.text import counted, number, printable, text_table, text_tables
from meshmark.operations.base import MODES
from meshmark.records.definition import TimingLine
from meshmark.records.reading import Records
from meshmark.timing import derived, figures, orders, steps
from meshmark.timing.cells import BASE, Cells, by_cell
from meshmark.timing.rooflines import Rooflines

CADENCES = ("plain", "isolated", "stream", "device")


def rooflines_of(records: Records) -> Rooflines:
    """The peaks and ceilings for the shares of a file, from its first run line and its ceiling lines."""
    return Rooflines.of(records.runs[0]["facts"], records.ceilings)


CONTROL = "control"
"""The mode of a control row: the program of another row once more, compiled again and timed in the same rounds."""


def find_ratios(cells: Cells) -> dict[str, orders.Ratios]:
    """The ratios of each cadence."""
    return {cadence: orders.Ratios.of(cells, cadence) for cadence in CADENCES}


def timing_rows(records: Records, tables: Mapping[str, orders.Ratios] | None = None) -> list[dict[str, Any]]:
    """One tidy row per case and cadence, and one per control. A row has figures over all processes, the fastest and the
    slowest process, counters, the ratio to manual mode of the same cell (for a control: to its own case) with its
    interval and its order, whether the mode is the best of its cell, and dispatch (isolated minus stream).

    Intervals are over processes, and None with fewer than six (`interval`: single run). Orders are corrected over all
    ratios of the same cadence. The best mode is faster than every other one by such intervals. `tables`: the ratios of
    these records, if they were computed before.
    """
    of = rooflines_of(records)
    found = []
    cells = by_cell(records.timings)
    dispatches = derived.dispatch(cells)
    tables = tables or find_ratios(cells)
    for (cell, cadence), modes in cells.items():
        ratios = tables[cadence]
        best = ratios.best(cell)
        for mode, own in modes.items():
            row = _row(own, cadence, of) | {"best": mode == best}
            if row["median_s"] is not None and cadence == "isolated" and (cell, mode) in dispatches:
                row |= figures.with_ends("dispatch", dispatches[cell, mode])
            if against := ratios.modes.get(cell, {}).get(mode):
                row |= _compared(against, ratios.table)
            found.append(row)
            if against := ratios.controls.get((cell, mode)):
                found.append(
                    _row(_twins(own), cadence, of) | {"mode": CONTROL} | _compared(against, ratios.table)
                )
    return found


def _row(own: Sequence[TimingLine], cadence: str, of: Rooflines) -> dict[str, Any]:
    first = own[0]
    each = figures.by_process(own)
    time = figures.pooled(own)
    row: dict[str, Any] = {
        name: first.get(name)
        for name in ("case", "operation", "variant", "mode", "mesh", "dtype", "size_bytes", "level")
    }
    row |= {
        "size": first["case"].split("/")[-1],
        "nbytes": (first.get("cost") or {}).get("nbytes") or None,
        "cadence": cadence,
        "verdict": first["verdict"],
        "reason": first["reason"],
        "verified": all(r.get("verified") is True for r in own),
        "processes": len(each) or len(own),
        "samples": sum(len(r["samples_s"]) for r in own),
        "devices": first.get("devices"),
    }
    row |= {name: None for name in ("median_s", "low_s", "high_s", "interval")}
    if time:
        row |= times(time) | figures.rates(first, time.value, of) | figures.tails(own)
        row |= dict(zip(("fastest_process_s", "slowest_process_s"), figures.extremes(each), strict=True))
        if skew := _skew(own):
            row |= {"ranks": len(skew[1]), "slowest_rank": _slowest(skew[1])} | figures.with_ends(
                "skew", skew[0]
            )
        apart: tuple[figures.Timed, ...] = ("launch_skew_s", "wire_s")
        for what in apart:
            if middles := list(figures.by_process(own, what).values()):
                row |= figures.with_ends(what.removesuffix("_s"), statistics.series_median(middles))
    for name, each_s in {
        "lower": [r.get("lower_s") for r in own],
        "compile": [r.get("compile_s") for r in own],
    }.items():
        known = [s for s in each_s if isinstance(s, (int, float))]
        row |= figures.with_ends(name, statistics.series_median(known) if known else None)
    for name in (
        *("collectives", "wire_bytes", "flops", "bytes_accessed"),
        *("temp_bytes", "argument_bytes", "output_bytes"),
    ):
        row[name] = first.get(name)
    return row


def times(time: Estimate) -> dict[str, Any]:
    """median_s, low_s, high_s and interval. The ends are None with too few processes."""
    known = math.isfinite(time.low) and math.isfinite(time.high)
    return {
        "median_s": time.value,
        "low_s": time.low if known else None,
        "high_s": time.high if known else None,
        "interval": "95 % over processes" if known else "single run",
    }


def _compared(ratios: Sequence[float], table: orders.Table) -> dict[str, Any]:
    """The ratio, its ends (None with too few processes), the order that its table claims, and `doubt`: why the table
    claims none, or ""."""
    versus = figures.over_processes(ratios)
    known = math.isfinite(versus.high)
    return {
        "ratio": versus.value,
        "ratio_low": versus.low if known else None,
        "ratio_high": versus.high if known else None,
        "order": table.order(ratios),
        "doubt": table.doubt,
    }


def _twins(own: Sequence[TimingLine]) -> list[TimingLine]:
    """The records of the control of a case."""
    return [{**r, "samples_s": r["control_s"]} for r in own if r.get("control_s")]


# The terminal's tables --------------------------------------------------------------------------------------


def table_lines(records: Records, width: int | None = None) -> Iterator[str]:
    """The lines of all tables of a file. Each line of a table has at most `width` characters (None: no limit)."""
    of = rooflines_of(records)
    cells = by_cell(records.timings)
    processes = len({r["process"] for r in records.timings})
    for cadence in CADENCES:
        ratios = orders.Ratios.of(cells, cadence)
        table = list(_modes(cells, cadence, ratios, of))
        if table:
            yield from ["", f"{cadence}: {MEANING[cadence]}", ""]
            shown = [m for m in MODES if any(m in modes for (_, c), modes in cells.items() if c == cadence)]
            others = [m for m in shown if m not in (BASE, "host") and BASE in shown]
            extra = [name for name in ("launch skew", "wire", "skew") if any(row[name] for _, row in table)]
            header = ["case", *shown, *(f"{m}/{BASE}" for m in others)]
            parts = [1 + len(shown), len(header)]
            header += ["S, B", "rate", "share", "p10", "p90", "p99", "runs", *extra]
            yield from text_tables(header, _filled(table, shown, others, extra), parts, width)
            yield from _claims(ratios.table, processes)
    if compiled := list(_compiled(cells)):
        yield from ["", "compiled: the bytes that a device sends in one call (and the collectives)", ""]
        yield from text_tables(compiled[0], compiled[1:], range(4, len(compiled[0]), 3), width)
    yield ""
    yield (
        "times are medians"
        + (
            f" over {processes} processes, with the half width of their 95 % interval"
            if processes >= LEAST
            else f" of {processes} process{'es' * (processes > 1)}: a single run, without an interval, since"
            f" identical processes differ (take --processes {LEAST} or more)"
        )
        + _of_ranks(records)
        + f"; rates, p10, p90 and p99 (from 100 samples on) are of mode {BASE}; S is what algbw counts per device"
    )
    for name, value in sorted({(c["name"], c.get("dtype", "")): c for c in records.ceilings}.items()):
        unit = "GB/s" if value["unit"] == "B/s" else "GFLOP/s"
        yield (
            f"ceiling measured here, {value.get('devices')} devices together: {' '.join(name)}"
            f" {value['value'] / 1e9:.1f} {unit}"
        )
    ends = "; 95 % intervals over processes in brackets" if processes >= LEAST else "; a single run"
    fits = list(_fits(cells))
    if fits:
        yield from ["", f"message size: t = alpha + S / beta, least squares of relative residuals{ends}", ""]
        yield from text_table(
            ["case", "cadence", "mode", "points", "alpha", "beta", "residuals"],
            fits,
            width,
        )
    if rooflines := list(_rooflines(cells, of)):
        yield from ["", f"roofline of {BASE}: flops over bytes moved, and the ceiling that binds", ""]
        header = ["case", "cadence", "FLOP", "B per device", "FLOP/B", "rate", "binds", "share", "of"]
        yield from text_tables(header, rooflines, [5], width)
    if decoded := steps.cells(records):
        yield from ["", "steps of the decoder, modes side by side; MFU is of the peak of arithmetic", ""]
        yield from text_table(steps.HEADER, decoded, width, left=True)
    scaled = list(_scaling(cells))
    if scaled:
        yield from ["", f"scaling over one axis{ends}", ""]
        yield from text_table(["case", "kind", "devices", "time", "efficiency"], scaled, width)
    yield from _remarks(records, cells)
    bad = [r for r in records.timings if r["verdict"] != "pass"]
    for record in bad:
        yield (
            f"{record['verdict']}: {printable(record['case'])} ({record['cadence']}): "
            f"{printable(record['reason'][:300])}"
        )


MEANING = {
    "plain": "one call, blocked on, the same buffers, one mode alone: what your own loop would measure",
    "isolated": "one call, blocked on, two sets of buffers and the modes in turns: for comparing modes",
    "stream": "dependent calls inside one program: what each step of many costs",
    "device": "how long the slowest device is busy, from the profiler",
}
"""The question that each cadence answers."""

LEAST = 6
"""Processes from which a figure has an interval."""


def _claims(table: orders.Table, processes: int) -> Iterator[str]:
    """The lines about the orders that the ratios of a table may claim."""
    if table.number:
        least = orders.needed(table.number)
        enough = "" if processes >= least else f"; this one has {processes}: ? is not resolved"
        yield (
            f"ratios: {table.number} in this table, which can claim an order from {least} processes on{enough};"
            f" < faster and > slower than {BASE}, corrected over the table; a control is the same program twice"
        )
        if table.doubt:
            yield f"no order is claimed here: {table.doubt}"


def _modes(
    cells: Cells, cadence: str, ratios: orders.Ratios, of: Rooflines
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, by mode: time; "ratios": by mode; "rate", "share") for each cell."""
    for (cell, found), modes in cells.items():
        if found != cadence:
            continue
        times = {mode: figures.pooled(own) for mode, own in modes.items()}
        best = BASE if times.get(BASE) else next((m for m, t in times.items() if t), None)
        row: dict[str, Any] = dict.fromkeys(("S, B", "rate", "share", "p10", "p90", "p99", "runs"), "-")
        row |= dict.fromkeys(("launch skew", "wire", "skew"), "")
        row["times"] = {mode: time or next(r["verdict"] for r in modes[mode]) for mode, time in times.items()}
        row["ratios"] = {
            mode: versus(each, ratios.table) for mode, each in ratios.modes.get(cell, {}).items()
        }
        if best:
            row |= _cells_of_mode(modes[best], of)
        yield _short(cell), row
        for mode, own in modes.items():
            if (cell, mode) in ratios.controls:
                twins = _twins(own)
                against = versus(ratios.controls[cell, mode], ratios.table)
                control = (
                    row | _cells_of_mode(twins, of) | {"times": {mode: figures.pooled(twins)}, "ratios": {}}
                )
                yield f"control, {against} of {mode}: {_short(cell)}", control


def _cells_of_mode(own: Sequence[TimingLine], of: Rooflines) -> dict[str, str]:
    """The cells of a row that are about one mode."""
    row = _row(own, "", of)
    width = half_width(row)
    told = {"rate": rate(row) + width, "runs": str(row["processes"])}
    told["S, B"] = str(row["nbytes"] or "-")
    told["share"] = share(row) or "-"
    for name in ("p10", "p90", "p99"):
        told[name] = spell_time(row[f"{name}_s"]) + half_width(row, name) if row[f"{name}_s"] else "-"
    for name, key in (("launch skew", "launch_skew"), ("wire", "wire")):
        if row.get(f"{key}_s") is not None:
            told[name] = spell_time(row[f"{key}_s"]) + half_width(row, key)
    if skew := _skew(own):
        often = max(skew[1]) / sum(skew[1])
        told["skew"] = f"{spread(skew[0])} (rank {_slowest(skew[1])}: {100 * often:.0f} %)"
    return told


def versus(ratios: Sequence[float], table: orders.Table) -> str:
    """A ratio with its interval and its order in its table: 1.20 (1.15-1.24) >, or 1.02 ?."""
    return f"{ratio(figures.over_processes(ratios))} {ORDERS[table.order(ratios)]}"


ORDERS = {"slower": ">", "faster": "<", orders.UNRESOLVED: "?"}


def _filled(
    table: Sequence[tuple[str, Mapping[str, Any]]],
    shown: Sequence[str],
    others: Sequence[str],
    extra: Sequence[str],
) -> Iterator[list[str]]:
    for name, row in table:
        times = [row["times"].get(mode, "-") for mode in shown]
        yield [
            name,
            *(t if isinstance(t, str) else spread(t) for t in times),
            *(row["ratios"].get(mode, "-") for mode in others),
            *(row[column] for column in ("S, B", "rate", "share", "p10", "p90", "p99", "runs")),
            *(row[column] or "-" for column in extra),
        ]


def _compiled(cells: Cells) -> Iterator[list[str]]:
    """The header and the rows of what the programs of each mode send, by cell; nothing if no record tells it. All
    cadences call the same program."""
    sent: dict[str, dict[str, str]] = {}
    for (cell, _), modes in cells.items():
        for mode, own in modes.items():
            nbytes, count = own[0].get("wire_bytes"), own[0].get("collectives")
            if nbytes is not None and count is not None:
                told = f"{number(nbytes):.0f} B ({counted(count, 'collective')})"
                sent.setdefault(cell, {}).setdefault(mode, told)
    shown = [mode for mode in MODES if any(mode in modes for modes in sent.values())]
    if shown:
        yield ["case", *shown]
        for cell, told_by_mode in sent.items():
            yield [_short(cell), *(told_by_mode.get(mode, "-") for mode in shown)]


def _skew(own: Sequence[TimingLine]) -> tuple[Estimate, list[int]] | None:
    """(difference of the ranks in seconds; number of positions at which each was the slowest) of a case that several
    ranks timed: the median over its launches, and their sum."""
    found = [record["skew"] for record in own if record.get("skew")]
    if not found:
        return None
    counts = [sum(position) for position in zip(*(one["slowest"] for one in found), strict=True)]
    return statistics.series_median([one["median_s"] for one in found]), counts


def _slowest(counts: Sequence[int]) -> int:
    return counts.index(max(counts))


def _of_ranks(records: Records) -> str:
    """A note on the figures, if several ranks timed."""
    size = max((len(r["samples_by_rank"]) for r in records.timings if r.get("samples_by_rank")), default=0)
    if not size:
        return ""
    return (
        f" on each of {size} ranks; a sample is that of the slowest rank, and skew the median of slowest minus fastest,"
        f" with the rank that was the slowest most often, of mode {BASE}"
    )


def _dispatch(overhead: Estimate, cases: int) -> str:
    """Dispatch as a sentence. It is not resolved if noise hides it, or if a stream's steps cost more than a call."""
    label = f"dispatch (isolated minus stream), median of {cases} cases"
    if overhead.value >= 0:
        return f"{label}: {interval(overhead, spell_time)}"
    return f"{label}: not resolved, since the streams took {spell_time(-overhead.value)} longer"


def _remarks(records: Records, cells: Cells) -> Iterator[str]:
    """Remarks on dispatch, compile time, differences of processes, and modes that send more than manual."""
    if overhead := derived.usual_dispatch(cells):
        yield _dispatch(overhead, len(derived.dispatch(cells)))
    compiled = [(r["compile_s"], r["case"]) for r in records.timings if r.get("compile_s")]
    if compiled:
        longest, case = max(compiled)
        middle = interval(derived.usual_compile(records.timings), spell_time)
        yield f"compile time: median {middle}, longest {spell_time(longest)} ({printable(case)})"
    apart = [
        slowest / fastest
        for modes in cells.values()
        for own in modes.values()
        if len(own) > 1
        for fastest, slowest in [figures.extremes(figures.by_process(own))]
        if fastest
    ]
    if apart:
        yield (
            f"the slowest of these processes took {statistics.median(apart).value:.2f} times as long as the fastest"
            f" (median of {len(apart)} cases; at most {max(apart):.2f})"
        )
    more: dict[tuple[str, str], tuple[float, str]] = {}
    for (cell, cadence), modes in cells.items():
        sent = {mode: number(own[0].get("wire_bytes") or 0) for mode, own in modes.items()}
        for mode, nbytes in sent.items() if cadence == "isolated" and sent.get(BASE) else ():
            if math.isfinite(nbytes) and nbytes > sent[BASE]:
                key = (mode, cell.split("/")[0])
                more[key] = max(more.get(key, (0.0, "")), (nbytes / sent[BASE], cell))
    for (mode, _), (factor, cell) in sorted(more.items(), key=lambda kv: -kv[1][0]):
        yield f"{mode} sends up to {factor:.3g} times the bytes of {BASE}: {_short(cell)}"


def _short(cell: str) -> str:
    return printable(cell.replace("/*/", " ").replace("/", " "))


def _fits(cells: Cells) -> Iterator[list[str]]:
    found = derived.fits(cells)
    streamed = {(fit.cell, fit.mode) for fit in found if fit.cadence == "stream"}
    for fit in found:
        if fit.cadence == "isolated" and (fit.cell, fit.mode) in streamed:
            continue  # the stream's fit describes the wire and not the dispatch
        yield [
            _short(fit.cell),
            fit.cadence,
            fit.mode,
            str(fit.points),
            interval(fit.alpha, spell_time),
            interval(fit.beta, lambda rate: f"{rate / 1e9:.2f} GB/s" if math.isfinite(rate) else "no growth"),
            " ".join(f"{100 * r:+.0f}%" for r in fit.residuals),
        ]


def _rooflines(cells: Cells, of: Rooflines) -> Iterator[list[str]]:
    """The layers and contractions whose ceiling is known: arithmetic intensity, the part that binds, and its share."""
    for (cell, cadence), modes in cells.items():
        row = _row(modes[BASE], cadence, of) if BASE in modes else {}
        if row.get("intensity") and row["share"] and (cadence == "stream" or (cell, "stream") not in cells):
            yield [
                _short(cell),
                cadence,
                f"{row['intensity'] * row['moved_bytes'] * row['devices']:.3g}",
                f"{row['moved_bytes']:.3g}",
                f"{row['intensity']:.3g}",
                rate(row) + half_width(row),
                row["bound_by"],
                share(row),
                row["share_of"],
            ]


def half_width(row: Mapping[str, Any], name: str = "") -> str:
    """The relative half width of a row's time as text, which is also that of its rates and shares; with a `name`, that
    of p10, dispatch and so on. "" for a single run, and for a row without this time."""
    value, low, high = (
        row.get(k)
        for k in (
            (f"{name}_s", f"{name}_low_s", f"{name}_high_s") if name else ("median_s", "low_s", "high_s")
        )
    )
    if not value or low is None or high is None:
        return ""
    return f" ±{50 * (high - low) / abs(value):.0f}%"


def share(row: Mapping[str, Any]) -> str:
    """The share of a ceiling, with the ends that follow from the time's interval: 17.1 % (16.6-17.6); "" without a
    share."""
    if not row.get("share"):
        return ""
    percents = 100 * row["share"]
    ends = [percents * row["median_s"] / row[end] for end in ("high_s", "low_s") if row[end]]
    return f"{percents:.1f} %" + (f" ({ends[0]:.1f}-{ends[1]:.1f})" if len(ends) == 2 else "")


def _scaling(cells: Cells) -> Iterator[list[str]]:
    for series in derived.scaling(cells):
        for devices, time, efficiency in series["points"]:
            yield [
                series["name"],
                series["kind"],
                str(devices),
                spell_time(time),
                interval(efficiency, percent),
            ]


def percent(value: float) -> str:
    """A share as text: 87 %."""
    return f"{100 * value:.0f} %"


def interval(found: Estimate, text: Callable[[float], str]) -> str:
    """A figure as text, with the ends of its interval if they are finite and differ: 1.2 ms (1.1 ms-1.3 ms)."""
    value = text(found.value)
    if math.isinf(found.low) or found.low == found.high:
        return value
    until = " to " if found.low < 0 else "-"
    return f"{value} ({text(found.low)}{until}{text(found.high)})"


def spell_time(value: float) -> str:
    """A time with its unit: 12.3 us, 4.56 ms, 1.20 s. A difference of times may be negative."""
    if value < 0:
        return f"-{spell_time(-value)}"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def spread(time: Estimate) -> str:
    """A time with its relative half width, if it has an interval."""
    known = math.isfinite(time.relative)
    return spell_time(time.value) + (f" ±{100 * time.relative:.0f}%" if known else "")


def ratio(found: Estimate) -> str:
    """A ratio with its interval, if it has one."""
    if not math.isfinite(found.high):
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f}-{found.high:.2f})"


def rate(rates: Mapping[str, Any]) -> str:
    """The rate of a case: bus bandwidth of a collective, FLOP/s, or algorithm bandwidth."""
    if rates["busbw"]:
        return f"{rates['busbw'] / 1e9:.3g} GB/s bus"
    if rates["flops_per_s"]:
        unit, factor = ("TFLOP/s", 1e12) if rates["flops_per_s"] >= 1e12 else ("GFLOP/s", 1e9)
        return f"{rates['flops_per_s'] / factor:.3g} {unit}"
    return f"{rates['algbw'] / 1e9:.3g} GB/s" if rates["algbw"] else "-"
