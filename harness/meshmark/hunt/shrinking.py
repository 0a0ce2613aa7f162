# SPDX-License-Identifier: Apache-2.0
"""Finds smaller programs that fail in the same way.

The rules of `meshmark.hunt.rules` give candidates. Each is judged in a worker, and accepted if it has the signature of
the original program. The rules repeat until none helps. Hypothesis's shrinker is not used, because an abort stops it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any

from meshmark.hunt.differences import LOST_NAN, DifferenceData
from meshmark.hunt.grouping import NUMBERS, make_key
from meshmark.hunt.rules import RULES, measure_weight, refill
from meshmark.hunt.workers import Judging
from meshmark.program_data.building import find_types
from meshmark.program_data.program import Program, list_problems, to_json


def job(program: Program, light: bool) -> Program | dict[str, Any]:
    """The job that judges a program in a worker. light: compile it with `meshmark.hunt.oracles.LIGHT`."""
    return {"program": to_json(program), "light": True} if light else program


TELLING = re.compile(rf"{LOST_NAN}|factor [2-9]\d*|factor \d\d+")
"""The kinds of wrong numbers that name a cause. A smaller program must have one too, or it may have another cause; a
factor may become another, since it may be the number of devices. The other kinds vary with the size."""


@dataclass(frozen=True)
class Signature:
    """The failure that a smaller program must still show: the mode, the kind of difference, and its message. For wrong
    numbers it is the kind of wrongness if that is one of TELLING, else any."""

    mode: str
    kind: str
    what: str
    light: bool = False
    """Whether programs are compiled with `meshmark.hunt.oracles.LIGHT`."""

    @classmethod
    def of(cls, difference: DifferenceData, mode: str, light: bool = False) -> Signature:
        """The signature of a difference that was seen in this mode."""
        return cls(mode, difference["kind"], _telling(difference), light)

    def job(self, program: Program) -> Program | dict[str, Any]:
        """The job that judges a program in a worker."""
        return job(program, self.light)

    def matches(self, difference: DifferenceData) -> bool:
        """Whether a difference has this signature."""
        return difference["kind"] == self.kind and (not self.what or _telling(difference) == self.what)


def _telling(difference: DifferenceData) -> str:
    """What a smaller program must share of a difference's description; "" for nothing."""
    if difference["kind"] not in NUMBERS:
        return str(difference["what"])
    named = TELLING.fullmatch(str(difference["what"]))
    return named[0].rstrip("0123456789 ") if named else ""


@dataclass
class Shrunk:
    """The result of shrinking: the program, its difference, the numbers of candidates tried and taken, and seconds."""

    program: Program
    difference: DifferenceData
    tried: int
    taken: int
    seconds: float


def is_valid(program: Program) -> bool:
    """Whether the form of a program is right, and JAX accepts its types."""
    if next(list_problems(program), None):
        return False
    try:
        found = find_types(program)
    except Exception:
        return False
    results = [found[o] for o in program.outputs]
    if not all(hasattr(r, "shape") for r in results):
        return False
    sizes = dict(program.axes)
    for spec, r in zip(program.out_specs, results, strict=True):
        for n, entry in zip(r.shape, spec or (), strict=False):
            for axis in entry:
                if n % sizes.get(axis, 10**9):
                    return False
    if program.transform.kind == "vjp":
        extra = program.inputs[program.given :]
        if any(i.shape != r.shape or i.dtype != r.dtype.name for i, r in zip(extra, results, strict=True)):
            return False
    return True


def fit_transform(program: Program) -> Program:
    """The program with cotangents or tangents adapted to the types of its function."""
    if not program.transform.kind:
        return program
    extra = list(program.inputs[program.given :])
    if program.transform.kind == "jvp":
        like = [(program.inputs[i].shape, program.inputs[i].dtype) for i in program.transform.wrt]
    else:
        try:
            found = find_types(program)
            like = [(tuple(found[o].shape), found[o].dtype.name) for o in program.outputs]
        except Exception:
            return program
    made = []
    for item, (shape, dtype) in zip(extra, like, strict=True):
        if item.shape != shape or item.dtype != dtype:
            spec = item.spec if len(item.spec) == len(shape) else ((),) * len(shape)
            sizes = dict(program.axes)
            spec = tuple(
                tuple(a for a in e if a in sizes and n % sizes[a] == 0)[:1]
                for n, e in zip(shape, spec, strict=True)
            )
            item = refill(replace(item, shape=shape, dtype=dtype, spec=spec))
        made.append(item)
    return replace(program, inputs=(*program.inputs[: program.given], *made))


class Halted(Exception):
    """The hunt ends before a program is fully shrunk."""


def shrink(
    program: Program,
    signature: Signature,
    slot: Judging,
    difference: DifferenceData,
    seconds: float = 90.0,
    halted: Callable[[], bool] = lambda: False,
    known: Container[str] = (),
) -> Shrunk:
    """The smallest program with this signature that the rules find in `seconds`; Halted if the hunt ends.

    Shrinking of wrong numbers stops when their group is in `known`."""
    start = slot.clock()
    tried = taken = 0
    seen = {program.name}
    best, best_difference = program, difference
    again = True
    while again and slot.clock() - start < seconds:
        again = False
        for rule in RULES:
            moved = True
            while moved and slot.clock() - start < seconds:
                moved = False
                try:
                    candidates = list(rule(best))
                except Exception:
                    break
                for candidate in candidates:
                    candidate = fit_transform(candidate)
                    if candidate.name in seen or measure_weight(candidate) >= measure_weight(best):
                        continue
                    seen.add(candidate.name)
                    if slot.clock() - start > seconds:
                        break
                    if not is_valid(candidate):
                        continue
                    tried += 1
                    answer = slot.judge(signature.job(candidate), (signature.mode,))
                    if halted():
                        raise Halted
                    same = [d for d in answer.differences if signature.matches(d)]
                    if same:
                        best, best_difference = candidate, same[0]
                        taken += 1
                        moved = again = True
                        if signature.kind in NUMBERS and make_key(best, best_difference) in known:
                            return Shrunk(best, best_difference, tried, taken, slot.clock() - start)
                        break
    return Shrunk(best, best_difference, tried, taken, slot.clock() - start)
