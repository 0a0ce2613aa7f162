# SPDX-License-Identifier: Apache-2.0
"""The deadline of a case that compiles several programs."""

import subprocess
import sys
import time

import jax
import pytest

from meshmark.devices.watchdog import MANY
from meshmark.pytest_plugin.judging import after_compiling

WATCHED = """
import sys, time
from meshmark.devices.watchdog import Watchdog
dog = Watchdog(2.0, sys.stderr)
with dog.over():
    for _ in range(int(sys.argv[1])):
        time.sleep(1.5)
        dog.go_on()
    time.sleep(float(sys.argv[2]))
"""
"""Programs of 1.5 seconds each, and one after them, with a deadline of 2 seconds."""


def watched(programs, after):
    """(exit code, standard error, seconds)."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(programs), str(after)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr, time.monotonic() - began


@pytest.mark.e2e
def test_each_program_of_a_case_has_its_deadline():
    code, words, _ = watched(3, 1)
    assert code == 0, words


@pytest.mark.e2e
@pytest.mark.parametrize(("programs", "after"), [(0, 50), (2, 50), (1000, 0)], ids=["one", "last", "no end"])
def test_a_program_that_takes_longer_ends_the_process(programs, after):
    code, words, seconds = watched(programs, after)
    assert code and "Timeout" in words
    assert seconds < 2 * (MANY + 2)


def test_a_compilation_is_noticed():
    seen = []
    listen = after_compiling(lambda: seen.append(1))
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        program = jax.jit(lambda x: x * 3 + 2)
        program(1.0)
        assert len(seen) == 1
        program(2.0)
        assert len(seen) == 1
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
