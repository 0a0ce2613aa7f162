# SPDX-License-Identifier: Apache-2.0
"""Where a finding flips is found between releases, whatever the number of flips; outcomes are told apart."""

import sys

import pytest

from meshmark.hunt import bisect
from meshmark.hunt.bisect import Release

EVERY = [
    Release(v, "2026-01-01")
    for v in ("0.4.30", "0.4.31", "0.4.38", "0.5.0", "0.5.1", "0.5.2", "0.5.3", "0.6.0")
]


class Installed:
    """Stands for environments: the interpreter is the release's name."""

    def __init__(self):
        self.asked = []
        self.say = lambda line: None

    def python(self, release):
        self.asked.append(release.version)
        return release.version


def test_the_minors_come_first_and_each_flip_is_bisected(monkeypatch):
    wrong = {"0.5.1", "0.5.2", "0.5.3", "0.6.0"}
    monkeypatch.setattr(bisect, "outcome", lambda python, script: "wrong" if python in wrong else "right")
    there = Installed()
    found = bisect.bisect({"a": ""}, EVERY, there)["a"]
    assert there.asked[:4] == ["0.4.30", "0.4.38", "0.5.3", "0.6.0"]
    assert (found["0.5.0"], found["0.5.1"]) == ("right", "wrong")
    assert list(found) == sorted(found)


def test_two_flips_are_both_found(monkeypatch):
    wrong = {"0.4.31", "0.4.38", "0.5.0"}
    monkeypatch.setattr(bisect, "outcome", lambda python, script: "wrong" if python in wrong else "right")
    found = bisect.bisect({"a": ""}, EVERY, Installed())["a"]
    assert [found[v] for v in ("0.4.30", "0.4.31", "0.5.0", "0.5.1")] == ["right", "wrong", "wrong", "right"]


@pytest.mark.parametrize(
    ("code", "said", "outcome"),
    [
        (0, "", "right"),
        (1, "cpu:0 expected", "wrong"),
        (-6, "F1122 Check failed", "crash"),
        (1, "Traceback\n  x\nJaxRuntimeError: INTERNAL: RET_CHECK", "internal"),
        (1, "Traceback\n  x\nAttributeError: module 'jax' has no attribute 'shard_map'", "inexpressible"),
        (1, "Traceback\n  x\nValueError: no", "refused"),
    ],
)
def test_outcomes(code, said, outcome):
    assert bisect.verdict(code, said) == outcome


@pytest.mark.parametrize(("script", "outcome"), [("import os; os.abort()", "crash"), ("", "right")])
def test_a_script_runs_in_a_process_of_its_own(script, outcome):
    assert bisect.outcome(sys.executable, script) == outcome


def test_old_releases_take_the_devices_from_the_environment():
    script = 'import jax\njax.config.update("jax_num_cpu_devices", 6)  # for CPU alone\n'
    assert bisect.devices_of(script) == 6
    assert bisect.of_old(script) == "import jax\n"


def test_the_day_of_a_release_bounds_its_dependencies(monkeypatch, tmp_path):
    monkeypatch.setenv("UV", "uv")
    *_, install = bisect.commands(tmp_path, EVERY[0])
    assert "numpy=2026-01-01T23:59:59Z" in install and "jax==0.4.30" in install
