# SPDX-License-Identifier: Apache-2.0
"""Functions with internal loops or branches, inside a shard_map with check_vma: special functions, solvers, random
draws, selections and derivatives. Each device has its own row.

Many reports say that such a function is refused there, although it is right elsewhere (`docs/reports.toml`). A function
that creates the initial value of its loop must give it the varying type of the values that it is combined with. The
program is that of `programs.forms.base`: f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import ode
from jax.scipy import linalg, optimize, special
from jax.scipy.sparse import linalg as sparse
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.options import wrong

EULER = 0.5772156649015329


def rows_for(mesh: Any, a: str) -> np.ndarray:
    """float32[n, 2]: one row of numbers between 0.1 and 0.9 for each of the n devices of a line."""
    n = mesh.shape[a]
    return np.linspace(0.1, 0.9, 2 * n, dtype=np.float32).reshape(n, 2)


def near(found: Any, right: Any, what: str, most: float = 2e-4) -> None:
    """Raise RuntimeError if an array differs in shape, or by more than `most` (relative plus absolute)."""
    found, right = np.asarray(found), np.asarray(right)
    wrong(found.shape != right.shape, f"{what} has the shape {found.shape} instead of {right.shape}")
    close = np.allclose(found, right, rtol=most, atol=most, equal_nan=True)
    wrong(not close, f"{what} is {found} instead of {right}")


def in_blocks(mesh: Any, a: str, functions: Mapping[str, Callable[..., Any]]) -> dict[str, np.ndarray]:
    """The results of functions of a device's row and its number, on each device, from one program."""

    def local(b):
        i = lax.axis_index(a)
        return {name: function(b[0], i)[None] for name, function in functions.items()}

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a))
    return jax.tree.map(np.asarray, jax.jit(mapped)(rows_for(mesh, a)))


def defined(mesh: Any, a: str, pairs: Mapping[str, tuple[Any, Any]]) -> Any:
    """Compare functions of a row with their NumPy definitions on each device. Returns the jitted f."""
    found = in_blocks(mesh, a, {name: lambda r, i, f=f: f(r) for name, (f, _) in pairs.items()})
    rows = rows_for(mesh, a).astype(np.float64)
    for name, (_, definition) in pairs.items():
        near(found[name], np.stack([definition(row) for row in rows]), f"{name} of a block")
    return jax.jit(over(mesh, a))


def _sum(term: Callable[[int], Any], first: int = 0, last: int = 60) -> Any:
    return sum(term(k) for k in range(first, last))


def _rising(a: Any, k: int) -> Any:
    return math.prod((a + j for j in range(k)), start=1.0)


def _exp1(x):
    return -EULER - np.log(x) - _sum(lambda k: (-x) ** k / (k * math.factorial(k)), 1)


SERIES = {
    "expi": (
        special.expi,
        lambda x: EULER + np.log(x) + _sum(lambda k: x**k / (k * math.factorial(k)), 1),
    ),
    "exp1": (special.exp1, _exp1),
    "expn": (lambda x: special.expn(2, x), lambda x: np.exp(-x) - x * _exp1(x)),
    "spence": (special.spence, lambda x: _sum(lambda k: (1 - x) ** k / k**2, 1, 400)),
    "hyp1f1": (
        lambda x: special.hyp1f1(x, 2.0, x),
        lambda x: _sum(lambda k: _rising(x, k) * x**k / (_rising(2.0, k) * math.factorial(k))),
    ),
    "hyp2f1": (
        lambda x: special.hyp2f1(x, 1.0, 2.0, x / 2),
        lambda x: _sum(lambda k: _rising(x, k) * (x / 2) ** k / _rising(2.0, k)),
    ),
    "bessel_jn": (
        lambda x: special.bessel_jn(x, v=1)[1],
        lambda x: _sum(
            lambda k: (-1) ** k * (x / 2) ** (2 * k + 1) / (math.factorial(k) * math.factorial(k + 1))
        ),
    ),
}


def _turned(x):
    return linalg.expm(jnp.array([[0.0, 1.0], [-1.0, 0.0]]) * x[0])[0]


def _root(x):
    def solve(f, start):
        return lax.fori_loop(0, 20, lambda _, y: y - f(y) / (2 * y), start)

    return lax.custom_root(lambda y: y * y - x, x * 0 + 1, solve, lambda g, y: y / g(jnp.ones_like(y)))


