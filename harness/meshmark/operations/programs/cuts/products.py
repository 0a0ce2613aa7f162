# SPDX-License-Identifier: Apache-2.0
"""Products, convolutions, attention, Fourier transforms and solvers of arrays that are cut along each dimension in
turn.

Answers of products of whole numbers are exact. The others are computed in 64 bits; a result may differ by one part in a
thousand of the largest number of its answer, far above the rounding of float32 and far below a wrong element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.cuts.running import hold, hold_near, mixed


def _products(line, grid):
    """Products of narrow integers whose sums are wide, of bfloat16 with float32 sums, and of batches."""
    n = line.size
    k = 16 * n * -(-64 // n)
    members, arrays = {}, []
    for kind, low in ((np.int8, -128), (np.uint8, 0)):
        x = (mixed((2 * n, k), 256) + low).astype(kind)
        y = (mixed((k, 2 * n), 255, 7)[::-1] + low + 1).astype(kind)
        a, b = x.astype(np.int64), y.astype(np.int64)
        at = len(arrays)
        arrays += [x, y]
        members |= {
            f"{np.dtype(kind)} into int32": (
                lambda *z, at=at: lax.dot(z[at], z[at + 1], preferred_element_type=jnp.int32),
                (a @ b).astype(np.int32),
            ),
            f"einsum of {np.dtype(kind)}": (
                lambda *z, at=at: jnp.einsum("ik,kj->ji", z[at], z[at + 1], preferred_element_type=jnp.int32),
                (a @ b).T.astype(np.int32),
            ),
            f"squares of {np.dtype(kind)}": (
                lambda *z, at=at: lax.dot_general(
                    z[at], z[at], (((1,), (1,)), ((0,), (0,))), preferred_element_type=jnp.int32
                ),
                (a * a).sum(1).astype(np.int32),
            ),
        }
    hold(line, grid, members, *arrays)
    u = (mixed((2 * n, 4, 4 * n), 9) - 4).astype(np.float32)
    v = (mixed((2 * n, 4 * n, 2 * n), 7) - 3).astype(np.float32)
    batches = {
        "batches": (lambda u, v: jnp.matmul(u, v, precision="highest"), u @ v),
        "batches of bfloat16 into float32": (
            lambda u, v: jnp.matmul(
                u.astype(jnp.bfloat16), v.astype(jnp.bfloat16), preferred_element_type=jnp.float32
            ),
            u @ v,
        ),
        "two dimensions": (
            lambda u, v: jnp.einsum("bik,bkj->ij", u, v, precision="highest"),
            np.einsum("bik,bkj->ij", u, v),
        ),
        "of a batch at the end": (
            lambda u, v: jnp.einsum("bik,bkj->ijb", u, v, precision="highest"),
            np.einsum("bik,bkj->ijb", u, v),
        ),
        "outer": (
            lambda u, v: jnp.einsum("bik,bkj->ik", u, v, precision="highest"),
            np.einsum("bik,bkj->ik", u, v),
        ),
        "tensordot": (
            lambda u, v: jnp.tensordot(u, v, axes=((0, 2), (0, 1)), precision="highest"),
            np.tensordot(u, v, axes=((0, 2), (0, 1))),
        ),
    }
    hold(line, grid, batches, u, v)


def _correlated(
    x: np.ndarray, w: np.ndarray, groups: int, batches: int, stride: int, dilation: int
) -> np.ndarray:
    """Correlation of x [N, C, L] with w [O, C / groups, K], without padding, output by output."""
    n, _, length = x.shape
    outputs, inner, taps = w.shape
    places = range(0, length - dilation * (taps - 1), stride)
    out = np.zeros((n // batches, outputs, len(places)))
    for o in range(outputs):
        group = o // (outputs // groups)
        batch = o // (outputs // batches)
        rows = x[batch * (n // batches) : (batch + 1) * (n // batches)]
        part = rows[:, group * inner : (group + 1) * inner]
        for at, start in enumerate(places):
            for tap in range(taps):
                out[:, o, at] += (part[:, :, start + dilation * tap] * w[o, :, tap]).sum(1)
    return out


def _convolutions(line, grid):
    """Groups of features and of batches, strides and dilations."""
    n = line.size
    x = (mixed((2 * n, 2 * n, 9), 7) - 3).astype(np.float32)
    members, arrays = {}, [x]
    for groups, batches, stride, dilation in (
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (2 * n, 1, 1, 2),
        (n, 1, 2, 1),
        (1, 2, 1, 1),
    ):
        w = (mixed((4 * n, 2 * n // groups, 3), 5) - 2).astype(np.float32)
        at = len(arrays)
        arrays.append(w)

        def convolved(x, *ws, g=groups, b=batches, s=stride, d=dilation, at=at):
            return lax.conv_general_dilated(
                x,
                ws[at - 1],
                (s,),
                "VALID",
                rhs_dilation=(d,),
                feature_group_count=g,
                batch_group_count=b,
                dimension_numbers=("NCH", "OIH", "NCH"),
                precision="highest",
            )

        right = _correlated(x, w, groups, batches, stride, dilation).astype(np.float32)
        name = f"{groups} groups of features, {batches} of batches, stride {stride}, dilation {dilation}"
        members[name] = (convolved, right)
    hold(line, grid, members, *arrays)


def _attended(q, k, v, mask) -> np.ndarray:
    """Attention of q [B, T, N, H] to k and v [B, S, K, H]. Query head i reads key head i // (N / K)."""
    share = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, share, 2), np.repeat(v, share, 2)
    scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)


