# SPDX-License-Identifier: Apache-2.0
"""`meshmark repro`: a stand-alone script of one case."""

from __future__ import annotations

import argparse

from meshmark.commands.arguments import devices, natural, seconds
from meshmark.commands.drawn_script import write_drawn_script
from meshmark.core import meshes
from meshmark.core.terminal import note
from meshmark.devices.environment import DEFAULT_CPU_DEVICES
from meshmark.judge import repro
from meshmark.judge.repro import shrink
from meshmark.operations import cases
from meshmark.operations.programs.drawn import DrawnPrograms

MOST_DEVICES = 4096
"""The most devices that it takes from the mesh of a case id."""


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "case", metavar="CASE", help="a case id, as failures and `meshmark list --cases` print it"
    )
    add.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the inputs (default 0)")
    add.add_argument(
        "--num-devices",
        type=devices,
        metavar="N",
        help="devices of the run (default 8, or what the mesh needs)",
    )
    add.add_argument(
        "--no-run",
        action="store_true",
        help="run nothing: print the whole case, with the inputs of the suite",
    )
    add.add_argument(
        "--seconds",
        type=seconds,
        default=shrink.SECONDS,
        metavar="S",
        help=f"seconds to look for a smaller case that still fails here (default {shrink.SECONDS:.0f})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script of one case. If the case fails here, the script has the smallest form that still fails."""
    number = arguments.num_devices or _needed(arguments.case)
    case = cases.find(arguments.case, number)
    if isinstance(case.operation, DrawnPrograms):
        text = write_drawn_script(case, case.operation.store, number, not arguments.no_run, note)
    elif arguments.no_run:
        text = repro.script(case, number, arguments.seed)
    else:
        text = shrink.shrunk(case, number, arguments.seed, arguments.seconds, note)
    print(text, end="")
    return 0


def _needed(case_id: str) -> int:
    """The number of devices for a case id: the default, or more if its mesh has more."""
    try:
        size = meshes.parse_mesh(case_id.split("/")[3]).size
    except (IndexError, ValueError):
        return DEFAULT_CPU_DEVICES
    return max(DEFAULT_CPU_DEVICES, size) if size <= MOST_DEVICES else DEFAULT_CPU_DEVICES