ITERATED = {
    "igamma": (lambda x: lax.igamma(jnp.ones_like(x), x), lambda x: 1 - np.exp(-x)),
    "polygamma": (
        lambda x: special.polygamma(1, x + 1),
        lambda x: _sum(lambda k: 1 / (x + 1 + k) ** 2, 0, 20_000) + 1 / 20_000,
    ),
    "erf_inv": (lambda x: lax.erf_inv(lax.erf(x)), lambda x: x),
    "betainc": (lambda x: special.betainc(1.0, 2.0, x), lambda x: 1 - (1 - x) ** 2),
}

SOLVED = {
    "expm": (_turned, lambda x: np.array([np.cos(x[0]), np.sin(x[0])])),
    "custom_root": (_root, np.sqrt),
    "cg": (lambda x: sparse.cg(lambda v: 2 * v, x)[0], lambda x: x / 2),
    "tridiagonal_solve": (
        lambda x: lax.linalg.tridiagonal_solve(x * 0, x + 1, x * 0, x[:, None])[:, 0],
        lambda x: x / (x + 1),
    ),
}

KRYLOV = {
    "gmres": (lambda x: sparse.gmres(lambda v: 2 * v, x)[0], lambda x: x / 2),
    "bicgstab": (lambda x: sparse.bicgstab(lambda v: 2 * v, x)[0], lambda x: x / 2),
    "minimize": (
        lambda x: optimize.minimize(lambda v: ((v - x) ** 2).sum(), x * 0, method="BFGS").x,
        lambda x: x,
    ),
    "odeint": (
        lambda x: ode.odeint(lambda y, t: -y, x, jnp.array([0.0, 1.0]))[1],
        lambda x: x * np.exp(-1),
    ),
}

CHOSEN = {
    "insert": (lambda x: jnp.insert(x, 1, 7.0), lambda x: np.insert(x, 1, 7.0)),
    "append": (lambda x: jnp.append(x, 7.0), lambda x: np.append(x, 7.0)),
    "delete": (lambda x: jnp.delete(x, 0), lambda x: np.delete(x, 0)),
    "nonzero": (lambda x: jnp.nonzero(x > 0, size=2)[0], lambda x: np.nonzero(x)[0]),
    "unique": (lambda x: jnp.unique(x[::-1], size=2), lambda x: np.unique(x)),
    "interp": (
        lambda x: jnp.interp(x, jnp.arange(3.0), jnp.array([0.0, 2.0, 3.0])),
        lambda x: np.interp(x, np.arange(3.0), np.array([0.0, 2.0, 3.0])),
    ),
    "histogram": (
        lambda x: jnp.histogram(x, bins=4, range=(0, 1))[0],
        lambda x: np.histogram(x, bins=4, range=(0, 1))[0],
    ),
    "median": (lambda x: jnp.median(x)[None], lambda x: np.median(x)[None]),
    "convolve": (lambda x: jnp.convolve(x, x), lambda x: np.convolve(x, x)),
    "polyval": (lambda x: jnp.polyval(x, x), lambda x: np.polyval(x, x)),
    "unwrap": (lambda x: jnp.unwrap(x * 20), lambda x: np.unwrap(x * 20)),
    "searchsorted": (lambda x: jnp.searchsorted(x, x), lambda x: np.searchsorted(x, x)),
}


def _of(pairs):
    return lambda mesh, a, x: defined(mesh, a, pairs)(x)


def drawn(mesh: Any, a: str, draws: Mapping[str, Callable[[Any, Any], Any]]) -> None:
    """Compare draws on each device, with a key per device, with the draws of one device by the same keys."""
    key = jax.random.key(3)
    functions = {
        name: lambda r, i, f=f: f(jax.random.fold_in(key, i), r).astype(jnp.float32)
        for name, f in draws.items()
    }
    found = in_blocks(mesh, a, functions)
    one = jax.jit(lambda r, i: {name: f(r, i) for name, f in functions.items()})
    right = [one(row, i) for i, row in enumerate(rows_for(mesh, a))]
    for name in functions:
        near(found[name], np.stack([np.asarray(r[name]) for r in right]), f"{name} of a block")


