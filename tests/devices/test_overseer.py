# SPDX-License-Identifier: Apache-2.0
"""The controller's second watchdog: it ends a worker that is silent past its time, and no other process."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from meshmark.devices import containment
from meshmark.devices.containment import Clock, Overseer, read_clock
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs waitid and pthread_sigmask")

SLEEPS = "import time; time.sleep(60)"
STUBBORN = (
    f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); print(flush=True); {SLEEPS}"
)


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A process that sleeps, known as worker gw0 of a directory; it may be silent for so many seconds."""
    monkeypatch.setattr(containment, "MARGIN", 0.0)
    started = []

    def start(seconds, script=SLEEPS):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        started.append(process)
        if script == STUBBORN:
            process.stdout.readline()
        (tmp_path / "gw0.pid").write_text(str(process.pid))
        Clock(tmp_path / "gw0.until").within(seconds)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_late_worker_is_ended_and_its_death_is_a_hang(worker, tmp_path):
    process = worker(-0.1)
    Overseer(tmp_path)._look_at("gw0", process.pid)
    assert process.wait(PATIENCE) == -signal.SIGABRT
    line, _ = containment.post_mortem(tmp_path, "gw0")
    assert line.verdict == "hang" and "ended from outside" in line.reason


def test_one_that_blocks_every_signal_is_killed(worker, tmp_path):
    process = worker(-0.1, STUBBORN)
    Overseer(tmp_path)._look_at("gw0", process.pid)
    assert process.wait(PATIENCE) == -signal.SIGKILL


@pytest.mark.parametrize("seconds", [60, float("inf")])
def test_one_that_is_in_time_goes_on(worker, tmp_path, seconds):
    process = worker(seconds)
    Overseer(tmp_path)._look_at("gw0", process.pid)
    assert process.poll() is None and not (tmp_path / "gw0.overdue").exists()


def test_a_clock_that_can_t_be_read_ends_nobody(worker, tmp_path):
    process = worker(-0.1)
    (tmp_path / "gw0.until").write_text("soon")
    assert read_clock(tmp_path / "gw0.until") == float("inf")
    Overseer(tmp_path)._look_at("gw0", process.pid)
    assert process.poll() is None


def test_a_process_of_somebody_else_with_the_same_id_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(containment, "MARGIN", 0.0)
    Clock(tmp_path / "gw0.until").within(-0.1)
    Overseer(tmp_path)._look_at("gw0", 1)
    assert not (tmp_path / "gw0.overdue").exists()


def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    """Deadlines are of the monotonic clock: the time of day may be set, on or back."""
    clock = Clock(tmp_path / "gw0.until")
    clock.within(10)
    for jumped in (0.0, 4e9):
        monkeypatch.setattr(time, "time", lambda now=jumped: now)
        assert 0 < read_clock(tmp_path / "gw0.until") - time.monotonic() < 10.01  # written in milliseconds


def test_the_overseer_watches_by_itself(worker, tmp_path):
    process = worker(-0.1)
    overseer = Overseer(tmp_path)
    threading.Thread(target=overseer._watch, daemon=True).start()
    try:
        assert process.wait(PATIENCE) == -signal.SIGABRT
    finally:
        overseer.stop()
