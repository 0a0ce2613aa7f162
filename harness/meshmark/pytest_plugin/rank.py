# SPDX-License-Identifier: Apache-2.0
"""One rank of `pytest conformance` over several processes: agrees on verdicts, ends in order, merges files.

Every rank judges the same cases in the same order in its own pytest process. The ranks compare each compiled program
before they run it, and then compare what they found for each case (`meshmark.ranks.consensus`). FILE.rankK has what
rank K found. FILE.rankK.at names the current case of rank K, so that the case is known if all ranks die.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from meshmark.core import interrupts
from meshmark.core.errors import BadInput
from meshmark.core.verdicts import BAD, Line, worst
from meshmark.devices import containment, environment
from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.record_lines import case_lines
from meshmark.pytest_plugin import guard
from meshmark.pytest_plugin.choosing import choose
from meshmark.pytest_plugin.options import ALIKE
from meshmark.pytest_plugin.recording import open_records
from meshmark.pytest_plugin.stashed import CONTROLLER, EXPECTED, FACTS, FINISHED, GUARD, RANK, TRIALS, WRITER
from meshmark.pytest_plugin.trials import Trial, case_of
from meshmark.ranks import endings, handover, merge
from meshmark.ranks import group as ranks
from meshmark.ranks.channel import Ended, Ending
from meshmark.ranks.consensus import BACKUP, Consensus
from meshmark.ranks.group import Coordinates, Group
from meshmark.ranks.handover import Marker
from meshmark.ranks.wire import ChannelError
from meshmark.records.reading import Judged
from meshmark.records.writing import Writer


class RankPlugin:
    """What a rank does in addition to judging cases; a plugin of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.group: Group
        self.consensus: Consensus | None = None
        """None until the ranks have joined."""
        self.marker: Marker | None = None
        self.path: Path | None = None
        """FILE, without the suffix of the rank."""
        self.deadline = containment.DEADLINE
        self.notes: list[str] = []
        self._trial: Trial | None = None
        self._suspect: dict[str, int] = {}
        """Cases in which an earlier group may have died, and how often each was begun."""
        self._stderr = os.dup(2)
        self._finished = False
        """Whether the session has ended, with success or not."""
        self._status = 0

    # Beginning ----------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, config: pytest.Config, coordinates: Coordinates) -> RankPlugin:
        """Join the others, choose the same cases, and open this rank's file. UsageError for options that make no sense
        with ranks; BadInput if the ranks can't begin."""
        _check_options(config)
        _stop_capturing(config)
        config.stash[GUARD] = guard.fork_guard(config)
        made = config.stash[RANK] = cls(config)
        environment.configure_jax()
        options = {name: _said(config.getoption(name)) for name in ALIKE} | config.stash[EXPECTED].described
        made.join(coordinates, options, config.getoption("join"))
        endings.abort_late()
        try:
            with made.group.beginning():
                choose(config, [ranks.read_facts(made.group)], made.group.size)
                ids = [trial.id for family in config.stash[TRIALS].values() for trial in family]
                made.group.alike("cases", ranks.digest_names(ids))
                open_records(config)
        except BadInput as error:  # otherwise JAX would wait for the others at exit, and end by a signal
            made.refuse(str(error))
        config.pluginmanager.register(made, "meshmark-rank")
        config.add_cleanup(made._abandon)
        if made.group.rank:  # only rank 0 prints
            config.pluginmanager.set_blocked("terminalreporter")
        return made

    def join(self, coordinates: Coordinates, options: Mapping[str, Any], seconds: float) -> None:
        """Join the other ranks. Raises ChannelError and RankError as meshmark.ranks.group.join does."""
        self.group = ranks.join(coordinates, options, seconds, ended=self.give_up)
        self.consensus = Consensus(self.group.channel, self._stderr)
        if self.group.channel.hub and self.group.channel.hub.note:
            self.notes.append(self.group.channel.hub.note)

    def refuse(self, why: str) -> NoReturn:
        """Leave at once, because the ranks have joined but can't begin."""
        os.write(self._stderr, f"ERROR: {why}\n".encode(errors="backslashreplace"))
        self._announce(int(pytest.ExitCode.USAGE_ERROR))
        os._exit(int(pytest.ExitCode.USAGE_ERROR))

    def open_records(self, path: Path, resume: bool, run: dict[str, Any]) -> None:
        """Open FILE.rankK, and take over what any rank has finished before. Raises RecordError as records.reading
        does."""
        self.path = path
        rank, size, stash = self.group.rank, self.group.size, self.config.stash
        group = self.group.channel.exchange("group", uuid.uuid4().hex[:12])[1][0]
        run = run | {"rank": rank, "group": group}
        exist = self.group.channel.exchange("records", merge.rank_files(path, size)[rank].exists())[1]
        own, append = merge.own_file(path, rank, size, resume, exist)
        before: Mapping[str, Judged] = {}
        if append:
            stash[WRITER], before = Writer.resume(own, run)
        else:
            stash[WRITER] = Writer.create(own, run)
        self.marker = Marker(own.with_name(f"{own.name}.at"))
        handover.announce(rank, self.marker.path, own)
        if resume:
            self._take_over(before)
        else:
            self.marker.clear()

    def _take_over(self, before: Mapping[str, Judged]) -> None:
        """Take over finished cases: those that all ranks have finished, with the worst verdict, and any failure of a
        rank. Other cases are judged again, since merging leaves them out. A case in which all ranks died gets its
        verdict here."""
        assert self.marker
        own = {name: [one.verdict, one.reason if one.verdict in BAD else ""] for name, one in before.items()}
        _, everywhere = self.group.channel.exchange("finished", own)
        stash = self.config.stash
        number, processes = stash[FACTS].num_devices, self.group.size
        whole = set.intersection(*map(set, everywhere)) | {
            name for finished in everywhere for name, (verdict, _) in finished.items() if verdict in BAD
        }
        everywhere = [{n: told for n, told in finished.items() if n in whole} for finished in everywhere]
        done = {name: judged for name, judged in before.items() if name in whole}
        for rank, finished in enumerate(everywhere):
            for name, (verdict, reason) in finished.items():
                if name not in done or worst((done[name].verdict, verdict)) != done[name].verdict:
                    line = Line("execute", verdict, f"rank {rank}: {reason}" if reason else "")
                    done[name] = _judged(cases.find(name, number, processes), line)
        _, markers = self.group.channel.exchange("markers", self.marker.read())
        last_group = handover.describe_last_group()
        for marked in markers:
            name = marked.get("case", "")
            if not name or name in done:
                continue
            if (
                not last_group and marked.get("times", 1) < 2
            ):  # it may have been killed from outside: try once more
                self._suspect[name] = marked.get("times", 1)
                continue
            how = last_group or "in two runs, one after the other"
            line = Line("execute", "crash", f"the ranks ended in this case: {how}")
            case = cases.find(name, number, processes)
            self._mark_known(case, line)
            stash[WRITER].write(case_lines(case, [line], self.config.getoption("seed"), 0.0))
            done[name] = _judged(case, line)
        self.marker.clear()
        stash[FINISHED] = done

    def listen_to_signals(self) -> None:
        """When a signal ends this rank, tell the other ranks at once, even while the main thread waits in a
        collective."""
        interrupts.listen(lambda number: self.group.channel.interrupt(number.name))
        endings.abort_late()

    # Judging ------------------------------------------------------------------------------------------------

    def agree_deadline(self, seconds: float) -> None:
        """Set the deadline of all ranks to that of the slowest."""
        try:
            self.deadline = max(self.group.channel.exchange("deadline", seconds)[1])
        except Ended as error:
            self._end(error.ending)
            pytest.exit(self.describe(error.ending), returncode=self.code(error.ending))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Check that all ranks continue with the same cases in the same order, even if a plugin removed some on one
        rank."""
        chosen = {trial.id for family in self.config.stash[TRIALS].values() for trial in family}
        left = [case for case in (case_of(item.nodeid) for item in session.items) if case in chosen]
        try:
            self.group.alike("cases that pytest has left", ranks.digest_names(left))
        except Ended as error:
            self._end(error.ending)
            pytest.exit(self.describe(error.ending), returncode=self.code(error.ending))
        except ChannelError as error:
            told = f"{error}: an option, a conftest.py or a plugin of one rank takes cases away"
            self._end(Ending("", told))
            pytest.exit(told, returncode=pytest.ExitCode.USAGE_ERROR)

    def judge(self, trial: Trial, run: Callable[[Trial], list[Line]]) -> tuple[list[Line], list[Line]]:
        """(what this rank found, what all found) for one case; ends the session if the ranks can't agree."""
        assert self.consensus
        if self.marker:
            self.marker.set(trial.id, self._suspect.get(trial.id, 0) + 1)
        self._trial = trial
        try:
            self._within(self.deadline + BACKUP)
            with self.consensus.on(trial.id, self.deadline):
                lines = run(trial)
                everywhere = self.consensus.settle(lines)
        except Ended as error:
            self._end(error.ending)
            pytest.exit(self.describe(error.ending), returncode=self.code(error.ending))
        except ChannelError as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)
        self._trial = None
        self._within(containment.BETWEEN)
        if self.marker:
            self.marker.clear()
        return lines, everywhere

    def _within(self, seconds: float) -> None:
        """Tell the guard how long this may take."""
        if watching := self.config.stash.get(GUARD, None):
            watching.within(seconds)

    # Ending -------------------------------------------------------------------------------------------------

    def code(self, ending: Ending) -> int:
        """The exit code of a run with this ending."""
        lost = endings.lost_a_rank(ending)
        return int(pytest.ExitCode.TESTS_FAILED if lost else pytest.ExitCode.INTERRUPTED)

    def describe(self, ending: Ending) -> str:
        """The text of this ending for the user."""
        where = f"{self._trial.id}: {ending.verdict}: " if self._trial and ending.verdict else ""
        again = (
            f"; go on with --resume {self.path}" if self.path and not handover.launcher_directory() else ""
        )
        return f"{where}{endings.describe_ending(ending)}{again}"

    def give_up(self, ending: Ending) -> None:
        """In the channel's thread, when the main thread does not return: write what is known, and leave."""
        joined = self.consensus is not None
        try:
            self._end(ending)
            who = f"rank {self.group.rank}: " if joined else ""
            os.write(self._stderr, f"\nmeshmark: {who}{self.describe(ending)}\n".encode())
        finally:
            os._exit(self.code(ending) if joined else int(pytest.ExitCode.USAGE_ERROR))

    def _end(self, ending: Ending) -> None:
        """Write, once, the verdict of the case in which this run ended."""
        if self.consensus is None:
            return
        with self.consensus.end(ending) as first:
            if not first:
                return
            if ending.verdict and self._trial:
                self._blame(self._trial, ending)
            if self.marker:
                self.marker.clear()
            if endings.lost_a_rank(ending):
                handover.ask_for_another_group()

    def _blame(self, trial: Trial, ending: Ending) -> None:
        line = endings.line_of_ending(ending)
        self._mark_known(trial.case, line)
        records = case_lines(trial.case, [line], self.config.getoption("seed"), 0.0)
        if controller := self.config.stash.get(CONTROLLER, None):
            controller.take(records)

    def _mark_known(self, case: Case, line: Line) -> None:
        facts = self.config.stash[FACTS]
        known_issues.apply(self.config.stash[EXPECTED].issues(facts.to_json()), case.id, [line])

    @property
    def ending(self) -> Ending | None:
        """Why the run ended early; None while it continues."""
        return self.consensus.ending if self.consensus else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """When all ranks have ended, merge their files if rank 0 can see them."""
        if session.exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
            if self.ending is None:  # the others can't continue without this rank
                self.group.channel.interrupt("its session was interrupted")
                self._end(Ending("", "interrupted"))
        elif self.ending is None:
            try:
                self.group.channel.exchange("end", None, self.deadline + BACKUP)
            except (Ended, ChannelError) as error:
                self.notes.append(str(error))
                assert self.consensus
                with self.consensus.end(getattr(error, "ending", Ending("", str(error)))):
                    pass
        controller = self.config.stash.get(CONTROLLER, None)
        if self.ending is None and controller:  # in a group that lost a rank, the ending is unknown
            controller.pytest_sessionfinish(session)
        if writer := self.config.stash.get(WRITER, None):
            if changed := writer.changed():
                self.config.stash[CONTROLLER].count.problem(changed)
            writer.close()
        if self.ending is None and self.path and writer:
            self._merge(self.path)
        self._status = int(session.exitstatus)
        self._finished = True

    def _merge(self, path: Path) -> None:
        if self.marker:
            self.marker.remove()
        self.group.channel.exchange("written", None)
        if self.group.rank == 0 and (problem := merge.write_where_seen(path, self.group.size)):
            self.notes.append(problem)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave the group: in order, or at once if a rank is gone, because JAX would wait minutes for it."""
        signal.set_wakeup_fd(-1)
        if not self._finished:
            self._abandon()
        if self.ending is None:
            self.group.leave()
            return
        _flush()
        if self.group.rank:  # its terminal reporter is silent
            os.write(
                self._stderr, f"meshmark: rank {self.group.rank}: {self.describe(self.ending)}\n".encode()
            )
        code = self._status or self.code(self.ending)
        self._announce(code)
        os._exit(code)

    def _announce(self, code: int) -> None:
        if watching := self.config.stash.get(GUARD, None):
            watching.ended(code)

    def _abandon(self) -> None:
        """Leave at once if pytest does not reach the end of the session. Otherwise JAX and the other ranks would wait
        for each other at the end of its cluster."""
        if self._finished or self.group.left:
            return
        self._finished = True
        self.group.channel.interrupt("an internal error of pytest or a plugin")
        _flush()
        self._announce(int(pytest.ExitCode.INTERNAL_ERROR))
        os._exit(int(pytest.ExitCode.INTERNAL_ERROR))


def _check_options(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) is not None or getattr(config.option, "tx", None):
        raise pytest.UsageError("-n starts workers of one machine: leave it out, each rank is one process")
    if config.getoption("topology"):
        raise pytest.UsageError("--topology compiles in one process: leave out --distributed")


def _said(value: object) -> str:
    """The value of an option, as written on the command line."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _stop_capturing(config: pytest.Config) -> None:
    """Let the last output of a dying rank reach the launcher."""
    if capture := config.pluginmanager.getplugin("capturemanager"):
        capture.stop_global_capturing()
        config.pluginmanager.unregister(capture)


def _judged(case: Case, line: Line) -> Judged:
    lines: list[Any] = case_lines(case, [line], 0, 0.0)
    return Judged(case.id, lines)
