# SPDX-License-Identifier: Apache-2.0
"""A clock that is slower or faster than the kernel's is found. A machine that slept or waits is not taken for one."""

import os
import shutil
import subprocess
import sys
from math import nan

import pytest

from meshmark.core import clocks
from tests.checkout import ROOT
from tests.waiting import PATIENCE


class Machine:
    """The kernel's seconds, and a clock that counts them with a factor, in the place of the real ones."""

    def __init__(self, monkeypatch, factor=1.0, says=True):
        self.seconds, self.awake, self.factor, self.says = 1000.0, 1000.0, factor, says
        monkeypatch.setattr(clocks.time, "perf_counter", lambda: self.awake * self.factor)
        monkeypatch.setattr(clocks.time, "sleep", self.go_on)
        monkeypatch.setattr(clocks, "kernel", lambda: round(self.seconds, 2) if says else nan)

    def go_on(self, seconds, awake=True):
        self.seconds += seconds
        self.awake += seconds if awake else 0.0


@pytest.mark.parametrize("factor", [1 / 3, 0.9, 0.98, 1.02, 3.0])
def test_another_clock_is_found(monkeypatch, factor):
    machine = Machine(monkeypatch, factor)
    watch = clocks.Watch()
    machine.go_on(30)
    assert "where the kernel counts" in watch.problem()
    assert watch.problem(), "and every time it is asked"


def test_the_right_clock_is_right(monkeypatch):
    machine = Machine(monkeypatch)
    watch = clocks.Watch()
    for seconds in (0.001, 0.1, 1000, 1e6):
        machine.go_on(seconds)
        assert watch.problem() == ""


def test_a_machine_that_slept_is_looked_at_again(monkeypatch):
    machine = Machine(monkeypatch)
    watch = clocks.Watch()
    machine.go_on(3600, awake=False)
    assert watch.problem() == ""
    machine.factor = 0.5
    machine.go_on(10)
    assert watch.problem()


def test_where_the_kernel_says_nothing_nothing_is_known(monkeypatch, tmp_path):
    machine = Machine(monkeypatch, 0.1, says=False)
    watch = clocks.Watch()
    machine.go_on(100)
    assert watch.problem() == ""
    monkeypatch.undo()
    for text in ("", "up since yesterday"):
        (tmp_path / "uptime").write_text(text)
        monkeypatch.setattr(clocks, "UPTIME", tmp_path / "uptime")
        assert clocks.kernel() != clocks.kernel(), "not a number"


SLOW = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    long long third = (now->tv_sec * 1000000000LL + now->tv_nsec) / 3;
    now->tv_sec = third / 1000000000LL;
    now->tv_nsec = third % 1000000000LL;
    return failed;
}
"""
WATCHED = """
from meshmark.core.clocks import Watch, kernel
watch, begun = Watch(), kernel()
while kernel() - begun < 0.6:
    pass
print(watch.problem() or "right")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the clock is compared with /proc/uptime")
def test_a_library_that_is_loaded_before_all_others(tmp_path):
    said = []
    variables = [{}]
    if compiler := shutil.which("cc"):
        (tmp_path / "slow.c").write_text(SLOW)
        library = tmp_path / "slow.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "slow.c"], check=True)
        variables.append({"LD_PRELOAD": str(library)})
    for more in variables:
        path = {"PYTHONPATH": str(ROOT / "harness")}
        done = subprocess.run(
            [sys.executable, "-c", WATCHED],
            env=os.environ | path | more,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said[0] == "right"
    assert all("where the kernel counts" in text for text in said[1:])
