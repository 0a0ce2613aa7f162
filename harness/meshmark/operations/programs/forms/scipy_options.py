# SPDX-License-Identifier: Apache-2.0
"""Seldom used options of functions of `jax.scipy`, `jnp.fft` and `jax.lax.linalg`, beside SciPy and NumPy with the same
options, on arrays that are sharded over the mesh axes. `forms.definitions` has the comparison. Each table leaves out
the options that a release does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
from jax import lax

from meshmark.operations.programs.forms.base import run_jitted
from meshmark.operations.programs.forms.definitions import (
    Pairs,
    each_way,
    holes,
    matrices,
    points,
    positive,
    takes,
    together,
)


def alike(mine: Callable[..., Any], right: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    """A function of the first array, and its definition, with the same options."""
    return lambda y, z: mine(y, **options), lambda y, z: right(y, **options)


def _spectra(mesh, a, x):
    """Options of spectra and of transforms of signals."""
    from scipy import fft, signal

    ours, theirs = jax.scipy.signal, jax.scipy.fft
    raw: dict[str, Any] = {"average": "median", "detrend": False}
    columns: dict[str, Any] = {"mode": "same", "axes": 0}
    parts: dict[str, Any] = {"fs": 2.0, "nperseg": 4, "noverlap": 1, "nfft": 8}
    pairs: Pairs = {
        "stft": alike(
            ours.stft, signal.stft, **parts, detrend="constant", return_onesided=False, boundary="even", padded=True
        ),
        "stft without an edge": alike(ours.stft, signal.stft, nperseg=4, boundary=None, padded=False, axis=0),
        "welch by medians": alike(
            ours.welch, signal.welch, **parts, detrend="linear", average="median", return_onesided=False
        ),
        "csd by medians": (
            lambda y, z: ours.csd(y, z, **parts, **raw),
            lambda y, z: signal.csd(y, z, **parts, **raw),
        ),
        "detrend in parts": alike(ours.detrend, signal.detrend, axis=1, bp=[2], type="linear"),
        "fftconvolve along columns": (
            lambda y, z: ours.fftconvolve(y, z[:3], **columns),
            lambda y, z: signal.fftconvolve(y, z[:3], **columns),
        ),
        "correlate": (
            lambda y, z: ours.correlate(y, z[:3, :3], mode="same", precision="highest"),
            lambda y, z: signal.correlate(y, z[:3, :3], mode="same"),
        ),
        "convolve2d": (
            lambda y, z: ours.convolve2d(y, z[:3, :2], mode="full", precision="highest"),
            lambda y, z: signal.convolve2d(y, z[:3, :2], mode="full"),
        ),
        "correlate2d": (
            lambda y, z: ours.correlate2d(y, z[:3, :2], mode="same", precision="highest"),
            lambda y, z: signal.correlate2d(y, z[:3, :2], mode="same"),
        ),
        "dct of a size": alike(theirs.dct, fft.dct, n=3, axis=0),
        "idct of a size": alike(theirs.idct, fft.idct, n=3, axis=1),
        "dctn of sizes": alike(theirs.dctn, fft.dctn, s=(3, 2), axes=(1, 0), norm="ortho"),
        "idctn of sizes": alike(theirs.idctn, fft.idctn, s=(3, 2), norm="ortho"),
        "hfft of a size": alike(jnp.fft.hfft, np.fft.hfft, n=5, axis=1),
        "ihfft of a size": alike(jnp.fft.ihfft, np.fft.ihfft, n=4, axis=0),
        "rfft of a size": alike(jnp.fft.rfft, np.fft.rfft, n=5, axis=0, norm="forward"),
        "rfft2 of sizes": alike(jnp.fft.rfft2, np.fft.rfft2, s=(3, 4)),
        "rfftn": alike(jnp.fft.rfftn, np.fft.rfftn, axes=(1, 0), norm="ortho"),
        "ifft2": alike(jnp.fft.ifft2, np.fft.ifft2, axes=(1, 0)),
        "irfft2": alike(jnp.fft.irfft2, np.fft.irfft2, s=(4, 4), axes=(1, 0)),
        "ifftshift": alike(jnp.fft.ifftshift, np.fft.ifftshift, axes=1),
        "frequencies": (
            lambda y, z: (jnp.fft.fftfreq(len(y), d=2.0) * y, jnp.fft.rfftfreq(len(y), d=2.0) * y[0, 0]),
            lambda y, z: (np.fft.fftfreq(len(y), d=2.0) * y, np.fft.rfftfreq(len(y), d=2.0) * y[0, 0]),
        ),
    }  # fmt: skip
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _matrices(mesh, a, x):
    """Options of functions of matrices, one matrix per row of a sharded stack."""
    from scipy import linalg

    ours, factors = jax.scipy.linalg, lax.linalg

    def each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def stacked(y: Any) -> Any:
            rows = [jax.tree.leaves(function(m)) for m in y]
            return [np.stack(column) for column in zip(*rows, strict=True)]

        return stacked

    def pivoted(m: Any) -> Any:
        q, r, places = ours.qr(m, pivoting=True, mode="economic")
        return q @ r - m[:, places], jnp.abs(jnp.diag(r))

    def full(m: Any) -> Any:
        q, r = factors.qr(m[:, :2], full_matrices=True)
        return q @ r, q.T @ q

    def values(m: Any, **options: Any) -> Any:
        return jnp.sort(factors.eigh(positive(jnp, m), **options)[1])

    def complex_form(m: Any) -> Any:
        t, z = ours.schur(m, output="complex")
        return z @ t @ z.conj().T, jnp.abs(jnp.tril(t, -1)).max()

    def made_complex(m: Any) -> Any:
        t, z = ours.rsf2csf(*ours.schur(m))
        return z @ t @ z.conj().T, jnp.abs(jnp.tril(t, -1)).max()

    one: Pairs = {
        "eigenvalues alone": (
            lambda m: ours.eigh(positive(jnp, m), eigvals_only=True, lower=False),
            lambda m: linalg.eigh(positive(np, m), eigvals_only=True, lower=False),
        ),
        "expm of a triangle": (
            lambda m: ours.expm(jnp.triu(m) / 4, upper_triangular=True, max_squarings=8),
            lambda m: linalg.expm(np.triu(m) / 4),
        ),
        "expm_frechet alone": (
            lambda m: ours.expm_frechet(m / 4, m.T / 2, compute_expm=False),
            lambda m: linalg.expm_frechet(m / 4, m.T / 2, compute_expm=False),
        ),
        "eigenvalues by number": (
            lambda m: ours.eigh_tridiagonal(m[0], m[1, :3], eigvals_only=True, select="i", select_range=(1, 2)),
            lambda m: linalg.eigh_tridiagonal(m[0], m[1, :3], eigvals_only=True, select="i", select_range=(1, 2)),
        ),
        "polar in a few turns": (
            lambda m: ours.polar(m + 3 * jnp.eye(4), method="qdwh", max_iterations=12),
            lambda m: linalg.polar(m + 3 * np.eye(4)),
        ),
        "full factor": (full, lambda m: (m[:, :2], np.eye(4))),
        "eigh without order": (
            lambda m: values(m, sort_eigenvalues=False),
            lambda m: np.linalg.eigvalsh(positive(np, m)),
        ),
        "lower triangles": (
            lambda m: (ours.cholesky(positive(jnp, m), lower=True), ours.inv(m + 4 * jnp.eye(4)), ours.det(m)),
            lambda m: (linalg.cholesky(positive(np, m), lower=True), linalg.inv(m + 4 * np.eye(4)), linalg.det(m)),
        ),
        "lu of permuted rows": (
            lambda m: ours.lu(m, permute_l=True),
            lambda m: linalg.lu(m, permute_l=True),
        ),
        "singular values": (
            lambda m: ours.svd(m, compute_uv=False, full_matrices=False),
            lambda m: linalg.svd(m, compute_uv=False, full_matrices=False),
        ),
        "matrix_transpose": (lambda m: jnp.linalg.matrix_transpose(m * 2), lambda m: 2 * m.T),
    }  # fmt: skip
    if takes(factors.schur, "compute_schur_vectors") and jax.default_backend() == "cpu":
        one |= {
            "schur alone": (
                lambda m: jnp.sort(jnp.diag(factors.schur(m + m.T, compute_schur_vectors=False)[0])),
                lambda m: np.linalg.eigvalsh(m + m.T),
            ),
            "pivoted factor": (
                pivoted,
                lambda m: (np.zeros((4, 4)), np.abs(np.diag(linalg.qr(m, pivoting=True)[1]))),
            ),
            "complex form": (complex_form, lambda m: (m + 0j, 0.0)),
            "form made complex": (made_complex, lambda m: (m + 0j, 0.0)),
            "eig": (
                lambda m: tuple(v.sum() for v in factors.eig(m, compute_left_eigenvectors=False)[:1]),
                lambda m: (np.trace(m) + 0j,),
            ),
        }
    pairs: Pairs = {name: (jax.vmap(mine), each(right)) for name, (mine, right) in one.items()}
    together(mesh, pairs, (matrices(mesh.devices.size, -1, 1),), mesh.axis_names)
    made: Pairs = {
        "pascal": (
            lambda y, z: [ours.pascal(4, kind=kind) * y[0, 0] for kind in ("upper", "lower")],
            lambda y, z: [linalg.pascal(4, kind=kind).astype(float) * y[0, 0] for kind in ("upper", "lower")],
        ),
        "dft": (
            lambda y, z: [ours.dft(4, scale=scale) * y[0, 0] for scale in ("sqrtn", "n")],
            lambda y, z: [linalg.dft(4, scale=scale) * y[0, 0] for scale in ("sqrtn", "n")],
        ),
        "hankel": (lambda y, z: ours.hankel(y[0], r=z[0]), lambda y, z: linalg.hankel(y[0], r=z[0])),
    }  # fmt: skip
    made = {name: pair for name, pair in made.items() if hasattr(ours, name)}
    if hasattr(ours, "invpascal"):
        made["invpascal"] = (
            lambda y, z: ours.invpascal(4, kind="lower") * y[0, 0],
            lambda y, z: linalg.invpascal(4, kind="lower") * y[0, 0],
        )
    each_way(mesh, made, points(mesh))
    return run_jitted(mesh, a, x)


def _solvers(mesh, a, x):
    """Options of solvers of linear systems whose matrix is sharded: a start, a preconditioner, and limits."""

    def system(np_: Any, y: Any) -> Any:
        return y @ y.T / 9 + 9 * np_.eye(len(y), dtype=y.dtype)

    def solved(y: Any, z: Any) -> Any:
        return np.linalg.solve(system(np, y), z[:, 0])

    def one_turn(y: Any, z: Any) -> Any:
        # The first step of conjugate gradients goes along the preconditioned residual (Golub and Van Loan, 11.5).
        matrix, rest = system(np, y), z[:, 0] - system(np, y) @ z[:, 1]
        along = rest * (1 + y[0] ** 2)
        return z[:, 1] + along * (rest @ along) / (along @ matrix @ along)

    ours = jax.scipy.sparse.linalg
    usual: dict[str, Any] = {"tol": 1e-6, "atol": 1e-6, "maxiter": 60}
    pairs: Pairs = {}
    for name, function, more in (
        ("cg", ours.cg, {}),
        ("bicgstab", ours.bicgstab, {}),
        ("gmres by batches", ours.gmres, {"restart": 8, "solve_method": "batched"}),
        ("gmres by increments", ours.gmres, {"restart": 8, "solve_method": "incremental"}),
    ):
        pairs[name] = (
            lambda y, z, f=function, o=more: f(
                system(jnp, y), z[:, 0], x0=z[:, 1], M=lambda v: v / 10, **usual, **o)[0],
            solved,
        )  # fmt: skip
        pairs[f"{name} without a turn"] = (
            lambda y, z, f=function: f(system(jnp, y), z[:, 0], x0=z[:, 1], maxiter=0)[0],
            lambda y, z: z[:, 1],
        )
    pairs["one turn of cg"] = (
        lambda y, z: ours.cg(system(jnp, y), z[:, 0], x0=z[:, 1], M=lambda v: v * (1 + y[0] ** 2), maxiter=1)[
            0
        ],
        one_turn,
    )
    each_way(mesh, pairs, points(mesh, -1, 1))
    return run_jitted(mesh, a, x)


def _special(mesh, a, x):
    """Options of special functions and of statistics."""
    from scipy import special, stats

    ours = jax.scipy.special

    pairs: Pairs = {
        "factorial": (lambda y, z: ours.factorial(jnp.floor(y)), lambda y, z: special.factorial(np.floor(y))),
        "bernoulli": (lambda y, z: ours.bernoulli(6) * y[0, 0], lambda y, z: special.bernoulli(6) * y[0, 0]),
        "bessel_jn": (
            lambda y, z: ours.bessel_jn(y[0] + 3, v=3, n_iter=20),
            lambda y, z: np.stack([special.jv(v, y[0] + 3) for v in range(4)]),
        ),
        "log_ndtr of an order": (
            lambda y, z: ours.log_ndtr(-4 * y, series_order=3),
            lambda y, z: special.log_ndtr(-4 * y),
        ),
        "sem without NaN": (
            lambda y, z: jax.scipy.stats.sem(holes(jnp, y), axis=1, nan_policy="omit"),
            lambda y, z: stats.sem(holes(np, y), axis=1, nan_policy="omit"),
        ),
        "rankdata of ties": (
            lambda y, z: jax.scipy.stats.rankdata(jnp.floor(y * 2), "min", axis=0).astype(np.float32),
            lambda y, z: stats.rankdata(np.floor(y * 2), "min", axis=0).astype(np.float32),
        ),
    }  # fmt: skip
    if hasattr(ours, "loggamma"):
        pairs["loggamma"] = (lambda y, z: ours.loggamma(y + 1), lambda y, z: special.loggamma(y + 1))
    if hasattr(ours, "comb"):
        pairs["comb with repetition"] = (
            lambda y, z: ours.comb(jnp.floor(y) + 2, jnp.floor(z), repetition=True),
            lambda y, z: special.comb(np.floor(y) + 1 + np.floor(z), np.floor(z)),
        )
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


SCIPY_OPTIONS: dict[str, Callable[..., Any]] = {
    "options_of_spectra": _spectra,
    "options_of_matrices": _matrices,
    "options_of_solvers": _solvers,
    "options_of_special": _special,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""
