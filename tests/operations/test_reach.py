# SPDX-License-Identifier: Apache-2.0
"""The study of lines of JAX that no case executes: it sees what runs, and names what does not."""

import inspect
import json
import sys

import jax
import pytest

from tests.studies import reach

CODE = inspect.unwrap(jax.numpy.ptp).__code__
FILE = CODE.co_filename[len(str(reach.HOME)) + 1 :]
BODY = {line for _, _, line in CODE.co_lines() if line and line != CODE.co_firstlineno}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_lines_that_run_are_seen_in_each_case_anew():
    with reach.Watched() as watched:
        for call, runs in ((jax.numpy.ptp, True), (jax.numpy.sin, False), (jax.numpy.ptp, True)):
            jax.clear_caches()
            watched.take()
            call(jax.numpy.arange(3.0))
            ran = {line for name, line in watched.take() if name == FILE}
            assert bool(ran & BODY) is runs


def test_what_no_case_runs_is_named(tmp_path, capsys, monkeypatch):
    every = {line for _, _, lines in reach.functions(reach.HOME / FILE) for line in lines}
    record = tmp_path / "lines.jsonl"
    lines = [
        {"case": "dies"},
        {"case": "a", "lines": {FILE: sorted(every - BODY)}},
        {"case": "b", "lines": {FILE: [1]}},
    ]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ((name, function, number, missing),) = reach.unreached([str(record)], [inspect.getmodule(CODE).__name__])
    assert (name, function, set(missing)) == (FILE, CODE.co_qualname, BODY) and number == len(BODY)

    monkeypatch.setattr(sys, "argv", ["reach", "cases", str(record), "--at", f"jax/{FILE}:1"])
    reach.main()
    assert capsys.readouterr().out == "b\n"


def test_an_operation_has_some_cases_and_a_rule_all():
    found = [case.id for case in reach.spread(4, ["psum", "far_functions", "small_rule"])]
    assert sum(case.startswith("psum/") for case in found) == 4
    assert len({case.split("/")[2] for case in found if case.startswith("psum/")}) > 1
    assert sum(case.startswith("small_rule/") for case in found) > 300
