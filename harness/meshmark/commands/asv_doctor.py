# SPDX-License-Identifier: Apache-2.0
"""`meshmark asv-doctor`: the known pitfalls of asv in benchmark files and configurations."""

from __future__ import annotations

import argparse
from pathlib import Path

from meshmark.asv.doctor import examine, find_files
from meshmark.commands.arguments import path
from meshmark.core.text import counted, printable


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add.add_argument(
        "paths",
        nargs="*",
        type=path,
        default=[Path()],
        metavar="DIR|FILE",
        help="a directory with a configuration, benchmark files or configurations (default: here)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each pitfall; returns 1 if there is one."""
    files = list(dict.fromkeys(file for where in arguments.paths for file in find_files(where)))
    findings = [finding for file in files for finding in examine(file)]
    for finding in findings:  # one line each, like compilers: editors and scripts parse FILE:LINE
        print(printable(str(finding)))
    if not findings:
        print(f"no known pitfall in {counted(len(files), 'file')}")
    return int(bool(findings))
