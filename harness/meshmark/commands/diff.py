# SPDX-License-Identifier: Apache-2.0
"""`meshmark diff`: what changed between two record files."""

from __future__ import annotations

import argparse

from meshmark.commands.arguments import path
from meshmark.commands.reading import read_all
from meshmark.core import terminal
from meshmark.core.terminal import note, show
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
    """Print changed verdicts. Returns 1 on a new failure, and 2 if a file was not completely usable or nothing was
    compared.

    With --compiled, prints differences of compiled programs, which are not failures.
    """
    files, code = read_all([arguments.old, arguments.new])
    if len(files) < 2:
        return 2
    show(diff.processes(*files))
    show(diff.tables(*files))
    show(diff.environments(*files))
    if arguments.compiled:
        old, new = files
        found, compared = topology_tables.compare_counters(old, new)
        show(topology_tables.report(found, compared, old, new, terminal.width()))
        return code
    changed = diff.compare_verdicts(files[0].cases, files[1].cases)
    show(diff.report(changed, terminal.width()), verdicts=True)
    both = changed.same + sum(bool(change.old) for change in changed.changes)
    return code or int(bool(changed.failures)) or _of_nothing(both)


def _of_nothing(compared: int) -> int:
    """Print a line and return 2 if no case is in both files: nothing was compared, so no result is possible."""
    if compared:
        return 0
    note("no case is in both files, so nothing was compared: name two files of cases that both have judged")
    return 2
