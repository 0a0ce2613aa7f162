"""The options that every command that times has: what to time, on which devices, and how it is contained."""

from __future__ import annotations

import argparse
from typing import Any

from harness import cases
from harness.arguments import names, natural, positive, seconds
from harness.cases import SelectionError
from harness.operations.base import MODES
from harness.timer import CADENCES

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
        "--profile", default="quick", help=f"how much: {', '.join(cases.TIMED_PROFILES)} (default quick)"
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


def named(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a Selection that the options name."""
    return {name: getattr(arguments, name) for name, _ in NAMED}


def check_cadences(chosen: tuple[str, ...]) -> None:
    """SelectionError for a cadence that there is not, or none."""
    if unknown := sorted(set(chosen) - set(CADENCES)):
        raise SelectionError(f"unknown cadence {unknown[0]!r}: choose from {', '.join(CADENCES)}")
    if not chosen:
        raise SelectionError(f"--cadence names none: choose from {', '.join(CADENCES)}")
