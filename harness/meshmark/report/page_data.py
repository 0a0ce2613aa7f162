# SPDX-License-Identifier: Apache-2.0
"""The data of the page as one JSON value: runs, cases, verdicts, times, fits, programs.

Tables are stored by column, and each string once: a column of texts holds indices into `strings`. This keeps 100,000
records within a few megabytes. The data contain no layout. Every string of a record passes core.escaping.plain, and the
page treats it as data, never as markup. Figures have few digits (report.rounding).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, cast

from meshmark import __version__
from meshmark.core.errors import BadInput
from meshmark.core.escaping import field as field_of
from meshmark.core.escaping import link as markdown_link
from meshmark.core.escaping import plain
from meshmark.core.text import number
from meshmark.core.verdicts import VERDICTS
from meshmark.levels import must_pass, statements
from meshmark.levels.interpreted import InterpretedData
from meshmark.operations.base import MODES
from meshmark.records import results, run_line
from meshmark.records.reading import Judged, Records
from meshmark.records.run_definition import RunFacts
from meshmark.report import (
    page_comparisons,
    page_over_time,
    page_programs,
    page_releases,
    page_times,
    sent,
    wrong,
)
from meshmark.report.context_data import Beside
from meshmark.report.context_data import build as beside_data
from meshmark.report.page_definition import (
    CASE_COLUMNS,
    CaseColumns,
    ComparisonData,
    JudgedColumns,
    LevelData,
    PageData,
    RunData,
    WrongData,
)
from meshmark.report.page_parts import (
    INTERPRETED,
    SHOWN_VERDICTS,
    Budget,
    RecordFile,
    Strings,
    format_collectives,
)
from meshmark.report.rounding import rounded

SCHEMA = 1

CLASSES = ("real", "virtual", "compiled")
"""The classes of a run's devices. Only runs of one class are ranked together: virtual devices share cores, and compiled
programs did not run."""

FINDINGS = 300
"""The most findings that the page lists. The matrix shows every case."""
LONGEST = 400
"""The most characters of a finding's text."""

JUDGED_TEXTS = ("check", "reason", "link", "kinds")
"""The columns of judged cases that hold indices of texts."""


def build(sources: Sequence[RecordFile], beside: Beside | None = None) -> PageData:
    """The page's data; the runs are in the order of the sources. beside: files of other programs to show with them."""
    strings = Strings()
    reasons = Budget(strings)
    keys: dict[tuple[int, ...], int] = {}
    runs: list[RunData] = []
    bad: list[tuple[int, int, str, RecordFile]] = []
    compared: list[ComparisonData] = []
    judged_by_run: dict[str, list[Judged]] = {}
    times: dict[str, page_over_time.Times] = {}
    for source in sources:
        for place, judged in _places(source.records).items():
            runs.append(_run_data(source, place, judged, strings, reasons, keys))
            if page_comparisons.is_comparison(source.records):
                compared.append(page_comparisons.build(source, runs[-1]["key"]))
            judged_by_run[runs[-1]["key"]] = judged
            if runs[-1]["timings"]:
                times[runs[-1]["key"]] = page_over_time.find_times(source.records)
        for j in source.records.cases.values():
            if (verdict := j.verdict) not in ("pass", "not_run", "unsupported"):
                bad.append((VERDICTS.index(verdict), len(bad), j.case, source))
    _set_labels(runs)
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
        "cases": cast(
            CaseColumns, {name: list(column) for name, column in zip(CASE_COLUMNS, columns, strict=True)}
        ),
        "operations": page_programs.operations(shown),
        "programs": dict(page_programs.programs(shown)),
        "wrong": list(_wrong(wrong.find_faults(judged_by_run))),
        "releases": page_releases.build(
            page_releases.find_releases(run["facts"])
            for records in (*(s.records for s in sources), *(beside.weather if beside else ()))
            for run in records.runs[:1]
        ),
        "over_time": list(page_over_time.build(runs, times)),
        "scripts": page_programs.scripts(
            (case, source.records) for _, _, case, source in sorted(bad, key=lambda b: b[:2])
        ),
        "comparisons": compared,
        "cut": reasons.cut,
        "pages": [],
        "beside": beside_data(beside or Beside()),
        "strings": strings.all,
    }


# Runs -------------------------------------------------------------------------------------------------------


