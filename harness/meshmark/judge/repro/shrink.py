# SPDX-License-Identifier: Apache-2.0
"""Finds the smallest script of a case that still fails on the devices of this machine.

Each candidate is printed and run in a child process of its own. So a crash or a hang costs one candidate, and no JAX
backend starts in this process. A case that passes or can't be run on this machine gets the script of the whole case,
because the failure was seen on another machine.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.installation import make_paths_absolute
from meshmark.core.meshes import MeshShape
from meshmark.core.verdicts import BAD
from meshmark.devices.environment import CPU_DEVICES, X64, of_child
from meshmark.judge.repro import contracts
from meshmark.judge.repro.judging import MARK
from meshmark.judge.repro.printer import COMMUNICATION, EXECUTE, NUMBERS, SHARDING
from meshmark.judge.repro.reading import script
from meshmark.judge.repro.sources import ReproError
from meshmark.judge.repro.subject import Form, exact_when_counted
from meshmark.judge.repro.text import WIDTH
from meshmark.operations.base import Request, parse_size
from meshmark.operations.cases import Case, Cell

SECONDS = 60.0
"""Seconds that looking for a smaller case may take, unless asked for otherwise."""

MOST = 10
"""The most smaller cases that are tried."""

CHECKS = {
    "numbers": NUMBERS,
    "gradient": NUMBERS,
    "replicas": NUMBERS,
    "sharding": SHARDING,
    "communication": COMMUNICATION,
    "execute": EXECUTE,
}
"""What of a script shows a failed check of the suite, the plainest first."""


@dataclass(frozen=True)
class Outcome:
    """How a script ended: "pass", "fail" (a check failed), "error NAME" (an exception), "crash NAME" (a signal), "hang"
    or "exit CODE"."""

    how: str
    output: tuple[str, ...] = ()


@dataclass
class Runner:
    """Runs scripts until its time is over."""

    seconds: float
    say: Callable[[str], None]
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """The seconds that remain."""
        return self.seconds - (time.monotonic() - self.started)

    def run(
        self, command: list[str], environment: dict[str, str] | None = None, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run Python in an empty directory with `text` as case.py; subprocess.TimeoutExpired when the time is over.

        environment: its variables; by default those of this process."""
        with tempfile.TemporaryDirectory(prefix="meshmark-repro-") as directory:
            Path(directory, "case.py").write_text(text, encoding="utf-8")
            return subprocess.run(
                [sys.executable, *command],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=max(0.1, self.left),
                env=environment or make_paths_absolute(os.environ),
            )

    def outcome(self, text: str) -> Outcome:
        """Run a script."""
        try:
            done = self.run(["case.py"], text=text)
        except subprocess.TimeoutExpired:
            return Outcome("hang")
        lines = tuple(done.stdout.splitlines())
        if done.returncode == 0:
            return Outcome("pass", lines)
        if done.returncode < 0:
            known = -done.returncode in list(signal.Signals)
            return Outcome(f"crash {signal.Signals(-done.returncode).name if known else done.returncode}")
        if "Traceback (most recent call last)" in done.stderr:
            last = next(
                (e for e in reversed(done.stderr.splitlines()) if e and not e.startswith((" ", "-", "For"))),
                "",
            )
            return Outcome(f"error {last.partition(':')[0]}", (last[:200],))
        return Outcome("fail" if done.returncode == 1 else f"exit {done.returncode}", lines)

    def judged(self, case: Case, number: int, seed: int) -> dict[str, Any]:
        """The suite's findings for a case on this machine: `lines`, `where`, `u_factor`. A crash is a line. If the case
        could not be judged (no device, too few devices, too little time), `lines` is None and `where` says why."""
        variables = {} if CPU_DEVICES in os.environ else {CPU_DEVICES: str(number)}
        if "x64" in case.cell.capabilities:
            variables[X64] = "1"
        try:
            done = self.run(
                ["-m", "meshmark.judge.repro.judging", case.id, str(number), str(seed)], of_child(variables)
            )
        except subprocess.TimeoutExpired:
            return {"where": f"it takes longer than {self.seconds:.0f} s", "lines": None}
        marked = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
        if marked:
            return dict(json.loads(marked[-1]))
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if done.returncode < 0:
            return {"where": "these devices", "lines": [["execute", "crash", last]]}
        return {"where": f"no device: {last}", "lines": None}


