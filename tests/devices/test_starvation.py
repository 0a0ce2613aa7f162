# SPDX-License-Identifier: Apache-2.0
"""A starved process has more time for a case, and no more than the longest."""

import itertools
import os

import pytest

from meshmark.devices import containment
from meshmark.devices.starvation import Starvation


def write(directory, *threads):
    for number, (ran, waited) in enumerate(threads):
        task = directory / str(100 + number)
        task.mkdir(exist_ok=True)
        (task / "schedstat").write_text(f"{int(ran * 1e9)} {int(waited * 1e9)} 7\n")


def busy():
    """The clock of a process that works for a second between two looks."""
    return itertools.count().__next__


def test_nothing_is_read_of_a_process_that_has_hardly_run(tmp_path):
    clock = iter([0.0, 0.4, 0.6])
    starvation = Starvation(tmp_path, clock.__next__)
    write(tmp_path, (1, 0))
    assert starvation.factor() == 1
    write(tmp_path, (2, 1))
    assert starvation.factor() == 1, "the clock says 0.4 s"
    assert starvation.factor() == pytest.approx(2), "the clock says 0.6 s"


def test_time_in_the_queue_stretches_what_follows(tmp_path):
    starvation = Starvation(tmp_path, busy())
    write(tmp_path, (1, 0), (1, 0))
    assert starvation.factor() == 1
    write(tmp_path, (2, 2), (2, 2))
    assert starvation.factor() == pytest.approx(3)
    write(tmp_path, (2.1, 2), (2, 2))
    assert starvation.factor() == pytest.approx(3), "a tenth of a second says nothing"
    write(tmp_path, (4, 2), (3, 2))
    assert starvation.factor() == pytest.approx(1), "the machine is quiet again"


@pytest.mark.parametrize("text", [None, "", "1 2", "a b c"])
def test_where_nothing_is_known_nothing_is_stretched(tmp_path, text):
    if text is not None:
        (tmp_path / "100").mkdir()
        (tmp_path / "100" / "schedstat").write_text(text)
    assert Starvation(tmp_path if text is not None else tmp_path / "absent", busy()).factor() == 1


def test_the_deadline_of_a_case_follows_and_ends_at_the_longest(tmp_path):
    starvation = Starvation(tmp_path, busy())
    write(tmp_path, (1, 1))
    with open(os.devnull, "w") as stream:
        watchdog = containment.Watchdog(20.0, stream, starvation=starvation)
        assert watchdog._deadline() == 40
        write(tmp_path, (2, 100))
        assert watchdog._deadline() == containment.LONGEST
        assert containment.Watchdog(20.0, stream)._deadline() == 20
        assert containment.Watchdog(90.0, stream, starvation=starvation)._deadline() == 90


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system counts no waiting")
def test_this_process_can_be_read():
    ran, waited = Starvation()._read()
    assert ran > 0 and waited >= 0
