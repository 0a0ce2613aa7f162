# SPDX-License-Identifier: Apache-2.0
"""Small rules: derivatives at ties and edges, by indices and paddings, of selections, powers and solvers."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.cuts import hold, hold_near, mixed


def _derivatives(line, grid):
    """Gradients at ties, of selections among several, of repeated and clipped indices, at zero, of solvers, and blocks
    of second derivatives. They are written down, and exact but for the logarithm and the solver."""
    n = line.size
    x = (mixed((2 * n, 4 * n), 3)).astype(np.float32)
    weights = (mixed((2 * n, 2 * n), 7) + 1).astype(np.float32)
    ties = np.zeros_like(x)
    for i in range(2 * n):
        for j in range(2 * n):
            ties[i, 2 * j + x[i, 2 * j : 2 * j + 2].argmax()] += weights[i, j]
    down = np.zeros_like(x)
    for i in range(2 * n):
        for j in range(2 * n):
            down[i, 2 * j + x[i, 2 * j : 2 * j + 2].argmin()] += weights[i, j]
    whole = (mixed(x.shape, 11) - 5).astype(np.float32)
    which = mixed(x.shape, 4).astype(np.int32)
    places = np.array([0, 2 * n - 1, 5 * n, -1, 1, 1], np.int32)
    rows = (mixed((6, 4 * n), 5) - 2).astype(np.float32)

    def pooled(x, method, start):
        return lax.reduce_window(x, np.float32(start), method, (1, 2), (1, 2), "VALID")

    def taken(counted, inside=None):
        out = np.zeros_like(x)
        for place, row in zip(counted, rows, strict=True):
            if inside is None or -len(x) <= place < len(x):
                out[place] += row
        return out

    clipped = np.clip(places, 0, 2 * n - 1)
    counted = np.clip(np.where(places < 0, places + 2 * n, places), 0, 2 * n - 1)
    chosen = np.stack([np.where(which == k, whole, 0) for k in range(4)])
    members = {
        "a maximum of equal numbers": (
            lambda x, w, u, i, p, r: jax.grad(lambda x: (pooled(x, lax.max, -np.inf) * w).sum())(x),
            ties,
        ),
        "a minimum of equal numbers": (
            lambda x, w, u, i, p, r: jax.grad(lambda x: (pooled(x, lax.min, np.inf) * w).sum())(x),
            down,
        ),
        "each of four cases": (
            lambda x, w, u, i, p, r: jax.grad(lambda c: (lax.select_n(i, *c) * u).sum())((x, x, x, x)),
            tuple(chosen),
        ),
        "nested where": (
            lambda x, w, u, i, p, r: jax.grad(
                lambda c: (
                    jnp.where(i == 0, c[0], jnp.where(i == 1, c[1], jnp.where(i == 2, c[2], c[3]))) * u
                ).sum()
            )((x, x, x, x)),
            tuple(chosen),
        ),
        "places that are clipped": (
            lambda x, w, u, i, p, r: jax.grad(lambda x: (jnp.take(x, p, 0, mode="clip") * r).sum())(x),
            taken(clipped),
        ),
        "places that are read and clipped": (
            lambda x, w, u, i, p, r: jax.grad(lambda x: (x.at[p].get(mode="clip") * r).sum())(x),
            taken(counted),
        ),
        "places that are filled": (
            lambda x, w, u, i, p, r: jax.grad(lambda x: (x.at[p].get(mode="fill", fill_value=0) * r).sum())(
                x
            ),
            taken(places, True),
        ),
        "places that wrap": (
            lambda x, w, u, i, p, r: jax.grad(lambda x: (jnp.take(x, p, 0, mode="wrap") * r).sum())(x),
            taken(places % (2 * n)),
        ),
        "rows that are written": (
            lambda x, w, u, i, p, r: jax.grad(lambda r: (x.at[p].add(r, mode="drop") * u).sum())(r),
            np.stack(
                [u if -2 * n <= q < 2 * n else 0 * u for q, u in zip(places, whole[counted], strict=True)]
            ),
        ),
        "padding": (
            lambda x, w, u, i, p, r: jax.grad(
                lambda x, v: (lax.pad(x, v, ((0, 0, 0), (-1, 1, 0))) * u).sum(), (0, 1)
            )(x, jnp.float32(2)),
            (np.concatenate([0 * whole[:, :1], whole[:, :-1]], 1), np.float32(whole[:, -1].sum())),
        ),
        "a value of padding for each row": (
            lambda x, w, u, i, p, r: jax.vmap(lambda row, v: lax.pad(row, v, ((1, 2, 0),)))(x, u[:, 0]),
            np.concatenate([whole[:, :1], x, whole[:, :1], whole[:, :1]], 1),
        ),
        "blocks of second derivatives": (
            lambda x, w, u, i, p, r: jax.hessian(lambda a, b: (a**2 * b[::-1]).sum() + (b**3).sum(), (0, 1))(
                x[0, :3], u[0, :3]
            ),
            (
                (2 * np.diag(whole[0, 2::-1]), 2 * np.diag(x[0, :3])[:, ::-1]),
                (2 * np.diag(x[0, :3])[::-1], 6 * np.diag(whole[0, :3])),
            ),
        ),
    }
    answers = {name: (f, jax.tree.map(np.float32, right)) for name, (f, right) in members.items()}
    hold(line, grid, answers, x, weights, whole, which, places, rows)
    log = np.log(np.where(x > 0, x, 1))
    power = {
        "a power by its exponent": (
            lambda x, u: jax.grad(lambda y: (jnp.power(x, y) * u).sum())(jnp.full_like(x, 2)),
            np.float32(whole * x**2 * log),
        )
    }
    hold(
        line, grid, power, x, whole, most=1024
    )  # a logarithm, as rounded as the smooth functions of `cut_floats`
    a = np.stack([np.array([[4, 1], [0, 2]]) + np.eye(2) * (k % 3) for k in range(2 * n)])
    b = mixed((2 * n, 2, 3), 9) - 4.0
    solver = {
        "the derivative of a solver": (
            lambda b, a: jax.grad(lambda b: (jnp.linalg.solve(a, b) * (1 + jnp.arange(3.0))).sum())(b),
            np.linalg.solve(np.swapaxes(a, 1, 2), np.broadcast_to(1 + np.arange(3.0), b.shape)),
        )
    }
    hold_near(line, grid, solver, np.float32(b), np.float32(a))


RULES_OF_DERIVATIVES: dict[str, Callable[..., None]] = {"derivatives": _derivatives}
