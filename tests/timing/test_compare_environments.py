# SPDX-License-Identifier: Apache-2.0
"""Environments for `meshmark compare`: interpreters, virtual environments, releases, commits."""

import os
import subprocess
import sys
import tomllib
from dataclasses import replace

import pytest

from meshmark.timing import environments
from meshmark.timing.environments import NoEnvironment
from tests.checkout import ROOT, SOURCE
from tests.timing.replayed import CASES

# Environments -----------------------------------------------------------------------------------------------


def resolve(text, tmp_path, python=sys.executable, oldest=""):
    return environments.resolve(text, python, tmp_path, lambda _: None, oldest)


def test_interpreters_and_virtual_environments(tmp_path):
    assert resolve(sys.executable, tmp_path).python == os.path.abspath(sys.executable)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    for text, words in (
        (str(tmp_path / "venv"), "no bin/python"),
        (str(tmp_path / "nowhere"), "there is no"),
        (str(ROOT / "README.md"), "can't be run"),
        ("", "names nothing"),
        ("a\0b", "names nothing"),
        ("~nobody-of-this-name/venv", "there is no"),
        ("commit:no-such-ref", "not a commit of this checkout"),
        ("commit:--all", "not a commit of this checkout"),
    ):
        with pytest.raises(NoEnvironment, match=words):
            resolve(text, tmp_path)
    os.symlink(sys.executable, tmp_path / "venv" / "bin" / "python")
    assert resolve(str(tmp_path / "venv"), tmp_path).python == str(tmp_path / "venv" / "bin" / "python")


def test_a_release_is_made_once_and_pip_complains_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    installed = []

    def pip(python, wanted, say):
        installed.append(wanted)
        if wanted == "jax==0.0.99":
            raise NoEnvironment("pip could not install jax==0.0.99: No matching distribution")

    def said(command):
        if "venv" in command:
            os.makedirs(os.path.join(command[-1], "bin"))
            os.symlink(sys.executable, os.path.join(command[-1], "bin", "python"))
        return "cpython-399 x86_64"

    monkeypatch.setattr(environments, "_pip", pip)
    monkeypatch.setattr(environments, "_output_of", said)
    first = resolve("0.11.2", tmp_path)
    assert resolve("jax==0.11.2", tmp_path).python == first.python and installed == ["jax==0.11.2"]
    assert first.jax == "0.11.2" and str(tmp_path / "cache") in first.python
    with pytest.raises(NoEnvironment, match=r"0\.0\.99"):
        resolve("0.0.99", tmp_path)
    assert [p.name for p in environments.cache().iterdir()] == ["jax-0.11.2-cpython-399-x86_64"]


def test_a_release_that_cannot_time_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"jax>={environments.OLDEST_JAX}" in project["dependencies"]
    monkeypatch.setattr(environments, "environment_of", lambda *_: tmp_path / "python")
    for text, fine in (("0.10.1", False), ("jax==0.9.2", False), ("0.10.2", True), ("0.12.0.1", True)):
        if fine:
            resolve(text, tmp_path, oldest=environments.OLDEST_JAX)
            continue
        with pytest.raises(NoEnvironment, match=r"JAX 0\.10\.2 is the oldest release that can be timed"):
            resolve(text, tmp_path, oldest=environments.OLDEST_JAX)
    assert resolve("0.9.2", tmp_path).jax == "0.9.2"  # the weather compiles older releases too


def test_another_release_than_asked_for_is_refused(tmp_path):
    made = replace(resolve(sys.executable, tmp_path), jax="0.0.99")
    with pytest.raises(NoEnvironment, match="comes first on its path"):
        environments.read_facts(made)


def test_an_interpreter_without_jax_is_told(tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(NoEnvironment, match=r"can't time: .* -m pip install jax"):
        environments.read_facts(resolve(str(bare), tmp_path))


def test_jax_alone_is_enough_to_time():
    """A bare environment has what `pip install jax` brings: jaxlib, ml_dtypes, numpy, opt_einsum, scipy."""
    absent = [
        "packaging",
        "pytest",
        "xdist",
        "_pytest",
        "pandas",
        "rich",
        "tabulate",
        "hypothesis",
        "matplotlib",
    ]
    script = f"import sys; sys.modules.update(dict.fromkeys({absent})); import meshmark.timing.timer"
    subprocess.run([sys.executable, "-c", script + ", meshmark.devices.probe"], cwd=SOURCE, check=True)


def test_a_commit_is_copied_and_knows_its_own_table(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    def git(*arguments):
        options = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(checkout)]
        return subprocess.run(
            ["git", *options, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    (checkout / "a").write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    subprocess.run(["cp", "-r", str(ROOT / "harness"), str(checkout)], check=True)
    git("add", ".")
    git("commit", "-qm", "two")
    monkeypatch.setattr(environments, "CHECKOUT", checkout)
    with pytest.raises(NoEnvironment, match="choose a later commit"):
        resolve("commit:HEAD~1", tmp_path)
    made = resolve("commit:HEAD", tmp_path)
    assert made.commit == git("rev-parse", "HEAD").strip()
    assert (made.path / "meshmark" / "timing" / "timer.py").exists() and made.layout == environments.TODAY
    gone = CASES[1].replace("psum", "no_such_operation")
    assert environments.missing(made, [CASES[0], gone], 8) == {gone}
    assert environments.missing(replace(made, commit=""), [gone], 8) == set()


def test_commits_before_the_rooms_are_started_by_their_old_names(tmp_path):
    """A commit whose package is a flat harness/ times itself through harness.timer, beside its pyproject.toml."""
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "timer.py").touch()
    assert environments.layout_of(tmp_path, "commit:x") == environments.BEFORE_ROOMS
    (tmp_path / "harness" / "meshmark" / "timing").mkdir(parents=True)
    (tmp_path / "harness" / "meshmark" / "timing" / "timer.py").touch()
    assert environments.layout_of(tmp_path, "commit:x") == environments.TODAY
