# SPDX-License-Identifier: Apache-2.0
"""`meshmark bench` as one rank of several: this process times together with the others, and rank 0 prints for all.

Each rank writes FILE.rankK with its own samples. Rank 0 also gets the lines of the others during the run, so its tables
are of all ranks wherever the files are. If it has access to all files, it merges them into FILE (see ranks.merge).

There are no child processes around cases. A case that kills a rank, or exceeds its deadline, ends the run on all ranks
within seconds, with a record line, exit code 1 and the timings so far. --resume continues after this case.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import jax

from meshmark.core import interrupts, terminal
from meshmark.core.terminal import note, remark, show
from meshmark.core.verdicts import BAD
from meshmark.devices import environment
from meshmark.devices.containment import START
from meshmark.devices.facts import Facts
from meshmark.levels.expectations import Expectations
from meshmark.operations.base import owners_of
from meshmark.operations.choosing import selected
from meshmark.operations.selection import SelectionError
from meshmark.operations.versions import TABLE_VERSION
from meshmark.ranks import endings, merge, rollcall
from meshmark.ranks import group as ranks
from meshmark.ranks.channel import Ended, Ending
from meshmark.ranks.consensus import Consensus
from meshmark.ranks.group import Coordinates, Group
from meshmark.ranks.rank_timing import COUNTS, RankTimer, most_samples
from meshmark.ranks.wire import ChannelError
from meshmark.records import reading
from meshmark.records.closing import CLOSES
from meshmark.records.reading import RecordError, Records
from meshmark.records.writing import Writer
from meshmark.timing import bench, timing_tables
from meshmark.timing.bench import Progress, Todo
from meshmark.timing.cells import cell_of
from meshmark.timing.progress import shown
from meshmark.timing.timer import CLEAR_EVERY, Job, spread

ALIKE = (
    *("profile", "processes", "operations", "modes", "meshes", "dtypes", "sizes", "cadence", "seed"),
    *("deadline", "seconds", "record", "resume"),
)
"""The options that must be equal on all ranks."""

Value = TypeVar("Value")


class Rank:
    """A benchmark of this process as one rank, from joining the group to leaving it."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        found: Coordinates,
        seconds: float,
        expected: Expectations,
    ) -> None:
        """Join the group. SelectionError for options that are not possible with ranks; ChannelError and RankError as
        meshmark.ranks.group.join."""
        _refuse(arguments)
        self.arguments, self.expected = arguments, expected
        self.path: Path | None = arguments.record or arguments.resume
        self.writer: Writer | None = None
        self.timer: RankTimer | None = None
        self.kept = Records()
        self.consensus: Consensus | None = None
        """None while the ranks join."""
        self._signal: signal.Signals | None = None
        environment.set_here(
            environment.cpu_devices(arguments.num_devices, environment.CPU_DEVICES_A_PROCESS)
        )
        environment.configure_jax()
        jax.config.update("jax_enable_compilation_cache", False)  # compile time is a result
        options = {name: str(getattr(arguments, name)) for name in ALIKE} | {"seconds": str(seconds)}
        options |= expected.described
        self.group: Group = ranks.join(found, options, arguments.join, ended=self.give_up)
        self.consensus = Consensus(self.group.channel, os.dup(2))
        with self.group.beginning():
            self._choose(seconds)
            self._open()

    # Beginning ----------------------------------------------------------------------------------------------

    def _choose(self, seconds: float) -> None:
        """Choose the same cells on every rank. Cells that do not fit the memory of a rank are left out."""
        arguments, size = self.arguments, self.group.size
        self.facts: Facts = ranks.read_facts(self.group)
        number = self.facts.num_devices
        self.selection = selected(vars(arguments), number, processes=size, timed=True)
        todo, self.left_out = bench.select_cells(self.selection, self.facts)
        for cell, _ in todo:
            if len(set(owners_of(cell.request.mesh, number, size))) < size:
                label = cell.request.mesh.label
                raise SelectionError(
                    f"mesh {label} has no device of some of the {size} processes: name meshes of all {number} devices"
                )
        everywhere = self._all("cells", [cell.id for cell, _ in todo])
        common = set.intersection(*map(set, everywhere))
        if missing := len(todo) - len(common):
            self.left_out.append(f"{missing} more cells, for which another rank has not the memory")
        self.todo: Todo = [(cell, modes) for cell, modes in todo if cell.id in common]
        self.group.alike("cases", ranks.digest_names(f"{cell.id} {modes}" for cell, modes in self.todo))
        job = Job(
            cells=[],
            num_devices=number,
            seed=arguments.seed,
            cadences=list(arguments.cadence),
            seconds=seconds,
            deadline=arguments.deadline,
        )
        self.job = replace(job, controls=bench.controls(self.todo), most=most_samples(size))

    def _open(self) -> None:
        """Open FILE.rankK, and take over the cells that all ranks have finished before; RecordError as
        records.reading."""
        facts, job, arguments = self.facts, self.job, self.arguments
        token = uuid.uuid4().hex[:12]
        self.described: dict[str, Any] = {
            "facts": facts.to_json(),
            "selection": self.selection.described() | {"scaling": False} | self.expected.described,
            "seed": arguments.seed,
            "repeat": arguments.processes,
            "table": TABLE_VERSION,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "timing": {k: getattr(job, k) for k in ("cadences", "seconds", "least", "most")}
            | {"counts": COUNTS},
            "rank": self.group.rank,
            "group": self._all("group", token)[0],
            **CLOSES,
        }
        self.kept = Records()
        self.kept.add({"kind": "run", **self.described})
        self.finished: set[str] = set()
        if self.path is None:
            return
        rank, size = self.group.rank, self.group.size
        exist = self._all("records", merge.rank_files(self.path, size)[rank].exists())
        own, append = merge.own_file(self.path, rank, size, bool(arguments.resume), exist)
        before = Records()
        if append:
            self.writer, before = Writer.going_on(own, self.described)
        else:
            self.writer = Writer.create(own, self.described)
        self.writer.choose(cell.case(mode).id for cell, modes in self.todo for mode in modes)
        every = self._all("finished", [done(before, p) for p in range(arguments.processes)])
        by_launch = [finished(list(by_rank)) for by_rank in zip(*every, strict=True)]
        cells = {cell.id for cell, _ in self.todo}
        launch = next((p for p, found in enumerate(by_launch) if cells - found), arguments.processes - 1)
        self.job, self.finished = replace(self.job, process=launch), by_launch[launch]

    def _all(self, what: str, value: Value) -> list[Value]:
        return self.group.channel.exchange(what, value, ranks.JOIN)[1]

    # Timing -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Time, print and merge. Gives the exit code, or ends the process if the run can't continue."""
        first = self.group.rank == 0
        interrupts.listen(self._signalled)
        endings.abort_late()
        if first:
            self._head()
        progress = Progress(sum(cell.id not in self.finished for cell, _ in self.todo))
        try:
            if first:
                with shown(progress.cells) as tell:
                    self._time(progress, tell)
            else:
                self._time(progress, lambda _: None)
            merged = self._close()
        except KeyboardInterrupt as error:
            self._stop("interrupted", interrupts.code(error))
        except OSError as error:
            self._stop(f"can't go on: {error.strerror or error}", 2)
        except (ChannelError, RecordError) as error:
            self._stop(str(error), 1)
        except Ended as ended:
            self._end(ended.ending)
        if first:
            self._tail(progress, merged)
        bad = any(r["verdict"] in BAD for r in self.kept.timings)
        self.group.leave()
        rollcall.report_exit_code(self.group.rank, int(bad))
        return int(bad)

    def _time(self, progress: Progress, tell: Callable[[Progress], None]) -> None:
        issues = self.expected.issues(self.facts.to_json())
        with self.group.channel.during("start", START):
            assert self.consensus
            self.timer = RankTimer(self.job, self.consensus)
            progress.spread = spread()
        left = [(cell, modes) for cell, modes in self.todo if cell.id not in self.finished]
        progress.left = {cell.id: 1 for cell, _ in left}
        last = time.monotonic()
        for number, (cell, modes) in enumerate(left, 1):
            lines = self.timer.timed(cell, modes)
            for line in lines:
                bench.mark_known(line, issues)
            self._write(lines)
            every = self.group.channel.exchange(f"timed {cell.id}", lines, self.job.deadline)[1]
            self.kept.timings += [
                merge.merge_timing(dict(enumerate(own)), self.group.size) for own in zip(*every, strict=True)
            ]
            progress.take(cell.id, time.monotonic() - last)
            last = time.monotonic()
            tell(progress)
            if number % CLEAR_EVERY == 0:
                jax.clear_caches()
        progress.spread = max(self._all("spread", max(progress.spread, spread())))

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if self.writer and lines:
            self.writer.write(lines)

    def _close(self) -> bool:
        """Close the file. On rank 0, merge all files if it has access to them. Gives whether they were merged."""
        if self.writer:
            self.writer.end(int(any(r["verdict"] in BAD for r in self.kept.timings)))
            self.writer.close()
        self._all("written", None)
        return self._merged() if self.group.rank == 0 else False

    def _merged(self) -> bool:
        if self.path is None:
            return False
        if problem := merge.write_where_seen(self.path, self.group.size):
            note(problem)
            return False
        self.kept = reading.read_records(self.path)  # with what an earlier, interrupted run had finished
        return True

    # Printing -----------------------------------------------------------------------------------------------

    def _head(self) -> None:
        show(
            self.facts.describe(),
            self.expected.issue_lines(),
            [ranks.describe(self.facts)],
            (f"left out: {why}" for why in self.left_out),
            ["left out: ceilings, which are measured in one process"],
        )
        sys.stdout.flush()
        if self.arguments.num_devices and not self.facts.virtual:
            remark(f"--num-devices is ignored on backend {self.facts.backend}")
        interrupts.warn()
        for line in bench.load():
            remark(line)

    def _tail(self, progress: Progress, merged: bool) -> None:
        show(timing_tables.table_lines(self.kept, terminal.width()))
        for line in bench.noise(progress):
            remark(line)
        if self.path:
            print(f"records: {self.path if merged else f'{self.path}.rank*'}", flush=True)
        launch, launches = self.job.process + 1, self.arguments.processes
        if launch < launches:
            remark(f"this was launch {launch} of {launches}: start the ranks again with --resume {self.path}")

    # Ending -------------------------------------------------------------------------------------------------

    def _signalled(self, number: signal.Signals) -> None:
        """Handle a signal, in the thread that listens for them: end this rank, and tell the others at once."""
        self._signal = number
        self.group.channel.interrupt(number.name)

    def give_up(self, ending: Ending) -> None:
        """End the run in the channel's thread, because the main thread does not return to the channel."""
        self._end(ending)

    def _stop(self, why: str, code: int) -> NoReturn:
        """Tell the others that this rank can't continue, and leave after the channel is closed."""
        self.group.channel.interrupt(why)
        self.group.channel.close()
        self._end(Ending("", why), code)

    def _end(self, ending: Ending, code: int = 1) -> NoReturn:
        """Record the cases in which the run ended, print the reason and the timings so far, and end the process at
        once. JAX would wait for minutes for a rank that is gone."""
        try:
            if self.consensus is None:
                note(ending.reason)
            else:
                with self.consensus.end(ending) as first:
                    if first:
                        self._write_down(ending)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(128 + self._signal if self._signal else code)

    def _write_down(self, ending: Ending) -> None:
        lines: list[Any] = self.timer.blamed(ending) if self.timer else []
        self._write(lines)
        self.kept.timings += lines
        note(self._describe(ending))
        if self.group.rank == 0:
            if self.kept.timings:
                show(timing_tables.table_lines(self.kept, terminal.width()))
            if self.path:
                print(f"records: {self.path}.rank*")

    def _describe(self, ending: Ending) -> str:
        at = self.timer.at[0] if self.timer else []
        where = f"{cell_of(at[0].id)}: {ending.verdict}: " if at and ending.verdict else ""
        kept = f"; what was timed is kept, go on with --resume {self.path}" if self.path else ""
        return f"rank {self.group.rank}: {where}{endings.describe_ending(ending)}{kept}"


