# SPDX-License-Identifier: Apache-2.0
"""Known issues: where they apply, how they expire, and the mark of a listed case that passes."""

import fnmatch
import re
import tomllib

import pytest

from meshmark.core.verdicts import CHECKS, Line, worst
from meshmark.levels import known_issues
from meshmark.levels.known_issues import FILE, Issue
from meshmark.operations import OPERATIONS
from tests.checkout import ROOT
from tests.headings import anchors

ISSUES = known_issues.read_known_issues()


def issue(**other):
    return Issue(
        **{
            "cases": ["psum/*"],
            "modes": ["auto", "explicit"],
            "checks": ["numbers"],
            "jax": ">=0.10,<0.12",
            "backends": ["cpu"],
            "link": "https://example.org/1",
            "why": "it is",
            "expires": "0.13",
            "verdicts": ["fail"],
            "symptom": "differ",
            **other,
        }
    )


def test_it_concerns_its_releases_and_backends_until_it_expires():
    assert issue().concerns("0.10.2", "cpu")
    assert not issue().concerns("0.12.0.1", "cpu")
    assert not issue().concerns("0.10.2", "gpu")
    assert issue(backends=["*"]).concerns("0.10.2", "anything")
    assert not issue(jax=">=0.10", expires="0.12").concerns("0.12.0.1", "cpu")
    assert issue(jax=">=0.10").concerns("0.12.0.dev20260101", "cpu")


def test_an_issue_of_some_topologies_leaves_other_places_alone(tmp_path):
    file = tmp_path / "known.toml"
    file.write_text(
        """[[issue]]
cases = ["psum/*"]
modes = ["auto"]
checks = ["execute"]
verdicts = ["error"]
symptom = "refused"
jax = ">=0.10"
backends = ["tpu"]
topologies = ["2x*"]
link = "README.md#x"
why = "it is"
expires = "0.13"
"""
    )
    assert known_issues.load("0.12.0.1", "tpu", file, "2xv5e:2x2")
    assert not known_issues.load("0.12.0.1", "tpu", file, "v5e:2x4")
    assert not known_issues.load("0.12.0.1", "tpu", file)


def test_an_issue_of_several_processes_excuses_nothing_in_one(tmp_path):
    file = tmp_path / "known.toml"
    entry = """[[issue]]
cases = ["psum/*"]
modes = ["auto"]
checks = ["execute"]
verdicts = ["error"]
symptom = "refused"
jax = ">=0.10"
backends = ["cpu"]
link = "README.md#x"
why = "it is"
expires = "0.13"
"""
    file.write_text(entry + "processes = true\n")
    assert known_issues.load("0.12.0.1", "cpu", file, processes=2)
    assert not known_issues.load("0.12.0.1", "cpu", file)
    assert not known_issues.load("0.12.0.1", "cpu", file, "v5e:2x4", processes=2), (
        "a topology's processes are its hosts"
    )
    file.write_text(entry)
    assert known_issues.load("0.12.0.1", "cpu", file) and known_issues.load(
        "0.12.0.1", "cpu", file, processes=2
    )


def test_a_failure_becomes_known_with_its_link():
    lines = [Line("execute"), Line("numbers", "fail", "3 differ"), Line("sharding", "fail", "elsewhere")]
    known_issues.apply([issue()], "psum/axes=x/auto/8/float32/4KiB", lines)
    assert [line.verdict for line in lines] == ["pass", "known", "fail"]
    assert lines[1].data["link"] == "https://example.org/1" and lines[1].data["was"] == "fail"
    assert worst(line.verdict for line in lines) == "fail", "only the listed check is excused"


@pytest.mark.parametrize(
    "line",
    [
        Line("numbers", "crash", "signal 11: 3 differ"),
        Line("numbers", "hang", "3 differ"),
        Line("numbers", "error", "ValueError: 3 differ"),
        Line("numbers", "fail", "result is float16[8] instead of float32[8]"),
        Line("communication", "fail", "3 differ"),
    ],
    ids=lambda line: f"{line.check}, {line.verdict}, {line.reason}",
)
def test_any_other_failure_of_a_listed_case_stays_red(line):
    was = line.verdict
    known_issues.apply([issue()], "psum/axes=x/auto/8/float32/4KiB", [line])
    assert line.verdict == was


def test_another_case_is_not_excused():
    lines = [Line("numbers", "fail", "3 differ")]
    known_issues.apply([issue()], "psum/axes=x/manual/8/float32/4KiB", lines)
    assert lines[0].verdict == "fail"


def test_the_same_symptom_in_another_mode_stays_red():
    for mode, expected in (("auto", "known"), ("explicit", "known"), ("manual", "fail"), ("pjit", "fail")):
        line = Line("numbers", "fail", "3 differ")
        known_issues.apply([issue()], f"psum/axes=x/{mode}/8/float32/4KiB", [line])
        assert line.verdict == expected, mode
    line = Line("numbers")
    known_issues.apply([issue()], "psum/axes=x/manual/8/float32/4KiB", [line])
    assert "fixed" not in line.data, "a mode that is not listed can't be fixed"


def test_a_mode_in_the_options_is_not_the_mode_of_the_case():
    line = Line("numbers", "fail", "3 differ")
    known_issues.apply([issue(cases=["*"])], "x/kind=auto/manual/8/float32/4KiB", [line])
    assert line.verdict == "fail"


