# SPDX-License-Identifier: Apache-2.0
"""The lines of pytest's short summary: the reason first, in the width of the terminal, and whole in CI."""

import io
from types import SimpleNamespace

import pytest

from meshmark.pytest_plugin.short_summary import fit, print_failures
from meshmark.records.reading import Judged

CASE = "psum/axes=x+y/manual/2x4/float32/4KiB"
LONG = "all_gather/axes=x+y,dim=1,groups=2,order=reversed,tiled/manual-novma/2x2x2/bfloat16/16MiB"
REASON = (
    "64 of 64 elements differ on cpu:0 (shard [0:1, 0:1, 0:8, 0:128]): at [0, 0, 0, 0] expected 0.0, seen 1.0"
)


class Reporter:
    """What a summary needs of pytest's reporter."""

    def __init__(self, width, reportchars, failed=(), error=(), verbose=0, **options):
        self.stats = {"failed": failed, "error": error}
        self.reportchars = reportchars
        writer = SimpleNamespace(fullwidth=width)
        option = SimpleNamespace(verbose=verbose, **options)
        self.config = SimpleNamespace(option=option, get_terminal_writer=lambda: writer)
        self.out = io.StringIO()

    def write_sep(self, sep, title, **colours):
        self.out.write(f"{sep} {title}\n")

    def write(self, text, **colours):
        self.out.write(text)

    def write_line(self, line):
        self.out.write(f"{line}\n")


def report(name, when="call", told="", crash=None):
    longrepr = SimpleNamespace(reprcrash=SimpleNamespace(message=crash)) if crash else told
    return SimpleNamespace(nodeid=f"conformance/test_a.py::test_a[{name}]", when=when, longrepr=longrepr)


def judged(case, verdict="fail", reason=REASON, check="numbers"):
    passed = {"check": "execute", "verdict": "pass", "reason": ""}
    return {case: Judged(case, [passed, {"check": check, "verdict": verdict, "reason": reason}])}


def printed(reporter, cases):
    print_failures(reporter, cases)
    return reporter.out.getvalue().splitlines()[1:]


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)


@pytest.mark.parametrize("case", [CASE, LONG])
@pytest.mark.parametrize("width", [20, 80, 120, 200, 300])
def test_a_line_fits_and_begins_with_the_reason(width, case):
    [line] = printed(Reporter(width, "fE", [report(case)]), judged(case))
    assert len(line) <= width and line.startswith("FAILED numbers")
    if width >= 80:
        assert line.startswith("FAILED numbers: 64 of 64 elements")
    if width >= 300:
        assert line == f"FAILED numbers: {REASON} - {case}"


@pytest.mark.parametrize("name", ["CI", "BUILD_NUMBER"])
def test_a_line_is_whole_in_ci(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    told = "numbers: fail: an old text\nid\na script that repeats it: meshmark repro"
    lines = printed(Reporter(80, "fE", [report(CASE, told=told)]), judged(CASE))
    assert lines == [f"FAILED numbers: {REASON} - {CASE}"]
    [line] = printed(Reporter(80, "fE", [report(CASE)], force_short_summary=True), judged(CASE))
    assert len(line) <= 80


def test_a_line_is_whole_under_vv():
    assert len(printed(Reporter(80, "f", [report(CASE)], verbose=2), judged(CASE))[0]) > 80


def test_verdicts_other_than_fail_are_named():
    [line] = printed(Reporter(200, "f", [report(CASE, "???")]), judged(CASE, "crash", "SIGSEGV", "execute"))
    assert line == f"FAILED execute: crash: SIGSEGV - {CASE}"


def test_errors_around_a_case_have_their_own_reason():
    """The verdict of the case is not the reason of an error behind it."""
    around = [
        report(CASE, "setup", crash="RuntimeError: no device"),
        report(CASE, "teardown", crash="OSError: disk\nmore"),
        report(CASE, "teardown", told="a text\nin lines"),
    ]
    lines = printed(Reporter(200, "E", error=around), judged(CASE))
    told = ("RuntimeError: no device", "OSError: disk", "a text")
    assert lines == [f"ERROR {one} - {CASE}" for one in told]


def test_a_test_without_a_case_keeps_its_node_id():
    one = report("x", crash="assert 1 == 2")
    assert printed(Reporter(200, "f", [one]), {}) == [f"FAILED assert 1 == 2 - {one.nodeid}"]


def test_only_the_kinds_asked_for_are_printed_and_the_others_are_left_to_pytest():
    reporter = Reporter(200, "sxEf", [report(CASE)], [report(CASE, "setup", crash="A")])
    assert [line.split()[0] for line in printed(reporter, judged(CASE))] == ["ERROR", "FAILED"]
    assert reporter.reportchars == "sx"
    silent = Reporter(200, "s", [report(CASE)])
    assert printed(silent, judged(CASE)) == [] and silent.out.getvalue() == ""


def test_control_characters_are_escaped():
    [line] = printed(Reporter(200, "f", [report(CASE)]), judged(CASE, reason="a\nb\x1b[31m"))
    assert "a\\nb\\x1b[31m" in line


def test_fit_cuts_the_name_only_where_the_reason_is_short():
    assert fit("r" * 50, "n" * 30, 60) == f" {'r' * 29}... - {'n' * 21}..."
    assert fit("r" * 5, "n" * 70, 60) == f" rrrrr - {'n' * 48}..."
