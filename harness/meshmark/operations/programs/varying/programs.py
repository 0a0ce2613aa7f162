# SPDX-License-Identifier: Apache-2.0
"""Programs whose result depends on a varying number: branches, loops, called functions and random numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.varying.judging import Pairs


def _doubled(v):
    return 2 * v


def _tripled(v):
    return 3 * v


BRANCHES: Pairs = {
    "lax.cond": (
        lambda x, k: lax.cond(k() == 0, _doubled, _tripled, x),
        lambda x, k: x * (2 if k() == 0 else 3),
    ),
    "lax.cond without operands": (
        lambda x, k: x * lax.cond(k() == 0, lambda: 2.0, lambda: 3.0),
        lambda x, k: x * (2 if k() == 0 else 3),
    ),
    "lax.cond in lax.cond": (
        lambda x, k: lax.cond(x.sum() > 0, lambda v: lax.cond(k() == 0, _doubled, _tripled, v), _doubled, x),
        lambda x, k: x * (2 if k() == 0 else 3),
    ),
    "lax.cond in a scan": (
        lambda x, k: lax.scan(lambda c, v: (c, lax.cond(k() == 0, _doubled, _tripled, v)), 0, x)[1],
        lambda x, k: x * (2 if k() == 0 else 3),
    ),
    "lax.cond in a checkpoint": (
        lambda x, k: jax.checkpoint(lambda v: lax.cond(k() == 0, lambda u: u * u, _tripled, v))(x),
        lambda x, k: x * x if k() == 0 else 3 * x,
    ),
    "lax.switch": (
        lambda x, k: lax.switch(k(), [_doubled, _tripled, lambda v: v[::-1], jnp.square], x),
        lambda x, k: (2 * x, 3 * x, x[::-1], x * x)[k()],
    ),
    "jnp.piecewise of a number": (
        lambda x, k: x * jnp.piecewise(x[0], [k() == 0], [lambda v: v, lambda v: -v]),
        lambda x, k: x * (x[0] if k() == 0 else -x[0]),
    ),
}  # fmt: skip
"""Branches by a predicate or an index that varies, of arguments that do not."""


def _powers(n, start):
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, 2 * c[1]), (0, start))[1]


TURNS: Pairs = {
    "lax.while_loop": (
        lambda x, k: x * _powers(k() + 1, 1.0),
        lambda x, k: x * 2 ** (k() + 1),
    ),
    "the counter of lax.while_loop": (
        lambda x, k: x * lax.while_loop(lambda c: c <= k(), lambda c: c + 1, 0),
        lambda x, k: x * (k() + 1),
    ),
    "the end of lax.fori_loop": (
        lambda x, k: x * lax.fori_loop(0, k() + 1, lambda _, c: 2 * c, 1.0),
        lambda x, k: x * 2 ** (k() + 1),
    ),
    "the start of lax.fori_loop": (
        lambda x, k: x * lax.fori_loop(k(), 4, lambda _, c: 2 * c, 1.0),
        lambda x, k: x * 2 ** (4 - k()),
    ),
}  # fmt: skip
"""Loops whose number of turns varies, of values that do not."""


def _scanned_closure(x, k):
    n = k()
    return lax.scan(lambda c, v: (c, v * n), 0, x)[1]


def _mapped_closure(x, k):
    n = k()
    return lax.map(lambda v: v * n, x)


def _combined(x, k):
    n = k()
    return lax.associative_scan(lambda a, b: a + b + n, x)


def _summed(x, k):
    return np.cumsum(x) + k() * np.arange(4)


LOOPS: Pairs = {
    "scan of a closure": (_scanned_closure, lambda x, k: x * k()),
    "scan with a number inside": (
        lambda x, k: lax.scan(lambda c, v: (c, v * k()), 0, x)[1],
        lambda x, k: x * k(),
    ),
    "scan of slices that vary": (
        lambda x, k: lax.scan(lambda c, v: (c, v), 0, x * k())[1],
        lambda x, k: x * k(),
    ),
    "scan of a carry that varies": (
        lambda x, k: lax.scan(lambda c, v: (c * v, c), 1.0 + k(), x)[0],
        lambda x, k: (1 + k()) * x.prod(),
    ),
    "map of a closure": (_mapped_closure, lambda x, k: x * k()),
    "fori_loop of three turns": (
        lambda x, k: lax.fori_loop(0, 3, lambda _, c: c * 1.5, x * k()),
        lambda x, k: x * k() * 1.5**3,
    ),
    "while_loop of a varying carry": (
        lambda x, k: x * lax.while_loop(lambda c: c < 40, lambda c: c * 2, 1 + k()),
        lambda x, k: x * (64, 64, 48, 64)[k()],
    ),
    "associative_scan": (_combined, _summed),
    "vmap": (
        lambda x, k: jax.vmap(lambda v, n: v * n, (0, None))(x, k()),
        lambda x, k: x * k(),
    ),
    "vectorize": (
        lambda x, k: jnp.vectorize(lambda v, n: v * n)(x, k()),
        lambda x, k: x * k(),
    ),
}  # fmt: skip
"""Loops with a fixed number of turns, whose bodies use what varies."""


def _custom_jvp(x, k):
    n = k()

    @jax.custom_jvp
    def times(v):
        return v * n

    times.defjvp(lambda primals, tangents: (times(*primals), tangents[0] * n))
    return times(x)


@jax.custom_jvp
def _product(v, n):
    return v * v * n


_product.defjvp(lambda primals, tangents: (_product(*primals), 2 * primals[0] * tangents[0] * primals[1]))


def _custom_vjp(x, k):
    n = k()

    @jax.custom_vjp
    def times(v):
        return v * n

    times.defvjp(lambda v: (v * n, n), lambda kept, ct: (ct * kept,))
    return times(x + 0 * n)  # the rule gives a cotangent that varies


def _custom_root(x, k):
    n = k() + 1
    return lax.custom_root(
        lambda v: v - x[0] * n, x[0] * n, lambda f, v: v - f(v), lambda g, y: y / g(jnp.ones_like(y))
    )


def _linear_solve(x, k):
    n = k() + 1
    return lax.custom_linear_solve(lambda v: v * n, x + 0 * n, lambda _, b: b / n, lambda _, b: b / n)


def _jit_of_closure(x, k):
    n = k()
    return jax.jit(lambda v: v * n)(x)


def _checkpoint_of_closure(x, k):
    n = k()
    return jax.checkpoint(lambda v: v * v * n)(x)


CALLS: Pairs = {
    "custom_jvp of a closure": (_custom_jvp, lambda x, k: x * k()),
    "custom_jvp of an argument": (
        lambda x, k: _product(x, 1.0 * k()),
        lambda x, k: x * x * k(),
    ),
    "custom_vjp of a closure": (_custom_vjp, lambda x, k: x * k()),
    "custom_root": (_custom_root, lambda x, k: x[0] * (k() + 1)),
    "custom_linear_solve": (_linear_solve, lambda x, k: x / (k() + 1)),
    "jit of a closure": (_jit_of_closure, lambda x, k: x * k()),
    "jit of an argument": (
        lambda x, k: jax.jit(lambda v, n: v * n)(x, k()),
        lambda x, k: x * k(),
    ),
    "jit with a number inside": (
        lambda x, k: jax.jit(lambda v: v * k())(x),
        lambda x, k: x * k(),
    ),
    "checkpoint of a closure": (_checkpoint_of_closure, lambda x, k: x * x * k()),
    "checkpoint with a number inside": (
        lambda x, k: jax.checkpoint(lambda v: v * v * k())(x),
        lambda x, k: x * x * k(),
    ),
    "composite": (
        lambda x, k: x * lax.composite(lambda n: 2.0 * n, "meshmark.twice")(k()),
        lambda x, k: x * 2 * k(),
    ),
    "platform_dependent": (
        lambda x, k: lax.platform_dependent(x, cpu=lambda v: v * k(), default=lambda v: v * k()),
        lambda x, k: x * k(),
    ),
    "optimization_barrier": (
        lambda x, k: lax.optimization_barrier((x * k(), x))[0],
        lambda x, k: x * k(),
    ),
    "jvp": (
        lambda x, k: jax.jvp(jnp.square, (x + 0 * k(),), (jnp.ones(4) * k(),))[1],
        lambda x, k: 2 * x * k(),
    ),
    "vjp": (
        lambda x, k: jax.vjp(jnp.square, x * k())[1](jnp.ones(4) * (k() + 1))[0],
        lambda x, k: 2 * x * k() * (k() + 1),
    ),
}  # fmt: skip
"""Called and transformed functions whose closures or arguments vary."""


def _key(k, impl=None):
    return jax.random.fold_in(jax.random.key(5, impl=impl), k())


def _random(draw, impl=None):
    """A function that multiplies by numbers drawn with a device's own key, and its definition: the plain draw."""
    return (
        lambda x, k: x * draw(_key(k, impl)),
        lambda x, k: x * np.asarray(draw(_key(k, impl)), np.float64),
    )


RANDOM: Pairs = {
    "bits": _random(lambda key: jax.random.bits(key, (4,)) % 8),
    "uniform": _random(lambda key: jax.random.uniform(key, (4,))),
    "normal": _random(lambda key: jax.random.normal(key, (4,))),
    "bernoulli": _random(lambda key: jax.random.bernoulli(key, 0.5, (4,))),
    "randint": _random(lambda key: jax.random.randint(key, (4,), 0, 9)),
    "split": _random(lambda key: jax.random.key_data(jax.random.split(key))[1, 0] % 8),
    "bits of rbg": _random(lambda key: jax.random.bits(key, (4,)) % 8, "rbg"),
    "categorical": (
        lambda x, k: x[jax.random.categorical(_key(k), x, shape=(8,))],
        lambda x, k: x[np.asarray(jax.random.categorical(_key(k), np.float32(x), shape=(8,)))],
    ),
}
"""Random numbers of a device's own key."""
