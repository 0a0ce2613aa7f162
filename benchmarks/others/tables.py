# SPDX-License-Identifier: Apache-2.0
"""Records of a run as figures, Markdown and a plot.

A sample is the time of the slowest rank. The figure of a round is the median of its block's
samples. The figure of the run is the median of its rounds' figures, between their quartiles. Ratios use the rounds that
both contestants have, as pairs. Bus bandwidth is S / t * f of the aggregated time. A launch is one replicate, however
many rounds it has. So a run has no confidence interval, and its quartiles say nothing about another launch.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.others import operations
from benchmarks.others.rounds import SCHEMA
from meshmark.core import statistics
from meshmark.core.errors import BadInput
from meshmark.core.statistics import Estimate

BEGIN, END = "<!-- tables: made by python -m benchmarks.others, not by hand -->", "<!-- end of tables -->"
"""The markers around the text that `--page` replaces."""

COLOURS = ("#d55e00", "#0072b2", "#009e73", "#56b4e9", "#cc79a7")
MARKERS = ("o", "s", "^", "D", "v")
"""One colour and one shape per contestant, in order. Colour-blind readers can tell the colours apart (M. Okabe and K.
Ito)."""

SPREAD = "middle half of the rounds of one launch"
"""The words in table titles that say what stands in brackets."""

_ASIDE = 0.2  # how far apart contestants are drawn, in doublings of the size

FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "run": {
        "processes": int,
        "operations": list,
        "sizes": list,
        "contestants": list,
        "machine": dict,
        "time": str,
    },
    "absent": {"contestant": str, "reason": str},
    "ready": {"contestant": str, "facts": dict},
    "refused": {"contestant": str, "operation": str, "nbytes": int, "reason": str},
    "lost": {"contestant": str, "reason": str, "when": str},
    "block": {
        "contestant": str,
        "operation": str,
        "nbytes": int,
        "round": int,
        "samples_us": list,
        "late_us": list,
    },
    "end": {"rounds": int},
}
"""The fields that a line of each kind must have for these tables."""


@dataclass(frozen=True)
class Recorded:
    """The lines of one run."""

    run: Mapping[str, Any]
    others: Sequence[Mapping[str, Any]]

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        """The lines of a kind."""
        return [line for line in self.others if line["kind"] == kind]

    @property
    def labels(self) -> dict[str, str]:
        """Name -> label of all planned contestants."""
        return {c["name"]: c["label"] for c in self.run["contestants"]}

    @property
    def end(self) -> Mapping[str, Any]:
        """The last line; {} for an interrupted run."""
        return next(iter(self.of("end")), {})


def read(path: Path) -> Recorded:
    """The records of a file, with or without gzip; BadInput names the wrong line."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise BadInput(f"can't read {path}: {getattr(error, 'strerror', None) or error}") from None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found = json.loads(line)
        except ValueError:
            raise BadInput(f"{path}:{number}: not JSON: it was cut short or is no record") from None
        if why := _amiss(found, number == 1):
            raise BadInput(f"{path}:{number}: {why}")
        lines.append(found)
    if not lines:
        raise BadInput(f"{path}: empty: name a file that --record wrote")
    recorded = Recorded(lines[0], lines[1:])
    for number, kept in enumerate(recorded.others, 2):
        if kept["kind"] != "end" and kept["contestant"] not in recorded.labels:
            raise BadInput(f"{path}:{number}: {kept['contestant']!r:.40} is no contestant of this run")
    return recorded


def _amiss(line: Any, first: bool) -> str | None:
    """What is wrong with a line; None if nothing is."""
    kind = line.get("kind") if isinstance(line, dict) else None
    if first and (kind != "run" or line.get("schema") != SCHEMA):
        return f"no run of {SCHEMA}: name a file that python -m benchmarks.others --record wrote"
    if kind not in FIELDS or (kind == "run") != first:
        return f"a line of kind {kind!r:.40}, which does not belong there"
    for name, wanted in FIELDS[kind].items():
        if not isinstance(line.get(name), wanted):
            return f"{name!r} is missing or not of its kind"
    if kind == "run":
        if not all(isinstance(c, dict) and {"name", "label"} <= c.keys() for c in line["contestants"]):
            return "a contestant without name or label"
        sound = (
            all(isinstance(n, int) and n > 0 for n in (line["processes"], *line["sizes"])) and line["sizes"]
        )
        return None if sound else "'sizes' and 'processes' must be whole numbers above 0"
    return _amiss_block(line) if kind == "block" else None


