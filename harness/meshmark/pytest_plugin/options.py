# SPDX-License-Identifier: Apache-2.0
"""The options of the suite: their definitions, their checks, and the selection of cases that they make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshmark.core.text import names
from meshmark.devices import containment, watchdog
from meshmark.levels.expectations import Expectations
from meshmark.operations import choosing
from meshmark.operations.selection import Selection
from meshmark.ranks import group as ranks
from meshmark.ranks.group import Coordinates

ALIKE = (
    *(
        "profile",
        "level",
        "with_",
        "without",
        "operations",
        "modes",
        "meshes",
        "dtypes",
        "sizes",
        "seed",
        "deadline",
    ),
    *(
        "expect_devices",
        "expect_level",
        "repeat",
        "record",
        "resume",
        "maxfail",
        "keyword",
        "markexpr",
        "file_or_dir",
        "collectonly",
    ),
)
"""The options that must be equal on all ranks."""


RANKS = ("distributed", "coordinator", "num_processes", "process_id", "control", "control_secret")
"""The options that say which rank this process is."""


def add_options(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("meshmark", "Meshmark, conformance of distributed JAX", after="general")
    add = group.addoption
    choosing.add_options(add)
    add("--seed", type=int, default=0, metavar="N", help="seed of the inputs (default 0)")
    add(
        "--num-devices",
        type=int,
        default=None,
        metavar="N",
        help="virtual CPU devices (default 8); ignored with a notice on real hardware",
    )
    add(
        "--topology",
        action="append",
        default=[],
        metavar="NAMES",
        help="compile without the hardware, and run nothing: v5e:2x4, v5p:4x4x4, h100:8; two slices"
        " are 2xv5e:2x4; separate several by commas",
    )
    add(
        "--layout",
        default="plain",
        metavar="NAMES",
        help="order of a topology's devices in a mesh: plain, physical (as jax.make_mesh has it), or both"
        " separated by a comma (default plain)",
    )
    add(
        "--export",
        default="",
        metavar="PLATFORMS",
        help="with --topology: also export each case for these platforms (tpu, cuda), read it back and lower it",
    )
    add(
        "--record",
        type=Path,
        default=None,
        metavar="FILE",
        help="write records (JSON lines) to this new file; without it nothing is written",
    )
    add(
        "--resume",
        type=Path,
        default=None,
        metavar="FILE",
        help="continue the interrupted run that wrote this file, and append to it (instead of --record)",
    )
    add(
        "--deadline",
        type=float,
        default=containment.DEADLINE,
        metavar="SECONDS",
        help="a case is a hang if one of its programs takes longer (or all of them"
        f" {watchdog.MANY} times as long); stretched if the backend's first compile takes more than"
        f" {containment.BRISK:.0f} s; seconds in which the case waits for a processor do not count"
        f" (default {containment.DEADLINE:.0f})",
    )
    add(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="run each program N times in one compile, and record how many runs differ (default 1)",
    )
    add(
        "--known-issues",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="known issues beside the suite's own (TOML, as its known_issues.toml); may be given several times",
    )
    add(
        "--counters",
        type=Path,
        default=None,
        metavar="DIR",
        help="committed counters that replace the suite's own (files JAX-BACKEND-DEVICES.tsv)",
    )
    add(
        "--expect-devices",
        type=int,
        default=None,
        metavar="N",
        help="exit with 1 if JAX does not show N devices",
    )
    add(
        "--expect-level",
        default=None,
        metavar="LEVEL",
        help="exit with 1 if a must-pass case of this level, or of one below it, has no verdict",
    )
    add(
        "--generated",
        type=int,
        default=0,
        metavar="N",
        help="also judge the kept findings of the hunt and the first N programs that it draws from --seed",
    )
    add(
        "--findings",
        type=Path,
        default=None,
        metavar="DIR",
        help="the findings that are known (default: those that Meshmark has)",
    )
    group = parser.getgroup(
        "meshmark-ranks", "Meshmark over several processes (each runs this command)", after="meshmark"
    )
    add = group.addoption
    add(
        "--distributed",
        action="store_true",
        help="this process is one of several: JAX finds the others under srun, mpirun, Kubernetes and Cloud TPU",
    )
    add("--coordinator", default=None, metavar="HOST:PORT", help="JAX's coordinator, if JAX can't find it")
    add("--num-processes", type=int, default=None, metavar="N", help="how many processes there are")
    add("--process-id", type=int, default=None, metavar="I", help="which of them this is, from 0 on")
    add(
        "--control",
        default=None,
        metavar="HOST:PORT",
        help="where rank 0 listens for the suite's own channel (default: the coordinator's port + 1)",
    )
    add(
        "--control-secret",
        default=None,
        metavar="TEXT",
        help="a text that separates this run's processes from those of another run (default: the job's id under"
        " Slurm, PMIx or Open MPI; better in the variable MESHMARK_CONTROL_SECRET, which other users can't see)",
    )
    add(
        "--join",
        type=float,
        default=ranks.JOIN,
        metavar="SECONDS",
        help=f"how long the processes have to come together (default {ranks.JOIN:.0f})",
    )


def names_of(config: pytest.Config, option: str) -> tuple[str, ...]:
    """The names of a comma-separated option."""
    return names(config.getoption(option))


def check_numbers(config: pytest.Config) -> None:
    """UsageError for a number out of its range."""
    wanted = config.getoption("num_devices")
    if wanted is not None and not 1 <= wanted <= 4096:
        raise pytest.UsageError(f"--num-devices {wanted}: use a number from 1 to 4096")
    limits = (
        ("generated", 0, 10**6),
        ("seed", 0, 2**31),
        ("repeat", 1, 10**6),
        ("deadline", 0.1, 86400),
        ("join", 1, 86400),
    )
    for option, least, most in limits:
        if not least <= config.getoption(option) <= most:
            value = config.getoption(option)
            raise pytest.UsageError(f"--{option} {value}: use a number from {least} to {most}")


def coordinates_of(config: pytest.Config) -> Coordinates | None:
    """Which rank this process is, from options and environment; None for a single process. Raises RankError and
    ChannelError as meshmark.ranks.group.coordinates does."""
    return ranks.coordinates(os.environ, **{name: config.getoption(name) for name in RANKS})


def expectations_of(config: pytest.Config) -> Expectations:
    """The known issues and counters that the run is judged by. Raises KnownIssuesError and CountersError as
    meshmark.levels.expectations does."""
    return Expectations(config.getoption("known_issues"), config.getoption("counters"))


def selection_of(
    config: pytest.Config, num_devices: int, processes: int, present: tuple[str, ...] = ()
) -> Selection:
    """The selection that the options make on `num_devices` devices, with the optional capabilities that a probe found
    (`present`). SelectionError for unknown names."""
    return choosing.selected(vars(config.option), num_devices, processes=processes, present=present)
