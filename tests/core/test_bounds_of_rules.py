# SPDX-License-Identifier: Apache-2.0
"""Each rule of derived bounds: every term is needed, functions without a rule raise, rounding may turn comparisons."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from meshmark.core.bounds import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    Arithmetic,
    Bounded,
    Decision,
    bounded,
    error,
    value,
)
from tests.core.rounded import Narrow, Real

# No term can go: each is, alone, nearly attained.

EXACT = Arithmetic(2.0**-60, 2.0**-60, 0.0, elementary=1.0)
rng = np.random.default_rng(0)
A, B = rng.integers(1, 8, (3, 8)) * 1.0, rng.integers(1, 8, (8, 5)) * 1.0


def scatter(target, rows):
    target = target + 0.0
    np.add.at(target, np.array([2, 0, 2]), rows)
    return target


# A function; its operands; its own roundings in units of u; how often it can lose `tiny`.
RULES = {
    "add": (np.add, (3.0, 2.0), 1, 1),
    "subtract": (np.subtract, (3.0, -2.0), 1, 1),
    "multiply": (np.multiply, (3.0, 2.0), 1, 1),
    "divide": (np.divide, (3.0, 2.0), 4, 1 + 3.0),
    "negative": (np.negative, (3.0,), 0, 0),
    "absolute": (np.absolute, (-3.0,), 0, 0),
    "positive": (np.positive, (3.0,), 0, 0),
    "square": (np.square, (3.0,), 1, 1),
    "power 0": (lambda x: x**0, (3.0,), 0, 0),
    "power 1": (lambda x: x**1, (3.0,), 0, 0),
    "power 2": (lambda x: x**2, (3.0,), 1, 1),
    "power 3": (lambda x: x**3, (3.0,), 8, 1),
    "power 12": (lambda x: x**12, (1.5,), 11, 1),
    "power -1": (lambda x: x**-1, (0.5,), 4, 1 + 1.0),
    "exp": (np.exp, (0.5,), 8, 1),
    "log": (np.log, (2.0,), 8, 1),
    "sqrt": (np.sqrt, (0.5,), 8, 1),
    "tanh": (np.tanh, (0.5,), 8, 1),
    "maximum": (np.maximum, (2.0, 2.0), 0, 0),
    "minimum": (np.minimum, (2.0, 2.0), 0, 0),
    "max": (lambda x: x.max(axis=1, keepdims=True), (A,), 0, 0),
    "min": (lambda x: np.minimum.reduce(x, axis=0), (A,), 0, 0),
    "where": (lambda a, b: np.where([True, False], a, b), (3.0, 2.0), 0, 0),
    "sum": (lambda x: x.sum(axis=-1), (A,), 7, 7),
    "mean": (lambda x: np.mean(x, axis=-1), (A,), 7 + 4, None),
    "matmul": (np.matmul, (A, B), 8, 8),
    "matmul of vectors": (np.matmul, (A[0], B[:, 0]), 8, 8),
    "dot": (np.dot, (A, B), 8, 8),
    "dot of scalars": (np.dot, (3.0, 2.0), 1, 1),
    "einsum": (lambda a, b: np.einsum("ij,jk->ki", a, b), (A, B), 8, 8),
    "einsum, implicit": (lambda a, b: np.einsum("...j, jk", a, b), (A, B), 8, 8),
    "einsum, two dimensions": (lambda a, b: np.einsum("ij,jk->k", a, b), (A, B), 24, 24),
    "einsum, outer": (lambda a, b: np.einsum("i,j->ij", a, b), (A[0], B[0]), 1, 1),
    "einsum, batch": (lambda a, b: np.einsum("i...,i...->...", a, b), (A, A), 3, 3),
}
ACCUMULATE = ("sum", "mean", "matmul", "dot", "einsum")


def bounds_of(name, arithmetic, errors=(0.0, 0.0)):
    function, operands, *_ = RULES[name]
    return function(*(bounded(x, arithmetic, e) for x, e in zip(operands, errors, strict=False)))


@pytest.mark.parametrize("errors", [(1e-3, 0.0), (0.0, 1e-3), (1e-3, 1e-3)])
@pytest.mark.parametrize("name", RULES)
def test_the_error_of_each_operand_is_carried(name, errors):
    function, operands, *_ = RULES[name]
    r = bounds_of(name, EXACT, errors)
    moves = itertools.product(*((x - e, x + e) for x, e in zip(operands, errors, strict=False)))
    attained = np.max([np.abs(function(*map(np.asarray, move)) - r.value) for move in moves], axis=0)
    assert (attained <= r.error * (1 + 1e-12)).all()
    assert (r.error <= 1.02 * attained + 1e-12).all()


@pytest.mark.parametrize("name", RULES)
def test_the_roundings_of_each_operation_are_counted(name):
    *_, roundings, tinies = RULES[name]
    u = 2.0**-12
    r = bounds_of(name, Arithmetic(u, u, 0.0))
    assert (r.error >= roundings * u * np.abs(r.value)).all()
    assert (r.error <= 1.02 * roundings * u * np.abs(r.value) + 1e-12).all()
    if tinies is not None:
        stored = tinies + name.startswith(ACCUMULATE) * ("scalars" not in name)
        r = bounds_of(name, replace(EXACT, tiny=1e-3))
        np.testing.assert_allclose(r.error, 1e-3 * stored, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in RULES if n.startswith(ACCUMULATE) and "scalars" not in n])
def test_partial_sums_may_be_stored(name):
    """A fine accumulator leaves the final rounding, and those of the partial sums that cross devices."""
    u, own = 2.0**-12, 1 + 4 * (name == "mean")
    for stores in (0, 3):
        r = bounds_of(name, Arithmetic(u, 2.0**-40, 0.0, stores=stores))
        assert (r.error >= (own + stores) * u * np.abs(r.value)).all()
        assert (r.error <= 1.02 * (own + stores) * u * np.abs(r.value)).all()
        wide = bounds_of(name, Arithmetic(2.0**-40, u, 0.0, stores=stores))
        assert (wide.error == bounds_of(name, Arithmetic(2.0**-40, u, 0.0)).error).all()
    r = bounds_of(name, Arithmetic(2.0**-50, 2.0**-60, 1e-3, stores=3))
    assert (r.error >= 4e-3).all()


@pytest.mark.parametrize("name", ["matmul", "dot", "einsum"])
def test_factors_may_be_rounded(name):
    r = bounds_of(name, replace(EXACT, u_factor=2.0**-12))
    np.testing.assert_allclose(r.error, 2.0**-11 * r.value, rtol=1e-3)


def test_scatter_add_rounds_each_addition():
    target, rows, u = np.zeros((3, 2)), np.ones((3, 2)), 2.0**-12
    carried = scatter(bounded(target, EXACT, 1e-3), bounded(rows, EXACT, 1e-2))
    np.testing.assert_array_equal(carried.value, scatter(target, rows))
    np.testing.assert_allclose(carried.error, [[1.1e-2] * 2, [1e-3] * 2, [2.1e-2] * 2])
    rounded = scatter(bounded(target, Arithmetic(u, 2.0**-40, 0.0)), rows)
    np.testing.assert_allclose(rounded.error[2], 2 * 2 * u, rtol=1e-2)
    crossed = scatter(bounded(target, Arithmetic(u, 2.0**-40, 0.0, stores=3)), rows)
    np.testing.assert_allclose(crossed.error[2], 5 * 2 * u, rtol=1e-2)
    with pytest.raises(TypeError, match=r"numpy\.add\.at can't add a Bounded to a plain array"):
        np.add.at(target, np.array([0, 1, 2]), bounded(rows, FLOAT32))


def test_the_carried_error_is_rounded_too():
    """u (|r| + e), not u |r|: from zero with an error of 1 comes a result of 1, and its rounding."""
    r = bounded(0.0, Arithmetic(0.25, 0.25, 0.0), 1.0)
    assert (r + 0.0).error == (r * 1.0).error == pytest.approx(1.25)
    assert np.tanh(r).error == pytest.approx(3.0)
    sum_of_errors = bounded(np.zeros(3), Arithmetic(0.125, 0.125, 0.0), 1.0).sum()
    assert sum_of_errors.error == pytest.approx(3.0 + 3.0 * 0.25 / (1.0 - 0.25))


def test_an_extreme_may_come_from_any_element():
    x = bounded([1.0, 1.1], FLOAT32, [0.5, 0.1])
    assert x.max().error == x.min().error == np.maximum(x[0], x[1]).error == 0.5


MOVES = {
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(1, 0),
    "np.transpose": np.transpose,
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "np.swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "reshape": lambda x: x.reshape(2, -1),
    "np.reshape": lambda x: np.reshape(x, (2, -1)),
    "ravel": np.ravel,
    "take": lambda x: np.take(x, [2, 0], axis=0),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "squeeze": lambda x: np.squeeze(x[:1]),
    "roll": lambda x: np.roll(x, 1, axis=0),
    "flip": lambda x: np.flip(x, axis=1),
    "repeat": lambda x: np.repeat(x, 2, axis=0),
    "tile": lambda x: np.tile(x, 2),
    "tril": np.tril,
    "triu": np.triu,
    "copy": np.copy,
    "zeros_like": np.zeros_like,
    "slice": lambda x: x[1:, ::2],
    "integer": lambda x: x[1, 2],
    "array": lambda x: x[np.array([2, 0]), np.array([1, 1])],
    "mask": lambda x: x[np.eye(3, 4, dtype=bool)],
    "new axis": lambda x: x[:, None],
    "concatenate": lambda x: np.concatenate([x, np.zeros((1, 4)), x]),
    "stack": lambda x: np.stack([x, x * 0.0 if isinstance(x, np.ndarray) else np.zeros(x.shape)], axis=1),
    "split": lambda x: np.split(x, 2, axis=1)[1],
    "array_split": lambda x: np.array_split(x, 2)[0],
}


@pytest.mark.parametrize("move", MOVES)
def test_errors_move_with_their_values(move):
    x, e = rng.standard_normal((3, 4)), rng.random((3, 4))
    r = MOVES[move](bounded(x, FLOAT32, e))
    np.testing.assert_array_equal(r.value, MOVES[move](x))
    np.testing.assert_array_equal(r.error, MOVES[move](e))
    assert (r.shape, r.ndim, r.size, r.dtype) == (r.value.shape, r.value.ndim, r.value.size, np.float64)
    assert (np.shape(r), np.ndim(r), np.size(r)) == (r.shape, r.ndim, r.size)


# Constants, plain arrays, infinities.


def test_constants_are_as_exact_as_the_dtype_holds_them():
    numbers = np.array([0.5, 0.1, -1701.0, 0.0, -np.inf, 2.0**-140, 1e39])
    tiny = [0.0, 2.0**-140, np.inf]
    np.testing.assert_array_equal(FLOAT32.held(numbers), [0.0, 2.0**-24 * 0.1, 0.0, 0.0, *tiny])
    np.testing.assert_array_equal(BFLOAT16.held(numbers), [0.0, 2.0**-8 * 0.1, 2.0**-8 * 1701.0, 0.0, *tiny])
    x = bounded([1.0], replace(FLOAT32, tiny=0.0))
    assert (x * 0.1).error == pytest.approx(2 * 2.0**-24 * 0.1)
    assert (np.array([0.1]) + x).error == pytest.approx(2.0**-24 * (0.1 + 1.1))


def test_plain_arrays_and_scalars_mix():
    x, plain = bounded(A, FLOAT32, 1e-3), A + 1.0
    for r in (plain - x, np.float64(2.0) * x, 3 / x, plain @ x.T, np.dot(x, plain.T), np.maximum(0.0, x)):
        assert isinstance(r, Bounded) and (r.error > 0).all()
    np.testing.assert_array_equal((plain @ x.T).value, plain @ A.T)
    assert (value(A) == value(x)).all() and (error(x) == 1e-3).all() and (error(A) == 0.0).all()
    with pytest.raises(ValueError, match="different arithmetic"):
        x + bounded(A, BFLOAT16)


def test_assignment_in_place():
    plain = A.copy()
    x = bounded(plain, FLOAT32)
    x[0] = 7.0
    x[1, :2] = bounded([1.0, 2.0], FLOAT32, 0.5)
    x += bounded(1.0, FLOAT32, 0.25)
    assert (x.value[0] == 8.0).all() and (x.error[1, :2] >= 0.75).all()
    np.testing.assert_array_equal(plain, A)
    with pytest.raises(TypeError, match=r"numpy\.add can't write a Bounded into a plain array"):
        plain += x


def test_the_infinities_of_a_mask_are_exact():
    s = np.where([True, False, True], bounded([1.0, 2.0, 3.0], FLOAT32, 1e-6), -np.inf)
    e = np.exp(s - s.max())
    assert (e.value[1], np.isfinite(e.error).all()) == (0.0, True)
    p = e / e.sum()
    assert p.error[1] < 1e-30 and (p.error < 1e-4).all()
    finite = np.exp(np.where([True, False], bounded([1.0, 2.0], FLOAT32), -1e30))
    assert finite.error[1] < 1e-30


def test_no_bound_is_promised_where_there_is_none():
    x = bounded(0.1, FLOAT32, 0.2)
    for r in (1.0 / x, np.log(x), np.sqrt(x)):
        assert r.error == np.inf
    for r in (bounded(60000.0, FLOAT16) * 2.0, np.exp(bounded(12.0, FLOAT16)), bounded(1.0, FLOAT16) + 1e5):
        assert r.error == np.inf
    assert np.isinf(bounded(np.ones(300), Arithmetic(2.0**-8, 2.0**-8, 0.0)).sum().error)


# What has no rule says so.


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (np.cumsum, "cumsum"),
        (np.sin, "sin"),
        (np.linalg.norm, "norm"),
        (np.add.accumulate, r"add\.accumulate"),
        (np.multiply.reduce, r"multiply\.reduce"),
        (lambda x: np.power(x, 0.5), "power unless the exponent is one integer"),
        (lambda x: np.einsum("i,i,i->i", x, x, x), "einsum unless it has a string and two operands"),
        (lambda x: np.einsum(x, [0], x, [0]), "einsum unless it has a string and two operands"),
        (lambda x: np.logical_and(x, True), "logical_and of numbers"),
    ],
)
def test_what_has_no_rule_is_named(call, name):
    with pytest.raises(TypeError, match=rf"^Bounded has no rule for numpy\.{name}$"):
        call(bounded([1.0, 2.0], FLOAT32))


def test_a_bound_is_never_lost_in_silence():
    x = bounded([1.0, 2.0], FLOAT32)
    out = np.zeros(2)
    for lose in (np.asarray, float, lambda x: out.__setitem__(0, x), lambda x: np.add(x, 1.0, out)):
        with pytest.raises((TypeError, ValueError)):
            lose(x)
    with pytest.raises(TypeError, match="complex"):
        bounded([1j], FLOAT32)
    with pytest.raises(TypeError, match="Decision is not a plain array"):
        np.ones(2)[x > 1.0]
    with pytest.raises(TypeError):
        x.sum(dtype=np.float32)
    with pytest.raises(TypeError):
        np.sum(x, where=[True, False])


# Comparisons that rounding may turn.


def test_a_comparison_is_undecided_where_the_errors_reach_across():
    x = bounded([-1.0, -1e-3, 0.0, 1e-3, 1.0], FLOAT32, [0.0, 1e-2, 0.0, 1e-3, 0.5])
    for decision in (x > 0, np.less(0.0, x), x >= 0.0, x == 0.0, x != 0.0, x < bounded(0.0, FLOAT32)):
        assert isinstance(decision, Decision)
        np.testing.assert_array_equal(decision.undecided, [False, True, False, True, False])
    np.testing.assert_array_equal((x > 0).value, [False, False, False, True, True])
    assert (bounded(1.0, FLOAT32, 0.3) < bounded(1.5, FLOAT32, 0.3)).undecided
    assert not (bounded(-np.inf, FLOAT32) < x).undecided.any()


def test_where_covers_both_branches_of_an_undecided_condition():
    h = bounded([1.0, 1e-9, -1e-9, -1.0], FLOAT32, 1e-6)
    g = bounded([3.0, -3.0, 3.0, 3.0], FLOAT32, 1e-5)
    r = np.where(h > 0, g, 0.0)
    np.testing.assert_array_equal(r.value, [3.0, -3.0, 0.0, 0.0])
    np.testing.assert_allclose(r.error, [1e-5, 3.0 + 1e-5, 3.0 + 1e-5, 0.0])
    masked = g * (h > 0)
    np.testing.assert_array_equal(masked.value, r.value)
    np.testing.assert_allclose(masked.error, r.error, rtol=1e-5, atol=2e-7)
    np.testing.assert_array_equal(np.where(h > 0, 1.0, 0.0).error, [0.0, 1.0, 1.0, 0.0])
    plain = np.where(h.value > 0, g, 0.0)
    np.testing.assert_array_equal(plain.error, [1e-5, 1e-5, 0.0, 0.0])


def test_a_relu_at_the_edge_keeps_its_bound():
    """Where a sum is zero but for rounding, its order decides which of two gradients comes out."""
    half = np.random.default_rng(5).standard_normal((64, 16)).astype(np.float32).astype(np.float64)
    x, w, machine = np.concatenate([half, -half[:, ::-1]], axis=1), np.ones((32, 1)), Real("float32", 0)
    gradient = np.where(bounded(x, FLOAT32) @ w > 0, 1.0, 0.0)
    off = np.abs(((Narrow(x, machine) @ w).value > 0) - gradient.value)
    assert off.any() and (off <= gradient.error).all()


def test_logic_of_decisions():
    undecided = bounded([0.0, 0.0], FLOAT32, 1.0) > 0.0
    plain = np.array([True, False])
    np.testing.assert_array_equal((undecided & plain).undecided, [True, False])
    np.testing.assert_array_equal((plain | undecided).undecided, [False, True])
    np.testing.assert_array_equal((undecided ^ plain).undecided, [True, True])
    np.testing.assert_array_equal((~undecided).value, [True, True])
    np.testing.assert_array_equal(np.logical_not(undecided).undecided, [True, True])
    np.testing.assert_array_equal(undecided[:, None].shape, (2, 1))


def test_a_branch_needs_a_decided_answer():
    assert (bounded(2.0, FLOAT32, 0.1) > 1.0) and bounded(2.0, FLOAT32, 0.1) and not bounded(0.0, FLOAT32)
    for unclear in (bounded(1.0, FLOAT32, 0.1) > 1.0, bounded(0.0, FLOAT32, 0.1)):
        with pytest.raises(ValueError, match="undecided within the bounds"):
            bool(unclear)
