# SPDX-License-Identifier: Apache-2.0
"""The derivative of a program against float64 and against differences of its function."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshmark.hunt import derivatives, differences, oracles
from meshmark.hunt.generator import draw
from meshmark.program_data.building import Builder
from meshmark.program_data.program import Body, Input, Node, Program, Transform

V = {"v": 0}
ROWS = Input((8, 4), "float32", (("x",), ("y",)), {"kind": "ints", "low": -5, "high": 9, "seed": 4})
OTHER = replace(ROWS, fill=ROWS.fill | {"seed": 9})
AXES = (("x", 2), ("y", 4))


def program(*nodes, kind="vjp", inputs=(ROWS, OTHER)):
    return Program(AXES, inputs, nodes, (len(nodes),), (None,), transform=Transform(kind, (0,)))


SQUARE = Node("jnp.multiply", (V, V))
RULED = program(Node("custom_vjp", (V,), {}, (Body(1, (SQUARE,), (1,)),)))
FUNCTIONS = {
    "square": (SQUARE,),
    "cosine": (Node("jnp.cos", (V,)),),
    "cumulative": (Node("lax.cumsum", (V,), {"axis": 0}), Node("jnp.multiply", ({"v": 1}, V))),
    "kink": (Node("jnp.maximum", (V, 0)), Node("jnp.multiply", ({"v": 1}, 3))),
    "sorted": (Node("jnp.sort", (V,)), Node("jnp.multiply", ({"v": 1}, V))),
    "jump": (Node("jnp.floor", (V,)), Node("jnp.multiply", ({"v": 1}, V))),
}


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_derivative_passes_and_one_that_is_too_large_by_a_thousandth_is_seen(name, kind, monkeypatch):
    made = program(*FUNCTIONS[name], kind=kind)
    assert oracles.judge(made, (oracles.DERIVATIVE,)) == []
    real = Builder.function

    def function(self, keep=False):
        plain = real(self, keep)
        if keep or not self.program.transform.kind:
            return plain
        return lambda *given: (*(r * 1.001 for r in plain(*given)),)

    monkeypatch.setattr(Builder, "function", function)
    (found,) = oracles.judge(made, (oracles.DERIVATIVE,))
    assert (found.mode, found.kind) == (oracles.DERIVATIVE, "oracles") and "by differences" in found.text


def test_a_wrong_rule_of_a_function_is_seen_here_alone(monkeypatch):
    """Planted: a rule of differentiation that forgets a factor. All shardings and the unsharded program share it."""

    def forget(builder, node, value, values):
        function = jax.custom_vjp(lambda x: x * x)
        function.defvjp(lambda x: (x * x, x), lambda x, cotangent: (x * cotangent,))
        return function(*map(value, node.args))

    modes = ("auto", "explicit", "manual", "eager", oracles.DERIVATIVE)
    assert oracles.judge(RULED, modes) == []
    monkeypatch.setitem(Builder.node.__globals__["FORMS"], "custom_vjp", forget)
    (found,) = oracles.judge(RULED, modes)
    assert found.mode == oracles.DERIVATIVE


def test_a_derivative_that_float32_alone_has_wrong_is_seen(monkeypatch):
    """Planted: the program's own compilation has one wrong element; its rule is right."""
    real = oracles.compute_truth

    def wrong(made, device=None):
        truth = real(made, device)
        truth.results[0] = truth.results[0].copy()
        truth.results[0][3, 1] += 1
        return truth

    monkeypatch.setattr(oracles, "compute_truth", wrong)
    (found,) = oracles.judge(program(SQUARE), (oracles.DERIVATIVE,))
    assert "differs from the derivative in float64: 1 of 32, at (3, 1)" in found.text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats_become_float64(dtype):
    cast = Node("jnp.astype", (V, dtype))
    made = program(cast, Node("jnp.multiply", ({"v": 1}, {"v": 1})))
    wide = derivatives.widen(replace(made, inputs=tuple(replace(i, dtype=dtype) for i in made.inputs)))
    assert wide.x64 and {i.dtype for i in wide.inputs} == {"float64"} and wide.nodes[0].args[1] == "float64"