def shrunk(case: Case, num_devices: int, seed: int, seconds: float, say: Callable[[str], None]) -> str:
    """The script of the smallest form of a case that still fails on this machine; of the whole case if none does.

    say: takes a line about each step. The search ends after `seconds`.
    """
    runner = Runner(seconds, say)
    say(
        f"running {case.id} on the devices at hand, for {seconds:.0f} s at most (--no-run: print the whole case)"
    )
    found = runner.judged(case, num_devices, seed)
    form = Form(u_factor=found.get("u_factor", 0.0))
    if found["lines"] is None:
        say(f"it can't run here ({found['where']}): this is the script of the whole case")
        return script(case, num_devices, seed)
    bad = [line for line in found["lines"] if line[1] in BAD]
    if not bad:
        say(f"it passes here ({found['where']}), so nothing can be made smaller: the whole case")
        return script(case, num_devices, seed, form)
    check, verdict, reason = min(bad, key=lambda line: list(CHECKS).index(line[0]))
    say(f"{check}: {verdict}: {reason}")
    search = _Search(case, num_devices, seed, runner, found["where"], verdict, f"{check}: {reason}")
    return search.of(replace(form, checks=(CHECKS[check],)))


@dataclass
class _Search:
    """Looks for the smallest form of a case that fails as the case does."""

    case: Case
    num_devices: int
    seed: int
    runner: Runner
    where: str
    verdict: str
    reason: str
    """What the suite says of the whole case here."""

    def of(self, form: Form) -> str:
        """The script of the smallest form that fails the checks of this form."""
        base, outcome = self.base(form)
        if outcome is None:
            self.runner.say("the script alone does not show it here: this is the script of the whole case")
            return script(self.case, self.num_devices, self.seed, Form(u_factor=form.u_factor))
        best = (self.case, self.num_devices, base)
        if base.checks == (NUMBERS,):
            for case in smaller(self.case):
                if self.runner.left < 0:
                    self.runner.say("time is over (--seconds allows more): the smallest that was found")
                    break
                seen = self.attempt(case, case.mesh.size, replace(base, original=self.case.id), outcome)
                if seen is not None:
                    best = (case, case.mesh.size, replace(base, original=self.case.id))
                    outcome = seen
                    break
            best, outcome = self.counted(best, outcome)
        case, number, form = best
        return script(
            case, number, self.seed, replace(form, seen=tuple(self.seen_lines(outcome, case.mesh.size)))
        )

    def base(self, form: Form) -> tuple[Form, Outcome | None]:
        """(the first form of the whole case that fails, its outcome); (form, None) if none does.

        If no value matters, inputs of zeros are tried first. For communication, the readers of collectives are tried in
        the order of `contracts.readers`."""
        forms = [form]
        if form.checks != (NUMBERS,):
            forms = [replace(form, inputs="zeros"), form]
        if form.checks == (COMMUNICATION,):
            forms = [replace(form, inputs="zeros", reader=r) for r in contracts.readers(self.case)]
        for tried in forms:
            text = script(self.case, self.num_devices, self.seed, tried)
            outcome = self.runner.outcome(text)
            if outcome.how.startswith(self.verdict):
                self.runner.say(
                    f"the script alone shows it, in {len(text.splitlines())} lines: {outcome.how}"
                )
                return tried, outcome
        return form, None

    def attempt(self, case: Case, number: int, form: Form, like: Outcome) -> Outcome | None:
        """The outcome of a smaller case; None if it does not fail in the same way."""
        try:
            outcome = self.runner.outcome(script(case, number, self.seed, form))
        except (ReproError, ValueError, ZeroDivisionError, IndexError, TypeError):
            return None  # the operation has no such size
        fails = outcome.how == like.how
        what = f"{case.mesh.label}, {case.cell.request.size}, {form.inputs} inputs"
        self.runner.say(
            f"{what}: {'still fails' if fails else outcome.how} ({max(0.0, self.runner.left):.0f} s left)"
        )
        return outcome if fails else None

    def counted(
        self, best: tuple[Case, int, Form], outcome: Outcome
    ) -> tuple[tuple[Case, int, Form], Outcome]:
        """The best case with inputs 1, 2, 3 ..., and its outcome, if it still fails; otherwise the arguments."""
        case, number, form = best
        simple = replace(form, inputs="counted")
        if self.runner.left < 0 or not exact_when_counted(case):
            return best, outcome
        seen = self.attempt(case, number, simple, outcome)
        return ((case, number, simple), seen) if seen is not None else (best, outcome)

    def seen_lines(self, outcome: Outcome, devices: int) -> Iterator[str]:
        """The lines of the script's docstring about this run; they show the first wrong device."""
        lines = [line for line in outcome.output if " wrong, first at " in line]
        if lines:
            yield f"Seen with {self.where}, wrong on {len(lines)} of {devices}:"
            yield f"    {lines[0]}"
        else:
            yield f"Seen with {self.where}:"
            lines = textwrap.wrap(self.reason, WIDTH - 4, max_lines=3, placeholder=" ...")
            yield from (f"    {line}" for line in lines)


