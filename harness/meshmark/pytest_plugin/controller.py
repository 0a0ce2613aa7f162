# SPDX-License-Identifier: Apache-2.0
"""The side of a pytest run that writes records and prints: the controller of the workers, or each of several ranks.

It writes records as cases finish, gives verdicts to the cases of dead workers, and prints the closing table.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshmark.core import interrupts, saying, scratch, text
from meshmark.core.errors import unknown
from meshmark.core.terminal import pieces
from meshmark.core.verdicts import BAD, VERDICTS, Line
from meshmark.devices import containment
from meshmark.devices.on_disk import OnDisk
from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.pytest_plugin import expecting, guard, short_summary
from meshmark.pytest_plugin.choosing import without_a_case
from meshmark.pytest_plugin.counting import FEW, WELL, Count, digest_text, names_the_suite
from meshmark.pytest_plugin.stashed import (
    CONTROLLER,
    EXPECTED,
    FACTS,
    FINISHED,
    GIVEN,
    GUARD,
    JUDGED,
    LEFT_OUT,
    OUTPUT,
    PLACES,
    RANK,
    SELECTION,
    TRIALS,
    WORKERS,
    WRITER,
)
from meshmark.pytest_plugin.trials import Trial, case_of, split_id
from meshmark.ranks import group as ranks
from meshmark.records.definition import CASE_FIELDS
from meshmark.records.reading import Judged, RecordError
from meshmark.records.writing import Writer
from meshmark.report import summary


class Controller:
    """Writes the records of a run, gives verdicts to the cases of dead workers, and prints the closing table."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        config.stash[CONTROLLER] = self
        self.rank = config.stash.get(RANK, None)
        self.facts = config.stash[FACTS]
        self.on_disk = OnDisk.read(self.facts)
        done: dict[str, Judged] = config.stash[FINISHED]
        self.cases = dict(done)
        self.judged: set[str] = set()
        """The cases that this session has judged, at least once."""
        self.writer: Writer | None = config.stash.get(WRITER, None)
        self.count = Count(config, self.cases)
        config.pluginmanager.register(self.count, "meshmark-count")
        self.exitstatus: int = pytest.ExitCode.OK
        """How the session ended, by this process's own count."""
        self.resident = 0
        self.settled = False
        """Whether the end of the session was counted. Another plugin may end the process before that."""
        self._told = False
        """Whether the closing table was printed. After an internal error pytest does not ask for it."""
        self.idle_deaths = 0
        self.started: dict[str, float] = {}
        self._last: dict[str, str] = {}
        """The last case that each worker has judged."""
        self._died: dict[str, str] = {}
        """How each worker died that died outside of a case. The case before may be the cause."""
        self._handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, interrupts.terminate)}
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, interrupts.interrupt)
        self._overseer = containment.Overseer(config.stash[WORKERS]) if WORKERS in config.stash else None
        if self._overseer:
            self._overseer.start()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, and say if Ctrl-C would not end it, also under -q. Only rank 0 prints this."""
        self.session = session
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter and (ignored := interrupts.describe_ignored()):
            width = self.config.get_terminal_writer().fullwidth
            for part in text.wrap(f"meshmark: {ignored}", width):
                reporter.write_line(part)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note when a case starts, because a case that kills its worker can't report its duration."""
        self.started[nodeid] = time.perf_counter()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep and write the result of a finished case. Count a crash for -x, which pytest-xdist does not do."""
        if report.failed and report.when == "teardown":
            told = saying.printable_line(
                (saying.text_of(report.longrepr).strip().splitlines() or [""])[-1], 300
            )
            self.count.problem(f"an error behind {case_of(report.nodeid) or report.nodeid}: {told}")
        lines = vars(report).pop("meshmark", None)
        if lines is not None:
            self.count.came[case_of(report.nodeid)].append(digest_text(lines))
            self.take(*json.loads(lines))
            if node := getattr(report, "node", None):
                self._last[node.gateway.id] = case_of(report.nodeid)
        if self.session.shouldfail and report.when == "???":
            self.end_workers()
            raise self.session.Failed(self.session.shouldfail)

    def take(self, records: list[Any], shown: list[Any] | None = None) -> None:
        """Write the records of one case, and keep them for the table; with ranks, keep what all ranks together found
        (`shown`). A full disk ends the run, and the written records stay."""
        self.idle_deaths = 0
        if self.writer:
            try:
                records = self._written(self.writer, records)
            except OSError as error:
                path, self.writer = self.writer.path, None
                named = self.config.getoption("record") or self.config.getoption("resume") or path
                pytest.exit(
                    f"can't write records to {path}: {os.strerror(error.errno or 0)}; what is written is kept:"
                    f" make room and go on with --resume {named}",
                    returncode=pytest.ExitCode.INTERRUPTED,
                )
        case, lines = records[0]["case"], shown or records
        if case in self.judged:  # a plugin or several workers ran it again: the worst result counts
            lines = [*self.cases[case].lines, *lines]
        self.judged.add(case)
        self.cases[case] = Judged(case, lines)

    def _written(self, writer: Writer, records: list[Any]) -> list[Any]:
        """Write the records of one case. Records that no reader would accept become an error of the case."""
        try:
            writer.write(records)
        except RecordError as error:
            self.count.problem(f"{records[0]['case']}: {error}")
            head = {name: records[0][name] for name in ("schema", "kind", *CASE_FIELDS, "level", "seed")}
            line = Line("execute", "error", str(error))
            records = [
                head | {"check": line.check, "verdict": line.verdict, "reason": line.reason, "seconds": 0.0}
            ]
            writer.write(records)
        return records

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """pytest-xdist: a worker died while it ran this item. Write the case's verdict."""
        worker = report.node.gateway.id
        self._died.pop(worker, None)
        containment.sweep(self.config.stash[WORKERS])
        line, raw = containment.post_mortem(self.config.stash[WORKERS], worker)
        own, place = split_id(case_of(crashitem))
        facts = next(facts for facts in self.config.stash[PLACES] if facts.place == place)
        trial = Trial(cases.find(own, facts.num_devices), facts)
        known_issues.apply(self.config.stash[EXPECTED].issues(facts.to_json()), own, [line])
        report.longrepr = Told(message(trial, [line], self.config.getoption("seed")))
        if line.verdict == "known":
            report.outcome, report.wasxfail = "skipped", line.reason
        seconds = time.perf_counter() - self.started.get(crashitem, time.perf_counter())
        self.take(record_lines(trial, [line], self.config.getoption("seed"), seconds))
        if self.writer:
            beside = f"{self.writer.path}.stderr"
            with suppress(OSError), open(beside, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"== {trial.id}\n{raw}\n")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """pytest-xdist: a worker ended. Limits restarts, because workers that die outside of a case would be restarted
        forever."""
        self.resident = max(self.resident, getattr(node, "workeroutput", {}).get("resident", 0))
        if error:
            self._died[node.gateway.id] = containment.cause(self.config.stash[WORKERS], node.gateway.id)
            self.idle_deaths += 1
            if self.idle_deaths > 3:
                _, raw = containment.post_mortem(self.config.stash[WORKERS], node.gateway.id)
                last = ((raw.strip() or str(error)).splitlines() or ["no message"])[-1]
                pytest.exit(
                    f"workers die before they run a case: {last}", returncode=pytest.ExitCode.INTERNAL_ERROR
                )

    def pytest_keyboard_interrupt(self) -> None:
        """The run is interrupted, also by a full disk: the current work of the workers is no longer needed."""
        self.end_workers()

    def end_workers(self) -> None:
        """End all workers at once, whatever they do."""
        if WORKERS in self.config.stash:
            containment.end_workers(self.config.stash[WORKERS])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Close the records, and set the exit code from the verdicts, not from what pytest and its plugins counted. A
        resumed run then ends with the exit code of an uninterrupted one, and a run that lost a verdict fails."""
        if self.settled:  # on a rank, which closes its file before it merges
            return
        self.settled = True
        if JUDGED in self.config.stash:
            self.count.compare(self.config.stash[JUDGED])
        if session.exitstatus in WELL and self.config.stash[FINISHED]:
            session.exitstatus = pytest.ExitCode.OK
        bad = [case for case, judged in self.cases.items() if judged.verdict in BAD]
        if session.exitstatus in WELL and bad:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            if not self.config.stash[FINISHED]:
                self.count.problem(
                    f"pytest counts no failure, and {len(bad)} cases have a bad verdict, such as {bad[0]}"
                )
        if self.writer and (changed := self.writer.changed()):
            self.count.problem(changed)
        for worker, how in self._died.items():
            before = f", after {self._last[worker]}" if worker in self._last else ""
            self.count.problem(f"a worker died outside of a case{before}: {how}")
        if OUTPUT in self.config.stash and self.config.stash[OUTPUT].lost:
            self.count.problem(self.config.stash[OUTPUT].lost)
        for change in self.on_disk.list_changes():
            self.count.problem(change)
        if not self.count.is_early(session):
            for problem in expecting.find_unmet_expectations(self.config, self.cases):
                self.count.problem(problem)
        self.count.settle(session)
        self.exitstatus = session.exitstatus
        self._close_records()

    def _close_records(self) -> None:
        """Write the closing line, with all that is now known about the chosen cases."""
        if self.writer is None:
            return
        self.count.write_chosen()
        try:
            self.writer.end(int(self.exitstatus))
        except OSError as error:
            self.count.problem(f"can't close {self.writer.path}: {os.strerror(error.errno or 0)}")
            if self.exitstatus in WELL:
                self.session.exitstatus = self.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _unreported(self, reporter: Any) -> list[str]:
        """The cases with a bad verdict that pytest's summary does not name. A plugin may have shown the failure in
        another way, and options may omit all names."""
        if self.config.getoption("tbstyle", "") == "no" and not {"f", "E"} & set(reporter.reportchars):
            return self._bad(self.judged)
        told = {case_of(r.nodeid) for of in ("failed", "error") for r in reporter.stats.get(of, ())}
        return self._bad(self.judged - told)

    def _bad(self, among: Container[str]) -> list[str]:
        """Those of these cases that have a bad verdict, one line each."""
        found = [(c, judged) for c, judged in self.cases.items() if judged.verdict in BAD and c in among]
        lines = [f"{judged.verdict} {case}: {judged.reason}" for case, judged in found[:FEW]]
        return lines + [f"and {len(found) - FEW} more cases with a bad verdict"] * (len(found) > FEW)

    def settle(self) -> None:
        """Count the end of the session if another plugin ended the process before that."""
        session = getattr(self, "session", None)
        if session is None or self.settled:
            return
        bad = [case for case, judged in self.cases.items() if judged.verdict in BAD]
        named = f": {len(bad)} cases have a bad verdict, such as {bad[0]}" if bad else ""
        self.count.problem(f"another plugin left before the session's end was counted{named}")
        self.pytest_sessionfinish(session)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the closing table, then a line for each failure."""
        self._told = True
        if self.cases or self.count.lines():
            self._print_table(terminalreporter)
        short_summary.print_failures(terminalreporter, self.cases)

    def _print_table(self, terminalreporter: Any) -> None:
        width = self.config.get_terminal_writer().fullwidth

        def write(line: str) -> None:
            for part in text.wrap(line, width):
                terminalreporter.ensure_newline()
                for piece, colour in pieces(part):
                    terminalreporter.write(piece, **({colour: True} if colour else {}))
                terminalreporter.write("\n")

        terminalreporter.section("meshmark")
        for line in (*under_test(self.config), ""):
            write(line)
        places: dict[str, dict[str, Judged]] = {}
        for case, judged in self.cases.items():
            places.setdefault(split_id(case)[1], {})[case] = judged
        for place, found in places.items():
            if len(places) > 1:
                write(f"-- {place}")
            for line in summary.closing(found, width):
                write(line)
            if len(places) > 1:
                write("")
        if len(places) > 1:
            write(f"together {summary.counts(self.cases)}")
        for case, judged in self.config.stash[FINISHED].items():
            if judged.verdict in BAD:  # pytest reports only those of this session
                write(f"before: {judged.verdict} {case}: {text.printable(judged.reason)}")
        closing = (*self._unreported(terminalreporter), *self.count.lines())
        for line in (*closing, expecting.unjudged(self.config, self.cases)):
            if line:
                write(text.printable(line))
        if self.resident:
            write(f"largest worker: {self.resident / 1e6:.0f} MB resident")
        whole = (
            self.config.stash[SELECTION].whole and names_the_suite(self.config) and not self.count.deselected
        )
        facts = self.facts
        # The suite's own list has rows for many numbers of devices; tests hold each of them to the table.
        for issue in self.config.stash[EXPECTED].given_issues(facts.to_json()):
            if not whole or any(issue.covers(split_id(case)[0]) for case in self.cases):
                continue
            if not known_issues.covers_a_case(
                issue, facts.num_devices, self.config.stash[SELECTION].processes
            ):
                write(
                    f"warning: known issue {issue.link} matches no case of {text.counted(facts.num_devices, 'device')}:"
                    " correct its pattern"
                )
        path = self.config.getoption("record") or self.config.getoption("resume")
        for note in self.rank.notes if self.rank else ():
            write(note)
        if path:
            write(f"records: {path}")

    def pytest_unconfigure(self) -> None:
        """Close the file and clear the workers' directory. If pytest printed no summary, name the cases without a
        verdict."""
        self.settle()
        session = getattr(self, "session", None)
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if not self._told and (reporter or self.exitstatus not in WELL):
            say = reporter.write_line if reporter else guard.tell  # -p no:terminal
            for line in (*self._bad(self.cases), *self.count.lines()):
                say(text.printable(line))
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # Another plugin may write to the record file after the session's end, such as a report with the same name.
        if self.writer and (changed := self.writer.changed()) and changed not in self.count.problems:
            self.count.problem(changed)
            guard.tell(changed)
            if self.exitstatus in WELL:
                self.exitstatus = pytest.ExitCode.TESTS_FAILED
        if session and session.exitstatus in WELL and self.exitstatus not in WELL:
            session.exitstatus = self.exitstatus  # another plugin changed it
        if watching := self.config.stash.get(GUARD, None):
            watching.ended(int(session.exitstatus) if session else int(pytest.ExitCode.INTERNAL_ERROR))
        if self._overseer:
            self._overseer.stop()
            containment.end_workers(self.config.stash[WORKERS])
            containment.sweep(self.config.stash[WORKERS])
        if self.writer:
            self.writer.close()
        if WORKERS in self.config.stash:
            scratch.remove(self.config.stash[WORKERS])


