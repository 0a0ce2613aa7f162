# SPDX-License-Identifier: Apache-2.0
"""Implementations that round as a device may, and references in the case table's style, for tests of bounds."""

from dataclasses import replace

import ml_dtypes
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from meshmark.core.bounds import (
    ARITHMETICS,
    bounded,
)

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


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
