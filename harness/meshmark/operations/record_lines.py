# SPDX-License-Identifier: Apache-2.0
"""The record lines of one case: the fields that every line has, and one line per check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshmark.core.privacy import redact
from meshmark.core.verdicts import Line
from meshmark.operations.base import nbytes
from meshmark.operations.cases import Case
from meshmark.records.definition import SCHEMA


def case_lines(case: Case, lines: Iterable[Line], seed: int, seconds: float) -> list[dict[str, Any]]:
    """The record lines of one judged case, without `run`; `seconds` is the time of the whole case."""
    head = case_head(case, seed, "conformance")
    found = [
        head | {"check": line.check, "verdict": line.verdict, "reason": redact(line.reason)} | line.data
        for line in lines
    ]
    found[-1]["seconds"] = round(seconds, 6)
    return found


def case_cost(case: Case) -> dict[str, Any]:
    """What a timing line says of the cost of one execution."""
    cost = case.plan.cost
    return {"flops": cost.flops, "nbytes": cost.nbytes, "factor": cost.factor}


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
        "size_bytes": sum(nbytes(a, request.mesh) for a in case.plan.arguments),
        "level": case.level,
        "seed": seed,
    }
