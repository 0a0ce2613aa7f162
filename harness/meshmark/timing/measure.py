# SPDX-License-Identifier: Apache-2.0
"""Times programs that are compiled ahead of time, verified, warmed up, and timed in turns.

There are three cadences, for three questions. *plain* is one call of the compiled program, blocked on, with the same
buffers each time and no other program between: it is what a user's own loop measures. *isolated* is one call, blocked
on, with two sets of buffers in turns and the modes of a cell in turns: it serves to compare modes, because disturbances
of the machine affect all of them alike. It takes up to a tenth longer, because neither buffers nor programs stay in the
caches. *stream* is dependent calls inside one program, which amortizes dispatch. Its trip count is an argument, and
each pass needs the result of the one before it, so that nothing is hoisted or elided.

Every sample is kept. The clock is `time.perf_counter`; releasing a result and choosing the inputs are not timed.

The timed object is the verified one: the same compiled object, in the same process, verified by the checks of
meshmark.judge.checks. A program with wrong values is never timed.
"""

from __future__ import annotations

import gc
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from meshmark.core import loops
from meshmark.core.hlo import Collective, collectives
from meshmark.core.verdicts import BAD, Line, worst
from meshmark.judge.checks import Judge, line_of_exception, placed_inputs
from meshmark.judge.communication import communication
from meshmark.judge.programs import Program, sharding
from meshmark.operations.cases import Case

STREAM_SECONDS = 0.01
"""The target time of one sample of a stream, in seconds: far above its dispatch, short enough for many samples."""

LONGEST_STREAM = 4096
"""The most calls of one stream."""

ELIDED = 0.02
"""A stream is taken as elided if its time per call is below this share of an isolated call's time, and that time is a
millisecond or more: dispatch is never so large a part of such a call."""


LEAST_EFFORT = 0.5
"""The least share of a call's flops, and of what it writes, that one turn of its stream has. It is not 1, since the
compiler fuses otherwise in a loop."""

MOST_OUTSIDE = 0.02
"""The largest share of a call's flops that a stream may compute outside its loop from its inputs or results. It is not
0, since indices may be clipped there. What depends on neither, as a mask does, is computed once by right."""


class Wrong(RuntimeError):
    """A program that must not be timed: it raised or its values are wrong; `lines` holds the check lines."""

    def __init__(self, reason: str, lines: Sequence[Line] = ()) -> None:
        super().__init__(reason)
        self.lines = list(lines)


COUNTS = "samples"
"""What counts as spent time. The sum of the samples does, so a reader of the samples can tell where sampling ended."""


@dataclass(frozen=True)
class Budget:
    """How long to sample one program in one cadence.

    seconds: the time that its samples take together. least, most: numbers of samples, which override it. Sampling does
    not end when an interval is narrow, because the width depends on the samples themselves.
    """

    seconds: float = 0.25
    least: int = 10
    most: int = 1000


class Timer(Protocol):
    """A call that can be sampled."""

    def sample(self) -> float:
        """Seconds of one call."""
        ...


@dataclass
class Prepared:
    """One case, compiled and verified; the Timer of the isolated cadence."""

    case: Case
    program: Program | None
    """None for a host call, which has no program."""
    called: Any
    """The compiled program, or the host call."""
    inputs: list[list[jax.Array]]
    """Sets of the same inputs in separate buffers, used in rotation."""
    lines: list[Line]
    lower_s: float = 0.0
    compile_s: float = 0.0
    counters: dict[str, Any] = field(default_factory=dict)
    _turns: Iterator[list[jax.Array]] = field(init=False)

    def __post_init__(self) -> None:
        self._turns = itertools.cycle(self.inputs)

    @property
    def verified(self) -> bool:
        """Whether its values, replicas and sharding are right."""
        return all(line.verdict == "pass" for line in self.lines if line.check != "communication")

    def run(self) -> Any:
        """Make one call, block on it and return the outputs."""
        return jax.block_until_ready(self.called(*next(self._turns)))

    def sample(self) -> float:
        """Seconds of one isolated call."""
        inputs, called, block = next(self._turns), self.called, jax.block_until_ready
        start = perf_counter()
        outputs = block(called(*inputs))
        stop = perf_counter()
        del outputs
        return stop - start


