# SPDX-License-Identifier: Apache-2.0
"""Collectives in every syntax of groups, asynchronous pairs, loops and branches per device: by hand."""

import ml_dtypes
import numpy as np
import pytest

from meshmark.core.hlo_types import Refused
from meshmark.interpreter import control
from meshmark.interpreter.faults import Fault, Hang
from tests.interpreter.modules import ADD, each, run

GIVEN = each(1, 2, 4, 8, 16, 32, 64, 128)
P = "%p = f32[] parameter(0)"


def all_reduced(groups, others=", channel_id=1, use_global_device_ids=true", header="num_partitions=8"):
    line = f"%r = f32[] all-reduce(%p), replica_groups={groups}{others}, to_apply=%add.1"
    [result] = run(P, line, arguments=[GIVEN], others=[ADD], header=header)
    return result.tolist()


PAIRS = [17.0, 34.0, 68.0, 136.0] * 2  # 0 with 4, 1 with 5, ...
FOURS = [15.0] * 4 + [240.0] * 4


@pytest.mark.parametrize(
    ("groups", "sums"),
    [
        ("{}", [255.0] * 8),
        ("{{0,4},{1,5},{2,6},{3,7}}", PAIRS),
        ("[4,2]<=[2,4]T(1,0)", PAIRS),
        ("[2,4]<=[8]", FOURS),
        ("mesh['x'=2,'y'=4] {'x'}", PAIRS),
        ("mesh['x'=2,'y'=4] {'y'}", FOURS),
        ("mesh['x'=2,'y'=4] {'x','y'}", [255.0] * 8),
        ("mesh['x'=2,'y'=4] {'y':(2)2}", [3.0, 3.0, 12.0, 12.0, 48.0, 48.0, 192.0, 192.0]),
        (
            "mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'x'}",
            [3.0, 3.0, 12.0, 12.0, 48.0, 48.0, 192.0, 192.0],
        ),
        ("{{0,1,2},{3},{4,5,6,7}}", [7.0, 7.0, 7.0, 8.0, 240.0, 240.0, 240.0, 240.0]),
    ],
)
def test_every_syntax_of_groups(groups, sums):
    assert all_reduced(groups) == sums


@pytest.mark.parametrize(
    ("attributes", "groups", "sums"),
    [
        # Two replicas of four partitions; device = replica * 4 + partition.
        ("", "{{0,1}}", PAIRS),  # the replicas of each partition
        (", channel_id=1", "{{0},{1}}", FOURS),  # all partitions of the replicas
        (", channel_id=1, use_global_device_ids=true", "{{0,5},{1,4},{2,7},{3,6}}", None),
    ],
)
def test_what_groups_count(attributes, groups, sums):
    seen = all_reduced(groups, attributes, "replica_count=2, num_partitions=4")
    assert seen == (sums or [33.0, 18.0, 132.0, 72.0, 18.0, 33.0, 72.0, 132.0])


def test_a_sum_that_is_stated_as_bfloat16_is_rounded_once():
    """Seen on v5e:8x8. 256 + 1 + 1 is 258, which bfloat16 has; rounding between gives 256, since 257 is none of its."""
    given = each(256, 1, 1, 0, 0, 0, 0, 0)
    whole = "%r = bf16[] all-reduce(%p), replica_groups={}, channel_id=1, use_global_device_ids=true, to_apply=%add.1"
    [result] = run(P, whole, arguments=[given], others=[ADD])
    assert result.dtype == ml_dtypes.bfloat16 and result.astype(np.float32).tolist() == [258.0] * 8
    with pytest.raises(Refused, match="its result is"):  # no other type than a TPU's
        run(P, whole.replace("bf16", "f16"), arguments=[given], others=[ADD])


