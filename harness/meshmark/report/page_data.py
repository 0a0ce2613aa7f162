# SPDX-License-Identifier: Apache-2.0
"""The data of the page as one JSON value: runs, cases, verdicts, times, fits, programs.

Tables are stored by column, and each string once: a column of texts holds places in `strings`. So 100,000 records
become a few megabytes. The data do not describe any layout. Every string of a record passes core.escaping.plain, and
is data to the page, never markup. Figures keep five significant digits, so that other rounding in numpy does not change
the page.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from meshmark import __version__
from meshmark.core import statistics
from meshmark.core.errors import BadInput
from meshmark.core.escaping import field as field_of
from meshmark.core.escaping import link as markdown_link
from meshmark.core.escaping import plain
from meshmark.core.text import number
from meshmark.core.verdicts import VERDICTS
from meshmark.levels import must_pass as levels
from meshmark.operations.base import MODES
from meshmark.records import results, run_line
from meshmark.records.reading import Judged, Records
from meshmark.report import page_programs, sent, wrong
from meshmark.report.beside import Beside
from meshmark.report.beside import build as beside_data
from meshmark.timing import timing_tables

SCHEMA = 1

CLASSES = ("real", "virtual", "compiled")
"""The classes of a run's devices. Only runs of one class are compared in rank: virtual devices share cores, and
compiled programs did not run."""

REASONS = 1_500_000
"""The most characters of all reasons together; later reasons are cut to SHORT, to keep the page small."""
SHORT = 80
FINDINGS = 300
"""The most findings that the page lists; the matrix has every case."""
LONGEST = 400
"""The most characters of a finding's text."""

INTERPRETED = "interpreted"
SHOWN_VERDICTS = (*VERDICTS[:-1], INTERPRETED, VERDICTS[-1])
"""The verdicts as the page shows them: numbers that pass by interpretation of the compiled text, where nothing ran,
have a mark of their own, and are no pass."""

CASE_COLUMNS = ("operation", "variant", "mode", "mesh", "dtype", "size", "level")


@dataclass(frozen=True)
class Source:
    """A record file: its name as it is published, its SHA-256, its records, and the product that it belongs to
    (`product`: "" and `about`: {} if it is not in a results directory)."""

    name: str
    sha256: str
    size: int
    records: Records
    release: str = ""
    product: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def times(self) -> list[dict[str, Any]]:
        """The tidy rows of its timings, without those of comparisons, which hold two environments."""
        compared = any("environment" in t for t in self.records.timings)
        return [] if compared else timing_tables.rows(self.records)

    @cached_property
    def cells(self) -> list[dict[str, Any]]:
        """The rows of its cases, without those of controls."""
        return [row for row in self.times if row["mode"] != timing_tables.CONTROL]


