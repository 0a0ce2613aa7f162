# SPDX-License-Identifier: Apache-2.0
"""Counting: cases without a verdict are named, and the exit code of their session is not 0."""

from types import SimpleNamespace

import pytest

from meshmark.core.verdicts import Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.pytest_plugin import counting
from meshmark.pytest_plugin.controller import Controller
from meshmark.pytest_plugin.counting import FEW, Count
from meshmark.pytest_plugin.stashed import COLLECTED, CONTROLLER, JUDGED, TRIALS
from meshmark.pytest_plugin.trials import case_of
from meshmark.records import reading
from meshmark.records.writing import Writer

OK, FAILED, INTERRUPTED, INTERNAL, NONE = (
    *(pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED),
    *(pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED),
)
CASES = [f"psum/plain/auto/2x4/float32/{number}B" for number in range(30)]


def counted(judged, status=OK, collected=CASES, problems=(), **session):
    config = SimpleNamespace(
        stash={TRIALS: {"x": [SimpleNamespace(id=case) for case in CASES]}}, option=SimpleNamespace()
    )
    count = Count(config, judged)
    if collected is not None:
        count.add(f"conformance/test_x.py::test_x[{case}]" for case in collected)
    for problem in problems:
        count.problem(problem)
    found = SimpleNamespace(**({"exitstatus": status, "shouldstop": False, "shouldfail": False} | session))
    count.settle(found)
    return found.exitstatus, count.lines()


def test_a_session_with_every_verdict_ends_as_pytest_says():
    for status in (OK, FAILED, INTERRUPTED, INTERNAL):
        assert counted(CASES, status) == (status, [])


def test_a_missing_verdict_is_named_and_fails():
    code, lines = counted(CASES[:-2])
    assert code == FAILED
    assert lines == [
        "2 of 30 chosen cases have no verdict:",
        *(f"  no verdict: {case}" for case in CASES[-2:]),
    ]


def test_every_missing_case_is_named_where_the_session_went_through():
    assert len(counted([])[1]) == 31


def test_some_are_named_where_somebody_ended_it():
    for more in ({"status": INTERRUPTED}, {"status": FAILED, "shouldstop": "stopping after 1 failures"}):
        code, lines = counted([], **more)
        assert code == more["status"]
        assert len(lines) == FEW + 2 and lines[-1] == "  and 10 more"


def test_a_session_that_collected_nothing_does_not_end_well():
    assert counted([], collected=None) == (FAILED, ["no case was collected"])
    assert counted([], NONE, collected=[]) == (NONE, [])


def test_what_is_no_case_is_not_counted():
    assert counted([], collected=["test_of_a_vendor", "x/y"]) == (OK, [])


def test_an_internal_error_is_never_well():
    code, lines = counted(CASES, problems=["internal error: RuntimeError: x"])
    assert (code, lines) == (INTERNAL, ["internal error: RuntimeError: x"])


def test_another_problem_fails():
    assert counted(CASES, problems=["a worker died outside of a case: SIGKILL"])[0] == FAILED
    assert counted(CASES, FAILED, problems=["a"])[0] == FAILED


def test_the_case_of_a_node_id():
    assert case_of("a/test_b.py::test_b[psum/x@v5e:2x4]") == "psum/x@v5e:2x4"
    assert case_of("a/test_b.py::test_b[psum/x]@group") == "psum/x"
    assert case_of("a/test_b.py::test_b") == ""


# What is taken away without a word -------------------------------------------------------------------------


def collected(args=("tests",), **options):
    """A session's config, and its items: all of the cases were collected."""
    stash = pytest.Stash()
    stash[TRIALS] = {"x": [SimpleNamespace(id=case) for case in CASES]}
    option = SimpleNamespace(**options)
    config = SimpleNamespace(
        stash=stash,
        option=option,
        args=list(args),
        getoption=lambda name, default=None: getattr(option, name, default),
    )
    items = [SimpleNamespace(nodeid=f"a.py::x[{case}]", config=config) for case in CASES]
    for item in items:
        counting.note_collected(item)
    return config, items


def test_what_was_collected_and_is_not_there_was_taken_away():
    config, items = collected()
    assert counting.taken_away(config, items) == []
    assert counting.taken_away(config, items[2:]) == CASES[:2]
    counting.note_deselected(items[:1])
    assert counting.taken_away(config, items[2:]) == CASES[1:2], "one was taken away with a word"


@pytest.mark.parametrize("directory", counting.SUITES)
def test_where_the_suite_is_named_all_of_its_cases_are_expected(directory):
    config, items = collected([str(directory)])
    del config.stash[COLLECTED]["a.py::x[" + CASES[0] + "]"]  # its file was never collected
    assert counting.taken_away(config, items[1:]) == CASES[:1]
    for options in ({"lf": True}, {"ignore": ["x"]}, {"ignore_glob": ["x*"]}):
        config.getoption = lambda name, default=None, given=options: given.get(name, default)
        assert counting.taken_away(config, items[1:]) == []
    config.args = [f"{directory}/test_x.py::test_x"]
    assert counting.taken_away(config, items[1:]) == []


