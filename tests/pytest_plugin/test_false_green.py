# SPDX-License-Identifier: Apache-2.0
"""No verdict is lost: a sample of the false-green table (tox run -e false-green runs all of it)."""

import sys
from collections import Counter

import pytest

from meshmark.records import reading
from tests.trouble import false_green
from tests.trouble.false_green import WAYS, Way
from tests.trouble.runs import Run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc"),
]

SAYING = tuple(
    dict.fromkeys(
        way.trouble
        for way in WAYS
        if way.verdict == "error" and way.run == false_green.WORKER and not (way.saboteur or way.environment)
    )
)
"""The troubles that a case brings about by what it says or raises: one worker survives them all."""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """One run of all that a case may say, beside two that leave processes behind and pass."""
    path = tmp_path_factory.mktemp("said") / "records.jsonl"
    troubles = ",".join((*SAYING, "forks_and_goes_on", "forks_and_passes"))
    options = ("--meshes", "2x4", "-n", "1", "--record", path)
    with Run(*options, MESHMARK_TROUBLE=troubles) as run:
        run.finish()
        assert run.gone(), "a process is left"
    return run, reading.read_records(path)


@pytest.mark.parametrize("trouble", SAYING)
def test_whatever_a_case_says_or_raises_is_its_verdict(said, trouble):
    run, records = said
    case = f"{trouble}/plain/manual/2x4/float32/4KiB"
    assert records.cases[case].verdict == "error"
    assert case in run.output


def test_every_case_beside_them_has_its_verdict_once(said):
    run, records = said
    assert run.code == 1 and not records.problems
    assert records.state == "" and records.ends[0]["exit_code"] == 1, "the file is closed, whatever cases did"
    assert Counter(one.verdict for one in records.cases.values()) == {
        "error": len(SAYING),
        "pass": 2 * len(SAYING) + 6,
    }
    assert "no verdict" not in run.output
    assert "\x1b[2J" not in run.output and "\0" not in run.output


CHOSEN = {f"{way.name} {way.run}": way for way in WAYS if way.ci}


@pytest.mark.parametrize("name", CHOSEN)
def test_no_false_green(tmp_path, name):
    seen = false_green.observed(CHOSEN[name], tmp_path)
    assert not false_green.wrong(CHOSEN[name], seen), seen.output


def test_each_check_of_a_way_can_fail():
    way = Way("a way", "surrogate", "error")
    well = {"code": 1, "output": way.case, "verdict": "error", "seconds": 1.0, "left": False}
    assert false_green.wrong(way, false_green.Seen(**well)) == []
    for changed, told in (
        ({"code": 0}, "exit code 0"),
        ({"code": 2}, "exit code 2"),
        ({"verdict": "pass"}, "verdict pass"),
        ({"output": "surrogate"}, "the case is not named"),
        ({"output": way.case + "\x1b[2J"}, "an escape"),
        ({"left": True}, "a process is left"),
    ):
        (found,) = false_green.wrong(way, false_green.Seen(**(well | changed)))
        assert told in found


def test_ways_are_unique():
    assert len({(way.name, way.run) for way in WAYS}) == len(WAYS) >= 60
