# SPDX-License-Identifier: Apache-2.0
"""Members of function_options that compute: linear systems with row exchanges, transforms of odd lengths, attention
with lengths and windows, and ragged products. Results are integers, or the program rounds them to integers. Only the
means of attention are rounded by the dtype alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.functions.catalogue import Member, both

# Linear systems that need row exchanges.

ORDER = (3, 0, 1, 2)
"""The order of a triangular matrix's rows in `exchanged`: an odd permutation."""


def triangles(m: Any, x: Any) -> Any:
    """A lower triangular matrix for each row of x, with 8 on its diagonal."""
    return 8 * m.eye(4) + m.tril(m.ones((4, 4)), -1) * (x[:, :1, None] % 3)


def exchanged(m: Any, x: Any) -> Any:
    """`triangles` with permuted rows, so that a factorization must exchange rows."""
    return triangles(m, x)[:, ORDER, :]


def sides(m: Any, y: Any) -> Any:
    """Two right-hand sides per matrix: [rows, 4, 2]."""
    return m.stack([y[:, :4] + k for k in (0, 1)], axis=2)


def unit(m: Any, x: Any) -> Any:
    """`triangles` with ones on the diagonal in place of 8."""
    return triangles(m, x) - 7 * m.eye(4)


def turned(a: Any) -> Any:
    """Each matrix transposed."""
    return a.swapaxes(1, 2)


def factors(x: Any, y: Any) -> Any:
    """The permutation matrices of the LU factorizations, and the rounded product of all three factors."""
    orders, lower, upper = jax.vmap(jax.scipy.linalg.lu)(exchanged(jnp, x))
    return orders, jnp.rint(orders @ lower @ upper)


def symmetric(m: Any, x: Any) -> Any:
    """Symmetric matrices with the eigenvalues 4, 8, 12 and 16: a diagonal matrix between two reflections."""
    reflection = m.eye(4) - m.ones((4, 4)) / 2
    return reflection @ m.diag(m.array([8.0, 16, 4, 12])) @ reflection + 0 * x[:, :1, None]


def of_eigenvectors(x: Any, y: Any) -> Any:
    """The eigenvalues in ascending order, and the matrix rebuilt from eigenvalues and eigenvectors."""
    values, vectors = jnp.linalg.eigh(symmetric(jnp, x))
    return jnp.rint(values), jnp.rint((vectors * values[:, None, :]) @ turned(vectors))


def of_singular_vectors(x: Any, y: Any) -> Any:
    """The singular values in descending order, and the matrix rebuilt from all three factors."""
    left, values, right = jnp.linalg.svd(symmetric(jnp, x)[:, ORDER, :], full_matrices=False)
    return jnp.rint(values), jnp.rint((left * values[:, None, :]) @ right)


LINEAR: dict[str, Member] = {
    "solve": (
        lambda x, y: jnp.rint(jnp.linalg.solve(exchanged(jnp, x), exchanged(jnp, x) @ sides(jnp, y))),
        lambda x, y: sides(np, y),
    ),
    "det": both(lambda m, x, y: m.rint(m.linalg.det(exchanged(m, x)))),
    "slogdet": both(lambda m, x, y: m.linalg.slogdet(exchanged(m, x))[0]),
    "inv": both(lambda m, x, y: m.rint(4096 * m.linalg.inv(exchanged(m, x)))),
    "lu": (
        factors,
        lambda x, y: (np.eye(4)[list(ORDER)] + 0 * x[:, :1, None], exchanged(np, x)),
    ),
    "lax.lu": (
        lambda x, y: lax.linalg.lu(exchanged(jnp, x))[1:],
        lambda x, y: tuple(np.tile(np.array(p), (len(x), 1)) for p in ([1, 2, 3, 3], [1, 2, 3, 0])),
    ),
    "lu_solve": (
        lambda x, y: jnp.rint(
            jax.scipy.linalg.lu_solve(
                jax.scipy.linalg.lu_factor(exchanged(jnp, x)),
                turned(exchanged(jnp, x)) @ sides(jnp, y),
                trans=1,
            )
        ),
        lambda x, y: sides(np, y),
    ),
    "unit_diagonal": (
        lambda x, y: jnp.rint(
            lax.linalg.triangular_solve(
                triangles(jnp, x),
                unit(jnp, x) @ sides(jnp, y),
                left_side=True,
                lower=True,
                unit_diagonal=True,
            )
        ),
        lambda x, y: sides(np, y),
    ),
    "right_side": (
        lambda x, y: jnp.rint(
            lax.linalg.triangular_solve(
                triangles(jnp, x),
                turned(sides(jnp, y)) @ turned(triangles(jnp, x)),
                left_side=False,
                lower=True,
                transpose_a=True,
            )
        ),
        lambda x, y: turned(sides(np, y)),
    ),
    "cholesky": (
        lambda x, y: jnp.rint(jnp.linalg.cholesky(triangles(jnp, x) @ turned(triangles(jnp, x)))),
        lambda x, y: triangles(np, x),
    ),
    "eigvalsh": (
        lambda x, y: jnp.rint(jnp.linalg.eigvalsh(jnp.eye(4) * (x[:, None, :1] + jnp.array([5.0, 1, 3, 2])))),
        lambda x, y: x[:, :1] + np.array([1.0, 2, 3, 5]),
    ),
    "eigh": (of_eigenvectors, lambda x, y: (0 * x[:, :4] + [4, 8, 12, 16], symmetric(np, x))),
    "svd": (of_singular_vectors, lambda x, y: (0 * x[:, :4] + [16, 12, 8, 4], symmetric(np, x)[:, ORDER, :])),
}

