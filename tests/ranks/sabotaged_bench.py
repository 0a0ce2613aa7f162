# SPDX-License-Identifier: Apache-2.0
"""`meshmark bench` with faults on some ranks: `python -m tests.ranks.sabotaged_bench OPTIONS`.

MESHMARK_SABOTAGE_BENCH is a JSON list of plans: `rank`, `case` (a part of the case id) and `how`:
    compile   raises instead of compiling
    wrong     changes one element of its own output
    late      sleeps `seconds` after each call
    kill      SIGKILL to itself instead of its call number `call`
    stuck     never returns from its call number `call`

A rank that kills itself or is stuck makes the file `mark` first, if one is named.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jax

from meshmark.commands.main import main
from meshmark.judge.programs import Program
from tests.ranks.sabotage import _changed

OWN = int(os.environ["MESHMARK_PROCESS_ID"])
PLANS = [plan for plan in json.loads(os.environ["MESHMARK_SABOTAGE_BENCH"]) if plan["rank"] == OWN]


class Lowered:
    """A lowered program whose compiled one goes wrong."""

    def __init__(self, lowered: Any, plan: dict[str, Any]) -> None:
        self._lowered, self._plan = lowered, plan

    def compile(self) -> Any:
        if self._plan["how"] == "compile":
            raise RuntimeError("sabotaged")
        return Compiled(self._lowered.compile(), self._plan)


class Compiled:
    """A compiled program that goes wrong when it is called."""

    def __init__(self, compiled: Any, plan: dict[str, Any]) -> None:
        self._compiled, self._plan, self._calls = compiled, plan, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *inputs: Any) -> Any:
        how = self._plan["how"]
        self._calls += 1
        if self._calls == self._plan.get("call"):
            if how in ("kill", "stuck") and "mark" in self._plan:
                Path(self._plan["mark"]).touch()
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            while how == "stuck":
                time.sleep(0.1)
        outputs = jax.block_until_ready(self._compiled(*inputs))
        if how == "late":
            time.sleep(self._plan["seconds"])
        return jax.tree.map(_changed, outputs) if how == "wrong" else outputs


def sabotage() -> None:
    """Put the plans of this rank in."""
    lower = Program.lower

    def lowered(self: Program) -> Any:
        plan = next((plan for plan in PLANS if plan["case"] in self.case.id), None)
        return Lowered(lower(self), plan) if plan else lower(self)

    Program.lower = lowered  # type: ignore[method-assign]


if __name__ == "__main__":
    sabotage()
    sys.exit(main(["bench", *sys.argv[1:]]))