def blame(config: pytest.Config, case: str, line: Line) -> None:
    """In the guard of a run without workers: write the verdict of the case in which the run died."""
    trials = (trial for family in config.stash[TRIALS].values() for trial in family)
    trial = next((trial for trial in trials if trial.id == case), None)
    again = ""
    if trial is not None:
        issues = config.stash[EXPECTED].issues(trial.facts.to_json())
        known_issues.apply(issues, split_id(case)[0], [line])
        if writer := config.stash.get(WRITER, None):
            writer.mend()
            writer.write(record_lines(trial, [line], config.getoption("seed"), 0.0))
            again = f"; go on with --resume {config.getoption('record') or config.getoption('resume')}"
    guard.tell(f"{case}: {line.verdict}: {line.reason}{again}")


def record_lines(trial: Trial, lines: list[Line], seed: int, seconds: float) -> list[dict[str, Any]]:
    """The record lines of a judged case. On a topology, its place is in the case id and in `topology`."""
    records = case_lines(trial.case, lines, seed, seconds)
    if trial.facts.topology:
        for record in records:
            record |= {"case": trial.id, "topology": trial.facts.topology, "layout": trial.facts.layout}
    return records


def message(trial: Trial, lines: list[Line], seed: int) -> str:
    """The text of a failure: each reason with the worst first, the case, and the command that repeats it."""
    bad = [line for line in lines if line.verdict not in ("pass", "not_run")]
    bad.sort(key=lambda line: VERDICTS.index(line.verdict))
    reasons = [f"{line.check}: {line.verdict}: {line.reason}" for line in bad]
    case, request = trial.case, trial.case.cell.request
    again = f"a script that repeats it: meshmark repro '{case.id}'" + (f" --seed {seed}" if seed else "")
    facts = trial.facts
    options = (
        f"--profile full --operations {case.operation.name} --modes {case.mode} --meshes {request.mesh.label}"
        f" --dtypes {request.dtype} --sizes {request.size}"
    )
    if facts.topology:
        again = (
            f"compile it again: meshmark test -n 0 --topology {facts.topology}"
            f" --layout {facts.layout} {options}"
        )
    elif facts.num_processes > 1:
        again = (
            f"on one machine: meshmark launch -n {facts.num_processes} --devices-per-process"
            f" {facts.num_devices // facts.num_processes} -- meshmark test {options} --seed {seed}"
        )
    about = f"what it judges: {case.operation.describe(request.variant)}"
    return "\n".join([*reasons, trial.id, about, again])


