# SPDX-License-Identifier: Apache-2.0
"""Nested transformations of collectives: a collective in a loop, a branch, a rematerialized function or a custom rule,
in a shard_map over one axis or all; and of that batches, tangents, pullbacks, gradients of batches, batches of
gradients and tangents of gradients.

All functions are linear, so each has a matrix, and the expected values are matrix products in NumPy. The program next
to them is that of `programs.forms.base`. Any difference raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as


def summed(b, a, n):
    """The block plus the sum of all blocks."""
    return b + lax.psum(b, a)


def turned(b, a, n):
    """The block of the previous device."""
    return lax.ppermute(b, a, [(i, (i + 1) % n) for i in range(n)])


def gathered(b, a, n):
    """The sum of every second block."""
    return (lax.all_gather(b, a) * (np.arange(n) % 2)[:, None].astype(np.float32)).sum(axis=0)


def scattered(b, a, n):
    """The device's element of the sum, repeated in every place."""
    return 0 * b + lax.psum_scatter(b, a, tiled=True)


def exchanged(b, a, n):
    """The device's element of every block."""
    return lax.all_to_all(b, a, 0, 0, tiled=True)


COLLECTIVES: tuple[tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]], ...] = (
    (summed, lambda v: v + v.sum(axis=0)),
    (turned, lambda v: np.roll(v, 1, axis=0)),
    (gathered, lambda v: np.broadcast_to(v[1::2].sum(axis=0), v.shape)),
    (scattered, lambda v: np.repeat(v.sum(axis=0)[:, None], len(v), axis=1)),
    (exchanged, lambda v: v.T),
)
"""Each collective as a function of a block, and as a NumPy function of all blocks [devices, elements]."""


def matrix(function: Callable[[np.ndarray], np.ndarray], n: int) -> np.ndarray:
    """[n * n, n * n]: the matrix of a linear function of all blocks [n, n]."""
    units = np.eye(n * n).reshape(n * n, n, n)
    return np.stack([function(unit).reshape(-1) for unit in units], axis=1)


def _ruled(c):
    """c with a custom tangent rule that gives three times the tangent."""
    own = jax.custom_jvp(c)
    own.defjvp(lambda primals, tangents: (c(*primals), 3 * c(*tangents)))
    return own


def _pulled(c):
    """c with a custom pullback rule that gives twice the pullback."""
    own = jax.custom_vjp(c)
    own.defvjp(lambda b: jax.vjp(c, b), lambda pull, g: (2 * pull(g)[0],))
    return own


def _looped(c, b, a):
    return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, c(s[1])), (0, b))[1]


CONTROLS: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "plain": (lambda c, b, a: c(b), lambda m: m),
    "scan": (
        lambda c, b, a: lax.scan(lambda s, w: (c(s) * w, None), b, jnp.array([1.0, 2]))[0],
        lambda m: 2 * m @ m,
    ),
    "stacked_scan": (
        lambda c, b, a: lax.scan(lambda s, _: (c(s), s), b, length=2, reverse=True)[1].sum(axis=0),
        lambda m: np.eye(len(m)) + m,
    ),
    "fori": (
        lambda c, b, a: lax.fori_loop(0, 2, lambda i, s: c(s) * (i + 1), b),
        lambda m: 2 * m @ m,
    ),
    "while": (_looped, lambda m: m @ m),
    "cond": (
        lambda c, b, a: lax.cond(lax.axis_index(a) >= 0, c, lambda s: 5 * s, b),
        lambda m: m,
    ),
    "switch": (
        lambda c, b, a: lax.switch(1 + 0 * lax.axis_index(a), (lambda s: s, lambda s: 2 * c(s), c), b),
        lambda m: 2 * m,
    ),
    "map": (
        lambda c, b, a: lax.map(c, jnp.stack([b, 2 * b])).sum(axis=0),
        lambda m: 3 * m,
    ),
    "remat": (lambda c, b, a: jax.checkpoint(lambda s: c(c(s)))(b), lambda m: m @ m),
    "remat_in_scan": (
        lambda c, b, a: lax.scan(jax.checkpoint(lambda s, w: (c(s) * w, None)), b, jnp.array([2.0, 1]))[0],
        lambda m: 2 * m @ m,
    ),
    "own_tangent": (lambda c, b, a: _ruled(c)(b), lambda m: m),
    "own_pullback": (lambda c, b, a: _pulled(c)(b), lambda m: m),
    "batch": (
        lambda c, b, a: jax.vmap(c, in_axes=-1, out_axes=-1)(jnp.stack([b, 3 * b], axis=-1)).sum(axis=-1),
        lambda m: 4 * m,
    ),
    "jit": (lambda c, b, a: jax.jit(c)(b), lambda m: m),
}
"""The code around a collective: a function of the collective, the block and the axis; and its matrix, given the
collective's matrix."""

