# SPDX-License-Identifier: Apache-2.0
"""`--generated N` in a session of its own: findings are known, changed or right; drawn programs have stable ids."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from docs import found_page
from meshmark.hunt import findings
from meshmark.hunt.generator import draw
from meshmark.hunt.versions import GENERATOR
from meshmark.hunt.workers import Answer, Settings
from meshmark.program_data.program import to_json
from meshmark.pytest_plugin import generated
from tests.hunt.stubs import StubSlot

NAME = "update-slice-past-the-edge"


@pytest.fixture
def store(tmp_path):
    """Findings that fail as they say, otherwise than they say, and not at all."""
    known = findings.find_finding(NAME, found_page.STORE).to_json()
    right = json.loads(json.dumps(known))
    right["program"]["nodes"][0]["args"][2] = [1]
    for name, data in {"a": known, "b": known | {"severity": "crash"}, "c": right}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "finding.json").write_text(json.dumps(data | {"name": name, "groups": [name]}))
    return tmp_path


def run_conformance(*options):
    """A session of the generated programs; gives the ended process."""
    command = [sys.executable, "-m", "pytest", "conformance/test_generated.py", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-n", "0", "-v", "--profile", "smoke", *options, "-rxf"],
        capture_output=True,
        text=True,
        cwd=found_page.ROOT,
        env=os.environ | {"COLUMNS": "200"},
    )


def test_generated_programs_are_cases(store):
    ended = run_conformance("--generated", "1", "--findings", str(store))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for words in (
        "generated/a] XFAIL",
        "generated/b] FAILED",
        "b was crash, and now is numbers: result 0",
        "generated/c] PASSED",
        f"generated/v{GENERATOR}/0/0] PASSED",
    ):
        assert words in ended.stdout, ended.stdout


@pytest.mark.e2e
def test_every_kept_finding_is_known_or_right():
    """No finding fails in another way than its data says. One that is right on this JAX passes. Every fourth finding
    is run, and in the thorough run all are."""
    names = [f.name for f in findings.read_findings(found_page.STORE)]
    names = names if os.environ.get("MESHMARK_SLOW") else names[::4]
    ended = run_conformance("--generated", "1", "-k", " or ".join(f"generated/{name}]" for name in names))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for name in names:
        assert re.search(rf"generated/{re.escape(name)}\] (XFAIL|PASSED)", ended.stdout), name


class WrongSlot(StubSlot):
    """Every program is wrong, and right without one pass of XLA. Nothing smaller is."""

    def judge(self, job, modes=("auto",)):
        drawn = isinstance(job, dict) and "draw" in job
        wrong = drawn or (isinstance(job, dict) and "without" not in job)
        difference = {
            "mode": "auto",
            "kind": "numbers",
            "what": "values",
            "text": "3 of 8 differ",
            "data": {},
        }
        program = to_json(draw(*job["draw"])) if drawn else None
        return Answer([difference] if wrong else [], program=program, seconds=0.1)


def test_a_drawn_program_has_the_group_that_a_hunt_gives_it():
    """A guilty pass of XLA names the group there, so a known cause is known here too."""
    item = generated.Generated("generated/v12/3/0", None, 3, 0)
    with pytest.raises(pytest.fail.Exception) as failed:
        generated._judge_drawn(WrongSlot(Settings()), item, {})
    key = str(failed.value).split(": 3 of 8 differ")[0]
    assert "right without" in key and "meshmark hunt --seed 3 --programs 1 --keep DIR" in str(failed.value)
    with pytest.raises(pytest.xfail.Exception, match="known: a-cause"):
        generated._judge_drawn(WrongSlot(Settings()), item, {key: "a-cause"})


class OnceSlot(StubSlot):
    """Every drawn program hangs once; or it is lost before the worker could say what it is."""

    lost = False

    def judge(self, job, modes=("auto",)):
        drawn = isinstance(job, dict) and "draw" in job
        difference = {
            "mode": "auto",
            "kind": "crash" if self.lost else "hang",
            "what": "no answer",
            "text": "gone",
        }
        program = to_json(draw(*job["draw"])) if drawn and not self.lost else None
        return Answer([difference | {"data": {}}] if drawn else [], program=program, seconds=0.1)


def test_a_hang_that_does_not_come_again_and_a_lost_program_do_not_pass():
    item, slot = generated.Generated("generated/v12/3/0", None, 3, 0), OnceSlot(Settings())
    with pytest.raises(pytest.skip.Exception, match="hung or ended without a message once"):
        generated._judge_drawn(slot, item, {})
    slot.lost = True
    with pytest.raises(pytest.fail.Exception, match="crash: gone"):
        generated._judge_drawn(slot, item, {})


def test_a_finding_that_is_right_on_this_release_explains_no_failure(monkeypatch):
    config = SimpleNamespace(getoption=lambda name: found_page.STORE)
    name = "cumulative-functions-of-one-array"
    for release, known in (("0.11.2", True), ("0.12.0.1", False)):
        monkeypatch.setattr(generated, "version", lambda package, release=release: release)
        assert (name in generated.known_here(config).values()) == known


def test_a_store_without_findings_is_told(tmp_path):
    ended = run_conformance("--generated", "1", "--findings", str(tmp_path), "--collect-only")
    assert f"{tmp_path} has no findings: every finding is reported as new" in ended.stdout


def test_the_option_has_a_range(capfd, monkeypatch):
    monkeypatch.chdir(found_page.ROOT)
    code = pytest.main(["conformance", "--generated", "-1", "--collect-only", "-q", "-p", "no:cacheprovider"])
    assert code == 4 and "--generated -1: use a number from 0" in capfd.readouterr().err
