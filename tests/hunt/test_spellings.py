# SPDX-License-Identifier: Apache-2.0
"""The manual mode: a program inside shard_map, with a row of its own for each index of the first axis."""

import io
import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from meshmark.hunt import differences, oracles, rules, scripts
from meshmark.hunt.generator import draw
from meshmark.hunt.hunting import Hunt, choose_modes
from meshmark.hunt.spellings import spell_manually
from meshmark.hunt.workers import Answer, Settings
from meshmark.program_data.program import (
    Body,
    Input,
    Node,
    Program,
    Transform,
    from_json,
    list_problems,
    to_json,
)
from meshmark.program_data.values import make_array, make_inputs
from tests.hunt.stubs import StubSlot

V = {"v": 0}
AXES = (("x", 2), ("y", 4))
ROWS = Input((8, 4), "float32", (("x",), ("y",)), {"kind": "ints", "low": -5, "high": 9, "seed": 4})
PICKED = Input((3,), "int32", (("x",),), {"kind": "ints", "low": 0, "high": 7, "seed": 2})
CUT = Node("constrain", (V, [["x"], ["y"]]))


def program(*nodes, inputs=(ROWS,), out=None, axes=AXES, **more):
    return Program(axes, inputs, nodes, (len(inputs) + len(nodes) - 1,), (out,), **more)


SUM = program(CUT, Node("jnp.cumsum", ({"v": 1},), {"axis": 0}), out=(("x",), ("y",)))
TAKEN = program(Node("jnp.take", (V, {"v": 1}), {"axis": 0}), inputs=(ROWS, replace(PICKED, spec=((),))))
LOOP = program(
    Node("jnp.sum", (V,)),
    Node("scan", ({"v": 1}, V), {}, (Body(2, (Node("jnp.add", (V, {"outer": 1})),), (2, 1)),)),
    Node("item", ({"v": 2}, 0)),
)
SEVERAL = replace(program(CUT, Node("jnp.negative", (V,))), outputs=(1, 2), out_specs=(None, ((), ("y",))))
PULLED = replace(
    program(Node("jnp.multiply", (V, V))),
    inputs=(ROWS, replace(ROWS, fill=ROWS.fill | {"seed": 9})),
    transform=Transform("vjp", (0,)),
)
WHOLE = program(
    Node("constrain", (V, [["x"], []])), inputs=(replace(ROWS, spec=(("x",), ())),), axes=(("x", 8),)
)
ALL = {"whole": WHOLE, "sum": SUM, "taken": TAKEN, "loop": LOOP, "several": SEVERAL, "pulled": PULLED}


@pytest.mark.parametrize("name", ALL)
def test_a_right_program_is_right_inside_shard_map(name):
    manual = spell_manually(ALL[name])
    assert (
        manual.operations[0] == "shard_map" and from_json(json.loads(json.dumps(to_json(manual)))) == manual
    )
    assert oracles.judge(ALL[name], ("manual",)) == []


@pytest.mark.parametrize("name", ALL)
def test_each_row_of_the_truth_is_that_of_the_program_alone(name):
    """The right results don't come from a rule of vmap: with the inputs of row k the program gives row k."""
    own = ALL[name]
    rows = oracles.compute_truth(spell_manually(own)).results
    for k in range(own.axes[0][1]):
        fills = [i.fill | {"seed": i.fill["seed"] + k} for i in own.inputs]
        inputs = tuple(replace(i, fill=f) for i, f in zip(own.inputs, fills, strict=True))
        alone = oracles.compute_truth(replace(own, inputs=inputs)).results
        assert all(np.array_equal(r[k], a) for r, a in zip(rows, alone, strict=True))
    assert not all(np.array_equal(r[0], r[1]) for r in rows)


def test_rows_keep_the_range_of_their_values():
    """An index stays in range, and each row has each number once."""
    once = Input((8,), "int32", ((),), {"kind": "distinct", "low": 0, "seed": 3})
    manual = spell_manually(program(Node("jnp.sort", (V,)), inputs=(once,)))
    found = make_array(manual.inputs[0])
    assert found.shape == (2, 8) and not np.array_equal(found[0], found[1])
    assert [sorted(row) for row in found.tolist()] == [[*range(8)]] * 2
    assert np.array_equal(found[0], make_array(once))
    data = replace(once, fill={"kind": "data", "data": [1, 1, 2, 3, 5, 8, 9, 9]})
    (stacked,) = make_inputs(spell_manually(program(Node("jnp.sort", (V,)), inputs=(data,))))
    assert stacked.tolist() == [data.fill["data"]] * 2


@pytest.mark.parametrize("kind", ["special", "bits"])
def test_rows_tell_the_kind_of_their_values(kind):
    dtype = "float32" if kind == "special" else "int32"
    item = replace(ROWS, dtype=dtype, fill={"kind": kind, "seed": 1})
    manual = spell_manually(program(Node("jnp.flip", (V,)), inputs=(item,)))
    assert (manual.special, manual.whole_range) == (kind == "special", kind == "bits")


def test_no_part_of_the_manual_program_names_the_manual_axis():
    manual = spell_manually(SUM)
    body = manual.nodes[0].bodies[0]
    (constraint,) = (n for n in body.nodes if n.op == "constrain")
    assert constraint.args[1] == [[], ["y"]] and constraint.kwargs == {"inside": True}
    assert manual.inputs[0].spec == (("x",), (), ("y",)) and manual.out_specs == ((("x",), (), ("y",)),)
    assert not any(n.op == "constrain" for n in spell_manually(WHOLE).nodes[0].bodies[0].nodes)
    assert "axes" not in spell_manually(WHOLE).nodes[0].kwargs, "all axes are manual"