class Strings:
    """A list of texts without duplicates."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}
        self._raw: dict[str, int] = {}

    def __call__(self, value: Any) -> int:
        """The place of a value of a record as harmless text."""
        if isinstance(value, str):
            found = self._raw.get(value)
            if found is None:
                found = self._raw[value] = self.place(plain(value))
            return found
        return self.place(plain(value))

    def place(self, text: str) -> int:
        """The place of a text that is already harmless."""
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
        """The place of a reason."""
        found = self._seen.get(reason)
        if found is None:
            text = plain(reason)
            if len(text) > self._left and len(text) > SHORT:
                text = text[:SHORT] + " … (in full in the record file)"
                self.cut += 1
            self._left -= len(text)
            found = self._seen[reason] = self._strings.place(text)
        return found


def build(sources: Sequence[Source], beside: Beside | None = None) -> dict[str, Any]:
    """The page's data; the runs have the order of the sources. `beside`: what is shown beside them."""
    strings = Strings()
    reasons = Budget(strings)
    keys: dict[tuple[int, ...], int] = {}
    runs: list[dict[str, Any]] = []
    bad: list[tuple[int, int, str, Source]] = []
    judged_by_run: dict[str, list[Judged]] = {}
    for source in sources:
        for place, judged in _places(source.records).items():
            runs.append(_run(source, place, judged, strings, reasons, keys))
            judged_by_run[runs[-1]["key"]] = judged
        for j in source.records.cases.values():
            if (verdict := j.verdict) not in ("pass", "not_run", "unsupported"):
                bad.append((VERDICTS.index(verdict), len(bad), j.case, source))
    _name(runs)
    columns = list(zip(*keys, strict=True)) or [()] * len(CASE_COLUMNS)
    shown = {strings.all[i] for i in columns[0]} | {
        strings.all[i] for r in runs if r["timings"] for i in r["timings"]["operation"]
    }
    return {
        "schema": SCHEMA,
        "suite": __version__,
        "verdicts": list(SHOWN_VERDICTS),
        "modes": list(MODES),
        "runs": runs,
        "cases": {name: list(column) for name, column in zip(CASE_COLUMNS, columns, strict=True)},
        "operations": page_programs.operations(shown),
        "programs": dict(page_programs.programs(shown)),
        "wrong": list(_wrong(wrong.find(judged_by_run))),
        "scripts": page_programs.scripts(
            (case, source.records) for _, _, case, source in sorted(bad, key=lambda b: b[:2])
        ),
        "cut": reasons.cut,
        "beside": beside_data(beside or Beside()),
        "strings": strings.all,
    }


# Runs -------------------------------------------------------------------------------------------------------


def _places(records: Records) -> dict[str, list[Judged]]:
    """Judged cases by topology; "" for cases that ran, or if there are none."""
    found: dict[str, list[Judged]] = {}
    for judged in records.cases.values():
        line = judged.lines[0]
        name = line.get("topology")
        layout = line.get("layout", "plain")
        place = name if isinstance(name, str) else ""
        if place and isinstance(layout, str) and layout != "plain":
            place += f" {layout}"
        found.setdefault(place, []).append(judged)
    return found or {"": []}


def _run(
    source: Source,
    place: str,
    judged: Sequence[Judged],
    strings: Strings,
    reasons: Budget,
    keys: dict[tuple[int, ...], int],
) -> dict[str, Any]:
    records = source.records
    first = records.runs[0]
    facts = first["facts"]
    compiled = place or field_of(facts, "topology")
    kind = "compiled" if compiled else "virtual" if _virtual(facts) else "real"
    timings = [t for t in records.timings if "environment" not in t]
    compared = len(records.timings) - len(timings)
    devices, over = facts.get("num_devices"), run_line.processes(facts)
    jax = plain(field_of(facts.get("versions"), "jax"))
    title = plain(field_of(source.about, "title") or field_of(source.about, "name") or source.product)
    count, of = run_line.device_count(facts), plain(facts.get("device_kind"))
    machine = (
        plain(compiled)
        if compiled
        else f"{count} {'× ' * (over == 1)}{of}{' devices' * (over > 1)}"
        + (" (virtual)" if kind == "virtual" else "")
    )
    run: dict[str, Any] = {
        "key": source.sha256[:10] + (f"-{hashlib.sha256(place.encode()).hexdigest()[:4]}" if place else ""),
        "file": plain(source.name),
        "sha256": source.sha256,
        "size": source.size,
        "release": jax,
        "product": title,
        "class": kind,
        "machine": machine,
        "kind": plain(facts.get("device_kind")),
        "devices": devices if type(devices) is int else None,
        "processes": over,
        "detected": field_of(facts.get("group"), "detected") is True,
        "facts": list(_facts(records, source)),
        "commit": plain(field_of(facts.get("suite"), "commit")),
        "clean": field_of(facts.get("suite"), "clean") is True,
        "jaxlib": plain(field_of(facts.get("versions"), "jaxlib")),
        "flags": _pairs(facts.get("flags")),
        "profile": plain(field_of(first.get("selection"), "profile")),
        "started": plain(first.get("started")),
        "runs": len(records.runs),
        "problems": len(records.problems),
        "compared": compared,
        "judged": None,
        "timings": None,
        "noise": None,
        "statement": None,
        "levels": [],
    }
    if judged:
        run["judged"] = _judged(judged, strings, reasons, keys)
        if not compiled:
            run |= _statement(records)
    if timings and not compared:
        run |= _timed(source, strings)
    return run


