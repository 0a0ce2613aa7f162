# SPDX-License-Identifier: Apache-2.0
"""Installs missing Debian packages, without starting the services of some of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")  # asked by Debian's packages before they start a service
DENY = "#!/bin/sh\n# Made by meshmark's tests/cluster for the time of one installation.\nexit 101\n"
LISTS = Path("/var/lib/apt/lists")
TIMEOUT = 600.0  # seconds for one call of apt-get, downloads included


class Missing(Exception):
    """A program is not here and could not be had; the text says why."""


def reason() -> str:
    """Why packages can't be installed here; "" where they can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root (to install Debian's packages and to run slurmctld and slurmd)"
    if not shutil.which("apt-get"):
        return "needs Debian or Ubuntu: there is no apt-get"
    return ""


def install(programs: dict[str, str]) -> list[str]:
    """Install what is missing of `programs` (program: the Debian package that holds it).

    The packages that were installed are returned. Raises Missing with apt-get's last lines.
    """
    if all(map(found, programs)):
        return []
    with one_at_a_time():
        return _install(programs)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Workers of pytest-xdist ask for the same packages at once: the others wait, and then find them."""
    with open(Path(tempfile.gettempdir()) / "meshmark-packages.lock", "w") as lock:
        if os.name == "posix":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(programs: dict[str, str]) -> list[str]:
    packages = sorted({package for program, package in programs.items() if not found(program)})
    if not packages:
        return []
    if why := reason():
        raise Missing(f"{', '.join(packages)}: {why}")
    with no_services():
        if not list(LISTS.glob("*_Packages*")):
            _apt("update")
        try:
            _apt("install", *packages)
        except Missing:  # lists that are too old name files that are no longer there
            _apt("update")
            _apt("install", *packages)
    absent = [program for program in programs if not found(program)]
    if absent:
        raise Missing(f"after installing {', '.join(packages)} there is still no {', '.join(absent)}")
    return packages


def found(program: str) -> str | None:
    """Where a program is: daemons live in /usr/sbin, which is not in everybody's PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


@contextmanager
def no_services() -> Iterator[None]:
    """Packages that are installed inside start no service; a policy that was there before is put back."""
    kept = POLICY.with_name("policy-rc.d.meshmark")
    had = POLICY.exists()
    if had:
        POLICY.rename(kept)
    try:
        POLICY.write_text(DENY)
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink(missing_ok=True)
        if had:
            kept.rename(POLICY)


def _apt(verb: str, *packages: str) -> None:
    command = ["apt-get", verb, "-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2"]
    if packages:
        command += ["--yes", "--no-install-recommends", *packages]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{' '.join(command)} took more than {TIMEOUT:.0f} s") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise Missing(f"{' '.join(command)} ended with {done.returncode}:\n{last}")
