# SPDX-License-Identifier: Apache-2.0
"""Runs under pairs of compiler flags: which settings meet, and what a failing run comes to."""

from itertools import combinations, product

import pytest

from tests.studies import flag_pairs


@pytest.mark.parametrize("backend", flag_pairs.FLAGS)
def test_any_settings_of_two_flags_meet_in_a_row(backend):
    flags = flag_pairs.FLAGS[backend]
    chosen = flag_pairs.rows(flags)
    for one, other in combinations(flags, 2):
        met = {(row[one], row[other]) for row in chosen}
        assert met == set(product(flags[one], flags[other])), (one, other)
    assert len(chosen) < 2 ** len(flags) / 8


def test_two_flags_that_are_wrong_together_are_told(monkeypatch, capsys):
    wrong = {"xla_cpu_use_xnnpack": "false", "xla_cpu_multi_thread_eigen": "false"}
    given = []

    def judged(settings, arguments):
        given.append(arguments)
        return int(wrong.items() <= settings.items())

    monkeypatch.setattr(flag_pairs, "judged", judged)
    assert flag_pairs.main(["--operations", "psum"]) == 1
    assert "exit code 1" in capsys.readouterr().out
    assert all(arguments == ["--operations", "psum"] for arguments in given)
    wrong["xla_cpu_use_xnnpack"] = "neither"
    assert flag_pairs.main([]) == 0
    assert given[-1] == ["--profile", "smoke"]


@pytest.mark.e2e
def test_a_flag_that_the_compiler_does_not_know_fails():
    known, unknown = {"xla_cpu_multi_thread_eigen": "false"}, {"xla_cpu_no_such_flag": "false"}
    arguments = ["--profile", "smoke", "--operations", "pmin", "-n", "0"]
    assert flag_pairs.judged(known, arguments) == 0
    assert flag_pairs.judged(unknown, arguments) != 0
