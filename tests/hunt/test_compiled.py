# SPDX-License-Identifier: Apache-2.0
"""Programs that are compiled and interpreted: right ones pass, and a fault in the compiled text is found and named."""

import json
import math
import re

import jax
import pytest

from meshmark.commands.main import main
from meshmark.devices import topologies
from meshmark.devices.topologies import TopologyError
from meshmark.hunt import compiled, hunting, oracles, reports
from meshmark.hunt.compiled import Interpretation
from meshmark.hunt.generator import draw, meshes_of, meshes_over
from meshmark.hunt.workers import Answer, Settings
from meshmark.program_data.program import Body, Input, Node, Program, to_json
from tests.hunt.stubs import StubSlot

AXES = (("x", 2), ("y", 4))
ROWS = Input((8, 4), "float32", (("y",), ()))
SUM = Program(
    AXES,
    (ROWS,),
    (
        Node(
            "shard_map",
            ({"v": 0},),
            {"in_specs": [[["y"], []]], "out_specs": [[[], []]]},
            (Body(1, (Node("lax.psum", ({"v": 0}, "y")),), (1,)),),
        ),
    ),
    (1,),
    (None,),
)
SHIFT = Program(AXES, (ROWS,), (Node("jnp.roll", ({"v": 0}, 1), {"axis": 0}),), (1,), (None,))


@pytest.fixture(scope="module")
def here():
    return Interpretation(tuple(jax.devices()))


@pytest.mark.parametrize("program", [SUM, SHIFT, *(draw(3, n) for n in (0, 4))])
def test_what_is_interpreted_is_what_runs(here, program):
    left = []
    assert oracles.judge(program, ("auto",)) == []
    assert (oracles.judge(program, ("auto",), here, left), left) == ([], [])


GROUPS = re.compile(r"replica_groups=.*?(?=, use_global)")
PAIRS = re.compile(r"source_target_pairs=\{\{[\d,{}]*\}\}")
FAULTS = {
    "the sum goes over the other axis": (SUM, GROUPS, "replica_groups={{0,4},{1,5},{2,6},{3,7}}"),
    "the sum leaves a member out": (SUM, GROUPS, "replica_groups={{0,1,2},{3},{4,5,6,7}}"),
    "a row comes from another shard": (SHIFT, PAIRS, "source_target_pairs={{0,1},{1,3},{2,0},{3,2}}"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_in_the_compiled_text_is_seen(here, monkeypatch, what):
    program, old, new = FAULTS[what]
    monkeypatch.setattr(compiled, "whole_text", lambda made: old.sub(new, made.as_text(), count=1))
    (found,) = oracles.judge(program, ("auto",), here)
    assert found.kind == "numbers", found


def test_a_collective_that_some_never_reach_hangs(here, monkeypatch):
    from meshmark.interpreter.faults import Hang

    def hangs(*_):
        raise Hang("all-reduce.1 waits for device 3")

    monkeypatch.setattr(compiled, "interpret", hangs)
    (found,) = oracles.judge(SUM, ("auto",), here)
    assert (found.kind, found.what) == ("hang", "all-reduce.N waits for device N")


def test_what_the_interpreter_does_not_know_is_not_run(here, monkeypatch):
    left = []
    monkeypatch.setattr(
        compiled, "whole_text", lambda made: made.as_text().replace(" all-reduce(", " all-guess(")
    )
    assert oracles.judge(SUM, ("auto", "eager"), here, left) == []
    assert left == ["instruction all-guess", "mode eager of a topology"]


def test_a_fault_of_the_interpreter_is_no_finding(here, monkeypatch):
    monkeypatch.setattr(compiled, "interpret", lambda *_: {}["nothing"])
    left = []
    assert oracles.judge(SUM, ("auto",), here, left) == [] and "KeyError in the interpreter" in left[0]


def test_a_topology_is_taken_whole_and_few_devices_have_the_meshes_that_fit():
    assert meshes_over(8) == [(8,), (2, 4), (4, 2), (2, 2, 2)]
    assert max(map(math.prod, meshes_of(4))) == 4 and (2, 2) in meshes_of(4)
    assert {draw(1, n, meshes=[(2, 4)]).axes for n in range(5)} == {AXES}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topology", "v9:1x1"], "no chip 'v9'"),
        (["--topology", "v5e"], "CHIP:SHAPE"),
        (["--topology", "v5e:2x4", "--num-devices", "8"], "name one of them"),
    ],
)
def test_bad_input_is_one_line(words, said, capsys, monkeypatch):
    monkeypatch.setattr(topologies, "compiler", lambda topology: {})
    assert main(["hunt", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1


class Slot(StubSlot):
    """Stands for workers on a topology: the second program is wrong."""

    def judge(self, job, modes):
        assert "eager" not in modes
        if isinstance(job, dict) and job.get("draw", [0, 0])[1] == 1:
            return Answer([], not_run=["custom call Guess"], program=to_json(SUM))
        wrong = {"mode": "auto", "kind": "numbers", "what": "values", "text": "1 of 2 differ", "data": {}}
        return Answer([wrong], program=to_json(SHIFT))


def test_a_hunt_for_a_topology_says_so_everywhere(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(topologies, "compiler", lambda topology: {})
    monkeypatch.setattr(hunting, "Slot", Slot)
    monkeypatch.setattr("meshmark.commands.hunt.Slot", Slot)
    file, store = tmp_path / "hunt.jsonl", tmp_path / "store"
    words = ["--programs", "2", "--workers", "1", "--shrink", "5", "--known", str(tmp_path / "none")]
    asked = ["hunt", "--topology", "v5e:2x4", *words, "--record", str(file), "--keep", str(store)]
    assert main(asked) == 1
    said = capsys.readouterr().out
    assert "compiled for v5e:2x4 and interpreted, nothing ran" in said and "custom call Guess (1)" in said
    head, first, second = map(json.loads, file.read_text().splitlines())
    assert head["topology"] == "v5e:2x4" and first["group"] and second["not_run"] == ["custom call Guess"]
    (kept,) = store.iterdir()
    assert json.loads((kept / "finding.json").read_text())["topology"] == "v5e:2x4"
    assert "compiled for v5e:2x4 and interpreted" in (kept / "report.md").read_text()
    assert "Seen in the program compiled for v5e:2x4" in (kept / "repro.py").read_text()


def test_the_tpu_compiler_is_asked(tmp_path):
    """With libtpu: a kept finding, compiled for eight v5e chips."""
    try:
        topologies.compiler(topologies.parse_topology("v5e:2x4"))
    except TopologyError as error:
        pytest.skip(str(error))
    from docs import found_page

    words = ["--topology", "v5e:2x4", "--known", str(found_page.STORE)]
    assert main(["hunt", "--replay", "update-slice-past-the-edge", *words]) == 1


def test_settings_reach_the_finding():
    slot = Slot(Settings(topology="v5e:2x4"))
    difference = {"mode": "auto", "kind": "crash", "what": "x", "text": "x"}
    assert reports.finding_of("crash: x", to_json(SUM), difference, slot, {}).topology == "v5e:2x4"
