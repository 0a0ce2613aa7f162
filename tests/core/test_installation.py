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
