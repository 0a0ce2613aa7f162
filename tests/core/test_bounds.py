# SPDX-License-Identifier: Apache-2.0
"""The bounds must hold for every arithmetic and order of summation, and be small enough to tell a fault."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.mixins import NDArrayOperatorsMixin

from meshmark.core.bounds import (
    ARITHMETICS,
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

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
SEEDS = st.integers(0, 2**32 - 1)
seeded = settings(max_examples=8, deadline=None, derandomize=True, database=None)


# Implementations to hold against the bound: NumPy in float64, rounded after each operation.


class Real:
    """Rounds as the dtype does, sums in a random order, divides with or without a reciprocal."""

    def __init__(self, name, seed, stores=0, u_factor=0.0):
        self.arithmetic = replace(ARITHMETICS[name], stores=stores, u_factor=u_factor)
        self.rng = np.random.default_rng(seed)
        self.dtype = DTYPES[name]

    def stored(self, x):
        return np.asarray(x).astype(self.dtype).astype(np.float64)

    held = stored

    def factor(self, x):
        """Round a factor of a contraction, as a device does whose dots are narrower than their dtype."""
        if not self.arithmetic.u_factor:
            return x
        scaled = x * (2.0**53 * self.arithmetic.u_factor + 1.0)
        return scaled - (scaled - x)

    def added(self, x):
        return np.asarray(x).astype(np.float32).astype(np.float64)

    def elementary(self, x):
        return self.stored(x)

    def divided(self, a, b):
        return self.stored(a / b) if self.rng.random() < 0.5 else self.stored(a * self.stored(1.0 / b))

    def total(self, terms, axis):
        """Sum in a random order, by a chain or a tree, in as many parts as devices."""
        terms = self.rng.permutation(np.moveaxis(terms, axis, 0))
        narrows = self.arithmetic.u_sum < self.arithmetic.u
        parts = np.array_split(terms, min(len(terms), self.arithmetic.stores or 1))
        result, *others = (self.stored(self._sum(part)) if narrows else self._sum(part) for part in parts)
        for other in others:
            result = self.stored(result + other)
        return result

    def _sum(self, terms):
        tree = self.rng.random() < 0.5
        while len(terms) > 1:
            paired = len(terms) // 2 if tree else 1
            sums = self.added(terms[:paired] + terms[paired : 2 * paired])
            terms = np.concatenate([sums, terms[2 * paired :]])
        return terms[0]


class Worst(Real):
    """Errs by all that the model allows: always upwards, always downwards, or either."""

    def __init__(self, name, seed, stores=0, u_factor=0.0):
        super().__init__(name, seed, stores, u_factor)
        self.signs = [(1.0,), (-1.0,), (-1.0, 1.0)][seed % 3]

    def _off(self, x, u, tiny=None):
        x = np.asarray(x)
        x = x * (1.0 + u * self.rng.choice(self.signs, x.shape))
        return np.where(np.abs(x) < (self.arithmetic.tiny if tiny is None else tiny), 0.0, x)

    def stored(self, x):
        return self._off(x, self.arithmetic.u)

    def added(self, x):
        return self._off(x, self.arithmetic.u_sum, self.arithmetic.tiny_sum)

    def elementary(self, x):
        return self._off(x, self.arithmetic.elementary * self.arithmetic.u)

    def divided(self, a, b):
        return self._off(a / b, 4.0 * self.arithmetic.u)


class Narrow(NDArrayOperatorsMixin):
    """An array of such an implementation, on which the references run as they are."""

    def __init__(self, value, machine):
        self.value, self.machine = np.asarray(value), machine

    shape = property(lambda self: self.value.shape)
    size = property(lambda self: self.value.size)
    T = property(lambda self: self._moved(np.transpose))

    def _moved(self, move):
        return Narrow(move(self.value), self.machine)

    def __getitem__(self, index):
        return self._moved(lambda a: a[index])

    def reshape(self, *shape):
        return self._moved(lambda a: a.reshape(*shape))

    def swapaxes(self, *axes):
        return self._moved(lambda a: a.swapaxes(*axes))

    def sum(self, axis=None, keepdims=False):
        terms = self.value.reshape(-1) if axis is None else self.value
        result = self.machine.total(terms, axis or 0)
        return Narrow(np.expand_dims(result, axis) if keepdims else result, self.machine)

    def mean(self, axis=None, keepdims=False):
        total = self.sum(axis, keepdims)
        return Narrow(self.machine.divided(total.value, float(self.size // total.size)), self.machine)

    def max(self, axis=None, keepdims=False):
        return self._moved(lambda a: a.max(axis=axis, keepdims=keepdims))

    def _plain(self, x):
        return x.value if isinstance(x, Narrow) else self.machine.held(np.asarray(x, np.float64))

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        machine = self.machine
        if method == "at":
            target, index, rows = inputs
            for i in machine.rng.permutation(len(index)):
                target.value[index[i]] = machine.stored(target.value[index[i]] + rows.value[i])
            return None
        arrays = [self._plain(x) for x in inputs]
        if ufunc is np.matmul:
            a, b = map(machine.factor, arrays)
            return Narrow(machine.total(machine.added(a[..., None] * b[..., None, :, :]), -2), machine)
        result = ufunc(*arrays)
        if result.dtype == bool:
            return result
        if ufunc is np.divide:
            return Narrow(machine.divided(*arrays), machine)
        if ufunc in (np.exp, np.log, np.tanh, np.sqrt):
            return Narrow(machine.elementary(result), machine)
        if ufunc in (np.maximum, np.minimum, np.negative, np.absolute):
            return Narrow(result, machine)
        if ufunc is np.power:
            product = arrays[0]
            for _ in range(int(inputs[1]) - 1):
                product = machine.stored(product * arrays[0])
            return Narrow(product, machine)
        assert ufunc in (np.add, np.subtract, np.multiply, np.square), ufunc
        return Narrow(machine.stored(result), machine)

    def __array_function__(self, func, types, args, kwargs):
        if func in (np.sum, np.mean, np.max):
            return getattr(args[0], func.__name__)(*args[1:], **kwargs)
        if func is np.einsum:
            subscripts, a, b = args[0], *(self.machine.factor(x.value) for x in args[1:])
            inputs, output = subscripts.split("->")
            rest = "".join(sorted(set(inputs) - set(output) - {","}))
            terms = self.machine.added(np.einsum(f"{inputs}->{rest}{output}", a, b))
            return Narrow(self.machine.total(terms.reshape(-1, *terms.shape[len(rest) :]), 0), self.machine)
        if func is np.where:
            return Narrow(np.where(args[0], *(self._plain(x) for x in args[1:])), self.machine)
        assert func in (np.zeros_like, np.take), func
        return args[0]._moved(lambda a: func(a, *args[1:], **kwargs))


# References, in the style of the case table's; `np` may be jax.numpy.


def dot(np, a, b):
    return (a @ b,)


def mlp(np, x, w1, b1, w2, y):
    """A relu network's output, mean squared error and gradient."""
    h = x @ w1 + b1
    a = np.where(h > 0, h, 0.0)
    out = a @ w2
    difference = out - y
    dout = difference * (2.0 / difference.size)
    dh = np.where(h > 0, dout @ w2.T, 0.0)
    return out, np.mean(difference * difference), x.T @ dh, dh.sum(axis=0), a.T @ dout


