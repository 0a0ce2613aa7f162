# SPDX-License-Identifier: Apache-2.0
"""The operations, their programs and the stand-alone scripts that the page shows."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.judge import repro
from meshmark.operations import OPERATIONS, cases
from meshmark.records import run_line
from meshmark.records.reading import Records
from meshmark.report.page_definition import OperationData

SCRIPTS = 20
"""The most cases whose stand-alone script is in the page; `meshmark repro` prints any other script."""


def operations(shown: Iterable[str]) -> list[OperationData]:
    """Name, family and description of each shown operation, in the order of the table."""
    known = [name for name in OPERATIONS if name in set(shown)]
    return [
        {"name": name, "family": OPERATIONS[name].family, "about": _first_paragraph(OPERATIONS[name])}
        for name in known
    ]


def _first_paragraph(operation: Any) -> str:
    return " ".join((type(operation).__doc__ or "").strip().split("\n\n")[0].split())


def programs(shown: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The source of each operation's program, by "operation/mode". A mode that runs another mode's function is not
    repeated; `repro` lists such modes."""
    for name in sorted(set(shown) & set(OPERATIONS)):
        operation = OPERATIONS[name]
        for mode in ("auto", "explicit", "manual", "host"):
            function: Callable[..., Any] | None = getattr(operation, mode, None)
            if function is None:
                continue
            try:
                yield f"{name}/{mode}", textwrap.dedent(inspect.getsource(function)).strip()
            except (OSError, TypeError):
                continue


def scripts(bad: Iterable[tuple[str, Records]]) -> dict[str, str]:
    """The stand-alone scripts of the first SCRIPTS of these cases that are in the table, by case id. A script runs in
    one process, so cases over several processes have none."""
    found: dict[str, str] = {}
    for case, records in bad:
        if len(found) >= SCRIPTS:
            break
        facts = records.runs[0]["facts"]
        devices = facts.get("num_devices")
        if case in found or "@" in case or run_line.processes(facts) > 1:
            continue
        if type(devices) is not int or not 0 < devices <= 4096:
            continue
        seed = records.cases[case].lines[0].get("seed")
        try:
            found[case] = repro.script(cases.find(case, devices), devices, seed if type(seed) is int else 0)
        except (BadInput, ValueError):
            continue
    return found
