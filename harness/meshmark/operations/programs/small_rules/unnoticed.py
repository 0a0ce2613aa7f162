# SPDX-License-Identifier: Apache-2.0
"""Small rules of what a change in JAX's code showed to be judged by nobody: factors of lopsided matrices, thin singular
vectors, draws of an asked dtype, windows over arrays of which some are in a batch, copies, and sizes of keys.

They come from `python -m tests.studies.mutated_jax`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device


def _near(found: Any, right: np.ndarray, within: float, what: str) -> None:
    """RuntimeError unless each number differs by at most `within` from the written answer, in float64."""
    seen = np.asarray(found).astype(np.float64)
    wrong(seen.shape != right.shape, f"{what} has shape {seen.shape} instead of {right.shape}")
    error = float(np.max(abs(seen - right), initial=0))
    wrong(not error <= within, f"{what} is off by {error:.3g}, and {within:.3g} is the bound")


def _factors_of_lopsided_matrices(line, grid):
    """Cholesky factors of matrices that are not symmetric: of their symmetric part, or of one triangle."""
    n = line.size
    half = mixed((n, 4, 4), 5).astype(np.float64) - 2
    even = half @ half.transpose(0, 2, 1) + 8 * np.eye(4)
    turn = np.triu(mixed((n, 4, 4), 3).astype(np.float64) + 1, 1) / 2
    calls: dict[str, tuple[np.ndarray, dict[str, Any], np.ndarray]] = {
        "of the symmetric part": (even + turn - turn.transpose(0, 2, 1), {}, np.linalg.cholesky(even)),
        "of the lower triangle": (
            even + 2 * turn,
            {"symmetrize_input": False},
            np.linalg.cholesky(even),
        ),
        "upper, of the symmetric part": (
            even + turn - turn.transpose(0, 2, 1),
            {"upper": True},
            np.linalg.cholesky(even).transpose(0, 2, 1),
        ),
    }
    for name, (host, options, right) in calls.items():
        x = placed(line, host.astype(np.float32), "d")
        found = jax.jit(lambda v, options=options: jnp.linalg.cholesky(v, **options))(x)
        # Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.6: about n kappa(A) units of a factor.
        kappa = float(np.max(np.linalg.cond(even)))
        within = 4 * kappa * float(np.max(abs(right))) * 2.0**-23
        _near(found, right, within, f"the factor {name}")


def _thin_singular_vectors(line, grid):
    """Singular vectors of matrices that are not square: as many as asked for, orthogonal, with product and order."""
    n = line.size
    for rows, columns in ((5, 3), (3, 5)):
        host = mixed((n, rows, columns), 7).astype(np.float32) - 3
        host[:, range(3), range(3)] += np.float32(9)
        exact = host.astype(np.float64)
        within = 32 * float(np.max(np.linalg.norm(exact, axis=(1, 2)))) * 2.0**-23
        x = placed(line, host, "d")
        for full in (False, True):
            run = jax.jit(lambda v, full=full: jnp.linalg.svd(v, full_matrices=full))
            u, s, vt = (np.asarray(one).astype(np.float64) for one in run(x))
            what = f"of {rows} x {columns}, {'all' if full else 'thin'}"
            shapes = ((n, rows, rows if full else 3), (n, 3), (n, columns if full else 3, columns))
            expect((u.shape, s.shape, vt.shape), shapes, f"the shapes {what}")
            _near(s, np.linalg.svd(exact, compute_uv=False), within, f"the singular values {what}")
            _near((u[..., :3] * s[:, None]) @ vt[:, :3], exact, within, f"the product {what}")
            for name, one in (("left", u), ("right", vt.transpose(0, 2, 1))):
                square = one.transpose(0, 2, 1) @ one
                _near(square, np.eye(one.shape[2]) + 0 * square, 64 * 2.0**-23, f"the {name} vectors {what}")


DRAWS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "normal": (lambda k, s, t: jax.random.normal(k, s, t), -9, 9),
    "uniform": (lambda k, s, t: jax.random.uniform(k, s, t, 2, 3), 2, 3),
    "exponential": (lambda k, s, t: jax.random.exponential(k, s, t), 0, 40),
    "laplace": (lambda k, s, t: jax.random.laplace(k, s, t), -40, 40),
    "pareto": (lambda k, s, t: jax.random.pareto(k, 4.0, s, t), 1, np.inf),
    "rayleigh": (lambda k, s, t: jax.random.rayleigh(k, 1.0, s, t), 0, 99),
    "weibull_min": (lambda k, s, t: jax.random.weibull_min(k, 1.0, 2.0, s, t), 0, 99),
    "truncated_normal": (lambda k, s, t: jax.random.truncated_normal(k, -1, 1, s, t), -1, 1),
}
"""Each draws a shape of a dtype with a key. The numbers are the ends of what it may give."""

SLOW_DRAWS: dict[str, Callable[..., Any]] = {
    "gumbel": lambda k, s, t: jax.random.gumbel(k, s, t),
    "logistic": lambda k, s, t: jax.random.logistic(k, s, t),
    "cauchy": lambda k, s, t: jax.random.cauchy(k, s, t),
    "gamma": lambda k, s, t: jax.random.gamma(k, 2.0, s, t),
    "loggamma": lambda k, s, t: jax.random.loggamma(k, 2.0, s, t),
    "beta": lambda k, s, t: jax.random.beta(k, 2.0, 3.0, s, t),
    "dirichlet": lambda k, s, t: jax.random.dirichlet(k, np.ones(3, t), s, t),
    "t": lambda k, s, t: jax.random.t(k, 5.0, s, t),
    "f": lambda k, s, t: jax.random.f(k, 3.0, 5.0, s, t),
    "chisquare": lambda k, s, t: jax.random.chisquare(k, 3.0, shape=s, dtype=t),
    "generalized_normal": lambda k, s, t: jax.random.generalized_normal(k, 2.0, s, t),
    "double_sided_maxwell": lambda k, s, t: jax.random.double_sided_maxwell(k, 1.0, 1.0, s, t),
    "lognormal": lambda k, s, t: jax.random.lognormal(k, 0.5, s, t),
    "maxwell": lambda k, s, t: jax.random.maxwell(k, s, t),
    "wald": lambda k, s, t: jax.random.wald(k, 1.0, s, t),
    "ball": lambda k, s, t: jax.random.ball(k, 2, 2.0, s, t),
    "triangular": lambda k, s, t: jax.random.triangular(k, 0.0, 1.0, 2.0, s, t),
}
"""Draws that are traced only: their programs take long to compile."""


def _draws_of_an_asked_dtype(line, grid):
    """Random draws of a dtype that is not the usual one have that dtype, and lie where the distribution does."""
    n = line.size
    key = placed(line, np.asarray(jax.random.key_data(jax.random.key(7))))

    def draw(data: Any, kind: Any, draws: dict[str, Callable[..., Any]]) -> dict[str, Any]:
        keys = jax.random.split(jax.random.wrap_key_data(data), len(draws))
        return {name: call(k, (4 * n,), kind) for k, (name, call) in zip(keys, draws.items(), strict=True)}

    quick = {name: call for name, (call, _, _) in DRAWS.items()}
    for kind in (jnp.bfloat16, np.float16):
        for name, one in jax.eval_shape(lambda v, t=kind: draw(v, t, quick | SLOW_DRAWS), key).items():
            expect(one.dtype, np.dtype(kind), f"the dtype of {name}")
    cut = jax.NamedSharding(line, P("d"))
    found = jax.jit(lambda v: draw(v, np.float16, quick), out_shardings=dict.fromkeys(quick, cut))(key)
    for name, (_, low, high) in DRAWS.items():
        numbers = np.asarray(found[name]).astype(np.float64)
        out = np.isnan(numbers).any() or numbers.min() < low or numbers.max() > high
        wrong(bool(out), f"{name} of float16 gives {numbers.tolist()[:8]}, out of {low} to {high}")
        wrong(len(np.unique(numbers)) < 2, f"{name} of float16 gives one number alone")


def _windows_of_what_is_in_a_batch(line, grid):
    """A window over two arrays of which one, the other or both are in a batch: the largest, with what lies there."""
    n = line.size
    first = mixed((2 * n, 6), 29).astype(np.int32) - 9
    second = mixed((2 * n, 6), 17, 5).astype(np.int32) - 7

    def largest(a: Any, b: Any) -> Any:
        def pick(u: Any, v: Any) -> Any:
            above = (u[0] > v[0]) | ((u[0] == v[0]) & (u[1] > v[1]))
            return jnp.where(above, u[0], v[0]), jnp.where(above, u[1], v[1])

        start = (np.int32(-1000), np.int32(-1000))
        return lax.reduce_window((a, b), start, pick, (3,), (1,), "VALID")

    def right(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [max((int(a[i + j]), int(b[i + j])) for j in range(3)) for i in range(4)]
        return np.array([p[0] for p in pairs], np.int32), np.array([p[1] for p in pairs], np.int32)

    x, y = placed(line, first, "d"), placed(line, second, "d")
    for name, axes in (("both", (0, 0)), ("the first", (0, None)), ("the second", (None, 0))):
        given = [v if axis == 0 else v[1] for v, axis in zip((x, y), axes, strict=True)]
        rows = [
            right(first[r if axes[0] == 0 else 1], second[r if axes[1] == 0 else 1]) for r in range(2 * n)
        ]
        found = jax.jit(jax.vmap(largest, axes))(*given)
        for place in (0, 1):
            on_each_device(
                found[place],
                np.stack([row[place] for row in rows]),
                f"part {place} of the window with {name} in a batch",
            )


def _sizes_of_keys(line, grid):
    """The sizes that an array of keys states are those of its numbers, whole and on each device."""
    n = line.size
    for name in ("threefry2x32", "rbg"):
        data = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(3, impl=name), 2 * n)))
        keys = jax.random.wrap_key_data(placed(line, data, "d"), impl=name)
        expect(keys.shape, (2 * n,), f"the shape of keys of {name}")
        expect(keys.size, 2 * n, f"the size of keys of {name}")
        expect(keys.nbytes, data.nbytes, f"the bytes of keys of {name}")
        expect(keys.itemsize, data.nbytes // (2 * n), f"the bytes of one key of {name}")
        for shard in keys.addressable_shards:
            expect(shard.data.shape, (2,), f"the shape of a device's keys of {name}")
            expect(shard.data.nbytes, data.nbytes // n, f"the bytes of a device's keys of {name}")


RULES_OF_WHAT_NOBODY_NOTICED: dict[str, Callable[..., None]] = {
    "factors_of_lopsided_matrices": _factors_of_lopsided_matrices,
    "thin_singular_vectors": _thin_singular_vectors,
    "draws_of_an_asked_dtype": _draws_of_an_asked_dtype,
    "windows_of_what_is_in_a_batch": _windows_of_what_is_in_a_batch,
    "sizes_of_keys": _sizes_of_keys,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""
