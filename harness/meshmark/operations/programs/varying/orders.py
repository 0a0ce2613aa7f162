# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays whose result depends on a varying number: orders, reductions, products and linear algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.varying.arrays import turned
from meshmark.operations.programs.varying.judging import Pairs, both


def _indices(x):
    return lax.iota(jnp.int32, x.shape[0])


ORDERS: Pairs = {
    "sort": both(lambda m, x, k: m.sort(turned(x, k))),
    "sort of two arrays": (
        lambda x, k: lax.sort((turned(x, k), x * x), num_keys=1)[1],
        lambda x, k: (x * x)[np.argsort(turned(x, k))],
    ),
    "lexsort": both(lambda m, x, k: x[m.lexsort((turned(x, k),))]),
    "argmax": both(lambda m, x, k: x[m.argmax(turned(x, k))]),
    "argmin": both(lambda m, x, k: x[m.argmin(turned(x, k))]),
    "median": both(lambda m, x, k: m.median(x * (1 + k()))),
    "quantile": both(lambda m, x, k: m.quantile(x, 0.2 + 0.2 * k())),
    "searchsorted": both(lambda m, x, k: x[m.searchsorted(x, 0.6 * k())]),
    "digitize": both(lambda m, x, k: x[m.digitize(0.6 * k(), x)]),
    "isin": both(lambda m, x, k: x * m.isin(m.floor(x), k())),
    "top_k": (
        lambda x, k: x[lax.top_k(turned(x, k), 2)[1]],
        lambda x, k: x[np.argsort(-turned(x, k))[:2]],
    ),
    "partition": (
        lambda x, k: jnp.partition(turned(x, k), 1)[1],
        lambda x, k: np.sort(turned(x, k))[1],
    ),
    "argpartition": (
        lambda x, k: x[jnp.argpartition(turned(x, k), 1)[1]],
        lambda x, k: x[np.argsort(turned(x, k))[1]],
    ),
    "unique": (
        lambda x, k: jnp.unique(jnp.floor(x / (1 + k())), size=4, fill_value=9.0),
        lambda x, k: np.append(np.unique(np.floor(x / (1 + k()))), [9.0] * 4)[:4],
    ),
}
"""Orders of values that vary."""

ORDERS_BY_KEY: Pairs = {
    "lax.sort_key_val": (
        lambda x, k: x[lax.sort_key_val(turned(x, k), _indices(x))[1]],
        lambda x, k: x[np.argsort(turned(x, k))],
    ),
    "jnp.argsort": (
        lambda x, k: x[jnp.argsort(turned(x, k))],
        lambda x, k: x[np.argsort(turned(x, k))],
    ),
    "descending jnp.argsort": (
        lambda x, k: x[jnp.argsort(turned(x, k), descending=True)],
        lambda x, k: x[np.argsort(-turned(x, k))],
    ),
    "unstable jnp.argsort": (
        lambda x, k: x[jnp.argsort(turned(x, k), stable=False)],
        lambda x, k: x[np.argsort(turned(x, k))],
    ),
    "jnp.argsort of rows": (
        lambda x, k: jnp.take_along_axis(x.reshape(2, 2), jnp.argsort(turned(x, k).reshape(2, 2), 1), 1),
        lambda x, k: np.take_along_axis(x.reshape(2, 2), np.argsort(turned(x, k).reshape(2, 2), 1), 1),
    ),
}
"""Values that do not vary, in the order of keys that do (`lax.sort_key_val`)."""


def _key(k):
    return jax.random.fold_in(jax.random.key(3), k())


def _drawn(draw):
    """A function that reads elements at indices drawn with a key, and its definition: the plain draw."""
    return (
        lambda x, k: x[draw(_key(k))],
        lambda x, k: x[np.asarray(draw(_key(k)))],
    )


PERMUTATIONS: Pairs = {
    "random.permutation of a number": _drawn(lambda key: jax.random.permutation(key, 4)),
    "random.permutation of an array": (
        lambda x, k: jax.random.permutation(_key(k), x),
        lambda x, k: x[np.asarray(jax.random.permutation(_key(k), np.arange(4)))],
    ),
    "random.choice without replacement": _drawn(lambda key: jax.random.choice(key, 4, (2,), replace=False)),
}
"""Permutations of a device's own random key, which are orders by key."""

