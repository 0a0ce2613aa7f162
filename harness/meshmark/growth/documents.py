# SPDX-License-Identifier: Apache-2.0
"""Writes growth series as Markdown and as plots (matplotlib is imported only for plots)."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark import __version__
from meshmark.core import extras
from meshmark.core.escaping import escape_markdown as escaped
from meshmark.core.escaping import plain
from meshmark.growth.curves import MODES, MOVING, GrowthError, Series, find_excess_growth, manual_of
from meshmark.operations import OPERATIONS

PLOTTED = {
    "wire_bytes": "bytes sent\nby a device",
    "collective_runs": "collectives\nrun",
    "memory_bytes": "memory of a\ndevice, bytes",
    "flops": "flops of\na device",
    "compile_s": "compile time,\nseconds",
}

STYLES = {
    "auto": {"color": "#0072b2", "marker": "o", "linestyle": "-", "markersize": 7.5, "fillstyle": "none"},
    "explicit": {"color": "#d55e00", "marker": "x", "linestyle": "--", "markersize": 6},
    "manual": {"color": "#009e73", "marker": ".", "linestyle": "-", "markersize": 5},
}
"""The style of each mode. If lines coincide, the markers (ring, cross and dot) all stay visible."""


# Markdown ---------------------------------------------------------------------------------------------------


def short(value: Any) -> str:
    """A number with three digits and k, M, G or T for thousands (below 10,000 without k); "-" if there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-"
    for factor, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * factor or (abs(value) >= factor and suffix != "k"):
            return f"{value / factor:.3g}{suffix}"
    return f"{value:.3g}" if isinstance(value, float) and value % 1 else f"{value:.0f}"


def spell_seconds(value: Any) -> str:
    """A time in seconds as text with three digits, such as 1.2 us or 3.4 ms; "-" if there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-"
    for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= factor:
            return f"{value / factor:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def write_markdown(
    every: Sequence[Series], lines: Iterable[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> str:
    """The whole Markdown text: findings, then one table per operation and scaling."""
    return "\n".join(_markdown(every, list(lines), runs)) + "\n"


def _markdown(
    every: Sequence[Series], lines: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    chips = list({one.chip: None for one in every})
    yield f"# Growth with the number of devices: {', '.join(map(escaped, chips))}"
    yield ""
    yield (
        "Compiled without the hardware; nothing ran. Figures are of one device: the bytes that it sends, its memory"
        " (arguments, results and temporaries), its flops. Cells are auto / explicit / manual, or one value where these"
        " agree. The projection is the least time that published peaks allow, and what sets it (see"
        " `harness/meshmark/devices/projection.py`). Beside it stands the compiler's own estimate, where it has one."
        " `meshmark growth` made this."
    )
    yield ""
    yield "## What grows faster than its theory"
    yield ""
    found: dict[str, list[str]] = {}
    for finding in find_excess_growth(every):
        found.setdefault(finding.text, []).append(finding.series.mode)
    for text, modes in found.items():
        yield f"- {escaped(text)}, in mode{'s' * (len(modes) > 1)} {', '.join(modes)}"
    if not found:
        yield "Nothing."
    yield ""
    yield "## What sends other bytes than manual mode, or manual mode other bytes than it spells"
    yield ""
    rows = list(_excess(every))
    if rows:
        header = "operation | scaling | mode | times manual | manual over spelled | on devices | compiled to"
        yield f"| {header} |"
        yield "|---|---|---|---|---|---|---|"
        yield from rows
    else:
        yield "Nothing."
    yield ""
    bad = [line for line in lines if line["verdict"] != "pass"]
    if bad:
        yield "## What did not compile"
        yield ""
        for line in bad:
            where = f"{plain(line['case'])} for {plain(line['topology'])}"
            yield f"- {escaped(where)}: {plain(line['verdict'])}, {escaped(plain(line.get('reason'))[:200])}"
        yield ""
    keys = {(o.chip, o.operation, o.variant, o.scaling): None for o in every}
    for chip, operation, variant, scaling in keys:
        of = {
            o.mode: o
            for o in every
            if (o.chip, o.operation, o.variant, o.scaling) == (chip, operation, variant, scaling)
        }
        yield f"## {escaped(operation)}, {escaped(scaling)} scaling, {escaped(chip)}"
        yield ""
        yield f"Variant {escaped(plain(variant))}, {escaped(plain(_first(of)['dtype']))}."
        yield ""
        yield from _table(of)
        yield ""
    for run in runs:
        versions = run["facts"].get("versions") or {}
        suite = run["facts"].get("suite") or {}
        yield (
            "- Made with "
            + escaped(", ".join(f"{k} {v}" for k, v in versions.items()))
            + f"; suite {escaped(plain(suite.get('commit')) or plain(suite.get('version')))}"
            + ("" if suite.get("clean") else " with changes")
            + f"; topologies {escaped(', '.join(map(plain, run.get('topologies') or ())))}."
        )
    yield ""
    yield f"Made by Meshmark {__version__}."


def _excess(every: Sequence[Series]) -> Iterator[str]:
    """One row per series whose bytes differ from those that manual mode compiles to, or whose manual mode sends other
    bytes than it spells, with both factors at the fewest and at the most of these devices. "-": without manual mode."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in every:
        manual, spelled = manual_of(one, every), dict(one.expected("wire_bytes"))
        compiled = dict(manual.seen("wire_bytes")) if manual else {}
        points = [
            (n, _over(v, compiled.get(n)), _over(compiled.get(n), spelled.get(n)))
            for n, v in one.seen("wire_bytes")
        ]
        off = [point for point in points if any(f is not None and abs(f - 1) > 0.01 for f in point[1:])]
        if not off:
            continue
        last = next(line for line in one.lines if line["devices"] == off[-1][0])
        kinds = ", ".join({plain(c["kind"]): None for c in last["collectives"]})
        factors = [_ends([point[column] for point in off]) for column in (1, 2)]
        where = "all" if len(off) == len(points) else ", ".join(f"{n:,}" for n, *_ in off)
        rows.setdefault((one.operation, one.scaling, *factors, where, kinds), []).append(one.mode)
    for (operation, scaling, *rest), modes in rows.items():
        yield "| " + " | ".join(map(escaped, (operation, scaling, ", ".join(modes), *rest))) + " |"


