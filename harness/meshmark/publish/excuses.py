# SPDX-License-Identifier: Apache-2.0
"""Whether a known issue explains a line that names it, and whether a line may be called unsupported."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from meshmark.levels import known_issues
from meshmark.operations.selection import CAPABILITY_PATTERNS
from meshmark.records.definition import ConformanceLine, TimingLine

UNLISTED = (
    "which the suite's known_issues.toml does not list for it: list it there, name a file that does (--known-issues),"
    " or let it fail"
)


def is_listed(record: ConformanceLine | TimingLine, issues: Sequence[known_issues.Issue]) -> bool:
    """Whether one of the issues is the one that the line names, and explains its failure."""
    failure = record.get("check"), record.get("was"), record["reason"], record.get("stderr")
    return any(
        record.get("link") in (i.link, *i.earlier) and i.covers(record["case"]) and i.explains(*failure)
        for i in issues
    )


MISSING = "Missing: "
"""How the reason begins if a stated precondition is not met (operations.base.Missing)."""


def not_unsupported(record: ConformanceLine | TimingLine, capabilities: Collection[str]) -> str:
    """Why a line is not unsupported, by the rule of the judge; "" if it may be. A program that runs is not, whatever
    its numbers are. The message of one that does not run names an optional capability of the case."""
    if (check := record.get("check", "execute")) != "execute":
        return f"is unsupported in its check {check}, and only a program that does not run is"
    reason = record["reason"]
    named = any(re.search(CAPABILITY_PATTERNS[name], reason, re.IGNORECASE) for name in capabilities)
    if named or MISSING in reason:
        return ""
    return f"is unsupported, and its reason names no optional capability of the case ({reason[:60]!a})"