def test_where_a_file_is_named_all_cases_of_its_family_are_expected():
    config, _ = collected([str(counting.SUITES[0] / "test_views.py")])
    config.stash[TRIALS] = {"views": [SimpleNamespace(id=case) for case in CASES]}
    config.stash[COLLECTED].clear()  # an option of pytest renamed what a test is
    assert counting.taken_away(config, []) == CASES
    config.args = [f"{config.args[0]}::test_views"]
    assert counting.taken_away(config, []) == []
    config.args = [str(counting.SUITES[0] / "test_nothing.py")]
    assert counting.taken_away(config, []) == []


def test_a_worker_without_the_suite_is_told():
    config, _ = collected()
    count = counting.Count(config, CASES)
    count.pytest_testnodedown(SimpleNamespace())
    assert not count.problems, "it died, and that is told elsewhere"
    count.pytest_testnodedown(SimpleNamespace(workeroutput={"resident": 1}))
    assert "ended without the suite's plugin" in next(iter(count.problems))


def test_what_was_taken_away_has_no_verdict():
    config, items = collected()
    config.option.numprocesses = 0
    count = counting.Count(config, CASES[1:])
    count.pytest_collection_finish(SimpleNamespace(items=items[1:]))
    session = SimpleNamespace(exitstatus=OK, shouldstop=False, shouldfail=False)
    count.settle(session)
    assert session.exitstatus == FAILED and count.missing == CASES[:1]
    assert "  a conftest.py or a plugin took 1 of them away without a word" in count.lines()
    counted_again = counting.Count(config, CASES[1:])
    counted_again.pytest_testnodedown(SimpleNamespace(workeroutput={"taken": CASES[:1]}))
    assert list(counted_again.taken) == CASES[:1]


def test_what_was_deselected_is_told_and_not_missed():
    config, items = collected()
    config.option.numprocesses = 0
    counting.note_deselected(items[:2])
    count = counting.Count(config, CASES[2:])
    count.pytest_collection_finish(SimpleNamespace(items=items[2:]))
    session = SimpleNamespace(exitstatus=OK, shouldstop=False, shouldfail=False)
    count.settle(session)
    assert session.exitstatus == OK
    told = [f"2 cases were deselected, by an option or a plugin, such as {CASES[0]}"]
    assert count.lines() == told
    of_a_worker = counting.Count(config, CASES[2:])
    of_a_worker.pytest_testnodedown(SimpleNamespace(workeroutput={"deselected": CASES[:2], "taken": []}))
    assert of_a_worker.lines() == told
    assert counting.Count(config, CASES).lines() == [], "a resumed run has judged them before"


def test_records_that_were_changed_on_their_way_are_told():
    config = SimpleNamespace(stash=pytest.Stash())
    for case in CASES[:3]:
        counting.note_judged(config, case, '"fail"')
    count = counting.Count(config, CASES)
    count.came[CASES[0]].append(counting.digest_text('"fail"'))
    count.came[CASES[1]].append(counting.digest_text('"pass"'))
    count.pytest_testnodedown(SimpleNamespace(workeroutput={"judged": config.stash[JUDGED], "taken": []}))
    assert list(count.problems) == [
        f"{CASES[1]}: its records are not those that were judged: a plugin has changed them"
    ]


# What is judged again, and how the session ends ------------------------------------------------------------


def test_the_worst_of_what_a_case_got_counts():
    config = SimpleNamespace(stash={CONTROLLER: None})
    controller = object.__new__(Controller)
    controller.config, controller.writer, controller.cases, controller.judged = config, None, {}, set()
    for verdict in ("pass", "fail", "pass"):
        controller.take([{"case": CASES[0], "verdict": verdict, "reason": verdict, "check": "numbers"}])
    assert controller.cases[CASES[0]].verdict == "fail"


def test_records_that_no_reader_would_take_are_an_error_of_the_case(tmp_path):
    config = SimpleNamespace(stash={CONTROLLER: None, TRIALS: {}})
    controller = object.__new__(Controller)
    controller.config, controller.cases, controller.judged = config, {}, set()
    controller.count = Count(config, controller.cases)
    controller.writer = Writer.create(tmp_path / "r.jsonl", {"facts": {}})
    case = cases.find("psum/axes=x+y/manual/2x4/float32/4KiB", 8)
    controller.take(case_lines(case, [Line("numbers")], 0, -1.0))
    controller.writer.close()
    found = reading.read_records(tmp_path / "r.jsonl")
    assert (
        found.problems == [] and found.cases[case.id].verdict == controller.cases[case.id].verdict == "error"
    )
    assert "`seconds` must be a number from 0" in found.cases[case.id].reason
    assert case.id in next(iter(controller.count.problems))


@pytest.mark.parametrize("option", ["lf", "ignore", "ignore_glob"])
def test_cases_of_files_that_an_option_left_out_are_deselected(option):
    """pytest collects none of them, and calls no hook: the option may stand in a configuration file."""
    suite = str(counting.SUITES[0])
    collected = {f"conformance/test_x.py::test_x[{case}]": True for case in CASES[:2]}
    trials = {"x": [SimpleNamespace(id=case) for case in CASES]}

    def config(given, *args):
        chosen = {option: given}
        return SimpleNamespace(
            stash={TRIALS: trials, COLLECTED: collected},
            args=list(args),
            getoption=lambda n, _=None: chosen.get(n),
        )

    assert counting.deselected(config(True, suite)) == CASES[2:]
    assert counting.deselected(config(True, suite + "/test_x.py")) == []
    assert counting.deselected(config(None, suite)) == []
