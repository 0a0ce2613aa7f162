# SPDX-License-Identifier: Apache-2.0
"""Bisection finds the releases between which a finding flips, for any number of flips, and distinguishes outcomes."""

import json
import sys

import pytest

from meshmark.commands.main import main
from meshmark.hunt import bisect, findings
from meshmark.hunt.bisect import Release
from tests.checkout import ROOT

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
    monkeypatch.setattr(bisect, "run_script", lambda python, script: "wrong" if python in wrong else "right")
    there = Installed()
    found = bisect.bisect({"a": ""}, EVERY, there)["a"]
    assert there.asked[:4] == ["0.4.30", "0.4.38", "0.5.3", "0.6.0"]
    assert (found["0.5.0"], found["0.5.1"]) == ("right", "wrong")
    assert list(found) == sorted(found)


def test_two_flips_are_both_found(monkeypatch):
    wrong = {"0.4.31", "0.4.38", "0.5.0"}
    monkeypatch.setattr(bisect, "run_script", lambda python, script: "wrong" if python in wrong else "right")
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
    assert bisect.classify_outcome(code, said) == outcome


@pytest.mark.parametrize(("script", "outcome"), [("import os; os.abort()", "crash"), ("", "right")])
def test_a_script_runs_in_a_process_of_its_own(script, outcome):
    assert bisect.run_script(sys.executable, script) == outcome


def test_old_releases_take_the_devices_from_the_environment():
    script = 'import jax\njax.config.update("jax_num_cpu_devices", 6)  # for CPU alone\n'
    assert bisect.count_devices(script) == 6
    assert bisect.adapt_to_old_releases(script) == "import jax\n"


def test_the_day_of_a_release_bounds_its_dependencies(monkeypatch, tmp_path):
    monkeypatch.setenv("UV", "uv")
    *_, install = bisect.list_commands(tmp_path, EVERY[0])
    assert "numpy=2026-01-01T23:59:59Z" in install and "jax==0.4.30" in install


def test_releases_that_are_not_there_are_one_line(tmp_path):
    index = tmp_path / "index.json"
    upload = {"upload_time_iso_8601": "2026-01-01T00:00:00Z", "yanked": False}
    index.write_text(json.dumps({"releases": {"0.6.0": [upload], "not a version": [upload]}}))
    assert [r.version for r in bisect.list_releases("0.5", index.as_uri())] == ["0.6.0"]
    with pytest.raises(bisect.BisectError, match="no release from 99 on"):
        bisect.list_releases("99", index.as_uri())


def test_nothing_that_can_be_installed_is_no_outcome(monkeypatch, capsys):
    monkeypatch.setattr(bisect, "list_releases", lambda oldest: EVERY[:1])
    monkeypatch.setattr(bisect.Environments, "python", lambda self, release: None)
    place = str(ROOT / "results" / "findings" / "pad-into-a-sharded-result")
    assert main(["bisect", place]) == 2
    assert "none of the releases from 0.4.30 on can be installed here" in capsys.readouterr().err


def test_the_script_beside_a_finding_is_taken(tmp_path):
    (tmp_path / "finding.json").write_text("{}")
    (tmp_path / "repro.py").write_text("1\n")
    for name in (tmp_path, tmp_path / "finding.json"):
        assert findings.read_script(str(name), tmp_path / "store") == "1\n"
    (tmp_path / "repro.py").write_bytes(b"\xff")
    with pytest.raises(findings.FindingError, match="is not a script"):
        findings.read_script(str(tmp_path), tmp_path / "store")
