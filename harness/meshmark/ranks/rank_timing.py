# SPDX-License-Identifier: Apache-2.0
"""Timing as one rank of several: each in its own process, the same cells and modes in the same order, samples per rank.

Before each sample the ranks are aligned on the device: a compiled sum of one number over all devices of the cell's
mesh is run and blocked on right before the timed call. It is not part of the sample. A host barrier would not do: it
goes through the process of rank 0, not over the transport that is timed. What remains is how far apart the ranks come
out of that sum: the time of its last message and of a thread's waking (two ranks of one device on two shared cores: 70
us, where a psum of 64 KiB took 340; docs/measuring.md). A rank that enters a collective first waits for the others
inside it, so a sample holds up to that much more than the collective needs. The samples of a collective show which
rank comes out late, and not which one enters late.

All ranks must make the same calls: a rank that makes more would wait for ever. So rank 0 decides whatever depends on a
clock, from what all ranks have seen (`meshmark.ranks.consensus`): how many calls warm up, how many make a stream, and
after each block of rounds how many come next. Each block doubles the rounds so far, so that the channel is seldom used.
Where one rank raises, or has wrong values, no rank times that case.
"""

from __future__ import annotations

import math
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

from meshmark.core.skew import slowest
from meshmark.core.verdicts import VERDICTS, Line
from meshmark.judge.checks import Judge, line_of_exception
from meshmark.judge.programs import mesh_over, place
from meshmark.operations.cases import Case, Cell
from meshmark.ranks import group as ranks
from meshmark.ranks.channel import Ending
from meshmark.ranks.consensus import Consensus, Settled
from meshmark.ranks.endings import line_of_ending
from meshmark.timing.measure import (
    STREAM_SECONDS,
    Budget,
    Plain,
    Prepared,
    Stream,
    Timer,
    Wrong,
    calibrate_stream,
    prepare,
    undisturbed,
    verify_stream,
)
from meshmark.timing.timer import Job, Timing, doubts, untimed

WARM = 10
"""The most calls that warm up one program."""

Made = TypeVar("Made")


class Alignment:
    """Brings the ranks together on the device: a compiled sum over all devices of a mesh."""

    def __init__(self, mesh: Mesh) -> None:
        """Compile it; every process must have a device of the mesh. Nothing is run yet."""
        spec = P(mesh.axis_names)

        def summed(x: Any) -> Any:
            return jax.lax.psum(x, mesh.axis_names)

        self._ones = place(mesh, (mesh.axis_names,), np.ones(mesh.size, np.float32))
        mapped = jax.shard_map(summed, mesh=mesh, in_specs=spec, out_specs=P())
        self._called = jax.jit(mapped).lower(self._ones).compile()

    def __call__(self) -> None:
        """Wait until every rank has called this."""
        jax.block_until_ready(self._called(self._ones))


@dataclass
class Aligned:
    """A timer each of whose samples begins where the ranks come out of an alignment."""

    timer: Timer
    align: Alignment

    def sample(self) -> float:
        """Seconds of one call of this rank, without the alignment."""
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
        """The cases and the cadence that it is about, and when it began the cell."""

    # Agreeing -----------------------------------------------------------------------------------------------

    def everywhere(self, case: Case, make: Callable[[], Made]) -> Made:
        """What `make` gives on this rank, where it gives something on every rank; else Wrong, alike on every rank."""
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
        """One step of a cell, of these cases, as a matter of all ranks. Leaves `at` as it was where it is left by an
        exception, for whoever writes down the ending."""
        self.at = (list(cases), cadence, self.at[2])
        with self.consensus.on(f"{what} {cases[0].id}", self.job.deadline * factor):
            yield

    # A cell -------------------------------------------------------------------------------------------------

    def timed(self, cell: Cell, modes: Sequence[str]) -> list[dict[str, Any]]:
        """The record lines of this rank: the modes of one cell, timed in turns. Ended where the run can't go on."""
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
                lines += self._turns([Plain(p)], [p], "plain", align)
        every = [*ready, *self._controls(ready)]
        if ready and "isolated" in self.job.cadences:
            lines += self._turns(every, every, "isolated", align)
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
                lines += self._turns(streams, [s.prepared for s in streams], "stream", align)
        own = self.clock.problem() or doubts()
        if lines and (
            why := self.consensus.agree("a clock", own, lambda every: next(filter(None, every), ""))
        ):
            untimed(lines, why)
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
        """The stream of one case, with the same number of calls on every rank; Wrong, alike on every rank."""
        seconds = min(STREAM_SECONDS, max(0.002, self.budget.seconds / 20))

        def longest(own: float) -> float:
            return float(self.consensus.agree("seconds of a call", own, max))

        with self.step("stream", [p.case], "stream"):
            made = self.everywhere(p.case, partial(verify_stream, p, self.judge))
        with self.step("calibrate", [p.case], "stream"):
            return self.everywhere(p.case, partial(calibrate_stream, made, seconds, longest))

    def _turns(
        self, timers: Sequence[Timer], of: Sequence[Prepared], cadence: str, align: Alignment
    ) -> Iterator[dict[str, Any]]:
        """A line for each timer: its samples, or why there are none."""
        factor = max(1.0, 4 * len(of) * self.budget.seconds / self.job.deadline)
        aligned = [Aligned(timer, align) for timer in timers]
        with self.step(f"sample {cadence}", [p.case for p in of], cadence, factor):
            try:
                every = self.everywhere(
                    of[0].case, partial(sample, aligned, self.budget, self.rng, self.consensus.agree)
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
        """The lines of the cases that a run ended in; [] where no case is to blame."""
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
"""Consensus.agree: what rank 0 makes of all ranks' values, on every rank."""


def sample(timers: Sequence[Timer], budget: Budget, rng: random.Random, agree: Agree) -> list[list[float]]:
    """This rank's samples of each timer, in seconds, in rounds as timing.measure.sample takes them; as many on every
    rank, and the same order of timers in each round where `rng` is seeded alike.

    Warm-up: each timer once, then as often as rank 0 says: no more than WARM times, nor than a tenth of the budget by
    the slowest rank. Rounds come in blocks that double what there is. After each block rank 0 hears how long each rank
    took, and says how many rounds come next: none where the time is spent on any rank (`budget.seconds` for each
    timer, alignments included), and no more than fit into what is left of it. Settled where another rank raised.
    """
    every: list[list[float]] = [[] for _ in timers]
    order = list(range(len(timers)))

    def warming(by_rank: list[Any]) -> list[int]:
        once = slowest(by_rank)
        return [min(WARM, max(1, int(budget.seconds / 10 / s))) - 1 for s in once]

    def more(by_rank: list[Any]) -> int:
        spent, done = max(elapsed for elapsed, _ in by_rank), by_rank[0][1]
        left = math.floor((budget.seconds * len(timers) - spent) * done / spent)
        return max(0, min(done, budget.most - done, left))

    with undisturbed():
        calls = agree("warm-up", [timer.sample() for timer in timers], warming)
        for timer, number in zip(timers, calls, strict=True):
            for _ in range(number):
                timer.sample()
        start = perf_counter()
        number, done = budget.least, 0
        while number:
            for _ in range(number):
                if len(order) > 1:
                    rng.shuffle(order)
                for i in order:
                    every[i].append(timers[i].sample())
            done += number
            number = agree(f"{done} rounds", [perf_counter() - start, done], more)
    return every
