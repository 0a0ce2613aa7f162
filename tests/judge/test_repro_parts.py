# SPDX-License-Identifier: Apache-2.0
"""The parts of the scripts: folded functions, formulas, literals, and a printer that does not know cases."""

import ast
import itertools

import ml_dtypes
import numpy as np
import pytest

from meshmark.judge.repro import printer
from meshmark.judge.repro.folding import Known, fold, literal_known
from meshmark.judge.repro.formulas import agrees, formula
from meshmark.judge.repro.literals import array_literal, unparse, up
from meshmark.judge.repro.printer import Contract, Input, Mesh, Output, Script, render
from meshmark.judge.repro.sources import tree_of
from tests.scripts import Scripts

# Folding


def helper(x, by):
    return x + by if by else x


def several(x, by):
    y = x * by
    return y + y


def folded(function, **known):
    given = {k: v if isinstance(v, Known) else literal_known(v) for k, v in known.items()}
    found = fold(function, tree_of(function), given, tree_of)
    text = f"def f({', '.join(found.parameters)}):\n" + "\n".join(f"    {unparse(s)}" for s in found.body)
    space = {"np": np, "helper": helper, "several": several}
    exec(text, space)
    return space["f"], text


def test_branches_that_are_not_taken_go():
    def f(x, *, groups, axes):
        if groups:
            return x[0]
        return x + (axes[0] if groups else len(axes))

    function, text = folded(f, groups=None, axes=("x", "y"))
    assert text == "def f(x):\n    return x + 2" and function(1) == 3


def test_known_statements_go_and_others_keep_their_order():
    def f(x, *, n):
        half = n // 2
        y = x + half
        y = y * half
        if half > 1:
            y -= 1
        return y

    function, text = folded(f, n=4)
    assert "half" not in text and "if" not in text
    assert function(3) == f(3, n=4)


def test_a_list_that_grows_is_not_taken_for_known():
    def f(x):
        found = []
        found.append(x)
        return found[-1]

    assert folded(f)[0](5) == 5


def test_what_is_changed_in_place_is_not_moved():
    def f(x):
        before = x.sum()
        x[0] = 0
        return before

    assert folded(f)[0](np.ones(3)) == 3


def test_a_call_of_one_expression_is_inlined_and_another_stays():
    def f(x):
        return helper(x, 3) + several(x, 2) + helper(x, 0)

    function, text = folded(f)
    assert "helper" not in text and "several" in text and function(1) == f(1)


def recursive(x, n):
    return x if n == 0 else recursive(x + 1, n - 1)


def test_a_recursive_call_ends():
    assert folded(recursive, n=Known(2, "2"))[1].count("recursive(") == 1


def test_names_of_an_inner_function_hide_what_is_known():
    def f(x, *, n):
        return [(lambda n: n + 1)(v) for v in (x, n)]

    assert folded(f, n=5)[0](1) == [2, 6]


# Formulas


GIVEN = np.arange(2 * 4 * 6, dtype=np.float32).reshape(2, 4, 6) + 1


@pytest.mark.parametrize(
    ("wanted", "expression"),
    [
        (GIVEN, "x"),
        (GIVEN.reshape(8, 6), "x.reshape(8, 6)"),
        (GIVEN.sum(axis=1), "x.sum(axis=1)"),
        (GIVEN.max(axis=0, keepdims=True), "x.max(axis=0, keepdims=True)"),
        (GIVEN.transpose(2, 0, 1), "x.transpose(2, 0, 1)"),
        (
            GIVEN.reshape(2, 2, 2, 6).transpose(2, 0, 1, 3).reshape(8, 6),
            "reshape(4, 2, 6).transpose(1, 0, 2)",
        ),
        (np.roll(GIVEN, 1, axis=1), "np.roll(x, 1, axis=1)"),
        (GIVEN[:, [1, 0, 3, 2]], "[:, [1, 0, 3, 2]]"),
        (np.broadcast_to(GIVEN.sum(axis=0), (5, 4, 6)), "np.broadcast_to("),
    ],
)
def test_a_formula_is_found_and_holds(wanted, expression):
    found = formula("x", GIVEN, wanted)
    assert expression in found
    assert agrees(eval(found, {"np": np, "x": GIVEN}), np.ascontiguousarray(wanted))


def test_zeros_between_slices_are_found_by_the_positions_of_elements():
    wanted = np.concatenate([GIVEN[:, 2:], np.zeros_like(GIVEN[:, :2])], axis=1)
    positions = np.where(wanted > 0, wanted - 1, -1).astype(np.int64)
    found = formula("x", GIVEN, wanted, positions)
    assert "np.zeros_like(" in found and agrees(eval(found, {"np": np, "x": GIVEN}), wanted)


@pytest.mark.parametrize(
    ("given", "wanted"), [((16,), ()), ((16,), (8,)), ((1,), ()), ((1, 1), ()), ((1,), (4, 2))]
)
def test_a_formula_may_pass_through_a_number(given, wanted):
    # 1 dimension has a sum of no dimensions, and NumPy refuses x.reshape().
    x = np.arange(np.prod(given), dtype=np.uint32).reshape(given) + 3
    result = np.full(wanted, x.sum(dtype=x.dtype))
    assert agrees(np.asarray(eval(formula("x", x, result), {"np": np, "x": x})), result)
    assert formula("x", x, result + 1) == ""


