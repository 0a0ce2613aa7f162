# SPDX-License-Identifier: Apache-2.0
"""Commits, packages and dates of a submission, checked against a history that the tests make."""

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


def test_the_main_branch_has_the_files_of_a_product(history, tmp_path):
    assert origin.files_before("0.12.0.1/cpu-4") == {}
    product = tmp_path / "results/0.12.0.1/cpu-4"
    product.mkdir(parents=True)
    for name in ("timing.jsonl.gz", "product.yaml"):
        (product / name).write_bytes(b"a\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for words in (("checkout", "-q", "main"), ("add", "-A"), (*who, "commit", "-q", "-m", "3")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    (product / "timing.jsonl.gz").write_bytes(b"of a pull request\n")
    assert origin.files_before("0.12.0.1/cpu-4") == {"timing.jsonl.gz": b"a\n"}


@pytest.mark.parametrize("commit", ["x\0y", "main", "--help", "F" * 40, None])
def test_what_is_no_commit_is_not_asked_of_git(monkeypatch, commit):
    monkeypatch.setattr(origin, "look_up", lambda commit: pytest.fail("asked"))
    run = submissions.run_line(
        facts=submissions.facts(suite={"version": "1", "commit": commit, "clean": True})
    )
    assert list(origin.find_impossible_origin(run, marked=False)) == []


def test_version_and_table_are_those_of_the_commit(history, tmp_path, monkeypatch):
    assert (origin._ask(history[0]).version, origin._ask(history[0]).table) == ("", 1), "it names none"
    assert origin._ask(history[0]).lists == 0
    package = tmp_path / "harness/meshmark"
    (package / "operations").mkdir()
    for version in (9, 10):
        (package / "levels/data/must_pass" / f"v{version}").mkdir(parents=True)
        (package / "levels/data/must_pass" / f"v{version}" / "L0.txt").write_text("a\n")
    (package / "__init__.py").write_text('"""x"""\n\n__version__ = "1.2.3"\n')
    (package / "operations" / "versions.py").write_text("a = 1\nTABLE_VERSION = 99\n")
    for room, module in (("timing", "measure"), ("ranks", "rank_timing")):
        (package / room).mkdir()
        (package / room / f"{module}.py").write_text('COUNTS = "samples"\n')
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for words in (("checkout", "-q", "main"), ("add", "-A"), (*who, "commit", "-q", "-m", "3")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = origin._ask(head)
    assert (found.version, found.table, found.counts, found.counts_over) == ("1.2.3", 99, True, True)
    assert found.lists == 10
    monkeypatch.setattr(origin, "look_up", lambda commit: origin.Commit(origin.FIRST, "", "1.2.3", 99))
    told = list(origin.find_impossible_origin(submissions.run_line(), marked=False))
    assert any("suite version '0.1.0', and its commit has 1.2.3" in text for text in told)
    assert any("and its commit has version 99 of the case table" in text for text in told)


@pytest.mark.parametrize(("processes", "field"), [(1, "counts"), (2, "counts_over")])
def test_a_commit_that_counts_the_time_of_samples_says_so(monkeypatch, processes, field):
    """The rule of one process and that of several came with different commits."""
    run = submissions.run_line()
    run["timing"] = {"cadences": ["isolated"], "seconds": 0.06, "least": 10, "most": 1000}
    run["facts"] = run["facts"] | {"num_processes": processes}
    for counts in (False, True):
        commit = origin.Commit(origin.FIRST, "", **{field: counts})
        monkeypatch.setattr(origin, "look_up", lambda _, commit=commit: commit)
        told = any("`timing.counts` is missing" in text for text in origin.find_impossible_origin(run, False))
        assert told is counts
    run["timing"]["counts"] = "samples"
    assert not any("timing.counts" in text for text in origin.find_impossible_origin(run, False))


def test_what_is_checked_out_is_no_main_branch(history, tmp_path):
    """The branch of a submission may have a changed suite and its revert."""
    for words in (("checkout", "-q", "--detach"), ("branch", "-q", "-D", "main", "other")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    for commit in history:
        assert "no main branch is known here" in origin._ask(commit)
    assert origin.files_before("0.12.0.1/cpu-4") == {}
    assert ["no main branch is known here" in text for text in origin.describe_reviewer()] == [True]


def test_variables_of_git_and_replaced_objects_lead_to_no_other_history(history, tmp_path, monkeypatch):
    first, _, other = history
    before = origin._ask(first)
    elsewhere = tmp_path / "elsewhere"
    subprocess.run(["git", "clone", "-q", "-b", "other", str(tmp_path), str(elsewhere)], check=True)
    subprocess.run(["git", "-C", str(elsewhere), "branch", "-q", "-f", "main", other], check=True)
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    monkeypatch.setenv("GIT_NAMESPACE", "a")
    assert origin._ask(other) is None and origin._ask(first) == before
    monkeypatch.undo()
    monkeypatch.setattr(origin, "CHECKOUT", tmp_path)
    subprocess.run(["git", "-C", str(tmp_path), "replace", first, other], check=True)
    assert origin._ask(first) == before


def test_the_main_branch_that_was_asked_is_named(history, tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "look_up", lambda commit: None)
    (told,) = origin.find_impossible_origin(submissions.run_line(), marked=False)
    assert "is not one of the project's main branch (main): run" in told
    monkeypatch.setattr(origin, "digest_package", lambda: origin._digest("main"))
    (said,) = origin.describe_reviewer()
    assert said.startswith("commits of the suite are looked up in refs/heads/main (")
    subprocess.run(["git", "-C", str(tmp_path), "update-ref", "refs/remotes/origin/main", "main"], check=True)
    assert "refs/remotes/origin/main (" in origin.describe_reviewer()[0]


def test_a_suite_that_is_not_that_of_the_main_branch_is_told(history, monkeypatch):
    monkeypatch.setattr(origin, "digest_package", lambda: "0" * 16)
    assert (
        "this suite (package 0000000000000000) is not that of the main branch"
        in origin.describe_reviewer()[1]
    )
    monkeypatch.setattr(origin, "CHECKOUT", None)
    assert origin.describe_reviewer() == []
