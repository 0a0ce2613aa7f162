# SPDX-License-Identifier: Apache-2.0
"""A program that ends its process, or never ends, costs only that program."""

import pytest

from meshmark.core.errors import BadInput
from meshmark.hunt import places
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.workers import Settings, Slot, WorkerError, describe_death
from meshmark.program_data.program import Input, Node, Program

GOOD = Program(
    (("x", 2),), (Input((4,), "float32", (("x",),)),), (Node("jnp.negative", ({"v": 0},)),), (1,), (None,)
)

FAULTS = """
import jax.numpy as jnp, os, signal, time
def sign(x):
    os.write(2, b"F1122 05:14:59.590100    3277 spmd_partitioner.cc:1128] Check failed: a == b (1 vs. -1)\\n")
    os.kill(os.getpid(), signal.SIGABRT)
def square(x):
    time.sleep(600)
jnp.sign, jnp.square = sign, square
"""


@pytest.fixture
def faulty(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FAULTS)
    return Settings(deadline=5.0, environment={"PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu"})


def with_op(name):
    return Program(GOOD.axes, GOOD.inputs, (Node(name, ({"v": 0},)),), (1,), (None,))


def test_a_crash_and_a_hang_are_findings_and_the_next_program_runs(faulty):
    with Slot(faulty) as slot:
        assert slot.judge(GOOD).differences == []
        (crash,) = slot.judge(with_op("jnp.sign")).differences
        assert (crash["kind"], crash["what"]) == (
            "crash",
            "spmd_partitioner.cc: Check failed: a == b (N vs. N)",
        )
        assert slot.judge(GOOD).differences == []
        (hang,) = slot.judge(with_op("jnp.square")).differences
        assert hang["kind"] == "hang"
        last = slot.judge(GOOD)
        assert last.differences == [] and last.cpu > 0
        assert slot.restarts == 2


def test_a_drawn_program_is_told_even_where_it_kills(faulty):
    with Slot(faulty) as slot:
        answer = slot.judge({"draw": [1, 0]})
        assert answer.program and "nodes" in answer.program


def test_unusual_settings_are_told_and_a_hunt_without_a_compiler_is_refused():
    with Slot(Settings(environment={"JAX_PLATFORMS": "cpu", "JAX_DEBUG_NANS": "1"})) as slot:
        around = slot.around()
        assert slot.judge(GOOD).differences == []
    assert around == {"jax_debug_nans": "True"}
    told = ["not as JAX comes: jax_debug_nans = True"]
    assert places.describe_surroundings(places.require_compilation(around)) == told
    said = []
    hunt = Hunt(1, Settings(spare=False, environment={"JAX_PLATFORMS": "cpu", "JAX_DEBUG_NANS": "1"}))
    hunt.run(1.0, 1, said.append, 1)
    assert said[:1] == told and hunt.judged == 1
    hunt = Hunt(1, Settings(spare=False, environment={"JAX_PLATFORMS": "cpu", "JAX_DISABLE_JIT": "1"}))
    with pytest.raises(
        BadInput, match="jax_disable_jit is True: nothing would be compiled; unset JAX_DISABLE_JIT"
    ):
        hunt.run(1.0, 1, said.append, 1)
    assert hunt.judged == 0


def test_workers_that_never_start_are_one_line():
    with Slot(Settings(environment={"JAX_PLATFORMS": "nothing"})) as slot, pytest.raises(WorkerError):
        slot.judge(GOOD)


def test_deaths_that_differ_in_numbers_are_one():
    a = describe_death("", "F1122 05:14 3277 a.cc:11] Check failed: x (1 vs. -1)")
    assert a == describe_death("", "F0101 01:02 9 b/a.cc:11] Check failed: x (20 vs. 3)").removeprefix("b/")
