# SPDX-License-Identifier: Apache-2.0
"""Counts verdicts: the run names each chosen case that has none, and then its exit code is not 0.

A verdict can get lost in many ways, and nobody can foresee all of them. So the process that writes the records counts
for itself, whatever else went wrong.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest

from meshmark.core import saying
from meshmark.core.installation import CHECKOUT, SOURCE
from meshmark.pytest_plugin.stashed import COLLECTED, FINISHED, JUDGED, TRIALS, WRITER
from meshmark.pytest_plugin.trials import case_of

SUITES = (SOURCE / "meshmark" / "conformance", *([CHECKOUT / "conformance"] if CHECKOUT else []))
"""The directories of the suite's tests."""

FEW = 20
"""The most cases without a verdict that are named if somebody ended the run early."""

WELL = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class Count:
    """What was chosen, what has no verdict, and what else keeps a run from ending well. A plugin of pytest."""

    def __init__(self, config: pytest.Config, judged: Container[str]) -> None:
        """judged: the ids of the cases with a verdict, as they come in."""
        self.config, self.judged = config, judged
        self.chosen: dict[str, None] | None = None
        """Cases that pytest has collected, in their order; None while it has collected nothing."""
        self.problems: dict[str, None] = {}
        self.missing: list[str] = []
        self.early = False
        self.taken: dict[str, None] = {}
        """Cases that were collected and then taken away."""
        self.deselected: dict[str, None] = {}
        """Cases that an option or a plugin has deselected: the run reports them, and they do not count as lost."""
        self.came: dict[str, list[str]] = defaultdict(list)
        """The digests of what came of each case."""

    def add(self, nodeids: Iterable[str]) -> None:
        """Take in what pytest has collected, here or in a worker."""
        trials = {trial.id for family in self.config.stash[TRIALS].values() for trial in family}
        self.chosen = self.chosen or {}
        self.chosen |= dict.fromkeys(case for case in map(case_of, nodeids) if case in trials)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers: what this process has collected."""
        if session.items or not getattr(self.config.option, "numprocesses", 0):
            self.add(item.nodeid for item in session.items)
            self.taken |= dict.fromkeys(taken_away(self.config, session.items))
            self.deselected |= dict.fromkeys(deselected(self.config))
            self.write_chosen()

    @property
    def whole(self) -> dict[str, None]:
        """What the records are to hold: what was collected, taken away without a word, or finished before."""
        finished = self.config.stash.get(FINISHED, None) or {}
        return (self.chosen or {}) | self.taken | dict.fromkeys(finished)

    def write_chosen(self) -> None:
        """Write down what the records are to hold, so that a reader can tell whether the run came to its end."""
        writer = self.config.stash.get(WRITER, None)
        if writer and not writer.ended:
            try:
                writer.choose(self.whole, len([case for case in self.deselected if case not in self.whole]))
            except OSError as error:
                self.problem(f"can't write records to {writer.path}: {os.strerror(error.errno or 0)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """pytest-xdist: what was taken away in a worker, and what was deselected."""
        output = getattr(node, "workeroutput", {})
        if output and "taken" not in output:
            self.problem(
                "a worker ended without the suite's plugin: nobody knows what was taken away there (see conftest.py"
                " and plugins)"
            )
        self.taken |= dict.fromkeys(output.get("taken", ()))
        self.deselected |= dict.fromkeys(output.get("deselected", ()))
        self.compare(output.get("judged", {}))

    def compare(self, judged: dict[str, list[str]]) -> None:
        """Hold what came here against what was judged: on its way another plugin may have changed it. A worker that
        died has sent no account of what it judged."""
        for case, digests in judged.items():
            if any(digest not in digests for digest in self.came.get(case, ())):
                self.problem(f"{case}: its records are not those that were judged: a plugin has changed them")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:
        """pytest-xdist: what a worker has collected."""
        self.add(ids)
        self.write_chosen()

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> None:
        """An error of pytest or of a plugin, here or in a worker."""
        lines = [line for line in saying.text_of(excrepr).splitlines() if line.strip()]
        self.problem(f"internal error: {saying.line_of(lines[-1].strip() if lines else 'no message', 300)}")

    def problem(self, text: str) -> None:
        """Keep the run from ending well, and say why."""
        self.problems[text] = None

    @staticmethod
    def is_early(session: pytest.Session) -> bool:
        """Whether the session was ended before its time, by a person or by -x."""
        whole = (*WELL, pytest.ExitCode.TESTS_FAILED)
        return session.exitstatus not in whole or bool(session.shouldstop or session.shouldfail)

    def settle(self, session: pytest.Session) -> None:
        """At the end of the session: find what is missing, and set the exit code."""
        self.early = self.is_early(session)
        self.missing = [case for case in (self.chosen or {}) | self.taken if case not in self.judged]
        if self.chosen is None and session.exitstatus in WELL:
            self.problem("no case was collected")
        if session.exitstatus in WELL and any(p.startswith("internal error") for p in self.problems):
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        elif session.exitstatus in WELL and (self.missing or self.problems):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lines(self) -> list[str]:
        """What the end of a run says of it."""
        found = list(self.problems)
        if self.missing:
            whole = len((self.chosen or {}) | self.taken)
            found.append(f"{len(self.missing)} of {whole} chosen cases have no verdict:")
            if gone := [case for case in self.missing if case in self.taken]:
                found.append(f"  a conftest.py or a plugin took {len(gone)} of them away without a word")
            named = self.missing[: FEW if self.early else None]
            found += [f"  no verdict: {case}" for case in named]
            if len(named) < len(self.missing):
                found.append(f"  and {len(self.missing) - len(named)} more")
        if gone := [case for case in self.deselected if case not in self.judged]:
            found.append(f"{len(gone)} cases were deselected, by an option or a plugin, such as {gone[0]}")
        return found


def note_judged(config: pytest.Config, case: str, text: str) -> None:
    """These are the records of a case, as they were judged here."""
    config.stash.setdefault(JUDGED, {}).setdefault(case, []).append(digest(text))


def digest(text: str) -> str:
    """A short digest of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def note_collected(item: pytest.Item) -> None:
    """An item was collected. A plugin that removes it must say so (pytest_deselected)."""
    item.config.stash.setdefault(COLLECTED, {})[item.nodeid] = True


