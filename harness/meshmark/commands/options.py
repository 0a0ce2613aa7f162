# SPDX-License-Identifier: Apache-2.0
"""The options of the timing commands: how to time, on which devices, with which containment, over which processes.

meshmark.operations.choosing adds the options that choose the cases.
"""

from __future__ import annotations

import argparse
from typing import Any

from meshmark.commands.arguments import devices, natural, path, positive, seconds
from meshmark.core.errors import unknown
from meshmark.core.text import names
from meshmark.levels.expectations import Expectations
from meshmark.operations.selection import SelectionError
from meshmark.ranks.group import JOIN
from meshmark.timing.timer import CADENCES


def add_timing(add: argparse.ArgumentParser, cadences: tuple[str, ...]) -> None:
    """The options of timing; `cadences` are the default ones."""
    add.add_argument(
        "--cadence",
        type=names,
        default=cadences,
        metavar="NAMES",
        help=f"how calls follow each other: {', '.join(CADENCES)} (default {','.join(cadences)})",
    )
    add.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="seed of inputs and order (default 0)"
    )
    add.add_argument("--num-devices", type=devices, metavar="N", help="virtual CPU devices (default 8)")
    add.add_argument(
        "--deadline",
        type=seconds,
        default=60.0,
        metavar="S",
        help="a step of a case that takes longer is a hang (default 60)",
    )


def add_expectations(add: argparse.ArgumentParser, counters: bool = True) -> None:
    """The options that name a vendor's known issues and, if `counters`, its counters."""
    add.add_argument(
        "--known-issues",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="known issues beside the suite's own; may be given several times",
    )
    if counters:
        add.add_argument(
            "--counters", type=path, metavar="DIR", help="committed counters that replace the suite's own"
        )


def expectations(arguments: argparse.Namespace) -> Expectations:
    """The known issues and counters that the run is judged by; KnownIssuesError or CountersError for a bad file."""
    return Expectations(arguments.known_issues, getattr(arguments, "counters", None))


RANKS = ("distributed", "coordinator", "num_processes", "process_id", "control", "control_secret")
"""The options that say which rank this process is."""


def add_ranks(add: argparse.ArgumentParser) -> None:
    """The options for several processes that time together."""
    group = add.add_argument_group("over several processes (each runs this command)")
    group.add_argument(
        "--distributed",
        action="store_true",
        help="this process is one of several: JAX finds the others under srun, mpirun, Kubernetes and Cloud TPU",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="JAX's coordinator, if JAX can't find it")
    group.add_argument("--num-processes", type=positive, metavar="N", help="how many processes there are")
    group.add_argument("--process-id", type=natural, metavar="I", help="which of them this is, from 0 on")
    group.add_argument(
        "--control",
        metavar="HOST:PORT",
        help="where rank 0 listens for the suite's own channel (default: the coordinator's port + 1)",
    )
    group.add_argument(
        "--control-secret",
        metavar="TEXT",
        help="a text that separates this run's processes from those of another run (default: the job's id under"
        " Slurm, PMIx or Open MPI; better in the variable MESHMARK_CONTROL_SECRET, which other users can't see)",
    )
    group.add_argument(
        "--join",
        type=seconds,
        default=JOIN,
        metavar="S",
        help=f"how long the processes have to come together (default {JOIN:.0f})",
    )


def of_ranks(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that say which rank this process is, by name."""
    return {name: getattr(arguments, name) for name in RANKS}


def check_cadences(chosen: tuple[str, ...]) -> None:
    """SelectionError for an unknown cadence, or for an empty list."""
    for name in chosen:
        if name not in CADENCES:
            raise SelectionError(unknown("cadence", name, CADENCES))
    if not chosen:
        raise SelectionError(f"--cadence names none: choose from {', '.join(CADENCES)}")
