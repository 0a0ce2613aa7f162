# SPDX-License-Identifier: Apache-2.0
"""Temporary directories: a later run removes those of killed processes, and no other."""

import signal
import subprocess
import sys
import tempfile

import pytest

from meshmark.core import scratch
from tests.waiting import PATIENCE

HOLD = (
    "from meshmark.core import scratch; import time; print(scratch.make('x-'), flush=True); time.sleep(600)"
)

pytestmark = pytest.mark.skipif(scratch.fcntl is None, reason="no locks here")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_a_directory_is_there_until_it_is_removed(tmp_path):
    made = scratch.make("x-")
    assert made.parent == tmp_path and made.is_dir()
    assert scratch.sweep() == []
    scratch.remove(made)
    assert not made.exists()


def test_a_killed_process_s_directory_is_removed_by_a_later_one():
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as child:
        made = child.stdout.readline().strip()
        assert scratch.sweep() == [], "its process lives"
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        own = scratch.make()
        assert [str(one) for one in made.split()] and not (own.parent / made).exists()
        scratch.remove(own)


def test_what_is_no_such_directory_is_left_alone(tmp_path):
    for name in ("other", "meshmark-without-lock", "meshmark-real"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "lock").touch()
    (tmp_path / "meshmark-link").symlink_to(tmp_path / "other")
    (tmp_path / "meshmark-real" / "lock").symlink_to(tmp_path / "other" / "lock")
    assert scratch.sweep() == []
    assert len(list(tmp_path.iterdir())) == 4