def _attention(line, grid):
    """Grouped queries, masks, causal order, and caches whose last part is not used."""
    n = line.size
    b, t, s, h = 2 * n, 3, 6, 4
    q = mixed((b, t, 4, h), 11) / 8 - 0.5
    k = mixed((b, s, 2, h), 13, 7) / 8 - 0.7
    v = mixed((b, s, 2, h), 17, 3) / 8 - 1.0
    used = (mixed((b,), s) + 1).astype(np.int32)
    allowed = mixed((b, 1, t, s), 3) > 0
    allowed[..., 0] = True
    inside = (np.arange(s) < used[:, None])[:, None, None, :]
    causal = np.tril(np.ones((t, s), bool))[None, None]
    attend = jax.nn.dot_product_attention
    members = {
        "all": (lambda q, k, v, u, m: attend(q, k, v), _attended(q, k, v, np.array(True))),
        "one key head": (
            lambda q, k, v, u, m: attend(q, k[:, :, :1], v[:, :, :1]),
            _attended(q, k[:, :, :1], v[:, :, :1], np.array(True)),
        ),
        "causal": (lambda q, k, v, u, m: attend(q, k, v, is_causal=True), _attended(q, k, v, causal)),
        "masked": (lambda q, k, v, u, m: attend(q, k, v, mask=m), _attended(q, k, v, allowed)),
        "biased": (
            lambda q, k, v, u, m: attend(q, k, v, bias=jnp.where(m, 0.0, -jnp.inf)),
            _attended(q, k, v, allowed),
        ),
        "part of a cache": (
            lambda q, k, v, u, m: attend(q, k, v, key_value_seq_lengths=u),
            _attended(q, k, v, inside),
        ),
    }
    hold_near(
        line, grid, members, q.astype(np.float32), k.astype(np.float32), v.astype(np.float32), used, allowed
    )


def _ragged(line, grid):
    """Groups of rows with a matrix each: empty groups at the start, in the middle and at the end."""
    n = line.size
    rows = 8 * n
    x = (mixed((rows, 2 * n), 7) - 3).astype(np.float32)
    w = (mixed((4, 2 * n, 2 * n), 5, 3) - 2).astype(np.float32)
    members = {}
    for sizes in (
        (rows - 3, 1, 0, 2),
        (0, 2, rows - 3, 1),
        (1, 0, 0, rows - 1),
        (0, rows, 0, 0),
        (2, 3, rows - 5, 0),
    ):
        ends = np.repeat(np.arange(4), sizes)
        members[f"groups of {sizes}"] = (
            lambda x, w, s=sizes: lax.ragged_dot(x, w, jnp.array(s, jnp.int32), precision="highest"),
            np.stack([row @ w[g] for row, g in zip(x, ends, strict=True)]),
        )
    hold(line, grid, members, x, w)


def _fourier(line, grid):
    """Transforms of one, two and three dimensions, longer and shorter than the array, and their scales."""
    n = line.size
    x = mixed((2 * n, 4 * n), 13) - 6 + 1j * (mixed((2 * n, 4 * n), 11, 3) - 5)
    # XLA's CPU backend refuses a padded transform along a dimension that is cut (docs/findings.md), so z is too odd.
    z = mixed((2 * n, 4 * n + 1), 13) - 6 + 1j * (mixed((2 * n, 4 * n + 1), 11, 3) - 5)
    r = x.real.copy()
    members, odd = {}, {}
    for norm in ("backward", "ortho", "forward"):
        for size in (4 * n + 3, 3 * n, None):
            odd[f"fft of {size or 'all'}, {norm}"] = (
                lambda z, s=size, m=norm: (jnp.fft.fft(z, n=s, norm=m), jnp.fft.ifft(z, n=s, norm=m)),
                (np.fft.fft(z, n=size, norm=norm), np.fft.ifft(z, n=size, norm=norm)),
            )
        members[f"fft, {norm}"] = (
            lambda x, r, m=norm: (jnp.fft.fft(x, norm=m), jnp.fft.ifft(x, norm=m)),
            (np.fft.fft(x, norm=norm), np.fft.ifft(x, norm=norm)),
        )
        odd[f"of real numbers, {norm}"] = (
            lambda z, m=norm: (jnp.fft.rfft(z.real, norm=m), jnp.fft.irfft(z, n=4 * n - 1, norm=m)),
            (np.fft.rfft(z.real, norm=norm), np.fft.irfft(z, n=4 * n - 1, norm=norm)),
        )
    hold_near(line, grid, odd, z.astype(np.complex64))
    members |= {
        "of columns": (lambda x, r: jnp.fft.fft(x, axis=0), np.fft.fft(x, axis=0)),
        "of two dimensions": (
            lambda x, r: (jnp.fft.fft2(x), jnp.fft.ifft2(x, norm="ortho"), jnp.fft.fftn(x, axes=(1, 0))),
            (np.fft.fft2(x), np.fft.ifft2(x, norm="ortho"), np.fft.fftn(x, axes=(1, 0))),
        ),
        "of two dimensions of real numbers": (
            lambda x, r: (jnp.fft.rfft2(r), jnp.fft.rfft2(r, axes=(1, 0))),
            (np.fft.rfft2(r), np.fft.rfft2(r, axes=(1, 0))),
        ),
        "turned": (lambda x, r: jnp.fft.fftshift(x, axes=0), np.fft.fftshift(x, axes=0)),
    }
    hold_near(line, grid, members, x.astype(np.complex64), r.astype(np.float32))


