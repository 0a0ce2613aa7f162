# SPDX-License-Identifier: Apache-2.0
"""Variables as libraries read them: those that Python does not show, and flags that are in a file."""

import ctypes
import os
import sys

import pytest

from meshmark.core.errors import BadInput
from meshmark.devices import probe, variables
from meshmark.devices.facts import Facts
from meshmark.publish.environments import find_impossible_facts
from meshmark.pytest_plugin.judging import unchanged
from meshmark.timing import timer
from tests.submissions import facts as facts_of

OTHER = "--xla_cpu_enable_fast_math=true"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there C code reads other variables")


def by_python(name, value):
    os.putenv(name, value)


def by_a_library(name, value):
    ctypes.CDLL(None).setenv(name.encode(), value.encode(), 1)


@pytest.mark.parametrize("set_one", [by_python, by_a_library])
def test_flags_that_python_does_not_show_are_recorded_and_a_problem(monkeypatch, set_one):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert probe.hidden_flags() == "" and dict(os.environ).items() <= variables.as_c_reads().items()
    set_one("XLA_FLAGS", OTHER)
    try:
        assert probe.flags_here()["XLA_FLAGS"] == OTHER
        told = f"XLA_FLAGS is '{OTHER}' for libraries, and not set in os.environ"
        assert told in probe.hidden_flags() and told in timer.doubts()
        with pytest.raises(RuntimeError, match="this process has flags that Python does not show: XLA_FLAGS"):
            unchanged(Facts({}, "cpu", "cpu", 8, 1, [], probe.flags_here(), {}))
    finally:
        os.unsetenv("XLA_FLAGS")


def test_a_flag_that_is_shown_and_not_read_is_a_problem_too(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", OTHER)
    os.unsetenv("XLA_FLAGS")
    assert f"XLA_FLAGS is not set for libraries, and '{OTHER}' in os.environ" in probe.hidden_flags()
    assert "XLA_FLAGS" not in probe.flags_here()


def test_what_an_accelerator_s_library_sets_is_recorded_and_no_problem():
    os.putenv("NCCL_LAUNCH_MODE", "PARALLEL")
    try:
        assert probe.hidden_flags() == "" and probe.flags_here()["NCCL_LAUNCH_MODE"] == "PARALLEL"
    finally:
        os.unsetenv("NCCL_LAUNCH_MODE")


def test_the_flags_in_a_file_are_what_is_recorded(monkeypatch, tmp_path):
    path = tmp_path / "flags"
    path.write_text(f"\n  {OTHER}\r\n\t--xla_cpu_multi_thread_eigen=false\n")
    monkeypatch.setenv("XLA_FLAGS", str(path))
    assert probe.flags_here()["XLA_FLAGS"] == f"{OTHER} --xla_cpu_multi_thread_eigen=false"
    before = Facts({}, "cpu", "cpu", 8, 1, [], probe.flags_here(), {})
    path.write_text("--xla_cpu_enable_fast_math=false")
    with pytest.raises(RuntimeError, match=f"XLA_FLAGS is --xla_cpu_enable_fast_math=false, and was {OTHER}"):
        unchanged(before)
    assert variables.flags_in(f" {OTHER}") == f" {OTHER}" and variables.flags_in("") == ""


def test_flags_that_can_t_be_read_again_are_refused_in_a_line(monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing", tmp_path / "pipe", tmp_path):
        monkeypatch.setenv("XLA_FLAGS", str(path))
        with pytest.raises(
            BadInput, match=r"^XLA_FLAGS names a file of flags that is missing, or is no plain"
        ):
            probe.probe()
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--a=1 --flagfile=/x")
    with pytest.raises(BadInput, match=r"^LIBTPU_INIT_ARGS takes flags from elsewhere"):
        probe.probe()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"XLA_FLAGS": "<path>"}, "XLA_FLAGS is '<path>', the name of a file"),
        ({"LIBTPU_INIT_ARGS": "--flagfile=<path>"}, "LIBTPU_INIT_ARGS takes flags from elsewhere"),
    ],
)
def test_records_with_flags_that_nobody_can_read_are_refused(flags, told):
    honest = facts_of()
    assert not [text for text in find_impossible_facts(honest) if "flags" in text]
    found = list(find_impossible_facts(honest | {"flags": honest["flags"] | flags}))
    assert any(told in text for text in found), found
