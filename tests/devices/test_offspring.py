# SPDX-License-Identifier: Apache-2.0
"""Processes that a case starts end with it. The tests run in a process of their own, because they fork and adopt."""

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE, gone, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

START = """
import os, subprocess, sys, time
from meshmark.devices import offspring
offspring.adopt()
early = subprocess.Popen(["sleep", "600"])
with offspring.ended_after():
    pids = [subprocess.Popen(["sleep", "600"]).pid]
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if (pid := os.fork()) == 0:
            time.sleep(600)
        os.write(writing, str(pid).encode())
        os._exit(0)
    pids.append(int(os.read(reading, 100)))
print(*pids, early.pid, flush=True)
assert early.poll() is None
early.kill()
early.wait()
"""

COPY = """
import os
from meshmark.devices import offspring
with offspring.ended_after():
    os.fork()
print("once", flush=True)
"""


def ran(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)


def test_what_is_started_inside_ends_wherever_it_went_and_what_was_there_stays():
    done = ran(START)
    assert done.returncode == 0, done.stderr
    child, grandchild, early = map(int, done.stdout.split())
    assert until(lambda: all(map(gone, (child, grandchild, early))))


def test_a_forked_copy_does_not_go_on():
    done = ran(COPY)
    assert (done.returncode, done.stdout) == (0, "once\n")