def test_ids_of_replicas_and_partitions():
    header = "replica_count=2, num_partitions=4"
    [seen] = run("%p = u32[] partition-id()", header=header)
    assert seen.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    [seen] = run("%p = u32[] replica-id()", header=header)
    assert seen.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_all_gather_keeps_the_order_of_the_group():
    [seen] = run(
        "%p = f32[1] parameter(0)",
        "%r = f32[2] all-gather(%p), channel_id=1, replica_groups={{4,0},{5,1},{2,6},{3,7}}, dimensions={0},"
        " use_global_device_ids=true",
        arguments=[GIVEN[:, None]],
    )
    assert seen.tolist() == [[16, 1], [32, 2], [4, 64], [8, 128], [16, 1], [32, 2], [4, 64], [8, 128]]


def test_reduce_scatter_gives_each_member_its_part():
    given = np.arange(16, dtype=np.float32).reshape(8, 2)
    [seen] = run(
        "%p = f32[2] parameter(0)",
        "%r = f32[1] reduce-scatter(%p), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, dimensions={0},"
        " use_global_device_ids=true, to_apply=%add.1",
        arguments=[given],
        others=[ADD],
    )
    assert seen[:, 0].tolist() == [2, 4, 10, 12, 18, 20, 26, 28]


def test_all_to_all_in_both_forms():
    given = np.arange(16, dtype=np.float32).reshape(8, 2)
    groups = "channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}"
    [seen] = run(
        "%p = f32[2] parameter(0)",
        f"%r = f32[2] all-to-all(%p), {groups}, dimensions={{0}}",
        arguments=[given],
    )
    assert seen[:4].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    first, second = run(
        "%a = f32[] parameter(0)",
        "%b = f32[] parameter(1)",
        f"%r = (f32[], f32[]) all-to-all(%a, %b), {groups}",
        arguments=[given[:, 0], given[:, 1]],
    )
    assert np.stack([first, second], 1)[:4].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_a_permute_gives_zeros_where_nothing_arrives():
    [seen] = run(
        P,
        "%s = (f32[], f32[], u32[], u32[]) collective-permute-start(%p), channel_id=1,"
        " source_target_pairs={{0,1},{1,0},{3,2}}",
        "%r = f32[] collective-permute-done(%s)",
        arguments=[GIVEN],
    )
    assert seen.tolist() == [2, 1, 8, 0, 0, 0, 0, 0]


def test_a_broadcast_takes_the_first_of_a_group():
    [seen] = run(
        P,
        "%r = f32[] collective-broadcast(%p), channel_id=1, replica_groups={{2,0,1},{7,6}}",
        arguments=[GIVEN],
    )
    assert seen.tolist() == [4, 4, 4, 0, 0, 0, 128, 128]


def test_ragged_rows_go_where_the_offsets_say():
    """Two devices. Device 0 sends row 0 to itself and rows 1 and 2 to device 1; device 1 sends row 0 to device 0."""
    given = np.array([[1, 2, 3], [7, 8, 9]], np.float32)
    [seen] = run(
        "%a = f32[3] parameter(0)",
        "%o = f32[3] parameter(1)",
        *(f"%n{i} = s32[2] parameter({i + 2})" for i in range(4)),
        "%r = f32[3] ragged-all-to-all(%a, %o, %n0, %n1, %n2, %n3), channel_id=1, replica_groups={{0,1}}",
        arguments=[
            given,
            np.full((2, 3), -1, np.float32),
            np.array([[0, 1], [0, 1]], np.int32),
            np.array([[1, 2], [1, 0]], np.int32),
            np.array([[0, 1], [2, 0]], np.int32),
            np.array([[1, 1], [2, 0]], np.int32),
        ],
        header="num_partitions=2",
    )
    assert seen.tolist() == [[1, -1, 7], [-1, 2, 3]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("all-reduce(%p), GLOBAL, replica_groups={{0,1},{1,2}}, to_apply=%add.1", "in two groups"),
        ("all-reduce(%p), GLOBAL, replica_groups={{0,9}}, to_apply=%add.1", "there is not"),
        ("all-reduce(%p), GLOBAL, replica_groups={{0,1}}, to_apply=%add.1", "nothing wrote"),
        ("collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{2,1}}", "receives twice"),
        ("collective-permute(%p), channel_id=1, source_target_pairs={{0,8}}", "there is not"),
    ],
)
def test_what_no_program_may_do_is_a_fault(line, said):
    line = line.replace("GLOBAL", "channel_id=1, use_global_device_ids=true")
    with pytest.raises(Fault, match=said):
        run(P, f"%r = f32[] {line}", arguments=[GIVEN], others=[ADD])


