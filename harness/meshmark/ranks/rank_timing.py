# SPDX-License-Identifier: Apache-2.0
"""Timing as one rank of several. Each process times the same cells and modes in the same order, and has its own
samples.

Before each sample the ranks are aligned on the device: a compiled sum of one number over all devices of the cell's mesh
runs, and the ranks block on it right before the timed call. It is not part of the sample. A host barrier is not enough,
because it uses the process of rank 0 and not the transport that is timed.

The remaining error is the difference between the times at which the ranks leave that sum: the time of its last message
and of a thread's wake-up (two ranks of one device on two shared cores: 70 us, when a psum of 64 KiB took 340;
docs/measuring.md). A rank that enters a collective first waits inside it for the others, so a sample is too long by up
to that time. The samples of a collective show which rank leaves it late, but not which rank enters it late.

All ranks must make the same calls, because a rank that makes more would wait for ever. So rank 0 decides everything
that depends on a clock, from the values of all ranks (`meshmark.ranks.consensus`): the number of calls for warm-up and
per stream, and after each block of rounds the number of further rounds. Each block doubles the rounds so far, so the
channel is seldom used. If one rank raises, or has wrong values, no rank times that case.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshmark.core import blocks
from meshmark.core.skew import slowest
from meshmark.core.verdicts import VERDICTS, Line
from meshmark.judge.checks import Judge, line_of_exception
from meshmark.judge.programs import mesh_over, place_array
from meshmark.operations.cases import Case, Cell
from meshmark.ranks import group as ranks
from meshmark.ranks.channel import Ending
from meshmark.ranks.consensus import Consensus, Settled
from meshmark.ranks.endings import line_of_ending
from meshmark.records import reading
from meshmark.timing.measure import (
    STREAM_SECONDS,
    Budget,
    Plain,
    Prepared,
    Stream,
    Timer,
    Wrong,
    calibrate_stream,
    pause_collector,
    prepare,
    verify_stream,
)
from meshmark.timing.timer import Job, Timing, doubts, mark_untimed

COUNTS = "samples of the slowest rank"
"""What counts as spent time, as in timing.measure. The waiting for other ranks does not."""

WARM = 10
"""The largest number of warm-up calls per program."""

Made = TypeVar("Made")


def most_samples(size: int) -> int:
    """The most samples of a program over this number of ranks. One line has those of all ranks, of 16 characters each,
    and takes at most half of the longest line that is read."""
    return max(Budget.least, min(Budget.most, reading.LONGEST // 32 // size))


class Alignment:
    """Aligns the ranks on the device, by a compiled sum over all devices of a mesh."""

    def __init__(self, mesh: Mesh) -> None:
        """Compile the sum, without a run of it. Every process must have a device of the mesh."""
        spec = P(mesh.axis_names)

        def summed(x: Any) -> Any:
            return jax.lax.psum(x, mesh.axis_names)

        self._ones = place_array(mesh, (mesh.axis_names,), np.ones(mesh.size, np.float32))
        mapped = jax.shard_map(summed, mesh=mesh, in_specs=spec, out_specs=P())
        self._called = jax.jit(mapped).lower(self._ones).compile()

    def __call__(self) -> None:
        """Wait until every rank has called this."""
        jax.block_until_ready(self._called(self._ones))


@dataclass
class Aligned:
    """A timer that aligns the ranks before each sample."""

    timer: Timer
    align: Alignment

    @property
    def count(self) -> int:
        """Calls per sample."""
        return getattr(self.timer, "count", 1)

    def sample(self) -> float:
        """The seconds of one call on this rank, without the alignment."""
        self.align()
        return self.timer.sample()


class RankTimer(Timing):
    """Times cells as one rank of a group."""

    def __init__(self, job: Job, consensus: Consensus) -> None:
        super().__init__(job, None)
        self.consensus = consensus
        self.devices = ranks.in_order(jax.devices())
        self.judge = Judge(self.devices, job.seed, meeting=consensus.compare_programs)
        self.at: tuple[list[Case], str, float] = ([], "isolated", 0.0)
        """(the cases of the current step, their cadence, the time at which the cell began)"""

    # Agreeing -----------------------------------------------------------------------------------------------

    def everywhere(self, case: Case, make: Callable[[], Made]) -> Made:
        """This rank's result of `make`, if it succeeds on every rank; else Wrong, equal on every rank."""
        made: Made | None = None
        bad: Sequence[Line] = ()
        try:
            made = make()
        except Wrong as wrong:
            bad = [line for line in wrong.lines if line.verdict != "pass" and line.check != "communication"]
            bad = bad or [Line("execute", "error", str(wrong))]
        except Settled as settled:
            bad = [Line("execute", "error", f"not timed: {settled}")]
        except (Exception, SystemExit) as error:
            bad = [line_of_exception(case, error)]
        lines = self.consensus.settle(bad)
        if not lines:
            assert made is not None
            return made
        worst = min(lines, key=lambda line: VERDICTS.index(line.verdict))
        raise Wrong(f"{worst.check}: {worst.reason}" if worst.check != "execute" else worst.reason, lines)

    @contextmanager
    def step(self, what: str, cases: Sequence[Case], cadence: str, factor: float = 1.0) -> Iterator[None]:
        """The context of one step of a cell, for these cases, as a matter of all ranks. `at` keeps the step after an
        exception, so that the ending can be recorded."""
        self.at = (list(cases), cadence, self.at[2])
        with self.consensus.on(f"{what} {cases[0].id}", self.job.deadline * factor):
            yield

    # A cell -------------------------------------------------------------------------------------------------

    def timed(self, cell: Cell, modes: Sequence[str]) -> list[dict[str, Any]]:
        """The record lines of this rank for the modes of one cell, timed in turns. Ended if the run can't continue."""
        start = perf_counter()
        self.at = ([], "isolated", start)
        cases = [cell.case(mode) for mode in modes]
        lines: list[dict[str, Any]] = []
        ready: list[Prepared] = []
        for case in cases:
            with self.step("prepare", [case], "isolated"):
                try:
                    made = partial(prepare, case, self.devices, judge=self.judge)
                    ready.append(self.everywhere(case, made))
                except Wrong as wrong:
                    lines.append(self.line(case, "isolated", wrong=wrong))
        if ready:
            with self.step("align", [p.case for p in ready], "isolated"):
                try:
                    mesh = mesh_over(self.devices, cell.request.mesh)
                    align = self.everywhere(ready[0].case, partial(Alignment, mesh))
                except Wrong as wrong:
                    lines += [self.line(p.case, "isolated", p, wrong=wrong) for p in ready]
                    ready = []
        if "plain" in self.job.cadences:
            for p in ready:
                lines += self._turns([Plain(p)], [p], 1, "plain", align)
        every = [*ready, *self._controls(ready)]
        if ready and "isolated" in self.job.cadences:
            lines += self._turns(every, every, len(ready), "isolated", align)
        if ready and "stream" in self.job.cadences:
            streams = []
            for p in every:
                if p.program is not None and not p.program.stacked:
                    try:
                        streams.append(self._stream(p))
                    except Wrong as wrong:
                        if p in ready:
                            lines.append(self.line(p.case, "stream", p, wrong=wrong))
            if streams:
                counted = sum(any(s.prepared is p for p in ready) for s in streams)
                lines += self._turns(streams, [s.prepared for s in streams], counted, "stream", align)
        own = self.clock.problem() or doubts()
        if lines and (
            why := self.consensus.agree("a clock", own, lambda every: next(filter(None, every), ""))
        ):
            mark_untimed(lines, why)
        if lines:
            lines[-1]["seconds"] = round(perf_counter() - start, 6)
        self.at = ([], "isolated", 0.0)
        return lines

    def _controls(self, ready: Sequence[Prepared]) -> Iterator[Prepared]:
        """The controls among these cases, compiled and verified a second time on every rank."""
        for p in ready:
            if p.case.id in self.job.controls:
                with self.step("prepare", [p.case], "isolated"), suppress(Wrong):
                    yield self.everywhere(p.case, partial(prepare, p.case, self.devices, judge=self.judge))

    def _stream(self, p: Prepared) -> Stream:
        """The stream of one case, with the same number of calls on every rank; Wrong, equal on every rank."""
        seconds = min(STREAM_SECONDS, max(0.002, self.budget.seconds / 20))

        def longest(own: float) -> float:
            return float(self.consensus.agree("seconds of a call", own, max))

        with self.step("stream", [p.case], "stream"):
            made = self.everywhere(p.case, partial(verify_stream, p, self.judge))
        with self.step("calibrate", [p.case], "stream"):
            return self.everywhere(p.case, partial(calibrate_stream, made, seconds, longest))

    def _turns(
        self,
        timers: Sequence[Timer],
        of: Sequence[Prepared],
        counted: int,
        cadence: str,
        align: Alignment,
    ) -> Iterator[dict[str, Any]]:
        """One line per timer, with its samples or with the reason why there are none. The timers after the first
        `counted` ones are controls."""
        factor = max(1.0, 4 * len(of) * self.budget.seconds / self.job.deadline)
        aligned = [Aligned(timer, align) for timer in timers]
        with self.step(f"sample {cadence}", [p.case for p in of], cadence, factor):
            try:
                every = self.everywhere(
                    of[0].case,
                    partial(sample, aligned, counted, self.budget, self.rng, self.consensus.agree),
                )
            except Wrong as wrong:
                yield from (self.line(p.case, cadence, p, wrong=wrong) for p in of)
                return
        found: dict[str, dict[str, Any]] = {}
        for timer, p, samples in zip(timers, of, every, strict=True):
            self.add(found, timer, p, samples, cadence)
        yield from found.values()

    # Ending -------------------------------------------------------------------------------------------------

    def blamed(self, ending: Ending) -> list[dict[str, Any]]:
        """The lines of the cases in which a run ended; [] if no case is the cause."""
        cases, cadence, start = self.at
        if not ending.verdict or not cases:
            return []
        line = line_of_ending(ending)
        wrong = Wrong(line.reason, [line])
        lines = [self.line(case, cadence, wrong=wrong) for case in cases]
        lines[-1]["seconds"] = round(perf_counter() - start, 6)
        return lines


