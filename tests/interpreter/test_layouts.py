# SPDX-License-Identifier: Apache-2.0
"""Tiles, bitcasts and unwritten memory, computed by hand."""

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import pytest

from meshmark.core.hlo_types import Refused, parse_type
from meshmark.interpreter import tiles
from meshmark.interpreter.faults import Fault
from tests.interpreter.modules import ADD, run

ONE = "num_partitions=1"


@pytest.mark.parametrize(
    ("shape", "element", "offset", "room"),
    [
        ("f32[3,4]{1,0}", (1, 2), 6, 12),
        ("f32[3,4]{0,1}", (1, 2), 7, 12),  # columns first: 2 * 3 + 1
        # [10,130] takes 2x2 tiles of 8x128; (9,129) is in tile (1,1), at (1,1) of it: 3 * 1024 + 128 + 1.
        ("f32[10,130]{1,0:T(8,128)}", (9, 129), 3201, 4096),
        # Pairs of rows share a word: (3,5) is row 1, column 5 of the pairs, second of two: (128 + 5) * 2 + 1.
        ("bf16[8,128]{1,0:T(8,128)(2,1)}", (3, 5), 267, 1024),
        # Four rows share a word: (6,5) is row 1, column 5, third of four: (128 + 5) * 4 + 2.
        ("s8[8,128]{1,0:T(8,128)(4,1)}", (6, 5), 534, 1024),
        ("f32[2,3]{1,0:T(2,128)S(1)}", (1, 2), 130, 256),
        ("f32[]{:T(128)}", (), 0, 128),
        # One dimension: tiles of 512 as four rows of 128, rows together in words. 130 is row 1, column 2.
        ("pred[600]{0:T(512)(128)(4,1)}", (130,), 9, 1024),
        # The tile holds the two minor dimensions, here 0 and 2: row 3, column 1; then dimension 1.
        ("f32[4,2,3]{0,2,1:T(4,128)}", (3, 1, 2), 512 + 2 * 128 + 3, 1024),
    ],
)
def test_where_an_element_lies(shape, element, offset, room):
    found, size = tiles.offsets(parse_type(shape))
    assert (int(found[element]), size) == (offset, room)


def bitcast(source, target, argument):
    [result] = run(
        f"%p = {source} parameter(0)", f"%b = {target} bitcast(%p)", arguments=[argument[None]], header=ONE
    )
    return result[0]


def test_a_bitcast_of_another_order_transposes():
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(bitcast("f32[2,3]{0,1}", "f32[3,2]{1,0}", given), given.T)


def test_a_bitcast_with_the_same_tiles_keeps_the_rows():
    given = np.arange(1 * 5 * 8 * 16, dtype=np.float32).reshape(1, 5, 8, 16)
    seen = bitcast("f32[1,5,8,16]{3,2,1,0:T(8,128)}", "f32[5,8,16]{2,1,0:T(8,128)}", given)
    assert np.array_equal(seen, given[0])


def test_a_bitcast_to_words_takes_the_four_rows_of_a_word():
    """Seen on v5e: int8 is reduced four numbers to a word. Row k of four is byte k."""
    rng = np.random.default_rng(0)
    given = rng.integers(-128, 128, (1, 256, 4, 4)).astype(np.int8)
    source, target = "s8[1,256,4,4]{1,3,2,0:T(4,128)(4,1)}", "u32[256,4,1]{0,2,1:T(1,128)}"
    words = bitcast(source, target, given)
    bytes_ = given.view(np.uint8).astype(np.uint32)
    by_hand = sum(bytes_[0, :, :, k] << (8 * k) for k in range(4))
    assert np.array_equal(words[:, :, 0], by_hand)
    assert np.array_equal(bitcast(target, source, words), given)


def test_a_bitcast_to_words_takes_the_pair_of_rows_of_bfloat16():
    given = np.arange(32 * 128).reshape(32, 128).astype(ml_dtypes.bfloat16)
    seen = bitcast("bf16[32,128]{1,0:T(8,128)(2,1)}", "u32[16,128]{1,0:T(4,128)}", given)
    bits = given.view(np.uint16).astype(np.uint32)
    assert np.array_equal(seen, bits[0::2] | (bits[1::2] << 16))