def note_deselected(items: Iterable[pytest.Item]) -> None:
    """These items were taken away with a word: pytest counts them as deselected."""
    for item in items:
        item.config.stash.setdefault(COLLECTED, {})[item.nodeid] = False


def taken_away(config: pytest.Config, left: Iterable[pytest.Item]) -> list[str]:
    """The cases that somebody took away without a word: they were collected, and are neither left nor deselected. Where
    the whole suite was named, all of its cases should have been collected."""
    noted = config.stash.get(COLLECTED, {})
    trials = {trial.id for family in config.stash[TRIALS].values() for trial in family}
    expected = (
        trials if names_the_suite(config) else trials & {case_of(n) for n, kept in noted.items() if kept}
    )
    deselected = {case_of(nodeid) for nodeid, kept in noted.items() if not kept}
    found = expected - deselected - {case_of(item.nodeid) for item in left}
    return [trial.id for family in config.stash[TRIALS].values() for trial in family if trial.id in found]


def deselected(config: pytest.Config) -> list[str]:
    """The cases that were deselected here, and those in files that an option of pytest left out: pytest collects none
    of these, and says nothing of them."""
    noted = config.stash.get(COLLECTED, {})
    gone = {case_of(nodeid) for nodeid, kept in noted.items() if not kept}
    trials = [trial.id for family in config.stash[TRIALS].values() for trial in family]
    if leaves_files_out(config) and in_the_suite(config):
        gone |= set(trials) - set(map(case_of, noted))
    return [case for case in trials if case in gone]


def leaves_files_out(config: pytest.Config) -> bool:
    """Whether an option of pytest, of the command line, the environment or a file, leaves files out."""
    return any(config.getoption(option, None) for option in ("ignore", "ignore_glob", "lf"))


def in_the_suite(config: pytest.Config) -> bool:
    """Whether the arguments of pytest name the suite's directory."""
    suite = {directory.resolve() for directory in SUITES}
    return any(Path(argument).resolve() in suite for argument in config.args)


def names_the_suite(config: pytest.Config) -> bool:
    """Whether the arguments of pytest name the suite's directory, and no option of pytest leaves files out."""
    return in_the_suite(config) and not leaves_files_out(config)
