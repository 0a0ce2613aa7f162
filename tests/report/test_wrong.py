# SPDX-License-Identifier: Apache-2.0
"""Failures and known issues over several runs, each once."""

from meshmark.records.reading import Judged
from meshmark.report import wrong


def judged(case, verdict="pass", check="numbers", reason="", **more):
    operation, _, mode, *_ = case.split("/")
    head = {"case": case, "operation": operation, "mode": mode, "level": "L1"}
    return Judged(case, [head | {"check": check, "verdict": verdict, "reason": reason} | more])


def case(operation="psum", mode="auto", size="4KiB"):
    return f"{operation}/axes=x/{mode}/8/float32/{size}"


def test_failures_that_differ_in_figures_alone_are_one_finding():
    run = [
        judged(
            case(size="64B"), "fail", reason="3 of 16 elements differ on cpu:0 (shard [0:2]): at [1] seen 0.5"
        ),
        judged(
            case(), "fail", reason="200 of 1024 elements differ on cpu:7 (shard [8:9]): at [77] seen 12.25"
        ),
        judged(
            case("pmax"), "fail", reason="3 of 16 elements differ on cpu:0 (shard [0:2]): at [1] seen 0.5"
        ),
        judged(case("pmin"), "fail", "replicas", "devices cpu:0 and cpu:1 hold different replicas of [0:4]"),
    ]
    found = wrong.find_faults({"new": run})
    assert [(f.kind, f.operations, len(f.every_case)) for f in found] == [
        ("wrong numbers", ["psum"], 2),
        ("wrong numbers", ["pmax"], 1),
        ("wrong numbers", ["pmin"], 1),
    ]


def test_a_known_crash_dies_and_a_refusal_that_fails_has_no_wrong_numbers():
    run = [
        judged(case("pmax"), "known", "execute", "it aborts | SIGABRT: F1123", signal="SIGABRT"),
        judged(case("pmin"), "known", "execute", "it is refused | ValueError: no"),
        judged(case("refusal"), "known", reason="the process ends | 1 of 1 elements differ"),
        judged(case("refusal", size="8B"), "fail", reason="1 of 1 elements differ"),
    ]
    kinds = {f.text: f.kind for f in wrong.find_faults({"new": run})}
    assert kinds == {
        "it aborts": "process dies",
        "it is refused": "raises",
        "the process ends": "not refused",
        "1 of 1 elements differ": "not refused",
    }


def test_a_known_issue_whose_words_tell_of_a_death_is_one_however_its_case_saw_it():
    """A case that looks at a child process sees a wrong number where the child died."""
    words = "process 0 dies of a segmentation fault where its port is taken"
    run = [judged(case("initialize"), "known", "numbers", f"{words} | 1 of 6 elements differ")]
    assert [f.kind for f in wrong.find_faults({"new": run})] == ["process dies"]


def test_a_known_issue_is_one_finding_over_its_operations_and_modes():
    run = [
        judged(
            case("cumsum", "auto"), "known", reason="rows are lost | 3 of 4 differ", link="https://x.org/1"
        ),
        judged(
            case("shift", "explicit"),
            "known",
            reason="rows are lost | 9 of 10 differ",
            link="https://x.org/1",
        ),
    ]
    (found,) = wrong.find_faults({"new": run})
    assert (found.text, found.link, found.known) == ("rows are lost", "https://x.org/1", True)
    assert (found.operations, found.modes) == (["cumsum", "shift"], ["auto", "explicit"])


def test_a_known_issue_is_one_finding_however_it_shows_and_whoever_lists_it():
    """Wrong numbers here and an error there, with the place of its script in a later list, from one rank of several."""
    old = [judged(case("pmax"), "known", "execute", "a NaN is lost | raised ValueError")]
    new = [
        judged(case("pmax"), "known", reason="a NaN is lost (results/findings/lost-nan) | 3 differ"),
        judged(
            case("pmin"), "known", "sharding", "rank 0: a NaN is lost | on 1 device", link="https://x.org/2"
        ),
        judged(case("psum"), "known", reason="a NaN is lost (on one device too)"),
    ]
    found = wrong.find_faults({"old": old, "new": new})
    assert [(f.text, f.kind, f.operations, f.link) for f in found] == [
        ("a NaN is lost", "wrong numbers", ["pmax", "pmin"], "https://x.org/2"),
        ("a NaN is lost (on one device too)", "wrong numbers", ["psum"], ""),
    ]
    assert {run: len(cases) for run, cases in found[0].cases.items()} == {"old": 1, "new": 2}
    assert len(found[0].every_case) == 2


def test_new_failures_come_before_known_ones_and_wrong_numbers_before_all():
    run = [
        judged(case("a"), "known", reason="known wrong numbers"),
        judged(case("b"), "error", "execute", "ValueError: no"),
        judged(case("c"), "fail", "sharding", "on 1 device instead of 8"),
        judged(case("d"), "crash", "execute", "signal 11"),
        judged(case("e"), "hang", "execute", "no end"),
        judged(case("f"), "fail", "gradient", "differs"),
        judged(case("g"), "fail", "communication", "no collective"),
    ]
    assert [f.operations[0] for f in wrong.find_faults({"new": run})] == list("fdebcga")


def test_a_release_mends_and_breaks():
    old = [
        judged(case("a"), "fail", reason="3 differ"),
        judged(case("b")),
        judged(case("c"), "fail", reason="4 differ"),
    ]
    new = [
        judged(case("a")),
        judged(case("b"), "crash", "execute", "signal 6"),
        judged(case("c"), "unsupported"),
    ]
    found = wrong.find_faults({"old": old, "new": new})
    mended, broken = wrong.changes(found, "old", "new")
    assert [f.operations for f in mended] == [["a"]]
    assert [f.operations for f in broken] == [["b"]]  # c was not judged again: it is not mended
