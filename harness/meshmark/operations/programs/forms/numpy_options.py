# SPDX-License-Identifier: Apache-2.0
"""Seldom used options of functions of `jax.numpy`, beside NumPy with the same options, on arrays that are sharded over
the mesh axes. `forms.definitions` has the comparison. Each table leaves out the options that a release does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from meshmark.operations.programs.forms.base import run_jitted
from meshmark.operations.programs.forms.definitions import (
    WIDE,
    Pairs,
    each_alone,
    each_way,
    halves,
    holes,
    points,
    quarters,
    takes,
)


def _reductions(mesh, a, x):
    """Options of reductions: a given mean, a correction, masks, kept dimensions, dtypes and weights."""

    def mean(*shape):
        return {"mean": jnp.ones(shape)}

    pairs: Pairs = {
        "var about a mean": (
            lambda y, z: jnp.var(y, axis=1, **mean(len(y), 1)),
            lambda y, z: ((y - 1) ** 2).mean(1),
        ),
        "std about a mean": (
            lambda y, z: jnp.std(y, axis=0, keepdims=True, **mean(1, len(y))),
            lambda y, z: np.sqrt(((y - 1) ** 2).mean(0, keepdims=True)),
        ),
        "var with a correction": (
            lambda y, z: jnp.var(y, axis=0, correction=2),
            lambda y, z: np.var(y, axis=0, ddof=2),
        ),
        "std with a correction": (
            lambda y, z: jnp.std(y, correction=3),
            lambda y, z: np.std(y, ddof=3),
        ),
        "nanstd": (
            lambda y, z: jnp.nanstd(holes(jnp, y), axis=1, ddof=1, keepdims=True),
            lambda y, z: np.nanstd(holes(np, y), axis=1, ddof=1, keepdims=True),
        ),
        "nanvar where": (
            lambda y, z: jnp.nanvar(holes(jnp, y), axis=0, where=z > 0.5),
            lambda y, z: np.nanvar(holes(np, y), axis=0, where=z > 0.5),
        ),
        "nanquantile": (
            lambda y, z: jnp.nanquantile(holes(jnp, y), jnp.array([0.25, 0.5]), axis=1, keepdims=True),
            lambda y, z: np.nanquantile(holes(np, y), [0.25, 0.5], axis=1, keepdims=True),
        ),
        "nanpercentile": (
            lambda y, z: jnp.nanpercentile(holes(jnp, y), 30, axis=0, keepdims=True),
            lambda y, z: np.nanpercentile(holes(np, y), 30, axis=0, keepdims=True),
        ),
        "median of both": (
            lambda y, z: jnp.median(y, axis=(0, 1), keepdims=True),
            lambda y, z: np.median(y, axis=(0, 1), keepdims=True),
        ),
        "nansum of a dtype": (
            lambda y, z: jnp.nansum(jnp.floor(y), axis=1, dtype=np.int32),
            lambda y, z: np.floor(y).sum(1).astype(np.int32),
        ),
        "nanprod of a dtype": (
            lambda y, z: jnp.nanprod(holes(jnp, y), axis=1, dtype=np.complex64),
            lambda y, z: np.nanprod(holes(np, y), axis=1, dtype=np.complex128),
        ),
        "nanmean of a dtype": (
            lambda y, z: jnp.nanmean(jnp.floor(y).astype(np.int32), axis=0, dtype=np.float32),
            lambda y, z: np.floor(y).mean(0),
        ),
        "cumulative_sum from nothing": (
            lambda y, z: jnp.cumulative_sum(y, axis=1, include_initial=True),
            lambda y, z: np.pad(np.cumsum(y, 1), ((0, 0), (1, 0))),
        ),
        "cumulative_sum of a dtype": (
            lambda y, z: jnp.cumulative_sum(jnp.floor(y).astype(np.int8), axis=0, dtype=np.int32),
            lambda y, z: np.cumsum(np.floor(y).astype(np.int32), 0),
        ),
        "cumulative_prod from nothing": (
            lambda y, z: jnp.cumulative_prod(y / 2, axis=0, include_initial=True),
            lambda y, z: np.pad(np.cumprod(y / 2, 0), ((1, 0), (0, 0)), constant_values=1),
        ),
        "cumulative_prod of a dtype": (
            lambda y, z: jnp.cumulative_prod(jnp.floor(y / 2 + 1), axis=1, dtype=np.int32)[:, :6],
            lambda y, z: np.cumprod(np.floor(y / 2 + 1), 1)[:, :6].astype(np.int32),
        ),
        "nancumsum of a dtype": (
            lambda y, z: jnp.nancumsum(jnp.floor(y), axis=1, dtype=np.int32),
            lambda y, z: np.cumsum(np.floor(y), 1).astype(np.int32),
        ),
        "cov of a dtype": (
            lambda y, z: jnp.cov(y[:4], z[:4], dtype=np.complex64, ddof=0),
            lambda y, z: np.cov(y[:4], z[:4], dtype=np.complex128, ddof=0),
        ),
        "corrcoef of columns": (
            lambda y, z: jnp.corrcoef(y[:, :3], rowvar=False, dtype=np.float32),
            lambda y, z: np.corrcoef(y[:, :3], rowvar=False),
        ),
        "around to tens": (lambda y, z: jnp.around(y * 100, -1), lambda y, z: np.around(y * 100, -1)),
        "ptp kept": (lambda y, z: jnp.ptp(y, 1, keepdims=True), lambda y, z: np.ptp(y, 1, keepdims=True)),
        "amax kept": (lambda y, z: jnp.amax(y, 0, keepdims=True), lambda y, z: np.amax(y, 0, keepdims=True)),
        "amin kept": (lambda y, z: jnp.amin(y, 1, keepdims=True), lambda y, z: np.amin(y, 1, keepdims=True)),
        "mean of exponentials of some": (
            lambda y, z: jax.nn.logmeanexp(y, axis=1, where=z > 0.5, keepdims=True),
            lambda y, z: np.log(
                (np.exp(y) * (z > 0.5)).sum(1, keepdims=True) / (z > 0.5).sum(1, keepdims=True)
            ),
        ),
        "standardized": (
            lambda y, z: jax.nn.standardize(y, axis=0, epsilon=0.25),
            lambda y, z: (y - y.mean(0)) / np.sqrt(y.var(0) + 0.25),
        ),
    }  # fmt: skip
    if takes(jnp.quantile, "weights"):
        pairs["quantile with weights"] = (
            lambda y, z: jnp.quantile(y, 0.37, axis=0, method="inverted_cdf", weights=jnp.ceil(z)),
            lambda y, z: np.quantile(y, 0.37, axis=0, method="inverted_cdf", weights=np.ceil(z)),
        )
        pairs["percentile with weights"] = (
            lambda y, z: jnp.percentile(y, 23, method="inverted_cdf", weights=jnp.ceil(z)),
            lambda y, z: np.percentile(y, 23, method="inverted_cdf", weights=np.ceil(z)),
        )
    if hasattr(jnp, "minmax"):
        pairs["minmax"] = (
            lambda y, z: jnp.minmax(y, axis=1, keepdims=True, initial=1.0, where=z > 0.5),
            lambda y, z: (
                np.min(y, 1, keepdims=True, initial=1.0, where=z > 0.5),
                np.max(y, 1, keepdims=True, initial=1.0, where=z > 0.5),
            ),
        )
    if not hasattr(jax.nn, "logmeanexp"):
        del pairs["mean of exponentials of some"]
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _searches(mesh, a, x):
    """Options of searches, sets, histograms, and of reads and writes along a dimension."""

    def whole(np_, y):
        return np_.floor(y * 5).astype(np.int32)

    def gaps(np_, y):
        v = whole(np_, y[0])
        return np_.where(v > 5, np_.nan, v)

    drawn: dict[str, Any] = {"range": [(0.5, 2.0), (0.0, 3.0)], "density": True}

    def put(np_, y, z):
        places = np_.argsort(y, axis=1)[:, :2]
        if np_ is jnp:
            return jnp.put_along_axis(y, places, z[:, :2], axis=1, inplace=False, mode="promise_in_bounds")
        y = y.copy()
        np.put_along_axis(y, places, z[:, :2], 1)
        return y

    edges = np.array([0.2, 0.9, 1.7, 2.6], np.float32)
    pairs: Pairs = {
        **{
            f"digitize by {method}": (
                lambda y, z, m=method: jnp.digitize(y, edges, right=True, method=m),
                lambda y, z: np.digitize(y, edges.astype(float), right=True),
            )
            for method in ("scan", "scan_unrolled", "sort", "compare_all")
        },
        **{
            f"isin by {method}": (
                lambda y, z, m=method: jnp.isin(whole(jnp, y), whole(jnp, z[0, :4]), invert=True, method=m),
                lambda y, z: np.isin(whole(np, y), whole(np, z[0, :4]), invert=True),
            )
            for method in ("compare_all", "binary_search", "sort")
        },
        "isin of unique ones": (
            lambda y, z: jnp.isin(jnp.unique(whole(jnp, y), size=4, fill_value=99), jnp.arange(4), assume_unique=True),
            lambda y, z: np.isin(np.append(np.unique(whole(np, y)), [99] * 4)[:4], np.arange(4)),
        ),
        "setxor1d": (
            lambda y, z: jnp.setxor1d(
                jnp.arange(8) + whole(jnp, y).min() * 0, jnp.arange(4) * 2 + 1, assume_unique=True, size=6),
            lambda y, z: np.array([0, 2, 4, 6, 0, 0]),
        ),
        "setdiff1d": (
            lambda y, z: jnp.setdiff1d(
                jnp.arange(8) + whole(jnp, y).min() * 0, jnp.arange(3), assume_unique=True, size=5),
            lambda y, z: np.arange(3, 8),
        ),
        "intersect1d with places": (
            lambda y, z: jnp.intersect1d(
                jnp.argsort(y[0]), jnp.argsort(z[0])[:3], assume_unique=True, return_indices=True, size=3),
            lambda y, z: np.intersect1d(
                np.argsort(y[0]), np.argsort(z[0])[:3], assume_unique=True, return_indices=True),
        ),
        "lexsort along a dimension": (
            lambda y, z: jnp.lexsort((y, whole(jnp, z)), axis=0),
            lambda y, z: np.lexsort((y, whole(np, z)), axis=0),
        ),
        "unique and NaN": (
            lambda y, z: jnp.unique(gaps(jnp, y), size=9, fill_value=-1, equal_nan=True),
            lambda y, z: np.append(np.unique(gaps(np, y)), [-1] * 9)[:9],
        ),
        "histogram2d": (
            lambda y, z: jnp.histogram2d(y.ravel(), z.ravel(), bins=(3, 4), weights=z.ravel(), **drawn)[0],
            lambda y, z: np.histogram2d(y.ravel(), z.ravel(), bins=(3, 4), weights=z.ravel(), **drawn)[0],
        ),
        "histogramdd": (
            lambda y, z: jnp.histogramdd(y[:, :2], bins=3, weights=z[:, 0], **drawn)[0],
            lambda y, z: np.histogramdd(y[:, :2], bins=3, weights=z[:, 0], **drawn)[0],
        ),
        "histogram_bin_edges": (
            lambda y, z: jnp.histogram_bin_edges(y, bins=5, weights=z),
            lambda y, z: np.histogram_bin_edges(y, bins=5, weights=z),
        ),
        "put_along_axis": (lambda y, z: put(jnp, y, z), lambda y, z: put(np, y, z)),
        "sorted from above": (
            lambda y, z: jnp.sort(y, axis=0, descending=True, stable=False),
            lambda y, z: np.sort(y, axis=0)[::-1],
        ),
        "places sorted from above": (
            lambda y, z: jnp.argsort(y, axis=0, descending=True),
            lambda y, z: np.argsort(-y, axis=0, kind="stable"),
        ),
        "argpartition": (
            lambda y, z: jnp.take_along_axis(y, jnp.argpartition(y, 2, axis=1), 1)[:, 2],
            lambda y, z: np.sort(y, 1)[:, 2],
        ),
        "compress": (
            lambda y, z: jnp.compress(jnp.array([True, False, True]), y, axis=1, size=2),
            lambda y, z: y[:, [0, 2]],
        ),
        "gradient with a spacing": (
            lambda y, z: jnp.gradient(y, 0.5, axis=1),
            lambda y, z: np.gradient(y, 0.5, axis=1),
        ),
        "size along a dimension": (
            lambda y, z: jnp.size(y, axis=1) * y[0, 0],
            lambda y, z: y.shape[1] * y[0, 0],
        ),
    }  # fmt: skip
    if not takes(jnp.unique, "equal_nan"):
        del pairs["unique and NaN"]
    if takes(jnp.take_along_axis, "wrap_negative_indices"):
        pairs["take_along_axis that does not wrap"] = (
            lambda y, z: jnp.take_along_axis(
                y, jnp.full((len(y), 1), -1), 1, mode="fill", fill_value=-5, wrap_negative_indices=False),
            lambda y, z: np.full((len(y), 1), -5.0),
        )  # fmt: skip
    if hasattr(jnp, "top_k"):
        pairs["top_k"] = (lambda y, z: jnp.top_k(y, 3)[0], lambda y, z: -np.sort(-y, 1)[:, :3])
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _makers(mesh, a, x):
    """Options of functions that make arrays of sharded ones."""

    def places(np_, y, z):
        return tuple(np_.floor(v).astype(np.int32) for v in (y, 2 * z))

    pairs: Pairs = {
        "geomspace": (
            lambda y, z: jnp.geomspace(y, y + z, 4, endpoint=False, axis=1, dtype=np.complex64),
            lambda y, z: np.geomspace(y, y + z, 4, endpoint=False, axis=1).astype(np.complex128),
        ),
        "logspace": (
            lambda y, z: jnp.logspace(y, z, 3, endpoint=False, base=2.0, axis=-1, dtype=np.float32),
            lambda y, z: np.logspace(y, z, 3, endpoint=False, base=2.0, axis=-1),
        ),
        "linspace": (
            lambda y, z: jnp.linspace(y, z, 3, endpoint=False, axis=1, retstep=True),
            lambda y, z: np.linspace(y, z, 3, endpoint=False, axis=1, retstep=True),
        ),
        "ones_like": (
            lambda y, z: jnp.ones_like(y, shape=(2, len(y)), dtype=np.int32) * y[:1].astype(np.int32),
            lambda y, z: np.ones((2, len(y)), np.int32) * y[:1].astype(np.int32),
        ),
        "empty_like": (
            lambda y, z: jnp.empty_like(y, shape=(2, 3), dtype=np.complex64) * 0 + y[0, 0],
            lambda y, z: np.full((2, 3), y[0, 0] + 0j),
        ),
        "identity": (
            lambda y, z: jnp.identity(len(y), dtype=np.int32) @ y.astype(np.int32),
            lambda y, z: y.astype(np.int32),
        ),
        "fromfunction": (
            lambda y, z: jnp.fromfunction(lambda i, j: y[0, 0] + i - j, (2, 3), dtype=np.float32),
            lambda y, z: np.fromfunction(lambda i, j: y[0, 0] + i - j, (2, 3)),
        ),
        "vectorize": (
            lambda y, z: jnp.vectorize(
                lambda v, w, k: v.sum() + k * w, excluded={2}, signature="(n),()->()")(y, z[:, 0], 3),
            lambda y, z: y.sum(1) + 3 * z[:, 0],
        ),
        "frompyfunc": (
            lambda y, z: jnp.frompyfunc(lambda v, w: v + w, 2, 1, identity=0).reduce(y, axis=0),
            lambda y, z: y.sum(0),
        ),
        "stacks of a dtype": (
            lambda y, z: [
                f([jnp.floor(y), jnp.floor(z)], dtype=np.int32) for f in (jnp.vstack, jnp.hstack, jnp.dstack)
            ],
            lambda y, z: [
                f([np.floor(y), np.floor(z)]).astype(np.int32) for f in (np.vstack, np.hstack, np.dstack)
            ],
        ),
        "mask_indices": (
            lambda y, z: y[jnp.mask_indices(4, jnp.triu, 1, size=6)],
            lambda y, z: y[np.mask_indices(4, np.triu, 1)],
        ),
        "sparse meshgrid": (
            lambda y, z: jnp.meshgrid(y[0], z[0, :3], indexing="ij", sparse=True),
            lambda y, z: np.meshgrid(y[0], z[0, :3], indexing="ij", sparse=True),
        ),
        "reshape in Fortran's order": (
            lambda y, z: jnp.reshape(y, (len(y) // 2, -1), order="F", copy=True),
            lambda y, z: np.reshape(y, (len(y) // 2, -1), order="F"),
        ),
        "nan_to_num": (
            lambda y, z: jnp.nan_to_num(jnp.log((y - 1) * jnp.inf), nan=1.0, posinf=2.0, neginf=-3.0),
            lambda y, z: np.where(y > 1, 2.0, 1.0),
        ),
        "piecewise": (
            lambda y, z: jnp.piecewise(y, [y < 1, y > 2], [lambda v, k: v * k, lambda v, k: v - k, 0.5], 3.0),
            lambda y, z: np.select([y < 1, y > 2], [y * 3, y - 3], 0.5),
        ),
        "ravel_multi_index": (
            lambda y, z: jnp.ravel_multi_index(places(jnp, y, z), (2, 5), mode="wrap", order="F"),
            lambda y, z: np.ravel_multi_index(places(np, y, z), (2, 5), mode="wrap", order="F"),
        ),
    }  # fmt: skip
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _products(mesh, a, x):
    """Options of products, polynomials, and functions of linear algebra."""

    def symmetric(np_, y):
        m = y[:4, :4]
        return m + m.T + 5 * np_.eye(4, dtype=y.dtype)

    pairs: Pairs = {
        "inner": (
            lambda y, z: jnp.inner(halves(y), halves(z), **WIDE),
            lambda y, z: np.inner(quarters(y), quarters(z)),
        ),
        "tensordot": (
            lambda y, z: jnp.tensordot(halves(y), halves(z), ([1, 0], [0, 1]), **WIDE),
            lambda y, z: np.tensordot(quarters(y), quarters(z), ([1, 0], [0, 1])),
        ),
        "vdot": (
            lambda y, z: jnp.vdot(halves(y), halves(z), **WIDE),
            lambda y, z: np.vdot(quarters(y), quarters(z)),
        ),
        "vecdot": (
            lambda y, z: jnp.vecdot(halves(y), halves(z), axis=0, **WIDE),
            lambda y, z: (quarters(y) * quarters(z)).sum(0),
        ),
        "linalg.vecdot": (
            lambda y, z: jnp.linalg.vecdot(halves(y), halves(z), axis=0, **WIDE),
            lambda y, z: (quarters(y) * quarters(z)).sum(0),
        ),
        "linalg.tensordot": (
            lambda y, z: jnp.linalg.tensordot(halves(y), halves(z), axes=1, **WIDE),
            lambda y, z: quarters(y) @ quarters(z),
        ),
        "multi_dot": (
            lambda y, z: jnp.linalg.multi_dot([y, z, y], precision="highest"),
            lambda y, z: y @ z @ y,
        ),
        "polyval": (
            lambda y, z: jnp.polyval(z[0, :4], y, unroll=2),
            lambda y, z: np.polyval(z[0, :4], y),
        ),
        "polyfit": (
            lambda y, z: jnp.polyfit(y[0], jnp.stack([y[0] ** 2 - 2 * y[0] + 3] * 2, 1), 2, w=z[0]),
            lambda y, z: np.array([[1.0, 1], [-2, -2], [3, 3]]),
        ),
        "polyfit in full": (
            lambda y, z: jnp.polyfit(y[0], z[0], 1, rcond=1e-7, full=True)[0],
            lambda y, z: np.polyfit(y[0], z[0], 1),
        ),
        "polyfit with errors": (
            lambda y, z: jnp.polyfit(y[0], z[0], 1, cov=True),
            lambda y, z: np.polyfit(y[0], z[0], 1, cov=True),
        ),
        "polydiv": (
            lambda y, z: jnp.polydiv(y[0, :4], z[0, :2] + 2, trim_leading_zeros=False)[0],
            lambda y, z: np.polydiv(y[0, :4], z[0, :2] + 2)[0],
        ),
        "cholesky of one side": (
            lambda y, z: jnp.linalg.cholesky(jnp.tril(symmetric(jnp, y) @ symmetric(jnp, y).T), symmetrize_input=False),
            lambda y, z: np.linalg.cholesky(symmetric(np, y) @ symmetric(np, y).T),
        ),
        "diagonal beside": (
            lambda y, z: jnp.linalg.diagonal(y, offset=-1),
            lambda y, z: np.linalg.diagonal(y, offset=-1),
        ),
        "lstsq": (
            lambda y, z: jnp.linalg.lstsq(jnp.c_[y[:, :2], y[:, :1]], z[:, :2], rcond=1e-4)[0],
            lambda y, z: np.linalg.lstsq(np.c_[y[:, :2], y[:, :1]], z[:, :2], rcond=1e-4)[0],
        ),
        "matrix_rank": (
            lambda y, z: jnp.linalg.matrix_rank(jnp.diag(jnp.array([5.0, 1.0, 0.01])) * y[0, 0], rtol=0.1),
            lambda y, z: np.array(2),
        ),
        "pinv of a symmetric matrix": (
            lambda y, z: jnp.linalg.pinv(symmetric(jnp, y), hermitian=True),
            lambda y, z: np.linalg.pinv(symmetric(np, y), hermitian=True),
        ),
        "pinv without small values": (
            lambda y, z: jnp.linalg.pinv(jnp.diag(jnp.array([4.0, 2.0, 0.01])) + y[:3, :3] * 0, rtol=0.1),
            lambda y, z: np.diag([0.25, 0.5, 0]),
        ),
        "svd of a symmetric matrix": (
            lambda y, z: jnp.linalg.svd(symmetric(jnp, y), compute_uv=False, hermitian=True),
            lambda y, z: np.linalg.svd(symmetric(np, y))[1],
        ),
        "slogdet by qr": (
            lambda y, z: tuple(jnp.linalg.slogdet(symmetric(jnp, y)[:, ::-1], method="qr")),
            lambda y, z: tuple(np.linalg.slogdet(symmetric(np, y)[:, ::-1])),
        ),
        "celu and elu": (
            lambda y, z: (jax.nn.celu(y - 1, 0.5), jax.nn.elu(y - 1, alpha=0.5)),
            lambda y, z: (
                np.where(y > 1, y - 1, 0.5 * special.expm1((y - 1) / 0.5)),
                np.where(y > 1, y - 1, 0.5 * special.expm1(y - 1)),
            ),
        ),
    }  # fmt: skip
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _convolutions(mesh, a, x):
    """Products of polynomials and convolutions of rows, with the dtype of the result."""
    pairs: Pairs = {
        "convolve": (
            lambda y, z: jnp.convolve(
                halves(y[0]),
                halves(z[0, :3]),
                "same",
                **WIDE,
            ),
            lambda y, z: np.convolve(quarters(y[0]), quarters(z[0, :3]), "same"),
        ),
        "polymul": (
            lambda y, z: jnp.polymul(y[0, :3], z[0, :2], trim_leading_zeros=False),
            lambda y, z: np.polymul(y[0, :3], z[0, :2]),
        ),
    }
    each_alone(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _correlations(mesh, a, x):
    """Correlations of rows of bfloat16 with results of float32."""
    pairs: Pairs = {
        "correlate": (
            lambda y, z: jnp.correlate(
                halves(y[0]),
                halves(z[0, :3]),
                "full",
                **WIDE,
            ),
            lambda y, z: np.correlate(quarters(y[0]), quarters(z[0, :3]), "full"),
        ),
    }
    each_alone(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


NUMPY_OPTIONS: dict[str, Callable[..., Any]] = {
    "options_of_reductions": _reductions,
    "options_of_searches": _searches,
    "options_of_makers": _makers,
    "options_of_products": _products,
    "options_of_convolutions": _convolutions,
    "options_of_correlations": _correlations,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""
