# SPDX-License-Identifier: Apache-2.0
"""A change on disk during a run is reported, and the exit code of the run is not 0."""

import os
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from meshmark.core import installation
from meshmark.devices import on_disk, probe
from meshmark.devices.on_disk import OnDisk
from meshmark.records import reading
from tests.waiting import until

CHANGED = "the suite's files changed while it ran"

EDITOR = """
from meshmark.core import installation

def pytest_runtest_logreport(report):
    with open(installation.PACKAGE / 'judge' / 'checks.py', "a") as file:
        file.write("# an edit while the run goes on\\n")
"""


def test_nothing_changed():
    assert list(OnDisk.read().list_changes()) == []
    assert list(OnDisk.read(probe.facts()).list_changes()) == []


def test_a_file_of_the_suite_changed(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text("x = 1")
    before = OnDisk.read()
    (tmp_path / "a.py").write_text("x = 2")
    (line,) = before.list_changes()
    assert line.startswith(f"the suite's files changed while it ran (digest {before.suite}, now ")


def test_a_package_was_upgraded(monkeypatch):
    before = OnDisk.read()
    monkeypatch.setattr(
        on_disk, "version", lambda name: "99.0" if name == "numpy" else metadata.version(name)
    )
    (line,) = before.list_changes()
    assert line.startswith(f"numpy changed while the suite ran ({before.versions['numpy']}, now 99.0): ")


def test_another_version_of_jax_counts_as_changed():
    (line,) = OnDisk(OnDisk.read().suite, OnDisk.read().versions | {"jax": "0.0.1"}).list_changes()
    assert line.startswith("jax changed while the suite ran (0.0.1, now ")


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of the package, which a test may edit: the directory to put on PYTHONPATH."""
    directory = tmp_path_factory.mktemp("copied")
    shutil.copytree(installation.PACKAGE, directory / "meshmark")
    return directory


def start(copied, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(copied)}
    command = [sys.executable, "-m", "meshmark", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=copied, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(run):
    output, _ = run.communicate(timeout=300)
    return run.returncode, " ".join(output.split())


@pytest.mark.e2e
def test_a_run_whose_suite_is_edited_does_not_end_well(copied):
    chosen = ("test", "-n", "1", "--operations", "psum", "--meshes", "2x4", "--profile", "smoke")
    code, output = finish(start(copied, *chosen))
    assert code == 0, output
    (copied / "editor.py").write_text(EDITOR)
    code, output = finish(start(copied, *chosen, "-p", "editor"))
    assert code == 1 and CHANGED in output, output


@pytest.mark.e2e
def test_a_benchmark_whose_suite_is_edited_does_not_end_well(copied, tmp_path):
    file = tmp_path / "run.jsonl"
    chosen = ("--operations", "psum", "--modes", "manual", "--meshes", "2x4", "--sizes", "4KiB")
    run = start(copied, "bench", *chosen, "--seconds", "0.01", "--no-ceilings", "--record", file)
    assert until(file.exists)
    with open(copied / "meshmark" / "judge" / "checks.py", "a") as edited:
        edited.write("# an edit while the run goes on\n")
    code, output = finish(run)
    assert code == 1 and CHANGED in output, output
    assert reading.read_records(file).ends[0]["exit_code"] == 1
