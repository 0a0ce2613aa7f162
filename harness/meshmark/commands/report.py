# SPDX-License-Identifier: Apache-2.0
"""`meshmark report`: page, Markdown, CSV and LaTeX of record files, and whether a report is what its records give."""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import webbrowser
from pathlib import Path

from meshmark.commands.arguments import path
from meshmark.core.errors import BadInput
from meshmark.core.text import printable
from meshmark.report import report, report_check


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "records",
        nargs="+",
        type=path,
        metavar="DIR|RECORDS",
        help="what --record wrote (.jsonl or .jsonl.gz), or a directory that holds some, such as results",
    )
    add.add_argument(
        "--output",
        type=path,
        metavar="DIR",
        help="where the report is written, or where it is (with --check). With --open it may be left out: a new"
        " temporary folder",
    )
    add.add_argument(
        "--check",
        action="store_true",
        help="write nothing: check that the report in --output agrees with the records (exit code 1 if not)",
    )
    add.add_argument(
        "--bytes",
        action="store_true",
        help="with --check: the bytes must be the same, also if the report was made with other versions of libraries",
    )
    add.add_argument(
        "--long",
        action="store_true",
        help="every row of each table in Markdown (by default one page of each)",
    )
    add.add_argument("--open", action="store_true", help="open the page in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Make or check a report. Returns 1 if the report does not match the records, 2 if a record could not be used."""
    collecting = gc.isenabled()
    gc.disable()  # a hundred thousand records are millions of objects, and all are needed until the end
    try:
        return _write_report(arguments)
    finally:
        if collecting:
            gc.enable()


def _write_report(arguments: argparse.Namespace) -> int:
    if arguments.output is None and (arguments.check or not arguments.open):
        raise BadInput("where is the report? Name its folder: --output DIR")
    if arguments.bytes and not arguments.check:
        raise BadInput("--bytes says how a report is checked: name it with --check")
    found = report.find_records(arguments.records)
    for line in (*found.notes, *found.problems):
        print(f"meshmark: {printable(line[:500])}", file=sys.stderr)
    code = 2 if found.problems else 0
    texts = report.make_report(found.sources, found.beside, arguments.long)
    if arguments.output is None:  # the browser reads it after this command has ended, so it stays
        arguments.output = Path(tempfile.mkdtemp(prefix="meshmark-report-"))
    if arguments.check:
        checked = report_check.check_report(texts, arguments.output, arguments.bytes)
        print(f"compared {checked.how}")
        if checked.same:
            print(f"{arguments.output} is what {len(found.sources)} record files give")
            return code
        for line in checked.differences[: 4 * report_check.SHOWN]:
            print(printable(line))
        print(f"{arguments.output} is not what the records give: make it again without --check")
        return 1
    for file in report.write_pages(texts, arguments.output):
        print(f"wrote {file}")
    shown = arguments.output / report.PAGE
    if arguments.open and webbrowser.open(shown.absolute().as_uri()):
        return code
    print(f"open {shown} in a browser; it needs no network")
    return code
