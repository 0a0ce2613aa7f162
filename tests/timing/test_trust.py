# SPDX-License-Identifier: Apache-2.0
"""Times are given only if the clock is right, and if the verifying and measuring code is that of the sources."""

import numpy as np
import pytest

from meshmark.judge import numbers
from meshmark.timing import measure, timer

pytestmark = pytest.mark.usefixtures("frozen_heap")

CASE = "psum/axes=x+y/manual/2x4/float32/4KiB"


@pytest.fixture
def lines():
    """Times one case in one cadence: gives its lines."""
    job = timer.Job([[CASE]], 8, cadences=["isolated"], seconds=0.001, least=2, most=2)
    timing = timer.Timing(job, None)
    return lambda: timing.cell([CASE])


def test_what_is_timed_where_all_is_well(lines):
    (line,) = lines()
    assert line["verdict"] == "pass" and line["verified"] and len(line["samples_s"]) == 2


def test_another_clock_has_no_times(lines, monkeypatch):
    monkeypatch.setattr(timer.Watch, "problem", lambda self: "the clock counts 1 s where the kernel counts 3")
    (line,) = lines()
    assert line["verdict"] == "error" and not line["verified"] and line["samples_s"] == []
    assert "where the kernel counts" in line["reason"] and "seconds" in line


@pytest.mark.parametrize(
    "module, name, told",
    [
        (numbers, "find_worst_element", r"meshmark\.judge\.numbers\.find_worst_element: replaced"),
        (measure, "perf_counter", r"meshmark\.timing\.measure\.perf_counter: replaced"),
        (measure, "hollow", r"meshmark\.timing\.measure\.hollow: replaced"),
    ],
    ids=["judge", "clock", "measuring"],
)
def test_a_replaced_function_has_no_times(lines, monkeypatch, module, name, told):
    own = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *arguments, **options: own(*arguments, **options))
    (line,) = lines()
    assert line["verdict"] == "error" and line["samples_s"] == []
    assert line["reason"].startswith("what times here is not to be trusted")
    monkeypatch.undo()
    assert timer.doubts() == ""
    monkeypatch.setattr(module, name, lambda *arguments, **options: own(*arguments, **options))
    with pytest.raises(AssertionError, match=told):
        assert not timer.doubts(), timer.doubts()


def test_a_processor_that_rounds_otherwise_is_not_trusted(monkeypatch):
    class Upward(np.ndarray):
        """Sums that are rounded up."""

        def __add__(self, other):
            return np.nextafter(np.asarray(self) + np.asarray(other), np.inf)

    assert timer.doubts() == ""
    own = np.array
    monkeypatch.setattr(np, "array", lambda *arguments, **options: own(*arguments, **options).view(Upward))
    assert "not rounded to the nearest number" in timer.doubts()
