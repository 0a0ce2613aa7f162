# SPDX-License-Identifier: Apache-2.0
"""Programs are data: JSON preserves them, they are the same in every process, and an invalid one is explained."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from meshmark.hunt.generator import draw
from meshmark.program_data.program import Input, Node, Program, ProgramError, from_json, prune, to_json
from meshmark.program_data.values import make_array

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


def test_integers_have_all_bits_at_random_and_numbers_are_distinct():
    """A partitioner that loses high bits, or swaps equal rows, shows only then."""
    every = {"int8", "uint8", "int16", "uint16", "int32", "uint32"}
    for dtype in every:
        drawn = make_array(Input((4096,), dtype, ((),), {"kind": "bits", "seed": 3}))
        info = np.iinfo(dtype)
        assert drawn.min() < info.min + (info.max - info.min) / 100 and drawn.max() > 0.99 * info.max
    flat = make_array(Input((5, 8), "float32", ((), ()), {"kind": "distinct", "low": -20, "seed": 3})).ravel()
    assert sorted(flat.tolist()) == list(range(-20, 20)) and flat.tolist() != sorted(flat.tolist())
    inputs = [i for n in range(400) for i in draw(3, n).inputs]
    assert {i.dtype for i in inputs if i.fill["kind"] == "bits"} == every
    assert sum(i.fill["kind"] == "distinct" for i in inputs) > len(inputs) / 8


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