def test_no_formula_is_claimed_for_what_none_gives():
    wrong = GIVEN.sum(axis=1)
    wrong[0, 0] = np.nextafter(wrong[0, 0], 0)
    assert formula("x", GIVEN, wrong) == ""
    assert formula("x", GIVEN, GIVEN.astype(np.float64)) == ""
    assert formula("x", GIVEN[:0], GIVEN[:0]) == ""


def test_repeated_values_are_no_reason_to_err():
    given = np.array([[1, 1, 2], [2, 1, 1]], np.int32)
    for order in itertools.permutations(range(3)):
        wanted = np.ascontiguousarray(given[:, list(order)])
        found = formula("x", given, wanted)
        assert not found or agrees(eval(found, {"np": np, "x": given}), wanted)


# Literals


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, -2.5, 3e-40], np.float32),
        np.array([[1, 2], [3, 4]], np.int8),
        np.array([True, False]),
        np.array([1.5, 3.0], ml_dtypes.bfloat16),
        np.array([1 + 2j], np.complex64),
        np.array([-0.0, np.inf, -np.inf, np.nan], np.float32),
        np.array(7.0, np.float64),
        np.full((3, 3), 5, np.int32),
    ],
)
def test_a_literal_keeps_each_bit(array):
    text = array_literal(array)
    assert text and agrees(eval(text, {"np": np, "ml_dtypes": ml_dtypes}), array)


def test_a_nan_with_a_payload_and_a_large_array_are_not_written_out():
    odd = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert array_literal(odd) == "" and array_literal(np.zeros(33)) == ""


def test_a_bound_is_rounded_up():
    for bound in (1.23456e-7, 9.999e-3, 1.0, 0.0, 5e-324):
        assert float(up(bound)) >= bound


# The printer, for a program of nobody's table


def program(**changes):
    told = {
        "heading": ("Twice the input.",),
        "mesh": Mesh((2,), ("x",), 2),
        "inputs": (Input("x", ("x = np.arange(4, dtype=np.float32)",), ("x",)),),
        "outputs": (Output("np.float32", 4, ("x",)),),
        "expected": ("expected = 2 * x",),
        "function": "lambda x: x + x",
    }
    return Script(**(told | changes))


@pytest.fixture(scope="module")
def run():
    """Runs a script where the suite can't be imported."""
    with Scripts() as scripts:
        yield scripts.run


def test_a_generated_program_is_printed_and_runs(run, tmp_path):
    text = render(program())
    assert len(text.splitlines()) < 40
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"function": "lambda x: x + 1"}, "expected 0.0, seen 1.0"),
        ({"outputs": (Output("np.float32", 4, ()),), "out_shardings": False}, "sharding:"),
        ({"outputs": (Output("np.float32", 4, ("x",), "bits"),), "expected": ("expected = -0.0 * x",),
          "function": "lambda x: 0 * x"}, "expected -0.0, seen 0.0"),
        ({"outputs": (Output("np.float32", 4, ("x",), "bound", "1e-3"),), "function": "lambda x: 2 * x + 0.01"},
         "expected 0.0, seen 0.0"),
        ({"contract": Contract("", ("good &= False",))}, "DIFFERENT"),
    ],
)  # fmt: skip
def test_what_is_wrong_exits_1(run, tmp_path, changes, told):
    done = run(render(program(**changes)), tmp_path)
    assert done.returncode == 1 and told in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_shard_that_is_not_shown_is_noticed(run, tmp_path):
    text = render(program(checks=(printer.NUMBERS,)))
    assert text.count("out = program(placed)\n") == 1
    on_one = "out = jax.device_put(program(placed), jax.devices()[0])\n"
    done = run(text.replace("out = program(placed)\n", on_one), tmp_path)
    assert done.returncode == 1 and "in 1 shards" in done.stdout, done.stdout + done.stderr


def test_results_of_different_dtypes_are_compared_each_in_its_own(run, tmp_path):
    changes = {
        "function": "lambda x: (x, x > 1)",
        "outputs": (Output("np.float32", 4, ("x",), "bits"), Output("bool", 1, ("x",), "bits")),
        "expected": ("expected = [x, x > 1]",),
    }
    assert run(render(program(**changes)), tmp_path).returncode == 0
    for wrong in ("expected = [x, x > 2]", "expected = [x, (x > 1).astype(np.int8)]"):
        done = run(render(program(**changes)).replace("expected = [x, x > 1]", wrong), tmp_path)
        assert (done.returncode == 1) is ("x > 2" in wrong), done.stdout + done.stderr


def test_several_results_and_modes(run, tmp_path):
    both = (Output("np.float32", 4, ("x",)), Output("np.float32", 4, ()))
    text = render(
        program(
            mode="shard_map",
            function="lambda x: (x + x, jax.lax.psum(x, 'x'))",
            in_specs=(("x",),),
            out_specs=(("x",), ()),
            outputs=both,
            expected=("expected = [2 * x, x[:2] + x[2:]]",),
            out_shardings=False,
        )
    )
    assert run(text, tmp_path).returncode == 0
    assert run(text.replace("x[:2] + x[2:]", "x[:2]"), tmp_path).returncode == 1


def test_an_exception_alone_needs_nothing_expected(run, tmp_path):
    text = render(program(checks=(printer.EXECUTE,)))
    assert "expected = " not in text and run(text, tmp_path).returncode == 0
    ast.parse(text)
