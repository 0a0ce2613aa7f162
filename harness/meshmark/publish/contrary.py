# SPDX-License-Identifier: Apache-2.0
"""Finds cases that pass in a product and fail in every published run of the same releases, devices and architecture.

A listed failure of released software does not go away by itself. If its verdict is changed to `pass`, the digest of the
reference makes the line look right. So the published runs are asked: with the same releases on the same kind of machine
the same program gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshmark.publish.against_table import Lookup, compiles_as_today
from meshmark.publish.duplicates import Prints
from meshmark.records import run_line
from meshmark.records.run_definition import RunLine

FEW = 2
"""So many cases may pass by chance: a reviewer looks at them."""


def find_contrary(own: Prints, others: Sequence[Prints]) -> list[str]:
    """The ids of the cases that pass in a product, and fail in all published products of the same environment that
    judged the same program."""
    return sorted({case for run in own.lines.values() for case in _of_run(own, run, others)})


def describe_contrary(cases: Sequence[str], explained: bool) -> tuple[str, bool]:
    """(what to say about these cases, whether it is a complaint). explained: a note of the product is about `other`."""
    text = (
        f"{len(cases)} cases pass that fail in every published run of the same releases on the same kind of machine,"
        f" such as {cases[0]}"
    )
    if len(cases) <= FEW or explained:
        return text, False
    return f"{text}: say in a note about `other` what was changed, or submit the file as it was written", True


def _of_run(own: Prints, run: RunLine, others: Sequence[Prints]) -> Iterator[str]:
    passing = set(own.seconds) - own.not_passed
    alike = [
        (other, its)
        for other in others
        for its in other.lines.values()
        if _environment(its) == _environment(run)
    ]
    sought = passing & {case for other, _ in alike for case in other.failed}
    lookup = Lookup(run["facts"], False, {case.split("/")[0] for case in sought})
    for name in sought:
        case = lookup.get(name)
        if case is None or not compiles_as_today(case, run):
            continue
        same = [other for other, its in alike if name in other.seconds and compiles_as_today(case, its)]
        if same and all(name in other.failed for other in same):
            yield name


def _environment(run: RunLine) -> tuple[Any, ...]:
    """What decides the answers of a program: the releases, the devices and the architecture of the host."""
    facts = run["facts"]
    versions = facts["versions"]
    return (
        *(versions.get(package) for package in ("jax", "jaxlib")),
        *(facts.get(what) for what in ("backend", "device_kind", "num_devices", "layout")),
        run_line.processes(facts),
        facts["host"].get("machine"),
        run.get("seed"),
    )