# Asynchronous pairs ------------------------------------------------------------------------------------------

GROUPS = "channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true"


@pytest.mark.parametrize(
    ("kind", "result", "attributes", "seen"),
    [
        ("all-reduce", 2, "use_global_device_ids=true, to_apply=%add.1", [5.0, 7.0]),
        ("all-gather", 4, "use_global_device_ids=true, dimensions={0}", [0.0, 1.0, 5.0, 6.0]),
        ("all-to-all", 2, "dimensions={0}", [0.0, 5.0]),
        ("reduce-scatter", 1, "use_global_device_ids=true, dimensions={0}, to_apply=%add.1", [5.0]),
    ],
)
def test_a_gpu_wraps_the_operands_of_a_start(kind, result, attributes, seen):
    """Seen on H100: the type of a start is ((operands), results), even of one operand."""
    lines = (
        "%p = f32[2] parameter(0)",
        f"%s = ((f32[2]), f32[{result}]) {kind}-start(%p), channel_id=1, replica_groups={{{{0,1}}}}, {attributes}",
        f"%d = f32[{result}] {kind}-done(%s)",
    )
    given = np.array([[0, 1], [5, 6]], np.float32)
    [found] = run(*lines, arguments=[given], others=[ADD], header="num_partitions=2")
    assert found[0].tolist() == seen
    early = (*lines[:2], f"%e = f32[{result}] get-tuple-element(%s), index=1", f"%r = f32[{result}] copy(%e)")
    with pytest.raises(Fault, match="before its done"):
        run(*early, arguments=[given], others=[ADD], header="num_partitions=2")


def test_a_permute_of_several_arrays():
    """Seen on H100: XLA joins permutes of the same pairs."""
    pairs = "channel_id=1, source_target_pairs={{0,1},{1,0}}"
    given = [np.array([[1], [2]], np.float32), np.array([[3], [4]], np.int32)]
    ask = ("%p = f32[1] parameter(0)", "%q = s32[1] parameter(1)")
    both = ("%a = f32[1] get-tuple-element(%d), index=0", "%b = s32[1] get-tuple-element(%d), index=1")
    last = "%t = (f32[1], s32[1]) tuple(%a, %b)"
    for lines in (
        (f"%d = (f32[1], s32[1]) collective-permute(%p, %q), {pairs}",),
        (
            f"%s = ((f32[1], s32[1]), (f32[1], s32[1])) collective-permute-start(%p, %q), {pairs}",
            "%d = (f32[1], s32[1]) collective-permute-done(%s)",
        ),
    ):
        found = run(*ask, *lines, *both, last, arguments=given, header="num_partitions=2")
        assert [part.ravel().tolist() for part in found] == [[2, 1], [4, 3]]


TWICE = """%twice (p.1: f32[]) -> f32[] {
  %p.1 = f32[] parameter(0)
  ROOT %sum.2 = f32[] add(%p.1, %p.1)
}"""


def test_a_start_of_any_instruction():
    """Seen on H100: a fusion that runs beside others is spelled fusion-start and fusion-done."""
    lines = (
        P,
        "%s = ((f32[]), f32[], u32[]) fusion-start(%p), kind=kLoop, calls=%twice",
        "%u = ((f32[]), f32[], u32[]) fusion-update(%s)",
    )
    [found] = run(*lines, "%d = f32[] fusion-done(%u)", arguments=[GIVEN], others=[TWICE])
    assert np.array_equal(found, 2 * GIVEN)
    early = "%e = f32[] get-tuple-element(%s), index=1"
    with pytest.raises(Fault, match="before its done"):
        run(*lines, early, "%r = f32[] copy(%e)", arguments=[GIVEN], others=[TWICE])
    with pytest.raises(Refused, match="fusion-start of type"):
        run(P, "%s = f32[] fusion-start(%p), kind=kLoop, calls=%twice", arguments=[GIVEN], others=[TWICE])