# Fourier transforms: odd lengths, round trips and two dimensions.

FOURIER: dict[str, Member] = {
    "irfft_odd": (
        lambda x, y: jnp.rint(jnp.fft.irfft(jnp.fft.rfft(x[:, :5], axis=1), n=5, axis=1)),
        lambda x, y: x[:, :5],
    ),
    "ifft2": (lambda x, y: jnp.rint(jnp.fft.ifft2(jnp.fft.fft2(x)).real), lambda x, y: x),
    "irfft2": (
        lambda x, y: jnp.rint(jnp.fft.irfft2(jnp.fft.rfft2(y[:, :5]), s=(y.shape[0], 5))),
        lambda x, y: y[:, :5],
    ),
    "longer": (
        lambda x, y: jnp.rint(jnp.fft.ifft(jnp.fft.fft(x[:3], n=5, axis=0), axis=0).real),
        lambda x, y: np.pad(x[:3], ((0, 2), (0, 0))),
    ),
    "first_bin": (
        lambda x, y: jnp.rint(jnp.fft.fft(x[:3], axis=0).real[0]),
        lambda x, y: x[:3].sum(axis=0),
    ),
    "fftshift": both(lambda m, x, y: (m.fft.fftshift(x[:, :5], 1), m.fft.ifftshift(y[:, :5], 1))),
}

FOURIER_ROWS: dict[str, Member] = {
    "ortho": (
        lambda x, y: jnp.rint(jnp.fft.ifft(jnp.fft.fft(x[:, :4], norm="ortho")).real * 2),
        lambda x, y: x[:, :4],
    ),
    "first_bin": (
        lambda x, y: jnp.rint(jnp.fft.fft(x[:, :5], axis=1).real[:, 0]),
        lambda x, y: x[:, :5].sum(axis=1),
    ),
}
"""Transforms along rows. A global program may have to gather the parts of a row first."""


# Attention with equal scores: each result is the mean of the values that the query sees.


def seen(x: Any, y: Any, heads: int = 2, **options: Any) -> Any:
    """Attention with queries of zeros; keys and values are taken from y."""
    keys, queries = jnp.resize(y, (2, 4, 2, 4)), 0 * jnp.resize(x, (2, 4, heads, 4))
    return jax.nn.dot_product_attention(queries, keys, keys, **options)


def means(*spans: tuple[int, int]) -> Callable[..., Any]:
    """The NumPy definition: the mean of the values in each query's span (start, end). The spans repeat if there are
    fewer than eight."""

    def defined(x: Any, y: Any) -> Any:
        keys = np.resize(y, (2, 4, 2, 4))
        many = spans * (8 // len(spans))
        found = [keys[i // 4, a:b].mean(axis=0) if b > a else 0 * keys[0, 0] for i, (a, b) in enumerate(many)]
        return np.stack(found).reshape(2, 4, 2, 4)

    return defined


WHOLE = ((0, 4),) * 4

ATTENTION: dict[str, Member] = {
    "key_lengths": (
        lambda x, y: seen(x, y, key_value_seq_lengths=jnp.array([2, 4])),
        means(*((0, 2),) * 4, *WHOLE),
    ),
    "query_lengths": (
        lambda x, y: seen(x, y, query_seq_lengths=jnp.array([4, 2])),
        means(*WHOLE, *WHOLE[:2], (0, 0), (0, 0)),
    ),
    "window": (
        lambda x, y: seen(x, y, local_window_size=(1, 0)),
        means((0, 1), (0, 2), (1, 3), (2, 4)),
    ),
    "mask": (
        lambda x, y: seen(
            x, y, mask=jnp.arange(4)[None, None, None] < jnp.array([1, 2])[:, None, None, None]
        ),
        means(*((0, 1),) * 4, *((0, 2),) * 4),
    ),
    "bias": (
        lambda x, y: seen(x, y, bias=jnp.where(jnp.arange(4) < 2, 0.0, -1e9)[None, None, None]),
        means(*((0, 2),) * 4),
    ),
    "grouped": (
        lambda x, y: seen(x, y, heads=4, key_value_seq_lengths=jnp.array([1, 2])),
        lambda x, y: np.repeat(means(*((0, 1),) * 4, *((0, 2),) * 4)(x, y), 2, axis=2),
    ),
}


def ragged(x: Any, y: Any) -> Any:
    """Row 0 times the first matrix, row 1 times the third. The other rows are in no group and are zero."""
    found = np.zeros((len(x), 2))
    found[0], found[1] = x[0, :4] @ np.resize(y, (3, 4, 2))[0], x[1, :4] @ np.resize(y, (3, 4, 2))[2]
    return found


RAGGED: dict[str, Member] = {
    "ragged_dot": (
        lambda x, y: lax.ragged_dot(x[:, :4], jnp.resize(y, (3, 4, 2)), jnp.array([1, 0, 1], jnp.int32)),
        ragged,
    ),
}
