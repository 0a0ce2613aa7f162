# SPDX-License-Identifier: Apache-2.0
"""The interleaved run: every contestant at every operation and size, in random order, round by round.

Lines of JSON, in this order; `schema` is in the first:

    run      what was asked, the machine, and who takes part
    absent   a contestant that this machine can't have, and why
    ready    a contestant that has started, and what its rank 0 says of itself
    refused  an operation and size at which a contestant gave wrong values; it is not timed there
    lost     a contestant that died, hung or raised, and when; its later rounds are missing
    block    one contestant at one operation and size in one round: `samples_us` and `late_us`, [rank][sample]
    end      how the run ended, and what the processors did meanwhile

`samples_us` is what a rank's call took; `late_us` how much later than the first rank it entered that call, by the clock
that they share. `wrong` of a block says what was wrong with the call that followed its samples, null where nothing
was; tables leave out a contestant at a size that was wrong once. `loopback_bytes` is what all of the machine sent
through its loopback device meanwhile, `calls` how many calls (one of them untimed after the samples) that was.
"""

from __future__ import annotations

import os
import platform
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic, process_time
from typing import Any

from benchmarks.others import operations
from benchmarks.others.contestants import Contestant
from benchmarks.others.groups import Group, Limits, Lost
from meshmark.core import installation

SCHEMA = "meshmark-others-1"

SIZES = (8, 64, 512, 4096, 32768, 1 << 18, 1 << 21, 1 << 22, 1 << 24)
"""S in bytes: by factors of eight, and 4 MiB."""

LEAST_ROUNDS = 6
"""Fewer rounds have no distribution-free 95 percent interval."""

MOST_ROUNDS = 60

LARGE = 1 << 20
"""Bytes from which a block has fewer samples, because one sample takes as long as a whole block of a small size."""

Emit = Callable[[Sequence[Mapping[str, Any]]], None]
"""Writes lines. The blocks of a round are written together, so that nothing is written during timing."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The settings of a run."""

    contestants: Sequence[Contestant]
    processes: int = 2
    operations: Sequence[str] = operations.OPERATIONS
    sizes: Sequence[int] = SIZES
    seconds: float = 240.0
    """For the rounds. Only whole rounds are started, and at least six."""
    most_rounds: int = MOST_ROUNDS
    least_rounds: int = LEAST_ROUNDS
    seed: int = 0
    limits: Limits = field(default_factory=Limits)

    def points(self) -> list[tuple[str, int]]:
        """Each operation with each size."""
        return [(operation, nbytes) for operation in self.operations for nbytes in self.sizes]


def samples_of(nbytes: int) -> tuple[int, int]:
    """(samples, warm-up calls) of a block."""
    return (3, 2) if nbytes >= LARGE else (10, 5)


