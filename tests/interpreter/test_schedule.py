# SPDX-License-Identifier: Apache-2.0
"""The schedule of a program against hand-worked figures, on hand-written texts and on compiled ones.

libtpu 0.0.52 compiled the programs in scheduled/ for v5e:2x4. They are without metadata and backend configurations.
"""

from pathlib import Path

import pytest

from meshmark.interpreter import schedule
from meshmark.interpreter.work import Work
from tests.interpreter.modules import text

SCHEDULED = "is_scheduled=true, num_partitions=8"
TEXTS = Path(__file__).parent / "scheduled"
DOT = "%d = f32[64,64] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
DONE_OF_DOT = Work(flops=2 * 64**3, nbytes=3 * 4 * 64**2, main_bytes=3 * 4 * 64**2)
P = "%p = f32[64,64] parameter(0)"
RING = "channel_id=1, source_target_pairs={{0,1},{1,0}}"
START = f"%s = (f32[64,64], f32[64,64]) collective-permute-start(%p), {RING}"
END = "%e = f32[64,64] collective-permute-done(%s)"


def pairs(*lines, others=(), header=SCHEDULED):
    return schedule.parse_schedule(text(*lines, others=others, header=header)).pairs


def stored(name):
    return (TEXTS / f"{name}.hlo").read_text(encoding="utf-8")


# Hand-written texts ------------------------------------------------------------------------------------------


def test_the_work_between_start_and_done_is_counted():
    (pair,) = pairs(P, START, DOT, END, "%r = f32[64,64] add(%d, %e)")
    assert (pair.kind, pair.start, pair.done, pair.trips) == ("collective-permute", "s", "e", 1)
    assert pair.between == DONE_OF_DOT
    assert not pair.synchronous
    assert pair.collective.nbytes == 4 * 64**2


@pytest.mark.parametrize(
    "lines",
    [
        (P, DOT, START, END, "%r = f32[64,64] add(%d, %e)"),  # the work stands before
        (P, START, END, DOT, "%r = f32[64,64] add(%d, %e)"),  # the work stands behind
        (P, START, "%b = f32[4096] bitcast(%p)", END, DOT, "%r = f32[64,64] add(%d, %e)"),  # no work
    ],
)
def test_a_pair_with_no_work_in_between_is_synchronous_after_all(lines):
    (pair,) = pairs(*lines)
    assert pair.synchronous
    assert pair.between == Work()


def test_what_the_compiler_calls_synchronous_is_so():
    config = ', backend_config={"collective_backend_config":{"is_sync":true,"backend":"DEFAULT"}}'
    (pair,) = pairs(P, START + config, DOT, END, "%r = f32[64,64] add(%d, %e)")
    assert pair.synchronous
    assert pair.between == DONE_OF_DOT


def test_other_communication_in_between_is_no_work():
    other = "%s2 = (f32[64,64], f32[64,64]) collective-permute-start(%p), channel_id=2, source_target_pairs={{0,1}}"
    (first, second) = pairs(
        P,
        START,
        other,
        "%g = f32[512,64] all-gather(%p), channel_id=3, replica_groups={}, dimensions={0}",
        END,
        DOT,
        "%e2 = f32[64,64] collective-permute-done(%s2)",
        "%r = f32[64,64] add(%d, %e)",
    )
    assert first.synchronous
    assert second.between == DONE_OF_DOT


WRAPPED = """%wrapped (q: f32[64,64]) -> f32[8,64] {
  %q = f32[64,64] parameter(0)
  ROOT %rs = f32[8,64] reduce-scatter(%q), channel_id=1, replica_groups={}, dimensions={0}, to_apply=%add.1
}

%add.1 (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(%a.1, %b.1)
}
"""


