# SPDX-License-Identifier: Apache-2.0
"""The parts of one timed run: a resumed run, and launches over ranks, have a run line for each part."""

import pytest

from meshmark.publish import consistent
from tests import submissions

CASE = "psum/axes=x/manual/8/float32/4KiB"


def problems(*parts, repeat=6):
    """What is said of a file whose parts have these processes, in order."""
    facts = submissions.facts()
    runs = {f"run{i}": {"facts": facts, "repeat": repeat, "started": str(i)} for i in range(len(parts))}
    lines = [{"case": CASE, "run": f"run{i}", "process": p} for i, part in enumerate(parts) for p in part]
    return [text for _, text in consistent.missing_processes(list(enumerate(lines)), runs)]


@pytest.mark.parametrize(
    "parts",
    [
        [range(6)],
        [range(4), range(4, 6)],
        [[0], [1], [2], [3], [4], [5]],
    ],
)
def test_honest_parts_are_accepted(parts):
    assert problems(*parts) == []


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([[0, 1, 3, 4, 5]], "not timed in process 2, and its run had 6"),
        ([[0, 1], [3, 4, 5]], "not timed in process 2, and its run had 6"),
        ([range(6), [2]], "timed in process 2 again after process 5"),
        ([[0, 2, 4], [1, 3, 5]], "timed in process 1 again after process 4"),
        ([range(2), range(2, 4)], "not timed in process 4, and its run had 6: go on with the run (--resume)"),
    ],
)
def test_the_best_processes_of_several_runs_are_refused(parts, told):
    [text] = problems(*parts)
    assert told in text


def test_parts_of_another_run_do_not_count():
    facts = submissions.facts()
    runs = {"a": {"facts": facts, "repeat": 2, "seed": 0}, "b": {"facts": facts, "repeat": 2, "seed": 1}}
    lines = [{"case": CASE, "run": "a", "process": 0}, {"case": CASE, "run": "b", "process": 1}]
    one, other = [text for _, text in consistent.missing_processes(list(enumerate(lines)), runs)]
    assert "not timed in process 1, and its run had 2" in one
    assert "not timed in process 0, and its run had 2" in other
