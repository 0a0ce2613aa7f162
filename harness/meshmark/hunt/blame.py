# SPDX-License-Identifier: Apache-2.0
"""Finds the cause of wrong numbers: the unsharded program itself, one pass of the compiler, or one operation."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.oracles import ALONE, HOST
from meshmark.hunt.workers import Judging
from meshmark.program_data.building import find_types
from meshmark.program_data.program import Node, Program, to_json

PASSES = ("algsimp",)
"""The passes of XLA that are turned off, one at a time, to find the cause of wrong numbers. Two stored causes are in
this pass."""


def _job(program: Program, light: bool) -> dict[str, Any]:
    return {"program": to_json(program)} | ({"light": True} if light else {})


def find_wrong_side(
    slot: Judging, program: Program, difference: DifferenceData, light: bool, backend: str
) -> DifferenceData:
    """The difference with the right cause: one of the unsharded program if that is wrong itself, else the given one.

    Wrong numbers are differences from the unsharded program. It is not a reference if another computation of it gives
    another result: each operation run alone on CPU, or the CPU on an accelerator. difference and the result have the
    form of `differences.Difference.to_json`. light: compile with `oracles.LIGHT`. backend: the workers' backend, such
    as "cpu"."""
    if difference["kind"] != "numbers":
        return difference
    asked = ALONE if backend == "cpu" else HOST
    own = [d for d in slot.judge(_job(program, light), (asked,)).differences if d["mode"] == asked]
    return own[0] if own and own[0]["kind"] == "oracles" else difference


def find_guilty_pass(slot: Judging, program: Program, difference: DifferenceData, light: bool) -> str:
    """The pass of XLA, one of PASSES, without which a program is right; "" if there is none.

    difference: its mode is judged again. light: compile with `oracles.LIGHT`."""
    for name in PASSES:
        answer = slot.judge(_job(program, light) | {"without": name}, (difference["mode"],))
        if not answer.invalid and not answer.differences and not answer.not_run:
            return name
    return ""


def find_wrong_operation(
    slot: Judging, program: Program, difference: DifferenceData, light: bool
) -> Node | None:
    """The first operation of a program whose result is wrong if the program returns all of them; None if none is.

    What the operation reads is right then, so the operations before it have no part in the cause. None for a
    derivative: its operations are not those of the program. difference: its mode is judged again. light: compile with
    `oracles.LIGHT`."""
    if program.transform.kind:
        return None
    types = find_types(program)
    values = [v for v in range(program.given, len(types)) if hasattr(types[v], "shape")]
    specs = dict(zip(program.outputs, program.out_specs, strict=True))
    whole = replace(program, outputs=tuple(values), out_specs=tuple(specs.get(v) for v in values))
    for found in slot.judge(_job(whole, light), (difference["mode"],)).differences:
        if named := re.match(r"result (\d+)", found["text"]):
            return program.nodes[values[int(named[1])] - program.given]
    return None