def _over(value: float | None, other: float | None) -> float | None:
    """The ratio of two numbers of bytes; infinite if only the second is 0. None if one is not known."""
    if value is None or other is None:
        return None
    return value / other if other else math.inf if value else 1.0


def _ends(factors: Sequence[float | None]) -> str:
    """The first and the last of some factors as text; "-" if none is known."""
    known = [f for f in factors if f is not None]
    return " to ".join({f"{f:.3g}": None for f in (known[0], known[-1])}) if known else "-"


def _first(of: Mapping[str, Series]) -> Mapping[str, Any]:
    return next(iter(of.values())).lines[0]


def _table(of: Mapping[str, Series]) -> Iterator[str]:
    header = (
        *("topology", "mesh", "size", "bytes sent", "theory", "collectives run", "memory", "theory"),
        *("flops", "theory", "compile s", "projection", "compiler's estimate"),
    )
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    modes = [m for m in MODES if m in of]
    by_devices: dict[int, dict[str, Mapping[str, Any]]] = {}
    for mode in modes:
        for line in of[mode].lines:
            by_devices.setdefault(line["devices"], {})[mode] = line
    for _, found in sorted(by_devices.items()):
        one = next(iter(found.values()))
        theory = one.get("theory") or {}

        def cell(name: str, show: Any = short, found: Mapping[str, Any] = found) -> str:
            return _together([show(found[m].get(name)) if m in found else "?" for m in modes])

        projected = [_projected(found[m].get("projection")) if m in found else "?" for m in modes]
        cells = [
            *map(escaped, (one["topology"], one["mesh"], one["size"])),
            *(cell("wire_bytes"), short(theory.get("wire_bytes")), cell("collective_runs")),
            *(cell("memory_bytes"), short(theory.get("memory_bytes"))),
            *(cell("flops"), short(theory.get("flops")), cell("compile_s")),
            *(_together(projected), cell("optimal_s", spell_seconds)),
        ]
        yield "| " + " | ".join(cells) + " |"


def _together(values: Sequence[str]) -> str:
    return values[0] if len(set(values)) == 1 else " / ".join(values)


def _projected(projection: Any) -> str:
    if not isinstance(projection, dict):
        return "-"
    return f"{spell_seconds(projection.get('seconds'))} ({plain(projection.get('limit')) or 'none'})"


# Plots ------------------------------------------------------------------------------------------------------


