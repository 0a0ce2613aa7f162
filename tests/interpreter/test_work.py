# SPDX-License-Identifier: Apache-2.0
"""The work of instructions against figures worked out by hand."""

import pytest

from meshmark.core.hlo_types import Refused
from meshmark.interpreter import reader
from meshmark.interpreter.work import Account, Work
from tests.interpreter.modules import ADD, text


def work(*lines, others=(), name=""):
    """The work of one instruction of an entry of these lines: of the last one, or of `name`."""
    written = text(*lines, others=others)
    module = reader.parse_module(written)
    entry = module.entry
    return Account(module).work(entry.by_name[name] if name else entry.root, entry)


@pytest.mark.parametrize(
    ("lines", "flops", "nbytes"),
    [
        (("%p = f32[4,8] parameter(0)", "%r = f32[4,8] add(%p, %p)"), 32, 3 * 128),
        (("%p = bf16[4,8] parameter(0)", "%r = bf16[4,8] tanh(%p)"), 32, 2 * 64),
        (("%p = s32[4,8] parameter(0)", "%r = s32[4,8] add(%p, %p)"), 0, 3 * 128),  # index arithmetic
        (("%p = f32[4,8] parameter(0)", "%r = f32[8,4] transpose(%p), dimensions={1,0}"), 0, 2 * 128),
        (("%p = f32[4,8] parameter(0)", "%r = f32[32] bitcast(%p)"), 0, 0),
        (("%p = s4[3] parameter(0)", "%r = s4[3] copy(%p)"), 0, 2 * 2),  # packed: 12 bits are 2 bytes
        (
            (
                "%p = f32[6,16,8] parameter(0)",
                "%q = f32[6,8,32] parameter(1)",
                "%r = f32[6,16,32] dot(%p, %q), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},"
                " rhs_contracting_dims={1}",
            ),
            2 * 6 * 16 * 32 * 8,
            4 * (6 * 16 * 8 + 6 * 8 * 32 + 6 * 16 * 32),
        ),
        (
            ("%p = c64[3,16] parameter(0)", "%r = c64[3,16] fft(%p), fft_type=FFT, fft_length={16}"),
            5 * 3 * 16 * 4,
            2 * 8 * 48,
        ),
        (
            ("%p = f32[3,16] parameter(0)", "%r = c64[3,9] fft(%p), fft_type=RFFT, fft_length={16}"),
            2.5 * 3 * 16 * 4,
            4 * 48 + 8 * 27,
        ),
        (
            (
                "%p = f32[64,8] parameter(0)",
                "%i = s32[] parameter(1)",
                "%r = f32[2,8] dynamic-slice(%p, %i, %i), dynamic_slice_sizes={2,8}",
            ),
            0,
            2 * 64 + 4 + 4,  # the slice read and written, the two indices: not the 2048 bytes of the operand
        ),
        (
            (
                "%p = f32[64,8] parameter(0)",
                "%u = f32[2,8] parameter(1)",
                "%i = s32[] parameter(2)",
                "%r = f32[64,8] dynamic-update-slice(%p, %u, %i, %i)",
            ),
            0,
            2 * 64 + 4 + 4,
        ),
    ],
)
def test_flops_and_bytes_of_one_instruction(lines, flops, nbytes):
    found = work(*lines)
    assert (found.flops, found.nbytes, found.unknown) == (flops, nbytes, ())


def test_a_reduction_looks_at_each_element():
    lines = ("%p = f32[4,8] parameter(0)", "%z = f32[] constant(0)")
    found = work(*lines, "%r = f32[4] reduce(%p, %z), dimensions={1}, to_apply=%add.1", others=[ADD])
    assert (found.flops, found.nbytes) == (32, 128 + 4 + 16)


@pytest.mark.parametrize(
    ("window", "output", "products"),
    [
        ("{size=3}", 6, 18),
        ("{size=3 pad=1_1}", 8, 22),  # 24 places, of which the first and the last product meet padding
        ("{size=3 stride=2}", 3, 9),
        ("{size=2 lhs_dilate=2}", 14, 14),  # each output meets one element and one hole
        ("{size=2 rhs_dilate=3}", 5, 10),
    ],
)
def test_products_with_padding_and_holes_are_no_flops(window, output, products):
    found = work(
        "%p = f32[5,8,7] parameter(0)",
        "%k = f32[3,7,11] parameter(1)" if "size=3" in window else "%k = f32[2,7,11] parameter(1)",
        f"%r = f32[5,{output},11] convolution(%p, %k), window={window}, dim_labels=b0f_0io->b0f",
    )
    assert found.flops == 2 * products * 5 * 7 * 11


def test_groups_of_features_and_of_the_batch_divide_the_products():
    line = "%r = f32[4,8,6] convolution(%p, %k), window={size=1}, dim_labels=b0f_0io->b0f"
    grouped = work(
        "%p = f32[4,8,6] parameter(0)",
        "%k = f32[1,2,6] parameter(1)",
        line + ", feature_group_count=3",
    )
    assert grouped.flops == 2 * 4 * 8 * 2 * 6
    batches = work(
        "%p = f32[4,8,6] parameter(0)",
        "%k = f32[1,6,6] parameter(1)",
        line.replace("f32[4,8,6] conv", "f32[2,8,6] conv") + ", batch_group_count=2",
    )
    assert batches.flops == 2 * 2 * 8 * 6 * 6


