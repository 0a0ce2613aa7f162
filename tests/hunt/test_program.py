# SPDX-License-Identifier: Apache-2.0
"""Programs are data: JSON preserves them, they are the same in every process, and an invalid one is explained."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from meshmark.hunt.generator import draw
from meshmark.hunt.program import Input, Node, Program, ProgramError, from_json, prune, to_json

SLICED = Program(
    (("x", 2),),
    (Input((1, 2, 1), "float32", ((), ("x",), ())),),
    (Node("lax.slice", ({"v": 0}, [0, 1, 0], [1, 2, 1], [1, 3, 1])),),
    (1,),
    (None,),
)


def test_json_gives_the_same_program():
    for number in range(60):
        program = draw(3, number)
        assert from_json(json.loads(json.dumps(to_json(program)))).name == program.name


def test_another_process_draws_the_same():
    code = "from meshmark.hunt.generator import draw; print(*(draw(3, n).name for n in range(12)))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.split() == [draw(3, n).name for n in range(12)]


def test_seeds_differ():
    assert len({draw(seed, 0).name for seed in range(20)}) == 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 9}, "format 9"),
        ({"outputs": []}, "needs outputs"),
        ({"outputs": [7]}, "an output is not a value"),
        ({"mesh": [["x", 3]]}, "can't be sharded"),
        ({"nodes": [{"op": "jnp.abs", "args": [{"v": 5}]}]}, "not there yet"),
        ({"inputs": 3}, "this is not a program"),
    ],
)
def test_bad_data_is_named(change, words):
    with pytest.raises(ProgramError, match=words):
        from_json(to_json(SLICED) | change)


def test_needed_drops_what_no_result_reads():
    extra = replace(
        SLICED,
        inputs=(*SLICED.inputs, Input((2,), "float32", ((),))),
        nodes=(
            Node("jnp.abs", ({"v": 1},)),
            Node("lax.slice", ({"v": 0}, [0, 1, 0], [1, 2, 1], [1, 3, 1])),
        ),
        outputs=(3,),
    )
    assert prune(extra) == SLICED
