# SPDX-License-Identifier: Apache-2.0
"""The tests of the harness run on eight virtual CPU devices, which are set before JAX is imported."""

import gc
import os
import zlib
from contextlib import suppress

import pytest

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
        "one_in(n): of its parameters one in n runs, always the same; MESHMARK_SLOW=1 runs all (tox run -e thorough)",
    )
    config.addinivalue_line(
        "markers",
        "thorough: long, and smaller tests hold the same rule; runs with MESHMARK_SLOW=1 (tox run -e thorough)",
    )


def pytest_collection_modifyitems(config, items):
    """Leave out what a short run does not take: parameters by the hash of their test's id, and long tests."""
    if os.environ.get("MESHMARK_SLOW"):
        return
    kept, left_out = [], []
    for item in items:
        mark = item.get_closest_marker("one_in")
        left = item.get_closest_marker("thorough") or (
            mark is not None and zlib.crc32(item.nodeid.encode()) % mark.args[0]
        )
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
