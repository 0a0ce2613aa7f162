# SPDX-License-Identifier: Apache-2.0
"""Reading records: no input makes the reader raise another exception than RecordError."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.core.verdicts import CHECKS, VERDICTS, Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.records import reading
from meshmark.records.definition import KINDS
from meshmark.records.reading import RecordError, read_records
from meshmark.records.writing import dumps

CASE = "psum/axes=x+y/manual/2x4/float32/4KiB"
RUN = {"facts": {"versions": {"jax": "0.12.0.1"}}, "selection": {"profile": "smoke"}, "seed": 0}


@pytest.fixture
def case():
    return cases.find(CASE, 8)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"schema": 1, "kind": "conf', "not JSON"),
        ("[]", "not a record"),
        ('{"schema": 2, "kind": "run", "run": "a", "facts": {}}', "schema 2"),
        ('{"schema": 1, "kind": "conformance"}', "`case` is not a case id"),
        ('{"schema": 1, "kind": "run", "run": "a", "facts": NaN}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        ('{"schema": 1, "kind": "run", "run": "a", "run": "b", "facts": {}}', "'run' comes twice"),
        ('{"schema": 1, "kind": "run", "run": "a", "facts": {"x": {"y": 1, "y": 2}}}', "'y' comes twice"),
        (
            '{"schema": 1, "kind": "run", "run": "a", "facts": {"versions": {"jax": 1}}}',
            "`jax`, which must be text",
        ),
        (
            '{"schema": 1, "kind": "run", "run": "a", "facts": {"num_devices": 1e400}}',
            "must be a whole number",
        ),
        (
            '{"schema": 1, "kind": "run", "run": "a", "facts": {}, "x": ' + "[" * 99 + "]" * 99 + "}",
            "brackets",
        ),
    ],
)
def test_a_bad_line_is_a_problem_and_the_rest_is_kept(tmp_path, case, line, problem):
    path = written(tmp_path, [*case_lines(case, [Line("numbers")], 0, 1.0)])
    with path.open("a") as file:
        file.write(line + "\n")
    found = read_records(path)
    assert list(found.cases) == [CASE]
    (told,) = found.problems
    assert problem in told and str(path) in told and ":3:" in told and "\n" not in told


def test_a_verdict_that_comes_twice_is_no_pass(tmp_path, case):
    [line] = case_lines(case, [Line("numbers", "fail", "wrong")], 0, 1.0)
    path = written(tmp_path, [])
    text = dumps(line | {"run": "r"}).replace('"verdict":"fail"', '"verdict":"fail","verdict":"pass"')
    path.write_text(path.read_text() + text + "\n")
    found = read_records(path)
    assert not found.cases and "'verdict' comes twice" in found.problems[0]


def test_a_line_of_no_run_and_a_case_of_three_parts_are_problems(tmp_path, case):
    [line] = case_lines(case, [Line("numbers")], 0, 1.0)
    path = written(tmp_path, [])
    with path.open("a") as file:
        file.write(dumps(line) + "\n" + dumps(line | {"run": "r", "case": "psum/plain/auto"}) + "\n")
    first, second = read_records(path).problems
    assert "`run`" in first and "is not a case id: 'psum/plain/auto'" in second


def test_half_of_a_surrogate_pair_is_replaced(tmp_path, case):
    [line] = case_lines(case, [Line("numbers", "fail", "a \ud83d b")], 0, 1.0)
    found = read_records(written(tmp_path, [line]))
    assert found.cases[CASE].reason == "a \\ud83d b" and not found.problems


def test_more_lines_or_bytes_than_the_limit_are_refused_with_the_figure(tmp_path, monkeypatch):
    path = written(tmp_path, [])
    path.write_text(path.read_text() * 20)
    monkeypatch.setattr(reading, "MOST_LINES", 10)
    with pytest.raises(RecordError, match="more than 10 lines or 1024 MiB"):
        read_records(path)
    monkeypatch.setattr(reading, "MOST_LINES", 100)
    monkeypatch.setattr(reading, "MOST_BYTES", 500)
    with pytest.raises(RecordError, match="more than 100 lines"):
        read_records(path)


def test_lines_of_a_file_are_read_one_at_a_time(tmp_path):
    """`each` holds one line: a file of many takes no more memory than a short one."""
    path = written(tmp_path, [])
    line = path.read_text()
    with path.open("a") as file:
        for _ in range(20_000):
            file.write(line)
    tracemalloc.start()
    number = sum(1 for _ in reading.each(path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 20_001 and most < 500_000


def test_a_cut_off_line_is_a_problem(tmp_path, case):
    path = written(tmp_path, case_lines(case, [Line("execute"), Line("numbers")], 0, 1.0))
    path.write_text(path.read_text()[:-20])
    found = read_records(path)
    assert len(found.problems) == 1 and "cut off" in found.problems[0]
    assert not found.cases[CASE].finished


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST", 1000)
    path = written(tmp_path, [])
    with path.open("a") as file:
        file.write("x" * 5000)
    assert len(read_records(path).problems) == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"{}\n", b'{"schema": 1}\n'])
def test_a_file_without_a_run(tmp_path, content):
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="holds no run"):
        read_records(path)


def test_a_missing_file_and_a_directory(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(RecordError, match="can't read"):
            read_records(path)


def written(directory: Path, lines):
    """A file of a run line and these lines."""
    path = directory / "r.jsonl"
    head = {"schema": 1, "kind": "run", "run": "r", **RUN}
    path.write_text("".join(dumps(line | {"run": "r"}) + "\n" for line in [head, *lines]))
    return path


# Whatever stands in a file, the reader gives records or a RecordError.

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "schema": st.just(1) | ANYTHING,
        "kind": st.sampled_from(KINDS) | ANYTHING,
        "run": st.text() | ANYTHING,
        "facts": st.dictionaries(st.text(), ANYTHING, max_size=2) | ANYTHING,
        "check": st.sampled_from(CHECKS) | ANYTHING,
        "verdict": st.sampled_from(VERDICTS) | ANYTHING,
        **{
            n: st.text(max_size=5) | ANYTHING
            for n in ("case", "operation", "variant", "mode", "mesh", "dtype")
        },
        **{n: st.text(max_size=5) | ANYTHING for n in ("level", "reason", "error", "bound", "collectives")},
    },
)
GOOD = {
    **dict.fromkeys(("operation", "variant", "mesh", "dtype", "reason", "run"), "a"),
    "case": CASE,
    "mode": "auto",
    "level": "L1",
    "schema": 1,
    "kind": "conformance",
    "check": "numbers",
    "verdict": "pass",
}
LINES = (FIELDS | FIELDS.map(lambda changed: GOOD | changed) | ANYTHING).map(lambda v: json.dumps(v).encode())


@settings(max_examples=100, deadline=None)
@given(data=st.binary() | st.lists(LINES | st.binary(max_size=20), max_size=5).map(b"\n".join))
def test_the_reader_raises_record_errors_only(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    path.write_bytes(data)
    try:
        found = read_records(path)
    except RecordError as error:
        assert "\n" not in str(error) and str(path) in str(error)
        return
    assert found.runs
    for judged in found.cases.values():
        assert judged.verdict in VERDICTS and isinstance(judged.reason, str)