class Told:
    """The report of a case that ended its worker, in the form that pytest reads. Its first line is the message in a
    JUnit file."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.reprcrash = SimpleNamespace(message=said.splitlines()[0])

    def __str__(self) -> str:
        return self.said

    def toterminal(self, writer: Any) -> None:
        """Print it among the failures."""
        writer.line(self.said)


def find_unknown_name(config: pytest.Config) -> str:
    """The message for a file or a case on the command line that the suite does not have; "" if it has them all."""
    ids = [trial.case.id for family in config.stash.get(TRIALS, {}).values() for trial in family]
    for given in config.args:
        path, _, test = given.partition("::")
        if not Path(path).exists():
            files = sorted(p.name for p in Path(path).parent.glob("test_*.py"))
            return unknown("file of tests", Path(path).name, files)
        case = test.partition("[")[2].removesuffix("]")
        if case and case not in ids:
            return unknown("case", case, ids, "meshmark list --cases")
    return ""


def matches_nothing(config: pytest.Config) -> str:
    """The message for a run without tests: a name that the suite does not have, or -k or -m left none; "" if neither is
    the reason."""
    if why := find_unknown_name(config):
        return why
    number = sum(map(len, config.stash.get(TRIALS, {}).values()))
    given = [f"{o} {e!a}" for o, e in (("-k", config.option.keyword), ("-m", config.option.markexpr)) if e]
    if not given or not number:
        return ""
    mend = "-k takes parts of case ids, as `meshmark list --cases` prints them"
    matched = f"{' and '.join(given)} matches none of the {number} chosen cases"
    return f"{matched}: {mend}" if config.option.keyword else matched


OWN_OPTIONS = ("--import-mode=importlib", "--assert=plain")
"""The pytest options that the suite's own configuration files set."""


