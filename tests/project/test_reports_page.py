# SPDX-License-Identifier: Apache-2.0
"""The page of reported bugs: its patterns name cases, and its verdicts are those of the records."""

import re

import pytest

from docs import reports_page
from meshmark.operations.cases import cases
from meshmark.operations.selection import CAPABILITIES, Selection


@pytest.fixture(scope="module")
def table():
    optional = tuple(CAPABILITIES)
    alone = [case.id for case in cases(Selection(capabilities=optional), 8)]
    return alone, [case.id for case in cases(Selection(processes=2, capabilities=optional), 8)]


def test_every_pattern_names_a_case(table):
    alone, over_processes = table
    for bug in reports_page.bugs():
        ids = over_processes if bug.over == "processes" else alone
        for pattern in bug.cases:
            assert reports_page.of([pattern], ids), f"{bug.reports}: {pattern} names no case"


MOST = 60
"""The most cases that a pattern may name. One that names more shows a whole operation, and not a kind of bug."""


def too_broad(patterns, ids):
    """The patterns that name too many cases."""
    return [pattern for pattern in patterns if len(reports_page.of([pattern], ids)) > MOST]


def test_no_pattern_names_a_whole_operation(table):
    alone, over_processes = table
    for bug in reports_page.bugs():
        assert not too_broad(bug.cases, over_processes if bug.over == "processes" else alone), bug.reports
    assert too_broad(["psum/*", "pmax/axes=?/*"], alone) == ["psum/*"]


def test_no_report_is_listed_twice():
    reports = [report for bug in reports_page.bugs() for report in bug.reports]
    assert len(reports) == len(set(reports))
    assert all(re.fullmatch(r"[\w/-]+#\d+", report) for report in reports)


def test_an_entry_without_cases_or_reason_is_refused(tmp_path, monkeypatch):
    list_ = tmp_path / "reports.toml"
    list_.write_text('[[bug]]\nreports = ["jax#1"]\nsymptom = "wrong"\n')
    monkeypatch.setattr(reports_page, "LIST", list_)
    with pytest.raises(ValueError, match="jax#1 needs either cases or a reason"):
        reports_page.bugs()


def test_verdicts_are_counted_the_worst_first():
    verdicts = {"psum/a": "pass", "psum/b": "known", "psum/c": "fail", "pmax/a": "error"}
    assert reports_page.told(["psum/*"], verdicts) == "1 fail, 1 known, 1 pass"
    assert reports_page.told(["pmin/*"], verdicts) == "not run"


def test_the_page_has_a_row_for_each_bug():
    text = reports_page.page()
    for bug in reports_page.bugs():
        # The whole number: jax#3007 is not a part of jax#30078.
        assert len(re.findall(rf"{re.escape(bug.reports[0])}\b", text)) == 1, bug.reports
