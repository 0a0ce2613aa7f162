# SPDX-License-Identifier: Apache-2.0
"""Factorizations and solutions: LAPACK's calls against their execution on CPU, cuSOLVER's and cuBLAS's by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshmark.core.hlo_types import Refused
from meshmark.interpreter import lapack
from meshmark.interpreter.faults import Fault
from tests.interpreter.modules import run
from tests.interpreter.test_against_jax import compared

ONE = "num_partitions=1"
RANDOM = np.random.default_rng(1701)
SQUARE = RANDOM.normal(size=(3, 5, 5)).astype(np.float32)
POSITIVE = (SQUARE @ SQUARE.swapaxes(-1, -2) + 5 * np.eye(5)).astype(np.float32)
COMPLEX = (SQUARE + 1j * SQUARE[::-1]).astype(np.complex64)


def every(a):
    """A result of each call; one program, since compiling takes the time."""
    solved = partial(lax.linalg.triangular_solve, a)
    return (
        jnp.linalg.cholesky(a @ a.swapaxes(-1, -2).conj() + 5 * jnp.eye(5)),
        lax.linalg.lu(a),
        lax.linalg.qr(a, full_matrices=False),
        lax.linalg.qr(a[:, :, :3], full_matrices=True),
        jnp.linalg.eigvalsh(a + a.swapaxes(-1, -2).conj()),
        jnp.sort(jnp.linalg.eigvals(a)),
        jnp.linalg.svd(a, compute_uv=False),
        jnp.linalg.solve(a, a[:, :, :2]),
        solved(a[:, :, :2], left_side=True, lower=True),
        solved(a[:, :2], left_side=False, lower=False, transpose_a=True),
        solved(a, left_side=True, transpose_a=True, conjugate_a=True),
        solved(a, left_side=True, lower=True, unit_diagonal=True),
    )


@pytest.mark.parametrize("given", [SQUARE, COMPLEX], ids=["real", "complex"])
def test_the_calls_of_lapack_agree_with_their_execution(given):
    compared(every, given, units=100)


def test_vectors_make_the_matrix_whole_again():
    """Their signs are open, so they are judged by what they make."""

    def whole(a):
        u, s, v = jnp.linalg.svd(a[:, :, :3], full_matrices=False)
        w, q = jnp.linalg.eigh(a + a.swapaxes(-1, -2))
        highest = jax.default_matmul_precision("highest")
        with highest:
            return (u * s[:, None]) @ v, (q * w[:, None]) @ q.swapaxes(-1, -2)

    compared(whole, SQUARE, units=100)


def test_a_matrix_without_a_factor_says_so():
    compared(lambda a: jnp.linalg.cholesky(a - 100 * jnp.eye(5)), POSITIVE)
    _, info = lapack.cholesky(np.diag([4.0, 1.0, -1.0, 2.0])[None], True)
    assert info.tolist() == [3]
    _, pivots, info = lapack.lu(np.array([[[0.0, 2.0], [0.0, 3.0]]]))
    assert (pivots.tolist(), info.tolist()) == ([[1, 2]], [1])


def test_a_complex_matrix_is_reflected_too():
    packed, taus = lapack.householder(COMPLEX.astype(np.complex128))
    q, r = lapack.reflected(packed, taus), np.triu(packed)
    np.testing.assert_allclose(q @ r, COMPLEX, atol=1e-6)
    np.testing.assert_allclose(q @ lapack.adjoint(q), np.broadcast_to(np.eye(5), q.shape), atol=1e-12)


# As XLA spells them for a GPU: jaxlib 0.12.0.1 for H100 -------------------------------------------------------

CALL = 'custom-call(%p), custom_call_target="{target}", api_version=API_VERSION_TYPED_FFI, backend_config={config}'


def called(target, results, config, *given, element=0):
    """One element of the results of a call on one device."""
    lines = [
        f"%p{n} = {'f' if g.dtype.kind == 'f' else 's'}32[{','.join(map(str, g.shape))}] parameter({n})"
        for n, g in enumerate(given)
    ]
    names = ", ".join(f"%p{n}" for n in range(len(given)))
    call = CALL.format(target=target, config=config).replace("%p", names)
    shape = results.strip("()").split(", ")[element]
    lines += [f"%c = {results} {call}", f"%r = {shape} get-tuple-element(%c), index={element}"]
    [found] = run(*lines, arguments=[g[None] for g in given], header=ONE)
    return found[0]


def test_the_calls_of_cusolver():
    factor = called("cusolver_potrf_ffi", "(f32[3,5,5], s32[3])", "{lower = true}", POSITIVE)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(POSITIVE), rtol=1e-5, atol=1e-5)
    assert np.array_equal(np.triu(factor, 1), np.triu(POSITIVE, 1))
    upper = called("cusolver_potrf_ffi", "(f32[3,5,5], s32[3])", "{lower = false}", POSITIVE)
    np.testing.assert_allclose(np.triu(upper), np.linalg.cholesky(POSITIVE).swapaxes(1, 2), atol=1e-5)
    values = called(
        "cusolver_syevd_ffi",
        "(f32[3,5,5], f32[3,5], s32[3])",
        "{algorithm = 0 : ui8, lower = true}",
        POSITIVE,
        element=1,
    )
    np.testing.assert_allclose(values, np.linalg.eigvalsh(POSITIVE), rtol=1e-5)
    turned = called("cu_lu_pivots_to_permutation", "(s32[1,3])", "{}", np.array([[2, 2, 2]], np.int32))
    assert turned.tolist() == [[2, 0, 1]]


def test_eigenvalues_of_a_matrix_that_is_not_symmetric():
    """[[0, -1], [1, 0]] turns by a quarter: i and -i."""
    turn = np.array([[0, -1], [1, 0]], np.float32)
    results = "(f32[2,2], c64[2], f32[2,2], f32[2,2], s32[])"
    values = called("cusolver_geev_ffi", results, "{left = false, right = false}", turn, element=1)
    assert sorted(values.imag) == [-1, 1] and not values.real.any()
    with pytest.raises(Refused, match="eigenvectors"):
        called("cusolver_geev_ffi", results, "{left = false, right = true}", turn, element=1)
    with pytest.raises(Fault, match="nothing wrote"):
        called("cusolver_geev_ffi", results, "{left = false, right = false}", turn, element=3)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_singular_values_of_cusolver(transposed):
    given = SQUARE[:, :3] if transposed else SQUARE[:, :, :3]
    left, right = ("5,3", "3,3") if not transposed else ("3,3", "3,5")
    shapes = [f"f32[3,{left}]", f"f32[3,{right}]"]
    dims = ",".join(map(str, given.shape))
    order = reversed(shapes) if transposed else shapes
    results = f"(f32[{dims}], f32[3,3], {', '.join(order)}, s32[3])"
    config = f"{{compute_uv = true, full_matrices = false, transposed = {str(transposed).lower()}}}"
    _, s, first, second = (
        None if n == 0 else called("cusolver_gesvd_ffi", results, config, given, element=n) for n in range(4)
    )
    u, rows = (second, first) if transposed else (first, second)
    np.testing.assert_allclose((u * s[:, None]) @ rows, given, atol=1e-5)
    columns = called(
        "cusolver_gesvdj_ffi",
        f"(f32[{dims}], f32[3,3], f32[3,{left}], f32[3,{','.join(reversed(right.split(',')))}], s32[3])",
        "{compute_uv = true, full_matrices = false}",
        given,
        element=3,
    )
    np.testing.assert_allclose((u * s[:, None]) @ columns.swapaxes(1, 2), given, atol=1e-5)


def test_what_a_call_destroys_may_not_be_read():
    results = "(f32[3,5,5], f32[3,5], f32[3,5,5], f32[3,5,5], s32[3])"
    with pytest.raises(Fault, match="nothing wrote"):
        called("cusolver_gesvdj_ffi", results, "{compute_uv = true, full_matrices = true}", SQUARE)
    with pytest.raises(Fault, match="nothing wrote"):
        called(
            "cusolver_gesvdj_ffi", results, "{compute_uv = false, full_matrices = true}", SQUARE, element=2
        )


def test_a_triangular_solution_of_cublas():
    """[[2, 0], [4, 5]] x = (2, 19) gives (1, 3). The other triangle holds 7, which nobody may read."""
    a, b = np.array([[2, 7], [4, 5]], np.float32), np.array([[2], [19]], np.float32)
    lower = '{"left_side":true,"lower":true,"unit_diagonal":false,"transpose_a":"NO_TRANSPOSE"}'

    def solved(config):
        return called("__cublas$triangularSolve", "(f32[2,1], s8[256])", config, a, b).ravel().tolist()

    assert solved(lower) == [1, 3]
    # What a compiler could do wrong:
    for old, new in (
        ('"lower":true', '"lower":false'),
        ('"unit_diagonal":false', '"unit_diagonal":true'),
        ("NO_TRANSPOSE", "TRANSPOSE"),
    ):
        assert solved(lower.replace(old, new)) != [1, 3]
    with pytest.raises(Fault, match="nothing wrote"):
        called("__cublas$triangularSolve", "(f32[2,1], s8[256])", lower, a, b, element=1)
    with pytest.raises(Refused, match="transpose_a SIDEWAYS"):
        solved(lower.replace("NO_TRANSPOSE", "SIDEWAYS"))


def test_an_attribute_that_is_not_known_is_refused():
    with pytest.raises(Refused, match="the attribute width of custom call cusolver_potrf_ffi"):
        called("cusolver_potrf_ffi", "(f32[3,5,5], s32[3])", "{lower = true, width = 3}", POSITIVE)
    with pytest.raises(Refused, match="the attribute 'lower = maybe'"):
        called("cusolver_potrf_ffi", "(f32[3,5,5], s32[3])", "{lower = maybe}", POSITIVE)
