# SPDX-License-Identifier: Apache-2.0
"""Measures whether the hunt finds ten planted faults of a partitioner, and shrinks each to its operation.

    python -m tests.studies.hunt_planted [SECONDS] [NAME ...]

A fault changes the result of one operation in programs that run over a mesh, and does not change the plain program. A
sitecustomize.py, which the workers import, activates it. A program without the operation can't show the fault, so it is
drawn and counted, but not run. What is wrong without the fault too does not count: it is a bug of JAX.
"""

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshmark.hunt import shrinking
from meshmark.hunt.generator import draw
from meshmark.hunt.workers import Answer, Settings, Slot

FAULTS = {
    "a halo off by one": ("lax.slice", "jnp.roll(r, 1, -1)"),
    "padding in a sum": ("jnp.sum", "r + 1"),
    "a group over an axis too many": ("jnp.matmul", "2 * r"),
    "a wrong start index": ("lax.dynamic_slice", "jnp.flip(r)"),
    "a lost select": ("jnp.where", "values[node.args[1]['v']]"),
    "a transposed permutation": ("jnp.transpose", "jnp.flip(r, 0)"),
    "a lost update": ("lax.dynamic_update_slice", "values[node.args[0]['v']]"),
    "a carry that does not cross shards": ("lax.cumsum", "r.at[..., -1].add(-1)"),
    "parts in another order": ("jnp.concatenate", "jnp.roll(r, 1, node.kwargs['axis'])"),
    "a clamp per shard": ("jnp.take", "jnp.where(r == r.ravel()[0], r + 1, r)"),
}
"""By name: the operation, and what comes in the place of its result r."""

PATCH = """
import jax.numpy as jnp
from meshmark.program_data import building
real = building.Builder.node
def node(self, node, values, outer):
    r = real(self, node, values, outer)
    if self.mesh is not None and node.op == OP and getattr(r, "size", 0) and getattr(r, "ndim", 0):
        r = (RESULT).astype(r.dtype)
    return r
building.Builder.node = node
"""


@dataclass
class Beside:
    """Judges with the fault, and leaves out what is wrong without it too."""

    faulty: Slot
    right: Slot

    def judge(self, *job: Any) -> Answer:
        """The answer of the faulty worker; without differences if the other worker sees some."""
        answer = self.faulty.judge(*job)
        if answer.differences and self.right.judge(*job).differences:
            return replace(answer, differences=[])
        return answer

    def clock(self) -> float:
        """The clock of time limits, in seconds."""
        return self.faulty.clock()


def hunt(op: str, result: str, seconds: float, seed: int = 40) -> tuple[int, int, list[str]]:
    """(programs drawn, programs run, the operations of the shrunk program) until the fault shows; [] if it does not."""
    with tempfile.TemporaryDirectory() as directory:
        text = PATCH.replace("OP", repr(op)).replace("RESULT", result)
        (Path(directory) / "sitecustomize.py").write_text(text, encoding="utf-8")
        devices = {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
        faulty = Settings(deadline=120.0, environment=devices | {"PYTHONPATH": directory}, spare=False)
        ran = 0
        with (
            Slot(faulty) as wrong_slot,
            Slot(Settings(deadline=120.0, environment=devices, spare=False)) as right_slot,
        ):
            slot = Beside(wrong_slot, right_slot)
            for number in range(2000):
                program = draw(seed, number)
                if op not in program.operations:
                    continue
                ran += 1
                wrong = [d for d in slot.judge(program).differences if d["kind"] == "numbers"]
                if wrong:
                    signature = shrinking.Signature("auto", "numbers", "")
                    found = shrinking.shrink(program, signature, slot, wrong[0], seconds)
                    return number + 1, ran, [op for op in found.program.operations if op != "item"]
    return 2000, ran, []


def main() -> int:
    """Print one row per fault; 1 if one was not found or not shrunk to its operation."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    missed = 0
    for name in sys.argv[2:] or FAULTS:
        op, result = FAULTS[name]
        drawn, ran, left = hunt(op, result, seconds)
        missed += left != [op]
        print(f"| {name} | `{op}` | {drawn} | {ran} | {', '.join(left) or 'not found'} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
