# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that makes a wrong case look right: `-p tests.trouble.forger`; MESHMARK_SABOTEUR names the way.

`tests.trouble.saboteur` loses verdicts. This plugin ends early, removes cases, and replaces the verdicts of the suite.
"""

import atexit
import json
import os
import sys
import threading

import pytest

HOW = os.environ.get("MESHMARK_SABOTEUR", "")
WORKER = "PYTEST_XDIST_WORKER" in os.environ
STRUCK = "/manual/"


def struck(nodeid):
    return STRUCK in nodeid


def passing(text):
    """The lines of a case, with every verdict a pass."""
    found = json.loads(text)
    for lines in found:
        for line in lines or ():
            line |= {"verdict": "pass", "reason": ""}
    return json.dumps(found)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if HOW == "pytest.exit with code 0 as pytest is configured" and not WORKER:
        pytest.exit("enough", returncode=0)
    if HOW == "a handler at the exit of Python leaves with code 0" and not WORKER:
        atexit.register(os._exit, 0)
    if HOW == "a thread leaves with code 0" and not WORKER:
        threading.Timer(4.0, os._exit, (0,)).start()
    if HOW == "the list of bad verdicts is emptied":
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("meshmark") and hasattr(module, "BAD"):
                module.BAD = frozenset()
    if HOW == "the checks of a case find nothing" and WORKER:
        from meshmark.judge import checks

        for name in dir(checks):
            if name.startswith("compare") or name.startswith("check_"):
                setattr(checks, name, lambda *arguments, **options: [])
    if HOW == "digests are all the same" and WORKER:
        import hashlib

        hashlib.sha256 = lambda *arguments: hashlib.md5(b"")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    if HOW == "pytest.exit with code 0 as the session starts" and not WORKER:
        pytest.exit("enough", returncode=0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in [item for item in items if struck(item.nodeid)]:
        if HOW == "a plugin expects the failure":
            item.add_marker(pytest.mark.xfail(reason="sabotaged"))
        if HOW == "a plugin expects the failure, and does not run the case":
            item.add_marker(pytest.mark.xfail(reason="sabotaged", run=False))
        if HOW == "a plugin deselects the case":
            items.remove(item)
            config.hook.pytest_deselected(items=[item])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    if HOW == "pytest.exit with code 0 behind the collection" and not WORKER:
        pytest.exit("enough", returncode=0)
    if HOW == "a plugin forgets what was chosen":
        from meshmark.pytest_plugin import stashed

        session.items[:] = [item for item in session.items if not struck(item.nodeid)]
        session.config.stash[stashed.TRIALS] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if HOW == "a plugin calls no test" and struck(pyfuncitem.nodeid):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    if HOW == "a plugin runs no test" and struck(item.nodeid):
        return True
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    if HOW == "a worker writes passes over failures" and struck(item.nodeid) and "meshmark" in vars(report):
        report.meshmark = passing(report.meshmark)
        report.outcome, report.longrepr = "passed", None
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if not struck(report.nodeid) or report.when != "call" or WORKER:
        return
    if HOW == "the controller leaves with code 0":
        os._exit(0)
    if HOW == "pytest.exit with code 0 at a report":
        pytest.exit("enough", returncode=0)
    if HOW == "the controller takes passes for failures" and "meshmark" in vars(report):
        report.meshmark = passing(report.meshmark)
        report.outcome, report.longrepr = "passed", None


@pytest.fixture
def judge_case():
    """In the place of the suite's, where it is registered behind it."""
    return lambda *arguments, **options: []


def pytest_unconfigure():
    if HOW == "the controller leaves with code 0 at its end" and not WORKER:
        os._exit(0)
