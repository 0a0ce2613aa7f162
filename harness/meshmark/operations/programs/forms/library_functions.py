# SPDX-License-Identifier: Apache-2.0
"""More functions of `jax.scipy` and of linear algebra, on arrays that are sharded over the mesh axes: special functions
in their own spelling, matrices made of vectors, decompositions, spectra of signals, and differential equations. One
program has many functions.

`forms.definitions` has the comparison. A decomposition that is not unique is judged by what it gives when
it is multiplied again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.cluster.vq
import jax.scipy.stats
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import at, run_jitted
from meshmark.operations.programs.forms.definitions import (
    Pairs,
    close,
    each_alone,
    matrices,
    named,
    points,
    positive,
    sides,
    together,
)
from meshmark.operations.programs.forms.options import wrong


def _special_of_one(mesh, a, x):
    """Special functions of one argument, as `jax.scipy.special` spells them."""
    from scipy import special

    ours = jax.scipy.special
    names = "entr erfcinv erfinv expit i0 i0e i1 i1e log_ndtr ndtr ndtri logit exp1 expi gammaln digamma erfc"
    low = {"erfcinv", "erfinv", "ndtri", "logit"}
    pairs: Pairs = {}
    for name, (mine, right) in named(
        ours, special, *names.split(), "dawsn", "erfcx", "wofz", "gammasgn"
    ).items():
        scale = 0.3 if name in low else 1.0
        if name == "gammasgn":
            pairs[name] = (lambda y, z, f=mine: f(y - 2.05), lambda y, z, f=right: f(y - 2.05))
        else:
            pairs[name] = (
                lambda y, z, f=mine, s=scale: f(y * s),
                lambda y, z, f=right, s=scale: f(y * s),
            )
    for name, (mine, right) in named(ours, special, "sici", "fresnel").items():
        pairs[name] = (lambda y, z, f=mine: f(y), lambda y, z, f=right: f(y))
    together(mesh, pairs, points(mesh), *sides(mesh))
    return run_jitted(mesh, a, x)


def _special_of_several(mesh, a, x):
    """Special functions of two and more arguments that take whole numbers, orders and powers."""
    from scipy import special

    ours = jax.scipy.special
    pairs = named(
        ours, special, "betaln", "boxcox", "boxcox1p", "gammaincc", "owens_t", "poch", "xlogy", "beta"
    )
    pairs |= {
        "comb": (
            lambda y, z: ours.comb(jnp.floor(y) + 5, jnp.floor(z)),
            lambda y, z: special.comb(np.floor(y) + 5, np.floor(z)),
        ),
        "expn": (lambda y, z: ours.expn(3, y), lambda y, z: special.expn(3, y)),
        "polygamma": (lambda y, z: ours.polygamma(2, y), lambda y, z: special.polygamma(2, y)),
    }
    if hasattr(ours, "sph_harm_y"):
        count = np.arange(4)
        pairs["sph_harm_y"] = (
            lambda y, z: ours.sph_harm_y(jnp.full(4, 3), jnp.arange(4), y[0, :4], z[0, :4], n_max=3),
            lambda y, z: special.sph_harm_y(3, count, y[0, :4], z[0, :4]),
        )
    pairs = {n: p for n, p in pairs.items() if n != "comb" or hasattr(ours, "comb")}
    together(mesh, pairs, points(mesh), *sides(mesh))
    return run_jitted(mesh, a, x)


def _made_matrices(mesh, a, x):
    """Matrices that are made of a sharded vector, and those that are made of a number."""
    from scipy import linalg

    ours = jax.scipy.linalg
    pairs = {
        name: (lambda y, z, f=mine: f(y[0]), lambda y, z, f=right: f(y[0]))
        for name, (mine, right) in named(
            ours, linalg, "circulant", "companion", "fiedler", "fiedler_companion"
        ).items()
    }
    pairs |= {
        name: (lambda y, z, f=mine: f(y[0], z[0, 1:]), lambda y, z, f=right: f(y[0], z[0, 1:]))
        for name, (mine, right) in named(ours, linalg, "hankel", "leslie").items()
    }
    sizes = named(ours, linalg, "dft", "helmert", "invhilbert", "invpascal", "pascal", "hadamard")
    for name, (mine, right) in sizes.items():
        pairs[name] = (
            lambda y, z, f=mine: f(4),
            lambda y, z, f=right, n=name: f(4) * (1.0 if "pascal" in n else 1),
        )
    together(mesh, pairs, points(mesh), *sides(mesh))
    return run_jitted(mesh, a, x)


def _convolution_matrices(mesh, a, x):
    """Matrices whose product with a vector is a convolution, made of a row of a sharded matrix."""
    from scipy import linalg

    pairs: Pairs = {}
    for name, (mine, right) in named(jax.scipy.linalg, linalg, "convolution_matrix").items():
        for mode in ("full", "valid", "same"):
            pairs[f"{name} {mode}"] = (
                lambda y, z, f=mine, m=mode: f(y[0, :3], len(z), m),
                lambda y, z, f=right, m=mode: f(y[0, :3], len(z), m),
            )
    if not pairs:
        raise Missing("this release has no jax.scipy.linalg.convolution_matrix")
    each_alone(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _stacked(mesh: Any, pairs: Pairs, alone: tuple[str, ...] = (), unchecked: tuple[str, ...] = ()) -> None:
    """Compare functions of one 4x4 matrix with their definitions, for a stack that is sharded along the stack: over the
    whole array by vmap, and in regions that have one matrix per device.

    alone: the functions that have no batching rule. unchecked: those that no region with `check_vma` takes."""
    stack = matrices(mesh.devices.size, -1, 1)
    right = {name: _transposed([define(m) for m in stack]) for name, (_, define) in pairs.items()}
    batches = {n: (jax.vmap(f), lambda y, n=n: right[n]) for n, (f, _) in pairs.items() if n not in alone}
    together(mesh, batches, (stack,), mesh.axis_names)
    for name, (function, _) in pairs.items():
        for checked in (False, True):
            if not checked or name not in unchecked:
                run = _one_per_device(mesh, function, checked)
                with jax.default_matmul_precision("highest"):
                    found = jax.jit(run)(_placed(mesh, stack))
                close(found, right[name], f"{name} in a region")


def _transposed(rows: Any) -> list[np.ndarray]:
    """The results of several calls, as one stack per result."""
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _one_per_device(mesh: Any, function: Callable[[Any], Any], checked: bool) -> Callable[[Any], Any]:
    """A region in which each device calls a function of its own matrix."""
    spec = P(mesh.axis_names)
    return jax.shard_map(
        lambda m: jax.tree.map(lambda r: r[None], function(m[0])),
        mesh=mesh, in_specs=spec, out_specs=spec, check_vma=checked,
    )  # fmt: skip


def _placed(mesh: Any, stack: np.ndarray) -> Any:
    """A stack, sharded over all axes of the mesh."""
    return jax.device_put(stack.astype(np.float32), at(mesh, mesh.axis_names))


def _decompositions(mesh, a, x):
    """Decompositions and functions of matrices of `jax.scipy.linalg`, one matrix per row of a sharded stack."""
    from scipy import linalg

    ours = jax.scipy.linalg

    def again(m: Any) -> tuple[Any, ...]:
        t, z = ours.schur(m + m.T)
        return (z @ t @ z.T, z @ z.T, jnp.abs(jnp.tril(t, -1)).max())

    def polar(m: Any, side: str) -> tuple[Any, ...]:
        return tuple(ours.polar(m + 3 * jnp.eye(4), side, method="svd" if side == "left" else "qdwh"))

    pairs: Pairs = {
        "schur": (again, lambda m: (m + m.T, np.eye(4), 0.0)),
        "sqrtm": (
            lambda m: (ours.sqrtm(positive(jnp, m)),),
            lambda m: (linalg.sqrtm(positive(np, m)) + 0j,),
        ),
        "polar right": (lambda m: polar(m, "right"), lambda m: linalg.polar(m + 3 * np.eye(4), "right")),
        "polar left": (lambda m: polar(m, "left"), lambda m: linalg.polar(m + 3 * np.eye(4), "left")),
        "expm_frechet": (
            lambda m: ours.expm_frechet(m / 4, m.T / 2),
            lambda m: linalg.expm_frechet(m / 4, m.T / 2),
        ),
        "cho_factor": (
            lambda m: (jnp.triu(ours.cho_factor(positive(jnp, m))[0]),),
            lambda m: (np.triu(linalg.cho_factor(positive(np, m))[0]),),
        ),
        "eigh_tridiagonal": (
            lambda m: (ours.eigh_tridiagonal(m[0], m[1, :3], eigvals_only=True),),
            lambda m: (linalg.eigh_tridiagonal(m[0], m[1, :3], eigvals_only=True),),
        ),
    }
    if hasattr(ours, "hessenberg"):

        def reduced(m: Any) -> tuple[Any, ...]:
            h, q = ours.hessenberg(m, calc_q=True)
            return q @ h @ q.T, q @ q.T, jnp.abs(jnp.tril(h, -2)).max()

        pairs["hessenberg"] = (reduced, lambda m: (m, np.eye(4), 0.0))
    if hasattr(ours, "solve_sylvester"):
        pairs["solve_sylvester"] = (
            lambda m: (ours.solve_sylvester(m + 5 * jnp.eye(4), m.T + 3 * jnp.eye(4), m * 2),),
            lambda m: (linalg.solve_sylvester(m + 5 * np.eye(4), m.T + 3 * np.eye(4), m * 2),),
        )
    if hasattr(ours, "qr_multiply"):
        pairs["qr_multiply"] = (
            lambda m: tuple(map(jnp.abs, ours.qr_multiply(m, m.T + 1, "left"))),
            lambda m: tuple(map(np.abs, linalg.qr_multiply(m, m.T + 1, "left"))),
        )
    if jax.default_backend() != "cpu":  # JAX has no Schur or Hessenberg form elsewhere
        pairs = {
            n: p for n, p in pairs.items() if n not in ("schur", "sqrtm", "solve_sylvester", "hessenberg")
        }
    _stacked(mesh, pairs, unchecked=("sqrtm", "polar right", "solve_sylvester"))
    return run_jitted(mesh, a, x)


def _loops_in_checked_regions(mesh, a, x):
    """Functions of matrices that have loops, in a region with `check_vma`, beside the same functions in a region
    without it."""
    ours, factors = jax.scipy.linalg, lax.linalg
    calls: dict[str, Callable[[Any], Any]] = {
        "sqrtm": lambda m: jnp.real(ours.sqrtm(positive(jnp, m))),
        "polar": lambda m: ours.polar(m + 3 * jnp.eye(4), "right"),
        "qdwh": lambda m: factors.qdwh(m + 3 * jnp.eye(4), is_hermitian=False)[:2],
        "funm": lambda m: jnp.real(ours.funm(positive(jnp, m), jnp.exp, disp=False)[0]),
    }
    if jax.default_backend() != "cpu":  # JAX has no Schur form elsewhere
        del calls["sqrtm"], calls["funm"]
    elif hasattr(ours, "solve_sylvester"):
        calls["solve_sylvester"] = lambda m: ours.solve_sylvester(m, m.T + 5 * jnp.eye(4), m)
    if hasattr(factors, "cholesky_update"):
        calls["cholesky_update"] = lambda m: factors.cholesky_update(jnp.eye(4) * 2, m[0])
    stack, refusals = _placed(mesh, matrices(mesh.devices.size, -1, 1)), []
    for name, call in calls.items():
        right = jax.jit(_one_per_device(mesh, call, checked=False))(stack)
        try:
            found = jax.jit(_one_per_device(mesh, call, checked=True))(stack)
        except TypeError as error:
            wrong(
                "must have equal types" not in str(error) and "equal output types" not in str(error),
                str(error),
            )
            refusals.append(name)
        else:
            close(found, right, f"{name} in a checked region")
    wrong(bool(refusals), f"a checked region refuses the loops of {', '.join(refusals)}")
    return run_jitted(mesh, a, x)


def _factors(mesh, a, x):
    """Factors of `jax.lax.linalg`, and tensors and norms of `jnp.linalg`, one matrix per row of a sharded stack."""
    ours = lax.linalg

    def permuted(m: Any) -> tuple[Any, ...]:
        lu, pivots, order = ours.lu(m)
        lower = jnp.tril(lu, -1) + jnp.eye(4)
        rows = ours.lu_pivots_to_permutation(pivots, 4)
        return (lower @ jnp.triu(lu) - m[rows], (rows - order).astype(m.dtype))

    def reflected(m: Any) -> tuple[Any, ...]:
        made, taus = ours.geqrf(m) if hasattr(ours, "geqrf") else _geqrf(m)
        q = ours.householder_product(made, taus)
        return (q @ jnp.triu(made), q.T @ q)

    def tridiagonal(m: Any) -> tuple[Any, ...]:
        _, d, e, _ = ours.tridiagonal(m + m.T, lower=True)
        return (jnp.linalg.eigvalsh(jnp.diag(d) + jnp.diag(e, 1) + jnp.diag(e, -1)),)

    def reduced(m: Any) -> tuple[Any, ...]:
        made, _ = ours.hessenberg(m)
        return (jnp.sort(jnp.linalg.svd(jnp.triu(made, -1), compute_uv=False)),)

    def triangular(m: Any) -> tuple[Any, ...]:
        t, z = ours.schur(m + m.T)
        return (z @ t @ z.T,)

    def halves(m: Any) -> tuple[Any, ...]:
        u, h, *_ = ours.qdwh(m + 3 * jnp.eye(4), is_hermitian=False)
        return (u @ h, u.T @ u)

    zero = np.zeros((4, 4))
    largest: dict[str, Any] = {"ord": np.inf}
    pairs: Pairs = {
        "lu_pivots_to_permutation": (permuted, lambda m: (zero, np.zeros(4))),
        "tridiagonal": (tridiagonal, lambda m: (np.linalg.eigvalsh(m + m.T),)),
        "hessenberg": (reduced, lambda m: (np.sort(np.linalg.svd(m)[1]),)),
        "schur": (triangular, lambda m: (m + m.T,)),
        "qdwh": (halves, lambda m: (m + 3 * np.eye(4), np.eye(4))),
        "symmetric_product": (
            lambda m: (ours.symmetric_product(m, m.T + m, alpha=2.0, beta=-1.0, symmetrize_output=True),),
            lambda m: (2 * m @ m.T - (m + m.T),),
        ),
        "cholesky_update": (
            lambda m: (jnp.abs(ours.cholesky_update(jnp.linalg.cholesky(positive(jnp, m)).T, m[0])),),
            lambda m: (np.abs(np.linalg.cholesky(positive(np, m) + np.outer(m[0], m[0])).T),),
        ),
        "slogdet by qr": (
            lambda m: tuple(jnp.linalg.slogdet((m - 2 * jnp.eye(4))[jnp.array([1, 0, 2, 3])], method="qr")),
            lambda m: tuple(np.linalg.slogdet((m - 2 * np.eye(4))[[1, 0, 2, 3]])),
        ),
        "eigvals": (
            lambda m: (jnp.linalg.eigvals(m).sum(), jnp.linalg.eigvals(m).prod()),
            lambda m: (np.trace(m) + 0j, np.linalg.det(m) + 0j),
        ),
        "matrix_norm": (
            lambda m: (jnp.linalg.matrix_norm(m, ord=1, keepdims=True), jnp.linalg.matrix_norm(m)),
            lambda m: (np.abs(m).sum(0).max(keepdims=True)[None], np.sqrt((m * m).sum())),
        ),
        "vector_norm": (
            lambda m: (jnp.linalg.vector_norm(m, axis=0, ord=3), jnp.linalg.vector_norm(m, **largest)),
            lambda m: ((np.abs(m) ** 3).sum(0) ** (1 / 3), np.abs(m).max()),
        ),
        "tensorinv": (
            lambda m: (jnp.linalg.tensorinv((m + 4 * jnp.eye(4)).reshape(2, 2, 4), 2),),
            lambda m: (np.linalg.tensorinv((m + 4 * np.eye(4)).reshape(2, 2, 4), 2),),
        ),
        "tensorsolve": (
            lambda m: (jnp.linalg.tensorsolve((m + 4 * jnp.eye(4)).reshape(2, 2, 4), m[:2, :2]),),
            lambda m: (np.linalg.tensorsolve((m + 4 * np.eye(4)).reshape(2, 2, 4), m[:2, :2]),),
        ),
        "householder_product": (reflected, lambda m: (m, np.eye(4))),
    }  # fmt: skip
    if (
        jax.default_backend() != "cpu"
    ):  # JAX has no Schur or Hessenberg form elsewhere, and not each has eigenvalues
        pairs = {n: p for n, p in pairs.items() if n not in ("schur", "hessenberg", "eigvals", "tridiagonal")}
    _stacked(mesh, pairs, alone=("cholesky_update",), unchecked=("qdwh", "cholesky_update"))
    return run_jitted(mesh, a, x)


def _geqrf(m: Any) -> tuple[Any, Any]:
    """The factors of Householder that `jnp.linalg.qr` gives in mode raw."""
    made, taus = jnp.linalg.qr(m, mode="raw")
    return made.T, taus


def _spectra(mesh, a, x):
    """Spectra of sharded signals, codes of vectors, and standard errors."""
    from scipy import cluster, fft, signal, stats

    ours = jax.scipy.signal
    pairs: Pairs = {
        "stft": (
            lambda y, z: ours.stft(y, nperseg=4, window="hamming")[2],
            lambda y, z: signal.stft(y, nperseg=4, window="hamming")[2],
        ),
        "stft and back": (
            lambda y, z: ours.istft(ours.stft(y, nperseg=4)[2], nperseg=4)[1][:, : y.shape[1]],
            lambda y, z: y,
        ),
        "welch": (
            lambda y, z: ours.welch(y, nperseg=4, axis=0, scaling="spectrum"),
            lambda y, z: signal.welch(y, nperseg=4, axis=0, scaling="spectrum"),
        ),
        "csd": (
            lambda y, z: ours.csd(y, z, nperseg=4)[1],
            lambda y, z: signal.csd(y, z, nperseg=4)[1],
        ),
        "idctn": (
            lambda y, z: jax.scipy.fft.idctn(y, axes=(0,), norm="ortho"),
            lambda y, z: fft.idctn(y, axes=(0,), norm="ortho"),
        ),
        "vq": (
            lambda y, z: jax.scipy.cluster.vq.vq(y, z[:3])[1],
            lambda y, z: cluster.vq.vq(y, z[:3])[1],
        ),
        "sem": (
            lambda y, z: jax.scipy.stats.sem(y, axis=0, ddof=2),
            lambda y, z: stats.sem(y, axis=0, ddof=2),
        ),
    }
    together(mesh, pairs, points(mesh), *sides(mesh))
    return run_jitted(mesh, a, x)


def _equations(mesh, a, x):
    """Differential equations and Taylor series of `jax.experimental`, of sharded arrays and in a region."""
    from jax.experimental import jet, ode

    times = np.array([0.0, 0.5, 1.0], np.float32)

    def solved(y, z):
        return ode.odeint(lambda v, t: -v + t, y, jnp.asarray(times), rtol=1e-6, atol=1e-6)

    def series(y, z):
        first, rest = jet.jet(lambda v: jnp.sin(v) * v, (y,), ((jnp.ones_like(y), jnp.zeros_like(y)),))
        return [first, *rest]

    pairs: Pairs = {
        "odeint": (
            solved,
            lambda y, z: np.stack([(y + 1) * np.exp(-t) + t - 1 for t in times.astype(float)]),
        ),
        "jet": (
            series,
            lambda y, z: [np.sin(y) * y, np.cos(y) * y + np.sin(y), 2 * np.cos(y) - np.sin(y) * y],
        ),
    }
    hosts = points(mesh)
    together(mesh, pairs, hosts, *sides(mesh))
    row = at(mesh, (*mesh.axis_names,)).spec
    one, other = (jax.device_put(h.astype(np.float32).ravel(), at(mesh, *row)) for h in hosts)
    for name, (mine, right) in pairs.items():
        spec = P(None, *row) if name == "odeint" else row
        region = jax.shard_map(mine, mesh=mesh, in_specs=row, out_specs=spec, check_vma=False)
        close(jax.jit(region)(one, other), right(*(h.ravel() for h in hosts)), f"{name} in a region")
    return run_jitted(mesh, a, x)


MORE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "special_of_one": _special_of_one,
    "special_of_several": _special_of_several,
    "made_matrices": _made_matrices,
    "convolution_matrices": _convolution_matrices,
    "decompositions": _decompositions,
    "factors": _factors,
    "loops_in_checked_regions": _loops_in_checked_regions,
    "spectra": _spectra,
    "equations": _equations,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""
