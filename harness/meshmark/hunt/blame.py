# SPDX-License-Identifier: Apache-2.0
"""Finds the cause of wrong numbers: the unsharded program itself, or a pass of the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshmark.hunt.oracles import ALONE, HOST
from meshmark.hunt.program import Program, to_json
from meshmark.hunt.workers import Judging

PASSES = ("algsimp",)
"""The passes of XLA that are left out one at a time, where wrong numbers have no other name: two kept causes are in
this one."""


def _job(program: Program, light: bool) -> dict[str, Any]:
    return {"program": to_json(program)} | ({"light": True} if light else {})


def find_wrong_side(
    slot: Judging, program: Program, difference: dict[str, Any], light: bool, backend: str
) -> dict[str, Any]:
    """The difference that names what is wrong: the unsharded program itself, or else the sharded one as given.

    Wrong numbers are differences from the unsharded program. If running each operation alone gives another result,
    the unsharded program is not a reference. difference: as `oracles.Difference.to_json` gives it, and so is the
    result. light: compile by `oracles.LIGHT`. backend: the name that workers have, such as "cpu"."""
    if difference["kind"] != "numbers":
        return difference
    asked = ALONE if backend == "cpu" else HOST
    own = [d for d in slot.judge(_job(program, light), (asked,)).differences if d["mode"] == asked]
    return own[0] if own and own[0]["kind"] == "oracles" else difference


def find_guilty_pass(slot: Judging, program: Program, difference: Mapping[str, Any], light: bool) -> str:
    """The name of the pass of XLA, one of PASSES, without which a program is right; "" if no single pass is.

    difference: the mode of it is judged again. light: compile by `oracles.LIGHT`."""
    for name in PASSES:
        answer = slot.judge(_job(program, light) | {"without": name}, (difference["mode"],))
        if not answer.invalid and not answer.differences and not answer.not_run:
            return name
    return ""
