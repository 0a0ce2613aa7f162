# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin behind `pytest conformance`: options, workers, cases, records and the closing table.

The controller probes the devices in a child process and starts no backend. Workers (pytest-xdist) are on by default:
one per core on CPU, one on any other backend. `-n 0` runs in one process, which a guard watches
(meshmark.pytest_plugin.guard). A case that crashes or hangs then ends the run.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from meshmark.core import scratch, steady, text
from meshmark.core.errors import BadInput
from meshmark.core.terminal import fit
from meshmark.devices import containment, environment, sharing
from meshmark.devices.facts import Facts
from meshmark.devices.starvation import Starvation
from meshmark.devices.watchdog import Watchdog
from meshmark.pytest_plugin import expecting, expressions, guard, worker
from meshmark.pytest_plugin.choosing import choose, find_places
from meshmark.pytest_plugin.controller import Controller, blame, matches_nothing, under_test
from meshmark.pytest_plugin.counting import (
    WELL,
    deselected,
    note_collected,
    note_deselected,
    taken_away,
)
from meshmark.pytest_plugin.judging import judge_case, unjudged, verdict
from meshmark.pytest_plugin.options import (
    add_options,
    check_numbers,
    coordinates_of,
    expectations_of,
)
from meshmark.pytest_plugin.rank import RankPlugin
from meshmark.pytest_plugin.recording import open_records
from meshmark.pytest_plugin.stashed import (
    CASE_RECORDS,
    CONTROLLER,
    EXPECTED,
    FACTS,
    FINISHED,
    GIVEN,
    GUARD,
    ITEM,
    OUTPUT,
    PLACES,
    RANK,
    TRIALS,
    WATCHDOG,
    WORKERS,
)
from meshmark.pytest_plugin.trials import case_of
from meshmark.ranks import rollcall

__all__ = ["judge_case", "verdict"]
"""The fixtures, which pytest finds in this module."""

ASKING = ("help", "version", "showfixtures", "show_fixtures_per_test", "markers", "cacheshow")
"""The pytest options that only ask for information."""

RUNS_NOTHING = (
    *("--collect-only", "--collectonly", "--co", "--help", "--version", "--fixtures", "--funcargs"),
    *("--fixtures-per-test", "--markers", "--cache-show"),
)
"""The spellings of these options and of --collect-only on a command line."""

FLAGS = "dflqsvx"
"""The short options without a value that may precede -h and -V in one word. `-kbatch` contains neither -h nor -V."""

GENERATED = "meshmark.pytest_plugin.generated"
"""The plugin of generated programs. It imports the whole hunt, so it is loaded only with `--generated`."""

ERROR = "ERROR: "
"""How pytest begins the line of a usage error."""

