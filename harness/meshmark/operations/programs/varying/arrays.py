# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays whose result depends on a varying number: elementwise ones, choices, slices, gathers, scatters,
orders and reductions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.varying.judging import Pairs, both


def turned(x, k):
    """The array, negated on devices with an odd number."""
    return x * (1 - 2 * (k() % 2))


def changed(change):
    """A definition: a copy of the array that `change(copy, number)` writes to."""

    def define(x, k):
        copy = x.copy()
        change(copy, k())
        return copy

    return define


def padded(found, size):
    """The array with zeros behind it, up to `size` elements."""
    return np.concatenate([found, np.zeros(size - len(found))])


ELEMENTWISE: Pairs = {
    "times": both(lambda m, x, k: x * k()),
    "power": both(lambda m, x, k: m.power(x, k() + 1.0)),
    "maximum": both(lambda m, x, k: m.maximum(x, 0.7 * k())),
    "arctan2": both(lambda m, x, k: m.arctan2(x, 1.0 + k())),
    "logaddexp": both(lambda m, x, k: m.logaddexp(x, 1.0 * k())),
    "remainder": both(lambda m, x, k: m.remainder(x, 0.7 + k())),
    "copysign": both(lambda m, x, k: m.copysign(x, 0.5 - k())),
    "nan_to_num": both(lambda m, x, k: x * m.nan_to_num(m.where(k() == 1, m.nan, 1.0))),
    "interp": both(lambda m, x, k: m.interp(0.5 + k(), m.arange(4.0), x)),
    "linspace": both(lambda m, x, k: x * m.linspace(0.0, 1.0 + k(), 4)),
    "equal": both(lambda m, x, k: x * (m.floor(x) == k())),
    "convert_element_type": (
        lambda x, k: lax.convert_element_type(x * k(), jnp.int8),
        lambda x, k: (x * k()).astype(np.int8),
    ),
    "population_count": (
        lambda x, k: x * lax.population_count(k()),
        lambda x, k: x * bin(k()).count("1"),
    ),
    "bitcast_convert_type": (
        lambda x, k: x * (lax.bitcast_convert_type(jnp.float32(1) + k(), jnp.int32) // 2**20),
        lambda x, k: x * (int(np.float32(1 + k()).view(np.int32)) // 2**20),
    ),
    "full_like": both(lambda m, x, k: x * m.full_like(x, 1.0 * k())),
}  # fmt: skip
"""Elementwise functions, where a number varies and the array does not."""

CREATED: Pairs = {
    "gcd": both(lambda m, x, k: x * m.gcd(6 * k(), 4)),
    "polyval": both(lambda m, x, k: m.polyval(m.asarray([1.0, 2.0, 1.0]) * k(), x)),
}
"""Functions that create the first value of a loop over what varies."""

EXPONENTS: Pairs = {
    "jnp.ldexp": (
        lambda x, k: jnp.ldexp(x, k()),
        lambda x, k: np.ldexp(x, k()),
    ),
    "jnp.ldexp of a number": (
        lambda x, k: x * jnp.ldexp(jnp.float32(1), k()),
        lambda x, k: x * 2 ** k(),
    ),
    "the exponents of jnp.frexp": (
        lambda x, k: x * jnp.frexp(x * (1.1 + 3 * k()))[1],
        lambda x, k: x * np.frexp(x * (1.1 + 3 * k()))[1],
    ),
}  # fmt: skip
"""Powers of two by exponents that vary, and exponents of what varies."""

CHOICES: Pairs = {
    "where": both(lambda m, x, k: m.where(k() == 1, x * x, 3 * x)),
    "where of numbers": both(lambda m, x, k: x * m.where(k() > 0, 2.0, x[0])),
    "mask": both(lambda m, x, k: x * (x > k())),
    "clip": both(lambda m, x, k: m.clip(x, 0.6 * k(), 1.0 + k())),
    "select": both(lambda m, x, k: m.select([m.asarray(k() == 1), m.asarray(k() == 2)], [x, 2 * x], 3 * x)),
    "piecewise": both(lambda m, x, k: m.piecewise(x, [x > k()], [lambda v: v * v, lambda v: -v])),
    "select_n of two": (
        lambda x, k: lax.select_n(jnp.full(4, k() == 1), x, 2 * x),
        lambda x, k: 2 * x if k() == 1 else x,
    ),
    "select_n of four": (
        lambda x, k: lax.select_n(k(), x, 2 * x, x * x, x + 1),
        lambda x, k: (x, 2 * x, x * x, x + 1)[k()],
    ),
    "clamp": (
        lambda x, k: lax.clamp(jnp.float32(0.6) * k(), x, jnp.float32(1) + k()),
        lambda x, k: np.clip(x, 0.6 * k(), 1 + k()),
    ),
    "compress": (
        lambda x, k: jnp.compress(turned(x, k) > 0, x, size=4),
        lambda x, k: padded(x[turned(x, k) > 0], 4),
    ),
    "nonzero": (
        lambda x, k: x[jnp.nonzero(x > k(), size=4)[0]],
        lambda x, k: x[padded(np.nonzero(x > k())[0], 4).astype(int)],
    ),
    "where of one": (
        lambda x, k: x[jnp.where(x > k(), size=4)[0]],
        lambda x, k: x[padded(np.where(x > k())[0], 4).astype(int)],
    ),
}
"""Choices by a predicate or a bound that varies, between arrays that do not."""

SLICES: Pairs = {
    "dynamic_slice": (
        lambda x, k: lax.dynamic_slice(x, (k(),), (2,)),
        lambda x, k: x[min(k(), 2) :][:2],
    ),
    "dynamic_index_in_dim": (
        lambda x, k: lax.dynamic_index_in_dim(x, k(), keepdims=False),
        lambda x, k: x[k()],
    ),
    "dynamic_update_slice at an index": (
        lambda x, k: lax.dynamic_update_slice(x, 2 * x[:1], (k(),)),
        changed(lambda c, k: c.__setitem__(k, 2 * c[0])),
    ),
    "dynamic_update_slice of a value": (
        lambda x, k: lax.dynamic_update_slice(x * x, jnp.full(1, 1.0 * k()), (1,)),
        lambda x, k: np.concatenate([x[:1] ** 2, [k()], x[2:] ** 2]),
    ),
    "index": both(lambda m, x, k: x[k()]),
    "index of rows": both(lambda m, x, k: x.reshape(2, 2)[k() % 2]),
    "roll": both(lambda m, x, k: m.roll(x, k())),
    "insert": both(lambda m, x, k: m.insert(x, 1, 1.0 * k())),
    "append": both(lambda m, x, k: m.append(x, 1.0 * k())),
    "pad": (
        lambda x, k: lax.pad(x, k().astype(x.dtype), [(1, 1, 0)]),
        lambda x, k: np.concatenate([[k()], x, [k()]]),
    ),
    "repeat": (
        lambda x, k: jnp.repeat(x, jnp.arange(4) * (k() % 2) + 1, total_repeat_length=8),
        lambda x, k: np.pad(np.repeat(x, np.arange(4) * (k() % 2) + 1), (0, 4), "edge")[:8],
    ),
    "delete": (
        lambda x, k: jnp.delete(x, k(), assume_unique_indices=True),
        lambda x, k: np.delete(x, k()),
    ),
}
"""Slices at an index that varies, and writes of a varying value."""

GATHERS: Pairs = {
    "indices": both(lambda m, x, k: x[(m.arange(4) + k()) % 4]),
    "take along an axis": both(
        lambda m, x, k: m.take_along_axis(x.reshape(2, 2), m.asarray([[0, 1], [1, 0]]) * (k() % 2), 1)
    ),
    "two indices": both(lambda m, x, k: x.reshape(2, 2)[k() % 2, m.asarray([1, 0])]),
    "unravel_index": both(lambda m, x, k: x.reshape(2, 2)[m.unravel_index(k(), (2, 2))]),
    "clipped take": (
        lambda x, k: jnp.take(x, jnp.arange(2) + k(), mode="clip"),
        lambda x, k: x[np.minimum(np.arange(2) + k(), 3)],
    ),
    "wrapped take": (
        lambda x, k: jnp.take(x, jnp.arange(3) + k(), mode="wrap"),
        lambda x, k: x[(np.arange(3) + k()) % 4],
    ),
    "filled take": (
        lambda x, k: jnp.take(x, jnp.arange(2) + k(), mode="fill", fill_value=9.0),
        lambda x, k: np.append(x, 9.0)[np.arange(2) + k()],
    ),
    "at.get": (
        lambda x, k: x.at[k() + 2].get(mode="fill", fill_value=9.0),
        lambda x, k: np.append(x, [9.0, 9.0])[k() + 2],
    ),
    "vmap of an index": (
        lambda x, k: jax.vmap(lambda row: row[k() % 2])(x.reshape(2, 2)),
        lambda x, k: x.reshape(2, 2)[:, k() % 2],
    ),
}
"""Gathers by indices that vary, of an array that does not."""

SCATTERS: Pairs = {
    "add": (lambda x, k: x.at[k()].add(2.0), changed(lambda c, k: c.__setitem__(k, c[k] + 2))),
    "set": (lambda x, k: x.at[k()].set(1.5), changed(lambda c, k: c.__setitem__(k, 1.5))),
    "multiply": (lambda x, k: x.at[k()].multiply(3.0), changed(lambda c, k: c.__setitem__(k, 3 * c[k]))),
    "max": (lambda x, k: x.at[k()].max(1.0), changed(lambda c, k: c.__setitem__(k, max(c[k], 1)))),
    "set of a value": (lambda x, k: x.at[1].set(1.0 * k()), changed(lambda c, k: c.__setitem__(1, k))),
    "add of an element": (
        lambda x, k: jnp.ones(4).at[k()].add(x[1]),
        lambda x, k: np.eye(4)[k()] * x[1] + 1,
    ),
    "put": (lambda x, k: jnp.put(x, k(), 9.0, inplace=False), changed(lambda c, k: c.__setitem__(k, 9))),
    "segment_sum": (
        lambda x, k: jax.ops.segment_sum(x, jnp.arange(4) * k() % 3, 3),
        lambda x, k: np.bincount(np.arange(4) * k() % 3, x, 3),
    ),
    "segment_max": (
        lambda x, k: jax.ops.segment_max(x, (jnp.arange(4) + k()) % 2, 2),
        lambda x, k: np.array([x[(k() % 2) :: 2].max(), x[(1 - k() % 2) :: 2].max()]),
    ),
    "bincount": (
        lambda x, k: jnp.bincount(jnp.arange(4) * k(), x, length=12),
        lambda x, k: np.bincount(np.arange(4) * k(), x, 12),
    ),
    "one_hot": (lambda x, k: jax.nn.one_hot(k(), 4) @ x, lambda x, k: x[k()]),
    "fill_diagonal": (
        lambda x, k: jnp.fill_diagonal(x.reshape(2, 2), 1.0 * k(), inplace=False),
        lambda x, k: np.array([[k(), x[1]], [x[2], k()]]),
    ),
}
"""Scatters at indices that vary, and sums over segments that vary."""