# Smaller cases ----------------------------------------------------------------------------------------------


def smaller(case: Case) -> list[Case]:
    """At most MOST cases of the same operation, variant, mode and dtype with fewer elements, the smallest first. Each
    has at least twice the elements of the one before."""
    found: dict[Any, tuple[int, int, Case]] = {}
    whole = elements(case)
    for mesh, size in itertools.product(_meshes(case.mesh), _sizes(case)):
        made = _cell(case, mesh, size)
        if made is None:
            continue
        try:
            plan, count = made.plan, elements(made)
        except Exception:  # an operation may refuse a size that its table does not have
            continue
        if 0 < count < whole and plan.judge == case.plan.judge:
            shapes = (*(a.shape for a in plan.arguments), *(r.shape for r in plan.results))
            found.setdefault((mesh, shapes), (count, mesh.size, made))
    left = sorted(found.values(), key=lambda item: item[:2])
    chosen: list[Case] = []
    least = 0
    for count, _, made in left:
        if count >= 2 * least or not chosen:
            chosen.append(made)
            least = count
    return chosen[:MOST]


def elements(case: Case) -> int:
    """The number of elements of all arguments and results together."""
    total = 0
    items: list[Any] = [*case.plan.arguments, *case.plan.results]
    for item in items:
        count = 1
        for n in item.shape:
            count *= n
        total += count
    return total


def _meshes(mesh: MeshShape) -> Iterator[MeshShape]:
    """The mesh itself, then meshes of the same number of axes in which some axes are cut to 2, of more than one
    device."""
    yield mesh
    if mesh.order:
        return
    for shape in itertools.product(*(sorted({min(n, 2), n}) for n in mesh.shape)):
        if shape != mesh.shape and MeshShape(shape).size > 1:
            yield MeshShape(shape)


def _sizes(case: Case) -> Iterator[str]:
    """Size labels up to the case's own."""
    label = case.cell.request.size
    if label.startswith("n"):
        yield from (f"n{2**k}" for k in range(parse_size(label).bit_length()) if 2**k < parse_size(label))
    else:
        size = dtype_of(case.cell.request.dtype).itemsize
        while size < parse_size(label):
            yield f"{size}B"
            size *= 2
    yield label


def _cell(case: Case, mesh: MeshShape, size: str) -> Case | None:
    """The same case on another mesh and of another size; None if the operation lacks the variant there."""
    operation, request = case.operation, case.cell.request
    variants = itertools.chain(operation.variants(mesh), operation.timed_variants(mesh))
    variant = next((v for v in variants if v.label == request.variant.label), None)
    if variant is None or operation.absent(case.mode, variant, mesh) is not None:
        return None
    return Cell(operation, Request(variant, mesh, request.dtype, size), case.cell.weight).case(case.mode)