def _places(records: Records) -> dict[str, list[Judged]]:
    """Judged cases by topology; "" stands for cases that ran, or for no cases."""
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


def _run_data(
    source: RecordFile,
    place: str,
    judged: Sequence[Judged],
    strings: Strings,
    reasons: Budget,
    keys: dict[tuple[int, ...], int],
) -> RunData:
    records = source.records
    first = records.runs[0]
    facts = first["facts"]
    compiled = place or field_of(facts, "topology")
    kind: Literal["real", "virtual", "compiled"] = (
        "compiled" if compiled else "virtual" if _virtual(facts) else "real"
    )
    timings = [t for t in records.timings if "environment" not in t]
    compared = len(records.timings) - len(timings)
    devices, over = facts.get("num_devices"), run_line.processes(facts)
    jax = plain(field_of(facts.get("versions"), "jax"))
    title = plain(source.about.get("title", source.about["name"]) if source.about else source.product)
    count, of = run_line.device_count(facts), plain(facts.get("device_kind"))
    machine = (
        plain(compiled)
        if compiled
        else f"{count} {'× ' * (over == 1)}{of}{' devices' * (over > 1)}"
        + (" (virtual)" if kind == "virtual" else "")
    )
    run: RunData = {
        **page_times.untimed(),
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
        "compiler": _pairs(facts.get("compiler")) if compiled else "",
        "jaxlib": plain(field_of(facts.get("versions"), "jaxlib")),
        "flags": _pairs(facts.get("flags")),
        "profile": plain(field_of(first.get("selection"), "profile")),
        "started": plain(first.get("started")),
        "runs": len(records.runs),
        "problems": len(records.problems),
        "compared": compared,
        "comparison": page_comparisons.is_comparison(records),
        "label": "",
        "expired": False,
        "judged": None,
        "statement": None,
        "levels": [],
        "interpreted": [],
    }
    if judged:
        run["judged"] = _judged(judged, strings, reasons, keys)
        if compiled:
            run["statement"], run["interpreted"] = _interpreted(records)
        else:
            _state(run, records)
    if timings and not compared:
        run.update(page_times.timed(source, strings))
    return run


def _virtual(facts: RunFacts) -> bool:
    """Whether devices are virtual: as the record says, and always for CPU devices."""
    return facts.get("virtual") is not False or facts.get("backend") == "cpu"


def _set_labels(runs: list[RunData]) -> None:
    """Set labels, expiry and order: real devices first, then virtual, then compiled; within each, the newest release
    first; within a release, runs of one process first."""
    newest = max((r["release"] for r in runs), key=_release, default="")
    for run in runs:
        run["expired"] = _expired(run["release"], newest)
        run["label"] = f"JAX {run['release']} · {run['machine']}" + " · comparison" * run["comparison"]
    runs_by_label: dict[str, list[RunData]] = {}
    for run in runs:
        runs_by_label.setdefault(run["label"], []).append(run)
    for same in runs_by_label.values():
        for several in ([r for r in same if r["judged"]], [r for r in same if r["timings"]]):
            for run in several if len(several) > 1 else ():
                run["label"] = f"JAX {run['release']} · {run['machine']} · {run['file'].rpartition('/')[2]}"
    runs.sort(key=lambda r: (r["processes"], r["file"]))
    runs.sort(key=lambda r: _release(r["release"]), reverse=True)
    runs.sort(key=lambda r: CLASSES.index(r["class"]))


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d{1,9}", text[:40], re.ASCII))


def _expired(release: str, newest: str) -> bool:
    try:
        return results.is_expired(release, newest)
    except BadInput:  # it is not a release number
        return False


def _facts(records: Records, source: RecordFile) -> Iterator[tuple[str, str]]:
    """Provenance: one pair per fact of the run lines."""
    for name, value in source.about.items() if source.about else ():
        yield plain(f"product: {name}"), plain(value)
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
                    yield prefix + plain(inner), _pairs(fact) if isinstance(fact, dict) else plain(fact)
            else:
                yield prefix + plain(name), _pairs(value) if isinstance(value, dict) else plain(value)


def _pairs(value: Any) -> str:
    if not isinstance(value, dict):
        return plain(value)
    return plain(", ".join(f"{k} {plain(v)}" for k, v in value.items()))


