# SPDX-License-Identifier: Apache-2.0
"""The custom calls of TPU programs, computed by hand."""

import numpy as np
import pytest

from meshmark.core.hlo_types import Refused
from meshmark.interpreter.factorizations import jacobi
from meshmark.interpreter.faults import Fault
from tests.interpreter.modules import run

ONE = "num_partitions=1"


def called(target, shapes, *matrices):
    """The results of a custom call of these matrices, without the device axis."""
    names = [f"%p{i} = f32[{','.join(map(str, np.shape(m)))}] parameter({i})" for i, m in enumerate(matrices)]
    given = ", ".join(f"%p{i}" for i in range(len(matrices)))
    call = f'%c = {shapes} custom-call({given}), custom_call_target="{target}"'
    found = run(*names, call, arguments=[np.array([m], np.float32) for m in matrices], header=ONE)
    return [result[0] for result in found]


def test_lu_with_pivots():
    """The rows of [[1, 2], [3, 4]] are swapped, so that U is [[3, 4], [0, 2/3]] and L has 1/3 below its diagonal."""
    packed, pivots, rows = called("LuRealDecompositionBlock", "(f32[2,2], s32[2], s32[2])", [[1, 2], [3, 4]])
    assert packed == pytest.approx(np.array([[3, 4], [1 / 3, 2 / 3]]))
    assert (pivots.tolist(), rows.tolist()) == ([1, 1], [1, 0])


def test_lu_of_three_rows_tells_pivots_from_the_permutation():
    """Row 2 comes first, and then the old row 0, which stands in place 2 by now."""
    matrix = [[2, 2, 1], [1, 0, 1], [4, 0, 0]]
    packed, pivots, rows = called("LuRealDecompositionBlock", "(f32[3,3], s32[3], s32[3])", matrix)
    assert packed.tolist() == [[4, 0, 0], [0.5, 2, 1], [0.25, 0, 1]]
    assert (pivots.tolist(), rows.tolist()) == ([2, 2, 2], [2, 0, 1])


def test_qr_packs_householders_vector():
    """Of (3, 4): -5 in R, 4 / (3 + 5) below it, and the factor (-5 - 3) / -5."""
    packed, factors = called("QrDecompositionBlock", "(f32[2,1], f32[1])", [[3], [4]])
    assert packed[:, 0] == pytest.approx([-5, 0.5])
    assert factors == pytest.approx([1.6])


def test_the_triangle_of_a_product_of_reflections():
    """The first column is (-1, 0); the second is [[-1, 0], [0, 1]] times (2, -3)."""
    [seen] = called("CompactWyHelper", "f32[2,2]", [[-1, 2], [0, -3]])
    assert seen.tolist() == [[-1, -2], [0, -3]]


@pytest.mark.parametrize(
    ("side", "matrix", "inverse"),
    [
        ("Lower", [[2, 7], [4, 8]], [[0.5, 0], [-0.25, 0.125]]),  # 7 does not count
        ("Upper", [[2, 4], [7, 8]], [[0.5, -0.25], [0, 0.125]]),
    ],
)
def test_the_inverse_of_a_triangle(side, matrix, inverse):
    [seen] = called(f"InvertDiagBlocks{side}Triangular", "f32[2,2]", matrix)
    assert seen.tolist() == inverse


def test_a_cholesky_factor_is_known_below_its_diagonal_alone():
    lines = (
        "%p = f32[2,2] parameter(0)",
        '%c = f32[2,2] custom-call(%p), custom_call_target="Cholesky"',
    )
    given = np.array([[[4, 2], [2, 5]]], np.float32)
    with pytest.raises(Fault, match="nothing wrote"):
        run(*lines, arguments=[given], header=ONE)
    masked = (
        "%m = pred[2,2] constant({ { true, false }, { true, true } })",
        "%z = f32[2,2] constant({ { 0, 0 }, { 0, 0 } })",
        "%s = f32[2,2] select(%m, %c, %z)",
    )
    [seen] = run(*lines, *masked, arguments=[given], header=ONE)
    assert seen[0].tolist() == [[2, 0], [1, 2]]
    [none] = run(*lines, *masked, arguments=[-given], header=ONE)
    assert np.isnan(none[0]).tolist() == [[True, False], [True, True]]


def quartered(matrix):
    k = len(matrix) // 2
    a = np.array(matrix, np.float32)
    return a[:k, :k], a[:k, k:], a[k:, :k], a[k:, k:]


EIGH = "(f32[1], f32[1], f32[1,1], f32[1,1], f32[1,1], f32[1,1])"


