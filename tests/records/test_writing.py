# SPDX-License-Identifier: Apache-2.0
"""Writing records: written lines are read back, and no file is overwritten."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.core.verdicts import Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.records.closing import Account
from meshmark.records.definition import KINDS
from meshmark.records.reading import RecordError, read_records
from meshmark.records.writing import Writer

CASE = "psum/axes=x+y/manual/2x4/float32/4KiB"
RUN = {"facts": {"versions": {"jax": "0.12.0.1"}}, "selection": {"profile": "smoke"}, "seed": 0}


@pytest.fixture
def case():
    return cases.find(CASE, 8)


def test_round_trip(tmp_path, case):
    path = tmp_path / "r.jsonl"
    writer = Writer.create(path, RUN)
    lines = [Line("execute"), Line("numbers", "fail", "wrong", {"error": math.inf, "bound": 0.0})]
    writer.write(case_lines(case, lines, 7, 0.25))
    writer.close()
    found = read_records(path)
    assert not found.problems
    assert found.runs[0]["facts"] == RUN["facts"]
    judged = found.cases[CASE]
    assert (judged.verdict, judged.reason, judged["seed"]) == ("fail", "wrong", 7)
    assert judged["size_bytes"] == 4096
    assert [line["check"] for line in judged.lines] == ["execute", "numbers"]
    assert judged.lines[1]["error"] == "inf"
    assert judged.finished


def test_is_never_overwritten(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("mine")
    with pytest.raises(RecordError, match="exists"):
        Writer.create(path, RUN)
    assert path.read_text() == "mine"


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(RecordError, match="No such file"):
        Writer.create(tmp_path / "none" / "r.jsonl", RUN)


def test_each_line_is_strict_json_with_schema_kind_and_run(tmp_path, case):
    path = tmp_path / "r.jsonl"
    writer = Writer.create(path, RUN)
    writer.write(case_lines(case, [Line("numbers", data={"error": math.nan, "more": [math.inf]})], 0, 1.0))
    for text in path.read_text().splitlines():
        line = json.loads(text, parse_constant=pytest.fail)
        assert line["schema"] == 1 and line["kind"] in KINDS and line["run"] == writer.run


def test_a_run_goes_on_only_with_its_version_of_the_case_table(tmp_path, case):
    """A line without `table` means version 1."""
    whole = RUN | {
        "facts": {"versions": {}, **dict.fromkeys(("backend", "device_kind"), ""), "num_devices": 8}
    }
    whole["facts"]["num_processes"] = 1
    path = tmp_path / "r.jsonl"
    writer = Writer.create(path, whole)
    writer.write(case_lines(case, [Line("numbers")], 0, 1.0))
    writer.close()
    with pytest.raises(
        RecordError, match=r"can't resume .*: it differs from this run in table \('1' and '2'\)"
    ):
        Writer.resume(path, whole | {"table": 2})
    writer, done = Writer.resume(path, whole | {"table": 1})
    writer.close()
    assert list(done) == [CASE]


WHOLE = RUN | {
    "facts": {
        "versions": {"jax": "0.12.0.1", "python": "3.12.1"},
        "backend": "cpu",
        "flags": {"XLA_FLAGS": "--a", "JAX_COORDINATOR_ADDRESS": "127.0.0.1:1"},
        "host": {"system": "Linux", "machine": "x86_64", "cores": 2},
        "suite": {"version": "0.1.0", "commit": "a" * 40, "clean": True, "digest": "0" * 16},
    }
}


def test_a_run_goes_on_where_it_was_begun(tmp_path, case):
    """Ports differ from start to start; nothing else does."""
    path = interrupted(tmp_path, case)
    moved = WHOLE["facts"]["flags"] | {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:2"}
    writer, done = Writer.resume(path, WHOLE | {"facts": WHOLE["facts"] | {"flags": moved}})
    writer.close()
    assert list(done) == [CASE]


@pytest.mark.parametrize(
    ("told", "change"),
    {
        "suite commit": {"suite": WHOLE["facts"]["suite"] | {"commit": "b" * 40}},
        "suite clean": {"suite": WHOLE["facts"]["suite"] | {"clean": False}},
        "suite digest": {"suite": WHOLE["facts"]["suite"] | {"digest": "1" * 16}},
        "flags.XLA_FLAGS": {"flags": {"XLA_FLAGS": "--b"}},
        "flags.LIBTPU_INIT_ARGS": {"flags": WHOLE["facts"]["flags"] | {"LIBTPU_INIT_ARGS": "--x"}},
        "versions.python": {"versions": {"jax": "0.12.0.1", "python": "3.13.0"}},
        "versions.jax": {"versions": {"jax": "0.11.2", "python": "3.12.1"}},
        "host.cores": {"host": WHOLE["facts"]["host"] | {"cores": 64}},
        "backend": {"backend": "tpu"},
    }.items(),
)
def test_a_run_does_not_go_on_in_another_environment(tmp_path, case, told, change):
    path = interrupted(tmp_path, case)
    before = path.read_bytes()
    with pytest.raises(RecordError, match=rf"differs from this run in {told} \("):
        Writer.resume(path, WHOLE | {"facts": WHOLE["facts"] | change})
    assert path.read_bytes() == before


def test_a_run_does_not_go_on_with_another_seed(tmp_path, case):
    with pytest.raises(RecordError, match=r"in seed \('0' and '1'\)"):
        Writer.resume(interrupted(tmp_path, case), WHOLE | {"seed": 1})


def interrupted(directory, case):
    """The file of a run that judged one case."""
    writer = Writer.create(directory / "r.jsonl", WHOLE)
    writer.write(case_lines(case, [Line("numbers")], 0, 1.0))
    writer.close()
    return writer.path


def test_a_file_has_one_writer(tmp_path, case):
    path = interrupted(tmp_path, case)
    first, _ = Writer.resume(path, WHOLE)
    before = path.read_bytes()
    with pytest.raises(RecordError, match="is being written by another run"):
        Writer.resume(path, WHOLE)
    assert path.read_bytes() == before
    first.close()
    second, _ = Writer.resume(path, WHOLE)
    second.close()
    fresh = Writer.create(tmp_path / "new.jsonl", WHOLE)
    with pytest.raises(RecordError, match="is being written by another run"):
        Writer.resume(fresh.path, WHOLE)


def test_reasons_are_redacted_in_records(case):
    assert case_lines(case, [Line("numbers", "fail", "see /a/b/c")], 0, 0.0)[0]["reason"] == "see <path>"


@pytest.mark.parametrize("resumed", [False, True], ids=["created", "resumed"])
def test_a_file_that_somebody_else_changes_is_noticed(tmp_path, case, resumed):
    path = tmp_path / "r.jsonl"
    writer = Writer.create(path, RUN)
    writer.write(case_lines(case, [Line("execute")], 0, 0.25))
    if resumed:
        writer.close()
        writer, _ = Writer.resume(path, RUN)
    writer.write(case_lines(case, [Line("numbers", "fail", "wrong")], 0, 0.25))
    assert writer.changed() == ""
    own = path.read_bytes()
    for other in (own.replace(b'"fail"', b'"pass"'), own + b"{}\n", own[:-1], b""):
        path.write_bytes(other)
        assert "does not hold what this run wrote" in writer.changed()
        path.write_bytes(own)
    assert writer.changed() == ""
    path.rename(tmp_path / "moved")
    assert "can't be read any more: No such file" in writer.changed()
    path.write_bytes(own)
    assert "does not hold what this run wrote" in writer.changed(), "a copy is another file"


def test_what_no_reader_would_take_is_not_written(tmp_path, case):
    path = tmp_path / "r.jsonl"
    writer = Writer.create(path, RUN)
    before = path.read_bytes()
    good = case_lines(case, [Line("numbers")], 0, 0.25)
    for spoilt in ({"seconds": -0.25}, {"reason": "x" * 10_001}, {"told": ["x"] * 101}, {"case": "psum"}):
        with pytest.raises(RecordError, match=r"what is to be written to \S+ is not a record: `"):
            writer.write([good[0] | spoilt])
    assert path.read_bytes() == before
    writer.write(good)
    assert read_records(path).problems == []


def test_a_run_line_that_no_reader_would_take_leaves_no_file(tmp_path):
    with pytest.raises(RecordError, match="`XLA_FLAGS`, which has 4001 characters"):
        Writer.create(tmp_path / "r.jsonl", RUN | {"facts": {"flags": {"XLA_FLAGS": "x" * 4001}}})
    assert not (tmp_path / "r.jsonl").exists()


def test_a_change_before_the_place_where_a_run_goes_on_is_noticed(tmp_path, case):
    path = tmp_path / "r.jsonl"
    first = Writer.create(path, RUN)
    first.write(case_lines(case, [Line("numbers", "fail", "wrong")], 0, 0.25))
    first.close()
    writer, _ = Writer.resume(path, RUN)
    assert writer.changed() == ""
    path.write_bytes(path.read_bytes().replace(b'"fail"', b'"pass"'))
    assert "does not hold what this run wrote" in writer.changed()


def test_a_case_without_a_plan_has_lines_that_say_so(case):
    """A plan that raises once ended a whole run: 3,000 cases behind it had no verdict."""

    class Broken(type(case.operation)):
        def plan(self, request):
            raise ValueError("dimension 1 does not divide")

    broken = replace(case, cell=replace(case.cell, operation=Broken()))
    with pytest.raises(ValueError, match="does not divide"):
        _ = broken.plan
    (line,) = case_lines(broken, [Line("execute", "error", "it could not be judged")], 0, 0.1)
    assert line["size_bytes"] == 0 and line["verdict"] == "error"


def test_a_signal_between_writing_and_counting_leaves_a_file_that_closes(tmp_path, monkeypatch):
    path = tmp_path / "records.jsonl"
    writer = Writer.create(path, {"facts": {}})
    add = Account.add

    def interrupted(account, record):
        monkeypatch.setattr(Account, "add", add)
        raise KeyboardInterrupt

    monkeypatch.setattr(Account, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.write([{"kind": "growth", "case": "x"}] * 3)
    writer.end(130)
    writer.close()
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["kind"] == "end" and last["lines"] == len(path.read_text().splitlines()) - 1


def test_a_run_goes_on_in_a_plain_file_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path(os.devnull)):
        with pytest.raises(RecordError, match=f"can't resume {path}: it is not a plain file; name what"):
            Writer.resume(path, RUN)