def test_a_case_that_still_fails_one_listed_check_is_not_fixed():
    lines = [Line("numbers", "fail", "3 differ"), Line("replicas")]
    known_issues.apply([issue(checks=["numbers", "replicas"])], "psum/axes=x/auto/8/float32/4KiB", lines)
    assert "fixed" not in lines[1].data


def test_a_known_issue_that_passes_is_fixed():
    lines = [Line("numbers")]
    known_issues.apply([issue()], "psum/axes=x/auto/8/float32/4KiB", lines)
    assert lines[0].verdict == "pass" and lines[0].data["fixed"] is True


@pytest.mark.parametrize(
    "entry", tomllib.loads(FILE.read_text()).get("issue", []), ids=lambda e: e["why"][:40]
)
def test_every_listed_issue_is_well_formed_and_fits_cases(entry):
    listed = Issue(**entry)
    assert re.match(r"https://|docs/findings\.md#|results/findings/", listed.link) and listed.why
    assert set(listed.checks) <= set(CHECKS)
    processes = 2 if listed.processes is True else 1
    ran = {name.split("/")[0] for name in listed.cases}
    for mode in listed.modes:
        assert any(mode in OPERATIONS[o].modes for p in ran for o in fnmatch.filter(OPERATIONS, p)), mode
    for pattern in listed.cases:
        only = Issue(**{**entry, "cases": [pattern]})
        assert any(known_issues.covers_a_case(only, n, processes) for n in (8, 6, 4, 64, 16, 3, 2, 1)), (
            pattern
        )


@pytest.mark.parametrize("link", sorted({i.link for i in ISSUES} | {e for i in ISSUES for e in i.earlier}))
def test_every_link_to_this_repository_has_its_file_and_its_heading(link):
    """The earlier links too: published records hold them."""
    if link.startswith("https://"):
        return
    path, _, anchor = link.partition("#")
    assert (ROOT / path).is_file()
    assert not anchor or anchor in anchors((ROOT / path).read_text(encoding="utf-8"))


def test_a_relation_that_is_none_is_refused(tmp_path):
    file = tmp_path / "known.toml"
    entry = FILE.read_text(encoding="utf-8")
    file.write_text(re.sub(r'^figures = ".*"$', 'figures = "wrong ="', entry, count=1, flags=re.MULTILINE))
    with pytest.raises(known_issues.KnownIssuesError, match="`figures`: 'wrong =' is not a comparison"):
        known_issues.read_known_issues(file)


def test_the_figures_must_be_related_as_the_issue_says():
    doubled = issue(symptom="elements differ", figures="seen == 2 * expected")
    told = "4 of 4 elements differ on cpu:0 (shard [0:4]): at [0] expected 3.0, seen {}"
    assert doubled.explains("numbers", "fail", told.format("6.0"))
    assert not doubled.explains("numbers", "fail", told.format("9.0"))


def test_the_symptom_of_a_crash_may_stand_before_the_last_line_of_its_error_output():
    crash = issue(checks=["execute"], verdicts=["crash"], symptom=r"a\.cc:\d+\] Check failed: a")
    ended = Line(
        "execute",
        "crash",
        "SIGABRT: https://stack",
        {"stderr": ["F1 a.cc:3] Check failed: a", "https://stack"]},
    )
    other = Line(
        "execute",
        "crash",
        "SIGABRT: https://stack",
        {"stderr": ["F1 b.cc:3] Check failed: b", "https://stack"]},
    )
    known_issues.apply([crash], "psum/axes=x/auto/8/float32/4KiB", [ended, other])
    assert (ended.verdict, other.verdict) == ("known", "crash")


def test_a_symptom_that_fits_anything_is_refused(tmp_path):
    entry = """[[issue]]
cases = ["psum/*"]
modes = ["auto"]
checks = ["execute"]
verdicts = ["error"]
symptom = "%s"
jax = ">=0.10"
backends = ["cpu"]
link = "README.md#x"
why = "it is"
expires = "0.13"
"""
    file = tmp_path / "known.toml"
    for symptom in (".", "", "(?s).*", "[a-zA-Z]", "[0a-]", "e|S"):
        file.write_text(entry % symptom)
        with pytest.raises(known_issues.KnownIssuesError, match=r"fits anything|must be one line"):
            known_issues.read_known_issues(file)
    file.write_text(entry % "UNIMPLEMENTED")
    assert known_issues.read_known_issues(file)


def test_a_long_reason_stays_one_that_a_record_holds():
    line = Line("numbers", "fail", "elements differ " * 1000)
    known_issues.apply([issue(why="w" * 500)], "psum/x/auto/8/float32/4KiB", [line])
    assert line.verdict == "known" and len(line.reason) == 10_000 and line.reason.startswith("www")


def test_a_symptom_is_sought_in_what_the_record_says():
    """A pattern that needs a path of this machine would match the run, and not its record."""
    reason = "RET_CHECK failure (/home/ann/xla/a.cc:3) wrong"
    assert not issue(verdicts=["fail"], symptom="ann").explains("numbers", "fail", reason)
    assert issue(verdicts=["fail"], symptom=r"failure \(.*\) wrong").explains("numbers", "fail", reason)
