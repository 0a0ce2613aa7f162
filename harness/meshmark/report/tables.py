# SPDX-License-Identifier: Apache-2.0
"""Makes Markdown and CSV from records, with pandas.

Every string of a record file is escaped (meshmark.core.escaping). Files are written only after everything is computed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshmark import __version__
from meshmark.core.errors import BadInput
from meshmark.core.escaping import cell, escape_markdown, field, link, plain
from meshmark.core.text import counted, number
from meshmark.records import run_line
from meshmark.records.reading import Judged, Records
from meshmark.records.run_definition import RunLine
from meshmark.report import interpretation_tables, rounding, sent, summary, topology_tables

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("md", "csv")
NAME = "conformance"
"""The name of the written files, without the format."""

COLUMNS = (
    *("case", "operation", "variant", "mode", "mesh", "dtype", "size_bytes", "level", "seed"),
    *("verdict", "check", "reason", "link", "error", "bound", "error_over_bound", "precision"),
    *("collectives", "wire_bytes", "excess_bytes", "flops", "bytes_accessed", "temp_bytes", "seconds"),
    *("topology", "layout", "memory_bytes", "compile_s"),
    *("run", "jax", "backend", "device_kind", "num_processes"),
)
"""The columns of the table of cases."""

TEXTS = (
    *("case", "operation", "variant", "mode", "mesh", "dtype", "level", "link", "precision", "run"),
    *("topology", "layout"),
)
SIZES = ("size_bytes", "wire_bytes", "excess_bytes", "bytes_accessed", "temp_bytes", "memory_bytes")
NUMBERS = (*SIZES, "seed", "flops", "seconds", "compile_s")
"""The columns that are copied from a case's lines."""


class TablesError(BadInput, RuntimeError):
    """Tables can't be made; the message is one line that says what to do."""


# The table of cases -----------------------------------------------------------------------------------------


def pandas() -> Any:
    """The pandas module; TablesError if it, or tabulate (for Markdown), is not installed."""
    try:
        import pandas
        import tabulate  # noqa: F401
    except ImportError as error:
        missing = f"tables need {error.name}, which is not installed"
        raise TablesError(f"{missing}: pip install pandas tabulate") from None
    return pandas


def frame(files: Sequence[Records]) -> pd.DataFrame:
    """The tidy table of several record files, one row per case."""
    rows = [row(judged, records) for records in files for judged in records.cases.values()]
    return pandas().DataFrame(rows, columns=list(COLUMNS))


def row(judged: Judged, records: Records) -> dict[str, Any]:
    """One case as a row; a missing value is NaN or ""."""
    last = {key: value for line in judged.lines for key, value in line.items()}
    verdict = judged.verdict
    worst = min(judged.lines, key=lambda line: line["verdict"] != verdict)
    error, bound = _error(judged)
    run = _run_of(last, records)
    versions = field(run.get("facts"), "versions")
    return {
        **{name: plain(last.get(name)) for name in TEXTS},
        **{name: number(last.get(name)) for name in NUMBERS},
        "verdict": verdict,
        "check": "" if verdict == "pass" else worst["check"],
        "reason": plain(judged.reason),
        "error": error,
        "bound": bound,
        "error_over_bound": rounding.significant(_ratio(error, bound)),
        "collectives": plain(_collectives(last.get("collectives"))),
        "jax": plain(field(versions, "jax")),
        "backend": plain(field(run.get("facts"), "backend")),
        "device_kind": plain(field(run.get("facts"), "device_kind")),
        "num_processes": run_line.processes(run.get("facts") or {}),
    }


def _run_of(line: Mapping[str, Any], records: Records) -> RunLine:
    return next((r for r in records.runs if r["run"] == line.get("run")), records.runs[0])


def _error(judged: Judged) -> tuple[float, float]:
    """(error, bound) of the line with the worst error. NaN if no error was measured on a device; interpreted errors are
    not included."""
    measured = [line for line in judged.lines if line.get("interpreted") is not True]
    pairs = [(number(line.get("error")), number(line.get("bound"))) for line in measured]
    known = [p for p in pairs if not math.isnan(p[0])]
    return max(known, key=lambda p: (_ratio(*p), p[0]), default=(math.nan, math.nan))


def _ratio(error: float, bound: float) -> float:
    if error == 0:
        return 0.0
    return error / bound if bound else error * math.inf


