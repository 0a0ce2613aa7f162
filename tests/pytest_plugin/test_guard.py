# SPDX-License-Identifier: Apache-2.0
"""The guard of a run without workers: the run always ends, with a verdict and the right exit code."""

import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from meshmark.pytest_plugin import guard, plugin
from tests.checkout import ROOT
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guard is of Linux")

SCRIPT = """
import os, signal, sys, time
from types import SimpleNamespace
from meshmark.devices import containment
from meshmark.pytest_plugin import guard

containment.MARGIN, containment.BETWEEN = 0.3, 0.2
nothing = SimpleNamespace(getplugin=lambda name: None)
config = SimpleNamespace(option=SimpleNamespace(usepdb=False, collectonly=False), pluginmanager=nothing)
watching = guard.fork_guard(config, lambda case, line: print("blamed", case, line.verdict, line.reason, flush=True))
what = sys.argv[1]
if "case" in what:
    watching.at("psum/x", 0.2 if "late" in what else 60)
if "blocks" in what:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
if "late" in what and "ended" not in what:
    time.sleep(600)
if "stops" in what:
    os.kill(os.getpid(), signal.SIGSTOP)
if "killed" in what:
    os.kill(os.getpid(), signal.SIGKILL)
if "ended well" in what:
    watching.ended(0)
if "ended badly" in what:
    watching.ended(3)
if "late" in what:
    time.sleep(600)
os._exit(0)
"""

ENDS = {
    "in a case, leaves with 0": (1, "blamed psum/x crash exit code 0"),
    "in a case, killed": (1, "blamed psum/x crash SIGKILL"),
    "in a case, late": (1, "blamed psum/x hang past its deadline"),
    "in a case, late, blocks every signal": (1, "blamed psum/x hang past its deadline"),
    "leaves with 0 before the end": (1, "the run ended before its session did"),
    "killed": (-9, ""),
    "ended well": (0, ""),
    "ended badly": (3, ""),
    "ended well, then late": (1, "the session ended with exit code 0, and its process did not end"),
    "ended badly, then late": (3, "the session ended with exit code 3, and its process did not end"),
}


@pytest.fixture(scope="module")
def runs():
    """All at once: they mostly wait."""
    command = [sys.executable, "-c", SCRIPT]
    made = {
        name: subprocess.Popen(
            [*command, name],
            cwd=ROOT / "harness",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ENDS
    }
    yield {name: (one.communicate(timeout=PATIENCE)[0], one.returncode) for name, one in made.items()}
    for one in made.values():
        one.kill()


@pytest.mark.parametrize("name", ENDS)
def test_a_run_without_workers_ends_as_it_should(runs, name):
    output, code = runs[name]
    expected, told = ENDS[name]
    assert (code, told in output) == (expected, True), output


def test_a_function_by_which_the_guard_ends_is_pythons_own(monkeypatch):
    assert guard.altered() == ""
    monkeypatch.setattr(os, "_exit", lambda code: None)
    assert guard.altered() == "os._exit"


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        ({"__name__": "__main__", "__spec__": SimpleNamespace(name="pytest.__main__")}, True),
        ({"__name__": "__main__", "__spec__": SimpleNamespace(name="harness.__main__")}, True),
        ({"__name__": "__main__", "__spec__": None, "__file__": "/usr/bin/pytest"}, True),
        ({"__name__": "__main__", "__file__": "/usr/bin/meshmark"}, True),
        ({"__name__": "__main__", "__file__": "/home/me/run_all.py"}, False),
        ({"__name__": "__main__", "__spec__": SimpleNamespace(name="cProfile")}, False),
        ({"__name__": "pytest", "__file__": "/usr/bin/pytest"}, False),
    ],
)
def test_what_another_program_runs_is_a_program_too(names, is_one):
    """Under `python -m cProfile -m pytest` a run with a failed case ended with exit code 0."""
    assert guard._runs_a_program(SimpleNamespace(f_globals=names)) is is_one


@pytest.mark.parametrize(
    ("word", "asks"), [("-kbatch", False), ("-mwidth", False), ("-h", True), ("-qV", True)]
)
def test_a_word_that_ends_as_an_option_does_is_none(word, asks):
    """PYTEST_ADDOPTS=--collect-only with -kbatch collected, judged nothing, and ended with exit code 0."""
    config = SimpleNamespace(invocation_params=SimpleNamespace(args=(word,)))
    with nullcontext() if asks else pytest.raises(pytest.UsageError, match="asks to run nothing"):
        plugin._check_asked(config)


def test_runs_that_wait_for_changes_are_refused():
    """`-f` of pytest-xdist began a run of the standard profile, whatever was chosen, and never ended."""
    config = SimpleNamespace(option=SimpleNamespace(looponfail=True, collectonly=False))
    with pytest.raises(pytest.UsageError, match="--looponfail"):
        plugin._begin(config)
