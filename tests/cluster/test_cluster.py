# SPDX-License-Identifier: Apache-2.0
"""Real launchers on this machine: Debian's Slurm and Open MPI, and JAX's own detection of both.

tox run -e cluster installs missing packages, and starts and stops the launchers. Each test has a time limit, and none
may leave a process behind.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.core.ports import QUIET
from tests.cluster import packages, slurm
from tests.cluster.commands import ROOT, run

HELLO = [sys.executable, "-m", "tests.cluster.hello"]
LIMIT = 120.0  # seconds for a command that takes three on an idle machine


def devices(environment, count):
    """On CPU, with a number of virtual devices in each process."""
    return dict(environment) | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(count)}


def said(text):
    """What the ranks of tests.cluster.hello say, in the order of ranks."""
    return sorted(re.findall(r"rank \d+ of \d+: \d+ of \d+ devices, psum \w+", text))


def expected(processes, each):
    all_of_them = processes * each
    return [
        f"rank {rank} of {processes}: {each} of {all_of_them} devices, psum right"
        for rank in range(processes)
    ]


@pytest.mark.parametrize("processes", [2, 4])
def test_srun_makes_one_group_of_its_ranks(slurm_environment, bare, processes):
    done = run(
        ["srun", "-n", str(processes), *HELLO, str(processes)], devices(bare | slurm_environment, 2), LIMIT
    )
    assert (done.code, said(done.text), done.left) == (0, expected(processes, 2), []), done.text


@pytest.mark.parametrize("which", ["mpirun", "mpirun_5"])
def test_mpirun_makes_one_group_of_its_ranks(request, bare, which):
    mpirun = request.getfixturevalue(which)
    done = run([*mpirun, "-n", "2", *HELLO, "2"], devices(bare, 2), LIMIT)
    assert (done.code, said(done.text), done.left) == (0, expected(2, 2), []), done.text


def test_another_number_of_ranks_than_wanted_shows(slurm_environment, bare):
    done = run(["srun", "-n", "2", *HELLO, "3"], devices(bare | slurm_environment, 1), LIMIT)
    assert done.code == 1 and said(done.text) == expected(2, 1), done.text


def test_nothing_of_a_private_slurm_is_left(bare, tmp_path):
    """A second Slurm beside that of the fixture, a job that would run for minutes in it, and then neither of them."""
    script = (
        "srun -n 2 sleep 300 & until squeue -h -t running | grep -q .; do sleep 0.1; done; echo $SLURM_CONF"
    )
    done = run([sys.executable, "-m", "tests.cluster.slurm", "bash", "-c", script], bare, LIMIT)
    if packages.reason() and done.code == 2:
        pytest.skip(packages.reason())
    assert (done.code, done.left) == (0, []), (done.text, done.left)
    directory = Path(re.search(r"^/\S*/slurm\.conf$", done.text, re.MULTILINE)[0]).parent
    assert not directory.exists() and slurm.marked(directory) == []


def test_a_slurm_that_does_not_come_up_says_what_its_logs_say(monkeypatch, slurm_environment):
    monkeypatch.setattr(slurm, "CONFIGURATION", slurm.CONFIGURATION.replace("CR_Core", "CR_Nonsense"))
    with pytest.raises(slurm.Trouble, match=r"(?s)slurm(ctld|d).* ended.*CR_Nonsense"), slurm.slurm():
        pass


@pytest.mark.parametrize("had", [True, False])
def test_the_policy_on_services_is_put_back(monkeypatch, tmp_path, had):
    monkeypatch.setattr(packages, "POLICY", tmp_path / "policy-rc.d")
    if had:
        packages.POLICY.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(KeyError), packages.no_services():
        assert subprocess.run([packages.POLICY]).returncode == 101
        raise KeyError
    assert packages.POLICY.exists() == had
    assert not had or "exit 0" in packages.POLICY.read_text()


def test_mpi_is_the_transport(mpirun, bare, transport):
    environment = devices(bare, 1) | transport
    done = run([*mpirun, "-n", "2", *HELLO, "2"], environment, LIMIT)
    assert (done.code, said(done.text), done.left) == (0, expected(2, 1), []), done.text
    assert "[Gloo]" not in done.text


def test_mpi_as_transport_refuses_two_devices_a_process(mpirun, bare, transport):
    """XLA's MPI collectives take one device a process (openxla/xla#16430, a crash there): an error, and no hang."""
    environment = devices(bare, 2) | transport
    done = run([*mpirun, "-n", "2", *HELLO, "2"], environment, LIMIT)
    assert done.code not in (0, None) and done.left == [], done.text
    assert "Multiple threads/devices per process are not yet supported" in done.text


@pytest.mark.files_alone
@pytest.mark.parametrize("script", ["slurm.sbatch", "openmpi.sh", "cloud-tpu.sh"])
def test_scripts_are_bash(script):
    done = subprocess.run(["bash", "-n", ROOT / "docs" / "cluster" / script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.files_alone
@pytest.mark.parametrize("job", [1, 6, 2499, 2500, 4_095, 10_007, 4_294_901_759])
def test_the_port_of_a_batch_job_is_no_ephemeral_port(job):
    """The system may have given an ephemeral port to a connection: then rank 0 can't listen, and no case runs."""
    script = (ROOT / "docs" / "cluster" / "slurm.sbatch").read_text()
    [line] = [line for line in script.splitlines() if line.startswith("control=")]
    shell = f'first=node; SLURM_JOB_ID={job}; {line}; echo "$control"; SLURM_JOB_ID={job + 1}; {line}; echo "$control"'
    said = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout.split()
    ports = [int(address.removeprefix("node:")) for address in said]
    assert all(QUIET.stop <= port < 32_768 for port in ports) and len(set(ports)) == 2