def test_pairs_of_start_and_done():
    [seen] = run(
        P,
        f"%s = f32[] all-reduce-start(%p), {GROUPS}, to_apply=%add.1",
        "%r = f32[] all-reduce-done(%s)",
        "%c = (f32[], f32[], u32[]) copy-start(%r)",
        "%d = f32[] copy-done(%c)",
        arguments=[GIVEN],
        others=[ADD],
    )
    assert seen.tolist() == [3, 3, 12, 12, 48, 48, 192, 192]


def test_the_wrapped_form():
    wrapped = f"""%wrapped (w: f32[]) -> f32[] {{
  %w = f32[] parameter(0)
  ROOT %inner = f32[] all-reduce(%w), {GROUPS}, to_apply=%add.1
}}
"""
    [seen] = run(
        P,
        "%s = ((f32[]), f32[], u32[]) async-start(%p), calls=%wrapped",
        "%u = ((f32[]), f32[], u32[]) async-update(%s)",
        "%r = f32[] async-done(%u)",
        arguments=[GIVEN],
        others=[ADD, wrapped],
    )
    assert seen.tolist() == [3, 3, 12, 12, 48, 48, 192, 192]


@pytest.mark.parametrize(
    "lines",
    [
        [
            "%c = (f32[], f32[], u32[]) copy-start(%p)",
            "%r = f32[] get-tuple-element(%c), index=0",
            "%n = f32[] negate(%r)",
        ],
        ["%c = (f32[], f32[], u32[]) copy-start(%p)", "%r = u32[] get-tuple-element(%c), index=2"],
        ["%t = (f32[], f32[], u32[]) tuple(%p, %p, %u)", "%r = f32[] copy-done(%t)"],
    ],
)
def test_reading_before_the_done_is_a_fault(lines):
    with pytest.raises(Fault):
        run(P, "%u = u32[] constant(0)", *lines, arguments=[GIVEN])


def test_a_move_that_a_tpu_splits():
    [seen] = run(
        "%p = f32[4] parameter(0)",
        "%s = ((f32[4]), f32[2], s32[]) slice-start(%p), slice={[1:3]}",
        "%r = f32[2] slice-done(%s)",
        "%b = bf16[2] copy(%r)",
        arguments=[np.arange(32, dtype=np.float32).reshape(8, 4) + 1 / 1024],
    )
    assert seen.astype(np.float32)[:2].tolist() == [[1, 2], [5, 6]]  # and rounded to bfloat16


def chain():
    """A TPU chain of fusions: a start, one step, a done."""

    def gather(name):
        return f'all-gather(%{name}), {GROUPS}, dimensions={{0}}, frontend_attributes={{chain_id="0"}}'

    start = f"""%start (s0: f32[1]) -> (f32[1], f32[2], u32[]) {{
  %s0 = f32[1] parameter(0)
  %g0 = f32[2] {gather("s0")}
  ROOT %c0 = (f32[1], f32[2], u32[]) custom-call(%g0), custom_call_target="AsyncCollectiveStart"
}}
"""
    steps = f"""%step (q0: f32[1], q1: f32[2], q2: u32[]) -> (f32[1], f32[2], u32[]) {{
  %q0 = f32[1] parameter(0)
  %q1 = f32[2] parameter(1)
  %q2 = u32[] parameter(2)
  %q3 = f32[2] {gather("q0")}
  ROOT %t = (f32[1], f32[2], u32[]) tuple(%q0, %q3, %q2)
}}
"""
    end = f"""%end (e0: f32[1], e1: f32[2], e2: u32[]) -> f32[2] {{
  %e0 = f32[1] parameter(0)
  %e1 = f32[2] parameter(1)
  %e3 = f32[2] {gather("e0")}
  %e2 = u32[] parameter(2)
  ROOT %d = f32[2] custom-call(%e0, %e1, %e3, %e2), custom_call_target="AsyncCollectiveDone"
}}
"""
    lines = [
        "%p = f32[1] parameter(0)",
        "%f0 = (f32[1], f32[2], u32[]) fusion(%p), kind=kCustom, calls=%start",
        *(
            f"%x{i} = {t} get-tuple-element(%f0), index={i}"
            for i, t in enumerate(("f32[1]", "f32[2]", "u32[]"))
        ),
        "%f1 = (f32[1], f32[2], u32[]) fusion(%x0, %x1, %x2), kind=kOutput, calls=%step",
        *(
            f"%y{i} = {t} get-tuple-element(%f1), index={i}"
            for i, t in enumerate(("f32[1]", "f32[2]", "u32[]"))
        ),
    ]
    return lines, [start, steps, end]


