# SPDX-License-Identifier: Apache-2.0
"""`meshmark diff`: what changed between two record files."""

from __future__ import annotations

import argparse

from meshmark.commands.arguments import path
from meshmark.commands.reading import read_all
from meshmark.core import terminal
from meshmark.core.terminal import show
from meshmark.report import diff, topology_tables


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument("old", type=path, metavar="OLD", help="the records before")
    add.add_argument("new", type=path, metavar="NEW", help="the records after")
    add.add_argument(
        "--compiled",
        action="store_true",
        help="compare what the programs compiled to instead: collectives, bytes, flops and memory, exactly",
    )


def run(arguments: argparse.Namespace) -> int:
    """Verdicts that changed; 1 on a new failure, 2 where a file could not be used wholly.

    With --compiled what compiled otherwise, which is not a failure.
    """
    files, code = read_all([arguments.old, arguments.new])
    if len(files) < 2:
        return 2
    show(diff.processes(*files))
    show(diff.tables(*files))
    if arguments.compiled:
        old, new = files
        found, compared = topology_tables.differences(old, new)
        show(topology_tables.report(found, compared, old, new, terminal.width()))
        return code
    changed = diff.compare(files[0].cases, files[1].cases)
    show(diff.report(changed, terminal.width()), verdicts=True)
    return code or int(bool(changed.failures))
