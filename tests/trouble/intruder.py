# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that disables the code that reports a wrong case: `-p tests.trouble.intruder`.

MESHMARK_SABOTEUR names the way: it shows failures as passes, unregisters the plugins that count and print, changes the
processor's rounding, or allows no further open file. `tests.trouble.saboteur` loses verdicts, and
`tests.trouble.forger` writes others.
"""

import ctypes
import os
import resource

import pytest

HOW = os.environ.get("MESHMARK_SABOTEUR", "")
WORKER = "PYTEST_XDIST_WORKER" in os.environ
UP = 0x800
"""FE_UPWARD of x86."""
FLUSHING = 0x8040
"""The bits of its control word that flush subnormal numbers."""

AWAY = {
    "a plugin takes the controller away": ("meshmark-controller", "meshmark-count"),
    "a plugin takes the count away": ("meshmark-count",),
    "a plugin takes what prints away": ("terminalreporter",),
}

if HOW == "a plugin shows failures as passes":

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(report):
        return ("passed", ".", "PASSED") if report.when == "call" else ("", "", "")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    plugins = session.config.pluginmanager
    for name in AWAY.get(HOW, ()) if not WORKER else ():
        plugins.unregister(name=name)
    if HOW == "a plugin takes the suite's plugin away in the worker" and WORKER:
        for name, _ in plugins.list_name_plugin():
            if name.endswith("pytest_plugin.plugin"):
                plugins.unregister(name=name)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if HOW == "a library rounds up" and WORKER:
        ctypes.CDLL("libm.so.6").fesetround(UP)
    if HOW == "a library flushes subnormal numbers" and WORKER:
        library, kept = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)()
        library.fegetenv(kept)
        kept[7] |= FLUSHING
        library.fesetenv(kept)
    if HOW == "no file can be opened any more" and not WORKER:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