def under_test(config: pytest.Config) -> list[str]:
    """The environment, the chosen cases, and what is not available here."""
    facts, selection = config.stash.get(FACTS, None), config.stash.get(SELECTION, None)
    if facts is None or selection is None:
        return []
    shapes = {trial.case.mesh.label: None for family in config.stash[TRIALS].values() for trial in family}
    header = f"profile {selection.profile}, seed {config.getoption('seed')}, meshes {' '.join(shapes)}"
    lines = [*(line for place in config.stash[PLACES] for line in place.describe()), header]
    if lacking := without_a_case(config):
        lines.append(
            f"no case was chosen by {' '.join(lacking)}: none has it with what the other options ask for"
        )
    if joining := selection.joining:
        lines.append(f"optional capabilities that the backend has, a few cases of each: {', '.join(joining)}")
    for place in config.stash[PLACES]:
        lines += config.stash[EXPECTED].lines(place.to_json())
    if facts.topology:
        lines += [f"{where}: {number} cases {why}" for where, why, number in config.stash[LEFT_OUT]]
        return lines
    if given := config.stash.get(GIVEN, ""):
        lines.append(f"options of the environment (PYTEST_ADDOPTS): {text.printable(given)[:300]}")
    if own := [option for option in config.getini("addopts") if option not in OWN_OPTIONS]:
        lines.append(f"options of a configuration file (addopts): {text.printable(' '.join(own))[:300]}")
    missing = [n for n in (3, 6) if n >= facts.num_devices]
    if missing:
        lines.append(
            f"{facts.num_devices} devices: meshes of more, and the sub-meshes of the first"
            f" {' and '.join(map(str, missing))} devices, are outside of what is counted"
        )
    if config.getoption("num_devices") and not facts.virtual:
        lines.append(f"--num-devices is ignored on backend {facts.backend}")
    if RANK in config.stash:
        lines.append(ranks.describe(facts))
    elif not getattr(config.option, "numprocesses", 0) and not config.option.collectonly:
        lines.append("no workers: a case that crashes or hangs ends the run")
    return lines