def done(before: Records, launch: int = 0) -> dict[str, list[Any]]:
    """By cell of one launch: [the group of ranks that finished it last, whether it ended the group]."""
    groups = {run["run"]: run.get("group") for run in before.runs}
    found: dict[str, list[Any]] = {}
    for record in before.timings:
        if "seconds" in record and record["process"] == launch:
            found[cell_of(record["case"])] = [
                groups.get(record["run"]),
                record["verdict"] in ("crash", "hang"),
            ]
    return found


def finished(by_rank: list[dict[str, list[Any]]]) -> set[str]:
    """The cells that need no more timing: all ranks have finished them in the same group, or they ended a group."""
    ended = {cell for own in by_rank for cell, (_, bad) in own.items() if bad}
    return ended | {
        cell
        for cell, (group, _) in by_rank[0].items()
        if all(own.get(cell, [None])[0] == group for own in by_rank)
    }


def _refuse(arguments: argparse.Namespace) -> None:
    """SelectionError for options that are not possible with ranks."""
    if arguments.scaling:
        raise SelectionError(
            "--scaling times meshes of 1, 2, 4 ... devices, some of which not every process has a device of: leave it"
            " out, or start as many processes each time"
        )
    if arguments.processes > 1 and not (arguments.record or arguments.resume):
        raise SelectionError(
            "--processes over ranks is a number of launches, which a file holds together: add --record FILE"
        )
    if "device" in arguments.cadence:
        raise SelectionError(
            "--cadence device reads the profiler of one process: choose from isolated, stream"
        )


def run_rank_bench(
    arguments: argparse.Namespace,
    found: Coordinates,
    seconds: float,
    expected: Expectations,
) -> int:
    """Run `meshmark bench` as one rank of several; gives the exit code. seconds: sampling time per program."""
    return Rank(arguments, found, seconds, expected).run()
