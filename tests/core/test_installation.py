# SPDX-License-Identifier: Apache-2.0
"""The state of the suite in a run line: from git, from the build, or unknown; and the digest of its files."""

import json
import shutil
import subprocess

import pytest

from meshmark import __version__
from meshmark.core import installation

BUILT = {"commit": "a" * 40, "clean": True}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small installed package."""
    place = tmp_path / "site-packages" / "meshmark"
    place.mkdir(parents=True)
    (place / "a.py").write_text("A = 1\n")
    monkeypatch.setattr(installation, "PACKAGE", place)
    monkeypatch.setattr(installation, "BUILD", place / "_build.json")
    monkeypatch.setattr(installation, "CHECKOUT", None)
    installation.digest_package.cache_clear()
    yield place
    installation.digest_package.cache_clear()


def digest():
    installation.digest_package.cache_clear()
    return installation.digest_package()


def test_an_installed_package_says_what_the_build_wrote(package):
    assert installation.suite() == {
        "version": __version__, "commit": None, "clean": None, "digest": installation.digest_package()
    }  # fmt: skip
    (package / "_build.json").write_text(json.dumps(BUILT))
    assert installation.suite() == {"version": __version__, **BUILT, "digest": installation.digest_package()}


def test_an_unpacked_source_distribution_says_what_the_build_wrote(package, tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "CHECKOUT", tmp_path)
    (package / "_build.json").write_text(json.dumps(BUILT))
    assert installation.suite()["commit"] == "a" * 40


def test_the_version_names_the_commit_and_jax_where_they_are_known(package, monkeypatch):
    monkeypatch.setattr(installation.metadata, "version", lambda name: {"jax": "0.12.0.1"}[name])
    assert installation.describe_version() == f"meshmark {__version__}, jax 0.12.0.1"
    for clean, told in ((True, " (clean)"), (False, " (with changes)"), (None, "")):
        (package / "_build.json").write_text(json.dumps(BUILT | {"clean": clean}))
        assert installation.describe_version() == (
            f"meshmark {__version__}, commit aaaaaaaaaaaa{told}, jax 0.12.0.1"
        )

    def absent(name):
        raise installation.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation.metadata, "version", absent)
    assert installation.describe_version().endswith(", no jax")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_goes_before_what_a_build_wrote(package, tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "CHECKOUT", tmp_path)
    (package / "_build.json").write_text(json.dumps(BUILT))
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    found = installation.suite()
    assert found["commit"] not in (None, "a" * 40) and found["clean"] is True
    (package / "a.py").write_text("A = 2\n")
    assert installation.suite()["clean"] is False


def ask_to_hide_an_edit(how):
    def hide(git, place):
        git("update-index", how, "conformance/conftest.py")
        (place / "conformance" / "conftest.py").write_text("A = 2\n")

    return hide


def ask_to_show_none(git, place):
    git("config", "status.showUntrackedFiles", "no")
    (place / "conformance" / "more.py").write_text("")


def exclude_in_person(git, place):
    (place / ".git" / "info").mkdir(exist_ok=True)
    (place / ".git" / "info" / "exclude").write_text("*.py\n")
    (place / "conformance" / "more.py").write_text("")


def exclude_by_a_file(git, place):
    (place / "mine").write_text("*.py\nmine\n")
    git("config", "core.excludesFile", str(place / "mine"))


def exclude_by_an_own_gitignore(git, place):
    (place / "conformance" / ".gitignore").write_text("*\n")
    (place / "conformance" / "more.py").write_text("")


def filter_the_edit_away(git, place):
    git("config", "filter.back.clean", "printf 'A = 1\\n'")
    (place / ".git" / "info").mkdir(exist_ok=True)
    (place / ".git" / "info" / "attributes").write_text("conformance/conftest.py filter=back\n")
    (place / "conformance" / "conftest.py").write_text("A = 2\n")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(
    "hide",
    [
        ask_to_hide_an_edit("--skip-worktree"),
        ask_to_hide_an_edit("--assume-unchanged"),
        ask_to_show_none,
        exclude_in_person,
        exclude_by_a_file,
        exclude_by_an_own_gitignore,
        filter_the_edit_away,
    ],
)
def test_git_can_t_be_told_to_call_a_checkout_clean(tmp_path, monkeypatch, hide):
    git = committed(tmp_path, monkeypatch)
    assert installation.suite()["clean"] is True
    hide(git, tmp_path)
    assert installation.suite()["clean"] is False


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_what_the_committed_gitignore_names_is_no_change_and_variables_name_no_other_repository(
    tmp_path, monkeypatch
):
    checkout, other = tmp_path / "own", tmp_path / "other"
    git = committed(checkout, monkeypatch)
    (checkout / "conformance" / "__pycache__").mkdir()
    (checkout / "conformance" / "__pycache__" / "a.pyc").write_text("")
    before = installation.suite()
    assert before["clean"] is True
    committed(other, monkeypatch)
    monkeypatch.setattr(installation, "CHECKOUT", checkout)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "none"))
    assert installation.suite() == before
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    git("update-index", "--skip-worktree", "docs/a.md")  # as a sparse checkout has it
    (checkout / "docs" / "a.md").unlink()
    assert installation.suite() == before


def committed(place, monkeypatch):
    """A checkout in which everything is committed; gives what runs git in it."""

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(place), *who, *arguments], check=True)

    for name in ("conformance/conftest.py", "harness/a.py"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("A = 1\n")
    (place / "docs").mkdir()
    (place / "docs" / "a.md").write_text(f"{place}\n")
    (place / ".gitignore").write_text("__pycache__/\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        git(*arguments)
    monkeypatch.setattr(installation, "CHECKOUT", place)
    return git


def test_the_digest_is_of_names_and_contents_and_not_of_litter(package):
    before = digest()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.cpython-312.pyc").write_bytes(b"1")
    (package / "_build.json").write_text(json.dumps(BUILT))
    assert digest() == before, "a wheel has the digest of the checkout that it was built from"
    (package / "a.py").rename(package / "b.py")
    renamed = digest()
    (package / "b.py").write_text("A = 2\n")
    assert len({before, renamed, digest()}) == 3
