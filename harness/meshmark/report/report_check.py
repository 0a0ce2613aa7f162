# SPDX-License-Identifier: Apache-2.0
"""Compares a report with its records: byte by byte if the libraries are the same, otherwise all that they leave alone.

The versions of the libraries stand in the report, so whoever made it chose them. They decide only about what another
version of a library can change: the last digits of figures, the width of columns, and the scripts of Bokeh. All else is
compared in any case: every word, the page's own scripts, names, sources, hashes, and which files there are.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshmark.core.escaping import plain
from meshmark.report import page
from meshmark.report.report import MANIFEST, ReportError, ReportManifest, libraries, read_manifest

CLOSE = 1e-3
"""Two figures that other libraries may have rounded count as equal up to this relative difference."""

SHOWN = 5
"""The most differences of a file that a check names."""

KNOWN_PLOTS = {
    "3.10.2": (
        "sha256-PGQOXi3vklIZ/cyu54qs++XnQyV9k8V96hAAcZkQdao=",
        "sha256-dtv3GB/b3P0IDjQuSApO5I6170Hdry1PIx9tSDcbXPc=",
    )
}
"""The hashes of the scripts of Bokeh (page.PLOTTING) by its version. The published page's version is one of these."""

VERSION = re.compile(r"not installed|\d[\w.+!-]{0,39}", re.ASCII)
FIGURE = re.compile(r"((?<![\w.])\d+\.\d+(?:e[+-]?\d+)?(?!\.?\w))", re.ASCII)
"""A decimal figure of a text. A digit of a word and a part of a version are none."""

NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)

_SCRIPT = re.compile(r"(<script[^>]*>)(.*?)(</script>)", re.DOTALL)


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: `same`, `how` (whether bytes were compared), and the differences."""

    same: bool
    how: str
    differences: list[str]


def check_report(texts: Mapping[str, str], directory: Path, only_bytes: bool = False) -> CheckResult:
    """Compare the files in the directory with the records; ReportError if there is no report. only_bytes: also compare
    bytes if the libraries differ."""
    there = {name: _read(directory / name) for name in texts}
    text = there[MANIFEST]
    if text is None:
        raise ReportError(f"{directory} holds no report ({MANIFEST}): make one with `meshmark report`")
    made = read_manifest(text.decode("utf-8", errors="replace"))
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
    beside = _beside(texts, directory)
    differing = "; ".join(others)[:300]
    if not others or only_bytes:
        found = [_byte_difference(name, text.encode(), there[name]) for name, text in texts.items()]
        how = f"byte by byte, though the libraries differ ({differing})" if others else "byte by byte"
        return _checked(how, itertools.chain(beside, filter(None, found)))
    how = f"words, data and names, and not the bytes, because the libraries differ ({differing})"
    return _checked(how, itertools.chain(beside, _differences_beyond_libraries(texts, there, made)))


def _read(path: Path) -> bytes | None:
    """The bytes of a file; None if it can't be read, or is a link."""
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def _beside(texts: Mapping[str, str], directory: Path) -> Iterator[str]:
    """What the directory holds and the report does not have: it would be published with the report."""
    strange = sorted(name for name in os.listdir(directory) if name not in texts)
    for name in strange[:SHOWN]:
        yield f"{plain(name)[:100]} is not a file of this report: take it away"
    if len(strange) > SHOWN:
        yield f"{len(strange) - SHOWN} more are not files of this report"


def _checked(how: str, differences: Iterable[str]) -> CheckResult:
    found = list(differences)
    return CheckResult(not found, how, found)


def _byte_difference(name: str, new: bytes, old: bytes | None) -> str:
    if old is None:
        return f"{name} is missing"
    if new == old:
        return ""
    place = next(
        (i for i, (a, b) in enumerate(zip(new, old, strict=False)) if a != b), min(len(new), len(old))
    )
    return f"{name} differs from byte {place} on"


