# SPDX-License-Identifier: Apache-2.0
"""`meshmark validate`: a bundle, a product's directory or all of results/, checked as a reviewer would."""

from __future__ import annotations

import argparse
import json

from meshmark.commands.arguments import path, positive
from meshmark.commands.options import add_expectations, expectations
from meshmark.core.terminal import note, show
from meshmark.core.text import counted
from meshmark.publish import badges, bundles, challenge, origin, validate, workload
from meshmark.publish.review import Review

LONGEST = 500
"""Characters of the longest complaint that is printed."""


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "bundle", nargs="+", type=path, metavar="BUNDLE",
        help="a .tar.gz or directory that `meshmark submit` made, or a directory of many such as results/",
    )  # fmt: skip
    add.add_argument(
        "--most", type=positive, default=100, metavar="N", help="complaints that are printed (default 100)"
    )
    add.add_argument(
        "--challenge", type=path, metavar="FILE", help="what `meshmark challenge` wrote: a run must answer it"
    )
    add.add_argument(
        "--allowed-signers", type=path, metavar="FILE",
        help="who may sign (ssh-keygen(1), ALLOWED SIGNERS): a product must have a signature by one of them",
    )  # fmt: skip
    add_expectations(add)
    add_recomputation(add)
    add.add_argument("--strict", action="store_true", help="take no marked product and no old must-pass list")
    add.add_argument(
        "--badges", type=path, metavar="DIR", help="write an SVG badge of each product that meets a level"
    )
    add.add_argument("--json", action="store_true", help="the same as JSON")


def add_recomputation(add: argparse.ArgumentParser) -> None:
    """The option that limits how many answers a review computes again."""
    most = workload.MOST_WORK >> 30
    add.add_argument(
        "--recompute", type=positive, default=most, metavar="GIB",
        help=f"the most GiB of arrays to compute again (default {most}); one case may have a {workload.PART}th of it,"
        " and takes several times as much memory",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Print every complaint, then a summary; returns 1 if there is a complaint."""
    expected = expectations(arguments)
    asked = challenge.read_challenge(arguments.challenge) if arguments.challenge else None
    reports: list[Review] = []
    for bundle in (one for named in arguments.bundle for one in bundles.open_bundles(named)):
        limits, beside = (
            (arguments.allowed_signers, arguments.recompute << 30),
            [report.prints for report in reports if report.prints],
        )
        reports.append(validate.check_product(bundle, expected, asked, *limits, beside))
    for text in origin.describe_reviewer():
        note(text)
    if arguments.strict:
        for report in reports:
            told = [n for n in report.notes if n.startswith(("marked: ", validate.STALE))]
            report.complaints += [f"{report.place}: {n}" for n in told]
    bad = sum(bool(report.complaints) for report in reports)
    for file in badges.write_badges(reports, arguments.badges) if arguments.badges else ():
        note(f"wrote {file}")
    if arguments.json:
        print(json.dumps([_json(report) for report in reports], indent=2))
        return int(bool(bad))
    left = arguments.most
    for report in reports:
        for text in report.complaints[: max(0, left)]:
            show([_line(text)])
        left -= len(report.complaints)
    if left < 0:
        print(f"{-left} more complaints: --most shows them")
    for report in reports:
        for text in report.notes[:20]:
            show([_line(f"{report.place}: note: {text}")])
        if len(report.notes) > 20:
            print(f"{report.place}: note: {len(report.notes) - 20} more notes")
        show([_line(summary(report))], verdicts=True)
    if len(reports) > 1:
        print(f"{len(reports)} products, {bad} refused")
    return int(bool(bad))


def summary(report: Review) -> str:
    """The closing line of one product."""
    verdict = f"refused, {len(report.complaints)} complaints" if report.complaints else "accepted"
    totals = report.totals
    parts = [f"{report.place}: {verdict}"]
    if totals:
        told = ", ".join(f"{n} {v}" for v, n in totals["verdicts"].items())
        parts.append(f"{counted(totals['cases'], 'case')} ({told or 'none'})")
        parts.append(f"{totals['timings']} timings of {totals['samples']} samples")
    if report.statement:
        parts.append(report.statement.text)
    if report.left_out:
        parts.append(f"{counted(report.left_out, 'passing case')} not computed again")
    return "; ".join(parts)


def _json(report: Review) -> dict[str, object]:
    return {
        "product": report.place,
        "accepted": not report.complaints,
        "complaints": report.complaints,
        "notes": report.notes,
        "totals": report.totals,
        "left_out": report.left_out,
        "statement": report.statement.to_json() if report.statement else None,
    }


def _line(text: str) -> str:
    return text[:LONGEST]
