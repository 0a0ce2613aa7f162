# SPDX-License-Identifier: Apache-2.0
"""The closed list of fields that are taken on trust, from the tables of docs/on-trust.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from tests.checkout import ROOT

PAGE = ROOT / "docs" / "on-trust.md"

OUTCOMES = ("refused", "told", "on trust", "hole")
"""What comes of a false value: a complaint, a note, nothing where the list has it, and nothing."""

_ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


@cache
def rows() -> Mapping[str, tuple[tuple[str, ...], str]]:
    """By field: the changes that pass, and why."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {field: (tuple(changes.split(", ")), why) for field, changes, why in found}


def reason(field: str, sort: str) -> str:
    """Why this change of this field is not refused; "" where the list does not have it."""
    changes, why = rows().get(field, ((), ""))
    return why if sort in changes else ""
