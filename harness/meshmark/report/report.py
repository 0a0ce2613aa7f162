# SPDX-License-Identifier: Apache-2.0
"""Makes everything that is published from record files: page, Markdown, CSV, LaTeX, and a manifest.

All files except the raw tables are computed from the page's data (report.page_data), so they can't contradict each
other. No file contains the time when it was made: the same records, suite and libraries give the same bytes.
`report.json` lists the records, the suite and the libraries.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import math
import os
import platform
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

from meshmark import __version__
from meshmark.core import files
from meshmark.core.errors import BadInput
from meshmark.core.escaping import cell as csv_cell
from meshmark.core.escaping import plain
from meshmark.core.statistics import Estimate
from meshmark.operations.base import MODES
from meshmark.records import closing, reading, results, run_line
from meshmark.records.checking import check_of
from meshmark.records.fields import Field
from meshmark.records.product_definition import ProductData
from meshmark.records.reading import MOST_BYTES, RecordError
from meshmark.report import (
    context_data,
    latex,
    page,
    page_data,
    page_site,
    page_times,
    summary_tables,
    tables,
)
from meshmark.report.context_data import Beside
from meshmark.report.page_parts import RecordFile
from meshmark.timing.timing_tables import CONTROL, half_width, rate, ratio, share, spell_time, spread

LIBRARIES = ("bokeh", "jax", "jinja2", "numpy", "pandas", "scipy", "tabulate")
"""The libraries that affect the bytes, in addition to the suite and Python's minor version."""

PAGE, MANIFEST = "index.html", "report.json"


class ReportManifest(TypedDict):
    """report.json: what a report was made of, and the hash of each of its files."""

    suite: Annotated[str, Field("The version of Meshmark.")]
    made_with: Annotated[dict[str, str], Field("The versions of the libraries that affect the bytes.")]
    sources: Annotated[dict[str, str], Field("SHA-256 by record file.")]
    files: Annotated[dict[str, str], Field("SHA-256 by file of the report.")]


_CHECK = check_of(ReportManifest)


class ReportError(BadInput, RuntimeError):
    """A report can't be made or checked; the message is one line that says what to do."""


# Finding and reading ----------------------------------------------------------------------------------------