def test_a_chain_of_fusions_has_its_result_at_its_end():
    lines, others = chain()
    done = "%r = f32[2] fusion(%y0, %y1, %y2), kind=kCustom, calls=%end"
    [seen] = run(*lines, done, arguments=[GIVEN[:, None]], others=others)
    assert seen[:4].tolist() == [[1, 2], [1, 2], [4, 8], [4, 8]]
    for early in ("x1", "y1"):
        with pytest.raises(Fault, match="nothing wrote"):
            run(*lines, f"%r = f32[2] negate(%{early})", arguments=[GIVEN[:, None]], others=others)


# Loops and branches ------------------------------------------------------------------------------------------

STATE = "(s32[], f32[])"
LOOP = f"""%test (t: {STATE}) -> pred[] {{
  %t = {STATE} parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %zero = s32[] constant(0)
  ROOT %more = pred[] compare(%i, %zero), direction=GT
}}

%body (b: {STATE}) -> {STATE} {{
  %b = {STATE} parameter(0)
  %j = s32[] get-tuple-element(%b), index=0
  %x = f32[] get-tuple-element(%b), index=1
  %one = s32[] constant(1)
  %k = s32[] subtract(%j, %one)
  %y = f32[] BODY
  ROOT %n = {STATE} tuple(%k, %y)
}}
"""


def looped(body, trips):
    lines = [
        "%n0 = s32[] parameter(0)",
        "%p = f32[] parameter(1)",
        f"%t0 = {STATE} tuple(%n0, %p)",
        f"%w = {STATE} while(%t0), condition=%test, body=%body",
        "%r = f32[] get-tuple-element(%w), index=1",
    ]
    [seen] = run(
        *lines, arguments=[each(*trips, kind=np.int32), GIVEN], others=[ADD, LOOP.replace("BODY", body)]
    )
    return seen.tolist()


def test_each_device_has_its_own_number_of_trips():
    assert looped("add(%x, %x)", range(8)) == [n * 2.0**d for d, n in enumerate(GIVEN.tolist())]


def test_a_program_of_too_many_trips_is_not_judged(monkeypatch):
    monkeypatch.setattr(control, "MOST_TRIPS", 1000)
    assert looped("add(%x, %x)", [1000] * 8) == [np.inf] * 8
    for trips in ([1001] * 8, [0] * 7 + [10**9]):
        with pytest.raises(Refused, match="more than 1,000 trips"):
            looped("add(%x, %x)", trips)


def test_a_collective_in_a_loop_needs_all_of_its_group():
    reduced = f"all-reduce(%x), {GROUPS}, to_apply=%add.1"
    assert looped(reduced, [1, 1, 2, 2, 0, 0, 1, 1]) == [3, 3, 24, 24, 16, 32, 192, 192]
    with pytest.raises(Hang, match="waits for device 2"):
        looped(reduced, [1, 1, 1, 2, 0, 0, 1, 1])


