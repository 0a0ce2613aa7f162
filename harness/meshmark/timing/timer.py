# SPDX-License-Identifier: Apache-2.0
"""The timing child process: `python -m meshmark.timing.timer`, started by meshmark.timing.children.

It takes one JSON object on standard input (a Job) and prints lines that begin with MARK. Each is a JSON object with one
of the keys ready, facts, ceilings, at (the next step), timings (the record lines of one cell), end. It imports only
JAX, NumPy and their dependencies, so that any interpreter with JAX can time.

Work without a device comes first (imports, the digest of the package), and `ready` follows. Then the child waits for
its job without using processor time. So it can be started while nothing is measured.
"""

from __future__ import annotations

import gc
import json
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Any

import jax

from meshmark.core.clocks import Watch
from meshmark.core.installation import digest_package
from meshmark.core.privacy import redact
from meshmark.core.verdicts import Line, worst
from meshmark.devices import containment, probe, surroundings
from meshmark.devices.watchdog import Watchdog
from meshmark.judge.checks import Judge
from meshmark.judge.self_test import prove
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.record_lines import case_cost, case_head
from meshmark.timing import ceilings, device_time
from meshmark.timing.measure import (
    STREAM_SECONDS,
    Budget,
    Plain,
    Prepared,
    Sampled,
    Stream,
    Timer,
    Wrong,
    prepare,
    sample_in_rounds,
    stream,
)

MARK = "meshmark-timer "
"""The start of each line of the child: a plugin may print other lines."""

CADENCES = ("plain", "isolated", "stream", "device")

OF_SAMPLES = (
    *("control_s", "control_calls", "rounds_s", "control_rounds_s", "per_device_s", "launch_skew_s"),
    *("wire_s", "samples_by_rank", "skew"),
)
"""The fields of a line that its samples belong to, beside `samples_s`."""

CLEAR_EVERY = 60
"""Number of cells after which JAX's caches are dropped."""


@dataclass(frozen=True)
class Job:
    """The job of a child: cells as lists of case ids, one list per cell."""

    cells: list[list[str]]
    num_devices: int
    controls: list[str] = field(default_factory=list)
    """Case ids that are also timed under a second name: the program compiled once more, in the same rounds."""
    seed: int = 0
    process: int = 0
    cadences: list[str] = field(default_factory=lambda: ["isolated", "stream"])
    seconds: float = Budget.seconds
    precision: float = 0.0
    """For a commit from before sampling ended by count and time alone: 0 makes its sampling end so too."""
    least: int = Budget.least
    most: int = Budget.most
    ceilings: bool = False
    directory: str = ""
    """The directory for its standard error, in a file named by its process id; "" for no redirection."""
    controller: int = 0
    deadline: float = 60.0

    def to_json(self) -> str:
        """The line for standard input. Fields with their default are left out, because an older commit may not have
        them."""
        empty = Job([], self.num_devices, precision=-1.0)  # which is always said
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(
            {k: v for k, v in said.items() if v != getattr(empty, k) or k in ("cells", "num_devices")}
        )


def say(**message: Any) -> None:
    """Print one line for the parent."""
    print(MARK + json.dumps(message), flush=True)


