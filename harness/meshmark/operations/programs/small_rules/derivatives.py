# SPDX-License-Identifier: Apache-2.0
"""Small rules: derivatives at ties and edges, by indices and paddings, of selections, powers and solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.cuts.running import Members, hold, hold_near, mixed


def _numbers(n: int) -> tuple[np.ndarray, np.ndarray]:
    """[2n, 4n] float32: small whole numbers with many ties, and weights of both signs."""
    shape = (2 * n, 4 * n)
    return mixed(shape, 3).astype(np.float32), (mixed(shape, 11) - 5).astype(np.float32)


def _float32(members: Members) -> Members:
    """The members with answers of float32."""
    return {name: (f, jax.tree.map(np.float32, right)) for name, (f, right) in members.items()}


def _pooled_slopes(x: np.ndarray, weights: np.ndarray, place: Callable[..., Any]) -> np.ndarray:
    """The gradient of a maximum or minimum of each two numbers of a row: of equal numbers, the first one has it all."""
    slopes = np.zeros_like(x)
    for i, j in np.ndindex(weights.shape):
        slopes[i, 2 * j + place(x[i, 2 * j : 2 * j + 2])] += weights[i, j]
    return slopes


def _selections(line, grid):
    """Gradients at ties of windows, and of selections among several arrays."""
    n = line.size
    x, whole = _numbers(n)
    weights = (mixed((2 * n, 2 * n), 7) + 1).astype(np.float32)
    which = mixed(x.shape, 4).astype(np.int32)
    chosen = tuple(np.where(which == k, whole, 0) for k in range(4))

    def pooled(x, method, start):
        return lax.reduce_window(x, np.float32(start), method, (1, 2), (1, 2), "VALID")

    members = {
        "a maximum of equal numbers": (
            lambda x, w, u, i: jax.grad(lambda x: (pooled(x, lax.max, -np.inf) * w).sum())(x),
            _pooled_slopes(x, weights, np.argmax),
        ),
        "a minimum of equal numbers": (
            lambda x, w, u, i: jax.grad(lambda x: (pooled(x, lax.min, np.inf) * w).sum())(x),
            _pooled_slopes(x, weights, np.argmin),
        ),
        "each of four cases": (
            lambda x, w, u, i: jax.grad(lambda c: (lax.select_n(i, *c) * u).sum())((x, x, x, x)),
            chosen,
        ),
        "nested where": (
            lambda x, w, u, i: jax.grad(
                lambda c: (
                    jnp.where(i == 0, c[0], jnp.where(i == 1, c[1], jnp.where(i == 2, c[2], c[3]))) * u
                ).sum()
            )((x, x, x, x)),
            chosen,
        ),
    }
    hold(line, grid, _float32(members), x, weights, whole, which)


def _places(line, grid):
    """Gradients of rows that are read or written at places that repeat, are negative, or lie outside."""
    n = line.size
    x, whole = _numbers(n)
    places = np.array([0, 2 * n - 1, 5 * n, -1, 1, 1], np.int32)
    rows = (mixed((6, 4 * n), 5) - 2).astype(np.float32)
    clipped = np.clip(places, 0, 2 * n - 1)
    # A negative place counts from the end once; what is then outside is clipped.
    counted = np.clip(np.where(places < 0, places + 2 * n, places), 0, 2 * n - 1)
    inside = (-2 * n <= places) & (places < 2 * n)

    def summed(places):
        """The rows, added up at their places. A place outside has none."""
        slopes = np.zeros_like(x)
        for place, row in zip(places, rows, strict=True):
            if -len(x) <= place < len(x):
                slopes[place] += row
        return slopes

    members = {
        "places that are clipped": (
            lambda x, u, p, r: jax.grad(lambda x: (jnp.take(x, p, 0, mode="clip") * r).sum())(x),
            summed(clipped),
        ),
        "places that are read and clipped": (
            lambda x, u, p, r: jax.grad(lambda x: (x.at[p].get(mode="clip") * r).sum())(x),
            summed(counted),
        ),
        "places that are filled": (
            lambda x, u, p, r: jax.grad(lambda x: (x.at[p].get(mode="fill", fill_value=0) * r).sum())(x),
            summed(places),
        ),
        "places that wrap": (
            lambda x, u, p, r: jax.grad(lambda x: (jnp.take(x, p, 0, mode="wrap") * r).sum())(x),
            summed(places % (2 * n)),
        ),
        "rows that are written": (
            lambda x, u, p, r: jax.grad(lambda r: (x.at[p].add(r, mode="drop") * u).sum())(r),
            np.where(inside[:, None], whole[counted], 0),
        ),
    }
    hold(line, grid, _float32(members), x, whole, places, rows)


def _paddings_and_powers(line, grid):
    """Gradients by padded arrays and their padding, of a power by its exponent, and blocks of second derivatives."""
    x, whole = _numbers(line.size)
    members = {
        "padding": (
            lambda x, u: jax.grad(lambda x, v: (lax.pad(x, v, ((0, 0, 0), (-1, 1, 0))) * u).sum(), (0, 1))(
                x, jnp.float32(2)
            ),
            (np.concatenate([0 * whole[:, :1], whole[:, :-1]], 1), np.float32(whole[:, -1].sum())),
        ),
        "a value of padding for each row": (
            lambda x, u: jax.vmap(lambda row, v: lax.pad(row, v, ((1, 2, 0),)))(x, u[:, 0]),
            np.concatenate([whole[:, :1], x, whole[:, :1], whole[:, :1]], 1),
        ),
        "blocks of second derivatives": (
            lambda x, u: jax.hessian(lambda a, b: (a**2 * b[::-1]).sum() + (b**3).sum(), (0, 1))(
                x[0, :3], u[0, :3]
            ),
            (
                (2 * np.diag(whole[0, 2::-1]), 2 * np.diag(x[0, :3])[:, ::-1]),
                (2 * np.diag(x[0, :3])[::-1], 6 * np.diag(whole[0, :3])),
            ),
        ),
    }
    hold(line, grid, _float32(members), x, whole)
    log = np.log(np.where(x > 0, x, 1))
    power = {
        "a power by its exponent": (
            lambda x, u: jax.grad(lambda y: (jnp.power(x, y) * u).sum())(jnp.full_like(x, 2)),
            np.float32(whole * x**2 * log),
        )
    }
    # A logarithm is as rounded as the smooth functions of `cuts.floats`.
    hold(line, grid, power, x, whole, most=1024)


def _derivatives(line, grid):
    """Gradients at ties, of selections, by places and paddings, of a power and of a solver, and blocks of second
    derivatives. They are written down, and exact but for the logarithm and the solver."""
    _selections(line, grid)
    _places(line, grid)
    _paddings_and_powers(line, grid)
    n = line.size
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