CASES_AT_ONCE = 24
"""The most cases that pytest-xdist gives a worker at once, unless `--maxschedchunk` says another number. Its own number
is half of what is left: when a case ends a worker, the other one gets these cases, and runs them alone to the end while
the new worker has none."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """In the controller, before the workers start: probe, check the options, choose the workers. As a wrapper, this
    runs before pytest-xdist's hook wherever the plugin is loaded from. It also sets the final exit code from the
    verdicts, even if another plugin ends with its own code, and fits errors to the terminal, which pytest does not."""
    try:
        return (yield from _run(config))
    except pytest.UsageError as error:
        raise pytest.UsageError(*map(_fitted, error.args)) from None


def _fitted(message: object) -> str:
    """The message of a usage error. pytest prints it behind a prefix."""
    return fit(f"{ERROR}{message}").removeprefix(ERROR)


def _run(config: pytest.Config) -> Generator[None, Any, Any]:
    """The run between the checks of the options and the exit code."""
    _begin(config)
    try:
        code = yield
    except SystemExit as leaving:
        if leaving.code:
            raise
        code = 0
    code = _settled(config, code)
    if rank := config.stash.get(RANK, None):
        rollcall.report_exit_code(rank.group.rank, int(code or 0))
    return code


def _settled(config: pytest.Config, code: Any) -> Any:
    """The exit code that follows from the verdicts."""
    if config.stash.get(FACTS, None) is None or config.option.collectonly or hasattr(config, "workerinput"):
        return code
    controller = config.stash.get(CONTROLLER, None)
    if controller:
        controller.settle()
    if code in WELL and not (controller and controller.settled):
        guard.tell("pytest ended before its session began: no case was run (see conftest.py and plugins)")
        return pytest.ExitCode.TESTS_FAILED
    return controller.exitstatus if controller and not code and controller.exitstatus not in WELL else code


def _begin(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    asks = any(getattr(config.option, name, None) for name in ASKING)
    if asks or config.option.collectonly:
        _check_asked(config)
    if asks:
        return
    if getattr(config.option, "looponfail", False):
        raise pytest.UsageError(
            "-f (--looponfail) starts runs without the options of the suite, and waits for ever: leave it out, and run"
            " again what failed with --lf, or what has no verdict with --resume FILE"
        )
    check_numbers(config)
    expressions.check_expressions(config)
    config.stash[OUTPUT] = steady.standard_output()
    config.stash[GIVEN] = os.environ.get("PYTEST_ADDOPTS", "").strip()
    try:
        expecting.check_level_options(config)
        config.stash[EXPECTED] = expectations_of(config)
        coordinates = coordinates_of(config)
        _prepare_environment(config, ranks=bool(coordinates))
        if coordinates:
            RankPlugin.begin(config, coordinates)
            return
        choose(config, find_places(config))
        open_records(config)
    except BadInput as error:
        raise pytest.UsageError(str(error)) from None
    if altered := guard.altered():
        raise pytest.UsageError(
            f"{altered} is not Python's own: a sitecustomize, a plugin or a conftest.py replaced it, and the exit code"
            " would be theirs: take that away"
        )
    _prepare_workers(config)
    if not _has_workers(config):
        config.stash[GUARD] = guard.fork_guard(config, partial(blame, config))
    elif guard.is_program():
        config.stash[GUARD] = guard.fork_guard(config)


def _check_asked(config: pytest.Config) -> None:
    """UsageError if an environment variable or a configuration file asks to run nothing. The run would end with exit
    code 0, and nobody would notice the missing verdicts."""
    given = [str(argument).partition("=")[0] for argument in config.invocation_params.args]
    if not any(one in RUNS_NOTHING or re.fullmatch(f"-[{FLAGS}]*[hV]", one) for one in given):
        raise pytest.UsageError(
            "PYTEST_ADDOPTS or a configuration file asks to run nothing (such as --collect-only): give that option on"
            " the command line"
        )


def _prepare_environment(config: pytest.Config, ranks: bool) -> None:
    """Set the variables that JAX reads when it starts, here and in the workers."""
    default = environment.CPU_DEVICES_A_PROCESS if ranks else environment.DEFAULT_CPU_DEVICES
    environment.set_here(environment.cpu_devices(config.getoption("num_devices"), default))


def _has_workers(config: pytest.Config) -> bool:
    return bool(getattr(config.option, "numprocesses", 0))


def _prepare_workers(config: pytest.Config) -> None:
    """Choose the number of workers, and set what they need."""
    facts = config.stash[FACTS]
    if getattr(config.option, "numprocesses", 0) is None and not (
        config.option.collectonly or config.option.usepdb
    ):
        config.option.numprocesses = sharing.default_workers(facts, os.cpu_count() or 1)
    if workers := getattr(config.option, "numprocesses", 0):
        environment.set_here(sharing.memory_shares(facts, workers))
        # Workers keep their own standard error, so pytest's capture must leave file descriptor 2 alone there
        # (they read the command line and this variable, not the controller's options), and a case that
        # crashes must not use up the restarts of the others.
        environment.set_here({"PYTEST_ADDOPTS": os.environ.get("PYTEST_ADDOPTS", "") + " --capture=no"})
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = str(10**9)
        if config.option.maxschedchunk is None:
            config.option.maxschedchunk = CASES_AT_ONCE


def pytest_configure(config: pytest.Config) -> None:
    """Register markers. In a worker, take over the facts; in the controller, start the report."""
    config.addinivalue_line("markers", "family(name): the family of operations that a conformance test runs")
    config.addinivalue_line("markers", "generated: a conformance test that runs programs of the hunt")
    if config.getoption("generated"):
        config.pluginmanager.import_plugin(GENERATED)
    handed = getattr(config, "workerinput", {}).get("meshmark")
    config.stash[WATCHDOG] = None
    alone = RANK not in config.stash and not _has_workers(config)
    if alone and (watching := config.stash.get(GUARD, None)):
        config.stash[WATCHDOG] = Watchdog(
            config.getoption("deadline"), watching.stream, watching, Starvation()
        )
    if handed is not None:
        data = json.loads(handed)
        choose(config, list(map(Facts.from_json, data["places"])))
        config.stash[EXPECTED] = expectations_of(config)
        config.stash[FINISHED] = dict.fromkeys(data["done"])  # type: ignore[misc]
        config.stash[WORKERS] = Path(data["directory"])
        worker.begin_worker(config, data["controller"])
    elif FACTS in config.stash and not config.option.collectonly:
        if getattr(config.option, "numprocesses", 0):
            try:
                config.stash[WORKERS] = scratch.make()
            except OSError as error:
                raise pytest.UsageError(f"no temporary directory: {error.strerror} (see TMPDIR)") from None
            environment.set_here({containment.MARK: str(config.stash[WORKERS])})
        config.pluginmanager.register(Controller(config), "meshmark-controller")
        if RANK in config.stash:
            config.stash[RANK].listen_to_signals()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: pass the facts to a worker."""
    stash = node.config.stash
    node.workerinput["meshmark"] = json.dumps(
        {
            "places": [facts.to_json() for facts in stash[PLACES]],
            "done": list(stash[FINISHED]),
            "directory": str(stash[WORKERS]),
            "controller": os.getpid(),
        }
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is under test."""
    width = config.get_terminal_writer().fullwidth
    return [part for line in under_test(config) for part in text.wrap(f"meshmark: {line}", width)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a conformance test the cases of its family."""
    if "generated" in metafunc.fixturenames:
        generated = metafunc.config.pluginmanager.get_plugin(GENERATED)
        programs = generated.choose_programs(metafunc.config) if generated else []
        metafunc.parametrize("generated", programs, ids=[program.id for program in programs])
        return
    marker = metafunc.definition.get_closest_marker("family")
    if marker is None or "case" not in metafunc.fixturenames:
        return
    trials = metafunc.config.stash[TRIALS].get(marker.args[0], [])
    metafunc.parametrize("case", trials, ids=[trial.id for trial in trials])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the placeholder of a family without chosen cases, and the cases that the resumed run had finished."""
    marked = ("family", "generated")
    items[:] = [i for i in items if not ("NOTSET" in i.name and any(map(i.get_closest_marker, marked)))]
    done = config.stash.get(FINISHED, {})
    if done:
        finished = {id(i) for i in items if case_of(i.nodeid) in done}
        config.hook.pytest_deselected(items=[i for i in items if id(i) in finished])
        items[:] = [i for i in items if id(i) not in finished]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Note each collected item, so that a removal without a report is found."""
    note_collected(item)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Note the items that are removed with a report."""
    note_deselected(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker: tell the controller which cases were removed, with and without a report."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = deselected(session.config)
        session.config.workeroutput["taken"] = taken_away(session.config, session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Send the record lines of a case with its report. A case that could not be judged because of an error of the suite
    gets the verdict error."""
    report: Any = yield
    if report.failed and report.when in ("setup", "call") and CASE_RECORDS not in item.stash:
        unjudged(item, call)
    if CASE_RECORDS in item.stash and (report.when == "call" or report.failed):
        report.meshmark = item.stash[CASE_RECORDS]
        del item.stash[CASE_RECORDS]
    return report


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Say why no test was left."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and (why := matches_nothing(config)):
        terminalreporter.write_line(f"meshmark: {why}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist: report the memory size of this process to the controller."""
    if hasattr(session.config, "workeroutput"):
        worker.end_worker(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """A case begins. Allow time for work around it; the start of a backend takes the longest."""
    worker.silent(containment.START + containment.BETWEEN)
    if watching := item.config.stash.get(GUARD, None):
        watching.at(case_of(item.nodeid), containment.START + containment.BETWEEN)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the test that runs now, for the fixture that judges its case."""
    item.config.stash[ITEM] = item


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_logfinish(nodeid: str) -> Iterator[None]:
    """In a worker: allow it to wait for its next case as long as the others take."""
    yield
    worker.silent(math.inf)


def pytest_enter_pdb(config: pytest.Config) -> None:
    """A debugger waits for a person, so no deadline applies."""
    if watchdog := config.stash[WATCHDOG]:
        watchdog.rest()
    worker.silent(math.inf)
    if watching := config.stash.get(GUARD, None):
        watching.within(math.inf)
