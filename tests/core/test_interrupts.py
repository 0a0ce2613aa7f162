# SPDX-License-Identifier: Apache-2.0
"""SIGINT and SIGTERM, for every way to start a run. The tests themselves also pass where SIGINT is ignored."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from meshmark.core import interrupts
from tests.checkout import ROOT
from tests.interrupts import deaf

pytestmark = pytest.mark.e2e

CORE = (
    "tests/ranks/test_launch.py::test_a_signal_to_the_launcher_reaches_every_rank[SIGINT-130]",
    "tests/devices/test_containment.py::test_a_worker_that_holds_the_gil_ends_with_its_controller[2]",
)
"""Tests that send SIGINT to what they start: the quickest of each kind."""


def printed(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sigterm_interrupts_and_the_handler_before_comes_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(interrupts.Terminated, match="SIGTERM"), interrupts.end_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(60)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_thread_can_not_be_interrupted_and_changes_nothing():
    found = []

    def look():
        with interrupts.end_on_sigterm():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


def test_the_exit_code_is_that_of_the_signal():
    assert interrupts.code(KeyboardInterrupt()) == 130
    assert interrupts.code(interrupts.Terminated()) == 143


def test_an_ignored_sigint_is_told_and_any_other_is_not():
    say = [
        sys.executable,
        "-c",
        "import os; from meshmark.core import interrupts as i; print(os.getpid(), i.describe_ignored())",
    ]
    pid, told = printed(deaf(say)).rstrip("\n").split(" ", 1)
    assert told.startswith("Ctrl-C (SIGINT) is ignored here") and f"`kill {pid}` (SIGTERM)" in told
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert interrupts.describe_ignored() == ""
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_the_tests_start_takes_sigint_wherever_they_run():
    inner = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    outer = (
        "import subprocess, sys; from tests.interrupts import interruptible;"
        f"own = [sys.executable, '-c', {inner!r}];"
        "subprocess.run(own, check=True); subprocess.run(interruptible(own), check=True)"
    )
    assert printed(deaf([sys.executable, "-c", outer])).split() == ["True", "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_tests_that_send_sigint_pass_where_it_is_ignored():
    run = [sys.executable, "-m", "pytest", *CORE, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    assert f"{len(CORE)} passed" in printed(deaf(run))
