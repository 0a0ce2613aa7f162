# SPDX-License-Identifier: Apache-2.0
"""Counts verdicts: the run names each chosen case without a verdict, and then its exit code is not 0.

A verdict can get lost in many ways, and nobody can foresee all of them. The process that writes the records therefore
does its own count.
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
"""The most cases without a verdict that are named if a person or -x ended the run early."""

WELL = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class Count:
    """The chosen cases, the cases without a verdict, and other problems that make a run fail. A plugin of pytest."""

    def __init__(self, config: pytest.Config, judged: Container[str]) -> None:
        """judged: the ids of the cases with a verdict; it grows during the run."""
        self.config, self.judged = config, judged
        self.chosen: dict[str, None] | None = None
        """The cases that pytest has collected, in order; None before it has collected any."""
        self.problems: dict[str, None] = {}
        self.missing: list[str] = []
        self.early = False
        self.taken: dict[str, None] = {}
        """The cases that were collected and later removed without a report."""
        self.deselected: dict[str, None] = {}
        """The cases that an option or a plugin has deselected. The run reports them, and they do not count as lost."""
        self.came: dict[str, list[str]] = defaultdict(list)
        """The digests of the records that arrived for each case."""

    def add(self, nodeids: Iterable[str]) -> None:
        """Add the tests that pytest has collected, here or in a worker."""
        trials = {trial.id for family in self.config.stash[TRIALS].values() for trial in family}
        self.chosen = self.chosen or {}
        self.chosen |= dict.fromkeys(case for case in map(case_of, nodeids) if case in trials)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers: add the tests that this process has collected."""
        if session.items or not getattr(self.config.option, "numprocesses", 0):
            self.add(item.nodeid for item in session.items)
            self.taken |= dict.fromkeys(taken_away(self.config, session.items))
            self.deselected |= dict.fromkeys(deselected(self.config))
            self.write_chosen()

    @property
    def whole(self) -> dict[str, None]:
        """The cases that the records must have: collected, removed without a report, or finished in an earlier run."""
        finished = self.config.stash.get(FINISHED, None) or {}
        return (self.chosen or {}) | self.taken | dict.fromkeys(finished)

    def write_chosen(self) -> None:
        """Write which cases the records must have, so that a reader can tell whether the run is complete."""
        writer = self.config.stash.get(WRITER, None)
        if writer and not writer.ended:
            try:
                writer.choose(self.whole, len([case for case in self.deselected if case not in self.whole]))
            except OSError as error:
                self.problem(f"can't write records to {writer.path}: {os.strerror(error.errno or 0)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """pytest-xdist: add the cases that were removed in a worker, with and without a report."""
        output = getattr(node, "workeroutput", {})
        if output and "taken" not in output:
            self.problem(
                "a worker ended without the suite's plugin: the cases that were removed there are not known (see"
                " conftest.py and plugins)"
            )
        self.taken |= dict.fromkeys(output.get("taken", ()))
        self.deselected |= dict.fromkeys(output.get("deselected", ()))
        self.compare(output.get("judged", {}))

    def compare(self, judged: dict[str, list[str]]) -> None:
        """Compare the arrived records with those that a worker judged, because another plugin may have changed them. A
        worker that died has sent no digests."""
        for case, digests in judged.items():
            if any(digest not in digests for digest in self.came.get(case, ())):
                self.problem(f"{case}: its records are not those that were judged: a plugin has changed them")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:
        """pytest-xdist: add the tests that a worker has collected."""
        self.add(ids)
        self.write_chosen()

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> None:
        """Note an error of pytest or of a plugin, here or in a worker."""
        lines = [line for line in saying.text_of(excrepr).splitlines() if line.strip()]
        self.problem(
            f"internal error: {saying.printable_line(lines[-1].strip() if lines else 'no message', 300)}"
        )

    def problem(self, text: str) -> None:
        """Make the run fail, with this reason."""
        self.problems[text] = None

    @staticmethod
    def is_early(session: pytest.Session) -> bool:
        """Whether a person or -x ended the session early."""
        whole = (*WELL, pytest.ExitCode.TESTS_FAILED)
        return session.exitstatus not in whole or bool(session.shouldstop or session.shouldfail)

    def settle(self, session: pytest.Session) -> None:
        """At the end of the session, find missing verdicts and set the exit code."""
        self.early = self.is_early(session)
        self.missing = [case for case in (self.chosen or {}) | self.taken if case not in self.judged]
        if self.chosen is None and session.exitstatus in WELL:
            self.problem("no case was collected")
        if session.exitstatus in WELL and any(p.startswith("internal error") for p in self.problems):
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        elif session.exitstatus in WELL and (self.missing or self.problems):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lines(self) -> list[str]:
        """The lines about missing verdicts and other problems, for the end of the run."""
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
    """Note the digest of a case's records as this process judged them."""
    config.stash.setdefault(JUDGED, {}).setdefault(case, []).append(digest_text(text))


def digest_text(text: str) -> str:
    """A short digest of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def note_collected(item: pytest.Item) -> None:
    """Note a collected item. A plugin that removes it must report that (pytest_deselected)."""
    item.config.stash.setdefault(COLLECTED, {})[item.nodeid] = True


def note_deselected(items: Iterable[pytest.Item]) -> None:
    """Note that these items were removed with a report: pytest counts them as deselected."""
    for item in items:
        item.config.stash.setdefault(COLLECTED, {})[item.nodeid] = False


def taken_away(config: pytest.Config, left: Iterable[pytest.Item]) -> list[str]:
    """The cases that were removed without a report: they were collected, and are neither left nor deselected. If the
    command line names the whole suite, or whole files of it, all of their cases should have been collected."""
    noted = config.stash.get(COLLECTED, {})
    trials = {trial.id for family in config.stash[TRIALS].values() for trial in family}
    if names_the_suite(config):
        expected = trials
    else:
        whole = {
            trial.id for name in families_of_files(config) for trial in config.stash[TRIALS].get(name, ())
        }
        expected = whole | (trials & {case_of(n) for n, kept in noted.items() if kept})
    deselected = {case_of(nodeid) for nodeid, kept in noted.items() if not kept}
    found = expected - deselected - {case_of(item.nodeid) for item in left}
    return [trial.id for family in config.stash[TRIALS].values() for trial in family if trial.id in found]


def deselected(config: pytest.Config) -> list[str]:
    """The cases that were deselected here, and those in files that a pytest option left out. pytest neither collects
    nor reports the latter."""
    noted = config.stash.get(COLLECTED, {})
    gone = {case_of(nodeid) for nodeid, kept in noted.items() if not kept}
    trials = [trial.id for family in config.stash[TRIALS].values() for trial in family]
    if leaves_files_out(config) and in_the_suite(config):
        gone |= set(trials) - set(map(case_of, noted))
    return [case for case in trials if case in gone]


def leaves_files_out(config: pytest.Config) -> bool:
    """Whether a pytest option from the command line, the environment or a file leaves files out."""
    return any(config.getoption(option, None) for option in ("ignore", "ignore_glob", "lf"))


def in_the_suite(config: pytest.Config) -> bool:
    """Whether the arguments of pytest name the suite's directory."""
    suite = {directory.resolve() for directory in SUITES}
    return any(Path(argument).resolve() in suite for argument in config.args)


def families_of_files(config: pytest.Config) -> list[str]:
    """The families whose files the arguments of pytest name, if no option of pytest leaves files out."""
    if leaves_files_out(config):
        return []
    suite = {directory.resolve() for directory in SUITES}
    paths = [Path(argument).resolve() for argument in config.args]
    return [
        p.stem.removeprefix("test_") for p in paths if p.parent in suite and p.suffix == ".py" and p.is_file()
    ]


def names_the_suite(config: pytest.Config) -> bool:
    """Whether the arguments of pytest name the suite's directory, and no option of pytest leaves files out."""
    return in_the_suite(config) and not leaves_files_out(config)