def pyplot() -> Any:
    """matplotlib's pyplot without a display; GrowthError if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise GrowthError(
            f"plots need matplotlib, which is not installed: {extras.command('plot')}"
        ) from None
    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "meshmark", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot as made

    return made


def draw_curves(every: Sequence[Series], title: str) -> Any:
    """A figure with one row per operation and one column per quantity. Both axes are logarithmic; theory is dotted."""
    plt = pyplot()
    names = list({(o.operation, o.variant): None for o in every})
    shape = (len(names), len(PLOTTED))
    height = 1.9 * shape[0] + 1.1
    drawn, axes = plt.subplots(*shape, figsize=(2.7 * shape[1], height), squeeze=False, sharex=True)
    for row, name in enumerate(names):
        of = [o for o in every if (o.operation, o.variant) == name]
        for column, quantity in enumerate(PLOTTED):
            ax = axes[row][column]
            _panel(ax, of, quantity)
            if column == 0:
                ax.set_ylabel(name[0], fontweight="bold")
            if row == 0:
                ax.set_title(PLOTTED[quantity], fontsize=9)
            if row == shape[0] - 1:
                ax.set_xlabel("devices")
    handles = [plt.Line2D([], [], label=mode, **style) for mode, style in STYLES.items()]
    handles.append(plt.Line2D([], [], label="theory", color="black", linestyle=":"))
    drawn.text(0.5, 1 - 0.2 / height, title, ha="center", fontsize=11)
    drawn.legend(handles=handles, loc="upper center", ncols=4, bbox_to_anchor=(0.5, 1 - 0.25 / height))
    drawn.tight_layout(rect=(0, 0, 1, 1 - 0.55 / height))
    return drawn


def _panel(ax: Any, of: Sequence[Series], quantity: str) -> None:
    values: list[float] = []
    counts: list[int] = []
    for one in of:
        points = [(n, v) for n, v in one.seen(quantity) if v > 0]
        if points:
            ax.plot(*zip(*points, strict=True), linewidth=1.2, **STYLES[one.mode])
        values += [v for _, v in points]
        counts += [line["devices"] for line in one.lines]
    manual = next((o for o in of if o.mode == "manual"), of[0])
    theory = [(n, v) for n, v in manual.expected(quantity) if v > 0] if quantity != "compile_s" else []
    if theory:
        ax.plot(*zip(*theory, strict=True), color="black", linestyle=":", linewidth=1.4, zorder=5)
        values += [v for _, v in theory]
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = sorted(set(counts))[:: max(1, (len(set(counts)) + 3) // 4)]
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    ax.minorticks_off()
    if values:
        ax.set_ylim(min(values) / 2, max(values) * 2)
        _decades(ax, min(values) / 2, max(values) * 2)
    else:
        ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", color="gray")
        ax.set_yticks([])
    ax.grid(True, color="#dddddd", linewidth=0.6)


def _decades(ax: Any, low: float, high: float) -> None:
    """Set the labelled ticks: at powers of ten, or in a small range also at 2 and 5 times these."""
    powers = [10.0**e for e in range(-12, 19) if low <= 10.0**e <= high]
    if len(powers) < 2:
        powers = [m * 10.0**e for e in range(-12, 19) for m in (1, 2, 5) if low <= m * 10.0**e <= high]
    powers = powers[:: max(1, (len(powers) + 3) // 4)]
    ax.set_yticks(powers, [short(p) for p in powers])


def svg(drawn: Any) -> str:
    """The figure as SVG, with the same bytes each time. Coordinates have two decimals."""
    file = io.StringIO()
    drawn.savefig(file, format="svg", metadata={"Date": None})
    return re.sub(r"(\d\.\d\d)\d+", r"\1", file.getvalue())


def write_growth_pages(
    every: Sequence[Series],
    lines: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    directory: Path,
) -> list[Path]:
    """Write growth-CHIP.md and growth-CHIP-SCALING-GROUP.svg into the directory, which is made if missing.

    Gives the paths. GrowthError if it fails, or if matplotlib is not installed."""
    texts: dict[str, Any] = {}
    for chip in {one.chip: None for one in every}:
        of = [one for one in every if one.chip == chip]
        texts[f"growth-{chip}.md"] = write_markdown(
            of, [line for line in lines if line["chip"] == chip], runs
        )
        for scaling in {one.scaling: None for one in of}:
            for group in ("collectives", "layers"):
                part = [
                    one
                    for one in of
                    if one.scaling == scaling
                    and (OPERATIONS[one.operation].family in MOVING) == (group == "collectives")
                ]
                if part:
                    title = f"{chip}, {scaling} scaling: {group}"
                    texts[f"growth-{chip}-{scaling}-{group}.svg"] = draw_curves(part, title)
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, made in texts.items():
            path = directory / name
            if isinstance(made, str):
                path.write_text(made, encoding="utf-8")
            else:
                path.write_text(svg(made), encoding="utf-8")
                pyplot().close(made)
            paths.append(path)
    except OSError as error:
        raise GrowthError(f"can't write to {directory}: {os.strerror(error.errno or 0)}") from None
    return paths
