# SPDX-License-Identifier: Apache-2.0
"""Merges the findings of several ranks about one case: the worst verdict of each check, with its rank.

The same function decides the verdict during a run and merges the ranks' files afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshmark.core import digests, saying
from meshmark.core.privacy import redact
from meshmark.core.text import number
from meshmark.core.verdicts import CHECKS, VERDICTS, Line

Finding = Mapping[str, Any]
"""One check of one case by one rank: `check`, `verdict`, `reason` and the measured values, as in a record."""


def finding_of(line: Line) -> dict[str, Any]:
    """A check line in the form in which ranks send it to each other."""
    return {"check": line.check, "verdict": line.verdict, "reason": redact(line.reason)} | line.data


def line_of(finding: Finding) -> Line:
    """The inverse of `finding_of`."""
    data = {name: value for name, value in finding.items() if name not in ("check", "verdict", "reason")}
    return Line(finding["check"], finding["verdict"], finding["reason"], data)


def are_findings(value: Any) -> bool:
    """Whether a value from another rank has the form of a case's findings."""
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and one.get("check") in CHECKS
        and one.get("verdict") in VERDICTS
        and isinstance(one.get("reason"), str)
        for one in value
    )


def merge_findings(by_rank: Mapping[int, Sequence[Finding]]) -> list[dict[str, Any]]:
    """The merged findings of a case from those of each rank.

    All checks of all ranks are kept, in the order of the lowest rank that has them. A line is that of the lowest rank
    with the worst verdict. If ranks differ, `ranks` holds the verdict of each, and the reason names the ranks that have
    it. `error` (with its `bound`) and `seconds` are the largest of all ranks, and `bits` is a digest of all ranks'
    bits. `fixed` stays only if all ranks have it.
    """
    order: dict[str, None] = {}
    for rank in sorted(by_rank):
        order |= dict.fromkeys(line["check"] for line in by_rank[rank])
    merged = []
    for check in order:
        found = {
            rank: next((line for line in lines if line["check"] == check), None)
            for rank, lines in sorted(by_rank.items())
        }
        merged.append(_worst({rank: line for rank, line in found.items() if line is not None}, len(by_rank)))
    return merged


def _worst(found: Mapping[int, Finding], size: int) -> dict[str, Any]:
    verdicts = {rank: line["verdict"] for rank, line in found.items()}
    lowest = min(found, key=lambda rank: (VERDICTS.index(verdicts[rank]), rank))
    line = dict(found[lowest])
    reasons: dict[str, list[int]] = {}
    for rank, own in found.items():
        if own["reason"]:
            reasons.setdefault(own["reason"], []).append(rank)
    everywhere = len(reasons) == 1 and len(next(iter(reasons.values()))) == size
    if reasons and not everywhere:
        line["reason"] = saying.printable_line(
            " | ".join(f"{_ranks(ranks)}: {reason}" for reason, ranks in reasons.items())
        )
    if len(set(verdicts.values())) > 1 or len(found) < size:
        line["ranks"] = {str(rank): verdict for rank, verdict in verdicts.items()}
    if "error" in line:
        largest = max(found.values(), key=lambda own: number(own.get("error", 0.0)))
        line |= {name: largest[name] for name in ("error", "bound") if name in largest}
    if bits := [str(own["bits"]) for own in found.values() if "bits" in own]:
        line["bits"] = digests.of_ranks(bits)
    if "seconds" in line:
        line["seconds"] = max(number(own.get("seconds", 0.0)) for own in found.values())
    if "fixed" in line and not all(own.get("fixed") for own in found.values()):
        del line["fixed"]
    return line


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
