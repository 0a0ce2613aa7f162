# SPDX-License-Identifier: Apache-2.0
"""Tables of timing records: modes side by side, sweeps with their fit, scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from meshmark.core import statistics
from meshmark.core.statistics import Estimate
from meshmark.core.text import printable, text_table
from meshmark.operations.base import MODES
from meshmark.records.reading import Records
from meshmark.timing import derived, figures, steps
from meshmark.timing.cells import BASE, Cells, by_cell
from meshmark.timing.rooflines import Rooflines

CADENCES = ("plain", "isolated", "stream", "device")


def rooflines_of(records: Records) -> Rooflines:
    """The peaks for the shares of a file."""
    return Rooflines.of(records.runs[0]["facts"], records.ceilings)


CONTROL = "control"
"""The mode of a control row: the program of another row once more, compiled again and timed in the same rounds."""


def rows(records: Records) -> list[dict[str, Any]]:
    """One tidy row per case and cadence, and one per control: figures over all of its processes, the fastest and the
    slowest of them, counters, the ratio to manual mode of the same cell (of a control: to its own case) with its
    interval and its order, whether it is the best of its cell, and dispatch (isolated minus stream).

    An interval is over processes and None with fewer than six (`interval`: single run). An order is corrected over all
    ratios of the same cadence; the best is parted by such intervals from every other mode.
    """
    of = rooflines_of(records)
    found = []
    cells = by_cell(records.timings)
    dispatches = derived.dispatch(cells)
    number = {cadence: count_ratios(cells, cadence) for cadence in CADENCES}
    for (cell, cadence), modes in cells.items():
        ratios = {
            mode: figures.ratios(own, modes[BASE])
            for mode, own in modes.items()
            if mode != BASE and BASE in modes
        }
        parted = {mode: figures.corrected(each, number[cadence]) for mode, each in ratios.items()}
        best = figures.best({mode: found for mode, found in parted.items() if ratios[mode]}, BASE)
        for mode, own in modes.items():
            row = _row(own, cadence, of) | {"best": mode == best}
            if row["median_s"] is not None and cadence == "isolated" and (cell, mode) in dispatches:
                row["dispatch_s"] = dispatches[cell, mode].value
            if mode in ratios:
                row |= _compared(ratios[mode], parted[mode])
            found.append(row)
            if any(r.get("control_s") for r in own):
                found.append(_control(row, own, of, number[cadence]))
    return found


def _row(own: Sequence[Mapping[str, Any]], cadence: str, of: Rooflines) -> dict[str, Any]:
    first = own[0]
    each = figures.by_process(own)
    time = figures.pooled(own)
    row = {
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
            row |= {"ranks": len(skew[1]), "skew_s": skew[0], "slowest_rank": _slowest(skew[1])}
        for name in ("launch_skew_s", "wire_s"):
            if known := [statistics.median(r[name]).value for r in own if r.get(name)]:
                row[name] = statistics.median(known).value
    for name in (
        *("lower_s", "compile_s", "collectives", "wire_bytes", "flops", "bytes_accessed"),
        *("temp_bytes", "argument_bytes", "output_bytes"),
    ):
        row[name] = first.get(name)
    return row


def times(time: Estimate) -> dict[str, Any]:
    """median_s, low_s, high_s and interval: the ends are None where too few processes give any."""
    known = math.isfinite(time.low) and math.isfinite(time.high)
    return {
        "median_s": time.value,
        "low_s": time.low if known else None,
        "high_s": time.high if known else None,
        "interval": "95 % over processes" if known else "single run",
    }


def _compared(ratios: Sequence[float], parted: Estimate | None) -> dict[str, Any]:
    """ratio, its ends (None where too few processes give any), and the order by its corrected interval."""
    versus = figures.over_processes(ratios)
    if versus is None:
        return {}
    known = math.isfinite(versus.high)
    return {
        "ratio": versus.value,
        "ratio_low": versus.low if known else None,
        "ratio_high": versus.high if known else None,
        "order": figures.order(parted),
    }


def _control(
    row: Mapping[str, Any], own: Sequence[Mapping[str, Any]], of: Rooflines, number: int
) -> dict[str, Any]:
    """The control row of a case."""
    twins = [{**r, "samples_s": r["control_s"]} for r in own if r.get("control_s")]
    made = _row(twins, row["cadence"], of)
    against = figures.ratios(own, own, "control_s")
    return made | {"mode": CONTROL} | _compared(against, figures.corrected(against, number))


def count_ratios(cells: Cells, cadence: str) -> int:
    """How many ratios the table of a cadence has, controls included."""
    found = 0
    for (_, own_cadence), modes in cells.items():
        if own_cadence == cadence:
            timed = {mode for mode, own in modes.items() if figures.by_process(own)}
            found += len(timed - {BASE}) if BASE in timed else 0
            found += sum(any(r.get("control_s") for r in own) for own in modes.values())
    return found


# The terminal's tables --------------------------------------------------------------------------------------


def lines(records: Records, width: int | None = None) -> Iterator[str]:
    """The lines of all tables of a file. Each line of a table has at most `width` characters (None: no limit)."""
    of = rooflines_of(records)
    cells = by_cell(records.timings)
    processes = len({r["process"] for r in records.timings})
    for cadence in CADENCES:
        table = list(_modes(cells, cadence, of))
        if table:
            yield from ["", f"{cadence}: {MEANING[cadence]}", ""]
            shown = [m for m in MODES if any(m in modes for (_, c), modes in cells.items() if c == cadence)]
            others = [m for m in shown if m not in (BASE, "host") and BASE in shown]
            extra = [name for name in ("launch skew", "wire", "skew") if any(row[name] for _, row in table)]
            header = ["case", "S, B", *shown, *(f"{m}/{BASE}" for m in others)]
            header += ["rate", "share", "p10", "p90", "p99", "runs", *extra]
            yield from text_table(header, _filled(table, shown, others, extra), width)
            yield from _claims(count_ratios(cells, cadence), processes)
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
        header = ["case", "cadence", "FLOP", "B a device", "FLOP/B", "rate", "binds", "share", "of"]
        yield from text_table(header, rooflines, width)
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
    "plain": "one call, blocked on, the same buffers, one mode alone: what a loop of one's own measures",
    "isolated": "one call, blocked on, two sets of buffers and the modes in turns: for comparing modes",
    "stream": "dependent calls inside one program: what each step of many costs",
    "device": "how long the slowest device is busy, from the profiler",
}
"""The question that each cadence answers."""

LEAST = 6
"""Processes from which a figure has an interval."""


def _claims(number: int, processes: int) -> Iterator[str]:
    """What the ratios of a table may claim."""
    if number:
        least = figures.needed(number)
        enough = "" if processes >= least else f"; this one has {processes}: ? is not resolved"
        yield (
            f"ratios: {number} in this table, which can claim an order from {least} processes on{enough}; < faster and"
            f" > slower than {BASE}, corrected over the table; a control is the same program twice"
        )


def _modes(cells: Cells, cadence: str, of: Rooflines) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, by mode: time; "ratios": by mode; "rate", "share") for each cell."""
    number = count_ratios(cells, cadence)
    for (cell, found), modes in cells.items():
        if found != cadence:
            continue
        times = {mode: figures.pooled(own) for mode, own in modes.items()}
        best = BASE if times.get(BASE) else next((m for m, t in times.items() if t), None)
        row: dict[str, Any] = dict.fromkeys(("S, B", "rate", "share", "p10", "p90", "p99", "runs"), "-")
        row |= dict.fromkeys(("launch skew", "wire", "skew"), "")
        row["times"] = {mode: time or next(r["verdict"] for r in modes[mode]) for mode, time in times.items()}
        row["ratios"] = {
            mode: versus(figures.ratios(own, modes[BASE]), number)
            for mode, own in modes.items()
            if mode != BASE and times[mode] and times.get(BASE)
        }
        if best:
            row |= _cells_of_mode(modes[best], of)
        yield _short(cell), row
        for mode, own in modes.items():
            if any(r.get("control_s") for r in own):
                twins = [{**r, "samples_s": r["control_s"]} for r in own if r.get("control_s")]
                against = versus(figures.ratios(own, own, "control_s"), number)
                control = (
                    row | _cells_of_mode(twins, of) | {"times": {mode: figures.pooled(twins)}, "ratios": {}}
                )
                yield f"control, {against} of {mode}: {_short(cell)}", control


