# SPDX-License-Identifier: Apache-2.0
"""The custom calls of linear algebra on TPU.

Their meanings are those of openxla/xla, which builds these decompositions from plain instructions or documents them:
hlo/transforms/expanders (cholesky_expander.cc, qr_expander.cc, eigh_expander.cc, triangular_solve_expander.cc) and
hlo/builder/lib/lu_decomposition.h. They are computed in double precision, by other algorithms, and rounded once. The
other triangle of a Cholesky factor is poison, because the sources do not define it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused
from meshmark.interpreter import lapack
from meshmark.interpreter.custom_calls import target
from meshmark.interpreter.elementwise import rounded, wide
from meshmark.interpreter.values import AnyValue, Value, array, full, lead

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

SWEEPS = 60
"""The largest number of sweeps of Jacobi rotations. A matrix of a hundred rows takes about ten."""


def _matrices(instruction: Instruction, operand: AnyValue) -> tuple[np.ndarray, np.dtype]:
    """(matrices [devices, ..., m, n] in double precision, their dtype before). Fault if an element was not written."""
    data = array(operand, instruction.name).known(instruction.name)
    if data.dtype.kind not in "f":
        name = instruction.attributes["custom_call_target"].strip('"')
        raise Refused(f"{name} of {data.dtype}")
    return wide(data), data.dtype


@target("Cholesky")
def _cholesky(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The lower factor; NaN for a matrix that has none. The program tests the diagonal for NaN."""
    data, kind = _matrices(instruction, operands[0])
    factor, info = lapack.cholesky(data, lower=True)
    factor = rounded(np.where(info[..., None, None] == 0, factor, np.nan), kind)
    return Value(factor, np.broadcast_to(~np.tri(data.shape[-1], dtype=bool), (1, *factor.shape[1:])))


@target("QrDecompositionBlock")
def _qr(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """R above the Householder vectors, and their factors tau, as LAPACK packs them."""
    data, kind = _matrices(instruction, operands[0])
    packed, factors = lapack.householder(data)
    return (Value(rounded(packed, kind)), Value(rounded(factors, kind)))


@target("CompactWyHelper")
def _compact_wy(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """T of a product I + Y T Y^t of Householder reflections. Each column in turn is multiplied by the part of T that is
    known."""
    data, kind = _matrices(instruction, operands[0])
    result = np.broadcast_to(np.eye(data.shape[-1]), data.shape).copy()
    for j in range(data.shape[-1]):
        result[..., j] = np.einsum("...ij,...j->...i", result, data[..., j])
    return Value(rounded(result, kind))


@target("LuDecompositionBlock", "LuRealDecompositionBlock")
def _lu(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """L and U in one array, the swapped rows (counted from 0), and the resulting permutation."""
    data, kind = _matrices(instruction, operands[0])
    packed, pivots, _ = lapack.lu(data)
    rows = pivots - 1  # LAPACK counts from 1
    return (Value(rounded(packed, kind)), Value(rows), Value(lapack.permutation(rows, data.shape[-2])))


@target("InvertDiagBlocksLowerTriangular", "InvertDiagBlocksUpperTriangular")
def _inverse(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The inverse of each triangular block. The other triangle is not read."""
    data, kind = _matrices(instruction, operands[0])
    if data.shape[-1] != data.shape[-2]:
        raise Refused("the inverse of blocks that are not square")
    lower = "Lower" in instruction.attributes["custom_call_target"]
    unit = np.broadcast_to(np.eye(data.shape[-1]), data.shape)
    inverse = lapack.triangular_solution(data, unit, True, lower, False, "NO_TRANSPOSE")
    return Value(rounded(inverse, kind))


@target("EighTpu")
def _eigh(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The eigenvalues in two halves, and the eigenvectors as the rows of a matrix in four quarters, of a symmetric
    matrix in four quarters. Their order is the one that Jacobi rotations give."""
    quarters = [_matrices(instruction, operand) for operand in operands]
    if len(quarters) != 4:
        raise Refused(f"EighTpu of {len(quarters)} arrays")
    kind, devices = quarters[0][1], lead(*(array(o, instruction.name) for o in operands))
    tl, tr, bl, br = (full(data, devices) for data, _ in quarters)
    values, vectors = jacobi(np.block([[tl, tr], [bl, br]]))
    k = tl.shape[-1]
    halves = (slice(k), slice(k, None))
    parts = [values[..., half] for half in halves]
    parts += [vectors[..., rows, columns] for rows in halves for columns in halves]
    return tuple(Value(rounded(part, kind)) for part in parts)


def jacobi(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues [..., n] and eigenvectors as rows [..., n, n] of symmetric matrices.

    Rotations are by at most 45 degrees, so a row and column that are diagonal already keep their place. JAX's own eigh
    on TPU relies on this. Each step rotates disjoint pairs of rows, in the order of a round-robin tournament."""
    n = matrices.shape[-1]
    a = np.array(matrices)
    v = np.broadcast_to(np.eye(n), a.shape).copy()
    players = [*range(n), *([-1] if n % 2 else [])]
    least = np.finfo(np.float64).eps * np.sqrt((a * a).sum(axis=(-2, -1), keepdims=True))
    off = ~np.eye(n, dtype=bool)
    for _ in range(SWEEPS):
        if not (np.abs(a) > least)[..., off].any():
            break
        for _ in players[1:]:
            half = len(players) // 2
            met = [sorted(pair) for pair in zip(players[:half], players[: half - 1 : -1], strict=True)]
            p, q = np.array([pair for pair in met if pair[0] >= 0], int).reshape(-1, 2).T
            _rotate(a, v, p, q)
            players = [players[0], players[-1], *players[1:-1]]
    return a[..., np.arange(n), np.arange(n)], v


def _rotate(a: np.ndarray, v: np.ndarray, p: np.ndarray, q: np.ndarray) -> None:
    """Make the elements of `a` at (p, q) zero by rotations, in place, and rotate the rows of `v` in the same way."""
    corner = a[..., p, q]
    nothing = corner == 0
    tau = (a[..., q, q] - a[..., p, p]) / np.where(nothing, 1.0, 2 * corner)
    root = np.hypot(1, tau)
    t = np.where(nothing, 0.0, 1 / np.where(tau >= 0, tau + root, tau - root))
    c = 1 / np.sqrt(1 + t * t)
    s = t * c
    for each in (a, v):
        first, second = each[..., p, :], each[..., q, :]
        each[..., p, :], each[..., q, :] = (
            c[..., None] * first - s[..., None] * second,
            s[..., None] * first + c[..., None] * second,
        )
    first, second = a[..., :, p], a[..., :, q]
    a[..., :, p], a[..., :, q] = (
        c[..., None, :] * first - s[..., None, :] * second,
        s[..., None, :] * first + c[..., None, :] * second,
    )
    a[..., p, q] = a[..., q, p] = 0
