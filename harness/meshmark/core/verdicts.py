# SPDX-License-Identifier: Apache-2.0
"""Verdicts, check lines, and the verdict of a case from its lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from meshmark.core import saying

VERDICTS = ("crash", "hang", "error", "fail", "known", "unsupported", "not_run", "pass")
"""From worst to best; a case has the verdict of its worst line."""

BAD = ("crash", "hang", "error", "fail")
"""The verdicts that make a run fail."""

CHECKS = (
    *("execute", "numbers", "replicas", "sharding", "communication", "gradient"),
    *("compile", "memory", "host", "export"),  # of programs that are compiled and not run
)


@dataclass
class Line:
    """The outcome of one check of one case; `data` holds what was measured, in JSON types.

    A case may give anything. So the constructor turns the reason into a printable line, and the data into JSON types.
    """

    check: str
    verdict: str = "pass"
    reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reason = saying.printable_line(self.reason)
        self.data = saying.data_of(self.data)


def worst(verdicts: Iterable[str]) -> str:
    """The worst of these verdicts; "pass" if there are none."""
    return min(verdicts, key=VERDICTS.index, default="pass")