def _differences_beyond_libraries(
    texts: Mapping[str, str], there: Mapping[str, bytes | None], made: ReportManifest
) -> Iterator[str]:
    """The differences that no other version of a library explains."""
    for name, new in texts.items():
        data = there[name]
        if data is None:
            yield f"{name} is missing"
        elif name != MANIFEST and data != new.encode():
            old = data.decode("utf-8", errors="replace")
            if name.endswith(".html"):
                found = _differences_of_pages(name, new, old, made["made_with"].get("bokeh", ""))
            elif name.endswith(".csv"):
                found = _differences_of_tables(name, new, old)
            else:
                found = _differences_of_texts(name, new, old)
            yield from itertools.islice(found, SHOWN)
    yield from itertools.islice(_differences_of_manifests(texts[MANIFEST], there, made), SHOWN)


def _differences_of_manifests(
    new: str, there: Mapping[str, bytes | None], made: ReportManifest
) -> Iterator[str]:
    """The manifest may differ in the versions of the libraries, and has the hashes of the files that are there."""
    expected = json.loads(new)
    if strange := {
        name
        for name in {*libraries(), *made["made_with"]}
        if name not in libraries() or not VERSION.fullmatch(made["made_with"].get(name, ""))
    }:
        yield f"{MANIFEST} has no version of {plain(min(strange))[:60]!a} that the suite writes"
    expected["made_with"] = made["made_with"]
    expected["files"] = dict(made["files"])
    for name, data in there.items():
        if data is None or name == MANIFEST:
            continue
        expected["files"][name] = hashlib.sha256(data).hexdigest()
        if made["files"].get(name) != expected["files"][name]:
            yield f"{MANIFEST}: the hash of {name} is not that of the file"
            return
    expected["files"] = {name: sha256 for name, sha256 in expected["files"].items() if name in there}
    found = list(itertools.islice(_differences(MANIFEST, expected, dict(made)), SHOWN))
    yield from found
    if not found and there[MANIFEST] != (json.dumps(expected, indent=1, sort_keys=True) + "\n").encode():
        yield f"{MANIFEST} is not spelled as the suite writes it"


def _differences_of_pages(name: str, new: str, old: str, bokeh: str) -> Iterator[str]:
    """The differences of two pages: their data up to the last digits, the scripts of Bokeh by their hashes, and all
    else character by character."""
    try:
        yield from _differences("data", page.data_of(new), data := page.data_of(old))
        spelled = page.embed(data)
    except (page.PageError, ValueError, RecursionError) as error:
        yield f"{name}: {str(error)[:100]}"
        return
    scripts = [[match[2] for match in _SCRIPT.finditer(text)] for text in (new, old)]
    if len(scripts[0]) != len(scripts[1]):
        yield f"{name} has {len(scripts[1])} scripts, and the suite writes {len(scripts[0])}"
        return
    first, last = (
        1,
        1 + len(page.PLOTTING),
    )  # the data stand before the plots, and the page's own script behind them
    if scripts[1][0] != spelled:
        yield f"{name}: its data are not spelled as the suite writes them"
    if scripts[1][last:] != scripts[0][last:]:
        yield f"{name}: its own script is not that of the suite"
    hashes = [[page.script_hash(text) for text in both[first:last]] for both in scripts]
    if hashes[1] != hashes[0] and (*hashes[1],) != KNOWN_PLOTS.get(bokeh):
        version = bokeh if VERSION.fullmatch(bokeh) else "?"
        yield (
            f"{name}: its scripts of Bokeh are none that this suite knows, so nothing is known about what they show:"
            f" install bokeh=={version} and check again"
        )
    frames = [_frame(text, found) for text, found in zip((new, old), hashes, strict=True)]
    if frames[0] != frames[1]:
        yield from _first_difference(name, *(frame.split("\n") for frame in frames))


def _frame(text: str, hashes: Iterable[str]) -> str:
    """A page without the contents of its scripts, the hashes of Bokeh's scripts, and Bokeh's version."""
    left = _SCRIPT.sub(r"\1\3", text)
    for number, one in enumerate(hashes):
        left = left.replace(f"'{one}'", f"'plot {number}'", 1)
    return re.sub(rf"(Charts: Bokeh )(?:{VERSION.pattern})( \(BSD)", r"\1\2", left, count=1, flags=re.ASCII)


