# SPDX-License-Identifier: Apache-2.0
"""Commits, packages and dates, asked of a history that is made here."""

import subprocess

import pytest

from meshmark.publish import origin
from tests import submissions


@pytest.fixture
def history(tmp_path, monkeypatch):
    """A checkout of two commits on main, and one on a branch: their ids."""
    monkeypatch.setattr(origin, "CHECKOUT", tmp_path)

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, "-C", str(tmp_path), *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    package = tmp_path / "harness/meshmark"
    package.mkdir(parents=True)
    commits = []
    for number in range(3):
        if number == 2:
            git("checkout", "-q", "-b", "other")
        (package / "a.py").write_text(f"{number}\n")
        (package / "b").mkdir(exist_ok=True)
        (package / "b" / "c.py").write_text("c\n")
        git("add", "-A")
        git("commit", "-q", "-m", str(number))
        commits.append(git("rev-parse", "HEAD"))
    yield commits


def test_a_commit_of_the_main_branch_and_its_package(history):
    first, second, other = history
    ask = origin._ask
    assert ask(other) is None and ask("f" * 40) is None
    assert ask(first).digest != ask(second).digest
    assert len(ask(first).digest) == 16 and ask(first).time > origin.FIRST - 10**9


@pytest.mark.parametrize("commit", ["x\0y", "main", "--help", "F" * 40, None])
def test_what_is_no_commit_is_not_asked_of_git(monkeypatch, commit):
    monkeypatch.setattr(origin, "look_up", lambda commit: pytest.fail("asked"))
    run = submissions.run_line(
        facts=submissions.facts(suite={"version": "1", "commit": commit, "clean": True})
    )
    assert list(origin.problems(run, marked=False)) == []