def test_a_wrapped_collective_is_followed_through_its_updates():
    (pair,) = pairs(
        P,
        "%s = ((f32[64,64]), f32[8,64], u32[]) async-start(%p), calls=%wrapped",
        DOT,
        "%u = ((f32[64,64]), f32[8,64], u32[]) async-update(%s)",
        "%t = f32[64,64] tanh(%d)",
        "%e = f32[8,64] async-done(%u)",
        others=[WRAPPED],
    )
    assert (pair.kind, pair.done) == ("reduce-scatter", "e")
    assert pair.collective.kind == "reduce-scatter"
    assert pair.collective.nbytes == 4 * 64**2
    assert pair.between == DONE_OF_DOT + Work(4096, 2 * 4 * 64**2, 2 * 4 * 64**2)


LOOP = f"""%body (x: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {{
  %x = (s32[], f32[64,64]) parameter(0)
  %i = s32[] get-tuple-element(%x), index=0
  %p = f32[64,64] get-tuple-element(%x), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  {START}
  {DOT}
  {END}
  ROOT %t = (s32[], f32[64,64]) tuple(%next, %e)
}}

%test (y: (s32[], f32[64,64])) -> pred[] {{
  %y = (s32[], f32[64,64]) parameter(0)
  %j = s32[] get-tuple-element(%y), index=0
  %end = s32[] constant(7)
  ROOT %less = pred[] compare(%j, %end), direction=LT
}}
"""
IN_LOOP = (
    "%z = s32[] constant(0)",
    "%a = f32[64,64] parameter(0)",
    "%t0 = (s32[], f32[64,64]) tuple(%z, %a)",
    "%w = (s32[], f32[64,64]) while(%t0), condition=%test, body=%body",
)


def test_a_pair_in_a_loop_runs_as_often_as_the_loop():
    read = schedule.parse_schedule(text(*IN_LOOP, others=[LOOP], header=SCHEDULED))
    (pair,) = read.pairs
    assert (pair.trips, pair.between) == (7, DONE_OF_DOT)
    assert read.loops == (7,)


def test_a_done_in_the_next_turn_is_not_between():
    crossing = LOOP.replace(f"  {END}\n", "").replace("%next, %e)", "%next, %d)")
    (pair,) = pairs(*IN_LOOP, others=[crossing])
    assert (pair.done, pair.between, pair.synchronous) == ("", None, False)


def test_a_loop_of_unknown_length_is_told():
    read = schedule.parse_schedule(text(*IN_LOOP, others=[LOOP.replace("=LT", "=NE")], header=SCHEDULED))
    assert read.loops == (None,)
    assert read.pairs[0].trips is None


def test_a_text_without_a_schedule_has_no_pairs():
    lines = (P, START, DOT, END)
    assert not schedule.parse_schedule(text(*lines)).scheduled
    assert pairs(*lines, header="num_partitions=8") == ()


SEND = (
    P,
    "%k = token[] after-all()",
    "%s = (f32[64,64], u32[], token[]) send(%p, %k), channel_id=1,"
    ' frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}',
    "%v = (f32[64,64], u32[], token[]) recv(%k), channel_id=1,"
    ' frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}',
    DOT,
    "%sd = token[] send-done(%s), channel_id=1",
    "%vd = (f32[64,64], token[]) recv-done(%v), channel_id=1",
)


def test_a_permute_that_became_send_and_receive_is_decomposed():
    read = schedule.parse_schedule(text(*SEND, header=SCHEDULED))
    assert read.decomposed == 1
    assert [(p.kind, p.collective and p.collective.kind, p.between) for p in read.pairs] == [
        ("send", "collective-permute", DONE_OF_DOT),
        ("recv", None, DONE_OF_DOT),
    ]


def test_the_ring_of_a_partitioned_product_is_decomposed():
    ring = LOOP.replace("%body ", "%windowed_dot_general_body_spmd ")
    lines = (*IN_LOOP[:3], IN_LOOP[3].replace("=%body", "=%windowed_dot_general_body_spmd"))
    assert schedule.parse_schedule(text(*lines, others=[ring], header=SCHEDULED)).decomposed == 1
    assert schedule.parse_schedule(text(*IN_LOOP, others=[LOOP], header=SCHEDULED)).decomposed == 0