def _virtual(facts: Mapping[str, Any]) -> bool:
    """Whether devices are virtual: by the record; a CPU device always is."""
    return facts.get("virtual") is not False or facts.get("backend") == "cpu"


def _name(runs: Sequence[dict[str, Any]]) -> None:
    """Set labels, expiry and order: real devices first, then virtual, then compiled; the newest release first; within
    a release, runs of one process first."""
    newest = max((r["release"] for r in runs), key=_release, default="")
    for run in runs:
        run["expired"] = _expired(run["release"], newest)
        run["label"] = f"JAX {run['release']} · {run['machine']}"
    runs_by_label: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        runs_by_label.setdefault(run["label"], []).append(run)
    for same in runs_by_label.values():
        for part in ("judged", "timings"):
            several = [r for r in same if r[part]]
            for run in several if len(several) > 1 else ():
                run["label"] = f"JAX {run['release']} · {run['machine']} · {run['file'].rpartition('/')[2]}"
    runs.sort(key=lambda r: (r["processes"], r["file"]))  # type: ignore[attr-defined]
    runs.sort(key=lambda r: _release(r["release"]), reverse=True)  # type: ignore[attr-defined]
    runs.sort(key=lambda r: CLASSES.index(r["class"]))  # type: ignore[attr-defined]


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d{1,9}", text[:40], re.ASCII))


def _expired(release: str, newest: str) -> bool:
    try:
        return results.expired(release, newest)
    except BadInput:  # no release at all
        return False


def _facts(records: Records, source: Source) -> Iterator[list[str]]:
    """Provenance: every fact of the run lines, one pair per fact."""
    for name, value in source.about.items():
        if isinstance(name, str):
            yield [plain(f"product: {name}"), plain(value)]
    several = len(records.runs) > 1
    for position, run in enumerate(records.runs, 1):
        prefix = f"run {position}: " if several else ""
        for name, value in run.items():
            if name in ("schema", "kind"):
                continue
            if name == "facts" and isinstance(value, dict):
                for inner, fact in value.items():
                    if inner == "devices" and isinstance(fact, list):
                        fact = f"{len(fact)} listed in the record file"
                    yield [prefix + plain(inner), _pairs(fact) if isinstance(fact, dict) else plain(fact)]
            else:
                yield [prefix + plain(name), _pairs(value) if isinstance(value, dict) else plain(value)]


def _pairs(value: Any) -> str:
    if not isinstance(value, dict):
        return plain(value)
    return plain(", ".join(f"{k} {plain(v)}" for k, v in value.items()))


def _statement(records: Records) -> dict[str, Any]:
    """The computed statement of a run and the result of each level; the reason if there is no statement."""
    try:
        found = levels.statement(records)
    except (BadInput, ValueError) as error:
        return {"statement": f"no statement: {plain(str(error))}"}
    return {
        "statement": plain(found.text),
        "met": found.met,
        "levels": [
            {
                "level": s.must.level,
                "list": s.must.version,
                "cases": len(s.must.cases),
                "pass": s.passed,
                "known": s.known,
                "missing": len(s.missing),
                "unmet": len(s.unmet),
                "complete": s.complete,
            }
            for s in found.standings
        ],
    }


# Cases ------------------------------------------------------------------------------------------------------


