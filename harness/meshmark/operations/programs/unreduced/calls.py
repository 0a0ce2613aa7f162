# SPDX-License-Identifier: Apache-2.0
"""Unreduced arrays in loops, conditions, transforms, callbacks, and with functions that are not linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.operations.programs.forms.base import run_jitted
from meshmark.operations.programs.forms.block_functions import near
from meshmark.operations.programs.unreduced.forms import ODD, ONES, form_of
from meshmark.operations.programs.unreduced.sums import (
    Pairs,
    check_refused_by_rule,
    check_right_or_refused,
    check_taken,
    parts_of,
    require_unreduced_types,
)


def _pair(function: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A function of jax.numpy, which is looked up when it is called, and that of NumPy."""
    return lambda u: getattr(jnp, function)(u), getattr(np, function)


NOT_LINEAR: Pairs = {
    **{
        name: _pair(name)
        for name in (
            *(
                "abs",
                "exp",
                "square",
                "sign",
                "rint",
                "tanh",
                "sin",
                "floor",
                "isnan",
                "isfinite",
                "logical_not",
            ),
            *(
                "prod",
                "any",
                "all",
                "mean",
                "var",
                "argmax",
                "argmin",
                "count_nonzero",
                "nansum",
                "sort",
                "argsort",
            ),
            *("nan_to_num", "cov", "cumprod", "median"),
        )
    },
    "u + 1": (lambda u: u + 1, lambda s: s + 1),
    "1 - u": (lambda u: 1 - u, lambda s: 1 - s),
    "u + a NumPy array": (lambda u: u + ONES, lambda s: s + ONES),
    "u * u": (lambda u: u * u, lambda s: s * s),
    "u ** 2": (lambda u: u**2, lambda s: s**2),
    "u == u": (lambda u: u == u + u, lambda s: s == 2 * s),
    "u > 0": (lambda u: u > 0, lambda s: s > 0),
    "maximum with 0": (lambda u: jnp.maximum(u, 0), lambda s: np.maximum(s, 0)),
    "minimum of two": (lambda u: jnp.minimum(u, u + u), lambda s: np.minimum(s, 2 * s)),
    "clip": (lambda u: jnp.clip(u, -1, 1), lambda s: np.clip(s, -1, 1)),
    "where u > 0": (lambda u: jnp.where(u > 0, u, 0), lambda s: np.where(s > 0, s, 0)),
    "remainder by 3": (lambda u: u % 3, lambda s: s % 3),
    "its bits and 3": (lambda u: u.astype(jnp.int32) & 3, lambda s: s.astype(int) & 3),
    "its bits turned": (lambda u: ~u.astype(jnp.int32), lambda s: ~s.astype(int)),
    "relu": (jax.nn.relu, lambda s: np.maximum(s, 0)),
    "softmax": (jax.nn.softmax, lambda s: np.exp(s) / np.exp(s).sum(-1, keepdims=True)),
    "logsumexp": (jax.nn.logsumexp, lambda s: np.log(np.exp(s).sum())),
    "norm": (jnp.linalg.norm, np.linalg.norm),
    "running maximum": (lambda u: lax.cummax(u), np.maximum.accumulate),
    "top_k": (lambda u: lax.top_k(u, 2)[0], lambda s: np.sort(s)[:, ::-1][:, :2]),
    "u @ u.T": (lambda u: u @ u.T, lambda s: s @ s.T),
    "vdot": (lambda u: jnp.vdot(u, u), lambda s: np.vdot(s, s)),
    "outer": (lambda u: jnp.outer(u[0], u[1]), lambda s: np.outer(s[0], s[1])),
    "cross": (lambda u: jnp.cross(u[:, :3], u[:, 3:]), lambda s: np.cross(s[:, :3], s[:, 3:])),
    "searchsorted": (
        lambda u: jnp.searchsorted(np.arange(5.0), u),
        lambda s: np.searchsorted(np.arange(5.0), s),
    ),
    "one_hot": (
        lambda u: jax.nn.one_hot(u[0].astype(jnp.int32), 4),
        lambda s: (s[0][:, None] == np.arange(4)) * 1.0,
    ),
    "an index": (lambda u: jnp.arange(9.0)[abs(u[0].astype(jnp.int32))], lambda s: abs(s[0])),
    "a predicate of cond": (
        lambda u: lax.cond(u[0, 1] > 0, lambda v: v + v, lambda v: v, u),
        lambda s: 2 * s if s[0, 1] > 0 else s,
    ),
}


