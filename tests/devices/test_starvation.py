# SPDX-License-Identifier: Apache-2.0
"""Time in which a case waits for a processor does not count towards its deadline, and time in which it sleeps does."""

import os
import subprocess
import sys
import time

import pytest

from meshmark.devices.starvation import SLOWEST, Starvation, with_descendants

counts = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="this system counts no waiting"
)


def write(root, pid, *threads):
    for number, (ran, waited) in enumerate(threads):
        task = root / str(pid) / "task" / str(100 + number)
        task.mkdir(exist_ok=True, parents=True)
        (task / "schedstat").write_text(f"{int(ran * 1e9)} {int(waited * 1e9)} 7\n")


def test_the_share_is_that_since_the_last_look(tmp_path):
    starvation = Starvation(lambda: [1], tmp_path)
    write(tmp_path, 1, (1, 0), (1, 0))
    assert starvation.share(2) == 1
    write(tmp_path, 1, (2, 2), (2, 2))
    assert starvation.share(2) == pytest.approx(1 / 3)
    write(tmp_path, 1, (4, 2), (2, 2))
    assert starvation.share(2) == 1, "the machine is quiet again"


def test_a_process_that_sleeps_is_not_held_up(tmp_path):
    starvation = Starvation(lambda: [1], tmp_path)
    write(tmp_path, 1, (0.05, 0.1))
    assert starvation.share(2) == 1
    write(tmp_path, 1, (0.1, 0.4))
    assert starvation.share(2) == pytest.approx(1 / 7)


def test_a_starved_process_keeps_a_share(tmp_path):
    write(tmp_path, 1, (1, 1000))
    assert Starvation(lambda: [1], tmp_path).share(2) == SLOWEST


def test_other_processes_and_new_threads_count(tmp_path):
    starvation = Starvation(lambda: [1, 2], tmp_path)
    write(tmp_path, 1, (100, 0))
    starvation.share(2)
    write(tmp_path, 1, (100, 0), (1, 1))
    write(tmp_path, 2, (1, 1))
    assert starvation.share(2) == pytest.approx(1 / 2)


@pytest.mark.parametrize("text", [None, "", "1 2", "a b c"])
def test_where_nothing_is_known_all_time_counts(tmp_path, text):
    if text is not None:
        (tmp_path / "1" / "task" / "100").mkdir(parents=True)
        (tmp_path / "1" / "task" / "100" / "schedstat").write_text(text)
    assert Starvation(lambda: [1], tmp_path).share(2) == 1


@counts
def test_this_process_and_its_children_can_be_read():
    assert Starvation()._read()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert {os.getpid(), child.pid} <= set(with_descendants())
        assert any(thread.startswith(f"{child.pid}/") for thread in Starvation()._read())


WATCHED = """
import os, sys, time
from meshmark.devices.watchdog import Watchdog
from meshmark.devices.starvation import Starvation
os.sched_setaffinity(0, {int(sys.argv[1])})
with Watchdog(3.0, sys.stderr, starvation=Starvation()).over():
    until = time.process_time() + 1.5
    while sys.argv[2] == "works" and time.process_time() < until:
        sum(range(1000))
    if sys.argv[2] == "waits":
        time.sleep(60)
"""
"""Work of 1.5 seconds, or a wait for ever, with a deadline of 3 seconds."""


@pytest.fixture
def crowd():
    """A processor on which three other processes are busy."""
    processor = min(os.sched_getaffinity(0))
    busy = f"import os\nos.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3)]
    yield processor
    for other in others:
        other.kill()
        other.wait()


def watched(processor, kind):
    """(exit code, standard error, seconds)."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(processor), kind], capture_output=True, text=True, timeout=100
    )
    return done.returncode, done.stderr, time.monotonic() - began


@counts
@pytest.mark.e2e
def test_a_busy_machine_makes_no_hang_of_work(crowd):
    code, words, seconds = watched(crowd, "works")
    assert code == 0, words
    assert seconds > 5, "nothing was busy"


@counts
@pytest.mark.e2e
def test_a_busy_machine_does_not_keep_a_hang(crowd):
    code, words, seconds = watched(crowd, "waits")
    assert code == 1 and "Timeout" in words
    assert seconds < 12