def _judged(
    judged: Iterable[Judged], strings: Strings, reasons: Budget, keys: dict[tuple[int, ...], int]
) -> dict[str, list[Any]]:
    """Verdicts and communication by column; `case` is a place in the table of cases. `wire` are the bytes that a device
    sends, and `manual` those of the manual case of the same cell, both as compiled (see report.sent); `temp` is its
    temporary memory."""
    names = ("case", "verdict", "check", "reason", "link", "kinds", "wire", "manual", "used", "temp")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    add = [columns[name].append for name in names]
    manual = {one.judged.case: one.manual for one in sent.beside_manual({j.case: j for j in judged})}
    for one in judged:
        first = one.lines[0]
        verdict = one.verdict
        check, reason, link, kinds = "", "", "", ""
        wire = used = temp = math.nan
        for line in one.lines:
            if line["verdict"] == verdict and not check and verdict != "pass":
                check, reason, link = line["check"], line["reason"], link_of(line.get("link"))
            if isinstance(line.get("collectives"), list):
                kinds = format_collectives(line["collectives"])
                wire, temp = number(line.get("wire_bytes")), number(line.get("temp_bytes"))
            if "bound" in line:
                error, bound = number(line.get("error")), number(line["bound"])
                share = 0.0 if error == 0 else error / bound if bound else math.inf
                used = share if math.isnan(used) or share > used else used
        size = one.case.partition("@")[0].rpartition("/")[2]
        key = tuple(
            strings(value)
            for value in (
                *(first[name] for name in ("operation", "variant", "mode", "mesh", "dtype")),
                size,
                first["level"],
            )
        )
        row = (
            keys.setdefault(key, len(keys)),
            SHOWN_VERDICTS.index(INTERPRETED if one.interpreted else verdict),
            strings(check),
            reasons(reason),
            strings.place(link),
            strings(kinds),
            rounded(wire),
            rounded(manual.get(one.case, math.nan)),
            rounded(used, 3),
            rounded(temp),
        )
        for append, value in zip(add, row, strict=True):
            append(value)
    return columns


def link_of(value: Any) -> str:
    """A plain https address of a record; "" for anything else."""
    text = markdown_link(value)
    return text[1:-1] if text.startswith("<https://") else ""


def format_collectives(collectives: Sequence[Any]) -> str:
    """The collectives and how often each runs: "2 all-gather, 1 all-reduce"; "none"."""
    found: dict[str, float] = {}
    for one in collectives:
        kind, trips = field_of(one, "kind"), field_of(one, "trips")
        if isinstance(kind, str):
            times = 1 if trips is None else number(trips)
            found[kind] = found.get(kind, 0) + (times if math.isfinite(times) else 1)
    return ", ".join(f"{times:g} {kind}" for kind, times in sorted(found.items())) or "none"


