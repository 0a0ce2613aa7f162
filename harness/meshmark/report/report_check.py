# SPDX-License-Identifier: Apache-2.0
"""Compares a report with its records: byte by byte if the libraries are the same, otherwise by its data."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshmark.core.escaping import plain
from meshmark.report import page, tables
from meshmark.report.report import MANIFEST, ReportError, libraries, read_manifest, read_text

CLOSE = 1e-3
"""Two figures that other libraries may have rounded count as equal up to this relative difference."""

SHOWN = 5
"""The most differences that a check names."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: `same`, `how` (whether bytes or only data were compared), and the differences."""

    same: bool
    how: str
    differences: list[str]


def check_report(texts: Mapping[str, str], directory: Path) -> CheckResult:
    """Compare the files in the directory with the records; ReportError if there is no report."""
    there = {name: read_text(directory / name) for name in texts}
    manifest = there[MANIFEST]
    if manifest is None:
        raise ReportError(f"{directory} holds no report ({MANIFEST}): make one with `meshmark report`")
    made = read_manifest(manifest)
    if made is None:
        raise ReportError(
            f"{directory / MANIFEST} is not a manifest of `meshmark report`: make the report again"
        )
    here, with_ = libraries(), made["made_with"]
    others = [
        f"{name} {here[name]}, made with {plain(with_.get(name))}"
        for name in here
        if here[name] != with_.get(name)
    ]
    if not others:
        found = [_byte_difference(name, text, there[name]) for name, text in texts.items()]
        return _checked("byte by byte", filter(None, found))
    how = f"the data and not the bytes, because the environment differs ({'; '.join(others)[:300]})"
    return _checked(how, _data_differences(texts, there))


def _checked(how: str, differences: Iterable[str]) -> CheckResult:
    found = list(differences)
    return CheckResult(not found, how, found)


def _byte_difference(name: str, new: str, old: str | None) -> str:
    if old is None:
        return f"{name} is missing"
    if new == old:
        return ""
    place = next(
        (i for i, (a, b) in enumerate(zip(new, old, strict=False)) if a != b), min(len(new), len(old))
    )
    return f"{name} differs from byte {len(old[:place].encode())} on"


def _data_differences(texts: Mapping[str, str], there: Mapping[str, str | None]) -> Iterator[str]:
    """The differences in the data of the page and of the CSV files; Markdown and LaTeX are made from the same data."""
    for name, new in texts.items():
        old = there[name]
        if old is None:
            yield f"{name} is missing"
        elif name.endswith(".html"):
            yield from itertools.islice(_differences("data", page.data_of(new), page.data_of(old)), SHOWN)
        elif name.endswith(".csv"):
            read = tables.pandas().read_csv
            pair = (
                read(io.StringIO(t), keep_default_na=False, dtype=str).to_dict("list") for t in (new, old)
            )
            yield from itertools.islice(_differences(name, *pair), SHOWN)


def _differences(where: str, new: Any, old: Any) -> Iterator[str]:
    if isinstance(new, dict) and isinstance(old, dict):
        for key in sorted({*new, *old}):
            if key not in new or key not in old:
                yield f"{where}.{key} is only in {'the records' if key in new else 'the report'}"
            else:
                yield from _differences(f"{where}.{key}", new[key], old[key])
    elif isinstance(new, list) and isinstance(old, list):
        if len(new) != len(old):
            yield f"{where} has {len(old)} entries, and the records give {len(new)}"
        else:
            for i, (a, b) in enumerate(zip(new, old, strict=True)):
                yield from _differences(f"{where}[{i}]", a, b)
    elif not _is_close(new, old):
        yield f"{where} is {plain(old)[:60]!a}, and the records give {plain(new)[:60]!a}"


def _is_close(new: Any, old: Any) -> bool:
    if new == old:
        return True
    try:
        return math.isclose(float(new), float(old), rel_tol=CLOSE)
    except (TypeError, ValueError):
        return False
