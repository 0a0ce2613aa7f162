# SPDX-License-Identifier: Apache-2.0
"""`meshmark hunt` over ranks with a fault on rank 1: `python -m tests.hunt.sabotaged_hunt OPTIONS`.

MESHMARK_WRONG names an operation: rank 1 has one wrong element in each program that contains it. MESHMARK_DIES is the
number of a program in which rank 1 ends itself. The programs are those of PROGRAMS, so that another version of the
generator changes nothing.
"""

import os
import signal
import sys

import jax
import numpy as np

from meshmark.commands.main import main
from meshmark.hunt import generator, oracles
from meshmark.hunt.rank_hunt import Lockstep
from meshmark.program_data.program import Input, Node, Program

OWN = os.environ["MESHMARK_PROCESS_ID"]
WRONG, DIES = os.environ.get("MESHMARK_WRONG"), os.environ.get("MESHMARK_DIES")

FIRST, LAST = {"v": 0}, {"v": 1}
ROWS = Input((8, 4), "float32", (("x",), ()), {"kind": "distinct", "low": -9, "seed": 3})
SLICE = Node("lax.slice", (FIRST, [0, 0], [4, 4]))
PROGRAMS = [
    Program((("x", 4),), (ROWS,), nodes, (len(nodes),), (None,))
    for nodes in (
        (Node("jnp.negative", (FIRST,)),),
        (Node("jnp.flip", (FIRST,), {"axis": 0}), Node("jnp.multiply", (LAST, FIRST))),
        (SLICE, Node("jnp.add", (LAST, LAST))),
        (Node("jnp.sum", (FIRST,), {"axis": 1}),),
        (SLICE, Node("jnp.transpose", (LAST,))),
    )
]
"""The programs by number. The third and the last have a slice."""

judging = oracles.judge
at = []


def draw(seed, number, *rest):
    at[:] = [str(number)]
    return PROGRAMS[number], {}


def judge(*arguments):
    if OWN == "1" and at == [DIES]:
        os.kill(os.getpid(), signal.SIGKILL)
    return judging(*arguments)


def changed(result):
    """The array with another first element of its first shard here."""
    shards = [np.array(shard.data) for shard in result.addressable_shards]
    shards[0].flat[0] = not shards[0].flat[0] if shards[0].dtype == bool else shards[0].flat[0] + 3
    parts = [jax.device_put(x, s.device) for x, s in zip(shards, result.addressable_shards, strict=True)]
    return jax.make_array_from_single_device_arrays(result.shape, result.sharding, parts)


def run(self, program, mode):
    results = running(self, program, mode)
    if OWN == "1" and WRONG in program.operations:
        results[0] = changed(results[0])
    return results


running = Lockstep._run
generator.draw_with_families, oracles.judge, Lockstep._run = draw, judge, run

if __name__ == "__main__":
    sys.exit(main(["hunt", *sys.argv[1:]]))