def attention(np, x, wq, wk, wv, dy):
    """Causal attention of two heads, and the gradient with respect to its three weights."""
    t, width = x.shape[0], wq.shape[1]
    q, k, v = ((x @ w).reshape(t, 2, width // 2).swapaxes(0, 1) for w in (wq, wk, wv))
    causal = np.tril(np.ones((t, t), bool))
    scale = (width // 2) ** -0.5
    s = np.where(causal, np.einsum("hqd,hkd->hqk", q, k) * scale, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    out = np.einsum("hqk,hkd->hqd", p, v)
    dout = dy.reshape(t, 2, width // 2).swapaxes(0, 1)
    dp = np.einsum("hqd,hkd->hqk", dout, v)
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) * scale
    grads = (
        np.einsum("hqk,hkd->hqd", ds, k),
        np.einsum("hqk,hqd->hkd", ds, q),
        np.einsum("hqk,hqd->hkd", p, dout),
    )
    return out, *(x.T @ g.swapaxes(0, 1).reshape(t, width) for g in grads)


def norm(np, x, gain, w, dy):
    """Layer normalization and a gelu layer, with the gradient of the normalization."""
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + 1e-5)
    hat = centred / deviation
    h = (hat * gain) @ w
    out = 0.5 * h * (1.0 + np.tanh(0.7978845608028654 * (h + 0.044715 * h**3)))
    dhat = (dy @ w.T) * gain
    along = np.mean(dhat * hat, axis=-1, keepdims=True)
    return out, (dhat - np.mean(dhat, axis=-1, keepdims=True) - hat * along) / deviation


def token_loss(np, tokens, labels, table, w):
    """Embedding, softmax cross-entropy, and the gradient of the table and of the output weights."""
    x = np.take(table, tokens, axis=0)
    logits = x @ w
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(axis=-1, keepdims=True)
    rows = np.arange(len(tokens))
    loss = np.mean(np.log(total[:, 0]) - shifted[rows, labels])
    hot = np.asarray(labels[:, None] == np.arange(w.shape[1]), float)
    dlogits = (e / total - hot) / float(len(tokens))
    drows = dlogits @ w.T
    if hasattr(table, "at"):
        dtable = np.zeros_like(table).at[tokens].add(drows.astype(table.dtype))
    else:
        dtable = np.zeros_like(table)
        np.add.at(dtable, tokens, drows)
    return loss, dtable, x.T @ dlogits


def inputs(case, rng, n=32):
    """Random inputs of a case: index arrays as they are, the others to be rounded to the dtype."""
    normal = rng.standard_normal
    w = [normal((n, n)) / np.sqrt(n) for _ in range(3)]
    t = n // 2
    if case is dot:
        return [normal((t, n)), normal((n, t))]
    if case is mlp:
        return [normal((t, n)), w[0], normal(n), w[1], normal((t, n))]
    if case is attention:
        return [normal((t, n)), *w, normal((t, n))]
    if case is norm:
        return [normal((t, n)) + 0.5, normal(n), w[0], normal((t, n))]
    return [rng.integers(0, t, t), rng.integers(0, n, t), normal((t, n)), w[0]]


CASES = [dot, mlp, attention, norm, token_loss]


def references(case, machine, n=32):
    """The inputs as the machine stores them, the plain reference and the bounded one."""
    dtype, rng = machine.dtype, machine.rng
    plain = [x if x.dtype.kind == "i" else x.astype(dtype).astype(float) for x in inputs(case, rng, n)]
    with_bounds = [x if x.dtype.kind == "i" else bounded(x, machine.arithmetic) for x in plain]
    return plain, case(np, *plain), case(np, *with_bounds)


def run(case, plain, machine):
    """What the machine makes of a case."""
    got = case(np, *(x if x.dtype.kind == "i" else Narrow(x, machine) for x in plain))
    return [x.value for x in got]


def share(got, bounds):
    """The largest part of the bound that the error uses up."""
    return max(np.max(np.abs(g - b.value) / b.error) for g, b in zip(got, bounds, strict=True))


# 1. Sound: no implementation exceeds the bound.


@pytest.mark.parametrize("stores", [0, 4])
@pytest.mark.parametrize("machine", [Real, Worst])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("case", CASES)
@given(seed=SEEDS)
@seeded
def test_no_implementation_exceeds_the_bound(case, name, machine, stores, seed):
    machine = machine(name, seed, stores)
    plain, reference, bounds = references(case, machine)
    got = run(case, plain, machine)
    for r, b in zip(reference, bounds, strict=True):
        np.testing.assert_array_equal(b.value, r)
    assert share(got, bounds) <= 1.0


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_xla_keeps_the_bound(case, name):
    machine = Real(name, 7)
    plain, _, bounds = references(case, machine)
    arrays = [x if x.dtype.kind == "i" else x.astype(machine.dtype) for x in plain]
    with jax.default_matmul_precision("highest"):
        got = jax.jit(lambda *xs: case(jnp, *xs))(*map(jnp.asarray, arrays))
    used = share([np.asarray(g, np.float64) for g in got], bounds)
    print(f"{case.__name__} {name}: XLA uses {used:.2%} of the bound")
    assert used <= 1.0


@pytest.mark.parametrize("name", DTYPES)
def test_xla_keeps_the_error_of_elementary_functions(name):
    dtype, arithmetic = DTYPES[name], ARITHMETICS[name]
    if name == "float32":
        x = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(dtype)
    else:
        x = np.arange(2**16, dtype=np.uint16).view(dtype)
    functions = {jnp.exp: np.exp, jnp.log: np.log, jnp.tanh: np.tanh, jnp.sqrt: np.sqrt}
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64)
        for function, reference in {**functions, jax.lax.rsqrt: lambda x: 1.0 / np.sqrt(x)}.items():
            r = reference(exact)
            off = np.abs(np.asarray(jax.jit(function)(x), np.float64) - r)
            judged = np.isfinite(r) & (np.abs(r) < arithmetic.largest) & (np.abs(exact) >= arithmetic.tiny)
            units = (off - arithmetic.tiny) / (arithmetic.u * np.abs(r))
            assert units[judged].max() <= arithmetic.elementary, function


finite = st.floats(-20.0, 20.0)
ONE_OPERAND = [np.exp, np.tanh, np.log, np.sqrt, np.square, np.abs, lambda x: x**3, lambda x: x**-2]


@pytest.mark.parametrize("function", ONE_OPERAND)
@given(finite, st.floats(0.0, 30.0), st.floats(-1.0, 1.0))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_intervals_of_any_width_are_covered(function, x, reach, where):
    r = function(bounded(x, FLOAT32, reach))
    with np.errstate(all="ignore"):
        off = np.abs(function(np.float64(x + where * reach)) - r.value)
    assert not off > r.error


@given(finite, finite, st.floats(0.0, 30.0), st.floats(0.0, 30.0), st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_intervals_of_two_operands_are_covered(a, b, ea, eb, s, t):
    near_a, near_b = np.float64(a + s * ea), np.float64(b + t * eb)
    for f in (np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum):
        r = f(bounded(a, FLOAT32, ea), bounded(b, FLOAT32, eb))
        with np.errstate(all="ignore"):
            assert not np.abs(f(near_a, near_b) - r.value) > r.error, f


# 2. Useful: a narrower type on the way shows.


@pytest.mark.parametrize(("name", "u"), [("bfloat16", 2.0**-8), ("TF32", 2.0**-11)])
def test_a_dot_of_64_terms_tells_narrower_factors(name, u):
    machine = Real("float32", 1, u_factor=u)
    plain, _, (r,) = references(dot, machine, 64)
    off = np.abs(run(dot, plain, machine)[0] - r.value)
    assert (off <= r.error).all()  # the arithmetic says so
    (r,) = dot(np, *(bounded(x, FLOAT32) for x in plain))
    print(f"{name} factors cost {np.median(off / r.error):.0f} bounds, {np.mean(off > r.error):.1%} above 1")
    assert np.mean(off > r.error) > 0.9


# The least share of a bound that errors of one sign use up: a rule grown loose lowers it.
LEAST = {dot: 0.3, mlp: 0.15, attention: 0.02, norm: 0.07, token_loss: 0.12}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_a_layer_is_not_idle(case, name):
    plain, reference, bounds = references(case, Real(name, 3))
    narrowed = [Real(name, 3, u_factor=u) for u in (2.0**-8, 2.0**-11)]
    machines = Real(name, 3), Worst(name, 3), *narrowed
    real, worst, bfloat16, tf32 = (share(run(case, plain, machine), bounds) for machine in machines)
    relative = max(np.max(b.error) / np.max(np.abs(r)) for b, r in zip(bounds, reference, strict=True))
    print(
        f"{case.__name__} {name}: bound {relative:.0e} of the largest value, of which rounding uses"
        f" {real:.3f}, the worst rounding {worst:.3f}, bfloat16 factors {bfloat16:.1f}, TF32's {tf32:.1f}"
    )
    assert worst > LEAST[case]
    assert name != "float32" or min(bfloat16, tf32) > 5.0


# 3. No term can go: each is, alone, nearly attained.

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


# 4. What has no rule says so.


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


# 5. Comparisons that rounding may turn.


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