def _amiss_block(line: Mapping[str, Any]) -> str | None:
    times, late = line["samples_us"], line["late_us"]
    for ranks in (times, late):
        if not all(isinstance(samples, list) for samples in ranks):
            return "samples must be a list for each rank"
        if not all(isinstance(s, (int, float)) and 0 <= s < math.inf for samples in ranks for s in samples):
            return "a sample is no number of microseconds"
    shapes = [[len(samples) for samples in ranks] for ranks in (times, late)]
    if shapes[0] != shapes[1] or len(set(shapes[0])) != 1 or not shapes[0][0]:
        return "the ranks have unequally many samples, or none"
    return None if all(s > 0 for samples in times for s in samples) else "a time of 0"


class Figures:
    """Times of a run, by contestant, operation and size."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.processes: int = recorded.run["processes"]
        self._blocks: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
        for block in recorded.of("block"):
            key = block["contestant"], block["operation"], block["nbytes"]
            self._blocks.setdefault(key, []).append(block)
        for line in recorded.of("refused"):  # it was wrong once, so its times are not used
            self._blocks.pop((line["contestant"], line["operation"], line["nbytes"]), None)
        self._times: dict[tuple[str, str, int], Estimate | None] = {}

    def blocks(self, name: str, operation: str, nbytes: int) -> list[Mapping[str, Any]]:
        """The blocks, by round."""
        return self._blocks.get((name, operation, nbytes), [])

    def rounds(self, name: str, operation: str, nbytes: int) -> dict[int, float]:
        """Round -> median of the slowest rank's samples, in seconds."""
        return {
            block["round"]: 1e-6 * median(map(max, zip(*block["samples_us"], strict=True)))
            for block in self.blocks(name, operation, nbytes)
        }

    def time(self, name: str, operation: str, nbytes: int) -> Estimate | None:
        """Seconds, with the middle half of the rounds; None if it was not timed."""
        key = (name, operation, nbytes)
        if key not in self._times:
            found = self.rounds(*key)
            self._times[key] = statistics.middle_half(list(found.values())) if found else None
        return self._times[key]

    def bandwidth(self, name: str, operation: str, nbytes: int) -> Estimate | None:
        """Bus bandwidth in bytes/s."""
        time = self.time(name, operation, nbytes)
        if time is None:
            return None
        moved = nbytes * operations.factor(operation, self.processes)
        return Estimate(moved / time.value, moved / time.high, moved / time.low if time.low > 0 else math.inf)

    def ratio(self, name: str, other: str, operation: str, nbytes: int) -> Estimate | None:
        """Time of one contestant over time of the other, from the rounds that both have."""
        one, two = self.rounds(name, operation, nbytes), self.rounds(other, operation, nbytes)
        shared = sorted(one.keys() & two.keys())
        return statistics.middle_half([one[r] / two[r] for r in shared]) if shared else None

    def entry(self, name: str, operation: str, nbytes: int) -> tuple[float, float] | None:
        """(how late the last rank enters, the time from then until the last rank leaves), medians in seconds."""
        late, inside = [], []
        for block in self.blocks(name, operation, nbytes):
            for took, at in zip(
                zip(*block["samples_us"], strict=True), zip(*block["late_us"], strict=True), strict=True
            ):
                late.append(max(at))
                inside.append(max(t + a for t, a in zip(took, at, strict=True)) - max(at))
        return (1e-6 * median(late), 1e-6 * median(inside)) if late else None

    def through_loopback(self, name: str, operation: str, nbytes: int) -> float | None:
        """Bytes through the loopback device in one call of all ranks together, divided by S; None if unknown."""
        found = [
            block["loopback_bytes"] / block["calls"] / nbytes
            for block in self.blocks(name, operation, nbytes)
            if block.get("loopback_bytes") is not None
        ]
        return median(found) if found else None

    def idle_cores(self, name: str) -> float | None:
        """Processor time of a waiting rank, divided by its waiting time."""
        blocks = [b for b in self.recorded.of("block") if b["contestant"] == name]
        waited = sum(b.get("idle_s", 0.0) for b in blocks)
        return sum(b["idle_cpu_s"] for b in blocks) / waited if waited else None


# Markdown ---------------------------------------------------------------------------------------------------


