# SPDX-License-Identifier: Apache-2.0
"""Small, accepted parts of published results that the audit of fields changes, and the code that seals them again.

A part keeps the run lines, some of the cases and some of the timings, as they were published. The selection of a run
that closes its file is narrowed to the kept cases, so that the file is complete.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any
from unittest.mock import patch

from meshmark import __version__
from meshmark.levels import counters, statements
from meshmark.publish import field_checks, file_checks, origin, totals, validate
from meshmark.publish.bundles import Bundle, File
from meshmark.publish.lines import as_records
from meshmark.publish.review import Review
from meshmark.records import closing, results
from meshmark.records.writing import dumps
from tests.checkout import ROOT

Line = dict[str, Any]
Files = dict[str, list[Line]]


@dataclass(frozen=True)
class Part:
    """What is taken of a published product."""

    place: str
    """<jax release>/<product> below results/."""
    conformance: Mapping[str, tuple[str, ...]]
    """How its selection is narrowed."""
    cells: tuple[str, ...]
    """Beginnings of the timed cases that are kept."""


PARTS = (
    Part(
        "0.12.0.1/cpu-8-virtual",
        {
            "operations": (
                "fft",
                "chain",
                "cache_updates",
                "repeat",
                "top_k",
                "dense_gradient",
                "reshard_each",
            ),
            "meshes": ("2x4",),
            "dtypes": ("float32",),
            "modes": ("manual", "auto"),
            "sizes": ("4KiB", "n64"),
        },
        ("all_to_all/axes=x+y,split=1,concat=0,tiled/", "mlp/"),
    ),
    Part(
        "0.11.2/h100-1",
        {
            "operations": ("psum", "decoder", "einsum", "dense_gradient", "gathered_part"),
            "dtypes": ("float32",),
            "modes": ("manual", "auto"),
            "sizes": ("4KiB", "n64"),
        },
        ("mlp/", "dense/"),
    ),
    Part(
        "0.12.0.1/cpu-2x4-virtual",
        {
            "operations": ("pswapaxes", "dense_gradient", "attention", "broadcast_one_to_all"),
            "meshes": ("2x4",),
            "dtypes": ("float32",),
            "modes": ("manual", "auto"),
            "sizes": ("4KiB", "n64"),
        },
        ("psum/axes=x+y/", "mlp/"),
    ),
)
"""Virtual devices of one process, one GPU, and virtual devices of two processes."""


_COUNTERS = lru_cache(counters.read_counters)

MOST_PROCESSES = 2
"""Timing processes whose lines are kept."""


@dataclass
class Honest:
    """A part as it was published."""

    part: Part
    files: Files
    product: Line
    sealed: Bundle = field(init=False)

    def __post_init__(self) -> None:
        _keep(self.files)
        self.sealed = sealed(self, self.files, self.product)


@cache
def honest(place: str) -> Honest:
    """One of the parts."""
    part = next(part for part in PARTS if part.place == place)
    files: Files = {}
    for path in sorted((ROOT / "results" / place).glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        kept = _cut(lines, part)
        if kept:
            files[path.name.removesuffix(".gz")] = kept
    product = results.read_product(ROOT / "results" / place / results.PRODUCT)
    product.pop("level", None)
    return Honest(part, files, {k: v for k, v in product.items() if v not in ([], {})})


def _cut(lines: list[Line], part: Part) -> list[Line]:
    """The lines of one file that are kept."""
    run = lines[0]
    if run["selection"].get("timed"):
        timed = {r["case"] for r in lines if r["kind"] == "timing"}
        run["selection"] |= _narrow_enough(_some_cells(sorted(timed), part.cells))
        names = timed & set(field_checks.given(run))
    else:
        names = _narrowed(lines, part)
        run["selection"] |= {name: list(own) for name, own in part.conformance.items()}
    if run["selection"].get("timed"):  # no later process times anything here
        run["repeat"] = min(run.get("repeat", 1), MOST_PROCESSES)
    kept = [
        r
        for r in lines
        if r["kind"] not in ("conformance", "timing")
        or (r["case"] in names and r.get("process", 0) < MOST_PROCESSES)
    ]
    return closed(kept) if names else []


def _some_cells(cases: list[str], beginnings: tuple[str, ...]) -> set[str]:
    """The cases of the first cell of each beginning: all of its modes."""
    found: set[str] = set()
    for beginning in beginnings:
        first = next((case for case in cases if case.startswith(beginning)), None)
        if first:
            operation, variant, _, *rest = first.split("/")
            found |= {
                case
                for case in cases
                if case.split("/")[:2] == [operation, variant] and case.split("/")[3:] == rest
            }
    return found


def _narrow_enough(cases: set[str]) -> dict[str, list[str]]:
    """The selection that gives these cases, and few others."""
    parts = [case.split("/") for case in sorted(cases)]
    of = {"operations": 0, "meshes": 3, "dtypes": 4}  # profiles give each operation sizes of its own
    return {name: sorted({part[at] for part in parts}) for name, at in of.items()}


def _narrowed(lines: list[Line], part: Part) -> set[str]:
    """The cases that the narrowed selection gives, of those that are there."""
    run = lines[0]
    own = {name: list(chosen) for name, chosen in part.conformance.items()}
    chosen = field_checks.given(run | {"selection": run["selection"] | own})
    return {r["case"] for r in lines if r["kind"] == "conformance" and r["case"] in chosen}


def closed(lines: list[Line], choice: bool = True, end: bool = True) -> list[Line]:
    """The lines with what was chosen, and the closing line, made anew from them; `choice` and `end`: which of both."""
    if choice:
        judged = {r["case"] for r in lines if r.get("kind") in ("conformance", "timing") and "case" in r}
        for line in lines:
            if line.get("kind") == "chosen":
                line |= {
                    k: v for k, v in closing.make_chosen_line(judged).items() if k in ("cases", "digest")
                }
    if end and lines and lines[-1].get("kind") == "end":
        account = closing.Account()
        for line in lines[:-1]:
            account.add(line)
        made = account.end(0)
        lines[-1] |= {k: v for k, v in made.items() if k not in ("ended", "exit_code")}
    return lines


def sealed(one: Honest, files: Files, product: Line) -> Bundle:
    """The bundle of these records: environment, totals, statement and digests made by the suite's own code, so that
    they fit whatever the records say."""
    made = Bundle(*one.part.place.split("/"))
    for name, lines in files.items():
        text = "".join(map(_text, lines))
        made.files[name] = File(name, text.encode("utf-8", "surrogatepass"))
    made.files[results.PRODUCT] = File(results.PRODUCT, results.product_text(product).encode())
    read = {name: list(enumerate(lines, 1)) for name, lines in files.items()}
    statement, summed = None, {}
    try:
        environment = json.dumps(file_checks.environment_content(read)).encode()
        made.files[results.ENVIRONMENT] = File(results.ENVIRONMENT, environment)
        summed = totals.add_up(read)
        judged = [found for lines in read.values() if (found := as_records(lines)).runs]
        statement = statements.statement(judged).to_json()
    except (statements.LevelError, ValueError, KeyError, TypeError, AttributeError):
        pass  # no line of a record file, which the schema says, or no level
    manifest = {"schema": 1, "made_by": f"meshmark {__version__}", "totals": summed, "statement": statement}
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(file.data).hexdigest(), "bytes": len(file.data)}
        for name, file in made.files.items()
    }
    made.files[results.MANIFEST] = File(results.MANIFEST, json.dumps(manifest).encode())
    return made


_TEXTS: dict[int, tuple[Line, str]] = {}


def _text(line: Line) -> str:
    """The line as it is written; that of a line of the parts is kept, since few lines change."""
    kept = _TEXTS.get(id(line))
    return kept[1] if kept and kept[0] is line else dumps(line) + "\n"


def _keep(files: Files) -> None:
    for lines in files.values():
        _TEXTS.update({id(line): (line, dumps(line) + "\n") for line in lines})


class Refused(Exception):
    """The first complaint, which is enough."""


class _First(Review):
    """A review that ends with its first complaint: what follows it takes time, and says nothing more of a lie."""

    def complain(self, name: str, text: str, line: int = 0, kind: str = "") -> None:
        raise Refused(f"{name}: {text}")


Change = Callable[[Files, Line], None]
"""Changes the records, and product.yaml."""


def review(one: Honest, change: Change, kind: str, name: str = "") -> tuple[list[str], list[str]]:
    """(complaints, notes) of the part after the change, sealed again; of one file of it, where it is named. Changes put
    copies of lines into the lists that they are given."""
    files = {own: list(lines) for own, lines in one.files.items() if name in ("", own)}
    product = copy.deepcopy(one.product)
    change(files, product)
    made_false = product.pop("made", None)
    for lines in files.values():
        lines[:] = [dict(r) if r.get("kind") in ("chosen", "end") else r for r in lines]
        with suppress(KeyError, ValueError, TypeError):  # a line that no reader takes has no count
            closed(lines, choice=kind != "chosen", end=kind != "end")
    bundle = sealed(one, files, product)
    if made_false:
        _spoil(bundle, *made_false)
    # A part is judged as a new product: the main branch has whole ones under these names.
    new = patch.object(origin, "files_before", lambda place: {})
    with new, patch.object(validate, "Review", _First), patch.object(counters, "read_counters", _COUNTERS):
        try:
            return [], validate.check_product(bundle).notes
        except Refused as first:
            return [str(first)], []


def _spoil(bundle: Bundle, name: str, path: tuple[Any, ...], value: Any) -> None:
    """Another value in a file that the suite made; the manifest's digests fit it, where it is not the manifest."""
    made = json.loads(bundle.files[name].data)
    inner = made
    for part in path[:-1]:
        inner = inner[part]
    if isinstance(value, (dict, list, str, int, float)) or value is None:
        inner[path[-1]] = value
    else:
        del inner[path[-1]]
    data = json.dumps(made).encode()
    bundle.files[name] = File(name, data)
    if name != results.MANIFEST:
        manifest = json.loads(bundle.files[results.MANIFEST].data)
        manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        bundle.files[results.MANIFEST] = File(results.MANIFEST, json.dumps(manifest).encode())