def test_a_program_with_a_shard_map_is_left():
    with pytest.raises(oracles.Inapplicable):
        spell_manually(spell_manually(SUM))
    assert oracles.judge(spell_manually(SUM), ("manual",)) == []


@pytest.mark.parametrize("wrong", ["other row", "lost", "refused"])
def test_what_shard_map_does_wrong_is_seen_in_that_mode_alone(monkeypatch, wrong):
    """Planted: each index takes the row of its neighbour; the first row has zeros; and an exception."""
    real = jax.shard_map

    def shard_map(f, **options):
        mapped = real(f, **options)

        def planted(*given):
            if wrong == "refused":
                raise ValueError("planted")
            found = mapped(*given)
            return jax.numpy.roll(found, 1, 0) if wrong == "other row" else found.at[0].set(0)

        return planted

    monkeypatch.setattr(jax, "shard_map", shard_map)
    (found,) = oracles.judge(SUM, ("auto", "manual"))
    assert (found.mode, found.kind) == ("manual", "refused" if wrong == "refused" else "numbers")


def test_drawn_programs_are_right_inside_shard_map():
    judged = 0
    for number in range(12):
        drawn = draw(5, number)
        try:
            spell_manually(drawn)
            oracles.compute_truth(drawn)
        except (oracles.Inapplicable, oracles.Invalid):
            continue
        judged += 1
        assert oracles.judge(drawn, ("manual",)) == [], number
    assert judged > 5


def test_a_manual_finding_has_a_script_of_its_own():
    """The script runs the shard_map, and says that all is right where it is."""
    manual = spell_manually(SUM)
    expected = oracles.compute_truth(manual).results
    text = scripts.write_script(manual, "auto", ["planted"], expected)
    assert 'jax.shard_map(body0, mesh=mesh, in_specs=(P("x"),)' in text and 'axis_names={"x"}' in text
    with pytest.raises(SystemExit) as ended:
        exec(compile(text, "script", "exec"), {"__name__": "__main__"})
    assert ended.value.code in (0, None)


class Wrong(StubSlot):
    """Every shard_map crashes the worker, or has wrong numbers; all else is right."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def judge(self, job, modes=("auto",)):
        data = job if isinstance(job, Program) else from_json(job["program"]) if "program" in job else SUM
        there = "shard_map" in data.operations or "manual" in modes
        mode = "" if self.kind == "crash" and len(modes) > 1 else "manual" if "manual" in modes else modes[0]
        what = "some.cc: Check failed: planted" if self.kind == "crash" else "values"
        found = [differences.Difference(mode, self.kind, what, what).to_json()] if there else []
        return Answer(found, program=to_json(data))


@pytest.mark.parametrize("kind", ["crash", "numbers"])
def test_a_difference_of_the_manual_mode_becomes_a_program_of_its_own(kind):
    """Its record, its script and its smaller programs have the shard_map. The crash of a worker that judged several
    modes names none, so each is judged alone."""
    slot = Wrong(kind)
    hunt = Hunt(1, Settings(), shrink_s=5.0, out=io.StringIO())
    assert "manual" in choose_modes(7)
    hunt.one(slot, 7, lambda _: None, lambda: False)
    line = json.loads(hunt.out.getvalue())
    assert from_json(line["program"]) == spell_manually(SUM)
    assert from_json(line["shrunk"]).operations == ["shard_map"], "the smallest that still has one"
    assert [d["mode"] for d in line["differences"]] == ["auto"] == [line["shrunk_difference"]["mode"]]
    ((key, group),) = hunt.groups.items()
    assert line["group"] == key and group.numbers == [7] and hunt.exit_code == 1
    again = Hunt(1, Settings())
    again.resume([line])
    assert again.groups.keys() == hunt.groups.keys()


def test_a_shard_map_loses_the_results_and_arguments_that_nothing_reads():
    body = Body(3, (Node("jnp.add", ({"v": 2}, {"v": 2})),), (0, 3, 2))
    specs = {"in_specs": [[["x"]], [["x"]], [["x"]]], "out_specs": [[["x"]], [["x"]], [["x"]]]}
    node = Node("shard_map", (V, {"v": 1}, {"v": 2}), specs, (body,))
    inputs = tuple(replace(ROWS, fill=ROWS.fill | {"seed": n}) for n in range(3))
    made = program(node, Node("item", ({"v": 3}, 1)), Node("item", ({"v": 3}, 2)), inputs=inputs)
    made = replace(made, outputs=(4, 5), out_specs=(None, None))
    right = oracles.compute_truth(made).results
    candidates = [*rules.drop_unread(made)]
    assert len(candidates) == 2, "the first result, and the second argument"
    for candidate in candidates:
        assert not next(list_problems(candidate), None)
        assert all(map(np.array_equal, oracles.compute_truth(candidate).results, right))
    small = candidates[0]
    while more := [*rules.drop_unread(small)]:
        small = more[0]
    assert small.given == 1 and small.nodes[0].bodies[0].outputs == (1, 0)
    alone, *_ = rules.drop_outputs(small)
    (last,) = rules.drop_unread(alone)
    assert last.operations == ["shard_map", "jnp.add"]
    assert np.array_equal(oracles.compute_truth(last).results[0], right[0])
