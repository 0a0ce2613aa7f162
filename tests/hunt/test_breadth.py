# SPDX-License-Identifier: Apache-2.0
"""The generator draws every public function of arrays, or a reason says why not; and what it draws is right."""

import inspect
import random
import subprocess
import sys
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshmark.hunt import (
    accelerators,
    forms,
    functions,
    levels,
    oracles,
    pointwise,
    scripts,
    windows,
)
from meshmark.hunt.drawing import KINDS, Draw, Miss, Value
from meshmark.hunt.generator import Drawing, draw
from meshmark.hunt.levels import Level
from meshmark.program_data import building
from meshmark.program_data.building import Builder
from meshmark.program_data.program import Body, Input, Node, Program, Transform, walk_nodes

PLACES = {
    **{"jnp": jnp, "lax": lax, "nn": jax.nn, "jnp.fft": jnp.fft},
    **{"jnp.linalg": jnp.linalg, "lax.linalg": lax.linalg, "jax.ops": jax.ops},
}
"""The modules whose public functions are drawn."""

LEFT_OUT = {
    "array_repr array_str broadcast_shapes can_cast einsum_path get_printoptions iscomplexobj isdtype isrealobj"
    " isscalar issubdtype iterable ndim printoptions promote_types result_type shape size set_printoptions dtype"
    " axis_size conv_dimension_numbers conv_general_permutations padtype_to_pads conv_general_shape_tuple"
    " conv_shape_tuple conv_transpose_shape_tuple shape_as_value reduce_window_shape_tuple"
    " ConvGeneralDilatedDimensionNumbers PrecisionLike get_scaled_dot_general_config"
    " DotDimensionNumbers after_all create_token dce_sink stage": "it gives no array",
    "from_dlpack frombuffer fromfile fromiter fromstring load save savez": "it reads or writes files or memory",
    "empty empty_like rng_uniform rng_bit_generator": "its values are not defined",
    "approx_max_k approx_min_k": "it is approximate by definition",
    "eig eigvals hessenberg householder_product ormqr schur tridiagonal roots polyfit polydiv": "its result has free"
    " signs, a free order or a bad condition",
    "custom_linear_solve custom_root composite platform_dependent fromfunction frompyfunc vectorize mask_indices": "it"
    " takes Python functions",
    "trim_zeros": "the size of its result depends on values",
    "cond fori_loop map scan switch while_loop with_sharding_constraint": "it is a form, under another name",
    "ragged_all_to_all psum_scatter_start pcast psend precv": "it has no meaning on one device yet",
    "scaled_dot scaled_dot_general scaled_matmul ragged_dot_general pbroadcast": "CPUs don't have it",
    "lu_pivots_to_permutation": "it takes no array of numbers",
    "block": "it takes lists, which are tuples in the data of a program",
}
"""The public functions that the generator does not draw, by the reason."""


def list_public():
    """The public functions, without those that are another name of a function."""
    seen, found = {}, []
    for place, module in PLACES.items():
        for name in sorted(dir(module)):
            function = getattr(module, name)
            if (
                name.startswith("_")
                or name.endswith("_p")
                or not callable(function)
                or inspect.isclass(function)
            ):
                continue
            if id(function) not in seen:
                found.append(f"{place}.{name}")
            seen.setdefault(id(function), []).append(f"{place}.{name}")
    return found, seen


def walk_names(expression):
    """The operations, functions and calls in a node or an expression."""
    if isinstance(expression, Node):
        yield expression.op
        yield from walk_names([*expression.args, *expression.kwargs.values()])
    elif isinstance(expression, dict):
        yield from (expression[key] for key in ("name", "call") if key in expression)
        yield from walk_names([*expression.values()])
    elif isinstance(expression, (list, tuple)):
        for item in expression:
            yield from walk_names(item)


SHAPES = ((4,), (6, 4), (2, 6, 3), (2, 6, 4, 4), (3,), (8, 8), (2, 2, 2), (4, 1))
TYPES = ("float32", "float32", "int32", "uint8", "bool", "uint32", "complex64")