def _cells_of_mode(own: Sequence[Mapping[str, Any]], of: Rooflines) -> dict[str, str]:
    """The cells of a row that are of one mode."""
    row = _row(own, "", of)
    told = {"rate": rate(row), "runs": str(row["processes"])}
    told["S, B"] = str(row["nbytes"] or "-")
    told["share"] = f"{100 * row['share']:.1f} %" if row["share"] else "-"
    for name in ("p10", "p90", "p99"):
        told[name] = seconds(row[f"{name}_s"]) if row[f"{name}_s"] else "-"
    for name, key in (("launch skew", "launch_skew_s"), ("wire", "wire_s")):
        if row.get(key) is not None:
            told[name] = seconds(row[key])
    if skew := _skew(own):
        often = max(skew[1]) / sum(skew[1])
        told["skew"] = f"{seconds(skew[0])} (rank {_slowest(skew[1])}: {100 * often:.0f} %)"
    return told


def versus(ratios: Sequence[float], number: int) -> str:
    """A ratio with its interval and its order among `number` ratios: 1.20 (1.15-1.24) >, or 1.02 ?."""
    found = figures.over_processes(ratios)
    if found is None:
        return "-"
    return f"{ratio(found)} {ORDERS[figures.order(figures.corrected(ratios, number))]}"