def size(nbytes: int) -> str:
    """A size with its unit: 8 B, 32 KiB, 4 MiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def number(value: float) -> str:
    """Three digits; an exponent below 0.0001."""
    if not math.isfinite(value):
        return "?"
    if 0 < abs(value) < 1e-4:
        return f"{value:.2e}"
    digits = 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def cell(estimate: Estimate | None, scale: float = 1.0) -> str:
    """A figure with the middle half of the rounds; "-" if there is none."""
    if estimate is None:
        return "-"
    low, high = (number(v * scale) for v in (estimate.low, estimate.high))
    between = "too few rounds" if "?" in (low, high) else f"{low} to {high}"
    return f"{number(estimate.value * scale)} ({between})"


def markdown(recorded: Recorded) -> list[str]:
    """All tables, as lines."""
    return list(_markdown(recorded, Figures(recorded)))


def _markdown(recorded: Recorded, figures: Figures) -> Iterator[str]:
    run, labels = recorded.run, recorded.labels
    here = [name for name in labels if any(line["contestant"] == name for line in recorded.of("ready"))]
    yield from _about(recorded)
    yield ""
    yield "| contestant | versions | output | waiting, cores | loopback, S a call |"
    yield "|---|---|---|---|---|"
    outputs = {c["name"]: c.get("output", "") for c in run["contestants"]}
    largest = max(run["sizes"])
    for name, label in labels.items():
        ready = next((line for line in recorded.of("ready") if line["contestant"] == name), None)
        why = [
            line for kind in ("absent", "lost") for line in recorded.of(kind) if line["contestant"] == name
        ]
        if ready is None:
            reason = _escaped(why[0]["reason"] if why else "it did not start")
            yield f"| {label} | not here: {reason} | - | - | - |"
            continue
        versions = ", ".join(f"{k} {v}" for k, v in ready["facts"].items() if k not in ("python", "numpy"))
        waiting = figures.idle_cores(name)
        through = " / ".join(
            "-" if found is None else f"{found:.2f}"
            for found in (figures.through_loopback(name, op, largest) for op in run["operations"])
        )
        waits = "-" if waiting is None else f"{waiting:.4f}"
        yield f"| {label} | {_escaped(versions)} | {outputs[name]} | {waits} | {through} |"
    yield ""
    yield (
        "*waiting*: processor time of a rank while others are timed, over that time."
        f" *loopback*: bytes that the machine sent through its loopback device in a call of {size(largest)}, all ranks"
        f" together, over S, for {' / '.join(run['operations'])}."
    )
    for line in (*recorded.of("lost"), *recorded.of("refused")):
        where = line["when"] if line["kind"] == "lost" else f"{line['operation']} of {size(line['nbytes'])}"
        what = "lost" if line["kind"] == "lost" else "wrong values, not timed"
        yield ""
        yield f"**{labels[line['contestant']]}: {what}, {_escaped(where)}: {_escaped(line['reason'])}**"
    for operation in run["operations"]:
        yield from _of_operation(figures, operation, here, labels)
    yield from _entry(figures, here, labels)


def _about(recorded: Recorded) -> Iterator[str]:
    run, end = recorded.run, recorded.end
    machine = run["machine"]
    cores = machine.get("cores") or 0
    ready = recorded.of("ready")
    plain = {k: ready[0]["facts"][k] for k in ("python", "numpy") if ready and k in ready[0]["facts"]}
    if cores and run["processes"] > cores:
        yield f"**Oversubscribed: {run['processes']} processes on {cores} cores take turns; these are no latencies.**"
        yield ""
    others = end.get("others_cores")
    busy = "not known" if others is None else f"{others:.2f} cores"
    if others is not None and others > 0.1:
        yield (
            f"**A busy machine: other programs took {others:.2f} of {cores} cores meanwhile. Each contestant met that"
            " in turns, but the times are not those of a quiet machine, and least of all MPI's: it spins while it"
            " waits, and a spinning rank that loses its core keeps the other waiting.**"
        )
        yield ""
    yield (
        f"{run['processes']} processes, {cores} cores ({_escaped(str(machine.get('processor') or 'unknown'))},"
        f" {machine.get('system')} {machine.get('kernel')}), float32,"
        f" {end.get('rounds', 'an unknown number of')} rounds in random order,"
        f" {', '.join(f'{k} {v}' for k, v in plain.items())}; begun {run['time']};"
        f" other programs took {busy}; load average before {run.get('load_before')}, after {end.get('load_after')}."
    )


def _of_operation(
    figures: Figures, operation: str, here: Sequence[str], labels: Mapping[str, str]
) -> Iterator[str]:
    sizes = figures.recorded.run["sizes"]
    f = operations.factor(operation, figures.processes)
    first, *rest = here or [""]
    shown = [labels[name] for name in here]
    tables: list[tuple[str, list[str], Callable[[int], list[str]]]] = [
        (
            f"{operation}: time of a call, us ({SPREAD})",
            shown,
            lambda n: [cell(figures.time(name, operation, n), 1e6) for name in here],
        ),
        (
            f"{operation}: bus bandwidth S / t * {f:g}, GB/s ({SPREAD})",
            shown,
            lambda n: [cell(figures.bandwidth(name, operation, n), 1e-9) for name in here],
        ),
    ]
    if rest:
        tables.append(
            (
                f"{operation}: time of {labels[first]} over that of the others, by pairs ({SPREAD})",
                [f"over {labels[name]}" for name in rest],
                lambda n: [cell(figures.ratio(first, name, operation, n)) for name in rest],
            )
        )
    for title, columns, cells in tables:
        yield ""
        yield f"**{title}**"
        yield ""
        yield f"| S | {' | '.join(columns)} |"
        yield "|---" * (1 + len(columns)) + "|"
        for nbytes in sizes:
            yield f"| {size(nbytes)} | {' | '.join(cells(nbytes))} |"


def _entry(figures: Figures, here: Sequence[str], labels: Mapping[str, str]) -> Iterator[str]:
    smallest = min(figures.recorded.run["sizes"])
    yield ""
    yield f"**Alignment at {size(smallest)}: medians, us**"
    yield ""
    yield "| operation | contestant | slowest rank (as above) | last rank enters late by | last in to last out |"
    yield "|---|---|---|---|---|"
    for operation in figures.recorded.run["operations"]:
        for name in here:
            time, entry = (
                figures.time(name, operation, smallest),
                figures.entry(name, operation, smallest),
            )
            if time is not None and entry is not None:
                values = " | ".join(number(1e6 * v) for v in (time.value, *entry))
                yield f"| {operation} | {labels[name]} | {values} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def paged(text: str, lines: Sequence[str], path: Path) -> str:
    """The text of a page with the part between BEGIN and END replaced; BadInput if the page lacks these markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"{path}: no place for tables: it needs the lines {BEGIN} and {END}")
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


