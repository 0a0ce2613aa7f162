# SPDX-License-Identifier: Apache-2.0
"""Whether a known issue explains a line that names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshmark.levels import known_issues

UNLISTED = (
    "which the suite's known_issues.toml does not list for it: list it there, name a file that does (--known-issues),"
    " or let it fail"
)


def is_listed(record: Mapping[str, Any], issues: Sequence[known_issues.Issue]) -> bool:
    """Whether one of the issues is the one that the line names, and explains its failure."""
    failure = record.get("check"), record.get("was"), record["reason"], record.get("stderr")
    return any(
        record.get("link") in (i.link, *i.earlier) and i.covers(record["case"]) and i.explains(*failure)
        for i in issues
    )