def _rejected(mesh, a, x):
    """Draws with rejection."""
    drawn(
        mesh,
        a,
        {
            "gamma": lambda k, r: jax.random.gamma(k, r),
        },
    )
    return jax.jit(over(mesh, a))(x)


def _choices(mesh, a, x):
    """Draws of indices by probability, for one key and for a batch of keys, and of numbers between two bounds."""
    random = jax.random
    drawn(
        mesh,
        a,
        {
            "choice": lambda k, r: random.choice(k, 2, (3,), p=r / r.sum()),
            "choices": lambda k, r: jax.vmap(lambda s: random.choice(s, 2, (3,), p=r / r.sum()))(
                random.split(k, 2)
            ),
            "truncated": lambda k, r: random.truncated_normal(k, -r, r),
        },
    )
    return jax.jit(over(mesh, a))(x)


def _counted(mesh, a, x):
    """Draws of counts. Their loops start from constants."""
    drawn(
        mesh,
        a,
        {
            "binomial": lambda k, r: jax.random.binomial(k, 10, r),
            "multinomial": lambda k, r: jax.random.multinomial(k, 10.0, r / r.sum()),
        },
    )
    return jax.jit(over(mesh, a))(x)


def _pulled(mesh, a, x):
    """Derivatives of a block on its device, of functions that create constants and loops."""

    def table(t):
        return jnp.zeros(2) + t[:1] * jnp.arange(2.0) + 3 * t[1:]

    def looped(t):
        return lax.scan(lambda c, k: (c * t.sum() + k, None), t[0], jnp.arange(3.0))[0]

    functions = {
        "mean": lambda r, i: jax.value_and_grad(lambda t: jnp.mean(t**2))(r)[1],
        "value": lambda r, i: jax.value_and_grad(lambda t: jnp.mean(t**2))(r)[0][None],
        "jacrev": lambda r, i: jax.jacrev(table)(r),
        "jacfwd": lambda r, i: jax.jacfwd(table)(r),
        "hessian": lambda r, i: jax.hessian(lambda t: (t**3).sum())(r),
        "looped": lambda r, i: jax.grad(looped)(r),
        "exponent": lambda r, i: jax.jacrev(lambda t: jnp.frexp(t)[0])(r),
        "again": lambda r, i: lax.pmean(lax.psum(r, a), a),
    }
    found = in_blocks(mesh, a, functions)
    rows = rows_for(mesh, a).astype(np.float64)
    by = np.array([[0.0, 3.0], [1.0, 3.0]])
    right = {
        "mean": rows,
        "value": (rows**2).mean(axis=1, keepdims=True),
        "jacrev": np.tile(by, (len(rows), 1, 1)),
        "jacfwd": np.tile(by, (len(rows), 1, 1)),
        "hessian": np.stack([np.diag(6 * r) for r in rows]),
        "exponent": np.stack([np.diag(np.exp2(-np.frexp(r)[1])) for r in rows]),
        "again": np.tile(rows.sum(axis=0), (len(rows), 1)),
    }
    total, first = rows.sum(axis=1), rows[:, 0]
    slope = 3 * first * total**2 + 1  # the derivative of first * total**3 + total + 2 by total
    right["looped"] = np.stack([slope + total**3, slope], axis=1)
    for name, expected in right.items():
        near(found[name], expected, f"{name} of a block")
    given = rows_for(mesh, a)

    def loss(w, y):
        def each(b):
            return lax.psum(((w * b) ** 2).sum(), a)

        return jax.shard_map(each, mesh=mesh, in_specs=P(a), out_specs=P())(y)

    pulled = jax.jit(jax.grad(loss))(3.0, jax.device_put(given, at(mesh, a)))
    near(pulled, 6 * (rows**2).sum(), "the gradient by a closed-over number")
    return jax.jit(over(mesh, a))(x)


BLOCK_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "series": _of(SERIES),
    "iterated": _of(ITERATED),
    "solved": _of(SOLVED),
    "krylov": _of(KRYLOV),
    "chosen": _of(CHOSEN),
    "rejected": _rejected,
    "choices": _choices,
    "counted": _counted,
    "pulled": _pulled,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class BlockFunction(ProgramForm):
    """One sharded program, with checks of functions that have internal loops, inside a shard_map with check_vma."""

    name = "block_function"
    forms = BLOCK_FUNCTIONS
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return BLOCK_FUNCTIONS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
