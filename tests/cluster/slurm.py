# SPDX-License-Identifier: Apache-2.0
"""A private Slurm on this machine: starts and stops munged, slurmctld and one slurmd.

python -m tests.cluster.slurm srun -n 2 python -m tests.cluster.hello

runs one command inside. Configuration, key, sockets, logs and spool are in a temporary directory. Nothing is written
below /etc, except by Debian's packages, and no system service is started.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from meshmark.core.ports import free_ports
from tests.cluster import packages

PROGRAMS = dict.fromkeys(("srun", "sbatch", "sinfo", "slurmctld", "slurmd"), "slurm-wlm") | {
    "munged": "munge"
}
# JAX takes the node's name as the address of its coordinator, so that the name must be one that resolves.
NODE = "localhost"
CPUS = 8  # what the node claims to have, so that 4 ranks are placed on 2 cores; slurmd is told not to mind
READY = 60.0  # seconds until the node is idle
GONE = 10.0  # seconds between a request to end and SIGKILL
MARK = "MESHMARK_PRIVATE_SLURM"  # in the environment of all that is started inside: its directory

CONFIGURATION = """\
ClusterName=meshmark
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
InactiveLimit=0
PlugStackConfig=/dev/null
NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
"""


class Trouble(Exception):
    """Slurm did not come up; the text has the last lines of its logs."""


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which srun, sbatch and their like speak to a Slurm of one node with CPUS processors.

    Raises packages.Missing when the programs can't be had and Trouble when the node is not idle in time. All that
    was started is stopped at the end, by process id, jobs that still run included.
    """
    packages.install(PROGRAMS)
    directory = Path(tempfile.mkdtemp(prefix="meshmark-slurm-"))
    daemons: list[subprocess.Popen] = []
    environment = outside(os.environ) | {"SLURM_CONF": str(directory / "slurm.conf"), MARK: str(directory)}
    try:
        _configure(directory)
        daemons.append(_munged(directory, environment))
        daemons.append(
            _daemon(directory, environment, "slurmctld", "-D", "-i", "-f", environment["SLURM_CONF"])
        )
        daemons.append(
            _daemon(directory, environment, "slurmd", "-D", "-N", NODE, "-f", environment["SLURM_CONF"])
        )
        _until_idle(directory, environment, daemons)
        yield environment
    finally:
        if len(daemons) == 3:
            _cancel_all(environment)
        for daemon in reversed(daemons):
            _stop(daemon)
        for process in marked(directory):  # slurmstepd outlives slurmd, by design
            _kill(process)
        shutil.rmtree(directory, ignore_errors=True)


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a job of another launcher put into it: JAX would take its ranks for ours."""
    return {
        k: v for k, v in environment.items() if not k.startswith(("SLURM", "SBATCH", "OMPI_", "PMI", "PRTE_"))
    }


def marked(directory: Path) -> list[int]:
    """Ids of the processes that carry this Slurm's mark in their environment, this process excepted."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # it ended, or is another user's
            continue
        if f"{MARK}={directory}".encode() in environment.split(b"\0") and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def _configure(directory: Path) -> None:
    for name in ("state", "spool"):
        (directory / name).mkdir()
    ports = free_ports(2)
    text = CONFIGURATION.format(
        directory=directory, node=NODE, cpus=CPUS, controller_port=ports[0], daemon_port=ports[1]
    )
    (directory / "slurm.conf").write_text(text)
    key = directory / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(128))  # root may write what others may not


def _munged(directory: Path, environment: dict[str, str]) -> subprocess.Popen:
    files = {"socket": "socket", "key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
    options = [f"--{option}={directory}/munge.{ending}" for option, ending in files.items()]
    # --force: a directory that only root may enter is refused otherwise; here only root's jobs run.
    daemon = _daemon(directory, environment, "munged", "--foreground", "--force", *options)
    end = time.monotonic() + READY
    while not (directory / "munge.socket").exists():
        if daemon.poll() is not None or time.monotonic() > end:
            _stop(daemon)
            raise Trouble(f"munged did not come up:\n{_last_lines(directory)}")
        time.sleep(0.05)
    return daemon


def _daemon(directory: Path, environment: dict[str, str], name: str, *options: str) -> subprocess.Popen:
    with (directory / f"{name}.out").open("wb") as output:
        return subprocess.Popen(
            [packages.found(name) or name, *options],
            env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,  # Ctrl-C is for the test, which then stops the daemons in order
        )  # fmt: skip


def _until_idle(directory: Path, environment: dict[str, str], daemons: list[subprocess.Popen]) -> None:
    end = time.monotonic() + READY
    state = ""
    while state != "idle":
        dead = [Path(daemon.args[0]).name for daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > end:
            what = (
                f"{', '.join(dead)} ended"
                if dead
                else f"the node is {state or 'unknown'} after {READY:.0f} s"
            )
            raise Trouble(f"Slurm did not come up: {what}\n{_last_lines(directory)}")
        time.sleep(0.2)
        asked = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, timeout=30
        )
        state = asked.stdout.strip()


def _last_lines(directory: Path) -> str:
    """The last eight lines of each log and each output of a job."""
    parts = []
    for file in sorted([*directory.glob("*.log"), *directory.glob("*.out")]):
        if text := file.read_text(errors="replace").strip():
            parts += [f"--- {file.name}", *text.splitlines()[-8:]]
    return "\n".join(parts)


def _cancel_all(environment: dict[str, str]) -> None:
    """Jobs end before their daemons do: slurmd leaves the steps of a job alone when it stops."""
    options = {"env": environment, "capture_output": True, "text": True, "timeout": GONE}
    with suppress(
        subprocess.TimeoutExpired
    ):  # a controller that does not answer: the mark finds what is left
        subprocess.run(["scancel", "--user=root"], **options)
        end = time.monotonic() + GONE
        while subprocess.run(["squeue", "-h"], **options).stdout.strip() and time.monotonic() < end:
            time.sleep(0.2)


def _stop(daemon: subprocess.Popen) -> None:
    daemon.terminate()
    try:
        daemon.wait(GONE)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def main(command: list[str]) -> int:
    """Run one command inside; its exit code, or 2 when there is no Slurm to be had."""
    if not command:
        print("usage: python -m tests.cluster.slurm COMMAND ...", file=sys.stderr)
        return 2
    try:
        with slurm() as environment:
            return subprocess.run(command, env=environment).returncode
    except (packages.Missing, Trouble) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