def _matrices(n: int, imaginary: int) -> tuple[np.ndarray, np.ndarray]:
    """[2n, 3, 3] matrices, each with another largest element in its columns, and [2n, 3, 2] right-hand sides."""
    a = mixed((2 * n, 3, 3), 11) / 4 - 1 + 1j * imaginary * (mixed((2 * n, 3, 3), 7, 3) / 4 - 0.5)
    for k in range(2 * n):
        for row in range(3):
            a[k, row, (row + k) % 3] += 6
    b = mixed((2 * n, 3, 2), 9) / 2 - 2 + 1j * imaginary * (mixed((2 * n, 3, 2), 5, 3) / 2 - 1)
    return (a, b) if imaginary else (a.real.copy(), b.real.copy())


def _algebra_of(imaginary: int) -> Callable[[Any, Any], None]:
    def run(line, grid):
        a, b = _matrices(line.size, imaginary)
        kind = np.complex64 if imaginary else np.float32
        adjoint = np.swapaxes(a.conj(), 1, 2)
        positive = a @ adjoint + 2 * np.eye(3)
        lower = np.tril(a) + 3 * np.eye(3)
        upper = np.triu(a) + 3 * np.eye(3)
        solve = jax.scipy.linalg.solve_triangular

        def solved(m, trans, low, unit=False):
            m = np.tril(m) if low else np.triu(m)
            if unit:
                m = m * (1 - np.eye(3)) + np.eye(3)
            return np.linalg.solve(
                {"N": m, "T": np.swapaxes(m, 1, 2), "C": np.swapaxes(m.conj(), 1, 2)}[trans], b
            )

        def turned(z):
            return jnp.swapaxes(z.conj(), 1, 2)

        def by_exchanges(a):
            p, low, up = jax.vmap(jax.scipy.linalg.lu)(a)  # older releases take one matrix
            return p.astype(a.dtype) @ low @ up

        def by_rotation(a):
            q, r = jnp.linalg.qr(a)
            return q @ r, turned(q) @ q

        def by_singular_values(a):
            u, s, v = jnp.linalg.svd(a)
            return (u * s[:, None, :].astype(a.dtype)) @ v

        def by_vectors(h):
            w, v = jnp.linalg.eigh(h)
            return (v * w[:, None, :].astype(h.dtype)) @ turned(v), w

        whole = {
            **{
                f"solve_triangular, trans {t}, lower {low}, unit {unit}": (
                    lambda a, b, h, lo, up, t=t, low=low, unit=unit: solve(
                        lo if low else up, b, trans=t, lower=low, unit_diagonal=unit
                    ),
                    solved(lower if low else upper, t, low, unit),
                )
                for t in "NTC"
                for low in (True, False)
                for unit in (True, False)
            },
            "cholesky": (
                lambda a, b, h, lo, up: (jnp.linalg.cholesky(h), jnp.linalg.cholesky(h, upper=True)),
                (np.linalg.cholesky(positive), np.swapaxes(np.linalg.cholesky(positive).conj(), 1, 2)),
            ),
            "solve": (lambda a, b, h, lo, up: jnp.linalg.solve(a, b), np.linalg.solve(a, b)),
            "inverse": (lambda a, b, h, lo, up: jnp.linalg.inv(a), np.linalg.inv(a)),
            "determinant": (lambda a, b, h, lo, up: jnp.linalg.det(a), np.linalg.det(a)),
            "lu": (lambda a, b, h, lo, up: by_exchanges(a), a),
            "qr": (lambda a, b, h, lo, up: by_rotation(a), (a, np.broadcast_to(np.eye(3), a.shape))),
            "svd": (lambda a, b, h, lo, up: by_singular_values(a), a),
            "eigenvectors": (
                lambda a, b, h, lo, up: by_vectors(h),
                (positive, np.linalg.eigvalsh(positive)),
            ),
        }
        hold_near(line, grid, whole, *(z.astype(kind) for z in (a, b, positive, lower, upper)))

    return run


CUT_PRODUCTS: dict[str, Callable[..., None]] = {
    "products": _products,
    "convolutions": _convolutions,
    "attention": _attention,
    "ragged": _ragged,
    "fourier": _fourier,
    "algebra": _algebra_of(0),
    "complex_algebra": _algebra_of(1),
}
