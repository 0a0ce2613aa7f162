# SPDX-License-Identifier: Apache-2.0
"""The hunt: draws programs, judges them in workers, shrinks and groups the findings, and writes each to the record."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from meshmark.core.errors import BadInput
from meshmark.hunt import blame, cures, grouping, places, shrinking
from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.logs import Line
from meshmark.hunt.oracles import DERIVATIVE, HOST, MANUAL, NUMPY, RELEASE
from meshmark.hunt.rules import measure_weight
from meshmark.hunt.spellings import spell_manually
from meshmark.hunt.workers import Judging, Settings, Slot
from meshmark.program_data.program import Program, ProgramData, from_json, to_json

ALIKE = {"numbers": 2}
"""By kind, how many findings with one key before shrinking are shrunk; further ones are only counted. For all other
kinds it is 1, because the message already names the place."""

SHRINK_S = 60.0
"""The time limit for shrinking one finding, in seconds."""

WORDLESS = re.compile(r"SIG[A-Z]+")
"""The description of a crash without a message. Such a crash is a finding only if it happens twice, because an earlier
program of the process may have corrupted its memory. So is a hang, because a loaded machine may cause it."""

PROGRESS_S = 60.0
"""Seconds between two lines of progress."""

KNOWN_S = 10.0
"""The time limit for shrinking a finding whose group is known already, in seconds. Its smaller program still shows the
kinds of operations that it needs."""

TURNS = {3: "explicit", 11: "eager", 5: "permuted", 9: "turned", 13: "donated", 7: "manual"}
"""The second mode of a program, beside automatic axes, by its number modulo 16."""

ALONE = TURNS | {5: "eager", 9: "eager"}
"""The same for one device, which has no other order of devices and no other mesh."""


ORACLES = ("all", "turns", "one")
"""How many oracles judge each program: all modes and comparisons; automatic axes, the comparisons, and another mode in
turns; or automatic axes alone."""


def choose_modes(number: int, settings: Settings | None = None, oracles: str = "turns") -> tuple[str, ...]:
    """The modes of program `number`, by one of ORACLES.

    The unsharded program is compared with NumPy, and with another release of JAX where the settings name one; on a CPU
    its derivative with differences, and on an accelerator its results with a CPU's.

    A topology has only modes with one compiled program. Several processes have only modes in which no process needs a
    whole array."""
    turns = ALONE if settings and settings.devices == 1 else TURNS
    known = tuple(dict.fromkeys(turns.values()))
    on_cpu = not settings or settings.backend == "cpu"
    beside: tuple[str, ...] = (NUMPY, DERIVATIVE) if on_cpu else (NUMPY, HOST)
    if settings and settings.topology:
        known, beside = ("explicit", "manual"), ()
    elif settings and settings.ranks > 1:
        known, beside = ("explicit", "permuted", "manual"), ()
    if settings and settings.against:
        beside = (*beside, RELEASE)
    if oracles == "one":
        return ("auto",)
    others = known if oracles == "all" else tuple(m for m in known if m == turns.get(number % 16))
    return ("auto", *others, *beside)


WHOLE = 4
"""One program in this many is compiled with default options, the others with `meshmark.hunt.oracles.LIGHT`."""


def is_light(number: int, settings: Settings) -> bool:
    """Whether program `number` is compiled with `meshmark.hunt.oracles.LIGHT`, which takes less time."""
    return bool(number % WHOLE) and not settings.topology and settings.ranks == 1


@dataclass
class Group:
    """Findings of one root cause in this hunt."""

    key: str
    kind: str
    numbers: list[int] = field(default_factory=list)
    program: ProgramData | None = None
    difference: DifferenceData | None = None
    operations: int = 0
    minute: float = 0.0
    known: str = ""
    cures: list[str] = field(default_factory=list)
    """What makes the first shrunk program of a new group right (`meshmark.hunt.cures`)."""


@dataclass
class Hunt:
    """One hunt and what it has found."""

    seed: int
    settings: Settings
    weights: Mapping[str, float] = field(default_factory=dict)
    meshes: Sequence[Sequence[int]] = ()
    """The shapes of meshes to draw from; all of the generator's shapes if empty."""
    shrink_s: float = SHRINK_S
    oracles: str = "turns"
    """One of ORACLES."""
    always_whole: bool = False
    """Whether all programs are compiled with default options; else those that `is_light` names are not."""
    groups: dict[str, Group] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    before: int = 0
    """The number of programs in the resumed record."""
    slots: list[Slot] = field(default_factory=list)
    invalid: int = 0
    not_run: Counter[str] = field(default_factory=Counter)
    """The number of programs that were not run in some mode, by reason, such as an unknown operation."""
    judged: int = 0
    judging_s: float = 0.0
    waiting_s: float = 0.0
    shrinking_s: float = 0.0
    raw: Counter[str] = field(default_factory=Counter)
    named: dict[str, str] = field(default_factory=dict)
    """The group of findings that are alike before shrinking, by `grouping.make_raw_key`."""
    known: Mapping[str, str] = field(default_factory=dict)
    out: IO[str] | None = None
    around: dict[str, str] | None = None
    """The settings and functions that are not those of a fresh process; None before a worker has said."""
    next: int = 0
    start: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failure: BaseException | None = None

    def run(self, minutes: float, slots: int, tell: Any, programs: int | None = None) -> None:
        """Hunt with `slots` workers at once, for `minutes` or until `programs` programs are judged.

        tell: prints a line. Raises the first error of a slot."""
        end = self.start + 60 * minutes
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._slot, args=(end, stop, tell, programs), daemon=True)
            for _ in range(slots)
        ]
        for thread in threads:
            thread.start()
        told = time.monotonic()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
                    if time.monotonic() - told >= PROGRESS_S:
                        told = time.monotonic()
                        tell(self.progress())
        finally:
            stop.set()
            for slot in [*self.slots]:
                slot.close()  # a program that is interrupted is not written, so --resume judges it again
            for thread in threads:
                thread.join(30)
        if self.failure:
            raise self.failure

    @property
    def exit_code(self) -> int:
        """1 if a group of findings is not known, else 0."""
        return int(any(not group.known for group in self.groups.values()))

    def progress(self) -> str:
        """A line with the numbers of programs, minutes and groups so far."""
        new = sum(not group.known for group in self.groups.values())
        minutes = (time.monotonic() - self.start) / 60
        return f"{self.judged} programs in {minutes:.1f} minutes, {len(self.groups)} groups of findings, {new} new"

    def _slot(self, end: float, stop: threading.Event, tell: Any, programs: int | None) -> None:
        try:
            with Slot(self.settings) as slot:
                self.slots.append(slot)
                self._ask_around(slot, tell)
                while not stop.is_set() and time.monotonic() < end:
                    with self.lock:
                        if programs is not None and self.next >= programs:
                            return
                        number = self.next
                        self.next += 1
                    if number not in self.done:
                        self.one(slot, number, tell, stop.is_set)
        except BaseException as error:
            if not stop.is_set():
                self.failure = self.failure or error
            stop.set()

    def _ask_around(self, slot: Slot, tell: Any) -> None:
        """Tell what is unusual around the workers, which are alike, by the first slot. BadInput if they don't compile
        programs."""
        if slot is not self.slots[0]:
            return
        self.around = places.require_compilation(slot.around())
        for line in places.describe_surroundings(self.around):
            tell(line)

    def one(self, slot: Judging, number: int, tell: Any, halted: Callable[[], bool]) -> None:
        """Judge program `number`, shrink what it finds, and write its line to the record; nothing if `halted`."""
        modes = choose_modes(number, self.settings, self.oracles)
        job: dict[str, Any] = {"draw": [self.seed, number]}
        if self.weights:
            job["weights"] = dict(self.weights)
        if self.meshes:
            job["meshes"] = [list(shape) for shape in self.meshes]
        if self._is_light(number):
            job["light"] = True
        answer = slot.judge(job, modes)
        if halted():
            return
        with self.lock:
            self.judged += 1
            self.invalid += bool(answer.invalid)
            self.not_run.update(set(answer.not_run))
            self.judging_s += answer.seconds
            self.waiting_s += answer.restart_s
        line: Line = {"n": number, "s": round(answer.seconds, 3)}
        if answer.cpu:
            line["cpu"] = round(answer.cpu, 3)
        if answer.restart_s:
            line["restart_s"] = round(answer.restart_s, 3)
        if answer.invalid:
            line["invalid"] = answer.invalid
        if answer.not_run:
            line["not_run"] = answer.not_run
        if answer.program:
            program = from_json(answer.program)
            line["ops"] = sorted({op for op in program.operations if op != "item"})
            if answer.families:
                line["families"] = answer.families
            if program.transform.kind:
                line["transform"] = program.transform.kind
        if answer.differences:
            line["differences"] = answer.differences
            if answer.program:
                line["program"] = answer.program
            try:
                self._found(slot, number, answer.program, answer.differences, modes, line, tell, halted)
            except shrinking.Halted:
                return
        self.write(line)

    def _found(
        self,
        slot: Judging,
        number: int,
        data: ProgramData | None,
        differences: list[DifferenceData],
        modes: tuple[str, ...],
        line: Line,
        tell: Any,
        halted: Callable[[], bool],
    ) -> None:
        if data is None:
            return
        difference = differences[0]
        program = from_json(data)
        light = self._is_light(number)
        if difference["kind"] == "hang" or WORDLESS.fullmatch(difference["what"]):
            twice = self._repeated(slot, program, difference, modes, light, halted)
            if twice is None:
                line["slow" if difference["kind"] == "hang" else "once"] = True
                return
            difference = twice
        if difference["mode"] == MANUAL:
            program, difference = self._as_manual(program, difference, line)
        raw = grouping.make_raw_key(difference, program)
        with self.lock:
            self.raw[raw] += 1
            alike = self.raw[raw] > ALIKE.get(difference["kind"], 1) and raw in self.named
        if alike:
            line["group"] = self.named[raw]
            with self.lock:
                self.groups[self.named[raw]].numbers.append(number)
            return
        start = time.monotonic()
        if not difference["mode"] and len(modes) > 1:
            difference = self._repeated(slot, program, difference, modes, light, halted) or difference
            if difference["mode"] == MANUAL:
                program, difference = self._as_manual(program, difference, line)
        difference = self._blamed(slot, program, difference, light)
        mode = difference["mode"] or modes[0]
        signature = shrinking.Signature.of(difference, mode, light)
        known = {*self.known, *self.groups}
        limit = (
            min(self.shrink_s, KNOWN_S) if grouping.make_key(program, difference) in known else self.shrink_s
        )
        shrunk = shrinking.shrink(program, signature, slot, difference, limit, halted, known)
        if light:
            again = slot.judge(shrunk.program, (mode,)).differences
            if halted():
                raise shrinking.Halted
            if not any(map(signature.matches, again)):
                line["light"] = True  # it does not occur with default compiler options
        found = shrunk.difference | {"mode": shrunk.difference["mode"] or mode}
        found = self._blamed(slot, shrunk.program, found, light)
        key = self._key(slot, shrunk.program, found, light)
        if key not in known and self.settings.ranks == 1:
            others = ("explicit",) if self.settings.topology else ("explicit", "eager")
            line["cures"] = cures.find_cures(slot, shrunk.program, found, light, others)
        if halted():
            raise shrinking.Halted
        line |= {
            "group": key,
            "shrunk": to_json(shrunk.program),
            "shrunk_difference": found,
            "tried": shrunk.tried,
            "shrink_s": round(shrunk.seconds, 1),
            "minute": round((time.monotonic() - self.start) / 60, 2),
        }
        with self.lock:
            self.shrinking_s += time.monotonic() - start
            self.named[raw] = key
            self._add(key, number, line)
        tell(f"{number}: {key}" + (f" (known: {self.known[key]})" if key in self.known else ""))

    def _repeated(
        self,
        slot: Judging,
        program: Program,
        difference: DifferenceData,
        modes: tuple[str, ...],
        light: bool,
        halted: Callable[[], bool],
    ) -> DifferenceData | None:
        """What the program shows when it is judged again; None if it shows nothing. After a difference without a mode,
        which ended a worker, each mode is judged alone."""
        for some in [(mode,) for mode in modes] if not difference["mode"] else [modes]:
            again = slot.judge(shrinking.job(program, light), some).differences
            if halted():
                raise shrinking.Halted
            if again:
                return again[0] | {"mode": again[0]["mode"] or some[0]}
        return None

    @staticmethod
    def _as_manual(
        program: Program, difference: DifferenceData, line: Line
    ) -> tuple[Program, DifferenceData]:
        """The program that the manual mode runs, as a program of its own, and its difference; the line has them too."""
        program, difference = spell_manually(program), difference | {"mode": "auto"}
        line["program"], line["differences"] = to_json(program), [difference]
        return program, difference

    def _is_light(self, number: int) -> bool:
        return not self.always_whole and is_light(number, self.settings)

    def _blamed(
        self, slot: Judging, program: Program, difference: DifferenceData, light: bool
    ) -> DifferenceData:
        if self.settings.ranks > 1 or self.settings.topology:
            return difference
        return blame.find_wrong_side(slot, program, difference, light, self.settings.backend)

    def _key(self, slot: Judging, program: Program, difference: DifferenceData, light: bool) -> str:
        """The key of a shrunk finding's group. Wrong numbers of no known group are grouped by a guilty pass of XLA, or
        by the operation whose result is wrong."""
        key = grouping.make_key(program, difference)
        plain = self.settings.ranks == 1 and not self.settings.topology
        if key in self.known or difference["kind"] not in grouping.NUMBERS or not plain:
            return key
        if grouping.is_of_device(difference):
            return key
        name = blame.find_guilty_pass(slot, program, difference, light)
        if name:
            return grouping.make_key_without(program, difference, name)
        node = (
            blame.find_wrong_operation(slot, program, difference, light)
            if difference["kind"] == "numbers"
            else None
        )
        return grouping.make_key_of_operation(program, node) if node else key

    def _add(self, key: str, number: int, line: Line) -> None:
        group = self.groups.setdefault(
            key, Group(key, line["shrunk_difference"]["kind"], known=self.known.get(key, ""))
        )
        group.numbers.append(number)
        group.cures = group.cures or line.get("cures", [])
        size = measure_weight(from_json(line["shrunk"]))
        if not group.program or size < measure_weight(from_json(group.program)):
            group.program, group.difference = line["shrunk"], line["shrunk_difference"]
            group.operations = len([n for n in group.program["nodes"] if n["op"] != "item"])
            group.minute = group.minute or line["minute"]

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line to the record."""
        with self.lock:
            if self.out:
                self.out.write(json.dumps(line) + "\n")
                self.out.flush()

    def resume(self, lines: Sequence[Line]) -> None:
        """Take over the lines of a record.

        If a line names a group whose shrunk program was not written, its program is judged again. BadInput for a line
        that a hunt does not write."""
        try:
            self._resume(lines)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            told = f"{type(error).__name__}: {str(error)[:80]!a}"
            raise BadInput(
                f"the record has a line that no hunt writes ({told}): take it out, or hunt anew"
            ) from None

    def _resume(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if "shrunk" in line and line["n"] not in self.done:
                self._take(line)
                self._add(line["group"], line["n"], line)
                self.shrinking_s += line["shrink_s"]
                self.named[self._alike(line)] = line["group"]
        for line in lines:
            if line["n"] in self.done or ("group" in line and line["group"] not in self.groups):
                continue
            self._take(line)
            if "group" in line:
                self.groups[line["group"]].numbers.append(line["n"])
        for group in self.groups.values():
            group.numbers.sort()

    def _take(self, line: Line) -> None:
        self.done.add(line["n"])
        self.before += 1
        self.judged += 1
        self.invalid += "invalid" in line
        self.not_run.update(set(line.get("not_run", ())))
        self.judging_s += line["s"]
        self.waiting_s += line.get("restart_s", 0.0)
        if "group" in line:
            self.raw[self._alike(line)] += 1

    @staticmethod
    def _alike(line: Line) -> str:
        return grouping.make_raw_key(line["differences"][0], from_json(line["program"]))


def table(hunt: Hunt) -> list[list[str]]:
    """One row per group of findings: name of the known finding or "new", key, number of programs, the first program's
    number, operations, minute. Wrong numbers come first, and the most frequent first."""
    order = {"numbers": 0, "oracles": 0, "crash": 1, "hang": 2, "internal": 3, "refused": 4}
    rows = []
    for group in sorted(hunt.groups.values(), key=lambda g: (order.get(g.kind, 9), -len(g.numbers))):
        rows.append(
            [
                group.known or "new",
                group.key,
                str(len(group.numbers)),
                str(group.numbers[0]),
                str(group.operations),
                f"{group.minute:.1f}",
            ]
        )
    return rows