def _scaled(mesh, a, x):
    """Products with replicated, sharded, NumPy and reduced arrays."""
    require_unreduced_types()
    n, here = mesh.shape[a], P(None, None, reduced={a})

    def reduced(v):
        return reshard(v, here)

    threes = np.full((4, 6), 3.0, np.float32)
    check_taken(
        mesh,
        a,
        {
            "u times a reduced array": (lambda u: u * reduced(jnp.asarray(threes)), lambda s: 3 * s),
            "a reduced number times u": (
                lambda u: reshard(jnp.float32(3), P(reduced={a})) * u,
                lambda s: 3 * s,
            ),
            "where by a reduced array": (
                lambda u: jnp.where(reduced(jnp.asarray(ODD)), u, u + u),
                lambda s: np.where(ODD, s, 2 * s),
            ),
        },
    )
    cut = jnp.ones((6, n), out_sharding=None)
    check_right_or_refused(
        mesh,
        a,
        {
            "2 * u": (lambda u: 2 * u, lambda s: 2 * s),
            "u / 2": (lambda u: u / 2, lambda s: s / 2),
            "u * a NumPy array": (lambda u: u * threes, lambda s: 3 * s),
            "u / a reduced array": (lambda u: u / reduced(jnp.asarray(threes)), lambda s: s / 3),
            "a reduced array / u": (lambda u: reduced(jnp.asarray(threes)) / (u + u), lambda s: 1.5 / s),
            "u + a reduced array": (lambda u: u + reduced(jnp.asarray(threes)), lambda s: s + 3),
            "u - a reduced array": (lambda u: u - reduced(jnp.asarray(threes)), lambda s: s - 3),
            "maximum with a reduced array": (
                lambda u: jnp.maximum(u, reduced(jnp.asarray(threes))),
                lambda s: np.maximum(s, 3),
            ),
            "u @ a NumPy array": (lambda u: u @ threes.T, lambda s: s @ threes.T),
            "a NumPy array @ u": (lambda u: threes.T @ u, lambda s: threes.T @ s),
            "u @ a reduced array": (lambda u: u @ reduced(jnp.asarray(threes)).T, lambda s: s @ threes.T),
            "u @ a sharded array": (lambda u: u @ reshard(cut, P(None, a)), lambda s: s @ np.ones((6, n))),
            "kron": (
                lambda u: jnp.kron(u, np.ones((2, 2), np.float32)),
                lambda s: np.kron(s, np.ones((2, 2))),
            ),
            "polyval": (lambda u: jnp.polyval(np.float32([2, 0]), u), lambda s: 2 * s),
            "a solution": (
                lambda u: jnp.linalg.solve(2 * np.eye(4, dtype=np.float32), u),
                lambda s: s / 2,
            ),
        },
    )
    return run_jitted(mesh, a, x)


def _around(mesh, a, x):
    """Conditions, loops over rows, transforms and regions around an unreduced array."""
    check_taken(
        mesh,
        a,
        {
            "jit": (lambda u: jax.jit(lambda v: v + v)(u), lambda s: 2 * s),
            "checkpoint": (lambda u: jax.checkpoint(lambda v: v + v)(u), lambda s: 2 * s),
            "a known condition": (lambda u: lax.cond(True, lambda v: v + v, lambda v: v, u), lambda s: 2 * s),
            "a condition": (
                lambda u: lax.cond(jnp.ones(()) > 0, lambda v: v + v, lambda v: v, u),
                lambda s: 2 * s,
            ),
            "a tangent": (lambda u: jax.jvp(lambda v: v + v, (u,), (u,))[1], lambda s: 2 * s),
            "a gradient": (lambda u: jax.grad(lambda v: v.sum())(u), np.ones_like),
            "a carry of scan": (
                lambda u: lax.scan(lambda c, _: (c + c, None), u, None, length=2)[0],
                lambda s: 4 * s,
            ),
            "a carry of fori_loop": (lambda u: lax.fori_loop(0, 3, lambda i, c: c + c, u), lambda s: 8 * s),
            "a carry of while_loop": (
                lambda u: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + c[1]), (0, u))[1],
                lambda s: 8 * s,
            ),
            "auto_axes": (
                lambda u: jax.sharding.auto_axes(lambda v: v * v, out_sharding=P())(u),
                lambda s: s * s,
            ),
            "device_put": (lambda u: jax.device_put(u, P()), lambda s: s),
            "a tree": (lambda u: jax.tree.map(jnp.add, [u, u], [u, u])[1], lambda s: 2 * s),
        },
    )
    check_right_or_refused(
        mesh,
        a,
        {
            "vmap": (lambda u: jax.vmap(lambda r: r + r)(u), lambda s: 2 * s),
            "lax.map": (lambda u: lax.map(lambda r: r + r, u), lambda s: 2 * s),
            "a scan over rows": (
                lambda u: lax.scan(lambda c, r: (c + r, r), u[0], u)[0],
                lambda s: s[0] + s.sum(0),
            ),
            "a cotangent": (lambda u: jax.vjp(lambda v: v + v, u)[1](u)[0], lambda s: 2 * s),
            "a constraint to P()": (lambda u: lax.with_sharding_constraint(u, P()), lambda s: s),
            "branches of other types": (
                lambda u: lax.cond(jnp.ones(()) > 0, lambda v: v, lambda v: reshard(v, P()), u),
                lambda s: s,
            ),
            "shard_map with in_specs of P()": (
                lambda u: jax.shard_map(lambda v: v, in_specs=P(), out_specs=P())(u),
                lambda s: s,
            ),
        },
    )
    return run_jitted(mesh, a, x)