def find_reach(kind, tries):
    """The names of all functions that a kind draws in so many tries."""
    found = set()
    for number in range(tries):
        drawing = Drawing(1, number)
        drawing.random = random.Random(f"{kind.name}/{number}")
        drawing.axes = (("x", 2),)
        level = Level(0, drawing.values, drawing.nodes, drawing.axes if kind.family == "collective" else ())
        for dtype in drawing.random.sample(TYPES, drawing.random.choice([2, 4])):
            drawing.fresh(drawing.random.choice(SHAPES), dtype)
        try:
            node = kind.draw(Draw(drawing.random, level.values, drawing.fresh, drawing.axes, level.manual))
        except Miss:
            continue
        found |= {*walk_names(node)}
    return found


@cache
def list_drawn_by_kind():
    """The names of all functions that each kind draws."""
    return {name: find_reach(k, 4000 if name.endswith("_function") else 400) for name, k in KINDS.items()}


def list_drawn():
    """The names of all functions that the kinds draw."""
    return set().union(*list_drawn_by_kind().values())


def test_every_public_function_is_drawn_or_left_out_with_a_reason():
    public, aliases = list_public()
    known = {name for names in LEFT_OUT for name in names.split()}
    drawn = list_drawn()
    same = {name: names for names in aliases.values() for name in names}
    missing = [n for n in public if drawn.isdisjoint(same[n]) and n.rpartition(".")[2] not in known]
    assert not missing
    every = {n.rpartition(".")[2] for names in aliases.values() for n in names}
    assert not {n for n in known if n in every} & {n.rpartition(".")[2] for n in drawn} - {
        "scan",
        "map",
        "cond",
    }


def test_the_kinds_of_convolutions_are_those_that_draw_them():
    found = {name for name, names in list_drawn_by_kind().items() if names & accelerators.CONVOLUTIONS}
    assert found == accelerators.KINDS


def test_a_function_that_nothing_draws_is_seen(monkeypatch):
    monkeypatch.setattr(jnp, "brand_new", lambda x: x, raising=False)
    with pytest.raises(AssertionError, match=r"jnp\.brand_new"):
        test_every_public_function_is_drawn_or_left_out_with_a_reason()


ROWS = [
    (name, operands, rows is not functions.ROUNDED and rows is not functions.ROUGH)
    for rows in (functions.EXACT, functions.STEPS, functions.ROUNDED, functions.ROUGH)
    for name, operands in functions.list_functions(rows)
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "operands", "exact"), ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_function_is_finite_in_its_domain_and_exact_if_it_says_so(name, operands, exact):
    """For every type of its operands, for integers from -40 to 40."""
    row = functions.Row(operands, name)
    dtypes = [
        t
        for t in ("float32", "int32", "bool", "complex64")
        if pointwise.accepts(operands[0], Value(None, (8,), t))
    ]
    for dtype in dtypes:
        drawing = Drawing(1, 1)
        drawing.axes = (("x", 2),)
        level = Level(0, drawing.values, drawing.nodes, ())
        values = {"kind": "data", "data": [0, 1, 2, 3, -1, -3, 40, -40]}
        for seed in range(len(operands)):
            drawing.fresh(
                (8,), dtype, values if not seed else {"kind": "ints", "low": -9, "high": 9, "seed": seed}
            )
        d = Draw(drawing.random, level.values, None, drawing.axes)
        drawing.add(level, pointwise.draw_function(d, (row,)))
        assert drawing.nodes[-1].op == name or any(n.op == name for n in drawing.nodes)
        made = drawing.finish(level)
        plain = Builder(
            Program(made.axes, made.inputs[: made.given], made.nodes, made.outputs, made.out_specs),
            "plain",
            None,
        )
        for found in plain.function()(*oracles.make_inputs(made)[: made.given]):
            assert np.isfinite(np.asarray(found, np.complex128)).all(), dtype
            if exact and found.dtype.kind == "f":
                assert (np.asarray(found) == np.round(found)).all(), dtype


def test_a_wrong_domain_and_a_wrong_exactness_are_seen():
    with pytest.raises(AssertionError):
        test_a_function_is_finite_in_its_domain_and_exact_if_it_says_so("jnp.log", ("float",), False)
    with pytest.raises(AssertionError):
        test_a_function_is_finite_in_its_domain_and_exact_if_it_says_so("jnp.sin", ("float",), True)


