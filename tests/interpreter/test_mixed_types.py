# SPDX-License-Identifier: Apache-2.0
"""Instructions that place elements of float32 and give bfloat16, as the compiler for TPU writes them."""

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import pytest
from jax import lax

from meshmark.core.hlo_types import Refused
from tests.interpreter.modules import run

GIVEN = np.array([[[1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8 + 2**-20)], [2.0, 3.25, 1e-40]]], np.float32)
"""bfloat16 has 7 bits after the point: the first two elements are ties, which go to the even neighbour."""
HALVES = np.array([[1.0, 1 + 2**-6, -(1 + 2**-7)], [2.0, 3.25, 2.0**-133]])
"""The elements as bfloat16, worked out by hand. The last one is below the normal numbers: a multiple of 2**-133."""

P = "%p = f32[2,3]{1,0} parameter(0)"
ZERO = "%zero = f32[] constant(0)"
FILL = "%fill = f32[] constant(1.00390625)"
PLACE = "%at = s32[] constant(1)"
LEFT = "%left = f32[2,1]{1,0} slice(%p), slice={[0:2], [0:1]}"
ROWS = "%rows = s32[2]{0} constant({1, 0})"
HALF = "%half = bf16[2,1]{1,0} convert(%left)"

MOVES = {
    "slice": (["bf16[2,2] slice(%p), slice={[0:2], [1:3]}"], HALVES[:, 1:]),
    "reshape": (["bf16[6] reshape(%p)"], HALVES.reshape(6)),
    "transpose": (["bf16[3,2] transpose(%p), dimensions={1,0}"], HALVES.T),
    "reverse": (["bf16[2,3] reverse(%p), dimensions={1}"], HALVES[:, ::-1]),
    "broadcast": (["bf16[2,2,3] broadcast(%p), dimensions={1,2}"], np.stack([HALVES, HALVES])),
    "pad": (
        [FILL, "bf16[2,4] pad(%p, %fill), padding=0_0x1_0"],
        np.concatenate([np.ones((2, 1)), HALVES], axis=1),
    ),
    "pad of another type": (
        [ZERO, LEFT, HALF, "bf16[2,2] pad(%half, %zero), padding=0_0x0_1"],
        np.concatenate([HALVES[:, :1], np.zeros((2, 1))], axis=1),
    ),
    "concatenate": (
        [LEFT, HALF, "bf16[2,4] concatenate(%p, %half), dimensions={1}"],
        np.concatenate([HALVES, HALVES[:, :1]], axis=1),
    ),
    "dynamic-slice": (
        [PLACE, "bf16[1,2] dynamic-slice(%p, %at, %at), dynamic_slice_sizes={1,2}"],
        HALVES[1:, 1:],
    ),
    "dynamic-update-slice": (
        [PLACE, LEFT, HALF, "bf16[2,3] dynamic-update-slice(%p, %half, %at, %at)"],
        np.concatenate([HALVES[:, :1], HALVES[:, :1], HALVES[:, 2:]], axis=1),
    ),
    "gather": (
        [
            ROWS,
            "bf16[2,3] gather(%p, %rows), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
            " index_vector_dim=1, slice_sizes={1,3}",
        ],
        HALVES[::-1],
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_elements_become_bfloat16_where_the_instruction_says_so(name):
    (*before, last), expected = MOVES[name]
    [seen] = run(P, *before, f"%r = {last}", arguments=[GIVEN], header="num_partitions=1")
    assert seen.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(seen[0].astype(np.float64), expected.astype(ml_dtypes.bfloat16))


def test_rounding_by_hand_is_what_execution_gives():
    executed = np.asarray(lax.convert_element_type(GIVEN[0], "bfloat16"))
    np.testing.assert_array_equal(executed[:, :2].astype(np.float64), HALVES[:, :2])


@pytest.mark.parametrize(
    "lines",
    [
        ["%r = f16[2,2] slice(%p), slice={[0:2], [1:3]}"],
        ["%r = s32[6] reshape(%p)"],
        [LEFT, HALF, "%r = f32[2] reshape(%half)"],  # nothing says that a move makes an element wider
        [PLACE, "%r = f32[2,4] pad(%p, %at), padding=0_0x1_0"],
        [PLACE, "%b = s32[1,1] broadcast(%at)", "%r = f32[2,3] dynamic-update-slice(%p, %b, %at, %at)"],
        ["%b = f16[2,3] convert(%p)", "%r = f32[4,3] concatenate(%p, %b), dimensions={0}"],
    ],
)
def test_other_changes_of_a_type_are_refused(lines):
    with pytest.raises(Refused):
        run(P, *lines, arguments=[GIVEN], header="num_partitions=1")


@pytest.mark.parametrize(
    ("kind", "tile", "refused"), [("s8", 16, True), ("s8", 32, False), ("u8", 16, False), ("bf16", 16, False)]
)
def test_a_product_that_a_gpu_gets_wrong_is_not_judged_by_its_text(kind, tile, refused):
    out = "f32" if kind == "bf16" else "s32"
    lines = (
        f"%p = {kind}[2,3]{{1,0}} parameter(0)",
        f"%q = {kind}[3,2]{{1,0}} parameter(1)",
        f"%d = {out}[2,2]{{1,0}} dot(%p, %q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
        f' backend_config={{"sizes":["{tile}"]}}',
    )
    numpy = {"s8": np.int8, "u8": np.uint8, "bf16": ml_dtypes.bfloat16}[kind]
    given = np.arange(6).reshape(2, 3)
    arguments = [given[None].astype(numpy), given.T[None].astype(numpy)]
    with pytest.raises(Refused, match="in tiles of 16") if refused else nullcontext():
        [result] = run(*lines, arguments=arguments, header="num_partitions=1")
        assert np.array_equal(result[0], given @ given.T)


@pytest.mark.parametrize(
    ("four", "tile", "refused"), [("s4", 16, True), ("u4", 16, True), ("s8", 16, False), ("s4", 32, False)]
)
def test_a_product_of_4_bit_integers_that_a_gpu_gets_wrong_is_not_judged_by_its_text(four, tile, refused):
    """The factor is cast and turned before the dot, as in the text for an H100."""
    lines = (
        "%p = bf16[2,3]{1,0} parameter(0)",
        f"%q = {four}[2,3]{{1,0}} parameter(1)",
        "%c = bf16[2,3]{1,0} convert(%q)",
        "%t = bf16[3,2]{1,0} transpose(%c), dimensions={1,0}",
        "%d = f32[2,2]{1,0} dot(%p, %t), lhs_contracting_dims={1}, rhs_contracting_dims={0},"
        f' backend_config={{"sizes":["{tile}"]}}',
    )
    numpy = {"s4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "s8": np.int8}[four]
    given = np.arange(6).reshape(2, 3)
    arguments = [given[None].astype(ml_dtypes.bfloat16), given[None].astype(numpy)]
    with pytest.raises(Refused, match="4-bit integers in tiles of 16") if refused else nullcontext():
        [result] = run(*lines, arguments=arguments, header="num_partitions=1")
        assert np.array_equal(result[0], given @ given.T)