FUSED = """%fused (a: f32[64,8], b: s32[], c: f32[2,8]) -> (f32[2,8], f32[64,8]) {
  %a = f32[64,8]{1,0} parameter(0)
  %b = s32[] parameter(1)
  %c = f32[2,8]{1,0:S(1)} parameter(2)
  %taken = f32[2,8] dynamic-slice(%a, %b, %b), dynamic_slice_sizes={2,8}
  %twice = f32[2,8] multiply(%taken, %c)
  %sum = f32[2,8] add(%twice, %c)
  ROOT %both = (f32[2,8]{1,0:S(1)}, f32[64,8]{1,0}) tuple(%sum, %a)
}
"""


def test_a_fusion_counts_its_arithmetic_and_what_it_reads_and_writes_outside():
    found = work(
        "%p = f32[64,8] parameter(0)",
        "%i = s32[] parameter(1)",
        "%q = f32[2,8]{1,0:S(1)} parameter(2)",
        "%r = (f32[2,8]{1,0:S(1)}, f32[64,8]{1,0}) fusion(%p, %i, %q), kind=kLoop, calls=%fused",
        others=[FUSED],
    )
    assert found.flops == 32
    assert found.nbytes == 64 + 4 + 64 + 64  # the slice of %a, which is else handed on; %b; %c; the sum
    assert found.main_bytes == 64 + 4  # the memory space 1 is on the chip


def test_a_parameter_that_a_fusion_reads_as_a_whole_counts_as_a_whole():
    reading = FUSED.replace("  ROOT", "  %all = f32[64,8] negate(%a)\n  ROOT").replace(
        "%sum, %a)", "%sum, %all)"
    )
    found = work(
        "%p = f32[64,8] parameter(0)",
        "%i = s32[] parameter(1)",
        "%q = f32[2,8]{1,0:S(1)} parameter(2)",
        "%r = (f32[2,8]{1,0:S(1)}, f32[64,8]{1,0}) fusion(%p, %i, %q), kind=kLoop, calls=%fused",
        others=[reading],
    )
    assert (found.flops, found.nbytes) == (32 + 512, 2048 + 4 + 64 + 64 + 2048)


LOOP = """%body (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %s = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[4] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %more = f32[4] add(%x, %x)
  ROOT %t = (s32[], f32[4]) tuple(%next, %more)
}

%test (s.1: (s32[], f32[4])) -> pred[] {
  %s.1 = (s32[], f32[4]) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %end = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %end), direction=LT
}
"""


def test_a_loop_counts_its_turns_and_says_so_where_they_are_unknown():
    lines = (
        "%z = s32[] constant(0)",
        "%p = f32[4] parameter(0)",
        "%t = (s32[], f32[4]) tuple(%z, %p)",
        "%w = (s32[], f32[4]) while(%t), condition=%test, body=%body",
    )
    counted = work(*lines, others=[LOOP])
    assert (counted.flops, counted.unknown) == (5 * 4, ())
    unknown = work(*lines, others=[LOOP.replace("direction=LT", "direction=NE")])
    assert (unknown.flops, unknown.unknown) == (4, ("a loop",))


def test_a_conditional_counts_its_dearest_branch():
    branch = "%{0} (x{0}: f32[4]) -> f32[4] {{\n  %x{0} = f32[4] parameter(0)\n  ROOT %y{0} = f32[4] {1}(%x{0})\n}}\n"
    found = work(
        "%p = f32[4] parameter(0)",
        "%c = pred[] parameter(1)",
        "%r = f32[4] conditional(%c, %p, %p), true_computation=%one, false_computation=%two",
        others=[branch.format("one", "copy"), branch.format("two", "tanh")],
    )
    assert found == Work(flops=4, nbytes=32, main_bytes=32)


def test_communication_is_no_work_and_an_unknown_call_is_told():
    permute = "%r = f32[4] collective-permute(%p), channel_id=1, source_target_pairs={{0,1}}"
    assert not work("%p = f32[4] parameter(0)", permute)
    called = work("%p = f32[4] parameter(0)", '%r = f32[4] custom-call(%p), custom_call_target="Mosaic"')
    assert called.unknown == ("Mosaic",)
    assert called.nbytes == 32
    assert not work('%r = f32[4] custom-call(), custom_call_target="AllocateBuffer"')


def test_an_unknown_window_is_refused():
    with pytest.raises(Refused, match="window with"):
        work(
            "%p = f32[5,8,7] parameter(0)",
            "%k = f32[3,7,11] parameter(1)",
            "%r = f32[5,6,11] convolution(%p, %k), window={size=3 turned=1}, dim_labels=b0f_0io->b0f",
        )


def test_a_fusion_that_runs_beside_others_works_as_one_that_does_not():
    """Seen on H100. Its done does nothing more."""
    inner = """%doubled (a: f32[4,8]) -> f32[4,8] {
  %a = f32[4,8] parameter(0)
  ROOT %s = f32[4,8] add(%a, %a)
}"""
    lines = (
        "%p = f32[4,8] parameter(0)",
        "%s = ((f32[4,8]), f32[4,8], u32[]) fusion-start(%p), kind=kLoop, calls=%doubled",
        "%d = f32[4,8] fusion-done(%s)",
    )
    assert work(*lines, others=[inner], name="s") == Work(32, 2 * 128, 2 * 128)
    assert work(*lines, others=[inner], name="d") == Work()
