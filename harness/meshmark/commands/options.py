"""The options that every command that times has: what to time, on which devices, and how it is contained."""

from __future__ import annotations

import argparse
from typing import Any

from meshmark.commands.arguments import names, natural, path, positive, seconds
from meshmark.levels.expectations import Expectations
from meshmark.operations.base import MODES
from meshmark.operations.selection import SelectionError
from meshmark.operations.weights import TIMED_PROFILES
from meshmark.ranks.group import JOIN
from meshmark.timing.timer import CADENCES

NAMED = (
    ("operations", "psum,matmul"),
    ("modes", ",".join(MODES[:3])),
    ("meshes", "2x4,8"),
    ("dtypes", "float32,bfloat16"),
    ("sizes", "64KiB,3MiB,n512"),
)


def add_selection(add: argparse.ArgumentParser) -> None:
    """What of the timed table is chosen."""
    add.add_argument(
        "--profile", default="quick", help=f"how much: {', '.join(TIMED_PROFILES)} (default quick)"
    )
    for option, example in NAMED:
        add.add_argument(
            f"--{option}",
            type=names,
            default=(),
            metavar="NAMES",
            help=f"only these {option}, such as {example}",
        )


def add_timing(add: argparse.ArgumentParser, cadences: tuple[str, ...]) -> None:
    """How it is timed; `cadences` are the default."""
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
    add.add_argument("--num-devices", type=positive, metavar="N", help="virtual CPU devices (default 8)")
    add.add_argument(
        "--deadline",
        type=seconds,
        default=60.0,
        metavar="S",
        help="a step of a case that takes longer is a hang (default 60)",
    )


def add_expectations(add: argparse.ArgumentParser, counters: bool = True) -> None:
    """A vendor's known issues, and its counters where the command asks for counters."""
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
            "--counters", type=path, metavar="DIR", help="committed counters that go before the suite's own"
        )


def expectations(arguments: argparse.Namespace) -> Expectations:
    """What the run is judged by, with what the options name; KnownIssuesError or CountersError for a bad one."""
    return Expectations(arguments.known_issues, getattr(arguments, "counters", None))


RANKS = ("distributed", "coordinator", "num_processes", "process_id", "control")
"""The options that say which rank this process is."""


def add_ranks(add: argparse.ArgumentParser) -> None:
    """Where this process is one of several that time together."""
    group = add.add_argument_group("over several processes (each runs this command)")
    group.add_argument(
        "--distributed",
        action="store_true",
        help="this process is one of several: JAX finds the others under srun, mpirun, Kubernetes and Cloud TPU",
    )
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="JAX's coordinator, where it is to be named"
    )
    group.add_argument("--num-processes", type=positive, metavar="N", help="how many processes there are")
    group.add_argument("--process-id", type=natural, metavar="I", help="which of them this is, from 0 on")
    group.add_argument(
        "--control",
        metavar="HOST:PORT",
        help="where rank 0 listens for the suite's own channel (default: the coordinator's port + 1)",
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


def named(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a Selection that the options name."""
    return {name: getattr(arguments, name) for name, _ in NAMED}


def check_cadences(chosen: tuple[str, ...]) -> None:
    """SelectionError for a cadence that there is not, or none."""
    if unknown := sorted(set(chosen) - set(CADENCES)):
        raise SelectionError(f"unknown cadence {unknown[0]!r}: choose from {', '.join(CADENCES)}")
    if not chosen:
        raise SelectionError(f"--cadence names none: choose from {', '.join(CADENCES)}")