ORDERS = {"slower": ">", "faster": "<", figures.UNRESOLVED: "?"}


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
            row["S, B"],
            *(t if isinstance(t, str) else spread(t) for t in times),
            *(row["ratios"].get(mode, "-") for mode in others),
            *(row[column] for column in ("rate", "share", "p10", "p90", "p99", "runs")),
            *(row[column] or "-" for column in extra),
        ]


def _skew(own: Sequence[Mapping[str, Any]]) -> tuple[float, list[int]] | None:
    """(difference of the ranks in seconds; number of positions at which each was the slowest) of a case that several
    ranks timed: the median over its records, and their sum."""
    found = [record["skew"] for record in own if record.get("skew")]
    if not found:
        return None
    counts = [sum(position) for position in zip(*(one["slowest"] for one in found), strict=True)]
    return statistics.median([one["median_s"] for one in found]).value, counts


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


def _remarks(records: Records, cells: Cells) -> Iterator[str]:
    """Remarks on controls, dispatch, compile time, differences of processes, and modes that send more than manual."""
    doubles = [
        own for modes in cells.values() for own in modes.values() if any(r.get("control_s") for r in own)
    ]
    if why := figures.distrust([figures.ratios(own, own, "control_s") for own in doubles]):
        yield why
    overhead = derived.usual_dispatch(cells)
    if overhead and overhead.value > 0:
        number = len(derived.dispatch(cells))
        yield f"dispatch (isolated minus stream): median of {number} cases {interval(overhead, seconds)}"
    compiled = [(r["compile_s"], r["case"]) for r in records.timings if r.get("compile_s")]
    if compiled:
        longest, case = max(compiled)
        middle = seconds(statistics.median([s for s, _ in compiled]).value)
        yield f"compile time: median {middle}, longest {seconds(longest)} ({printable(case)})"
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
            f"the slowest process took {statistics.median(apart).value:.2f} times as long as the fastest"
            f" (median of {len(apart)} cases; at most {max(apart):.2f})"
        )
    more: dict[tuple[str, str], tuple[float, str]] = {}
    for (cell, cadence), modes in cells.items():
        sent = {mode: own[0].get("wire_bytes") or 0 for mode, own in modes.items()}
        for mode, nbytes in sent.items() if cadence == "isolated" and sent.get(BASE) else ():
            if nbytes > sent[BASE]:
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
            interval(fit.alpha, seconds),
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
                rate(row),
                row["bound_by"],
                f"{100 * row['share']:.1f} %{_half_width(row)}",
                row["share_of"],
            ]


def _half_width(row: Mapping[str, Any]) -> str:
    """The relative half width of the time of a row, which is that of its rates and shares too; "" of a single run."""
    if row["low_s"] is None:
        return ""
    return f" ±{50 * (row['high_s'] - row['low_s']) / row['median_s']:.0f}%"


def _scaling(cells: Cells) -> Iterator[list[str]]:
    for series in derived.scaling(cells):
        for devices, time, efficiency in series["points"]:
            yield [series["name"], series["kind"], str(devices), seconds(time), interval(efficiency, percent)]


def percent(value: float) -> str:
    """A share: 87 %."""
    return f"{100 * value:.0f} %"


def interval(found: Estimate, text: Callable[[float], str]) -> str:
    """A figure with the ends of its interval, if it has one and they are not the figure: 1.2 ms (1.1 ms-1.3 ms)."""
    value = text(found.value)
    if math.isinf(found.low) or found.low == found.high:
        return value
    return f"{value} ({text(found.low)}-{text(found.high)})"


def seconds(value: float) -> str:
    """A time with its unit: 12.3 us, 4.56 ms, 1.20 s."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def spread(time: Estimate) -> str:
    """A time with its relative half width, if it has an interval."""
    known = math.isfinite(time.relative)
    return seconds(time.value) + (f" ±{100 * time.relative:.0f}%" if known else "")


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
