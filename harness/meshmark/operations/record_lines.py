# SPDX-License-Identifier: Apache-2.0
"""The record lines of one case: the fields that every line has, and one line per check."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from meshmark.core.privacy import redact
from meshmark.core.verdicts import BAD, Line
from meshmark.operations.base import nbytes
from meshmark.operations.cases import Case
from meshmark.records.reading import LONGEST
from meshmark.records.shared import SCHEMA

MARGIN = 1 << 10
"""Characters of a record line that the writer may add: the run, the seconds, the place."""


def case_lines(case: Case, lines: Iterable[Line], seed: int, seconds: float) -> list[dict[str, Any]]:
    """The record lines of one judged case, without `run`. The last line has `seconds`, the time of the whole case."""
    head = case_head(case, seed, "conformance")
    found = [_within_limit(head, line) for line in lines]
    found[-1]["seconds"] = round(seconds, 6)
    return found


def _within_limit(head: Mapping[str, Any], line: Line) -> dict[str, Any]:
    """One record line. If it is longer than readers accept, its data are left out, and the verdict is not a pass."""
    own = {"check": line.check, "verdict": line.verdict, "reason": redact(line.reason)}
    record = {**head, **own, **line.data}
    length = len(json.dumps(record))
    if length <= LONGEST - MARGIN:
        return record
    verdict = line.verdict if line.verdict in BAD else "error"
    reason = f"its record has {length} characters, more than {LONGEST - MARGIN}: the data are left out"
    return {**head, **own, "verdict": verdict, "reason": "; ".join(filter(None, [own["reason"], reason]))}


def case_cost(case: Case) -> dict[str, Any]:
    """The fields of a timing line for the cost of one execution."""
    cost = case.plan.cost
    return {"flops": cost.flops, "nbytes": cost.nbytes, "factor": cost.factor}


def input_bytes(case: Case) -> int:
    """The bytes of one device's inputs. 0 if the case's plan can't be made: one such case must not end a run, and its
    verdict gives the reason."""
    try:
        arguments = case.plan.arguments
    except Exception:
        return 0
    return sum(nbytes(a, case.mesh) for a in arguments)


def case_head(case: Case, seed: int, kind: str) -> dict[str, Any]:
    """The fields that every record line of a case has."""
    request = case.cell.request
    return {
        "schema": SCHEMA,
        "kind": kind,
        "case": case.id,
        "operation": case.operation.name,
        "variant": request.variant.label,
        "mode": case.mode,
        "mesh": request.mesh.label,
        "dtype": request.dtype,
        "size_bytes": input_bytes(case),
        "level": case.level,
        "seed": seed,
    }
