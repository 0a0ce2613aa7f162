# SPDX-License-Identifier: Apache-2.0
"""`meshmark merge`: the files of several ranks in one."""

from __future__ import annotations

import argparse

from meshmark.commands.arguments import path
from meshmark.core.text import counted
from meshmark.ranks import merge


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add.add_argument(
        "file", type=path, metavar="FILE", help="the FILE of --record; FILE.rank0 ... must be beside it"
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge the files, and print the result."""
    size = merge.sizes(arguments.file)
    lines = merge.merged(arguments.file, size)
    merge.write_merged_file(arguments.file, lines)
    cases = len({line["case"] for line in lines if "case" in line})
    print(f"{counted(cases, 'case')} of {counted(size, 'rank')} in {arguments.file}")
    return 0
