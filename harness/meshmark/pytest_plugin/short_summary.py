# SPDX-License-Identifier: Apache-2.0
"""The FAILED and ERROR lines of pytest's short summary.

pytest prints the id of the test first, and cuts off the reason that does not fit. An id of this suite is as long as a
line of a terminal, so no reason would be left. Here the reason comes first, and each line fits the terminal. In CI a
line may have any length, as with pytest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from meshmark.core import saying
from meshmark.core.verdicts import BAD
from meshmark.pytest_plugin.trials import case_of
from meshmark.records.reading import Judged

KINDS = {"f": ("failed", "FAILED"), "E": ("error", "ERROR")}
"""pytest's letter for -r, its name for these reports, and the first word of a line."""

LEAST = 32
"""Columns that the reason gets at least. "numbers: 64 of 64 elements differ" needs about as many."""

CUT = "..."


def print_failures(reporter: Any, cases: Mapping[str, Judged]) -> None:
    """Print the lines that -r asks for, and leave the other kinds of lines to pytest's own summary."""
    asked = dict.fromkeys(letter for letter in reporter.reportchars if letter in KINDS)
    reporter.reportchars = "".join(letter for letter in reporter.reportchars if letter not in KINDS)
    width = None if _unlimited(reporter.config) else reporter.config.get_terminal_writer().fullwidth
    found = [
        (*KINDS[letter], report) for letter in asked for report in reporter.stats.get(KINDS[letter][0], ())
    ]
    if found:
        reporter.write_sep("=", "short test summary info", cyan=True, bold=True)
    for _, word, report in found:
        case = case_of(report.nodeid)
        name = case if case in cases else report.nodeid
        reporter.write(word, red=True)
        reporter.write_line(fit(reason_of(report, cases), name, width and width - len(word)))


def reason_of(report: Any, cases: Mapping[str, Judged]) -> str:
    """Why this report is not a pass, in one line: the worst check of its case, or the message of the exception that
    was raised around it."""
    judged = cases.get(case_of(report.nodeid))
    if judged and judged.verdict in BAD and report.when not in ("setup", "teardown"):
        worst = judged.worst_line
        verdict = "" if worst["verdict"] == "fail" else f" {worst['verdict']}:"
        return saying.printable_line(f"{worst['check']}:{verdict} {worst['reason']}")
    crash = getattr(report.longrepr, "reprcrash", None)
    return saying.printable_line(saying.first_line(crash.message if crash else report.longrepr))


def fit(reason: str, name: str, width: int | None) -> str:
    """The text ` reason - name` in `width` columns, or whole for None. The reason is cut off first, then the name."""
    if width is not None:
        room = width - len("  - ")
        reason = _cut(reason, max(room - len(name), min(LEAST, room)))
        name = _cut(name, room - len(reason))
    return f" {reason} - {name}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else (text[: max(width - len(CUT), 0)] + CUT)[:width]


def _unlimited(config: Any) -> bool:
    """Whether lines may have any length, by pytest's own rule."""
    in_ci = os.environ.get("CI") or os.environ.get("BUILD_NUMBER")
    return bool(in_ci or config.option.verbose >= 2) and not getattr(
        config.option, "force_short_summary", False
    )
