# SPDX-License-Identifier: Apache-2.0
"""The tests of the harness run on eight virtual CPU devices, which are set before JAX is imported."""

import gc
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests import long
from tests.checkout import IMPORTS, ROOT

settings = None
if "MESHMARK_MARK" not in os.environ:  # the suite that makes trouble (tests.trouble.runs) draws nothing
    # The environments of the page and of compile-only run tests without it.
    with suppress(ImportError):
        from hypothesis import settings

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["COLUMNS"] = "300"  # lines stay whole; the tests of wrapping name a width of their own
# Children import the package of this checkout, installed or not, and modules of the tests.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [IMPORTS, os.environ.get("PYTHONPATH", "")]))

# Hundreds of children start. Without bytecode each compiles the package, pytest and JAX anew: half of its time.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "bytecode")

# The same commit gives the same outcome twice, and a busy machine misses deadlines, so no example has one.
# MESHMARK_FUZZ=1 draws anew each time, to look for what is not found yet.
if settings:
    settings.register_profile("meshmark", deadline=None, derandomize=os.environ.get("MESHMARK_FUZZ") != "1")
    settings.load_profile("meshmark")

collect_ignore = ["trouble"]  # a suite of its own, run by test_containment.py


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "e2e: starts whole runs, ranks or benchmarks, and waits for them (tox run -e e2e)",
    )
    config.addinivalue_line(
        "markers",
        "one_in(n): of its parameters one in n runs, by the commit; MESHMARK_SLOW=1 runs all (tox run -e thorough)",
    )
    config.addinivalue_line(
        "markers",
        "thorough: long, and smaller tests hold the same rule; runs with MESHMARK_SLOW=1 (tox run -e thorough)",
    )


def pytest_ignore_collect(collection_path, config):
    """With `-m e2e`, import only the files that have such a test: the others are nine in ten."""
    if config.option.markexpr != "e2e" or collection_path.suffix != ".py":
        return None
    return "mark.e2e" not in collection_path.read_text(encoding="utf-8") or None


def pytest_report_header():
    """Which part of the long tests runs."""
    if os.environ.get("MESHMARK_SLOW"):
        return "long tests: all"
    return f"long tests: the part of turn {long.turn()} (again with {long.TURN}; all with MESHMARK_SLOW=1)"


def pytest_collection_modifyitems(config, items):
    """Leave out what a short run does not take: tests that are thorough, and a part of the long ones. A file that the
    command line names runs with all of its parts."""
    if os.environ.get("MESHMARK_SLOW"):
        return
    at, seen = long.turn(), Counter()
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    kept, left_out = [], []
    for item in items:
        function = item.nodeid.partition("[")[0]
        mark = item.get_closest_marker("one_in")
        if mark is not None:
            taken = long.is_sampled(item.nodeid, mark.args[0], at)
        else:
            taken = long.is_in_turn(function, seen[function], at)
        left = item.get_closest_marker("thorough") or not (taken or item.path in named)
        seen[function] += 1
        (left_out if left else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def pytest_make_parametrize_id(val, argname):
    """Bytes are named by their argument, never by what they hold.

    A packed file holds the second it was packed in. Two workers of one run would collect unlike names, and pytest-xdist
    refuses to run any test then.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="module")
def frozen_heap():
    """For tests that sample often. Each sampling begins with a collection of garbage, which takes seconds after many
    tests: what lives now is left out of it until the module ends."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def compiled_quickly():
    """LLVM optimizes nothing: a program compiles in half of the time, and its collectives and values are the same.

    For tests that compile many programs to look at the judge, not at what LLVM makes of them.
    """
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def compiling(monkeypatch):
    """What compiling for a topology sets in this process is taken back when the test ends."""
    from meshmark.devices.topologies import ENVIRONMENT

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
