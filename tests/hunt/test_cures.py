# SPDX-License-Identifier: Apache-2.0
"""What makes a difference go away, with planted causes."""

import io
import json
from dataclasses import replace

import jax
import pytest

from meshmark.commands.hunt import summary_lines
from meshmark.hunt import cures, differences, oracles
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.shrinking import is_valid
from meshmark.hunt.workers import Answer, Settings
from meshmark.program_data.program import Body, Input, Node, Program, Transform, from_json, to_json
from tests.hunt.stubs import StubSlot

V = {"v": 0}
ROWS = Input((8, 4), "float32", (("x",), ("y",)), {"kind": "ints", "low": -5, "high": 9, "seed": 4})
SQUARE = Program(
    (("x", 2), ("y", 4)),
    (ROWS, replace(ROWS, fill=ROWS.fill | {"seed": 9})),
    (Node("jnp.multiply", (V, V)),),
    (1,),
    ((("x",), ()),),
    transform=Transform("vjp", (0,)),
)
WRONG = {"mode": "auto", "kind": "numbers"}
SHARDY = '`jax.config.update("jax_use_shardy_partitioner", False)`'
CHECKED = Program(
    (("x", 2),),
    (replace(ROWS, spec=(("x",), ())),),
    (
        Node(
            "shard_map",
            (V,),
            {"in_specs": [[["x"]]], "out_specs": [[["x"]]]},
            (Body(1, (Node("jnp.negative", (V,)),), (1,)),),
        ),
    ),
    (1,),
    (None,),
)


class Planted(StubSlot):
    """Wrong where a cause says so: a function of the program, the mode and the job."""

    def __init__(self, cause):
        super().__init__()
        self.cause = cause

    def judge(self, job, modes=("auto",)):
        job = {"program": to_json(job)} if isinstance(job, Program) else job
        program = from_json(job["program"]) if "program" in job else SQUARE
        wrong = self.cause(program, modes[0], job)
        found = [differences.Difference(modes[0], "numbers", "values", "result 0").to_json()] if wrong else []
        return Answer(found, program=to_json(program))


CAUSES = {
    "no derivative": lambda p, mode, job: bool(p.transform.kind),
    "a mesh without the axis 'y'": lambda p, mode, job: "y" in dict(p.axes),
    SHARDY: lambda p, mode, job: job.get("shardy", True),
    "XLA without its pass algsimp": lambda p, mode, job: job.get("without") != "algsimp",
    "axes of type Explicit": lambda p, mode, job: mode != "explicit",
    "operation by operation, without jit": lambda p, mode, job: mode != "eager",
    "results whose sharding is left to the compiler": lambda p, mode, job: any(p.out_specs),
    "inputs that are whole on every device": lambda p, mode, job: any(any(i.spec) for i in p.inputs),
}


@pytest.mark.parametrize("cure", CAUSES)
def test_the_change_without_which_it_is_wrong_is_named(cure):
    found = cures.find_cures(Planted(CAUSES[cure]), SQUARE, WRONG)
    also = {"inputs that are whole on every device"} if cure.startswith("a mesh") else set()
    assert cure in found and set(found) <= {cure} | also


def test_the_check_of_shard_map_is_a_cure():
    checked = Planted(lambda p, mode, job: p.nodes[0].kwargs.get("check_vma", True))
    assert cures.find_cures(checked, CHECKED, WRONG) == ["`check_vma=False`"]


def test_a_change_that_can_not_be_judged_is_no_cure():
    class Invalid(Planted):
        def judge(self, job, modes=("auto",)):
            return Answer([], invalid="it has no such form")

    assert cures.find_cures(Invalid(None), SQUARE, WRONG) == []


def test_what_is_right_without_a_change_has_no_cure():
    """It was wrong once, or only as it was compiled in the hunt: no change mended it."""
    assert cures.find_cures(Planted(lambda p, mode, job: False), SQUARE, WRONG) == []
    lightly = Planted(lambda p, mode, job: job.get("light", False) and bool(p.transform.kind))
    assert cures.find_cures(lightly, SQUARE, WRONG) == []
    assert cures.find_cures(lightly, SQUARE, WRONG, light=True) == ["no derivative"]


@pytest.mark.parametrize("program", [SQUARE, CHECKED])
def test_every_change_is_a_program(program):
    changes = [*cures.list_changes(program, "auto", "numbers")]
    assert len({change.said for change in changes}) == len(changes) > 4
    assert all(is_valid(change.program) for change in changes)
    assert not {c.mode for c in cures.list_changes(program, "explicit", "numbers")} - {""}
    assert {c.mode for c in cures.list_changes(program, "auto", "refused")} == {"", "eager"}


@pytest.mark.parametrize("shardy", [True, False])
def test_the_partitioner_is_turned_off_and_on_again(shardy):
    with oracles.compile_by(False, shardy=shardy):
        assert jax.config.jax_use_shardy_partitioner == shardy
        assert oracles.judge(SQUARE, ("auto",)) == []
    assert jax.config.jax_use_shardy_partitioner


def test_a_new_group_has_its_cures_in_the_record_and_the_summary_and_a_known_one_none():
    seen = []
    for known in ({}, {"numbers: reshard vjp": "kept"}):
        hunt = Hunt(1, Settings(), shrink_s=2.0, out=io.StringIO(), known=known)
        hunt.one(Planted(CAUSES["no derivative"]), 3, lambda _: None, lambda: False)
        line = json.loads(hunt.out.getvalue())
        seen.append(line.get("cures"))
        told = [text for text in summary_lines(hunt) if "goes away with: no derivative" in text]
        assert bool(told) == (not known)
    assert seen == [["no derivative"], None]
