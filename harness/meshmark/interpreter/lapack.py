# SPDX-License-Identifier: Apache-2.0
"""Factorizations and solutions of batches of matrices, as LAPACK and cuSOLVER define them.

Arrays are [..., rows, columns], in double precision. Householder reflectors follow LAPACK's xLARFG and xORGQR (LAPACK
Users' Guide, 3rd ed., "Elementary Reflectors"). For a matrix that has no factor the result is the number of a column,
counted from 1, and numbers that no program may use.
"""

from __future__ import annotations

import numpy as np


def cholesky(a: np.ndarray, lower: bool) -> tuple[np.ndarray, np.ndarray]:
    """(the factor in one triangle with the other triangle unchanged, int32 [...]: the order of the first leading minor
    that is not positive, 0 if all are)."""
    source = a if lower else adjoint(a)
    n = a.shape[-1]
    factor = np.zeros_like(source)
    info = np.zeros(a.shape[:-2], np.int32)
    for j in range(n):
        row = factor[..., j, :j]
        square = (source[..., j, j] - np.sum(row * row.conj(), axis=-1)).real
        info = np.where((info == 0) & ~(square > 0), j + 1, info).astype(np.int32)
        factor[..., j, j] = np.sqrt(np.where(square > 0, square, 1.0))
        rest = source[..., j + 1 :, j] - np.einsum("...ik,...k->...i", factor[..., j + 1 :, :j], row.conj())
        factor[..., j + 1 :, j] = rest / factor[..., j, j][..., None]
    found = np.tril(factor) + np.triu(source, 1)
    return found if lower else adjoint(found), info


def adjoint(a: np.ndarray) -> np.ndarray:
    """The conjugate transpose of each matrix."""
    return a.swapaxes(-1, -2).conj()


def triangular_solution(
    a: np.ndarray, b: np.ndarray, left: bool, lower: bool, unit: bool, transposed: str
) -> np.ndarray:
    """The solution X of op(A) X = B (if `left`) or X op(A) = B.

    transposed: op, which is NO_TRANSPOSE, TRANSPOSE or ADJOINT. lower: the triangle of A that is read. unit: the
    diagonal is not read and counts as ones."""
    matrix = a if transposed == "NO_TRANSPOSE" else a.swapaxes(-1, -2)
    matrix = matrix.conj() if transposed == "ADJOINT" else matrix
    forward = lower == (transposed == "NO_TRANSPOSE")
    if not left:  # solve the transposed equation from the left
        matrix, b, forward = matrix.swapaxes(-1, -2), b.swapaxes(-1, -2), not forward
    n = matrix.shape[-1]
    batch = np.broadcast_shapes(matrix.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    for i in range(n) if forward else reversed(range(n)):
        known = slice(0, i) if forward else slice(i + 1, n)
        x[..., i, :] -= np.einsum("...k,...kj->...j", matrix[..., i, known], x[..., known, :])
        if not unit:
            x[..., i, :] /= matrix[..., i, i][..., None]
    return x if left else x.swapaxes(-1, -2)


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(L without its unit diagonal and U in one matrix, int32 pivots, int32 number of the first zero on U's diagonal).

    Row i was exchanged with row pivots[i], both counted from 1. The number counts from 1 too; 0 if there is none."""
    m, n = a.shape[-2:]
    rows = np.array(a).reshape(-1, m, n)
    pivots = np.zeros((len(rows), min(m, n)), np.int32)
    info = np.zeros(len(rows), np.int32)
    every = np.arange(len(rows))
    for k in range(min(m, n)):
        largest = k + np.argmax(np.abs(rows[:, k:, k]), axis=1)
        pivots[:, k] = largest + 1
        swapped = rows[every, largest]
        rows[every, largest] = rows[:, k]
        rows[:, k] = swapped
        pivot = rows[:, k, k]
        info = np.where((info == 0) & (pivot == 0), k + 1, info).astype(np.int32)
        rows[:, k + 1 :, k] /= np.where(pivot == 0, 1.0, pivot)[:, None]
        rows[:, k + 1 :, k + 1 :] -= rows[:, k + 1 :, k, None] * rows[:, k, None, k + 1 :]
    return rows.reshape(a.shape), pivots.reshape(*a.shape[:-2], -1), info.reshape(a.shape[:-2])


def householder(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R in the upper triangle with the reflectors below it, without their leading ones; their factors tau)."""
    m, n = a.shape[-2:]
    packed = np.array(a)
    taus = np.zeros((*a.shape[:-2], min(m, n)), a.dtype)
    for k in range(min(m, n)):
        alpha, below = packed[..., k, k], packed[..., k + 1 :, k]
        rest = np.sqrt(np.sum(np.abs(below) ** 2, axis=-1))
        length = np.sqrt(np.abs(alpha) ** 2 + rest**2)
        plain = (rest == 0) & (alpha.imag == 0)  # nothing to reflect
        beta = np.where(plain, alpha, -np.copysign(length, alpha.real))
        tau = np.where(plain, 0.0, (beta - alpha) / np.where(beta == 0, 1.0, beta))
        vector = np.where(plain[..., None], 0.0, below / np.where(plain, 1.0, alpha - beta)[..., None])
        column = np.concatenate([np.ones((*a.shape[:-2], 1), a.dtype), vector], axis=-1)
        part = packed[..., k:, k + 1 :]
        weights = np.einsum("...i,...ij->...j", column.conj(), part) * tau.conj()[..., None]
        packed[..., k:, k + 1 :] = part - column[..., :, None] * weights[..., None, :]
        packed[..., k, k], packed[..., k + 1 :, k], taus[..., k] = beta, vector, tau
    return packed, taus


def reflected(packed: np.ndarray, taus: np.ndarray) -> np.ndarray:
    """The leading columns of the product of the reflectors; their number is that of `packed`."""
    m, n = packed.shape[-2:]
    q = np.array(np.broadcast_to(np.eye(m, n, dtype=packed.dtype), packed.shape))
    for k in reversed(range(taus.shape[-1])):
        ones = np.ones((*packed.shape[:-2], 1), packed.dtype)
        column = np.concatenate([ones, packed[..., k + 1 :, k]], axis=-1)
        part = q[..., k:, :]
        weights = np.einsum("...i,...ij->...j", column.conj(), part) * taus[..., k, None]
        q[..., k:, :] = part - column[..., :, None] * weights[..., None, :]
    return q


def permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    """The order of the rows after all exchanges, int32 [..., size]. Pivots count from 0."""
    flat = pivots.reshape(-1, pivots.shape[-1])
    order = np.tile(np.arange(size, dtype=np.int32), (len(flat), 1))
    every = np.arange(len(flat))
    for k in range(flat.shape[1]):
        other = flat[:, k]
        order[every, k], order[every, other] = order[every, other], order[every, k].copy()
    return order.reshape(*pivots.shape[:-1], size)