def test_reading_the_padding_of_a_tile_is_a_fault():
    given = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    lines = ["%p = f32[2,3]{1,0:T(2,128)} parameter(0)", "%b = f32[256]{0:T(256)} bitcast(%p)"]
    with pytest.raises(Fault, match="nothing wrote"):
        run(*lines, arguments=[given], header=ONE)
    [seen] = run(*lines, "%s = f32[3]{0} slice(%b), slice={[128:131]}", arguments=[given], header=ONE)
    assert np.array_equal(seen[0], given[0, 1])


def test_tiles_that_the_text_leaves_out_are_those_on_which_all_agree():
    """Seen on v5e: the text gives the result of a fusion an order without tiles, and reads it with tiles. Eight rows
    lie alike in one tile of eight rows and in two of four."""
    lines = ["%p = f32[8,8]{0,1:S(1)} parameter(0)", "%b = f32[8,2,4]{0,2,1:T(4,128)S(1)} bitcast(%p)"]
    given = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    [seen] = run(*lines, arguments=[given], header=ONE)
    assert np.array_equal(seen[0], given[0].reshape(8, 2, 4))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32[16,200]{1,0}", "f32[2,8,200]{2,1,0:T(8,128)}"),  # columns beyond a tile: its rows matter
        ("bf16[8,8]{0,1}", "bf16[8,2,4]{0,2,1:T(4,128)(2,1)}"),  # packed
    ],
)
def test_tiles_that_the_text_leaves_out_and_that_could_be_others_are_refused(source, target):
    lines = [f"%p = {source} parameter(0)", f"%b = {target} bitcast(%p)"]
    shape = parse_type(source)
    with pytest.raises(Refused, match="whose tiles the text leaves out"):
        run(*lines, arguments=[np.zeros((1, *shape.dims), shape.numpy)], header=ONE)


def test_padding_within_a_word_shows_in_the_numbers():
    given = np.zeros((1, 3, 128), np.int8)
    [seen] = run(
        "%p = s8[3,128]{1,0:T(4,128)(4,1)} parameter(0)",
        "%b = u32[1,128]{1,0:T(1,128)} bitcast(%p)",
        arguments=[given],
        header=ONE,
    )
    assert (seen == 0xA5000000).all()


def test_a_fresh_buffer_is_read_only_where_it_was_written():
    fresh = '%f = f32[4]{0} custom-call(), custom_call_target="AllocateBuffer"'
    with pytest.raises(Fault, match="result 0 reads memory that nothing wrote"):
        run(fresh, header=ONE)
    with pytest.raises(Fault):  # arithmetic with it knows no more
        run(
            fresh,
            "%z = f32[] constant(0)",
            "%b = f32[4]{0} broadcast(%z), dimensions={}",
            "%m = f32[4]{0} multiply(%f, %b)",
            header=ONE,
        )
    chosen = (
        fresh,
        "%z = f32[] constant(7)",
        "%b = f32[4]{0} broadcast(%z), dimensions={}",
        "%p = pred[4]{0} constant({true, true, true, true})",
    )
    [seen] = run(*chosen, "%s = f32[4]{0} select(%p, %b, %f)", header=ONE)
    assert (seen == 7).all()
    with pytest.raises(Fault):
        run(*chosen, "%s = f32[4]{0} select(%p, %f, %b)", header=ONE)


def test_a_fresh_buffer_that_is_written_in_part_is_known_in_part():
    lines = (
        '%f = f32[4]{0} custom-call(), custom_call_target="AllocateBuffer"',
        "%p = f32[2]{0} parameter(0)",
        "%i = s32[] constant(1)",
        "%u = f32[4]{0} dynamic-update-slice(%f, %p, %i)",
    )
    given = np.array([[3, 4]], np.float32)
    [seen] = run(*lines, "%s = f32[2]{0} slice(%u), slice={[1:3]}", arguments=[given], header=ONE)
    assert np.array_equal(seen, given)
    with pytest.raises(Fault):
        run(*lines, "%s = f32[2]{0} slice(%u), slice={[0:2]}", arguments=[given], header=ONE)


