# SPDX-License-Identifier: Apache-2.0
"""`meshmark tables`: Markdown and CSV tables of record files."""

from __future__ import annotations

import argparse

from meshmark.commands.arguments import path
from meshmark.commands.reading import read_all
from meshmark.core.errors import unknown
from meshmark.core.text import names
from meshmark.report import tables
from meshmark.report.tables import TablesError


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument("records", nargs="+", type=path, metavar="RECORDS", help="what --record wrote")
    add.add_argument(
        "--output", type=path, metavar="DIR", help="write files there instead of to the terminal"
    )
    add.add_argument(
        "--format",
        type=formats,
        metavar="FORMATS",
        help="md, csv or md,csv (default: md in the terminal, else both)",
    )
    add.add_argument(
        "--long",
        action="store_true",
        help="every row of each table in Markdown (by default one page of each)",
    )


def formats(text: str) -> tuple[str, ...]:
    """The formats of a comma-separated list."""
    wanted = names(text)
    for name in wanted:
        if name not in tables.FORMATS:
            raise argparse.ArgumentTypeError(unknown("format", name, tables.FORMATS))
    if not wanted:
        raise argparse.ArgumentTypeError(f"it names no format: choose from {', '.join(tables.FORMATS)}")
    return wanted


def run(arguments: argparse.Namespace) -> int:
    """Make the tables. Returns 2 if some records could not be used, after making tables of the rest."""
    wanted = arguments.format or (tables.FORMATS if arguments.output else ("md",))
    if arguments.output is None and len(wanted) > 1:
        raise TablesError("several formats go to files: add --output DIR, or name one format")
    files, code = read_all(arguments.records)
    if not files:
        return 2
    texts = tables.make_tables(files, wanted, None if arguments.long else tables.ONE_PAGE)
    if arguments.output is None:
        print(texts[wanted[0]], end="")
    else:
        for file in tables.write_tables(texts, arguments.output):
            print(f"wrote {file}")
    return code
