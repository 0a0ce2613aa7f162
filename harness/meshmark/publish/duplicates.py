# SPDX-License-Identifier: Apache-2.0
"""Finds records that were published before: the same run, or its figures under other names.

Measured times do not repeat exactly. This module compares run ids, the seconds of cases, and samples: in any order,
by their shapes, and by their rank order, which scaling does not change. A new result of the same machine shares none of
these with an old one.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from meshmark.core.errors import BadInput
from meshmark.core.installation import CHECKOUT
from meshmark.publish import origin
from meshmark.publish.bundles import Bundle
from meshmark.publish.shapes import MOST_COMPARED, Shapes, are_near
from meshmark.records import reading, results, run_line
from meshmark.records.definition import AnyLine
from meshmark.records.run_definition import RunLine

FEWEST = 20
"""With at least this many common cases or samples, equality is not chance."""

DISTINCT = 10
"""With at least this many different values, two programs do not have the same samples by chance."""

ALIKE = 0.02
"""A run is a copy if at least this share of its cases has equal seconds."""

ELSEWHERE = 0.25
"""A run is a copy if at least this share of its case times occurs in another run, for any cases. Honest runs share at
most 0.04, by chance."""

RANKED = 0.85
"""Timings are a copy if the mean rank correlation of their samples reaches this. Honest runs have about zero."""

TELLING = re.compile(r'"kind": ?"(?:run|timing)"|"seconds":|"verdict": ?"(?!pass")')
"""Matches the text of each record from which `Prints.add` takes something."""

ANSWERED = ("fail", "error")
"""The verdicts of a program that ended by itself, with a wrong answer or an exception."""

Timed = tuple[str, str, int]


@dataclass
class Prints:
    """The values that identify one product's measurements."""

    place: str
    runs: set[str] = field(default_factory=set)
    lines: dict[str, RunLine] = field(default_factory=dict)
    """The run lines, by the ids of the runs."""
    not_passed: set[str] = field(default_factory=set)
    """The cases that have another verdict than pass."""
    failed: set[str] = field(default_factory=set)
    """Those of them that gave wrong answers or raised. Crashes and hangs may depend on the load of a machine."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each case took, in seconds."""
    samples: dict[Timed, list[float]] = field(default_factory=dict)
    """The samples of each case, cadence and process."""
    controls: list[Sequence[float]] = field(default_factory=list)
    """The samples of each control."""

    @cached_property
    def sampled(self) -> frozenset[frozenset[float]]:
        """The sets of samples of all programs, without order and names."""
        every = (frozenset(samples) for samples in (*self.samples.values(), *self.controls))
        return frozenset(one for one in every if len(one) >= DISTINCT)

    @cached_property
    def shapes(self) -> Shapes[str]:
        """The shapes of the samples of all programs."""
        found = Shapes[str]()
        for (case, *_), samples in self.samples.items():
            found.add(case, samples)
        for control in self.controls:
            found.add("a control", control)
        return found

    @cached_property
    def ordered(self) -> Mapping[tuple[str, str], Sequence[Sequence[float]]]:
        """The sorted samples of each process, by case and cadence."""
        found: dict[tuple[str, str], list[Sequence[float]]] = {}
        for (case, cadence, _), samples in self.samples.items():
            found.setdefault((case, cadence), []).append(sorted(samples))
        return found

    @cached_property
    def times(self) -> frozenset[float]:
        """The times of all cases, without names."""
        return frozenset(self.seconds.values())

    def add(self, record: AnyLine) -> None:
        """Add what identifies the measurements of one record."""
        if record["kind"] == "run":
            self.runs.add(record["run"])
            self.lines[record["run"]] = record
        if record["kind"] == "conformance" and record["verdict"] != "pass":
            self.not_passed.add(record["case"])
            self.failed |= {record["case"]} if record.get("was", record["verdict"]) in ANSWERED else set()
        if record["kind"] == "conformance" and "seconds" in record:
            self.seconds[record["case"]] = record["seconds"]
        elif record["kind"] == "timing" and len(record["samples_s"]) >= 10:
            self.samples[record["case"], record["cadence"], record["process"]] = record["samples_s"]
            if len(control := record.get("control_s") or ()) >= 10:
                self.controls.append(control)


def prints_of(place: str, records: Iterable[AnyLine]) -> Prints:
    """The prints of a product's records."""
    found = Prints(place)
    for record in records:
        found.add(record)
    return found


def published(directory: Path | None = None) -> list[Prints]:
    """The prints of every published product. Unreadable products are left out: another check reports them."""
    directory = directory or (CHECKOUT / "results" if CHECKOUT else None)
    return _read_prints(directory) if directory is not None and directory.is_dir() else []


