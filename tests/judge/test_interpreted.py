# SPDX-License-Identifier: Apache-2.0
"""The fields of the lines of an interpretation, and the lines of a program that can't be interpreted."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from meshmark.devices import topologies
from meshmark.judge import interpreted
from meshmark.judge.numbers import Shard
from meshmark.judge.programs import Program
from meshmark.operations import cases


def compiled(case_id, change=lambda text: text, need=None):
    """A program compiled for the CPU devices here, with its text changed, or of another size."""
    program = Program(cases.find(case_id, 8), tuple(jax.devices()))
    real = program.compile()
    memory = real.memory_analysis()
    if need is not None:
        memory = SimpleNamespace(argument_size_in_bytes=need, output_size_in_bytes=0, temp_size_in_bytes=0)
    return program, SimpleNamespace(
        as_text=lambda: change(real.as_text()),
        input_shardings=real.input_shardings,
        output_shardings=real.output_shardings,
        memory_analysis=lambda: memory,
    )


def lines(place, *arguments, **options):
    found = interpreted.judge_lines(*compiled(*arguments, **options), topologies.parse_topology(place), 0)
    assert all(line.data["interpreted"] is True and line.data["interpret_s"] >= 0 for line in found)
    return {line.check: line for line in found}


PSUM = "psum/axes=x+y/manual/2x4/float32/4KiB"


@pytest.mark.parametrize(
    ("change", "need", "name"),
    [
        (lambda text: text.replace(" all-reduce(", " all-wonder("), None, "instruction all-wonder"),
        (lambda text: text.replace("channel_id=", "canal_id="), None, "attribute canal_id of all-reduce"),
        (lambda text: text, 2**30 + 1, "a program of 8 GiB on all devices"),
    ],
)
def test_what_is_not_known_is_not_run_with_its_name(change, need, name):
    found = lines("v5e:2x4", PSUM, change=change, need=need)
    assert {line.verdict for line in found.values()} == {"not_run"}
    assert found["numbers"].data["refused"] == found["replicas"].data["refused"] == name


def test_what_the_text_does_not_say_is_assumed():
    default = "matmul/rows=x,cols=y,check=rounded,precision=default/manual/2x4/float32/n64"
    [said] = lines("v5e:2x4", default)["numbers"].data["assumed"]
    assert "8 bits" in said
    assert lines("v5e:2x4", default)["numbers"].data["precision"] == "default (8 bits, assumed)"
    assert "assumed" not in lines("v5e:2x4", PSUM)["numbers"].data
    assert lines("h100:8", PSUM)["numbers"].data["assumed"] == ["not autotuned: compiled without a GPU"]


def test_only_what_arithmetic_may_change_is_unspecified():
    def differing(seen, want):
        index = (slice(0, len(want)),)
        return interpreted.unspecified(
            [Shard(None, np.array(seen, np.float32), index)], np.array(want, np.float32)
        )

    assert differing([0.0, 1.0, np.nan, 0.0], [-0.0, 1.0, -np.nan, 1e-40])
    assert not differing([0.0, 2.0], [-0.0, 1.0])
    assert not differing([0.0], [np.nan])
    assert not differing([0.0], [1e-30])


def test_a_result_of_rank_zero_stays_one():
    case = "scalar_result/of=x.y,kind=max/manual/2x4/float32/64B"
    assert {line.verdict for line in lines("v5e:2x4", case).values()} == {"pass"}