def rounded(value: Any, digits: int = 5) -> float | int | None:
    """A figure for the page: an integer unchanged, other numbers with `digits` significant digits; None for no
    number."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.{digits}g}")


# Times ------------------------------------------------------------------------------------------------------

TIMED_TEXTS = ("operation", "variant", "mode", "mesh", "dtype", "size", "cadence")
TIMED_NUMBERS = (
    *("median_s", "low_s", "high_s", "ratio", "ratio_low", "ratio_high", "busbw", "algbw", "flops_per_s"),
    *("p10_s", "p50_s", "p90_s", "p99_s", "nbytes"),
    *("share", "dispatch_s", "compile_s", "wire_bytes", "temp_bytes", "processes", "samples", "devices"),
)


ORDERS = {"faster": -1, "not resolved": 0, "slower": 1}
"""What a ratio to manual mode says, corrected over the table; None without a ratio."""

SWEPT = ("operation", "variant", "mesh", "dtype", "mode", "cadence")
"""The common fields of the points of one sweep over sizes."""


def good(row: Mapping[str, Any]) -> bool:
    """Whether the time of a row may be published: its values were verified."""
    return row["verdict"] in ("pass", "known") and bool(row["verified"])


def _timed(source: Source, strings: Strings) -> dict[str, Any]:
    """Times by column, noise, peaks, fits and scaling of a file."""
    records, found = source.records, source.cells
    cells = timing_tables.by_cell(records.timings)
    sent = {r["case"]: r.get("communication") for r in records.timings}
    kinds = {case: format_collectives(found) for case, found in sent.items() if isinstance(found, list)}
    bytes_of = {r["case"]: cost_of(r) for r in records.timings}
    columns: dict[str, list[Any]] = {
        name: [] for name in (*TIMED_TEXTS, *TIMED_NUMBERS, "verdict", "reason", "share_of", "kinds", "order")
    }
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
        columns["share_of"].append(strings(row.get("share_of", "")))
        columns["kinds"].append(strings(kinds.get(row["case"], "")))
        columns["order"].append(ORDERS.get(row.get("order", "")) if published else None)
    peak = timing_tables.yardsticks(records).bandwidth()
    return {
        "timings": columns,
        "controls": list(_controls(source.times)),
        "noise": _noise(found),
        "peak": {"value": rounded(peak[0]), "of": plain(peak[1])} if peak else None,
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
        "fits": list(_fits(found, bytes_of)),
        "scaling": [
            {
                "name": plain(s["name"]),
                "kind": s["kind"],
                "points": [[d, rounded(t), rounded(e)] for d, t, e in s["points"]],
            }
            for s in timing_tables.scaling(cells)
        ],
    }


def _controls(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The control rows: the same program under two names, timed in the same rounds."""
    for row in rows:
        if row["mode"] == timing_tables.CONTROL and row.get("ratio") is not None and good(row):
            figures = {
                name: rounded(row.get(name)) for name in ("ratio", "ratio_low", "ratio_high", "processes")
            }
            order = {"order": ORDERS.get(row.get("order", ""))}
            yield {"case": plain(row["case"]), "cadence": plain(row["cadence"])} | figures | order


def cost_of(record: Mapping[str, Any]) -> tuple[float, float]:
    """(S, f) of a timing record: bytes and the factor of bus bandwidth; (0, 0) if it has none."""
    cost = record.get("cost")
    nbytes, factor = number(field_of(cost, "nbytes")), number(field_of(cost, "factor"))
    return (nbytes if nbytes > 0 else 0.0, factor if factor > 0 else 0.0)


def _noise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The median half width of the intervals as a share of the time, and the slowest over the fastest process."""
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


def _fits(
    rows: Sequence[Mapping[str, Any]], costs: Mapping[str, tuple[float, float]]
) -> Iterator[dict[str, Any]]:
    """t = alpha + S / beta of each sweep over message sizes: the same as meshmark.timing.timing_tables prints."""
    found: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    factors: dict[tuple[str, ...], float] = {}
    for row in rows:
        nbytes, factor = costs[row["case"]]
        if row["median_s"] is not None and factor and good(row):
            key = tuple(row[name] for name in SWEPT)
            found.setdefault(key, []).append((nbytes, row["median_s"]))
            factors[key] = factor
    for key, points in found.items():
        fit = statistics.fit_line(*zip(*sorted(points), strict=True)) if len(points) > 2 else None
        if fit is not None:
            yield {
                **dict(zip(SWEPT, map(plain, key), strict=True)),
                "points": len(points),
                "alpha": rounded(fit.alpha),
                "beta": rounded(fit.beta),
                "factor": rounded(factors[key]),
                "worst": rounded(max(map(abs, fit.residuals)), 3),
            }


# Findings ---------------------------------------------------------------------------------------------------


def _wrong(findings: Sequence[wrong.Finding]) -> Iterator[dict[str, Any]]:
    """The first FINDINGS findings: what is wrong, in which runs and how many cases, and in which runs it passes."""
    for one in findings[:FINDINGS]:
        yield {
            "kind": one.kind,
            "known": one.known,
            "text": plain(one.text)[:LONGEST],
            "link": link_of(one.link),
            "operations": [plain(name) for name in one.operations],
            "modes": [plain(name) for name in one.modes],
            "cases": len(one.every_case),
            "runs": [[run, len(cases), plain(cases[0])] for run, cases in one.cases.items()],
            "passes": list(one.passes),
        }