def test_what_is_computed_again_is_counted():
    again = "%d.remat2 = f32[64,64] tanh(%p)"
    lines = (P, DOT, again, "%rematch = f32[64,64] add(%d.remat2, %d)")
    assert schedule.parse_schedule(text(*lines, header=SCHEDULED)).rematerialized == 1


def test_the_mark_of_the_partitioner_tells_what_it_inserted():
    line = "%{} = f32[512,64] all-gather(%p), channel_id={}, replica_groups={{}}, dimensions={{0}}"
    marked = line.format("r", 2) + ', frontend_attributes={is_spmd_generated="true"}'
    read = schedule.parse_schedule(text(P, line.format("g", 1), marked, header=SCHEDULED))
    assert (len(read.collectives), read.inserted) == (2, 1)


# Compiled texts ----------------------------------------------------------------------------------------------


def test_the_gather_of_attention_runs_beside_the_first_product():
    (pair,) = [p for p in schedule.parse_schedule(stored("attention")).pairs if p.kind != "copy"]
    product = 2 * 2 * 8 * 32 * 16 + 2 * 512  # with the scale and the maximum, fused with the gather's step
    softmax = 3 * 512  # minus the maximum, exponential, sum
    assert (pair.kind, pair.start, pair.done) == (
        "all-gather",
        "async-collective-start",
        "async-collective-done",
    )
    assert pair.between.flops == product + softmax
    turned = 2 * 4096  # a copy of the other gathered array
    assert pair.between.nbytes == turned + (1024 + 4096 + 64 + 2048) + (2048 + 64 + 64)
    assert pair.between.main_bytes == 0  # all of it is on the chip
    assert pair.collective.inserted


def test_the_permutes_of_ring_attention():
    found = [p for p in schedule.parse_schedule(stored("ring_attention")).pairs if p.kind != "copy"]
    assert [p.kind for p in found] == ["collective-permute"] * 6
    assert not any(p.synchronous for p in found)
    product = Work(2 * 2 * 8 * 8 * 16 + 2 * 128, 1024 + 1024 + 512 + 64, 0)
    assert [p.between for p in found[2:5]] == [product] * 3
    assert not any(p.collective.inserted for p in found)


def test_a_done_that_moved_behind_its_start_is_seen():
    """The planted fault of a scheduler that waits at once."""
    lines = stored("ring_attention").split("\n")
    done = next(line for line in lines if "%collective-permute-done.2 = " in line)
    lines.remove(done)
    start = next(i for i, line in enumerate(lines) if "%collective-permute-start.2 = " in line)
    lines.insert(start + 1, done)
    found = [p for p in schedule.parse_schedule("\n".join(lines)).pairs if p.kind != "copy"]
    assert [p.synchronous for p in found] == [False, False, True, False, False, False]


def test_a_step_that_moved_out_of_the_gather_is_seen():
    """The planted fault of a compiler that no longer fuses the product with the gather's step."""
    before = stored("attention")
    moved = before.replace(
        "multiply(%convolution-base-dilated.5.clone.3", "add(%convolution-base-dilated.5.clone.3"
    )
    assert moved != before
    plain = before.replace("convolution(%fusion.12.clone.3", "tanh(%fusion.12.clone.3")
    flops = [
        next(p.between.flops for p in schedule.parse_schedule(t).pairs if p.kind == "all-gather")
        for t in (before, moved, plain)
    ]
    assert flops[0] == flops[1] == flops[2] + 2 * 2 * 8 * 32 * 16 - 512


def test_the_loop_of_inference_has_its_turns():
    read = schedule.parse_schedule(stored("inference"))
    assert read.loops == (3,)
    assert [c.trips for c in read.collectives] == [3]
