# SPDX-License-Identifier: Apache-2.0
"""Every kind of operation is drawn, has types that JAX accepts, and rounds only if it declares that."""

import random

import jax
import pytest

from meshmark.hunt.drawing import KINDS, ROUNDING, Kind, Miss, Value
from meshmark.hunt.generator import Drawing, Level
from meshmark.hunt.rules import reduce_devices
from meshmark.program_data.building import Builder, mesh_of
from meshmark.program_data.program import Body, Input, Node, Program
from meshmark.program_data.values import make_inputs

SHAPES = ((4,), (6, 4), (2, 6, 3), (2, 6, 4, 4))
TYPES = ("float32", "float32", "int32", "uint8", "bool", "uint32", "complex64")


def tried(kind: Kind, tries: int = 60) -> list[str]:
    """The operations of the first program that this kind gives alone; [] if it gives none in so many tries."""
    for number in range(tries):
        drawing = Drawing(1, number)
        drawing.random = random.Random(f"{kind.name}/{number}")
        drawing.axes = (("x", 2),)
        level = Level(0, drawing.values, drawing.nodes, drawing.axes if kind.family == "collective" else ())
        for dtype in drawing.random.sample(TYPES, 3):
            drawing.fresh(drawing.random.choice(SHAPES), dtype)
        drawing.kind = lambda manual: kind
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("meshmark.hunt.forms.SHARES", {})
            drawing.step(level)
        if drawing.nodes:
            return [node.op for node in drawing.nodes]
    return []


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_gives_an_operation_that_jax_accepts(name):
    kind = KINDS[name]
    operations = tried(kind)
    assert operations
    assert kind.rounds or ROUNDING.isdisjoint(operations)


def test_a_kind_that_never_fits_is_seen():
    def never(draw):
        raise Miss

    assert tried(Kind("never", never, "edge"), tries=3) == []


def test_a_kind_that_jax_refuses_is_seen():
    def refused(draw):
        node = KINDS["matmul"].draw(draw)
        return type(node)("lax.dot", (node.args[0], {"name": "lax.add"}))

    assert tried(Kind("refused", refused, "dot"), tries=3) == []


def test_an_all_to_all_has_the_type_that_it_has_over_devices():
    drawing = Drawing(1, 0)
    drawing.axes = (("x", 2),)
    level = Level(1, [Value({"v": ("input", 0)}, (4, 2), "float32")], [], drawing.axes)
    options = {"split_axis": 0, "concat_axis": 1, "tiled": True}
    node = Node("lax.all_to_all", ({"v": ("input", 0)}, "x"), options)
    assert level.infer(drawing, node).shape == (2, 4)


def test_a_constraint_in_a_body_leaves_manual_axes_alone():
    """And its axes go with the mesh where a program is made smaller."""
    body = Body(
        1,
        (Node("constrain", ({"v": 0}, [["y"], []]), {"inside": True}), Node("jnp.add", ({"v": 1}, 1))),
        (2,),
    )
    mapped = Node(
        "shard_map",
        ({"v": 0},),
        {"in_specs": [[["x"], []]], "out_specs": [[["x"], []]], "axes": ["x"]},
        (body,),
    )
    made = Program((("x", 2), ("y", 2)), (Input((4, 2), "float32", (("x",), ())),), (mapped,), (1,), (None,))
    found = jax.jit(Builder(made, "auto", mesh_of(made, jax.devices())).function())(*make_inputs(made))
    assert found[0].tolist() == (make_inputs(made)[0] + 1).tolist()
    (smaller,) = [p for p in reduce_devices(made) if p.axes == (("x", 2),)]
    assert smaller.nodes[0].bodies[0].nodes[0].args[1] == [[], []]
