# SPDX-License-Identifier: Apache-2.0
"""Custom calls of linear algebra: LAPACK on CPU, cuSOLVER and cuBLAS on GPU, as `jax.lax.linalg` calls them.

Their attributes are typed (`backend_config={lower = true, algorithm = 0 : ui8}`), or JSON for cuBLAS. They compute in
double precision and round once. NumPy decides what LAPACK does not define: the signs of eigenvectors and of singular
vectors, and the order of the eigenvalues of a matrix that is not symmetric. Results that no caller may use are poison.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import AnyShape, Refused, TupleShape, flat
from meshmark.interpreter import lapack
from meshmark.interpreter.control import fresh
from meshmark.interpreter.custom_calls import Attribute, check_names, target, typed_attributes
from meshmark.interpreter.elementwise import rounded, wide
from meshmark.interpreter.values import AnyValue, Value, array

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

Compute = Callable[[Mapping[str, Attribute], Sequence[np.ndarray]], Sequence[np.ndarray | None]]
"""A function that gives the results for attributes and operands. A result that no program may read is None."""

_LAPACK = tuple(f"lapack_{letter}" for letter in "sdcz")


def _register(gpu: str, lapack: Sequence[str], known: Sequence[str], compute: Compute) -> None:
    """Register a function of matrices as the meaning of cuSOLVER's call ("" for none) and of LAPACK's, in all four
    types.

    known: the attributes that a call may have."""

    def function(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
        name = instruction.attributes["custom_call_target"].strip('"')
        attributes = typed_attributes(instruction)
        if unknown := set(attributes) - set(known):
            raise Refused(f"the attribute {min(unknown)} of custom call {name}")
        given = [wide(array(operand, instruction.name).known(instruction.name)) for operand in operands]
        return results(instruction.shape, compute(attributes, given))

    names = [f"{prefix}{name}_ffi" for name in lapack for prefix in _LAPACK]
    target(*([gpu] if gpu else []), *names)(function)


def results(shape: AnyShape, found: Sequence[np.ndarray | None]) -> AnyValue:
    """Arrays as values of the instruction's type. None becomes unwritten memory."""
    shapes = list(flat(shape))
    if len(shapes) != len(found):
        raise Refused(f"a custom call with {len(shapes)} results")
    values = tuple(
        fresh(s) if part is None else Value(rounded(part, s.numpy))
        for s, part in zip(shapes, found, strict=True)
    )
    return values if isinstance(shape, TupleShape) else values[0]


def _is_lower(attributes: Mapping[str, Attribute]) -> bool:
    if "lower" in attributes:
        return bool(attributes["lower"])
    return attributes["uplo"] == ord("L")


def _cholesky(
    attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]
) -> Sequence[np.ndarray | None]:
    return lapack.cholesky(given[0], _is_lower(attributes))


def _lu(attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]) -> Sequence[np.ndarray | None]:
    return lapack.lu(given[0])


def _qr(attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]) -> Sequence[np.ndarray | None]:
    return lapack.householder(given[0])


def _q(attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]) -> Sequence[np.ndarray | None]:
    return [lapack.reflected(given[0], given[1])]


def _eigh(attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]) -> Sequence[np.ndarray | None]:
    if attributes.get("mode", ord("V")) != ord("V"):
        raise Refused("eigenvalues without vectors")
    [a] = given
    bad = ~np.isfinite(a).all(axis=(-1, -2))
    values, vectors = np.linalg.eigh(
        np.where(bad[..., None, None], 0.0, a), "L" if _is_lower(attributes) else "U"
    )
    return vectors, values, bad.astype(np.int32)


def _eigenvalues(
    attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]
) -> Sequence[np.ndarray | None]:
    """The eigenvalues of a matrix that is not symmetric, in NumPy's order."""
    if any(asked not in (False, ord("N")) for asked in attributes.values()):
        raise Refused("eigenvectors of a matrix that is not symmetric")
    [a] = given
    bad = ~np.isfinite(a).all(axis=(-1, -2))
    values = np.linalg.eigvals(np.where(bad[..., None, None], 0.0, a)).astype(np.complex128)
    info = bad.astype(np.int32)
    if "left" in attributes:  # cuSOLVER: the first result is the overwritten matrix
        return None, values, None, None, info
    parts = (values,) if np.iscomplexobj(a) else (values.real, values.imag)
    return *parts, None, None, info


