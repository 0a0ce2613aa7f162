# SPDX-License-Identifier: Apache-2.0
"""A run takes a part of the long tests, and all of them run within a few turns."""

import pytest

from tests import long
from tests.checkout import ROOT


def test_each_item_of_a_long_function_is_in_one_of_the_turns():
    for function in long.long_functions():
        for number in range(5):
            assert sum(long.is_in_turn(function, number, at) for at in range(17, 17 + long.ONE_IN)) == 1


@pytest.mark.parametrize("one_in", [2, 3, 8])
def test_each_parameter_of_a_long_list_is_in_one_of_the_turns(one_in):
    for node in ("tests/a.py::test_b[1]", "tests/a.py::test_b[2]", "tests/c.py::test_d[x-y]"):
        assert sum(long.is_sampled(node, one_in, at) for at in range(5, 5 + one_in)) == 1


def test_a_short_test_is_in_every_turn():
    assert all(long.is_in_turn("tests/project/test_long.py::test_a_short_test", 0, at) for at in range(7))


def test_the_parts_take_about_the_same_time():
    rows = [line.split("\t") for line in long.LIST.read_text(encoding="utf-8").splitlines()]
    parts = [
        sum(float(seconds) for seconds, name in rows if long.is_in_turn(name, 0, at))
        for at in range(long.ONE_IN)
    ]
    assert max(parts) < 1.25 * min(parts)


def test_the_list_names_functions_that_exist():
    gone = [
        name
        for name in long.long_functions()
        if f"def {name.rpartition('::')[2]}("
        not in (ROOT / name.partition("::")[0]).read_text(encoding="utf-8")
    ]
    assert not gone, f"make the list again: python -m tests.long ({gone})"


def test_the_longest_report_counts(tmp_path):
    report = '<testsuite><testcase classname="tests.a" name="test_b[%s]" time="%s"/></testsuite>'
    for name, seconds in (("one", 2.5), ("two", 4.0)):
        (tmp_path / f"{name}.xml").write_text(report % (name, seconds))
    assert long.measure([tmp_path / "one.xml", tmp_path / "two.xml"]) == {"tests/a.py::test_b": 4.0}


def test_a_report_changes_the_rows_of_its_functions_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(long, "LIST", tmp_path / "long.tsv")
    long.LIST.write_text("9\ttests/a.py::test_old\n7\ttests/a.py::test_short_now\n5\ttests/a.py::test_b\n")
    case = '<testcase classname="tests.a" name="%s" time="%s"/>'
    (tmp_path / "all.xml").write_text(
        f"<testsuite>{case % ('test_b', 12)}{case % ('test_short_now', 1)}</testsuite>"
    )
    assert long.main([str(tmp_path / "all.xml")]) == 0
    assert long.LIST.read_text() == "12\ttests/a.py::test_b\n9\ttests/a.py::test_old\n"
