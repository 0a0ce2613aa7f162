# SPDX-License-Identifier: Apache-2.0
"""Compares two environments: pairs of processes in random order, planned looks, and compiled counters exactly.

A first process of each side compiles, verifies and counts. It is not a sample, because it also warms the disk's cache
and writes bytecode. Then the sampling processes run in pairs, one of A and one of B, in an order that is drawn for each
pair. Each gives one figure per case and cadence, the median of its samples. core.pairs judges at the looks.

`Comparison` uses neither processes nor files itself: `run` gives the messages of a job (meshmark.timing.children), and
`write` takes record lines. So its logic is tested without them.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from meshmark.core.errors import BadInput
from meshmark.core.machines import comparable
from meshmark.core.pairs import BLOCK, Outcome, Pairs, Rule, all_decided, compare_pairs, unchanged
from meshmark.levels import counters
from meshmark.records.shared import SCHEMA
from meshmark.timing.children import ChildError
from meshmark.timing.timer import Job

SIDES = ("A", "B")

FIRST = -1
"""The `process` of the first child of a side."""

MOST_LOST = 3
"""The number of processes of one side in which a case may fail, crash or hang. Then it is left out."""

MOST_DEAD = 3
"""The number of children in a row that may end before they time anything."""

LEAST_LOOKS = (20, 40)

Run = Callable[[str, Job], Iterator[dict[str, Any]]]
"""A function that takes a side and a job. It yields the messages of meshmark.timing.timer."""


class CompareError(BadInput, ValueError):
    """A comparison that can't be made; the message is one line that says why."""


# Counters ---------------------------------------------------------------------------------------------------

COUNTERS = (
    "wire_bytes",
    "flops",
    "bytes_accessed",
    "temp_bytes",
    "argument_bytes",
    "output_bytes",
)
"""The counters of a timing line that are numbers. The counters of collectives come before them."""


@dataclass(frozen=True)
class Difference:
    """One compiled counter that is not the same."""

    case: str
    counter: str
    a: str | float | None
    b: str | float | None


def read_counters(line: Mapping[str, Any]) -> dict[str, str | float | None]:
    """The compiled counters of a timing line; {} if it has none (a host call, a failure, an invalid record)."""
    try:
        found = counters.format_collectives(line["communication"])
    except (KeyError, TypeError):
        return {}
    return {"collectives": found, **{name: line.get(name) for name in COUNTERS}}


def find_counter_differences(
    a: Mapping[str, Mapping[str, str | float | None]], b: Mapping[str, Mapping[str, str | float | None]]
) -> list[Difference]:
    """Every counter that differs, without tolerance, of the cases that both sides have, in the order of A."""
    return [
        Difference(case, name, mine.get(name), b[case].get(name))
        for case, mine in a.items()
        if case in b and mine and b[case]
        for name in ("collectives", *COUNTERS)
        if mine.get(name) != b[case].get(name)
    ]


# Comparability ----------------------------------------------------------------------------------------------


def incomparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Why times of runs with these facts (meshmark.devices.facts) must not be ranked; [] if they may. For virtual
    devices the machine must be the same too, because they share its cores."""
    found = []
    if bool(a.get("virtual")) != bool(b.get("virtual")):
        found.append(f"A has {_kind(a)} devices and B {_kind(b)} ones")
    for name, what in (
        ("backend", "backend"),
        ("device_kind", "device kind"),
        ("num_devices", "number of devices"),
        ("num_processes", "number of JAX processes"),
        ("topology", "topology"),
    ):
        if (a.get(name) or None) != (b.get(name) or None):  # facts of an older commit lack some
            found.append(f"the {what} is {a.get(name)} in A and {b.get(name)} in B")
    hosts = [dict_of(x.get("host")) for x in (a, b)]
    said = comparable(hosts)
    if a.get("virtual") and b.get("virtual") and said[0] != said[1]:
        texts = " and ".join(", ".join(f"{k} {v}" for k, v in own.items()) for own in said)
        found.append(f"virtual devices share the cores of unlike machines ({texts})")
    return found


def dict_of(value: Any) -> dict[str, Any]:
    """The value if it is a dictionary, as records have it; otherwise an empty dictionary."""
    return value if isinstance(value, dict) else {}


def _kind(facts: Mapping[str, Any]) -> str:
    return "virtual" if facts.get("virtual") else "real"


# The comparison ---------------------------------------------------------------------------------------------


def key_of(case: str, cadence: str) -> str:
    """The key under which figures are compared: the case and its cadence."""
    return case if cadence == "isolated" else f"{case} ({cadence})"


def plan_looks(looks: Sequence[int], cases: int, least: float, earlier: int = 0) -> Rule:
    """The rule for this many cases, with the given looks, or with enough pairs if there are none.

    CompareError if the given looks can find nothing. least: the smallest change that is reported, 0.03 is 3 percent.
    earlier: the number of times that the comparison ended before."""
    try:
        if looks:
            return Rule(least=least, looks=tuple(looks), cases=cases, earlier=earlier)
        needed = Rule(least=least, earlier=earlier).needed(cases)
        first = max(LEAST_LOOKS[0], needed)
        return Rule(least=least, looks=(first, max(LEAST_LOOKS[1], 2 * first)), cases=cases, earlier=earlier)
    except ValueError as error:
        raise CompareError(f"--pairs: {error}") from None


@dataclass
class Side:
    """The results of the processes of one side."""

    facts: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, dict[str, str | float | None]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    """The result of each key in the first process: "" if it passed, otherwise what was wrong."""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """The failures of each key in the sampling processes, one entry per process."""
    seconds: float = 0.0
    """The seconds that the first process took."""


@dataclass
class Comparison:
    """One comparison. Call `prepare`, then `proceed`; then read `outcomes` and `left_out`."""

    run: Run
    cells: list[list[str]]
    """The case ids, one list per cell."""
    job: Job
    """The job of every process. Its cells and its number are set for each process."""
    budget: float
    """The seconds that the comparison may take, from `prepare` on."""
    looks: tuple[int, ...] = ()
    """The numbers of pairs at which the comparison may end. If it is empty, the rule plans enough pairs."""
    least: float = 0.03
    earlier: int = 0
    """The number of times that the comparison gave verdicts before it was resumed."""
    ahead: Callable[[Mapping[str, int]], None] = lambda _: None
    """A function that is called before each pair with the process of each side. It may start the processes, because
    nothing is measured then."""
    write: Callable[[list[dict[str, Any]]], None] = lambda _: None
    tell: Callable[[Comparison], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None
    """A function that is called once with what a person should know at once."""
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    """Draws the side of a pair that runs first. The order is another one each time unless the generator is seeded."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """The cases that are left out from the start, with the reason."""

    sides: dict[str, Side] = field(default_factory=lambda: {side: Side() for side in SIDES})
    figures: dict[str, dict[int, float]] = field(default_factory=dict)
    """The seconds by key and process."""
    order: dict[int, str] = field(default_factory=dict)
    """The side of each process, also of the processes of an interrupted run."""
    complete: set[int] = field(default_factory=set)
    """The processes that ended, also those of an interrupted run."""
    left_out: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    same: tuple[int, int] = (0, 0)
    """Two numbers about the real A/A pairs at the last look: the cases that the rule flags, and the cases judged."""
    rule: Rule | None = None
    looked: int = 0
    """The number of looks that were taken."""
    ended: str = ""
    """The reason why the comparison ended."""
    noise: list[float] = field(default_factory=list)
    """The spread of a fixed piece of work in each process."""
    started: float = 0.0
    took: list[float] = field(default_factory=list)
    """The seconds of each process of this run."""
    dead: int = 0

    @property
    def keys(self) -> list[str]:
        """The cases that are compared, without those that were left out."""
        return [key for key in self.figures if key not in self.left_out]

    @property
    def pairs(self) -> int:
        """The number of pairs of which both processes ended."""
        return len(self._pairs())

    @property
    def remaining(self) -> float:
        """The seconds that remain of the budget."""
        return max(0.0, self.budget - (self.clock() - self.started))

    @property
    def a_process(self) -> float:
        """Seconds that a process is expected to take."""
        if self.took:
            return float(np.mean(self.took))
        sampling = 1.2 * self.job.seconds * len(self.keys)
        return sampling + sum(side.seconds for side in self.sides.values()) / 2

    def _pairs(self) -> list[int]:
        """The first process of each whole pair."""
        return [i for i in sorted(self.complete) if i % 2 == 0 and i + 1 in self.complete]

    # The first processes

    def prepare(self) -> list[Difference]:
        """Run the first process of each side, and give the counters that differ.

        The cases that pass on both sides are compared. ChildError if a side's children die before they time anything;
        CompareError for looks that can find nothing.
        """
        self.started = self.clock()
        cells = [kept for ids in self.cells if (kept := [i for i in ids if i not in self.missing])]
        for name, side in self.sides.items():
            start = self.clock()
            job = replace(self.job, cells=cells, process=FIRST, seconds=0.001, least=1, most=1)
            try:
                for message in self.run(name, job):
                    if "facts" in message:
                        side.facts = message["facts"]
                    for line in message.get("timings", ()):
                        self._first(side, line)
                    self.tell(self)
            except ChildError as error:
                raise ChildError(f"{name}: {error}") from None
            side.seconds = self.clock() - start
        self.left_out = dict(self.missing)
        a, b = (self.sides[name].first for name in SIDES)
        for key in dict.fromkeys([*a, *b]):
            whys = [f"{name}: {why}" for name in SIDES if (why := self._unfit(key, name))]
            if whys:
                self.left_out[key] = "; ".join(whys)
            self.figures.setdefault(key, {})
        if self.keys:
            self.rule = plan_looks(self.looks, len(self.keys), self.least, self.earlier)
        return find_counter_differences(self.sides["A"].counters, self.sides["B"].counters)

    def _first(self, side: Side, line: Mapping[str, Any]) -> None:
        key = key_of(line["case"], line["cadence"])
        side.first[key] = "" if line["verdict"] == "pass" else _told(line)
        if counts := read_counters(line):
            side.counters[line["case"]] = counts

    def _unfit(self, key: str, name: str) -> str:
        """Why a key can't be timed on a side: it failed itself, or the isolated call failed before its stream."""
        return self.sides[name].first.get(key, "gave no time")

    # The processes that are samples

    def proceed(self) -> None:
        """Run processes until every case has a clear verdict at a look, the last look is taken, or the budget is
        spent."""
        if self.rule is None:
            self.ended = "nothing is left to compare"
            return
        block = 2 * BLOCK  # a run that goes on starts another one: no A/A pair spans the gap
        i = block * math.ceil((max(self.order, default=-1) + 1) / block)
        while self.keys:
            if self._look():
                return
            if i % 2 == 0 and 2 * self.a_process > self.remaining:
                self._judge(len(self._pairs()), self.looked, True)
                self.ended = f"the budget of {self.budget:.0f} s is spent"
                return
            self._process(i)
            i += 1
        self.outcomes, self.same = {}, (0, 0)
        self.ended = "nothing is left to compare"

    def _look(self) -> bool:
        """Take the looks that are due. Returns whether the comparison ends. A look judges only the pairs that were
        planned for it, so a resumed run finds the same at it as before."""
        assert self.rule
        looks = self.rule.looks
        while self.looked < len(looks) and self.pairs >= looks[self.looked]:
            final = self.looked == len(looks) - 1
            self._judge(looks[self.looked], self.looked, final)
            self.looked += 1
            clear = all_decided(self.outcomes)
            if clear or final:
                self.ended = (
                    f"all is clear at {self.pairs} pairs" if clear else f"all {looks[-1]} pairs were taken"
                )
                return True
            self.say(f"look {self.looked} of {len(looks)} at {looks[self.looked - 1]} pairs: {self.tally()}")
        return False

    def _judge(self, number: int, look: int, final: bool) -> None:
        """Judge the first `number` pairs."""
        assert self.rule
        seen = self._pairs()[:number]
        pairs = {key: self._pairs_of(key, seen[-1] + 2 if seen else 0) for key in self.keys}
        self.outcomes = compare_pairs(pairs, self.rule, look, final)
        self.same = unchanged(pairs, self.rule, look, final)

    def _pairs_of(self, key: str, end: int) -> Pairs:
        """The pairs of one key among the processes before `end`."""
        sides: dict[str, list[float]] = {side: [math.nan] * (end // 2) for side in SIDES}
        for process, seconds in self.figures[key].items():
            if process < end:
                sides[self.order[process]][process // 2] = seconds
        return Pairs.of(sides["A"], sides["B"])

    def _process(self, i: int) -> None:
        """Run one process, and take its figures and records after it has ended."""
        if i % 2 == 0:
            self.order |= zip((i, i + 1), self.rng.sample(SIDES, 2), strict=True)
        name = self.order[i]
        keys = set(self.keys)
        cells = [
            kept
            for ids in self.cells
            if (kept := [c for c in ids if any(key_of(c, cadence) in keys for cadence in self.job.cadences)])
        ]
        start, lines, spread = self.clock(), [], math.nan
        if i % 2 == 0:
            self.ahead({self.order[j]: j for j in (i, i + 1)})
        try:
            for message in self.run(name, replace(self.job, cells=cells, process=i)):
                if "facts" in message:
                    self._check_environment(name, message["facts"])
                lines += message.get("timings", ())
                if "end" in message:
                    spread = max(message["spread"])
        except ChildError as error:
            self.dead += 1
            self.say(f"process {i} ({name}) was lost: {error}")
            if self.dead >= MOST_DEAD:
                raise
            self.took.append(self.clock() - start)
            return
        self.dead = 0
        taken = self.clock() - start
        for line in lines:
            line["environment"] = name
        noted = {} if math.isnan(spread) else {"spread": spread}
        gone_on = {"earlier": self.earlier} if self.earlier else {}
        end = {"schema": SCHEMA, "kind": "comparison", "what": "process", "environment": name, "process": i}
        self.write([*lines, {**end, **noted, **gone_on, "seconds": round(taken, 6)}])
        self.take(name, i, lines)
        self.noise += noted.values()
        self.took.append(taken)
        self.complete.add(i)
        self.tell(self)

    def take(self, name: str, i: int, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take the timing lines of one process that ended: its figures, and the cases that it lost."""
        self.order[i] = name
        for line in lines:
            key = key_of(line["case"], line["cadence"])
            if key not in self.figures or key in self.left_out:
                continue
            if line["verdict"] == "pass" and (seconds := median_seconds(line)):
                self.figures[key][i] = seconds
                continue
            lost = self.sides[name].lost.setdefault(key, [])
            lost.append(_told(line))
            if len(lost) >= MOST_LOST:
                number = sum(self.order[j] == name for j in self.complete) + 1
                self.left_out[key] = f"{name}: {lost[-1]} (in {len(lost)} of {number} processes)"
                self.say(f"left out: {key}: {self.left_out[key]}")

    def _check_environment(self, name: str, facts: Mapping[str, Any]) -> None:
        """Raise CompareError if a later process of a side has another environment than the first one."""
        was, now = (
            {**each, "files": dict_of(each.get("suite")).get("digest")}
            for each in (self.sides[name].facts, facts)
        )
        for what in ("versions", "backend", "device_kind", "num_devices", "files"):
            if was.get(what) != now.get(what):
                raise CompareError(
                    f"{name} changed while it was compared: its {what} were {was.get(what)} and are {now.get(what)}"
                )

    # What is told

    def tally(self) -> str:
        """The number of cases per verdict as text: 3 slower, 1 inconclusive."""
        verdicts = [outcome.verdict for outcome in self.outcomes.values()]
        found = [
            f"{n} {v}" for v in ("slower", "faster", "no change", "inconclusive") if (n := verdicts.count(v))
        ]
        if self.left_out:
            found.append(f"{len(self.left_out)} left out")
        return ", ".join(found) or "nothing to compare"

    def false_alarms(self) -> tuple[float, float]:
        """(mean, largest) over the cases of the share of A/A comparisons, resampled from this one's A/A pairs, that the
        rule flags; nan if there are too few pairs."""
        shares = [o.false_alarms for o in self.outcomes.values() if not math.isnan(o.false_alarms)]
        return (float(np.mean(shares)), max(shares)) if shares else (math.nan, math.nan)

    def sporadic(self) -> list[str]:
        """Failures of cases that are still compared. They are findings too."""
        return [
            f"{key}: {name}: lost in {len(lost)} of its processes: {lost[-1]}"
            for name, side in self.sides.items()
            for key, lost in side.lost.items()
            if key not in self.left_out
        ]


def median_seconds(line: Mapping[str, Any]) -> float | None:
    """The figure of one process: the median of its samples in seconds; None without a finite one."""
    if not line["samples_s"]:
        return None
    found = float(np.median(line["samples_s"]))
    return found if math.isfinite(found) else None


def _told(line: Mapping[str, Any]) -> str:
    return f"{line['verdict']}: {line['reason']}" if line.get("reason") else str(line["verdict"])


def verdict_lines(
    outcomes: Mapping[str, Outcome], left_out: Mapping[str, str], earlier: int = 0
) -> list[dict[str, Any]]:
    """The record lines of the verdicts and the omitted cases, without `run`. earlier: how often verdicts were given
    before."""
    head: dict[str, Any] = {"schema": SCHEMA, "kind": "comparison", "what": "verdict"}
    head |= {"earlier": earlier} if earlier else {}
    judged = [
        {
            **head,
            "case": key,
            "verdict": o.verdict,
            "reason": "",
            "ratio": o.change.value,
            "low": o.change.low,
            "high": o.change.high,
            "p": o.p,
            "adjusted": o.adjusted,
            "noise": o.noise,
            "detectable": o.detectable,
            "false_alarms": o.false_alarms,
            "pairs": o.pairs,
        }
        for key, o in outcomes.items()
    ]
    return judged + [{**head, "case": k, "verdict": "left out", "reason": why} for k, why in left_out.items()]