def _svd(vectors_of_rows: bool) -> Compute:
    """A singular value decomposition. The call gives the overwritten matrix, s, u, v (its adjoint if `vectors_of_rows`)
    and info."""

    def compute(
        attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray | None]:
        [a] = given
        if "mode" in attributes:  # LAPACK: A(ll), S(ome), N(one)
            wanted, whole = attributes["mode"] != ord("N"), attributes["mode"] == ord("A")
        else:
            wanted, whole = bool(attributes["compute_uv"]), bool(attributes["full_matrices"])
        bad = ~np.isfinite(a).all(axis=(-1, -2))
        clean = np.where(bad[..., None, None], 0.0, a)
        info = bad.astype(np.int32)
        if not wanted:
            return None, np.linalg.svd(clean, compute_uv=False), None, None, info
        u, s, rows = np.linalg.svd(clean, full_matrices=whole)
        second, third = (u, rows) if vectors_of_rows else (u, lapack.adjoint(rows))
        if attributes.get("transposed"):  # the memory holds transposed matrices, so the factors swap
            second, third = third, second
        return None, s, second, third, info

    return compute


_SVD = ("full_matrices", "compute_uv", "transposed")
_register("cusolver_potrf_ffi", ["potrf"], ("lower", "uplo"), _cholesky)
_register("cusolver_getrf_ffi", ["getrf"], (), _lu)
_register("cusolver_geqrf_ffi", ["geqrf"], (), _qr)
_register("cusolver_orgqr_ffi", ["orgqr", "ungqr"], (), _q)
_register("cusolver_syevd_ffi", ["syevd", "heevd"], ("lower", "uplo", "algorithm", "mode"), _eigh)
_register("cusolver_geev_ffi", ["geev"], ("left", "right", "compute_left", "compute_right"), _eigenvalues)
_register("cusolver_gesvd_ffi", ["gesvd", "gesdd"], (*_SVD, "mode"), _svd(True))
_register("cusolver_gesvdj_ffi", [], _SVD, _svd(False))
_register("cusolver_gesvdp_ffi", [], _SVD, _svd(False))


@target("cu_lu_pivots_to_permutation")
def _permutation(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    [shape] = flat(instruction.shape)
    pivots = array(operands[0], instruction.name).known(instruction.name)
    return results(instruction.shape, [lapack.permutation(pivots, shape.dims[-1])])


# Triangular solutions ----------------------------------------------------------------------------------------


@target("__cublas$triangularSolve")
def _cublas(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    options = json.loads(instruction.backend_config)
    check_names("a triangular solution", options, ("transpose_a", "left_side", "lower", "unit_diagonal"))
    kind = options.get("transpose_a", "NO_TRANSPOSE")
    if kind not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        raise Refused(f"a triangular solution with transpose_a {kind}")
    a, b = (wide(array(operand, instruction.name).known(instruction.name)) for operand in operands)
    left, lower, unit = (bool(options.get(name)) for name in ("left_side", "lower", "unit_diagonal"))
    x = lapack.triangular_solution(a, b, left, lower, unit, kind)
    return results(instruction.shape, [x, None])


def _trsm(attributes: Mapping[str, Attribute], given: Sequence[np.ndarray]) -> Sequence[np.ndarray | None]:
    kinds = {ord("N"): "NO_TRANSPOSE", ord("T"): "TRANSPOSE", ord("C"): "ADJOINT"}
    left, unit = attributes["side"] == ord("L"), attributes["diag"] == ord("U")
    kind = kinds[int(attributes["trans_x"])]
    return [lapack.triangular_solution(given[0], given[1], left, _is_lower(attributes), unit, kind)]


_register("", ["trsm"], ("side", "uplo", "trans_x", "diag"), _trsm)
