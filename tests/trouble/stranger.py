# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that changes the contents of a run: `-p tests.trouble.stranger`; MESHMARK_SABOTEUR names the way.

It renames and swaps tests, changes options after they were checked, and changes signals, files and streams of the
process. `tests.trouble.saboteur` loses verdicts.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

HOW = os.environ.get("MESHMARK_SABOTEUR", "")
WORKER = "PYTEST_XDIST_WORKER" in os.environ
STRUCK, OTHER = "/manual/", "/auto/"
ALONE = sys.argv[sys.argv.index("-n") + 1] == "0" if "-n" in sys.argv else not WORKER
JUDGES = WORKER or ALONE
"""Whether this process judges cases."""

if HOW == "SIGCHLD is ignored":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if HOW == "every signal is blocked from the start" and not WORKER:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


if HOW == "a handler for forks ends the guard" and not WORKER:
    os.register_at_fork(after_in_parent=lambda: os._exit(0))
if HOW == "a handler ends whoever is about to fork" and not WORKER:
    os.register_at_fork(before=lambda: os._exit(0))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if HOW == "a plugin asks to collect only, once the options were checked":
        config.option.collectonly = True
    if HOW == "a plugin asks for the plan of the set-up, once the options were checked":
        config.option.setupplan = config.option.setuponly = config.option.setupshow = True
    if HOW == "a plugin asks for nothing that fails" and not WORKER:
        config.option.maxfail, config.option.verbose, config.option.tbstyle = 1, -9, "no"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    struck = [item for item in items if STRUCK in item.nodeid]
    others = [item for item in items if OTHER in item.nodeid]
    for item in struck:
        if HOW == "a plugin gives the test another name":
            item._nodeid = item.nodeid.replace(STRUCK, "/elsewhere/")
        if HOW == "a plugin gives the test the name of another":
            item._nodeid = others[0].nodeid
        if HOW == "a plugin gives the test the case of another":
            item.callspec.params["case"] = others[0].callspec.params["case"]
        if HOW == "a plugin calls another test function":
            item.obj = lambda **fixtures: None
        if HOW == "a plugin takes the fixtures away":
            item.fixturenames[:] = [name for name in item.fixturenames if name != "judge_case"]
            item.obj = lambda case: None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if HOW == "a plugin calls the test in a thread" and STRUCK in pyfuncitem.nodeid:
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        thread = threading.Thread(target=pyfuncitem.obj, kwargs=arguments)
        thread.start()
        thread.join()
        return True
    if HOW == "a plugin swallows what the test raises" and STRUCK in pyfuncitem.nodeid:
        names = pyfuncitem._fixtureinfo.argnames
        with suppress(BaseException):
            pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if report.when != "call" or STRUCK not in report.nodeid or WORKER:
        return
    if HOW == "the standard output of the controller is closed":
        for number in (0, 1):
            os.close(number)
    if HOW == "the working directory goes away":
        gone = Path(os.environ["TMPDIR"]) / f"gone{os.getpid()}"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
    if HOW == "the clock jumps a year":
        clock = time.time
        time.time = lambda: clock() + 3e7


def pytest_sessionstart(session):
    if HOW == "a plugin counts no failure" and not WORKER:
        kind = type(session)
        kind.testsfailed = property(lambda self: 0, lambda self, value: None)