# Plot -------------------------------------------------------------------------------------------------------


def plot(recorded: Recorded, path: Path) -> None:
    """Plot time and bus bandwidth over size, one column per operation. The suffix of the path selects the format.
    BadInput without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise BadInput("a plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "meshmark", "font.size": 9})
    from matplotlib import pyplot

    figures, run = Figures(recorded), recorded.run
    kinds = run["operations"]
    drawn, axes = pyplot.subplots(
        2, len(kinds), figsize=(1.2 + 3.5 * len(kinds), 6.4), sharex=True, sharey="row", squeeze=False
    )
    rows: tuple[tuple[Callable[[str, str, int], Estimate | None], float, str], ...]
    rows = ((figures.time, 1e6, "time of a call, us"), (figures.bandwidth, 1e-9, "bus bandwidth, GB/s"))
    for column, operation in enumerate(kinds):
        for row, (figure, scale, title) in enumerate(rows):
            axis = axes[row][column]
            for place, (name, label) in enumerate(recorded.labels.items()):
                found = [(n, figure(name, operation, n)) for n in sorted(run["sizes"])]
                points = [(n, e) for n, e in found if e is not None]
                if points:
                    _draw(axis, points, scale, label, place)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
            if row == 0:
                axis.set_title(operation)
            else:
                axis.set_xlabel("S, bytes")
                ticks = sorted(run["sizes"])
                axis.set_xticks(ticks, [_tick(n) for n in ticks], rotation=60, ha="right", fontsize=8)
                axis.minorticks_off()
            if column == 0:
                axis.set_ylabel(title)
            if row == 0:
                axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    handles, names = axes[0][0].get_legend_handles_labels()
    drawn.legend(handles, names, loc="upper center", ncols=len(names) or 1, frameon=False)
    drawn.tight_layout(rect=(0, 0.03, 1, 0.95))
    drawn.text(0.5, 0.01, _caption(recorded), ha="center", fontsize=8, color="#555555")
    metadata = {"Date": None} if path.suffix == ".svg" else None
    drawn.savefig(path, metadata=metadata, dpi=130)
    pyplot.close(drawn)


def _draw(axis: Any, points: Sequence[tuple[int, Estimate]], scale: float, label: str, place: int) -> None:
    values = [scale * e.value for _, e in points]
    below = [scale * (e.value - e.low) if e.low > 0 else 0.0 for _, e in points]
    above = [scale * (e.high - e.value) if math.isfinite(e.high) else 0.0 for _, e in points]
    aside = 2 ** (_ASIDE * (place - 1.5))  # so that bars at one size do not overlap
    axis.errorbar(
        [n * aside for n, _ in points],
        values,
        yerr=(below, above),
        label=label,
        color=COLOURS[place % len(COLOURS)],
        marker=MARKERS[place % len(MARKERS)],
        markersize=4.5,
        linewidth=1.2,
        elinewidth=1.0,
        capsize=2.5,
    )


def _tick(nbytes: int) -> str:
    return size(nbytes).replace(" B", "").replace(" ", "").replace("iB", "i")


def _caption(recorded: Recorded) -> str:
    run, end = recorded.run, recorded.end
    cores = run["machine"].get("cores")
    others = end.get("others_cores")
    busy = "" if others is None else f", other programs took {others:.2f} cores"
    crowded = ", OVERSUBSCRIBED" if cores and run["processes"] > cores else ""
    return (
        f"{run['processes']} processes on {cores} cores of one machine{crowded}, float32, slowest rank, medians of"
        f" {end.get('rounds', '?')} rounds of one launch and their middle half{busy}"
    )