def test_differences_know_their_error():
    sine = derivatives.differentiate(lambda t: float(np.sin(1 + 3 * t)))
    assert abs(sine.value - 3 * np.cos(1)) < 1e-9 and sine.says_something
    assert derivatives.differentiate(lambda t: 5.0).says_something, "a constant has the slope 0"


@pytest.mark.parametrize(
    "function",
    [
        lambda t: abs(t - derivatives.STEPS[0] / 2),
        lambda t: float(t > 0),
        lambda t: float(np.sin(5e7 * t + 1)),
        lambda t: float("nan"),
    ],
    ids=["corner", "jump", "oscillation", "not a number"],
)
def test_differences_say_nothing_where_a_function_has_no_slope_at_their_scale(function):
    assert not derivatives.differentiate(function).says_something


def test_a_place_between_integers_has_no_ties():
    (found,) = derivatives.shift([np.full((50,), 3.0)], 1)
    assert len(set(found.tolist())) == 50 and ((found > 3.04) & (found < 3.46)).all()
    whole = np.arange(3)
    assert derivatives.shift([whole], 1)[0] is whole, "an index stays one"


def test_a_derivative_that_float64_can_not_compute_is_counted(monkeypatch):
    def refused(program):
        raise TypeError("no such dtype")

    monkeypatch.setattr(derivatives, "compute_wide", refused)
    left = []
    assert oracles.judge(program(SQUARE), ("derivative",), None, left) == []
    assert left == ["a derivative in float64 (TypeError)"]


def test_programs_without_a_derivative_or_with_special_values_are_left():
    special = replace(program(SQUARE), inputs=(replace(ROWS, fill={"kind": "special", "seed": 1}), OTHER))
    for made in (replace(program(SQUARE), transform=Transform(), inputs=(ROWS,)), special):
        known = differences.Truth([], 1.0)
        with pytest.raises(oracles.Inapplicable):
            oracles.compare_with_slope(made, known, False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_rounding_of_narrow_floats_is_no_difference(dtype):
    """Products of small integers whose sums a narrow float does not hold."""
    reach = 40 if dtype == "bfloat16" else 9
    many = {"kind": "ints", "low": -reach, "high": reach, "seed": 3}
    inputs = tuple(replace(i, dtype=dtype, fill=many) for i in (ROWS, OTHER))
    squares = Node("jnp.einsum", ("ab,cb->ac", V, V))
    made = program(squares, Node("jnp.einsum", ("ac,cb->ab", {"v": 1}, V)), inputs=inputs)
    assert oracles.judge(made, (oracles.DERIVATIVE,)) == []


def test_a_derivative_that_is_stopped_is_left():
    stopped = program(Node("lax.stop_gradient", (V,)), Node("jnp.multiply", ({"v": 1}, V)))
    assert derivatives.find_wrong_slope(stopped), "it is not the derivative of the function"
    assert oracles.judge(stopped, (oracles.DERIVATIVE,)) == []


def test_most_drawn_derivatives_are_judged_and_right(monkeypatch):
    """The differences say something of most drawn programs: a derivative with a wrong sign is seen."""
    monkeypatch.setattr("meshmark.hunt.generator.TRANSFORMS", {"": 0.0, "vjp": 0.8, "jvp": 0.2})
    judged = seen = 0
    real = Builder.function

    def negative(self, keep=False):
        plain = real(self, keep)
        if keep or not self.program.transform.kind:
            return plain
        return lambda *given: tuple(-r if jnp.issubdtype(r.dtype, jnp.floating) else r for r in plain(*given))

    for number in range(30):
        drawn = draw(31, number)
        if not drawn.transform.kind:
            continue
        try:
            wrong = derivatives.find_wrong_slope(drawn)
        except Exception:  # not in float64
            continue
        assert not wrong, number
        judged += 1
        with monkeypatch.context() as patch:
            patch.setattr(Builder, "function", negative)
            seen += bool(derivatives.find_wrong_slope(drawn))
    assert judged >= 5 and seen >= 0.7 * judged
