# SPDX-License-Identifier: Apache-2.0
"""Forms of `function_edge` that run something again: loops, branches and batches, and second calls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.edges.comparing import agree, rows_of
from meshmark.operations.programs.forms.base import at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def control(mesh, a, x):
    """Loops that do not run, remainders of unrolled and batched loops, the last of many branches, and batches of
    conditions and loops."""
    rows = rows_of(mesh, a)
    host = np.arange(1, rows + 1, dtype=np.float32)
    seven = np.resize(host, 7)
    ends = np.arange(rows) % 4
    bad = np.where(np.arange(rows) % 2 == 0, host, np.nan).astype(np.float32)
    products = np.cumprod(np.resize([1.0, 2, 1, 0.5], (3, 4)), axis=1)

    def counted(y):
        return jax.vmap(
            lambda v, n: lax.while_loop(
                lambda s: s[2] < n, lambda s: (2 * s[0], s[1] / 2, s[2] + 1), (v, jnp.stack([v, 2 * v]), 0)
            )[:2]
        )(y, jnp.asarray(ends))

    def scanned(y):
        return lax.scan(lambda c, v: (c + v, c), jnp.float32(0), jnp.resize(y, 7), reverse=True, unroll=3)

    before = np.concatenate([np.cumsum(seven[::-1])[::-1][1:], [0]])
    branches = [lambda v, k=k: v * (k + 1) for k in range(7)]
    pair = (np.resize(host, (3, 4)), np.resize(host[::-1], (3, 4)))

    def together(p, q):
        return p[0] * q[0], p[0] * q[1] + p[1]

    running = [np.zeros((3, 4)), np.zeros((3, 4))]
    state: Any = (np.ones(3), np.zeros(3))
    for i in range(3, -1, -1):
        one = (pair[0][:, i] % 3, pair[1][:, i])
        state = (state[0] * one[0], state[0] * one[1] + state[1])
        running[0][:, i], running[1][:, i] = state
    edges: dict[str, Any] = {
        "a loop with a bound that is traced and 0": (
            lambda y: lax.fori_loop(0, (y[0] - 1).astype(jnp.int32), lambda i, v: v + 1, y),
            (host,),
            host,
        ),
        "loops of no step": (
            lambda y: lax.fori_loop(3, 3, lambda i, v: v + 1, y)
            + lax.scan(lambda c, _: (c + 1, c), y, None, length=0)[0],
            (host,),
            2 * host,
        ),
        "the branches of a long switch": (
            lambda y: jnp.stack([lax.switch(k, branches, y[0]) for k in range(7)])
            + jax.vmap(lambda k: lax.switch(k, branches, y[1]))(jnp.arange(7)),
            (host,),
            (np.arange(1, 8) * (host[0] + host[1])).astype(np.float32),
        ),
        "a batch of conditions beside NaN": (
            lambda y: jax.vmap(lambda v: lax.cond(jnp.isnan(v), lambda w: jnp.float32(-1), lambda w: 2 * w, v))(y),
            (bad,),
            np.where(np.isnan(bad), -1, 2 * bad).astype(np.float32),
        ),
        "a batch of loops of other lengths": (
            counted,
            (host,),
            (
                (host * 2.0**ends).astype(np.float32),
                (np.stack([host, 2 * host], 1) / 2.0 ** ends[:, None]).astype(np.float32),
            ),
        ),
        "an unrolled loop from the end": (scanned, (host,), (np.float32(seven.sum()), before.astype(np.float32))),
        "a loop in batches with a remainder": (
            lambda y: lax.map(lambda v: v * v, jnp.resize(y, 7), batch_size=3),
            (host,),
            seven * seven,
        ),
        "a scan of pairs from the end": (
            lambda y: lax.associative_scan(
                together,
                (jnp.asarray(pair[0] % 3) + 0 * y[0], jnp.asarray(pair[1]) + 0 * y[0]),
                reverse=True,
                axis=1,
            ),
            (host,),
            tuple(r.astype(np.float32) for r in running),
        ),
        "a batch of running products": (
            lambda y: jax.vmap(lambda v: lax.cumprod(v, axis=1), in_axes=1, out_axes=1)(
                jnp.broadcast_to(jnp.asarray(np.resize([1.0, 2, 1, 0.5], (3, 4)), jnp.float32)[:, None], (3, 2, 4))
            ) + 0 * y[0],
            (host,),
            np.repeat(products[:, None], 2, 1).astype(np.float32),
        ),
        "what a batch leaves as it is": (
            lambda y: jax.vmap(lambda v: y[:3] + 0, out_axes=-1)(y),
            (host,),
            np.repeat(host[:3, None], rows, 1),
        ),
    }  # fmt: skip
    agree(mesh, edges, a)
    return jax.jit(over(mesh, a))(x)


def calls(mesh, a, x):
    """Second calls with other static arguments, donation of several names, rules in a batch, leaves that are None, and
    keys of random numbers."""
    rows = rows_of(mesh, a)
    host = np.arange(1, rows + 1, dtype=np.float32)
    y = jax.device_put(host, at(mesh, a))

    scaled = jax.jit(lambda v, k, more: v * k + more, static_argnums=(1, 2))
    for k, more in ((2, 3), (2, 4), (5, 4), (2, 3)):
        same_as(
            np.asarray(scaled(y, k, more)),
            host * k + more,
            f"a call with the static arguments {k} and {more}",
        )
    both = jax.jit(lambda p, q: (p + 1, q + 2), donate_argnames=("p", "q"))
    p, q = jax.device_put(host, at(mesh, a)), jax.device_put(2 * host, at(mesh, a))
    same_as(np.asarray(both(p=p, q=q)[1]), 2 * host + 2, "a result of donated arguments")
    wrong(
        p.is_deleted() != q.is_deleted(),
        f"of two donated names deleted are {p.is_deleted()} and {q.is_deleted()}",
    )

    @jax.custom_vjp
    def product(v, w):
        return v * w

    product.defvjp(lambda v, w: (v * w, (v, w)), lambda kept, c: (c * kept[1], c * kept[0]))
    batched = jax.vmap(product, in_axes=(0, None))
    slopes = jax.jit(
        jax.grad(lambda v, w: (batched(v, w) * jnp.arange(1.0, rows + 1)).sum(), argnums=(0, 1))
    )(y, jnp.float32(3))
    same_as(np.asarray(slopes[0]), 3 * host, "the gradient of a rule by a batch")
    same_as(
        np.asarray(slopes[1]),
        np.float32((host * host).sum()),
        "the gradient of a rule by what a batch shares",
    )
    tree = jax.tree.map(lambda v: 7 if v is None else v, {"p": None, "q": 1}, is_leaf=lambda v: v is None)
    wrong(tree != {"p": 7, "q": 1}, f"a tree with a leaf that is None becomes {tree}")
    for make in (jax.random.key, jax.random.PRNGKey):
        for count in (3, 4, 7):
            keys = jax.jit(lambda k, count=count: jax.random.split(k, count))(make(5))
            words = np.asarray(jax.random.key_data(keys) if make is jax.random.key else keys).reshape(
                count, -1
            )
            wrong(len(np.unique(words, axis=0)) != count, f"of {count} keys two are the same")
        drawn = [
            np.asarray(jax.random.bits(jax.random.fold_in(make(5), np.uint32(data)), (4,)))
            for data in (1, 2**31 + 1, 2**32 - 1, 2**31 - 1)
        ]
        wrong(len(np.unique(drawn, axis=0)) != 4, "numbers folded into a key give the same draws")
    return jax.jit(over(mesh, a))(x)
