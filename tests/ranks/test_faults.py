# SPDX-License-Identifier: Apache-2.0
"""The most informative faults of the catalogue (tox run -e processes-faults runs all of them)."""

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.checkout import ROOT
from tests.ranks import faults, faults_around, staging
from tests.waiting import PATIENCE, until

AT_ONCE = 3
"""They mostly wait."""

CHOSEN = {fault.name: fault for fault in faults.CATALOGUE if fault.ci}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc"),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What came of each fault that can be had here, as a future; several are run at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(staging.observed, fault, tmp_path_factory.mktemp("fault"))
            for name, fault in CHOSEN.items()
            if not fault.missing()
        }


@pytest.mark.parametrize("name", CHOSEN)
def test_fault(outcomes, name):
    fault = CHOSEN[name]
    if without := fault.missing():
        pytest.skip(without)
    seen = outcomes[name].result()
    told = staging.wrong(fault, seen)
    assert not told, "\n".join([*told, *seen.texts])


def seen(fault, **changed):
    """What is as it must be, but for what is changed."""
    verdicts = {m: v for m, v in zip(staging.CASES, ("pass", "fail", "pass"), strict=True) if v}
    well = {
        "codes": list(fault.codes),
        "texts": ["numbers: fail: rank 1: 1 of 4 differ", ""],
        "seconds": 1.0,
        "left": [],
        "verdicts": verdicts,
        "problems": [],
        "merged": True,
        "agreed": ["rank 1: 1 of 4 differ"],
        "cases": [{"a"}, {"a"}],
        "deadline": float(staging.DEADLINE),
    }
    return staging.Seen(**(well | changed))


WRONG = {
    "exit codes": {"codes": [1, 0]},
    "verdicts": {"verdicts": {"auto": "pass", "explicit": "pass", "manual": "pass"}},
    "nobody says": {"texts": ["rank 1: 1 of 4 differ"]},
    "the last line is cut off": {"problems": ["FILE:3: the last line is cut off"]},
    "a traceback": {"texts": ["numbers: fail: rank 1: 1 of 4 differ", "Traceback (most recent call last):"]},
    "1 processes are left": {"left": [7]},
    "99.0 s, more than": {"seconds": 99.0},
    "were not merged": {"merged": False},
    "and the run did not": {"agreed": ["rank 0: 2 of 4 differ"]},
    "judged different cases": {"cases": [{"a"}, {"a", "b"}]},
}


@pytest.mark.parametrize(("told", "changed"), WRONG.items(), ids=WRONG)
def test_each_check_of_an_outcome_can_fail(told, changed):
    fault = CHOSEN["a wrong shard on one rank"]
    assert staging.wrong(fault, seen(fault)) == []
    (found,) = staging.wrong(fault, seen(fault, **changed))
    assert told in found


def test_a_longer_deadline_gives_longer_time():
    fault = CHOSEN["a wrong shard on one rank"]
    assert staging.wrong(fault, seen(fault, seconds=staging.DEADLINE + staging.SLACK + 5.0))
    assert not staging.wrong(
        fault, seen(fault, seconds=staging.DEADLINE + staging.SLACK + 5.0, deadline=20.0)
    )


def test_a_machine_on_which_ranks_start_slowly_gives_longer_time():
    fault = CHOSEN["a rank is late by 3 s"]
    late = seen(
        fault, seconds=2 * fault.allowed - 1, verdicts=dict.fromkeys(staging.CASES, "pass"), agreed=[]
    )
    late.texts[0] = "3 cases: 3 pass"
    (told,) = staging.wrong(fault, late)
    assert f"more than {fault.allowed:.0f}" in told
    late.slowness = 2.0
    assert staging.wrong(fault, late) == []


def test_a_process_that_is_left_is_found_wherever_it_went(tmp_path):
    stage = staging.Stage(tmp_path)
    stage.start(["setsid", "--fork", "sleep", "60"], None)
    try:
        assert stage.finish() == [0]
        assert until(lambda: len(stage.left()) == 1), "it was just becoming another program"
    finally:
        stage.end()
    assert until(lambda: not stage.left()), "whoever took it over collects it in a moment"


LATE = """
import ctypes, faulthandler, os, sys, threading, time
from meshmark.ranks import endings
faulthandler.enable()
endings.abort_late()
print("start", flush=True)
if len(sys.argv) > 1:
    threading.Thread(target=lambda: (time.sleep(0.5), os._exit(3))).start()
ctypes.CDLL(None).abort()  # which, unlike os.abort, holds no GIL: as in the threads of JAX
"""


def test_an_abort_leaves_time_to_leave_in_order_and_aborts_then():
    def aborted(*arguments):
        command = [sys.executable, "-c", LATE, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout.readline() == b"start\n"
            start = time.monotonic()
            told = child.stderr.read()
            return child.wait(PATIENCE), time.monotonic() - start, told

    code, _, told = aborted("leaves")
    assert code == 3 and b"Fatal Python error: Aborted" in told
    code, ended, _ = aborted()
    assert code == -signal.SIGABRT and ended > 5


def test_names_are_unique():
    every = faults.CATALOGUE
    assert len({fault.name for fault in every}) == len(every) >= 65


def test_documents_count_the_faults_that_the_page_lists():
    page = (ROOT / "docs" / "process-faults.md").read_text(encoding="utf-8")
    (number,) = re.findall(r", (\d+) faults\)", page)
    assert page.count("\n| ") - 1 == int(number)
    for name, says in (
        ("method", r"\| (\d+) faults of real processes"),
        ("processes", r"lists (\d+) such faults"),
    ):
        assert re.findall(says, (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")) == [number]


def test_a_launch_that_collects_only_ends_with_0(tmp_path):
    stage = staging.Stage(tmp_path)
    try:
        stage.start(faults_around.launcher(stage, 2, "--collect-only"), None)
        assert stage.finish() == [0], stage.outputs[0].read_text()
    finally:
        stage.end()