@dataclass
class Plain:
    """The Timer of the plain cadence: a prepared case with the same buffers each time."""

    prepared: Prepared

    def sample(self) -> float:
        """Seconds of one call."""
        inputs, called, block = self.prepared.inputs[0], self.prepared.called, jax.block_until_ready
        start = perf_counter()
        outputs = block(called(*inputs))
        stop = perf_counter()
        del outputs
        return stop - start


def prepare(case: Case, devices: Sequence[Any], seed: int = 0, judge: Judge | None = None) -> Prepared:
    """Compile a case ahead of time and verify its values; Wrong if it must not be timed.

    The modes of one cell can share a `judge`, and with it one set of inputs. A case whose communication contract is
    not met is timed too: the line reports it.
    """
    judge = judge or Judge(tuple(devices), seed)
    try:
        made = _host(case, judge) if case.mode == "host" else _program(case, judge)
    except Wrong:
        raise
    except (Exception, SystemExit) as error:
        line = line_of_exception(case, error)
        raise Wrong(line.reason, [line]) from error
    if not made.verified:
        bad = min((x for x in made.lines if x.check != "communication" and x.verdict in BAD), key=_badness)
        raise Wrong(f"{bad.check}: {bad.reason}", made.lines)
    return made


def _badness(line: Line) -> int:
    return BAD.index(line.verdict)


def _host(case: Case, judge: Judge) -> Prepared:
    called = judge.host_call(case)
    return Prepared(case, None, called, [[]], judge.run(case))


def _program(case: Case, judge: Judge) -> Prepared:
    program = Program(case, judge.devices)
    with program.context():
        start = perf_counter()
        lowered = program.lower()
        middle = perf_counter()
        compiled = lowered.compile()
        stop = perf_counter()
    inputs = [judge.inputs(program), placed_inputs(program, judge.seed)]
    contract = communication(case, compiled)
    _meet_other_ranks(judge, case, contract.data["collectives"])

    def execute() -> list[jax.Array]:
        with program.context():
            return jax.block_until_ready(jax.tree.leaves(compiled(*inputs[0])))

    return Prepared(
        case,
        program,
        compiled,
        inputs,
        [contract, *judge.executed(program, execute)],
        middle - start,
        stop - middle,
        read_counters(contract, compiled),
    )


def _meet_other_ranks(judge: Judge, case: Case, found: Sequence[dict[str, Any]]) -> None:
    """With several processes, before the first run: Wrong if another rank does not take part."""
    if judge.meeting and (reason := judge.meeting(case, found)):
        raise Wrong(reason, [Line("execute", "error", reason)])


def read_counters(contract: Line, compiled: Any) -> dict[str, Any]:
    """The compiler's figures of a program, per device: the number of collectives in one execution and the
    bytes that they send, flops, bytes accessed, and bytes of arguments, outputs and temporaries."""
    memory = compiled.memory_analysis()
    found = contract.data["collectives"]
    return {
        "collectives": sum(c["trips"] or 1 for c in found),
        "communication": found,
        "wire_bytes": contract.data["wire_bytes"],
        "flops": contract.data["flops"],
        "bytes_accessed": contract.data["bytes_accessed"],
        "temp_bytes": contract.data["temp_bytes"],
        "argument_bytes": getattr(memory, "argument_size_in_bytes", None),
        "output_bytes": getattr(memory, "output_size_in_bytes", None),
    }


# The stream -------------------------------------------------------------------------------------------------


@dataclass
class Stream:
    """The stream cadence of a prepared case: `count` dependent calls in one program."""

    prepared: Prepared
    compiled: Any
    outputs: list[jax.Array]
    compile_s: float
    count: int = 1

    def run(self, count: int) -> Any:
        """Make `count` calls, block and return the outputs."""
        return jax.block_until_ready(self.compiled(jnp.int32(count), *self.prepared.inputs[0], *self.outputs))

    def sample(self) -> float:
        """Seconds of one call, with its share of the dispatch."""
        inputs, called, block = self.prepared.inputs[0], self.compiled, jax.block_until_ready
        count, initial = jnp.int32(self.count), self.outputs
        start = perf_counter()
        outputs = block(called(count, *inputs, *initial))
        stop = perf_counter()
        del outputs
        return (stop - start) / self.count


def stream(prepared: Prepared, judge: Judge, seconds: float = STREAM_SECONDS) -> Stream:
    """The stream of a prepared case, verified like the case (`verify_stream`), with the number of calls that takes
    this many seconds (`calibrate_stream`); raises Wrong as these two do."""
    return calibrate_stream(verify_stream(prepared, judge), seconds)


