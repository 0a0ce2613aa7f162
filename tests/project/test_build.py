# SPDX-License-Identifier: Apache-2.0
"""The build makes a wheel that holds the package and nothing else, and that names its commit."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import BytesParser

import pytest

from tests.checkout import ROOT

HOOK = "import sys; from setuptools import build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def built(directory, kind, output):
    """The file that the build backend makes of this directory; `kind` is wheel or sdist."""
    output.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", HOOK, kind, str(output)], cwd=directory, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return output / done.stdout.splitlines()[-1]


def state(wheel):
    """What a wheel says of its commit."""
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read("meshmark/_build.json"))


def git(directory, *arguments):
    done = subprocess.run(["git", "-C", str(directory), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def tracked():
    """The committed and new files of the package, and what the build reads."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout: it has no list of files to compare with")
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A clean git checkout of the files that stand here, with one commit, and litter that git ignores."""
    pytest.importorskip("setuptools", reason="the build needs setuptools 77: pip install setuptools")
    root = tmp_path_factory.mktemp("build") / "checkout"
    for name in tracked():
        if name.startswith(("harness/", "conformance/", "tests/project/")) or "/" not in name:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "all")
    litter = root / "harness" / "meshmark" / "core" / "__pycache__" / "text.cpython-312.pyc"
    stale = root / "build" / "lib" / "meshmark" / "gone.py"
    for path in (litter, stale):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return root


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory):
    return built(checkout, "wheel", tmp_path_factory.mktemp("dist"))


def test_a_wheel_holds_the_committed_files_of_the_package_and_nothing_else(wheel):
    wanted = {name.removeprefix("harness/") for name in tracked() if name.startswith("harness/meshmark/")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    held = {name for name in names if ".dist-info/" not in name}
    assert held == wanted | {"meshmark/_build.json"}
    beside = {name.split(".dist-info/")[1] for name in names - held}
    assert beside == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}


def test_a_wheel_says_its_commit_and_whether_it_was_clean(checkout, wheel, tmp_path):
    commit = git(checkout, "rev-parse", "HEAD")
    assert state(wheel) == {"commit": commit, "clean": True}
    changed = checkout / "README.md"
    before = changed.read_bytes()
    changed.write_bytes(before + b"\nchanged\n")
    try:
        assert state(built(checkout, "wheel", tmp_path / "dist")) == {"commit": commit, "clean": False}
    finally:
        changed.write_bytes(before)


def test_a_source_distribution_builds_the_same_wheel_and_carries_the_commit_on(checkout, wheel, tmp_path):
    source = built(checkout, "sdist", tmp_path / "dist")
    assert not (checkout / "harness" / "meshmark" / "_build.json").exists()
    with tarfile.open(source) as archive:
        names = archive.getnames()
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 has none
        archive.extractall(tmp_path)
    assert not [name for name in names if "__pycache__" in name or "/build/" in name or "/tests" in name]
    again = built(tmp_path / source.name.removesuffix(".tar.gz"), "wheel", tmp_path / "again")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        for name in first.namelist():
            if not name.endswith("/RECORD"):
                assert first.read(name) == second.read(name), name


def test_an_exported_tree_without_git_names_no_commit(checkout, tmp_path):
    exported = tmp_path / "exported"
    shutil.copytree(checkout, exported, ignore=shutil.ignore_patterns(".git", "build", "*.egg-info"))
    assert state(built(exported, "wheel", tmp_path / "dist")) == {"commit": None, "clean": None}


def test_a_tree_below_another_checkout_does_not_take_its_commit(checkout, tmp_path):
    outer = tmp_path / "outer"
    inner = outer / "vendored"
    shutil.copytree(checkout, inner, ignore=shutil.ignore_patterns(".git", "build", "*.egg-info"))
    git(outer, "init", "-q")
    git(outer, "add", "-A")
    git(outer, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "other")
    assert state(built(inner, "wheel", tmp_path / "dist")) == {"commit": None, "clean": None}


def test_the_metadata_is_what_an_index_wants(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name))
    from meshmark import __version__

    assert metadata["Version"] == __version__
    assert metadata["Author"] == "Meshmark maintainers" and metadata["Author-email"] is None
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload(decode=True).decode()
    assert text.startswith("# Meshmark") and "CONTRIBUTING.md" in text
    relative = re.findall(r"\]\((?!https?:|#)[^)]*\)", text)
    assert not relative, "a package index can't follow a link into the repository"
    assert metadata.get_all("Project-URL") is None, "no address is invented"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    classifiers = pytest.importorskip("trove_classifiers", reason="pip install trove-classifiers").classifiers
    assert set(metadata.get_all("Classifier")) <= classifiers