def test_eigenvalues_and_vectors_in_quarters():
    """[[2, 1], [1, 2]] turns by 45 degrees: 1 with (1, -1), and 3 with (1, 1)."""
    *values, tl, tr, bl, br = called("EighTpu", EIGH, *quartered([[2, 1], [1, 2]]))
    assert np.concatenate(values) == pytest.approx([1, 3])
    assert np.block([[tl, tr], [bl, br]]) == pytest.approx(np.sqrt(0.5) * np.array([[1, -1], [1, 1]]))


def test_eigenvalues_stay_where_rotations_leave_them():
    """JAX pads the blocks of a larger problem, and finds its eigenvalues before those of the padding."""
    assert np.concatenate(called("EighTpu", EIGH, *quartered([[5, 0], [0, 1]]))[:2]).tolist() == [5, 1]
    values, _ = jacobi(np.array([[2.0, 1, 0], [1, 2, 0], [0, 0, 2]]))
    assert values.tolist() == pytest.approx([1, 3, 2])


def test_eigenvalues_of_random_matrices_against_their_definition():
    rng = np.random.default_rng(0)
    for n in (1, 4, 7, 16):
        a = rng.normal(size=(3, n, n))
        a = a + a.swapaxes(-1, -2)
        values, vectors = jacobi(a)
        assert np.allclose(vectors @ a, values[..., None] * vectors, atol=1e-12)
        assert np.allclose(vectors @ vectors.swapaxes(-1, -2), np.eye(n), atol=1e-12)


def test_complex_matrices_are_refused():
    call = '%c = c64[2,2] custom-call(%p), custom_call_target="Cholesky"'
    with pytest.raises(Refused, match="Cholesky of complex64"):
        run("%p = c64[2,2] parameter(0)", call, arguments=[np.ones((1, 2, 2), np.complex64)], header=ONE)


def test_the_padding_of_a_tile_becomes_zeros():
    """Three numbers of a tile of four: the sum of all four is theirs, and reading them back gives them."""
    lines = (
        "%p = f32[3]{0:T(4)} parameter(0)",
        '%c = f32[4]{0:T(4)} custom-call(%p), custom_call_target="ZeroCrop", output_to_operand_aliasing={{}: (0, {})}',
    )
    given = np.array([[1, 2, 4]], np.float32)
    [seen] = run(*lines, arguments=[given], header=ONE)
    assert seen.tolist() == [[1, 2, 4, 0]]
    [back] = run(*lines, "%b = f32[3]{0:T(4)} bitcast(%c)", arguments=[given], header=ONE)
    assert np.array_equal(back, given)


@pytest.mark.parametrize(("mask", "taken"), [(112, 12), (96, 11)])
def test_indices_from_bits(mask, taken):
    """0x31 is row 1 and column 3 of [[0, 1, 2, 3], [9, 10, 11, 12]] - or column 2, under a mask that lost a bit."""
    lines = (
        "%p = s32[2,4] parameter(0)",
        "%word = s32[1,1] constant({ {49} })",
        "%low = s32[1,1] constant({ {15} })",
        f"%high = s32[1,1] constant({{ {{{mask}}} }})",
        "%four = s32[1,1] constant({ {4} })",
        "%row = s32[1,1] and(%word, %low)",
        "%bits = s32[1,1] and(%word, %high)",
        "%column = s32[1,1] shift-right-logical(%bits, %four)",
        "%both = s32[1,2] concatenate(%row, %column), dimensions={1}",
        '%c = s32[1,2] custom-call(%both), custom_call_target="GatherScatterIndicesBitpacked"',
        "%g = s32[1] gather(%p, %c), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, "
        "index_vector_dim=1, slice_sizes={1,1}",
    )
    table = np.array([[[0, 1, 2, 3], [9, 10, 11, 12]]], np.int32)
    [seen] = run(*lines, arguments=[table], header=ONE)
    assert seen.tolist() == [[taken]]


@pytest.mark.parametrize(("order", "less"), [("TOTAL", [True, False]), ("PARTIAL", [False, False])])
def test_the_order_of_a_comparison(order, less):
    """In the total order -0 is less than 0, and NaN is the largest; in the partial order neither is less."""
    lines = (
        "%p = f32[2] parameter(0)",
        "%q = f32[2] constant({0, 1})",
        f"%c = pred[2] compare(%p, %q), direction=LT, order={order}",
    )
    given = np.array([[-0.0, np.nan]], np.float32)
    [seen] = run(*lines, arguments=[given], header=ONE)
    assert seen[0].tolist() == less
    with pytest.raises(Refused, match="compare with order SOME"):
        run(*lines[:2], lines[2].replace(order, "SOME"), arguments=[given], header=ONE)