def spread(number: int = 40) -> float:
    """The variation of a fixed piece of work: the 90th percentile of its time over the smallest, minus one."""
    taken = []
    for _ in range(number):
        start = perf_counter()
        sum(range(20_000))
        taken.append(perf_counter() - start)
    return sorted(taken)[number * 9 // 10] / min(taken) - 1


def doubts() -> str:
    """A line if this process can't be trusted to verify its programs, because something has replaced the judge or the
    measuring core, has changed how the processor rounds, or has set flags that Python does not show; else ""."""
    if why := probe.hidden_flags():
        return f"what times here has flags that Python does not show: {why}"
    if replaced := next(surroundings.judge_replaced((*surroundings.JUDGING, "meshmark.timing")), None):
        return f"what times here is not to be trusted: {': '.join(replaced)}"
    try:
        prove()
    except RuntimeError as error:
        return str(error)
    if around := next(iter(surroundings.replaced_functions().items()), None):
        return f"what times here is not to be trusted: {' is '.join(around)}"
    return ""


def mark_untimed(lines: Sequence[dict[str, Any]], why: str) -> None:
    """Remove the times from the lines of a cell, because they cannot be trusted."""
    for line in lines:
        for name in OF_SAMPLES:
            line.pop(name, None)
        line |= {"verified": False, "verdict": "error", "check": "execute", "reason": why, "samples_s": []}


def rounded_ends(taken: Sampled) -> list[float]:
    """When each round began and the last one ended, for a record: in whole microseconds."""
    return [round(s, 6) for s in taken.rounds]


class Timing:
    """Times the cells of one job in this process."""

    def __init__(self, job: Job, watchdog: Watchdog | None) -> None:
        self.job, self.watchdog = job, watchdog
        self.clock = Watch()
        self.devices = tuple(jax.devices())
        self.judge = Judge(self.devices, job.seed)
        self.rng = random.Random(f"{job.seed} {job.process}")
        self.budget = Budget(job.seconds, job.least, job.most)

    def watched(self, what: str, ids: Sequence[str], factor: float = 1.0) -> AbstractContextManager[None]:
        """Report the next step, and give the context that limits its time."""
        say(at=what, cases=list(ids))
        return self.watchdog.over(self.job.deadline * factor) if self.watchdog else nullcontext()

    def cell(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """The record lines of one cell: its modes, timed in turns."""
        start = perf_counter()
        lines: list[dict[str, Any]] = []
        made: dict[str, Prepared] = {}
        wrongs: dict[str, dict[str, Any]] = {}
        # Which mode comes first is drawn in each process: what comes later finds other memory, and warmer caches.
        for case_id in self.rng.sample(ids, len(ids)):
            case = cases.find(case_id, self.job.num_devices)
            with self.watched("prepare", [case_id]):
                try:
                    made[case_id] = prepare(case, self.devices, judge=self.judge)
                except Wrong as wrong:
                    wrongs[case_id] = self.line(case, "isolated", wrong=wrong)
        lines += (wrongs[i] for i in ids if i in wrongs)
        ready = [made[i] for i in ids if i in made]
        twins = self.twins(ready)
        every = [*ready, *twins.values()]
        names = [p.case.id for p in ready]
        factor = max(1.0, 4 * len(every) * self.budget.seconds / self.job.deadline)
        if "plain" in self.job.cadences:
            lines += self.alone(every)
        if "isolated" in self.job.cadences and ready:
            with self.watched("sample", names, factor):
                lines += self.sampled(every, every, "isolated")
        if "stream" in self.job.cadences:
            streams = []
            for p in every:
                if p.program is None or p.program.stacked:
                    continue
                with self.watched("stream", [p.case.id], factor):
                    try:
                        streams.append(
                            stream(p, self.judge, min(STREAM_SECONDS, max(0.002, self.budget.seconds / 20)))
                        )
                    except Wrong as wrong:
                        if p in ready:
                            lines.append(self.line(p.case, "stream", p, wrong=wrong))
            with self.watched("sample", [s.prepared.case.id for s in streams], factor):
                lines += self.sampled(streams, [s.prepared for s in streams], "stream")
        if "device" in self.job.cadences:
            with self.watched("device", names, factor):
                for p in ready:
                    if p.program is not None:
                        lines.append(self.on_device(p))
        if lines and (why := self.clock.problem() or doubts()):
            mark_untimed(lines, why)
        if lines:
            lines[-1]["seconds"] = round(perf_counter() - start, 6)
        return lines

    def alone(self, every: Sequence[Prepared]) -> Iterator[dict[str, Any]]:
        """One line per case. Each program is sampled alone, in random order."""
        found: dict[str, dict[str, Any]] = {}
        taken: dict[int, Sampled] = {}
        for i in self.rng.sample(range(len(every)), len(every)):
            with self.watched("sample alone", [every[i].case.id]):
                taken[i] = sample_in_rounds([Plain(every[i])], self.budget, self.rng)
        for i, p in enumerate(every):
            rounds = "control_rounds_s" if p.case.id in found else "rounds_s"
            self.add(found, Plain(p), p, taken[i].samples[0], "plain")
            found[p.case.id][rounds] = rounded_ends(taken[i])
        yield from found.values()

    def twins(self, ready: Sequence[Prepared]) -> dict[str, Prepared]:
        """The controls among these cases, compiled and verified a second time, by case id."""
        found = {}
        for p in ready:
            if p.case.id in self.job.controls:
                with self.watched("prepare", [p.case.id]), suppress(Wrong):
                    found[p.case.id] = prepare(p.case, self.devices, judge=self.judge)
        return found

    def sampled(
        self, timers: Sequence[Timer], of: Sequence[Prepared], cadence: str
    ) -> Iterator[dict[str, Any]]:
        """One line per case, from timers sampled in turns. A second timer of a case is its control."""
        if not timers:
            return
        found: dict[str, dict[str, Any]] = {}
        taken = sample_in_rounds(timers, self.budget, self.rng)
        for timer, p, samples in zip(timers, of, taken.samples, strict=True):
            if p.case.id in found and isinstance(timer, Stream):
                found[p.case.id]["control_calls"] = timer.count
            self.add(found, timer, p, samples, cadence)
        first, *rest = found.values()
        yield first | {"rounds_s": rounded_ends(taken)}
        yield from rest

    def add(
        self,
        found: dict[str, dict[str, Any]],
        timer: Timer,
        p: Prepared,
        samples: Sequence[float],
        cadence: str,
    ) -> None:
        """Add the samples of one timer to the lines by case."""
        rounded = [float(f"{s:.7g}") for s in samples]
        if p.case.id in found:
            found[p.case.id]["control_s"] = rounded
        else:
            found[p.case.id] = self.line(p.case, cadence, p, rounded, calls=getattr(timer, "count", 1))

    def on_device(self, p: Prepared) -> dict[str, Any]:
        """The line of the device cadence: the time of the devices from the profiler."""
        try:
            found = device_time.measure_device_time(p, self.budget)
        except device_time.NoDeviceTime as error:
            return self.line(p.case, "device", p, wrong=Wrong(str(error)))
        calls = list(zip(*found.values(), strict=True))
        slowest = [max(span.busy for span in call) for call in calls]
        each = {name: sorted(s.busy for s in spans)[len(spans) // 2] for name, spans in found.items()}
        # One device starts alone, and waits for none.
        apart = [device_time.apart(call) for call in calls] if len(found) > 1 else []
        more: dict[str, Any] = {}
        if apart:
            more = {"launch_skew_s": [skew for skew, _ in apart], "wire_s": [wire for _, wire in apart]}
        return self.line(*(p.case, "device", p, slowest), per_device_s=each, **more)

    def line(
        self,
        case: Case,
        cadence: str,
        p: Prepared | None = None,
        samples: Sequence[float] = (),
        wrong: Wrong | None = None,
        calls: int = 1,
        **more: Any,
    ) -> dict[str, Any]:
        """One timing line, without `run`."""
        found = (wrong.lines or [Line("execute", "error", str(wrong))]) if wrong else p.lines if p else []
        judged = [x for x in found if wrong or x.check != "communication"]
        verdict = worst(x.verdict for x in judged)
        told = next((x for x in judged if x.verdict == verdict), Line("execute"))
        contract = next((x for x in (p.lines if p else ()) if x.check == "communication"), None)
        plan = case.plan
        return (
            case_head(case, self.job.seed, "timing")
            | {
                "cadence": cadence,
                "process": self.job.process,
                "verified": wrong is None,
                "verdict": verdict if wrong is None or verdict != "pass" else "error",
                "check": told.check,
                "reason": redact(str(wrong) if wrong else told.reason),
                "devices": case.mesh.size,
                "precision": plan.precision,
                "calls": calls,
                "cost": case_cost(case),
            }
            | (
                {"lower_s": round(p.lower_s, 6), "compile_s": round(p.compile_s, 6), **p.counters}
                if p and p.counters
                else {}
            )
            | ({"contract": redact(contract.reason)} if contract and contract.reason else {})
            | more
            | {"samples_s": list(samples)}
        )


def main() -> int:
    """Run the job from standard input. Returns 0, or 1 if the parent ended before it sent a job."""
    digest_package()
    if why := doubts():
        raise SystemExit(why)
    say(ready=True)
    if not (told := sys.stdin.read()):  # who started it has ended
        return 1
    job = Job(**json.loads(told))
    watchdog = None
    if job.directory:
        containment.belong_to(job.controller)
        watchdog = Watchdog(job.deadline, containment.own_stderr(Path(job.directory), f"timer{job.process}"))
    jax.config.update("jax_enable_compilation_cache", False)  # compile time is a result
    with watchdog.over(containment.START) if watchdog else nullcontext():
        say(facts=probe.facts().to_json())
        timing = Timing(job, watchdog)
        # What is loaded by now stays. Collecting garbage before each sampling looked at all of it again, which took a
        # quarter of the quick profile.
        gc.collect()
        gc.freeze()
        before = spread()
        if job.ceilings:
            found = list(ceilings.measure_ceilings(timing.devices[: job.num_devices]))
            if why := timing.clock.problem():
                raise SystemExit(why)
            say(ceilings=found)
    for number, ids in enumerate(job.cells, 1):
        say(timings=timing.cell(ids), cell=cases.find(ids[0], job.num_devices).cell.id)
        if number % CLEAR_EVERY == 0:
            jax.clear_caches()
            gc.collect()
    say(end=True, spread=[before, spread()], resident=containment.largest_resident_bytes())
    gc.freeze()  # the interpreter ends without looking at every object of JAX, which takes most of a second
    return 0


if __name__ == "__main__":
    sys.exit(main())