@pytest.mark.parametrize("selector", ["s32", "pred"])
def test_each_device_takes_its_own_branch(selector):
    branches = "".join(
        f"%branch{i} (c{i}: f32[]) -> f32[] {{\n  %c{i} = f32[] parameter(0)\n  ROOT %o{i} = f32[] {code}\n}}\n"
        for i, code in enumerate((f"all-reduce(%c0), {GROUPS}, to_apply=%add.1", "negate(%c1)"))
    )
    which = each(0, 0, 1, 1, 0, 0, 1, 5, kind=np.int32)
    if selector == "pred":
        line = "conditional(%s, %p, %p), true_computation=%branch0, false_computation=%branch1"
        which = which == 0
    else:  # out of range takes the last one
        line = "conditional(%s, %p, %p), branch_computations={%branch0, %branch1}"
    lines = (f"%s = {selector}[] parameter(0)", "%p = f32[] parameter(1)", f"%r = f32[] {line}")
    [seen] = run(*lines, arguments=[which, GIVEN], others=[ADD, branches])
    assert seen.tolist() == [3, 3, -4, -8, 48, 48, -64, -128]
    which[1] = not which[1] if selector == "pred" else 1
    with pytest.raises(Hang):
        run(*lines, arguments=[which, GIVEN], others=[ADD, branches])


# What is not known ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("f32[] frobnicate(%p)", "instruction frobnicate"),
        ("f32[] negate(%p), wildly=true", "attribute wildly of negate"),
        ("f32[] send(%p)", "send between devices"),
        ('f32[] custom-call(%p), custom_call_target="Mystery"', "custom call Mystery"),
        ("f32[] all-reduce(%p), replica_groups=nobody, to_apply=%add.1", "replica_groups nobody"),
        ("f32[2] constant({...})", "a constant that the text leaves out"),
        ("f64[] negate(%p)", "this negate"),
        ("pred[] compare(%p, %p), direction=UP", "compare with direction UP"),
        ("f32[] convolution(%p, %p), dim_labels=bf_io->bf, window={colour=2}", "window with colour"),
        ("f32[] reduce-precision(%p), exponent_bits=3, mantissa_bits=3", "reduce-precision"),
    ],
)
def test_what_is_unknown_is_refused_by_its_name(line, name):
    with pytest.raises(Refused, match=name):
        run(P, f"%r = {line}", arguments=[GIVEN], others=[ADD])


ON_ANOTHER_CORE = """%negated (q: f32[]) -> f32[] {
  %q = f32[] parameter(0)
  ROOT %n = f32[] negate(%q)
}, execution_thread="sparsecore"
"""
CALL = (
    P,
    '%s = ((), (), (s32[1])) call-start(), async_execution_thread="sparsecore", to_apply=%negated',
    "%u = ((f32[]), f32[]) call-update(%s, %p)",
    "%d = f32[] call-done(%u)",
)


def test_a_call_that_gets_its_operands_from_an_update():
    """Seen on tpu7x, where another core of the chip does the collectives."""
    [result] = run(*CALL, arguments=[GIVEN], others=[ON_ANOTHER_CORE])
    assert np.array_equal(result, -GIVEN)
    with pytest.raises(Fault, match="a done without its start"):  # nothing was handed over
        run(*CALL[:2], "%d = f32[] call-done(%s)", arguments=[GIVEN], others=[ON_ANOTHER_CORE])
    with pytest.raises(Fault, match="before its done"):
        run(
            *CALL[:3],
            "%e = f32[] get-tuple-element(%u), index=1",
            "%f = f32[] negate(%e)",
            arguments=[GIVEN],
            others=[ON_ANOTHER_CORE],
        )
    whole = (P, "%s = ((f32[]), f32[], s32[]) call-start(%p), to_apply=%negated", "%d = f32[] call-done(%s)")
    [result] = run(*whole, arguments=[GIVEN], others=[ON_ANOTHER_CORE])
    assert np.array_equal(result, -GIVEN)