def verify_stream(prepared: Prepared, judge: Judge) -> Stream:
    """The stream of a prepared case, verified like the case; Wrong if its values are wrong or if it does not do what
    the same number of isolated calls does (`hollow`).

    The loop's carry holds inputs and outputs and passes an optimization barrier in each turn, so that the
    inputs of a call depend on the outputs of the one before.
    """
    program = prepared.program
    if program is None or program.stacked:
        raise Wrong("has no stream: it is not a program of global arrays")
    number = len(program.arguments)
    mesh, function = program.mesh, program.function()
    places = [sharding(mesh, r.spec) for r in (*program.arguments, *program.results)]
    constrained = prepared.case.mode in ("auto", "pjit")

    def pinned(arrays: Sequence[Any], where: Sequence[Any]) -> tuple[Any, ...]:
        """Constrain the sharding of the arrays in modes auto and pjit: the loop's carry is inside the program, where
        in_shardings and out_shardings do not apply."""
        if not constrained:
            return tuple(arrays)
        return tuple(lax.with_sharding_constraint(a, p) for a, p in zip(arrays, where, strict=True))

    def streamed(count: Any, *arrays: Any) -> Any:
        def again(_: Any, carry: Any) -> Any:
            inputs, _ = lax.optimization_barrier(carry)
            inputs = pinned(inputs, places[:number])
            return inputs, pinned(jax.tree.leaves(function(*inputs)), places[number:])

        return lax.fori_loop(0, count, again, (arrays[:number], arrays[number:]))[1]

    outputs = jax.tree.leaves(prepared.run())
    made = Stream(prepared, None, outputs, 0.0)
    try:
        with program.context():
            start = perf_counter()
            # On one device XLA calls every result whole, whatever the constraints inside say.
            over: dict[str, Any] = {"out_shardings": tuple(places[number:])} if constrained else {}
            made.compiled = (
                jax.jit(streamed, **over).lower(jnp.int32(1), *prepared.inputs[0], *outputs).compile()
            )
            made.compile_s = perf_counter() - start
            _meet_other_ranks(judge, prepared.case, prepared.counters["communication"])
            lines = list(judge.executed(program, lambda: jax.tree.leaves(made.run(2))))
    except Wrong:
        raise
    except (Exception, SystemExit) as error:
        line = line_of_exception(prepared.case, error)
        raise Wrong(f"its stream: {line.reason}", [line]) from error
    if worst(line.verdict for line in lines) != "pass":
        bad = min((line for line in lines if line.verdict in BAD), key=_badness)
        raise Wrong(f"its stream: {bad.check}: {bad.reason}", lines)
    if why := hollow(prepared.called.as_text(), made.compiled.as_text(), prepared.case.mesh.size):
        raise Wrong(f"its stream {why}")
    return made


def hollow(alone: str, streamed: str, size: int) -> str:
    """Why a turn of a stream does not do the work of one call, by the optimized HLO of the call and of the stream; ""
    if it does.

    The body of the loop that `count` bounds must hold each collective, contraction and custom call of the call, as
    often as the call has it, and the rest of the stream must hold none. A turn must have the same conditionals as the
    call. Other arithmetic is compared by flops: almost none that needs the inputs may be outside the loop, and a turn
    must do at least half of the call's. For a program without collectives and contractions the written elements are
    compared too. size: the number of devices.
    """
    try:
        turn, once = loops.divide(streamed)
    except loops.NoLoop as error:
        return f"is not counted: {error}"
    wanted, inside, outside = (_exchanged(collectives(text, size)) for text in (alone, turn, once))
    work = [loops.contractions(text) for text in (alone, turn, once)]
    if taken_out := [*outside.elements(), *work[2].elements()]:
        return f"does work outside its loop: {'; '.join(taken_out)}"
    if inside != wanted:
        return f"communicates differently: {_told(inside)} instead of {_told(wanted)}"
    if work[1] != work[0]:
        return f"computes differently: {_told(work[1])} instead of {_told(work[0])}"
    if loops.branches(turn) != loops.branches(alone):
        return f"has other branches than a call: {_told(loops.branches(turn))}"
    call, here, fixed = (loops.effort(t) for t in (alone, turn, once))
    arguments = frozenset(range(1, once.count(" parameter(")))  # 0 is the number of turns
    outside_flops = loops.derived(once, arguments)
    if outside_flops > MOST_OUTSIDE * call.flops + 16:
        return f"does work outside its loop: {outside_flops} flops on its inputs or results, of {call.flops} of a call"
    plain = not wanted and not work[0]  # nothing else shows that a turn does what a call does
    needed = call.flops if plain else call.flops - fixed.flops
    if here.flops < LEAST_EFFORT * needed or (plain and here.written < LEAST_EFFORT * call.written):
        return (
            f"does less than a call: {here.flops} of {call.flops} flops, and writes {here.written} of"
            f" {call.written} elements"
        )
    return ""


