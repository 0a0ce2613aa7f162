# SPDX-License-Identifier: Apache-2.0
"""The review of a comparison, as the comparison itself writes it: its findings follow from its processes."""

import copy
import math

import pytest

from meshmark.publish import comparisons
from meshmark.timing.compare import verdict_lines
from tests.timing.replayed import CASES, Replayed

RUNS = {"a" * 12: {"environment": "A"}, "b" * 12: {"environment": "B"}}
NAMES = {run["environment"]: name for name, run in RUNS.items()}


def lost(side, process, line):
    """A process that loses its cases."""
    if process not in (4, 9):
        return line
    return line | {"verdict": "crash", "reason": "SIGSEGV", "samples_s": []}


@pytest.fixture(scope="module", params=[None, lost], ids=["whole", "with lost cases"])
def written(request):
    """The numbered lines that a comparison writes, in the order in which it writes them."""
    found = [{"kind": "run", "run": name, **run} for name, run in RUNS.items()]
    made = Replayed(1.2, fault=request.param).comparison(
        write=lambda lines: found.extend(x | {"run": NAMES[x["environment"]]} for x in lines)
    )
    made.prepare()
    made.proceed()
    found += [line | {"run": NAMES["B"]} for line in verdict_lines(made.outcomes, made.left_out)]
    return list(enumerate(found, 1))


def said(lines):
    return [text for _, text in comparisons.of_file(lines, RUNS)]


def test_what_a_comparison_writes_is_accepted(written):
    findings = [r for _, r in written if r.get("what") == "verdict"]
    assert {r["case"] for r in findings} == set(CASES) and {r["verdict"] for r in findings} == {"slower"}
    assert said(written) == []


def test_one_faster_process_changes_the_ratio(written):
    lines = copy.deepcopy(written)
    (number, record), *_ = [x for x in lines if x[1].get("what") == "verdict"]
    record["ratio"] *= 1.001
    found = list(comparisons.of_file(lines, RUNS))
    assert len(found) == 1 and found[0][0] == number and "and its processes give" in found[0][1]
    record["ratio"] = math.nan
    assert "the ratio is nan" in said(lines)[0]


def test_a_pair_that_is_taken_away_is_missed(written):
    lines = [x for x in written if x[1].get("process") not in (0, 1)]
    assert sum("pairs of processes, and" in text for text in said(lines)) == len(CASES)