@dataclass
class Inputs:
    """The contents of the named record files, and one line per omitted part. `problems` are those that need a
    correction."""

    sources: list[RecordFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    beside: Beside = field(default_factory=Beside)
    """What is shown in addition to the runs: weather, growth, others."""


@dataclass(frozen=True)
class _File:
    path: Path
    name: str
    release: str = ""
    product: str = ""
    about: ProductData | None = None


def find_records(paths: Sequence[Path]) -> Inputs:
    """Read record files, and those below directories. The same content is taken once, packed or not. Files of one rank
    of several are left out. ReportError if no file is left; RecordError if a file can't be read."""
    found, seen = Inputs(), dict[str, str]()  # names by the hash of the unpacked content
    for file in itertools.chain.from_iterable(map(_files, paths)):
        sha256, size = _hash(file.path)
        content = _hash_content(file.path) or sha256
        if content in seen:
            found.notes.append(f"{file.name}: the same file as {seen[content]}; taken once")
            continue
        seen[content] = file.name
        if kind := context_data.kind_of(file.path):
            found.problems += found.beside.add(kind, file.path, file.name, sha256)
            continue
        read = reading.read_records(file.path)
        if alone := run_line.single_rank(read.runs[0]):
            found.problems.append(f"{file.name}: records of {alone} are left out: name the merged file")
            continue
        cut = [case for case, judged in read.cases.items() if not judged.finished]
        for case in cut:
            del read.cases[case]
        if cut:
            found.problems.append(
                f"{file.name}: {len(cut)} cases without their last line are left out, such as {cut[0]}"
            )
        found.problems += read.problems
        if read.cut:
            found.notes.append(f"{file.name}: {read.cut}")
        found.sources.append(
            RecordFile(file.name, sha256, size, read, file.release, file.product, file.about)
        )
    if old := [source for source in found.sources if not source.records.closes]:
        found.notes.append(
            f"{len(old)} of {len(found.sources)} record files, such as {old[0].name}: {closing.OLD}"
        )
    if not found.sources:
        named = ", ".join(str(p) for p in paths[:3])
        raise ReportError(
            f"no records in {named}: name files that --record wrote, or a directory that holds some"
        )
    return found


def _files(path: Path) -> Iterator[_File]:
    """The record files of a path, with their published names: the path below the directory, or the file name."""
    if not path.is_dir():
        yield _File(path, path.name if path.is_absolute() or ".." in path.parts else path.as_posix())
        return
    of: dict[Path, results.Product] = {}
    for product in results.find_products(path):
        of |= {p.resolve(): product for p in product.records}
    for file in sorted(
        p for p in path.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz")) and p.is_file()
    ):
        name = file.relative_to(path).as_posix()
        owner = of.get(file.resolve())
        if owner:
            yield _File(file, name, owner.release, owner.name, owner.product)
        else:
            yield _File(file, name)


def _hash(path: Path) -> tuple[str, int]:
    """(SHA-256, bytes) of a file."""
    found, size = hashlib.sha256(), 0
    try:
        for block in files.parts(path, MOST_BYTES):
            found.update(block)
            size += len(block)
    except OSError as error:
        raise RecordError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None
    return found.hexdigest(), size


def _hash_content(path: Path) -> str:
    """SHA-256 of the unpacked content of a packed file; "" for any other, and for one that can't be unpacked."""
    if path.suffix != ".gz":
        return ""
    found, size = hashlib.sha256(), 0
    try:
        with files.opened(path) as packed, gzip.GzipFile(fileobj=packed, mode="rb") as file:
            while size <= MOST_BYTES and (block := file.read(files.PART)):
                found.update(block)
                size += len(block)
    except (OSError, EOFError, zlib.error):  # who reads the records says what is wrong
        return ""
    return found.hexdigest()


# Making -----------------------------------------------------------------------------------------------------


def make_report(
    sources: Sequence[RecordFile], shown_beside: Beside | None = None, long: bool = False
) -> dict[str, str]:
    """Every file of the report by its name. shown_beside: other files to show on the page. long: whether tables in
    Markdown and LaTeX have every row. PageError or TablesError if a library is missing."""
    most = None if long else tables.ONE_PAGE
    tables.pandas()
    shown_beside = shown_beside or Beside()
    data = page_data.build(sources, shown_beside)
    every = [s.records for s in sources]
    frame = tables.frame(every)
    texts = page.pages(data) | {
        "summary.md": "\n".join(summary_tables.summary(data, most)),
        "conformance.md": tables.as_markdown(frame, every, most)
        + "\n"
        + "\n".join(summary_tables.provenance(data, most)),
        "conformance.csv": tables.as_csv(_with_files(frame, [len(f.cases) for f in every], sources)),
        "timings.md": "\n".join(timings_markdown(sources, data, most)),
        "timings.csv": timings_csv(sources),
        "tables.tex": "\n".join(latex.tables(data, most)),
    }
    manifest: ReportManifest = {
        "suite": __version__,
        "made_with": libraries(),
        "sources": {s.name: s.sha256 for s in sources} | shown_beside.files,
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    }
    texts[MANIFEST] = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    return texts


def libraries() -> dict[str, str]:
    """The versions of the libraries that affect the bytes."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def write_pages(texts: Mapping[str, str], directory: Path) -> list[Path]:
    """Write the files into the directory, which is created if missing; ReportError if that fails.

    Removes pages of an earlier report that this one does not have, because they show other records.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _pages_of(read_manifest(read_text(directory / MANIFEST))) - texts.keys():
            (directory / name).unlink(missing_ok=True)
        for name, text in texts.items():
            (directory / name).write_bytes(text.encode())
    except OSError as error:
        raise ReportError(f"can't write to {directory}: {os.strerror(error.errno or 0)}") from None
    return [directory / name for name in texts]


def read_manifest(text: str | None) -> ReportManifest | None:
    """The manifest of a report; None for any other text."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return None if _CHECK(found) else cast(ReportManifest, found)


def _pages_of(manifest: ReportManifest | None) -> set[str]:
    """The pages of single machines that a manifest lists."""
    return {name for name in manifest["files"] if page_site.is_part(name)} if manifest else set()


def read_text(path: Path) -> str | None:
    """The text of a file of a report; None if it can't be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return None


def _with_files(frame: Any, lengths: Iterable[int], sources: Sequence[RecordFile]) -> Any:
    names, hashes = [], []
    for length, source in zip(lengths, sources, strict=True):
        names += [plain(source.name)] * length
        hashes += [source.sha256] * length
    return frame.assign(file=names, sha256=hashes)


# Markdown and CSV -------------------------------------------------------------------------------------------


def timings_markdown(
    sources: Sequence[RecordFile], data: Mapping[str, Any], most: int | None = tables.ONE_PAGE
) -> Iterator[str]:
    """The modes side by side, one table of at most `most` rows (None: all) per record file."""
    yield "# Times"
    yield ""
    yield ABOUT_TIMES
    yield ""
    for source in sources:
        if source.times:
            runs = [r for r in data["runs"] if r["sha256"] == source.sha256]
            yield from tables.section(
                f"{runs[0]['label']}, {runs[0]['class']} devices ({plain(source.name)})",
                *side_by_side(source.times),
                most=most,
            )
    yield from summary_tables.provenance(data, most)


ABOUT_TIMES = (
    "Medians over processes; from six on with the half width of their 95 % interval, with fewer a single run. slower"
    " and faster are corrected over all m ratios of a cadence, which takes ceil(log2(2 m / 0.05)) processes. p10, p50,"
    " p90 and p99 are medians over processes. A rate and a share have the interval of their time; a ceiling is taken as"
    " it was measured, once. S is in bytes. A control is the same program twice, under two names."
)

TAILS = ("p10", "p50", "p90", "p99")
"""The quantiles in the table, for the mode that the rate belongs to."""


APART = {"launch_skew_s": "launch skew", "wire_s": "on the wire", "skew_s": "skew of ranks"}
"""The columns of what makes up a time, for the mode that the rate belongs to; only where some time has it: in device
cadence the time between the first and the last device's start, and the time from there on; over processes the median
of the slowest rank's time less the fastest's."""


def side_by_side(times: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """(header, rows): one row per cell and cadence."""
    cells: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for t in times:
        key = (t["operation"], t["variant"], t["mesh"], t["dtype"], t["size"], t["cadence"])
        cells.setdefault(key, {})[t["mode"]] = t
    shown = [m for m in MODES if any(m in by for by in cells.values())]
    others = [m for m in shown if m not in ("manual", "host") and "manual" in shown]
    apart = {key: name for key, name in APART.items() if any(t.get(key) for t in times)}
    rows = []
    for key, by in cells.items():
        best = by.get("manual") or next(iter(by.values()))
        row = [" ".join(key), _one({"S": best.get("nbytes")}), str(best["processes"])]
        row += [_time(by.get(m)) for m in shown]
        row += [_ratio(by.get(m)) for m in others]
        sent = {m: by[m].get("wire_bytes") for m in shown if m in by}
        row.append(", ".join(f"{m} {v:.0f}" for m, v in sent.items() if isinstance(v, (int, float)))
                   if len(set(sent.values())) > 1 else _one(sent))  # fmt: skip
        good = _published(best)
        row += [
            rate(best) + half_width(best) if good else "",
            f"{share(best)} {best['bound_by']}" if good and best.get("share") else "",
        ]
        row += [
            spell_time(best[f"{q}_s"]) + half_width(best, q) if good and best.get(f"{q}_s") else ""
            for q in TAILS
        ]
        row += [spell_time(best[key]) if good and best.get(key) else "" for key in apart]
        row.append(_ratio(by.get(CONTROL)))
        rows.append(row)
    header = ["case", "S, B", "processes", *shown, *(f"{m}/manual" for m in others)]
    header += ["bytes sent", "rate", "share of ceiling", *TAILS, *apart.values(), "control"]
    return header, rows


def _published(t: Mapping[str, Any]) -> bool:
    return page_times.good(t) and t["median_s"] is not None


def _time(t: Mapping[str, Any] | None) -> str:
    if t is None:
        return ""
    if not _published(t):
        return str(t["verdict"])
    return (
        spread(Estimate(t["median_s"], t["low_s"], t["high_s"]))
        if t["low_s"] is not None
        else spell_time(t["median_s"])
    )


def _ratio(t: Mapping[str, Any] | None) -> str:
    if t is None or t.get("ratio") is None or not _published(t):
        return ""
    low, high = t["ratio_low"], t["ratio_high"]
    ends = (0.0, math.inf) if low is None or high is None else (low, high)
    return f"{ratio(Estimate(t['ratio'], *ends))} {t['order']}"


def _one(sent: Mapping[str, Any]) -> str:
    value = next(iter(sent.values()), None)
    return f"{value:.0f}" if isinstance(value, (int, float)) else ""


def timings_csv(sources: Sequence[RecordFile]) -> str:
    """The tidy times of every file. A case that was not verified has no time."""
    clean = cache(lambda text: csv_cell(plain(text)))
    rows: list[dict[str, Any]] = []
    for source in sources:
        facts = source.records.runs[0]["facts"]
        own = {
            "file": clean(source.name),
            "sha256": source.sha256,
            "device_kind": clean(str(facts.get("device_kind"))),
            "num_processes": run_line.processes(facts),
            "virtual": facts.get("virtual") is not False,
        }
        for t in source.times:
            published = page_times.good(t)
            row = {name: v for name, v in t.items() if published or name not in TIMES}
            rows.append({name: clean(v) if isinstance(v, str) else v for name, v in row.items()} | own)
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["case"]
    text: str = tables.pandas().DataFrame(rows, columns=names).to_csv(index=False, lineterminator="\n")
    return text


TIMES = (
    *(
        "median_s",
        "low_s",
        "high_s",
        "algbw",
        "busbw",
        "flops_per_s",
        "share",
        "share_of",
        "bound_by",
        "fastest_process_s",
    ),
    *("slowest_process_s", "ratio", "ratio_low", "ratio_high", "order", "best", "interval"),
    *(
        f"{name}{end}"
        for name in ("p10", "p50", "p90", "p99", "dispatch", "launch_skew", "wire", "skew")
        for end in ("_s", "_low_s", "_high_s")
    ),
)
"""The time columns of a row: empty if the values were not verified."""