def _collectives(found: Any) -> str | None:
    """all-reduce 4096 B over 1x8; all-gather 512 B over 2x4, 3 times."""
    if not isinstance(found, list):
        return None
    parts = []
    for c in found:
        trips = field(c, "trips")
        times = "" if trips == 1 else ", in a loop" if trips is None else f", {plain(trips)} times"
        kind, size, run_line = (plain(field(c, name)) for name in ("kind", "bytes", "groups"))
        parts.append(f"{kind} {size} B over {run_line}{times}")
    return "; ".join(parts)


# Markdown ---------------------------------------------------------------------------------------------------


def as_csv(table: pd.DataFrame) -> str:
    """The table of cases as CSV."""
    whole = {name: "Int64" for name in (*SIZES, "seed") if _integral(table[name])}
    table = table.astype(whole)
    texts = table.select_dtypes(exclude="number").columns
    table[texts] = table[texts].map(cell, na_action="ignore")
    return table.to_csv(index=False, lineterminator="\n")


def _integral(column: pd.Series) -> bool:
    """Whether all values are integers that a float represents exactly."""
    known = column.dropna()
    return bool(((known.abs() < 2**53) & (known % 1 == 0)).all())


ONE_PAGE = 40
"""The most rows of a Markdown table by default; the CSV files have every row."""


def as_markdown(table: pd.DataFrame, files: Sequence[Records], most: int | None = ONE_PAGE) -> str:
    """The Markdown text, one chapter per record file; tables of at most `most` rows (None: all). A file with times and
    no cases has no chapter."""
    lines = ["# Conformance of distributed JAX", ""]
    lines += topology_tables.chapter(topology_tables.find_compiled_cases(files), most)
    lines += interpretation_tables.chapter(interpretation_tables.coverage(files), most)
    start = 0
    for records in files:
        part = table.iloc[start : start + len(records.cases)]
        start += len(records.cases)
        if records.cases or not records.timings:
            lines += chapter(part, records, most)
    if timed := sum(bool(records.timings and not records.cases) for records in files):
        what = f"{counted(timed, 'record file')} with times and without cases: no chapter here."
        lines += [f"{what} `meshmark report` shows times.", ""]
    return "\n".join([*lines, f"Made by Meshmark {__version__}.", ""])


def chapter(table: pd.DataFrame, records: Records, most: int | None = ONE_PAGE) -> Iterator[str]:
    """One record file: environment, levels, operations by mode, failures, communication, errors."""
    facts = records.runs[0].get("facts")
    alone = run_line.single_rank(records.runs[0])
    yield f"## {escape_markdown(_title(facts) + (f', {alone}' if alone else ''))}"
    yield ""
    yield escape_markdown(summary.counts(records.cases)) + "."
    yield ""
    yield from (f"- {escape_markdown(line)}" for line in summary.levels(records.cases))
    yield ""
    yield from section("Operations by mode", *summary.by_mode(records.cases), most=most)
    yield "Cases that pass; where not all do, of how many, and the worst verdict."
    yield ""
    passing = "Every case passes." if records.cases else "No cases."
    yield from section("What does not pass", *failures(table), empty=passing, most=most)
    yield from section(
        "Where automatic or explicit sharding sends more than shard_map",
        *excess(sent.beside_manual(records.cases), "manual"),
        empty=_no_excess(records.cases),
        most=most,
    )
    if beyond := sent.beside_theory(records.cases):
        yield from section(
            "Where a variant without a manual case sends more than its theory",
            *excess(beyond, "theory"),
            empty=f"Nowhere: {counted(len(beyond), 'case')} compared.",
            most=most,
        )
    yield from section(
        "Largest error over its bound, by dtype", *errors(table), empty="No rounded results.", most=most
    )
    for run in records.runs:
        yield from section("Environment", ["", ""], environment(run), most=most)
    if records.problems:
        yield f"{len(records.problems)} lines of the records could not be read and are left out."
        yield ""
    if records.cut:
        yield f"{records.cut[0].upper()}{records.cut[1:]}."
        yield ""


def _no_excess(cases: Mapping[str, Judged]) -> str:
    compared = len(sent.beside_manual(cases))
    return (
        f"Nowhere: {counted(compared, 'case')} compared."
        if compared
        else "No automatic or explicit case stands beside a manual one."
    )


def section(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    empty: str = "None.",
    most: int | None = None,
) -> Iterator[str]:
    """A heading and a table of at most `most` rows (None: all). Text that is not `Markdown` is escaped."""
    yield f"### {title if isinstance(title, Markdown) else escape_markdown(title)}"
    yield ""
    if rows:
        cells = [[c if isinstance(c, Markdown) else escape_markdown(c) for c in r] for r in rows[:most]]
        table = pandas().DataFrame(cells, columns=list(map(escape_markdown, header)))
        yield table.to_markdown(index=False, disable_numparse=True, colalign=["left"] * len(header))
        yield from topology_tables.more_rows(len(rows), most)
    else:
        yield empty
    yield ""