def test_an_operation_that_is_an_argument_twice_is_one_operation():
    drawing = Drawing(1, 0)
    drawing.axes = (("x", 2),)
    level = Level(0, drawing.values, drawing.nodes, ())
    a = drawing.fresh((4, 4), "float32")
    places = Node("jnp.tril_indices", (4, -1))
    node = Node("getitem", (a.expression, [Node("item", (places, 0)), Node("item", (places, 1))]))
    assert drawing.add(level, node).shape == (6,)
    assert [n.op for n in drawing.nodes] == ["jnp.tril_indices", "item", "item", "getitem"]
    assert [n.args[1] for n in drawing.nodes[1:3]] == [0, 1]


def test_an_operation_in_an_option_or_in_a_list_is_appended():
    drawing = Drawing(1, 0)
    drawing.axes = (("x", 2),)
    level = Level(0, drawing.values, drawing.nodes, ())
    a = drawing.fresh((4, 4), "float32")
    turned = Node("jnp.flip", (a.expression,), {"axis": 0})
    test = Node("jnp.greater", (a.expression, 0))
    drawing.add(level, Node("jnp.select", ([test], [turned], 7)))
    drawing.add(level, Node("jnp.sum", (a.expression,), {"where": test}))
    assert [n.op for n in drawing.nodes] == [
        "jnp.greater",
        "jnp.flip",
        "jnp.select",
        "jnp.greater",
        "jnp.sum",
    ]


# Collectives -------------------------------------------------------------------------------------------------

V = {"v": 0}
COLLECTIVES = [
    Node("lax.pmean", (V, ["y", "x"])),
    Node("lax.pshuffle", (V, "y", [2, 0, 3, 1])),
    Node("lax.pshuffle", (V, ["x", "y"], [3, 0, 7, 1, 2, 6, 5, 4])),
    Node("lax.pswapaxes", (V, "y", 1)),
    Node("lax.all_to_all", (V, "y", 1, 0)),
]


def mapped(node):
    whole = Input((4, 16), "float32", (("x",), ("y",)))
    rank = 2
    out = [["x"], ["y"], *([] for _ in range(rank - 2))]
    specs = {"in_specs": [[["x"], ["y"]]], "out_specs": [out]}
    return Program(
        (("x", 2), ("y", 4)),
        (whole,),
        (Node("shard_map", (V,), specs, (Body(1, (node,), (1,)),)),),
        (1,),
        (None,),
    )


@pytest.mark.parametrize("node", COLLECTIVES, ids=lambda node: f"{node.op} {node.args[1]}")
def test_the_other_collectives_mean_the_same_on_one_device(node):
    assert oracles.judge(mapped(node), ("auto", "explicit")) == []


def test_a_shuffle_in_the_other_direction_is_seen(monkeypatch):
    monkeypatch.setattr(lax, "pshuffle", lambda x, axis, perm: lax.ppermute(x, axis, list(enumerate(perm))))
    assert [d.kind for d in oracles.judge(mapped(COLLECTIVES[1]), ("auto",))] == ["numbers"]


# Forms -------------------------------------------------------------------------------------------------------

ROW = Input((8,), "float32", (("x",),), {"kind": "count"})


def make_while(bound=20, most=4):
    """Doubles until an element reaches the bound, at most `most` times."""
    test = Body(1, (Node("jnp.less", (V, bound)), Node("jnp.all", ({"v": 1},))), (2,))
    turn = Body(2, (Node("jnp.multiply", ({"v": 1}, 2)),), (2,))
    return Program((("x", 2),), (ROW,), (Node("while", (most, V), {}, (test, turn)),), (1,), (None,))


def make_switch(index):
    which = Input((), "int32", (), {"kind": "data", "data": [index]})
    bodies = (
        Body(1, (Node("jnp.negative", (V,)),), (1,)),
        Body(1, (), (0,)),
        Body(1, (Node("jnp.flip", (V,)),), (1,)),
    )
    nodes = (Node("switch", ({"v": 1}, V), {}, bodies),)
    return Program((("x", 2),), (ROW, which), nodes, (2,), (None,))