@cache
def _read_prints(directory: Path) -> list[Prints]:
    try:
        products = results.find_products(directory)
    except BadInput:
        return []
    every = []
    for product in products:
        try:
            every.append(prints_of(f"{product.release}/{product.name}", _telling(product.records)))
        except (BadInput, OSError, EOFError, zlib.error):
            continue
    return every


def _telling(paths: Iterable[Path]) -> Iterator[AnyLine]:
    """The records that have prints. Only one line in four has any, and the others are not parsed."""
    for path in paths:
        with reading.opened(path) as file:
            for text in file:
                if TELLING.search(text):
                    with suppress(reading.RecordError):
                        yield cast(AnyLine, reading.parsed(text))


def find_redated(bundle: Bundle, records: Sequence[AnyLine]) -> Iterator[str]:
    """Yields what the main branch has of the same product, under another date, commit or id. A product may be replaced
    by another run, and files may be added to it. A run that stays is the same."""
    before = origin.files_before(bundle.place)
    if all(name in bundle.files and bundle.files[name].data == data for name, data in before.items()):
        return
    was = [record for name, data in before.items() for record in _kept(name, data)]
    runs = {record["run"]: record for record in was if record["kind"] == "run"}
    for run in records:
        if run["kind"] != "run" or run["run"] not in runs:
            continue
        if why := run_line.spell_difference(_dated(runs[run["run"]]), _dated(run)):
            yield f"run {run['run']} is published under this name with another {why}: submit your own run"
    fresh = [record for record in records if record["run"] not in runs]
    if fresh:
        yield from find_duplicates(
            prints_of("", fresh), [prints_of(f"{bundle.place} of the main branch", was)]
        )


def _kept(name: str, data: bytes) -> Iterator[AnyLine]:
    """The records of a published file that have prints."""
    with suppress(EOFError, zlib.error, OSError):
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode(errors="replace")
        for line in io.StringIO(text):
            if TELLING.search(line):
                with suppress(reading.RecordError):
                    yield cast(AnyLine, reading.parsed(line))


def _dated(run: RunLine) -> dict[str, Any]:
    """When, where and with what a run was made."""
    return {"started": run.get("started"), **run_line.settings(run), **run_line.environment_fields(run)}


def find_duplicates(own: Prints, others: Iterable[Prints]) -> Iterator[str]:
    """Yields which published product has the same measurements."""
    for other in others:
        if other.place == own.place:
            continue
        if same := own.runs & other.runs:
            yield f"run {min(same)} is in the published {other.place}: submit your own run"
            continue
        shared = [name for name in own.seconds if name in other.seconds]
        equal = sum(own.seconds[name] == other.seconds[name] for name in shared)
        if equal >= FEWEST and equal > ALIKE * len(shared):
            yield (
                f"{equal} of {len(shared)} cases took the same time, to the microsecond, as in the published"
                f" {other.place}: submit your own run"
            )
            continue
        same_times = len(own.times & other.times)
        if same_times >= FEWEST and same_times > ELSEWHERE * len(own.times):
            yield (
                f"{same_times} of {len(own.times)} times of cases are those of the published {other.place}, under other"
                " names: submit your own run"
            )
            continue
        if copied := sum(one in other.sampled for one in own.sampled):
            yield (
                f"{copied} timings have the samples of the published {other.place}, in another order or under another"
                " name: submit your own run"
            )
            continue
        ranked = [
            _correlation(samples, other.samples[key])
            for key, samples in own.samples.items()
            if key in other.samples and len(other.samples[key]) == len(samples)
        ]
        known = [value for value in ranked if value is not None]
        if len(known) >= 3 and float(np.mean(known)) > RANKED:
            yield (
                f"the samples of {len(known)} timings rise and fall as those of the published {other.place}: submit"
                " your own run"
            )
            continue
        moved = (other.shapes.find(samples) for samples in own.samples.values())
        if hit := next(filter(None, moved), None):
            yield (
                f"a timing has the samples of {hit[0]} of the published {other.place}, {hit[1]}: submit your own run"
            )
            continue
        near = (key for key in own.ordered if _is_near(own.ordered[key], other.ordered.get(key, ())))
        if key := next(near, None):
            yield (
                f"a timing has the samples of {key[0]} of the published {other.place}, with a little noise: submit your"
                " own run"
            )


def _is_near(own: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> bool:
    """Whether the samples of one process are those of one of these, with a little noise."""
    compared = others[:MOST_COMPARED]
    return any(are_near(one, other) for one in own[:MOST_COMPARED] for other in compared)


def _correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation of two sequences of samples; None if one does not vary."""
    ranks = [np.argsort(np.argsort(np.asarray(values))) for values in (one, other)]
    if len(set(one)) < len(one) // 2 or len(set(other)) < len(other) // 2:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
