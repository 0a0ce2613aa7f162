# SPDX-License-Identifier: Apache-2.0
"""The meaning of collectives over several axes, against shard_map; and a mesh with another order of axes."""

import jax
import pytest
from jax import lax

from meshmark.hunt import oracles
from meshmark.program_data.program import Body, Input, Node, Program

ORDERED = tuple(int(n) for n in jax.__version__.split(".")[:2]) >= (0, 11)
"""Whether ppermute refuses axes in another order than the mesh's; before it took the mesh's order without a word."""

CALLS = {
    "all_gather": ({"axis": 1, "tiled": True}, ()),
    "all_gather new": ({"axis": 0}, ()),
    "psum_scatter": ({"scatter_dimension": 1, "tiled": True}, ()),
    "all_to_all": ({"split_axis": 1, "concat_axis": 0, "tiled": True}, ()),
    "ppermute": ({}, ([[0, 5], [1, 0], [2, 4], [3, 1], [4, 2], [5, 3]],)),
    "ppermute some": ({}, ([[0, 5], [4, 2], [3, 3]],)),
}


def program(name, axes):
    """A collective of this call inside shard_map over a mesh of 2 by 3."""
    options, more = CALLS[name]
    node = Node(f"lax.{name.split()[0]}", ({"v": 0}, axes, *more), options)
    whole = ["x", "y"]
    rank = 3 if name == "all_gather new" else 2
    specs = {"in_specs": [[whole, []]], "out_specs": [[whole, *([[]] * (rank - 1))]]}
    mapped = Node("shard_map", ({"v": 0},), specs, (Body(1, (node,), (1,)),))
    inputs = (Input((6, 12), "float32", (("x", "y"), ()), {"kind": "count"}),)
    return Program((("x", 2), ("y", 3)), inputs, (mapped,), (1,), (None,))


@pytest.mark.parametrize("axes", [["x", "y"], ["y", "x"], "y"], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_meaning_is_that_of_the_mesh(name, axes):
    if name.startswith("ppermute") and axes == "y":
        pytest.skip("these permutations are of six")
    if name.startswith("ppermute") and axes == ["y", "x"] and not ORDERED:
        return  # the test below
    assert oracles.judge(program(name, axes), ("auto",)) == []


def test_an_all_to_all_of_what_is_gathered_has_its_type():
    """A gathered value is the same at all places, and vmap's own all_to_all of such a one has a dimension too many."""
    body = (
        Node("lax.all_gather", ({"v": 0}, "x"), {"axis": 0, "tiled": True}),
        Node("lax.all_to_all", ({"v": 1}, "x"), {"split_axis": 0, "concat_axis": 0, "tiled": True}),
    )
    mapped = Node(
        "shard_map", ({"v": 0},), {"in_specs": [[["x"]]], "out_specs": [[["x"]]]}, (Body(1, body, (2,)),)
    )
    inputs = (Input((4,), "float32", (("x",),), {"kind": "count"}),)
    made = Program((("x", 2),), inputs, (mapped,), (1,), (None,))
    assert oracles.compute_truth(made).results[0].shape == (8,)
    assert oracles.judge(made, ("auto",)) == []


def test_an_axis_order_that_jax_ignores_is_seen(monkeypatch):
    """On 0.10.2 by itself; planted on the others."""
    made = program("ppermute", ["y", "x"])
    if not ORDERED:
        (found,) = oracles.judge(made, ("auto",))
        assert found.kind == "numbers"
        return
    real = lax.ppermute
    monkeypatch.setattr(lax, "ppermute", lambda x, axes, perm: real(x, tuple(sorted(axes)), perm))
    (found,) = oracles.judge(made, ("auto",))
    assert found.kind == "numbers"


def test_other_refusals_are_findings(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("no such collective")

    monkeypatch.setattr(lax, "ppermute", refuse)
    assert [d.kind for d in oracles.judge(program("ppermute", ["x", "y"]), ("auto",))] == ["refused"]
