# SPDX-License-Identifier: Apache-2.0
"""The options that choose cases, defined once: for the commands, for `pytest conformance` and for `pytest benchmarks`.

argparse and pytest take the same arguments for an option, so that one definition serves both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meshmark.core.text import names
from meshmark.operations.base import MODES
from meshmark.operations.selection import CAPABILITIES, LEVELS, Selection
from meshmark.operations.weights import PROFILES, TIMED_PROFILES

MANY = {
    "level": "levels",
    "with": "capabilities",
    "without": "without",
    "operations": "operations",
    "modes": "modes",
    "meshes": "meshes",
    "dtypes": "dtypes",
    "sizes": "sizes",
}
"""The options that take several names. Each value is the field of Selection that the option sets."""


@dataclass(frozen=True)
class Option:
    """One option that chooses cases."""

    name: str
    help: str
    default: str | tuple[str, ...] = ()
    metavar: str = "NAMES"

    @property
    def destination(self) -> str:
        """The name of its parsed argument. `with` is a Python keyword, so its argument is `with_`."""
        return self.name + "_" * (self.name == "with")


def options(timed: bool = False) -> list[Option]:
    """The options that choose from the conformance table or, if `timed`, from what the benchmarks time.

    The benchmarks have no options `level` and `without`.
    """
    profiles, default = (TIMED_PROFILES, "quick") if timed else (PROFILES, "standard")
    capabilities = "; ".join(f"{name}: {what}" for name, what in CAPABILITIES.items())
    found = [
        Option("profile", f"how much: {', '.join(profiles)} (default {default})", default, "NAME"),
        Option("level", f"only these levels: {', '.join(LEVELS)}"),
        Option("with", f"optional capabilities that must be there, and all of their cases: {capabilities}"),
        Option(
            "without", "optional capabilities that are left out (by default a few cases judge what is there)"
        ),
        *(
            Option(name, f"only these {name}, such as {examples}")
            for name, examples in (
                ("operations", "psum,matmul"),
                ("modes", ",".join(MODES[:3])),
                ("meshes", "2x4,8"),
                ("dtypes", "float32,bfloat16"),
                ("sizes", "64KiB,3MiB,n512" if timed else "4KiB"),
            )
        ),
    ]
    return [option for option in found if not (timed and option.name in ("level", "without"))]


def some_names(text: str) -> tuple[str, ...]:
    """The names of a list; argparse.ArgumentTypeError if there is none, which would choose everything."""
    if found := names(text):
        return found
    raise argparse.ArgumentTypeError("it has no name: write one, or leave the option out")


def add_options(add: Callable[..., Any], timed: bool = False, without: tuple[str, ...] = ()) -> None:
    """Add the options. add: `add_argument` of a parser of argparse, or `addoption` of a group of pytest."""
    for option in options(timed):
        if option.name not in without:
            add(
                f"--{option.name}",
                dest=option.destination,
                type=some_names if option.name in MANY else str,
                default=option.default,
                metavar=option.metavar,
                help=option.help,
            )


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Selection that the parsed options set. A field is absent if its option was not offered."""
    found = {option.name: given.get(option.destination) for option in options()}
    return {field: tuple(found[name] or ()) for name, field in MANY.items() if found[name] is not None}


def selected(
    given: Mapping[str, Any],
    num_devices: int,
    *,
    processes: int = 1,
    timed: bool = False,
    present: tuple[str, ...] = (),
) -> Selection:
    """The checked Selection of the parsed options (`vars` of a namespace). present: the optional capabilities that a
    probe found.

    SelectionError for an unknown name, or a mesh that these devices and processes do not allow.
    """
    choice = Selection(
        profile=given["profile"], processes=processes, timed=timed, present=present, **named(given)
    )
    return choice.checked(num_devices)