def _told(work: Counter[str]) -> str:
    return "; ".join(sorted(work.elements())) or "nothing"


def calibrate_stream(
    made: Stream, seconds: float = STREAM_SECONDS, slowest: Callable[[float], float] = float
) -> Stream:
    """The stream with the number of calls that takes this many seconds; Wrong if it seems to skip the work.

    With several processes, `slowest` gives the longest time of all ranks, so that all make the same number of calls.
    """
    prepared = made.prepared
    assert prepared.program
    with prepared.program.context():
        made.sample()
        once = slowest(made.sample())
        # Enough calls to see past the dispatch, and no more than the target time takes.
        made.count = max(1, min(8, math.ceil(seconds / max(once, 1e-7))))
        # On a GPU the first turns of a loop also load its kernels, so the fastest of three samples counts.
        each = max(slowest(min(made.sample() for _ in range(3))), 1e-7)
        made.count = max(1, min(LONGEST_STREAM, math.ceil(seconds / each)))
        isolated = min(prepared.sample() for _ in range(3))
        each = made.sample()
    if isolated > 1e-3 and once > 1e-3 and each < ELIDED * isolated:
        raise Wrong(
            f"its stream takes {each:.2e} s per call and an isolated call {isolated:.2e} s: it was elided"
        )
    return made


def _exchanged(found: Sequence[Collective]) -> Counter[str]:
    """The collectives of a program with their trip counts."""
    return Counter(
        f"{c.kind} of {c.nbytes} B over {c.pairs or c.groups}{'' if c.trips == 1 else f', {c.trips} times'}"
        for c in found
    )


# Sampling ---------------------------------------------------------------------------------------------------


@contextmanager
def pause_collector() -> Iterator[None]:
    """Turn the garbage collector off inside this context, as timeit does."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@dataclass(frozen=True)
class Sampled:
    """The samples of several timers, taken in rounds."""

    samples: list[list[float]]
    """The samples of each timer, in seconds."""
    rounds: list[float]
    """When each round began, and when the last one ended, in seconds from the beginning of the first."""


def sample(timers: Sequence[Timer], budget: Budget, rng: random.Random) -> list[list[float]]:
    """The samples of each timer, in seconds, taken as `sample_in_rounds` does."""
    return sample_in_rounds(timers, budget, rng).samples


def sample_in_rounds(timers: Sequence[Timer], budget: Budget, rng: random.Random) -> Sampled:
    """Sample timers in rounds: each round samples every timer once, in random order. Disturbances of the machine then
    affect all timers alike, and the samples of one round are pairs.

    Sampling ends when the samples have taken more time than there is (`budget.seconds` per timer), or at `budget.most`
    rounds. Time between samples does not count: whether a round was the last one follows from the samples alone.
    """
    samples: list[list[float]] = [[] for _ in timers]
    rounds = [0.0]
    order = list(range(len(timers)))
    calls = [getattr(timer, "count", 1) for timer in timers]
    with ExitStack() as stack:
        stack.enter_context(pause_collector())
        for timer in timers:  # warm up, no longer than a tenth of the budget
            until = perf_counter() + budget.seconds / 10
            for _ in range(10):
                timer.sample()
                if perf_counter() > until:
                    break
        start, spent = perf_counter(), 0.0
        for number in range(1, budget.most + 1):
            if len(order) > 1:  # work between calls cools the caches of short calls: 0.5 percent of 14 us
                rng.shuffle(order)
            for i in order:
                samples[i].append(timers[i].sample())
            rounds.append(perf_counter() - start)
            spent += sum(own[-1] * each for own, each in zip(samples, calls, strict=True))
            if number >= budget.least and spent > budget.seconds * len(timers):
                break
    return Sampled(samples, rounds)