def _differences_of_texts(name: str, new: str, old: str) -> Iterator[str]:
    """The first difference of two texts in Markdown or TeX; spaces of columns and the last digits of figures may
    differ."""
    yield from _first_difference(name, new.split("\n"), old.split("\n"), _is_close_line)


def _first_difference(
    name: str, new: list[str], old: list[str], same: Any = lambda a, b: a == b
) -> Iterator[str]:
    """The first two lines that differ."""
    for number, (a, b) in enumerate(itertools.zip_longest(new, old), 1):
        if a is None or b is None or not same(a, b):
            same_start = itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(a or "", b or "", strict=False)
            )
            start = max(0, sum(1 for _ in same_start) - 30)
            given = "no such line" if a is None else f"{plain(a[start : start + 90])!a}"
            there = "missing" if b is None else f"{plain(b[start : start + 90])!a}"
            yield f"{name}: line {number} is {there}, and the records give {given}"
            return


def _is_close_line(new: str, old: str) -> bool:
    a, b = (FIGURE.split(re.sub(r"-{3,}", "---", " ".join(line.split()))) for line in (new, old))
    return len(a) == len(b) and all(
        _is_close_text(x, y) if place % 2 else x == y for place, (x, y) in enumerate(zip(a, b, strict=True))
    )


def _differences_of_tables(name: str, new: str, old: str) -> Iterator[str]:
    try:
        a, b = (list(csv.reader(io.StringIO(text, newline=""), strict=True)) for text in (new, old))
    except csv.Error as error:
        yield f"{name} is no table that the suite writes: {error}"
        return
    if not b or a[0] != b[0]:
        yield f"{name} has not the columns that the records give"
    elif len(a) != len(b):
        yield f"{name} has {len(b) - 1} rows, and the records give {len(a) - 1}"
    else:
        for row, (x, y) in enumerate(zip(a[1:], b[1:], strict=True)):
            if len(x) != len(y):
                yield f"{name} has {len(y)} cells in row {row}, and the records give {len(x)}"
            for column, one, other in zip(a[0], x, y, strict=False):
                if not _is_close_text(one, other):
                    yield _spell(f"{name}.{column}[{row}]", one, other)


def _differences(where: str, new: Any, old: Any) -> Iterator[str]:
    if isinstance(new, dict) and isinstance(old, dict):
        for key in sorted({*new, *old}):
            if key not in new or key not in old:
                yield f"{where}.{plain(key)[:60]} is only in {'the records' if key in new else 'the report'}"
            else:
                yield from _differences(f"{where}.{key}", new[key], old[key])
    elif isinstance(new, list) and isinstance(old, list):
        if len(new) != len(old):
            yield f"{where} has {len(old)} entries, and the records give {len(new)}"
        else:
            for i, (a, b) in enumerate(zip(new, old, strict=True)):
                yield from _differences(f"{where}[{i}]", a, b)
    elif not _is_close(new, old):
        yield _spell(where, new, old)


def _spell(where: str, new: Any, old: Any) -> str:
    return f"{where} is {plain(old)[:60]!a}, and the records give {plain(new)[:60]!a}"


def _is_close(new: Any, old: Any) -> bool:
    """Whether two values of the page's data are the same, or two figures that differ in their last digits. A whole
    number is a count, which no library rounds."""
    if type(new) is float and type(old) is float:
        return math.isclose(new, old, rel_tol=CLOSE)
    return bool(new == old) and isinstance(new, bool) is isinstance(old, bool)


def _is_close_text(new: str, old: str) -> bool:
    """The same of two cells: one that has only digits is a count."""
    if new == old:
        return True
    if not (NUMBER.fullmatch(new) and NUMBER.fullmatch(old)):
        return False
    a, b = float(new), float(old)
    counts = new.isdecimal() or old.isdecimal()
    return a == b if counts else math.isclose(a, b, rel_tol=CLOSE)
