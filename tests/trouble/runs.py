# SPDX-License-Identifier: Apache-2.0
"""Runs the suite that makes trouble, each time in a pytest process of its own in its own process group."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from functools import cache
from pathlib import Path

from meshmark.devices import probe
from meshmark.operations.selection import CAPABILITIES
from tests.checkout import ROOT
from tests.interrupts import interruptible
from tests.waiting import PATIENCE, until

NO_PROBES = ("--without", ",".join(CAPABILITIES))
"""No trouble needs an optional capability: no time goes to probes of them."""
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Plugins that a run needs none of: hypothesis takes as long to import as a case to run."""


DEVICES = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}


@cache
def listed():
    """The facts of the devices of every run, as JSON."""
    return json.dumps(probe.probe(DEVICES).to_json())


class Run:
    """One run of `pytest`, bounded in time; `with` ends whatever is left of it.

    lists: whether the run lists its devices itself, as each run does where the suite is not the one that makes
    trouble. Otherwise it takes what one process has listed for all. runner: the options of Python that name a program
    which runs pytest.
    """

    def __init__(
        self,
        *arguments,
        cwd=ROOT,
        file_limit=None,
        target="tests/trouble",
        started=interruptible,
        lists=False,
        runner=(),
        **environment,
    ):
        self.mark = f"MESHMARK_MARK={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "MESHMARK_"))}
        self.command = ["pytest", target, *map(str, arguments)]
        self.environment = environment
        if target == "tests/trouble" and not (lists or any(k.startswith(probe.FLAGS) for k in environment)):
            environment = {**environment, "MESHMARK_FACTS": listed()}
        arguments = (*arguments, *NO_PROBES)
        command = [sys.executable, *runner, "-m", "pytest", str(ROOT / target), *map(str, arguments)]
        if file_limit is not None:  # stands for a full disk: a longer file can't be written
            limit = f"r.setrlimit(r.RLIMIT_FSIZE, ({file_limit}, r.RLIM_INFINITY))"
            command[1:3] = ["-c", f"import resource as r, pytest; {limit}; raise SystemExit(pytest.main())"]
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            started([*command, *WITHOUT, "-c", str(ROOT / "pyproject.toml")]),
            cwd=cwd,
            env=kept | DEVICES | {name: value} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.code, self.output, self.seconds = None, "", 0.0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for pid in {self.process.pid, *self.alive()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def finish(self, seconds=600):
        """Wait for the end: exit code, output and time are then known."""
        self.output, _ = self.process.communicate(timeout=seconds)
        self.code, self.seconds = self.process.returncode, time.perf_counter() - self.start
        return self

    def kill(self, number, pid=None):
        """Send a signal to the controller, or to this process."""
        os.kill(pid or self.process.pid, number)
        return self

    def alive(self):
        """The processes of this run that have not ended, found by the mark in their environment."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (directory / "environ").read_bytes().split(b"\0"):
                    found.append(int(directory.name))
            except OSError:
                continue
        return found

    def workers(self):
        """The processes of this run without the controller, and without the guard that waits for it and that it is
        forked from."""
        own = _command_of(self.process.pid)
        return [pid for pid in self.alive() if pid != self.process.pid and _command_of(pid) != own]

    def gone(self, seconds=60):
        """Whether no process is left, now or within some seconds."""
        return until(lambda: not self.alive(), seconds)


def _command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def lines(path):
    """The whole lines of a record file, each strict JSON."""
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line, parse_constant=lambda name: 1 / 0) for line in whole]


def unclosed(text):
    """The bytes of a record file up to its closing line, which a run that resumes the file takes away."""
    whole = text[: text.rindex(b"\n") + 1] if b"\n" in text else b""
    last = whole.rstrip(b"\n").rpartition(b"\n")[2]
    return whole[: len(whole) - len(last) - 1] if b'"kind":"end"' in last else whole


def finished(path):
    """The ids of the cases whose last line is in the file, in order, as often as they are there."""
    return [line["case"] for line in lines(path) if "seconds" in line]


def table(output):
    """The closing table that a run printed, behind what was under test and up to the counts of its verdicts."""
    found = re.search(r"^operation +auto.*?^\d+ cases:[^\n]*", output, re.DOTALL | re.MULTILINE)
    return found.group().splitlines() if found else []
