# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that loses verdicts: `-p tests.trouble.saboteur`; MESHMARK_SABOTEUR names the way.

Each way affects the case in mode manual, and not through the case itself: pytest, a plugin or a conftest.py has a
fault.
"""

import functools
import os
import sys
import time
from pathlib import Path

import numpy
import pytest
from _pytest.runner import runtestprotocol

HOW = os.environ.get("MESHMARK_SABOTEUR", "")
WORKER = "PYTEST_XDIST_WORKER" in os.environ
STRUCK = "/manual/"
AGAIN = pytest.StashKey[bool]()


def struck(nodeid):
    return STRUCK in nodeid


def pytest_sessionstart(session):
    if not WORKER:  # behind the suite's own, which is there since pytest was configured
        session.config.pluginmanager.register(BeforeAllOthers())
        session.config.pluginmanager.register(BehindAllOthers())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if not struck(report.nodeid) or report.when != "call":
        return
    if HOW == "the records are removed" and not WORKER:
        _record().unlink()
    if HOW == "the records are replaced by others" and not WORKER:
        text = _record().read_text().replace('"verdict":"fail"', '"verdict":"pass"')
        _record().unlink()
        _record().write_text(text)
    if (HOW == "internal error in the worker" and WORKER) or (
        HOW == "internal error in the controller" and not WORKER
    ):
        raise RuntimeError("sabotaged")


@pytest.hookimpl(tryfirst=True)
def pytest_report_to_serializable(report):
    if HOW == "a report that can't be written" and struck(report.nodeid) and report.when == "call":
        raise RuntimeError("sabotaged")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    if HOW == "a report without its records" and struck(item.nodeid):
        vars(report).pop("meshmark", None)
    if HOW == "a plugin calls the failure a pass" and struck(item.nodeid) and report.failed:
        report.outcome, report.longrepr = "passed", None
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if HOW != "a plugin runs the failed case again, and it passes" or not struck(item.nodeid):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for again in (False, True):
        item.stash[AGAIN] = again
        item._initrequest()
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if report.failed:
                report.outcome, report.longrepr = "rerun", None
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    if not item.stash.get(AGAIN, True):
        raise RuntimeError("sabotaged")


def pytest_runtest_teardown(item):
    if HOW == "the worker dies after judging" and struck(item.nodeid):
        os._exit(0)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish(nodeid):
    if HOW == "the worker dies after its report" and WORKER and struck(nodeid):
        os._exit(0)


def pytest_collection_modifyitems(items):
    if HOW == "a conftest.py skips the case":
        for item in items:
            if struck(item.nodeid):
                item.add_marker(pytest.mark.skip(reason="sabotaged"))
    if HOW == "a conftest.py takes the case away":
        items[:] = [item for item in items if not struck(item.nodeid)]


def pytest_runtest_setup(item):
    if HOW == "a fixture fails" and struck(item.nodeid):
        raise RuntimeError("sabotaged")


def pytest_terminal_summary():
    if HOW == "the closing table fails":
        raise RuntimeError("sabotaged")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if HOW == "the session says that all is well" and not WORKER:
        session.exitstatus = 0


class BeforeAllOthers:
    """The session's end, before that of every other plugin."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self):
        if HOW == "a hook at the session's end leaves with SystemExit(0)":
            raise SystemExit(0)
        if HOW == "a hook at the session's end ends pytest with code 0":
            pytest.exit("enough", returncode=0)


class BehindAllOthers:
    """The same behind that of every other plugin."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self):
        yield
        if HOW == "a report is written over the records":
            _record().write_text("<testsuites/>")


def _record():
    return Path(sys.argv[sys.argv.index("--record") + 1])


def pytest_unconfigure():
    if HOW == "the process leaves with exit code 0" and not WORKER:
        sys.stdout.flush()
        os._exit(0)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if HOW == "a report that is never sent" and WORKER:
        for plugin in config.pluginmanager.get_plugins():
            if hasattr(plugin, "sendevent"):
                plugin.sendevent = _forgetting(plugin.sendevent)
    if HOW == "a conftest.py makes NumPy find everything equal" and WORKER:
        numpy.array_equal = lambda *arguments, **options: True
    if HOW == "a plugin sets a flag that Python does not show" and WORKER:
        os.putenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    if HOW == "a plugin changes a setting of JAX" and WORKER:
        import jax

        jax.config.update("jax_numpy_dtype_promotion", "strict")
    if HOW == "a plugin replaces a function of JAX" and WORKER:
        import jax

        jax.jit = lambda function, **options: function
    if HOW == "a plugin replaces what compares numbers" and WORKER:
        from meshmark.judge import numbers, self_test

        assert self_test.find_worst_element, "what proves the judge has the right one"
        numbers.find_worst_element = lambda *arguments: None
    if HOW == "a plugin replaces a method of arrays" and WORKER:
        from jax._src.array import ArrayImpl

        ArrayImpl.addressable_shards = property(lambda self: [])
    if HOW == "a plugin wraps a function of NumPy" and WORKER:
        numpy.array_equal = functools.wraps(numpy.array_equal)(lambda *arguments, **options: True)
    if HOW == "a plugin replaces a method of the judge" and WORKER:
        from meshmark.judge.checks import Judge

        Judge.run = lambda self, case: []
    if HOW == "seven of eight devices" and (WORKER or "-n" not in sys.argv):
        import jax

        every = jax.devices
        jax.devices = lambda *arguments: every(*arguments)[:7]
    if HOW == "the clock goes backwards" and WORKER:
        clock = time.perf_counter
        time.perf_counter = lambda: -clock()
    if HOW == "pytest.fail does nothing" and WORKER:
        pytest.fail = lambda *arguments, **options: None


def _forgetting(send):
    def sendevent(name, **content):
        data = content.get("data", {})
        if name == "testreport" and struck(data["nodeid"]) and data["when"] == "call":
            return
        send(name, **content)

    return sendevent
