# SPDX-License-Identifier: Apache-2.0
"""The fields of a growth record's line that other modules read, and a check of lines."""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from meshmark.operations import OPERATIONS
from meshmark.records import checking
from meshmark.records.fields import Field
from meshmark.records.shared import Number, Verdict

Figure = Number | None


class GrowthLine(TypedDict):
    """One program compiled for one topology."""

    topology: str
    chip: str
    operation: str
    variant: str
    mode: str
    mesh: str
    dtype: str
    size: str
    case: str
    scaling: str
    verdict: Verdict
    devices: Annotated[int, Field(least=1, most=1 << 20)]
    wire_bytes: NotRequired[Figure]
    collective_runs: NotRequired[Figure]
    memory_bytes: NotRequired[Figure]
    flops: NotRequired[Figure]
    compile_s: NotRequired[Figure]
    optimal_s: NotRequired[Figure]
    theory: NotRequired[dict[str, Figure] | None]
    projection: NotRequired[dict[str, Any] | None]


_check = checking.check_of(GrowthLine)


def problem(line: Mapping[str, Any]) -> str:
    """The reason why an object is not a growth line; "" if it is one."""
    found = _check(line)
    if not found and line["operation"] not in OPERATIONS:
        return "has an unknown operation"
    return found