class Markdown(str):
    """Text that is already Markdown."""


def _title(facts: Any) -> str:
    versions = field(facts, "versions")
    if field(facts, "topology"):
        every = [facts, *others] if isinstance(others := field(facts, "others"), list) else [facts]
        places = ", ".join({plain(field(f, "topology")): None for f in every})
        return f"JAX {plain(field(versions, 'jax'))} compiled for {places}"
    return (
        f"JAX {plain(field(versions, 'jax'))} on {run_line.device_count(facts)}"
        f" {plain(field(facts, 'device_kind'))} devices"
        + (" (virtual)" if field(facts, "virtual") is True else "")
    )


def failures(table: pd.DataFrame) -> tuple[list[str], list[list[Any]]]:
    """Every case that does not pass, the worst first, without compile-only cases, which did not run."""
    order = {v: i for i, v in enumerate(summary.VERDICTS)}
    compiled = (table["verdict"] == "not_run") & (table["topology"] != "")
    chosen = table[(table["verdict"] != "pass") & ~compiled].sort_values(
        "verdict", key=lambda column: column.map(order), kind="stable"
    )
    rows = [[r.verdict, r.case, r.check, r.reason, Markdown(link(r.link))] for r in chosen.itertuples()]
    return ["verdict", "case", "check", "reason", "link"], rows


def excess(found: Sequence[sent.Sent], other: str) -> tuple[list[str], list[list[Any]]]:
    """Operations and modes with cases that compile to more bytes than what they are compared with; the largest factor
    first. other: the name of what they are compared with."""
    rows: list[list[Any]] = []
    for one, count in sent.largest(found):
        times = f"{other}: none" if math.isinf(one.times) else f"{one.times:.3g}"
        compiled = next((line["collectives"] for line in one.judged.lines if "collectives" in line), None)
        rows.append(
            [
                *(one.judged["operation"], one.judged["mode"], count, times),
                *(f"{one.bytes:.0f}", f"{one.least:.0f}", one.judged.case, plain(_collectives(compiled))),
            ]
        )
    header = ["operation", "mode", "cases", f"times {other}", "bytes per device", f"{other} bytes"]
    return [*header, "largest in", "compiled to"], rows


def errors(table: pd.DataFrame) -> tuple[list[str], list[list[Any]]]:
    """For each dtype (and precision), the case with the largest ratio of error to bound."""
    chosen = table[(table["bound"] > 0) & table["error_over_bound"].notna()]
    rows: list[list[Any]] = []
    for (dtype, precision), group in chosen.groupby(["dtype", "precision"], sort=True):
        first = group.loc[group["error_over_bound"].idxmax()]
        ratio, error, bound = (f"{first[n]:.3g}" for n in ("error_over_bound", "error", "bound"))
        rows.append([dtype, precision, len(group), ratio, error, bound, first["case"]])
    return ["dtype", "precision", "cases", "error / bound", "error", "bound", "in"], rows


def environment(run: Mapping[str, Any]) -> list[list[Any]]:
    """Provenance: every fact of the run line, one row per fact."""
    rows = []
    for name, value in run.items():
        if name in ("schema", "kind"):
            continue
        if not isinstance(value, dict):
            rows.append([plain(name), plain(value)])
            continue
        for inner, fact in value.items():
            rows.append([plain(inner if name == "facts" else f"{name} {inner}"), _fact(inner, fact)])
    return rows


def _fact(name: str, fact: Any) -> str:
    if name == "devices" and isinstance(fact, list):
        return f"{len(fact)} listed in the records"
    if isinstance(fact, dict):
        return plain(", ".join(f"{k} {plain(v)}" for k, v in fact.items()))
    return plain(fact)


# Writing ----------------------------------------------------------------------------------------------------


def make_tables(
    files: Sequence[Records], formats: Sequence[str], most: int | None = ONE_PAGE
) -> dict[str, str]:
    """The text of each format, in Markdown with tables of at most `most` rows; TablesError if pandas is missing."""
    table = frame(files)
    return {f: as_markdown(table, files, most) if f == "md" else as_csv(table) for f in formats}


def write_tables(texts: Mapping[str, str], directory: Path) -> list[Path]:
    """Write each text to conformance.<format> in the directory, which is created if missing; TablesError if that
    fails."""
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for kind, text in texts.items():
            path = directory / f"{NAME}.{kind}"
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    except OSError as error:
        raise TablesError(f"can't write to {directory}: {os.strerror(error.errno or 0)}") from None
    return paths