TANGENT = {"own_tangent": 3}
"""The factor of the tangent, where a custom rule changes it."""

PULLBACK = {"own_tangent": 3, "own_pullback": 2}
"""The factor of the pullback, where a custom rule changes it."""

FORWARD = ("while",)
"""The controls that have no pullback."""

BACKWARD = ("own_pullback",)
"""The controls that have no tangent."""


def nested(mesh, a, x, form):
    """Every transformation of one control with one collective, and batches of its gradients (or tangents) with the
    others."""
    n = mesh.shape[a]
    control, made = CONTROLS[form]
    turn = [*CONTROLS].index(form)
    values = np.asarray(x).reshape(-1)[: n * n].astype(np.float64)
    v, t = values, (values[::-1] + 1) % 3
    rows = np.stack([v, t, v + t])
    names = {a} if turn % 2 else set(mesh.axis_names)
    back, forth = form not in FORWARD, form not in BACKWARD
    for number, (call, define) in enumerate(COLLECTIVES):

        def local(b, call=call):
            return control(lambda c: call(c, a, n), b, a)

        def inside(b, u, local=local):
            found = [jax.vmap(local)(jnp.stack([b, u])).sum(axis=0)]
            found += [jax.jvp(local, (b,), (u,))[1]] if forth else []
            return tuple(found + ([jax.vjp(local, b)[1](u)[0]] if back else []))

        options = {"mesh": mesh, "axis_names": names}
        f = jax.shard_map(local, in_specs=P(a), out_specs=P(a), **options)
        count = 1 + forth + back
        g = jax.shard_map(inside, in_specs=(P(a), P(a)), out_specs=(P(a),) * count, **options)

        def loss(y, f=f):
            return (f(y) ** 2).sum() / 2

        def few(y, u, many, f=f, loss=loss):
            if not back:
                return {"tangents": jax.vmap(lambda d: jax.jvp(f, (y,), (d,))[1])(many)}
            return {"gradients": jax.vmap(jax.grad(loss))(many)}

        def every(y, u, many, f=f, g=g, loss=loss):
            found = {"value": f(y), "batch": jax.vmap(f)(many), "inside": g(y, u)}
            if forth:
                found["tangent"] = jax.jvp(f, (y,), (u,))[1]
                found["tangents"] = jax.vmap(lambda d: jax.jvp(f, (y,), (d,))[1])(many)
                found["line"] = jax.linearize(f, y)[1](u)
            if back:
                found["pullback"] = jax.vjp(f, y)[1](u)[0]
                found["gradient"] = jax.grad(loss)(y)
                found["gradients"] = jax.vmap(jax.grad(loss))(many)
                found["of_batch"] = jax.grad(lambda y, f=f: (jax.vmap(f)(y) ** 2).sum() / 2)(many)
                found["again"] = jax.grad(jax.checkpoint(loss))(y)
                found["second"] = jax.jvp(jax.grad(loss), (y,), (u,))[1]
            return found

        m = made(matrix(define, n))
        ahead, behind = TANGENT.get(form, 1) * m, PULLBACK.get(form, 1) * m.T
        right: dict[str, Any] = {
            "value": m @ v,
            "batch": rows @ m.T,
            "tangent": ahead @ t,
            "tangents": rows @ ahead.T,
            "line": ahead @ t,
            "pullback": behind @ t,
            "gradient": behind @ m @ v,
            "gradients": rows @ (behind @ m).T,
            "of_batch": rows @ (behind @ m).T,
            "again": behind @ m @ v,
            "second": behind @ m @ t,
            "inside": [m @ (v + t), *([ahead @ t] if forth else []), *([behind @ t] if back else [])],
        }
        place, whole = at(mesh, a), at(mesh, None, a)
        given = [jax.device_put(w.astype(np.float32), place) for w in (v, t)]
        found = jax.jit(every if number == turn % 5 else few)(
            *given, jax.device_put(rows.astype(np.float32), whole)
        )
        for name, got in found.items():
            want = right[name]
            pairs = zip(got, want, strict=True) if name == "inside" else [(got, want)]
            for part, (y, w) in enumerate(pairs):
                what = f"{name} {part} of {call.__name__} in {form}"
                same_as(np.asarray(y), np.asarray(w, np.float32), what)
    return jax.jit(over(mesh, a))(x)


NESTED = {form: nested for form in CONTROLS}


class NestedTransform(ProgramForm):
    """One sharded program, with checks of nested transformations of collectives in loops, branches and custom rules."""

    name = "nested_transform"
    forms = NESTED
    two_axes = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return NESTED[form](mesh, axis, jax.device_put(x, at(mesh, axis)), form)