@dataclass
class Run:
    """One run; `carry_out` returns whether all went well."""

    plan: Plan
    emit: Emit
    tell: Tell
    _groups: dict[str, Group] = field(default_factory=dict)
    _left_out: set[tuple[str, str, int]] = field(default_factory=set)
    """The contestants, operations and sizes that must not be timed."""
    _well: bool = True

    def carry_out(self) -> bool:
        """Start, verify, time, end. Every started process has ended when this returns."""
        plan = self.plan
        self._emit(
            {
                "kind": "run",
                "schema": SCHEMA,
                "processes": plan.processes,
                "operations": list(plan.operations),
                "sizes": list(plan.sizes),
                "seconds": plan.seconds,
                "seed": plan.seed,
                "contestants": [
                    {"name": c.name, "label": c.label, "output": c.output} for c in plan.contestants
                ],
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "load_before": _load(),
                "machine": machine(),
                "suite": installation.suite(),
            }
        )
        try:
            self._start()
            self._verify()
            before = _Usage.now(self._cpu())
            whole = set(self._groups)
            rounds = self._rounds()
            after = _Usage.now(self._cpu())
            spent = after.since(before, known=whole == set(self._groups))
            self._emit({"kind": "end", "rounds": rounds, "load_after": _load(), **spent})
        finally:
            for group in self._groups.values():
                group.end()
        return self._well

    def _emit(self, line: Mapping[str, Any]) -> None:
        self.emit([line])

    def _start(self) -> None:
        for contestant in self.plan.contestants:
            name = contestant.name
            if why := contestant.absent():
                self._emit({"kind": "absent", "contestant": name, "reason": why})
                self.tell(f"{contestant.label}: absent: {why}")
                continue
            self.tell(f"{contestant.label}: starting {self.plan.processes} processes")
            group = Group(contestant, self.plan.processes, self.plan.limits)
            try:
                group.start()
            except Lost as lost:
                self._lose(name, str(lost), "while it started")
                continue
            self._groups[name] = group
            settings = {
                "options": list(contestant.mpirun or ()),
                "environment": dict(contestant.environment),
            }
            self._emit({"kind": "ready", "contestant": name, "facts": group.facts, **settings})

    def _lose(self, name: str, reason: str, when: str) -> None:
        self._well = False
        self._groups.pop(name, None)
        self._emit({"kind": "lost", "contestant": name, "reason": reason, "when": when})
        self.tell(f"{name}: lost {when}: {reason}")

    def _verify(self) -> None:
        """Verify every contestant's values at every operation and size before any timing."""
        for name, group in list(self._groups.items()):
            for operation, nbytes in self.plan.points():
                try:
                    answers = group.ask({"do": "check", "operation": operation, "nbytes": nbytes})
                except Lost as lost:
                    self._lose(
                        name, str(lost), f"at {operation} of {nbytes} B, while its values were checked"
                    )
                    break
                if why := _first_wrong(answers):
                    self._refuse(name, operation, nbytes, why)

    def _refuse(self, name: str, operation: str, nbytes: int, why: str) -> None:
        self._well = False
        self._left_out.add((name, operation, nbytes))
        self._emit(
            {
                "kind": "refused",
                "contestant": name,
                "operation": operation,
                "nbytes": nbytes,
                "reason": why,
            }
        )
        self.tell(f"{name}: {operation} of {nbytes} B is wrong and not timed: {why}")

    def _rounds(self) -> int:
        plan, rng = self.plan, random.Random(self.plan.seed)
        began, longest, number = monotonic(), 0.0, 0
        while self._groups and number < plan.most_rounds:
            since = monotonic()
            if number >= plan.least_rounds and since + longest > began + plan.seconds:
                break
            self.emit(list(self._round(number, rng)))
            longest = max(longest, monotonic() - since)
            number += 1
            self.tell(f"round {number}, {monotonic() - began:.0f} s of {plan.seconds:.0f} s")
        return number

    def _round(self, number: int, rng: random.Random) -> Iterator[dict[str, Any]]:
        points = self.plan.points()
        rng.shuffle(points)
        for operation, nbytes in points:
            names = list(self._groups)
            rng.shuffle(names)
            for position, name in enumerate(names):
                if (name, operation, nbytes) in self._left_out:
                    continue
                block = self._block(name, operation, nbytes, number)
                if block is not None:
                    yield block | {"round": number, "position": position}

    def _block(self, name: str, operation: str, nbytes: int, number: int) -> dict[str, Any] | None:
        samples, warm_ups = samples_of(nbytes)
        command = {"do": "time", "operation": operation, "nbytes": nbytes}
        sent = _loopback_bytes()
        try:
            answers = self._groups[name].ask(command | {"samples": samples, "warm_ups": warm_ups})
        except Lost as lost:
            self._lose(name, str(lost), f"at {operation} of {nbytes} B in round {number}")
            return None
        through = _loopback_bytes()
        if why := _first_wrong(answers):
            self._refuse(name, operation, nbytes, f"round {number}: {why}")
        starts = [answer["starts_s"] for answer in answers]
        first = [min(at) for at in zip(*starts, strict=True)]
        return {
            "kind": "block",
            "contestant": name,
            "operation": operation,
            "nbytes": nbytes,
            "samples_us": [[round(1e6 * s, 2) for s in answer["samples_s"]] for answer in answers],
            "late_us": [[round(1e6 * (s - f), 2) for s, f in zip(at, first, strict=True)] for at in starts],
            "wrong": why,
            "idle_s": round(sum(a["idle_s"] for a in answers), 4),
            "idle_cpu_s": round(sum(a["idle_cpu_s"] for a in answers), 5),
            "loopback_bytes": None if sent is None or through is None else through - sent,
            "calls": samples + warm_ups + 1,
        }

    def _cpu(self) -> float:
        """Processor seconds of all living ranks so far."""
        total = 0.0
        for name, group in list(self._groups.items()):
            try:
                total += sum(answer["cpu_s"] for answer in group.ask({"do": "rest"}))
            except Lost as lost:
                self._lose(name, str(lost), "between rounds")
        return total


def _first_wrong(answers: Sequence[Mapping[str, Any]]) -> str | None:
    return next((f"rank {n}: {a['wrong']}" for n, a in enumerate(answers) if a["wrong"]), None)


# The machine ------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """The facts of this machine that affect the figures, without anything that names it."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "processor": _processor(),
    }


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()[:100]
    return platform.processor()


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _load() -> float | None:
    """The load average of the last minute, of the whole machine."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def _loopback_bytes() -> int | None:
    """Bytes that the loopback device has sent; None if Linux does not report it."""
    for line in _lines("/proc/net/dev"):
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return None


@dataclass(frozen=True)
class _Usage:
    """Processor time so far, in seconds."""

    wall: float
    own: float
    all: float | None
    """In programs and in the kernel for them, on the whole machine; None if Linux does not report it."""
    stolen: float | None
    """Taken by the host of this virtual machine."""

    @classmethod
    def now(cls, ranks: float) -> _Usage:
        """The current values. ranks: the processor time of all ranks."""
        lines = _lines("/proc/stat")
        if not lines or not lines[0].startswith("cpu "):
            return cls(monotonic(), ranks + process_time(), None, None)
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _idle, _waiting, _irq, _softirq, stolen = map(int, lines[0].split()[1:9])
        return cls(monotonic(), ranks + process_time(), (user + nice + system) / tick, stolen / tick)

    def since(self, before: _Usage, known: bool) -> dict[str, float | None]:
        """Seconds since `before`, and how many cores other programs of this machine used on average. That figure is
        None if the run's own use is not known, for example after a rank died."""
        wall, own = self.wall - before.wall, self.own - before.own
        found: dict[str, float | None] = {"wall_s": round(wall, 2)}
        if (
            not known
            or self.all is None
            or before.all is None
            or self.stolen is None
            or before.stolen is None
        ):
            return found | {"own_cpu_s": None, "others_cores": None, "stolen_cores": None}
        others = max(0.0, self.all - before.all - own)
        return found | {
            "own_cpu_s": round(own, 2),
            "others_cores": round(others / wall, 3),
            "stolen_cores": round((self.stolen - before.stolen) / wall, 3),
        }