@pytest.mark.parametrize("spelled", ["f32[2]{0:Q(3)}", "f32[2]{1}", "f7[2]{0}", "f32[2,<=3]{1,0}", "f32[2"])
def test_an_unknown_type_is_refused(spelled):
    with pytest.raises(Refused):
        run(f"%p = {spelled} parameter(0)", "%c = f32[2] copy(%p)", arguments=[np.zeros((1, 2))], header=ONE)


ARGMAX = """%largest (a: f32[], i: s32[], b: f32[], j: s32[]) -> (f32[], s32[]) {
  %a = f32[] parameter(0)
  %i = s32[] parameter(1)
  %b = f32[] parameter(2)
  %j = s32[] parameter(3)
  %gt = pred[] compare(%a, %b), direction=GT
  %v = f32[] select(%gt, %a, %b)
  %k = s32[] select(%gt, %i, %j)
  ROOT %t = (f32[], s32[]) tuple(%v, %k)
}"""


def test_an_argmax_in_float32_gives_its_maximum_as_bfloat16():
    """Seen on v5e: a reduce whose computation has float32 states bfloat16 for one of its results. 256 and 257 are one
    number in bfloat16 (of 8 bits: 256, 258), so the place shows that they were compared in float32."""
    given = np.array([[256, 257, 3], [-1, -5, -257]], np.float32)
    lines = (
        "%p = f32[2,3] parameter(0)",
        "%n = s32[2,3] iota(), iota_dimension=1",
        "%low = f32[] constant(-inf)",
        "%zero = s32[] constant(0)",
        "%r = (bf16[2], s32[2]) reduce(%p, %n, %low, %zero), dimensions={1}, to_apply=%largest",
    )
    found, places = run(*lines, arguments=[given[None]], header=ONE, others=[ARGMAX])
    assert found.dtype == ml_dtypes.bfloat16 and found[0].tolist() == [256, -1]
    assert places[0].tolist() == [1, 0]


def test_a_sum_of_another_type_than_it_states_is_refused():
    lines = ("%p = s32[3] parameter(0)", "%z = s32[] constant(0)")
    whole = ADD.replace("f32", "s32")
    for kind, refused in (("s32", False), ("s16", True)):
        reduce = f"%r = {kind}[] reduce(%p, %z), dimensions={{0}}, to_apply=%add.1"
        with pytest.raises(Refused, match="its result is") if refused else nullcontext():
            run(*lines, reduce, arguments=[np.ones((1, 3), np.int32)], header=ONE, others=[whole])


@pytest.mark.parametrize(
    ("numbers", "known"),
    [((5.0, 5.0), True), ((5.0, 6.0), False), ((np.nan, np.nan), True), ((0.0, -0.0), True)],
)
def test_two_numbers_for_one_place_are_unwritten_memory_unless_they_are_equal(numbers, known):
    """A scatter's updates have no order, so of two different numbers either may stay."""
    lines = (
        "%p = f32[4]{0} parameter(0)",
        "%i = s32[3,1]{1,0} constant({ {1}, {3}, {1} })",
        "%u = f32[3]{0} parameter(1)",
        "%s = f32[4]{0} scatter(%p, %i, %u), update_window_dims={}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%second",
    )
    second = "%second (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  ROOT %b = f32[] parameter(1)\n}"
    first, last = numbers
    given = [np.arange(4, dtype=np.float32)[None], np.array([[first, 7, last]], np.float32)]
    with nullcontext() if known else pytest.raises(Fault):
        [result] = run(*lines, arguments=given, others=(second,), header=ONE)
        assert np.array_equal(result[0], [0, last, 2, 7], equal_nan=True)