def _stated(records: Records) -> statements.Statement:
    """The statement by the newest must-pass list whose cases the run judged completely; if there is none, by the newest
    list.

    A newer list may ask for more, but a published run keeps its statement. The statement names its list.
    """
    newest = statements.statement(records)
    if not newest.standings or all(s.complete for s in newest.standings):
        return newest
    for version in reversed(must_pass.versions()[:-1]):
        if not {s.must.level for s in newest.standings}.isdisjoint(must_pass.find_missing_levels(version)):
            continue
        older = statements.statement(records, version)
        if all(s.complete for s in older.standings):
            return older
    return newest


def _state(run: RunData, records: Records) -> None:
    """Set the computed statement of a run and the result of each level, or the reason why there is no statement."""
    try:
        found = _stated(records)
    except (BadInput, ValueError) as error:
        run["statement"] = f"no statement: {plain(str(error))}"
        return
    run["statement"], run["met"] = plain(found.text), found.met
    run["levels"] = [_level(standing) for standing in found.standings]


def _level(found: statements.Standing) -> LevelData:
    return {
        "level": found.must.level,
        "list": found.must.version,
        "cases": len(found.must.cases),
        "pass": found.passed,
        "known": found.known,
        "missing": len(found.missing),
        "unmet": len(found.unmet),
        "complete": found.complete,
    }


def _interpreted(records: Records) -> tuple[str | None, list[InterpretedData]]:
    """The statement of a compile-only run, and by level the cases that pass by interpretation. This is not a level,
    because nothing ran."""
    if not any(judged.interpreted for judged in records.cases.values()):
        return None, []
    try:
        found = statements.statement(records)
    except (BadInput, ValueError):
        return None, []
    text = "; ".join([plain(found.text), *(plain(one.describe()) for one in found.interpreted)])
    return text, [one.to_json() for one in found.interpreted]


# Cases ------------------------------------------------------------------------------------------------------


def _judged(
    judged: Iterable[Judged], strings: Strings, reasons: Budget, keys: dict[tuple[int, ...], int]
) -> JudgedColumns:
    """Verdicts and communication by column. The bytes are those of report.sent."""
    names = ("case", "verdict", "check", "reason", "link", "kinds", "wire", "manual", "owed", "used", "temp")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    add = [columns[name].append for name in names]
    by_case = {one.case: one for one in judged}
    manual = {one.judged.case: one.least for one in sent.beside_manual(by_case)}
    owed = {one.judged.case: one.least for one in sent.beside_theory(by_case)}
    for one in judged:
        first = one.lines[0]
        verdict = one.verdict
        check, reason, link, kinds = "", "", "", ""
        wire = used = temp = math.nan
        for line in one.lines:
            if line["verdict"] == verdict and not check and verdict != "pass":
                by = f" ({INTERPRETED})" if line.get("interpreted") is True else ""
                check, reason, link = line["check"] + by, line["reason"], link_of(line.get("link"))
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
            rounded(owed.get(one.case, math.nan)),
            rounded(used, 3),
            rounded(temp),
        )
        for append, value in zip(add, row, strict=True):
            append(value)
    return cast(JudgedColumns, columns)


_OWN = re.compile(r"results/findings/[\w-]+/report\.md|docs/[\w-]+\.md(#[\w-]+)?", re.ASCII)


def link_of(value: Any) -> str:
    """A plain https address of a record, or the place of a document of Meshmark's repository; "" for anything else."""
    text = markdown_link(value)
    if text.startswith("<https://"):
        return text[1:-1]
    return value if isinstance(value, str) and _OWN.fullmatch(value) else ""


# Findings ---------------------------------------------------------------------------------------------------


def _wrong(findings: Sequence[wrong.FoundFault]) -> Iterator[WrongData]:
    """The first FINDINGS findings: what is wrong, in which runs and in how many cases, and the runs where it passes."""
    for one in findings[:FINDINGS]:
        yield {
            "kind": one.kind,
            "known": one.known,
            "text": plain(one.text)[:LONGEST],
            "link": link_of(one.link),
            "operations": [plain(name) for name in one.operations],
            "modes": [plain(name) for name in one.modes],
            "cases": len(one.every_case),
            "runs": [(run, len(cases), plain(cases[0])) for run, cases in one.cases.items()],
            "passes": list(one.passes),
        }
