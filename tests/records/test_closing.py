# SPDX-License-Identifier: Apache-2.0
"""The closing line: a file that was cut, changed or put together is not read as a complete one."""

import json

import pytest

from meshmark.core.verdicts import Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.records import closing
from meshmark.records.reading import RecordError, read_records
from meshmark.records.writing import Writer, dumps

NAMES = [f"psum/axes=x+y/{mode}/2x4/float32/4KiB" for mode in ("auto", "explicit", "manual")]
FACTS = {"versions": {"jax": "0.12.0.1"}, "num_devices": 8, "num_processes": 1}
RUN = {"facts": FACTS, "selection": {"profile": "smoke"}, "seed": 0, **closing.CLOSES}


def judged(name, verdict="pass"):
    lines = [
        Line("execute"),
        Line("numbers", verdict, "" if verdict == "pass" else "wrong", {"bits": "0" * 16}),
    ]
    return case_lines(cases.find(name, 8), lines, 0, 0.25)


def written(directory, end=0, of=NAMES, chosen=NAMES, run=RUN):
    """The file of a run that judged these cases; end: its exit code, None where it did not end."""
    writer = Writer.create(directory / "r.jsonl", run)
    writer.choose(chosen)
    for name in of:
        writer.write(judged(name))
    if end is not None:
        writer.end(end)
    writer.close()
    return writer.path


def cut_to(path, number):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:number]))
    return path


def test_a_whole_file_has_nothing_to_be_said_of_its_end(tmp_path):
    found = read_records(written(tmp_path))
    assert (found.state, found.problems, found.cut) == ("", [], "")
    assert found.ends[0]["cases"] == found.chosen[0]["cases"] == 3
    assert found.ends[0]["verdicts"] == {"pass": 3} and found.ends[0]["lines"] == 8


@pytest.mark.parametrize(
    ("kept", "there"), [(1, "0 cases are there, and it had not chosen yet"), (2, "0 of 3 chosen cases are there"),
                        (4, "1 of 3 chosen cases are there"), (5, "1 of 3 chosen cases are there"),
                        (6, "2 of 3 chosen cases are there"), (8, "3 of 3 chosen cases are there")],
)  # fmt: skip
def test_a_cut_behind_any_line_is_seen(tmp_path, kept, there):
    found = read_records(cut_to(written(tmp_path), kept))
    assert found.state == found.cut == f"the run did not end: {there}" and not found.problems


def changed(path, change):
    """The file with other lines."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(dumps(line) + "\n" for line in change(lines)))
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: [*lines, lines[2]], ":10: a line behind the closing line"),
        (lambda lines: [*lines, lines[-1]], ":10: a line behind the closing line"),
        (lambda lines: [*lines[:-1], lines[-1], lines[-1] | {"lines": 8 + 1}], "behind the closing line"),
        (lambda lines: [*lines[:-1], lines[-1] | {"cases": 4}], "says cases 4, and the lines before it 3"),
        (lambda lines: [*lines[:-1], lines[-1] | {"timings": 1}], "says timings 1"),
        (lambda lines: [*lines[:-1], lines[-1] | {"run": "0" * 12}], "is not of the run before it"),
        (lambda lines: [*lines[:4], *lines[6:]], "says cases 3, and the lines before it 2"),
        (lambda lines: [*lines[:4], *lines[6:8], *lines[4:6], lines[-1]], "says digest"),
        (lambda lines: [*lines[:3], lines[3] | {"bits": "1" * 16}, *lines[4:]], "says digest"),
        (lambda lines: [*lines[:3], lines[3] | {"verdict": "fail"}, *lines[4:]], "says verdicts"),
        (lambda lines: [*lines[:4], lines[2], lines[3], *lines[4:]], "says lines 8, and the lines before it 10"),
        (lambda lines: [*lines[:1], lines[1] | {"cases": 4}, lines[-1]], "says cases 3"),
        (lambda lines: lines + lines, ":10: a line behind the closing line"),
    ],
    ids=["appended", "two", "two that differ", "count", "timings", "run", "taken out", "order", "bits", "verdict",
         "twice", "all taken out", "two files in one"],
)  # fmt: skip
def test_a_changed_file_is_a_problem_for_every_reader_and_is_not_gone_on_with(tmp_path, change, told):
    path = changed(written(tmp_path), change)
    assert any(told in problem for problem in read_records(path).problems), read_records(path).problems
    with pytest.raises(RecordError, match="can't resume"):
        Writer.resume(path, RUN)


@pytest.mark.parametrize(("code", "of"), [(2, NAMES[:1]), (0, NAMES[:2]), (130, NAMES), (3, NAMES)])
def test_a_run_that_ended_early_says_so(tmp_path, code, of):
    state = read_records(written(tmp_path, code, of)).state
    assert state == f"the run ended early, with exit code {code}: {len(of)} of 3 chosen cases are there"


def test_other_cases_than_were_chosen_are_not_all_of_them(tmp_path):
    other = [*NAMES[:2], NAMES[0].replace("4KiB", "64KiB")]
    assert "3 of 3 chosen cases are there" in read_records(written(tmp_path, 0, NAMES, other)).state


def test_a_file_of_an_earlier_version_is_read_as_before(tmp_path):
    old = {k: v for k, v in RUN.items() if k != "closes"}
    writer = Writer.create(tmp_path / "r.jsonl", old)
    writer.write(judged(NAMES[0]))
    writer.close()
    found = read_records(writer.path)
    assert found.state == closing.OLD and found.cut == "" and not found.problems


@pytest.mark.parametrize("end", [None, 2])
def test_a_resumed_file_closes_once(tmp_path, end):
    path = written(tmp_path, end, NAMES[:1])
    writer, done = Writer.resume(path, RUN)
    assert list(done) == NAMES[:1]
    writer.choose(NAMES)
    for name in NAMES[1:]:
        writer.write(judged(name))
    writer.end(0)
    writer.end(1)
    assert writer.changed() == ""
    writer.close()
    found = read_records(path)
    assert (found.state, found.problems, len(found.ends), len(found.runs)) == ("", [], 1, 2)


def test_a_torn_line_does_not_hide_that_the_run_did_not_end(tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    found = read_records(path)
    assert found.cut == "the run did not end: 3 of 3 chosen cases are there" and len(found.problems) == 1
    writer, done = Writer.resume(path, RUN)
    writer.choose(NAMES)
    writer.end(0)
    writer.close()
    assert len(done) == 3 and read_records(path).state == ""
