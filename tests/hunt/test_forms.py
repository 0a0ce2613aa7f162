# SPDX-License-Identifier: Apache-2.0
"""Nested forms, custom derivative rules, and light compilation: right programs pass, and faults are found."""

import random
import subprocess
import sys

import jax
import numpy as np
import pytest

from meshmark.hunt import forms, oracles, scripts
from meshmark.hunt.drawing import KINDS, Miss
from meshmark.hunt.generator import Drawing, draw
from meshmark.hunt.levels import Level
from meshmark.program_data import building
from meshmark.program_data.program import Body, Input, Node, Program, Transform

V = {"v": 0}
ROW = Input((8,), "float32", (("x",),), {"kind": "count"})


def squared(op):
    """The gradient of a square inside of this form."""
    body = Body(1, (Node("jnp.square", (V,)),), (1,))
    nodes = (Node(op, (V,), {}, (body,)),)
    cotangent = Input((8,), "float32", ((),), {"kind": "count"})
    return Program((("x", 2),), (ROW, cotangent), nodes, (1,), (None,), Transform("vjp", (0,)))


def nested(nodes, depth=0):
    """How deep forms stand in each other."""
    inner = [nested(b.nodes, depth + 1) for n in nodes for b in n.bodies]
    return max(inner, default=depth)


def test_forms_stand_in_each_other_and_no_deeper_than_two():
    found = [nested(draw(7, number).nodes) for number in range(80)]
    assert {1, 2} <= {*found} <= {0, 1, 2}


def test_what_may_not_stand_in_a_shard_map_is_not_drawn_there():
    inside = Level(1, [], [], (("x", 2),), within=True)
    assert {*forms.shares(inside)} == {"vmap", "remat", "map"}
    assert forms.shares(Level(2, [], [], ())) == {}
    assert {*forms.shares(Level(1, [], [], ()))} == {*forms.FORMS} == {*forms.SHARES}


@pytest.mark.parametrize("op", ["custom_vjp", "remat"])
def test_a_gradient_goes_through(op):
    made = squared(op)
    want = 2 * np.arange(1, 9) ** 2
    assert np.array_equal(oracles.compute_truth(made).results[0], want)
    assert oracles.judge(made, ("auto", "explicit")) == []


def test_a_wrong_rule_is_seen(monkeypatch):
    """The gradient is twice as large where the program has a mesh."""
    real = building.FORMS["custom_vjp"]

    def wrong(builder, node, value, values):
        x = real(builder, node, value, values)
        return 2 * x - jax.lax.stop_gradient(x) if builder.mesh else x

    monkeypatch.setitem(building.FORMS, "custom_vjp", wrong)
    (found,) = oracles.judge(squared("custom_vjp"), ("auto",))
    assert (found.kind, found.what) == ("numbers", "factor 2")


def test_its_script_runs(tmp_path):
    made = squared("custom_vjp")
    text = scripts.write_script(made, "auto", ["A rule"], oracles.compute_truth(made).results)
    assert "jax.custom_vjp(body0)" in text
    (tmp_path / "rule.py").write_text(text)
    done = subprocess.run([sys.executable, tmp_path / "rule.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("name", ["einsum", "several_products", "scores"])
def test_a_contraction_of_five_dimensions_misses(name):
    """It once ended the drawing: there were letters for four dimensions."""
    drawing = Drawing(1, 1)
    drawing.axes, drawing.random = (("x", 2),), random.Random(3)
    drawing.fresh((2, 2, 2, 2, 2), "float32")
    for _ in range(20):
        with pytest.raises(Miss):
            KINDS[name].draw(forms.choices(drawing, Level(0, drawing.values, drawing.nodes, ())))


def test_light_compiling_gives_the_same_and_sees_the_same(monkeypatch):
    made = draw(3, 4)
    full = oracles.compute_truth(made).results
    assert oracles.compiler_options() is None
    with oracles.compile_by(light=True):
        assert oracles.compiler_options() == oracles.LIGHT
        light = oracles.compute_truth(made).results
        assert all(np.array_equal(a, b) for a, b in zip(full, light, strict=True))
        monkeypatch.setattr(oracles, "run_program", lambda p, mode: [jax.device_put(r + 1) for r in full])
        assert [d.kind for d in oracles.judge(made, ("auto",))] == ["numbers"]
    assert oracles.compiler_options() is None