# Sampling ---------------------------------------------------------------------------------------------------

Agree = Callable[[str, Any, Callable[[list[Any]], Any]], Any]
"""The type of Consensus.agree."""


def sample(
    timers: Sequence[Timer], counted: int, budget: Budget, rng: random.Random, agree: Agree
) -> list[list[float]]:
    """This rank's samples of each timer, in seconds with seven digits, in rounds as in timing.measure.sample. All ranks
    have equally many, and the same order of timers in each round if `rng` has the same seed.

    Warm-up: each timer runs once, and then as often as rank 0 decides, at most WARM times in all and for at most a
    tenth of the budget of the slowest rank. Rounds come in blocks (core.blocks). After each block rank 0 gets the time
    that the samples of each rank took, and decides how many rounds come next. Only the first `counted` timers count,
    with `budget.seconds` for each; the others are controls. Settled if another rank raised.
    """
    every: list[list[float]] = [[] for _ in timers]
    order = list(range(len(timers)))
    own = [(every[i], getattr(timers[i], "count", 1)) for i in range(counted)]

    def warming(by_rank: list[Any]) -> list[int]:
        once = slowest(by_rank)
        return [min(WARM, max(1, int(budget.seconds / 10 / s))) - 1 for s in once]

    def more(by_rank: list[Any]) -> int:
        return blocks.next_block(max(by_rank), done, budget.seconds * counted, budget.most)

    with pause_collector():
        calls = agree("warm-up", [timer.sample() for timer in timers], warming)
        for timer, number in zip(timers, calls, strict=True):
            for _ in range(number):
                timer.sample()
        number, done = budget.least, 0
        while number:
            for _ in range(number):
                if len(order) > 1:
                    rng.shuffle(order)
                for i in order:
                    every[i].append(float(f"{timers[i].sample():.7g}"))
            done += number
            number = agree(f"{done} rounds", blocks.spent(own, done), more)
    return every
