# SPDX-License-Identifier: Apache-2.0
"""What the generator draws has a reference in NumPy that agrees with JAX, or a reason why it has none."""

import random
from dataclasses import replace

import jax
import numpy as np
import pytest

from meshmark.hunt import differences, oracles
from meshmark.hunt.drawing import KINDS, Draw, Miss
from meshmark.hunt.generator import Drawing
from meshmark.hunt.levels import Level
from meshmark.program_data import definitions
from meshmark.program_data.building import Builder
from meshmark.program_data.lanes import COLLECTIVES
from meshmark.program_data.program import Transform
from meshmark.program_data.values import make_inputs
from tests.hunt.test_breadth import SHAPES, TYPES, list_drawn

WITHOUT = {
    "jnp.apply_along_axis jnp.apply_over_axes jnp.piecewise": "takes a function of arrays",
    "jnp.polymul nn.dot_product_attention jax.image.resize": "a reference would be as long as an interpreter",
    "jnp.sort_complex jnp.partition jnp.argpartition": "NumPy's order of complex numbers, or of parts, is another one",
    "lax.linalg.lu lax.linalg.qr lax.linalg.qdwh lax.linalg.eigh lax.linalg.cholesky_update"
    " lax.linalg.tridiagonal_solve lax.linalg.triangular_solve": "NumPy has no such factorization",
    "lax.reduce_precision lax.bitcast_convert_type jnp.packbits jnp.unpackbits": "works on bits",
    "lax.igamma_grad_a lax.random_gamma_grad": "SciPy has no such derivative",
    "jnp.unique_all jnp.unique_counts jnp.unique_inverse": "JAX fills up their parts in several ways",
    "jnp.array lax.GatherDimensionNumbers lax.ScatterDimensionNumbers": "an argument, not an operation",
    "jax.random.permutation jax.random.randint": "random",
}
"""What has no reference, by the reason."""


def test_what_is_drawn_has_a_reference_or_a_reason():
    reasons = {name for names in WITHOUT for name in names.split()}
    defined = {*definitions.DEFINITIONS, *definitions.FORMS, *COLLECTIVES, "lax.axis_index"}
    assert not list_drawn() - defined - reasons
    assert not reasons & defined


def draw_programs(name, count, tries=100):
    """Programs without a transform, of one operation that this kind draws. All their parts have a reference."""
    found = []
    for number in range(tries):
        drawing = Drawing(1, number)
        drawing.random = random.Random(f"{name}/{number}")
        drawing.axes = (("x", 2),)
        level = Level(0, drawing.values, drawing.nodes, ())
        for dtype in drawing.random.sample(TYPES, 3):
            drawing.fresh(drawing.random.choice(SHAPES), dtype)
        try:
            drawing.add(
                level, KINDS[name].draw(Draw(drawing.random, level.values, drawing.fresh, drawing.axes))
            )
            made = drawing.finish(level)
        except Miss:
            continue
        given = made.inputs[: made.given] if made.transform.kind else made.inputs
        if all(node.op in definitions.DEFINITIONS for node in made.nodes):
            found.append(replace(made, transform=Transform("", ()), inputs=given))
        if len(found) == count:
            break
    return found


def compare(program):
    """What differs between JAX, operation by operation on one device, and the references; None if nothing does."""
    run = Builder(program, "plain", None).function()
    given = make_inputs(program)
    found = [np.asarray(x) for x in run(*map(jax.numpy.asarray, given))]
    largest = max(float(np.abs(np.asarray(x, np.complex128)).max(initial=0)) for x in (*found, *given))
    try:
        return oracles.compare_with_definition(
            program, differences.Truth(found, largest), oracles.rounds(program)
        )
    except oracles.Inapplicable:
        return None


OF_ONE_DEVICE = [name for name, kind in KINDS.items() if kind.family not in ("collective", "random")]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", OF_ONE_DEVICE)
def test_a_reference_agrees_with_jax(name):
    count = 24 if name.endswith("function") else 3
    for program in draw_programs(name, count):
        assert compare(program) is None, program.nodes


@pytest.mark.parametrize(
    ("kind", "op", "wrong"),
    [
        ("moved_by_name", "jnp.rollaxis", lambda x, at, to: np.rollaxis(x, at, to) + 1),
        ("rounded_function", "nn.silu", lambda x: x),
        (
            "norms",
            "jnp.linalg.norm",
            lambda x, ord=None, axis=None, keepdims=False: np.abs(x).max(axis, keepdims=keepdims),
        ),
    ],
)
def test_jax_that_differs_from_a_reference_is_seen(monkeypatch, kind, op, wrong):
    """As if the reference were right: for exact and for rounded functions."""
    programs = [p for p in draw_programs(kind, 300, 300) if op in p.operations]
    assert programs and not any(map(compare, programs))
    monkeypatch.setitem(definitions.DEFINITIONS, op, wrong)
    assert any(found and found.kind == "oracles" for found in map(compare, programs))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("index", [2, -3, 9, [[1, 9], [-7, 0]]])
@pytest.mark.parametrize(
    "options", [{"mode": "fill"}, {"mode": "fill", "axis": 1}, {"mode": "wrap"}, {"mode": "clip"}]
)
def test_take_has_the_value_that_jax_has_outside_of_an_array(dtype, index, options):
    x, at = np.arange(20).reshape(4, 5).astype(dtype), np.array(index, np.int32)
    seen = np.asarray(jax.numpy.take(x, at, **options))
    np.testing.assert_array_equal(definitions.DEFINITIONS["jnp.take"](x, at, **options), seen)