COUNT = np.arange(1, 9)
FORMS = {
    "a condition ends the loop": (make_while(20), COUNT * 4),
    "the number of turns ends it": (make_while(1000, 3), COUNT * 8),
    "a first branch": (make_switch(0), -COUNT),
    "an index out of bounds": (make_switch(9), COUNT[::-1]),
}


@pytest.mark.parametrize("what", FORMS)
def test_a_loop_and_a_switch_are_right_and_their_scripts_run(what, tmp_path):
    made, want = FORMS[what]
    assert np.array_equal(oracles.compute_truth(made).results[0], want)
    assert oracles.judge(made, ("auto", "explicit", "eager")) == []
    assert np.array_equal(oracles.run_alone(made)[0], want)
    text = scripts.write_script(made, "auto", [what], [want.astype(np.float32)])
    (tmp_path / "form.py").write_text(text)
    done = subprocess.run([sys.executable, tmp_path / "form.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize(("op", "made"), [("while", make_while()), ("switch", make_switch(0))])
def test_a_wrong_loop_or_switch_is_seen(monkeypatch, op, made):
    """Planted: the partitioned program makes one turn too few, or takes the last branch."""
    real = building.FORMS[op]

    def wrong(builder, node, value, values):
        if builder.mesh and op == "while":
            node = Node(op, (1, node.args[1]), {}, node.bodies)
        if builder.mesh and op == "switch":
            node = Node(op, node.args, {}, node.bodies[::-1])
        return real(builder, node, value, values)

    monkeypatch.setitem(building.FORMS, op, wrong)
    assert [d.kind for d in oracles.judge(made, ("auto",))] == ["numbers"]


def test_a_loop_of_unknown_length_has_no_pullback():
    assert forms.FORMS.keys() == forms.SHARES.keys()
    for number in range(60):
        program = draw(17, number, weights={"while": 20.0, "fori": 20.0})
        dynamic = [n for n in walk_nodes(program.nodes) if n.op == "while"]
        dynamic += [n for n in walk_nodes(program.nodes) if n.op == "fori" and isinstance(n.args[1], dict)]
        assert not dynamic or program.transform != Transform("vjp", program.transform.wrt)


def draw_window_sum(name):
    """A program with a sum over windows of float32, drawn by a kind, and its gradient."""
    for number in range(100):
        drawing = Drawing(1, number)
        drawing.axes = (("x", 2),)
        level = Level(0, drawing.values, drawing.nodes, ())
        drawing.fresh((6, 4), "float32")
        try:
            drawing.add(level, KINDS[name].draw(Draw(drawing.random, level.values, None, drawing.axes)))
        except Miss:
            continue
        if any(n.op == "lax.reduce_window" and n.args[2]["name"] == "lax.add" for n in drawing.nodes):
            made = drawing.finish(level)
            made = replace(made, inputs=made.inputs[:1], transform=Transform("", ()))
            return drawing.transformed(made, "vjp", level.values[-1:])
    raise AssertionError(name)


@pytest.mark.parametrize("name", ["running_window", "uneven_windows", "reduce_window_of_integers"])
def test_a_sum_over_windows_of_float32_has_a_derivative(name):
    made = draw_window_sum(name)
    assert made.transform.kind == "vjp" and oracles.compute_truth(made).results


def test_a_start_that_jax_does_not_know_has_no_derivative(monkeypatch):
    array = {"call": "jnp.array", "kwargs": {"object": 0, "dtype": "float32"}}
    monkeypatch.setattr(windows, "start_sum", lambda a: array)
    with pytest.raises(oracles.Invalid):
        oracles.compute_truth(draw_window_sum("running_window"))


def test_an_operation_without_a_derivative_gets_none():
    with_transform = 0
    for number in range(120):
        program = draw(18, number, weights={"index": 20.0, "custom_vjp": 10.0})
        with_transform += bool(program.transform.kind)
        if program.transform.kind:
            assert levels.NO_DERIVATIVE.isdisjoint(program.operations)
        if program.transform.kind == "jvp":
            assert "custom_vjp" not in program.operations
    assert with_transform