REDUCTIONS: Pairs = {
    "sum": both(lambda m, x, k: m.sum(x * k())),
    "mean": both(lambda m, x, k: m.mean(x * k())),
    "prod": both(lambda m, x, k: m.prod(x + k())),
    "max": both(lambda m, x, k: m.max(turned(x, k))),
    "min": both(lambda m, x, k: m.min(turned(x, k))),
    "var": both(lambda m, x, k: m.var(x * k())),
    "norm": both(lambda m, x, k: m.linalg.norm(x + k())),
    "all": both(lambda m, x, k: x * m.all(x * k() < 3)),
    "any": both(lambda m, x, k: x * m.any(x * k() > 3)),
    "count_nonzero": both(lambda m, x, k: x * m.count_nonzero(x > k())),
    "ptp": both(lambda m, x, k: m.ptp(x * (1 + k()))),
    "sum where": both(lambda m, x, k: m.sum(x * x, where=x > k())),
    "max where": both(lambda m, x, k: m.max(x * x, where=x < k(), initial=0.1)),
    "average": both(lambda m, x, k: m.average(x, weights=m.arange(4) * k() + 1.0)),
    "cumsum": both(lambda m, x, k: m.cumsum(x * k())),
    "trapezoid": both(lambda m, x, k: m.trapezoid(x, dx=1.0 + k())),
    "diff": both(lambda m, x, k: m.diff(x * k())),
    "logsumexp": (
        lambda x, k: jax.nn.logsumexp(x, b=1.0 + k() * jnp.arange(4)),
        lambda x, k: np.log((np.exp(x) * (1 + k() * np.arange(4))).sum()),
    ),
    "softmax where": (
        lambda x, k: jax.nn.softmax(x, where=x > 0.1 * k() + 0.5),
        lambda x, k: (np.exp(x) * (x > 0.1 * k() + 0.5)) / (np.exp(x) * (x > 0.1 * k() + 0.5)).sum(),
    ),
    "reduce_window": (
        lambda x, k: lax.reduce_window(x * k(), 0.0, lax.add, (2,), (1,), "VALID"),
        lambda x, k: (x[1:] + x[:-1]) * k(),
    ),
}
"""Reductions and cumulative functions of what varies."""


RUNNING: Pairs = {
    "cumprod": both(lambda m, x, k: m.cumprod(x + k())),
    "cummax": (
        lambda x, k: lax.cummax(turned(x, k)),
        lambda x, k: np.maximum.accumulate(turned(x, k)),
    ),
}
"""Running products and maxima of what varies."""


def _filter(m, k):
    return m.asarray([1.0, -1.0]) * k() + m.asarray([0.0, 2.0])


PRODUCTS: Pairs = {
    "dot": both(lambda m, x, k: m.dot(x, turned(m.arange(4.0), k))),
    "matmul": both(lambda m, x, k: x.reshape(2, 2) @ (m.ones((2, 2)) * k())),
    "einsum": both(lambda m, x, k: m.einsum("i,i,j->j", x, m.arange(4.0) * k(), x)),
    "outer": both(lambda m, x, k: m.outer(x, _filter(m, k))),
    "kron": both(lambda m, x, k: m.kron(x, _filter(m, k))),
    "tensordot": both(lambda m, x, k: m.tensordot(x.reshape(2, 2), _filter(m, k), 1)),
    "convolve": both(lambda m, x, k: m.convolve(x, _filter(m, k))),
    "correlate": both(lambda m, x, k: m.correlate(x, _filter(m, k), "full")),
    "fft": both(lambda m, x, k: m.fft.fft(x * k()).real),
    "conv_general_dilated": (
        lambda x, k: lax.conv_general_dilated(
            x.reshape(1, 1, 4), _filter(jnp, k).reshape(1, 1, 2), (1,), "VALID"
        ),
        lambda x, k: np.correlate(x, _filter(np, k), "valid").reshape(1, 1, 3),
    ),
    "ragged_dot": (
        lambda x, k: lax.ragged_dot(
            x.reshape(2, 2),
            jnp.arange(8.0).reshape(2, 2, 2),
            jnp.array([1, 1]) + jnp.array([1, -1]) * (k() % 2),
        ),
        lambda x, k: np.stack([
            x[:2] @ np.arange(4.0).reshape(2, 2),
            x[2:] @ np.arange(8.0).reshape(2, 2, 2)[1 - k() % 2],
        ]),
    ),
}  # fmt: skip
"""Products and convolutions by what varies."""


def _matrix(m, k):
    """A symmetric positive matrix."""
    return m.eye(4) * (1.0 + k()) + m.ones((4, 4)) * 0.25


LINEAR_ALGEBRA: Pairs = {
    "solve": both(lambda m, x, k: m.linalg.solve(_matrix(m, k), x)),
    "inv": both(lambda m, x, k: m.linalg.inv(_matrix(m, k)) @ x),
    "det": both(lambda m, x, k: m.linalg.det(_matrix(m, k)) * x / 9),
    "cholesky": both(lambda m, x, k: m.linalg.cholesky(_matrix(m, k)) @ x),
    "eigvalsh": both(lambda m, x, k: m.linalg.eigvalsh(_matrix(m, k)) * x),
    "singular values": both(lambda m, x, k: m.linalg.svd(_matrix(m, k), compute_uv=False) * x),
    "qr": both(lambda m, x, k: m.abs(m.linalg.qr(_matrix(m, k))[1]) @ x),
    "matrix_power": both(lambda m, x, k: m.linalg.matrix_power(_matrix(m, k), 2) @ x),
    "solve_triangular": (
        lambda x, k: jax.scipy.linalg.solve_triangular(_matrix(jnp, k), x, lower=True),
        lambda x, k: np.linalg.solve(np.tril(_matrix(np, k)), x),
    ),
    "tridiagonal_solve": (
        lambda x, k: lax.linalg.tridiagonal_solve(
            jnp.zeros(4), jnp.ones(4) * (1.0 + k()), jnp.zeros(4), x[:, None]
        )[:, 0],
        lambda x, k: x / (1 + k()),
    ),
    "lu": (
        lambda x, k: jax.scipy.linalg.lu(jnp.eye(4)[::-1] * (1.0 + k()))[2] @ x,
        lambda x, k: x * (1 + k()),
    ),
}
"""Decompositions and solvers of matrices that vary."""
