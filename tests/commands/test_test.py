# SPDX-License-Identifier: Apache-2.0
"""`meshmark test` passes all options to pytest, and finds the suite in the package."""

import json
import subprocess
import sys

import pytest

from meshmark.commands.main import main
from meshmark.core.installation import PACKAGE
from tests.interrupts import deaf, interruptible

pytestmark = pytest.mark.e2e

NODE = "conformance/test_collectives.py::test_collectives[psum/axes=x+y/auto/2x4/float32/4KiB]"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--help"],
        ["--version"],
        ["--profile", "smoke", "-k", "psum and not manual", "-n", "2", "--record", "x.jsonl"],
        ["-q", "--", NODE],
        ["--json", "devices"],
    ],
)
def test_every_option_is_pytest_s(monkeypatch, tmp_path, options):
    taken = []
    monkeypatch.setattr(pytest, "main", lambda args: taken.append(args) or pytest.ExitCode.NO_TESTS_COLLECTED)
    monkeypatch.chdir(tmp_path)
    assert main(["test", *options]) == 5, "the exit code is pytest's"
    [args] = taken
    assert args[len(args) - len(options) :] == options
    own = args[: len(args) - len(options)]
    assert own[own.index("--rootdir") + 1] == str(PACKAGE)
    assert own[own.index("-o") + 1] == f"cache_dir={tmp_path / '.pytest_cache'}", "not in the package"
    assert (PACKAGE / "conformance" / "pytest.ini").samefile(own[own.index("-c") + 1])


END = "---- collected ----"
COLLECTS = f"""
import json, sys
from meshmark.commands.main import main
for named in json.loads(sys.argv[1]):
    assert main(["test", "--profile", "smoke", "--collect-only", "-q", *named]) == 0, named
    print({END!r}, flush=True)
"""
"""Collects in each of several ways, in one process, which imports JAX once."""


def test_tests_have_their_names_from_any_directory(tmp_path):
    """And the conftest.py of that directory is not of the suite."""
    (tmp_path / "conftest.py").write_text("raise RuntimeError('read')")
    ways = ([], ["conformance"], ["conformance/test_collectives.py"], [NODE])
    command = [sys.executable, "-c", COLLECTS, json.dumps(ways)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for named, said in zip(ways, done.stdout.split(END)[:-1], strict=True):
        nodes = [line for line in said.splitlines() if "::" in line]
        assert NODE in nodes and (nodes == [NODE]) is (named == [NODE])
        assert all(node.startswith("conformance/test_") for node in nodes)
    assert not (PACKAGE / ".pytest_cache").exists()


@pytest.mark.parametrize("started", [interruptible, deaf])
def test_what_is_written_lies_in_the_working_directory_and_names_are_short(tmp_path, started):
    """pytest changes into the directory of its invocation before it ends: that must not be the package. Two ranks do
    the same where SIGINT is ignored: rank 1 has no terminal to say so on."""
    command = [
        "launch",
        "-n",
        "2",
        "--",
        sys.executable,
        "-m",
        "meshmark",
        "test",
        "--profile",
        "smoke",
        "-v",
    ]
    done = subprocess.run(
        started([sys.executable, "-m", "meshmark", *command, "--record", "x.jsonl", NODE]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"[0] {NODE}" in done.stdout and "1 passed" in done.stdout, done.stdout
    assert (tmp_path / "x.jsonl").is_file() and not list(PACKAGE.rglob("x.jsonl*"))