def _region(mesh, a, x):
    """A shard_map whose specs are unreduced."""
    require_unreduced_types()
    place = P(None, None, unreduced={a})
    check_taken(
        mesh,
        a,
        {
            "psum in shard_map": (
                lambda u: jax.shard_map(lambda v: lax.psum(v, a), in_specs=place, out_specs=P())(u),
                lambda s: s,
            ),
            "shard_map": (
                lambda u: jax.shard_map(lambda v: v + v, in_specs=place, out_specs=place)(u),
                lambda s: 2 * s,
            ),
            "shard_map of inferred specs": (
                lambda u: jax.shard_map(lambda v: v + v, out_specs=place)(u),
                lambda s: 2 * s,
            ),
        },
    )
    return run_jitted(mesh, a, x)


WHILE_CONSTANT: Pairs = {
    "while_loop that adds it": (
        lambda u: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + u), (0, u))[1],
        lambda s: 4 * s,
    ),
}
SCAN_CONSTANT: Pairs = {
    "scan that adds it": (
        lambda u: lax.scan(lambda c, _: (c + u, None), u, None, length=2)[0],
        lambda s: 3 * s,
    ),
    "fori_loop that adds it": (lambda u: lax.fori_loop(0, 3, lambda i, c: c + u, u), lambda s: 4 * s),
}


def _no_rule(mesh, a, x):
    """Functions without a rule for unreduced arrays, which should say so."""
    check_refused_by_rule(
        mesh,
        a,
        {
            "cumsum": lambda u: jnp.cumsum(u, 0),
            "argmax": jnp.argmax,
            "prod": jnp.prod,
            "sort": jnp.sort,
            "vmap": jax.vmap(lambda r: r + r),
            "tile": lambda u: jnp.tile(u, (2, 1)),
            "repeat": lambda u: jnp.repeat(u, 2, 0),
            "top_k": lambda u: lax.top_k(u, 2)[0],
            "with_sharding_constraint": lambda u: lax.with_sharding_constraint(u, P()),
            "where with a number": lambda u: jnp.where(ODD, u, 0),
            "at[].add": lambda u: u.at[0].add(u[1]),
            "a reshape that joins": lambda u: u.reshape(24),
        },
    )
    return run_jitted(mesh, a, x)


def _ends(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """The form of a function of an unreduced array that gives the sum, or is refused. In some releases it ends the
    process."""
    return form_of((check_right_or_refused, {"the program": (function, lambda s: s)}))


def _callback(mesh, a, x):
    """jax.debug.callback sees the sum, or is refused."""
    require_unreduced_types()
    parts, seen = parts_of(mesh, a, 4, 6), []

    def function(u):
        jax.debug.callback(lambda v: seen.append(np.asarray(v)), u)
        return u

    def told(_):
        jax.effects_barrier()
        return parts.sum(axis=0)

    check_right_or_refused(mesh, a, {"a debug callback": (function, told)})
    for v in seen:
        near(v, parts.sum(axis=0), "what a callback sees of an unreduced array")
    return run_jitted(mesh, a, x)


CALLS: dict[str, Callable[..., Any]] = {
    "not_linear": form_of((check_right_or_refused, NOT_LINEAR)),
    "scaled": _scaled,
    "around": _around,
    "region": _region,
    "while_constant": form_of((check_right_or_refused, WHILE_CONSTANT)),
    "scan_constant": form_of((check_right_or_refused, SCAN_CONSTANT)),
    "no_rule": _no_rule,
    "debug_callback": _callback,
    "pure_callback": _ends(
        lambda u: jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(u.shape, u.dtype), u),
    ),
}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""
