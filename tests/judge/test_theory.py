# SPDX-License-Identifier: Apache-2.0
"""The theory of each operation, and every check of a compiled program against it, without committed counters."""

from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from meshmark.core.hlo import Collective, collectives, wire_bytes
from meshmark.judge import communication, theory
from meshmark.judge.programs import Program
from meshmark.levels import counters
from meshmark.operations import cases
from meshmark.operations.base import Argument, Result, Traffic
from meshmark.operations.placements import moving

PSUM = "psum/axes=x+y/manual/2x4/{}/4KiB"
MATMUL = "matmul/rows=x,inner=y,check=exact/auto/2x4/float32/n64"
GRADIENT = "mlp_gradient/batch=x,model=y/manual/2x4/float32/n64"
ROWS, COLUMNS = ((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 4), (1, 5), (2, 6), (3, 7))


def compiled(case):
    return Program(case, tuple(jax.devices())).compile()


def edited(real, *, text=lambda text: text, flops=1.0, temp_bytes=0):
    """The compiled program, with other text and other figures."""
    cost, memory = dict(real.cost_analysis() or {}), real.memory_analysis()
    cost["flops"] = cost.get("flops", 0.0) * flops
    held = SimpleNamespace(temp_size_in_bytes=memory.temp_size_in_bytes + temp_bytes)
    return SimpleNamespace(
        as_text=lambda: text(real.as_text()),
        cost_analysis=lambda: cost,
        memory_analysis=lambda: held,
        output_shardings=real.output_shardings,
    )


# What is owed -----------------------------------------------------------------------------------------------


def test_the_theory_is_in_bytes_by_mesh_axes():
    found = theory.by_axes(cases.find(GRADIENT, 8))
    part = 16 * 64 * 4  # the rows of a device, and no less its block of either factor
    assert found == {"y": 3 * 1.5 * part, "x": 2 * 1.0 * part}
    assert theory.by_axes(cases.find(PSUM.format("float32"), 8)) == {"x+y": 1.75 * 4096}
    assert (
        theory.by_axes(cases.find("resharded/group=moves,here=x.y,there=y.x/auto/2x4/int32/n16", 8)) is None
    )


RESHARD = "reshard/from={},to={}/auto/2x4/float32/4KiB"
BLOCK = 1024 * 4
"""The bytes of a block of the resharded matrix, an eighth of it."""


@pytest.mark.parametrize(
    ("here", "there", "sent"),
    [
        ("x.y", "x.y", {}),
        ("x.-", "x.y", {}),
        ("-.-", "y.x", {}),
        ("x.y", "-.y", {"x": BLOCK}),
        ("x.y", "-.-", {"x+y": 7 * BLOCK}),
        ("x.-", "-.x", {"x": 2 * BLOCK}),
        ("xy.-", "yx.-", {"x+y": BLOCK}),
        ("xy.-", "-.y", {"x+y": 1.75 * BLOCK}),
    ],
)
def test_a_change_of_sharding_must_send_what_a_device_lacks(here, there, sent):
    """From the definition: the bytes of a device's new block that it did not hold before, over the axes along which the
    nearest holder differs."""
    assert theory.by_axes(cases.find(RESHARD.format(here, there), 8)) == sent


def test_a_move_is_owed_over_the_fewest_axes_and_once_for_all_results():
    mesh = {"x": 2, "y": 2}
    x = Argument((4, 4), "float32", ("x", None))
    row = Result((4, 4), "float32", (None, None))
    (one,) = moving.find_traffic(lambda a: (a, a), (x,), (row, row), mesh)
    assert (one.nbytes, one.groups) == (32, ((0, 2), (1, 3), (2, 0), (3, 1)))
    assert moving.find_connections(lambda a: a, (x,), (row,), mesh) == ()  # two positions hold each row
    constant = moving.find_traffic(lambda a: np.full_like(a, -1), (x,), (row,), mesh)
    assert constant == ()


def test_a_move_counts_each_argument_in_its_own_dtype():
    mesh = {"x": 2}
    wide, narrow = Argument((4,), "float32", ("x",)), Argument((4,), "int8", ("x",))
    whole = (Result((4,), "float32", (None,)), Result((4,), "int8", (None,)))
    (one,) = moving.find_traffic(lambda a, b: (a, b), (wide, narrow), whole, mesh)
    assert one.nbytes == 2 * 4 + 2 * 1


def test_a_gradient_owes_the_function_its_transpose_and_the_sum_over_the_other_axes():
    found = theory.by_axes(cases.find("flip_gradient/of=y.-,dim=0/manual/2x4/float32/4KiB", 8))
    whole = 8 * BLOCK
    assert found == {"y": 2 * 0.75 * whole, "x": whole / 4}


def test_a_tpu_may_send_whole_tiles():
    case = cases.find("named_axis/call=pmin,axis=y/manual/2x4/float32/64B", 8)
    plain = theory.limit(case)
    assert plain == 2 * 1.5 * (8 * 8 * 12) * 4
    assert theory.limit(case, "tpu") == plain * 128 / 12
    whole = cases.find("flip_gradient/of=y.-,dim=0/manual/2x4/float32/4KiB", 8)
    assert theory.limit(whole, "tpu") == theory.limit(whole), "its blocks are whole tiles"


def test_axes_are_those_along_which_positions_differ():
    mesh = cases.find(MATMUL, 8).mesh
    assert theory.axes_between((0, 1), mesh) == {"y"}
    assert theory.axes_between((0, 4), mesh) == {"x"}
    assert theory.axes_between((0, 5), mesh) == {"x", "y"}
    assert theory.axes_between((3,), mesh) == set()
    assert theory.needed_axes(cases.find(MATMUL, 8)) == {"y"}


@pytest.mark.parametrize("name", [MATMUL, GRADIENT, PSUM.format("float32"), PSUM.format("bfloat16")])
def test_right_programs_pass_and_say_their_theory(name):
    case = cases.find(name, 8)
    line = communication.communication(case, compiled(case))
    assert line.verdict == "pass", line.reason
    assert line.data["theory"] == theory.by_axes(case)
    assert line.data["wire_bytes"] <= theory.MOST_SENT * 2 * sum(line.data["theory"].values())


# Bytes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "hlo", "growth", "good"),
    [
        ("float32", "f32", 1, True),
        ("float32", "f32", 2, False),
        ("float32", "f32", 4, False),
        ("float32", "f64", 2, False),
        ("int32", "s32", 2, False),
        ("bfloat16", "f32", 2, True),
        ("bfloat16", "bf16", 2, False),
        ("bfloat16", "f32", 4, False),
        ("int8", "s32", 4, True),
        ("int8", "s32", 2, False),
    ],
)
def test_only_a_narrow_type_may_grow_and_only_by_its_wider_type(dtype, hlo, growth, good):
    case = cases.find(PSUM.format(dtype), 8)
    group = (tuple(range(8)),)
    found = [Collective("all-reduce", 4096 * growth, hlo, group, ())]
    spelled = communication.traffic_difference(found, case.plan.traffic, {}, communication.itemsize_of(case))
    assert (spelled == "") is good


def test_a_narrow_array_that_moves_in_32_bits_is_told_only_where_nothing_else_differs():
    owed = [Traffic("all-gather", 4096, ROWS, 2), Traffic("all-to-all", 1024, ROWS, 2)]
    doubled = [
        Collective("all-gather", 8192, "f32", ROWS, ()),
        Collective("all-to-all", 1024, "bf16", ROWS, ()),
    ]
    told = "moved in 32 bits, twice the bytes, and nothing else differs"
    assert communication.traffic_difference(doubled, owed, {}, 2).endswith(told)
    for wrong in (
        [doubled[0]],  # one is lost
        [*doubled, Collective("all-reduce", 64, "f32", ROWS, ())],  # one more
        [replace(doubled[0], nbytes=16384), doubled[1]],  # four times the bytes
        [replace(doubled[0], dtype="bf16"), doubled[1]],  # twice the bytes of the narrow type itself
        [replace(doubled[0], groups=COLUMNS), doubled[1]],  # the other axis
    ):
        reason = communication.traffic_difference(wrong, owed, {}, 2)
        assert reason and told not in reason


@pytest.mark.parametrize(
    ("itemsize", "dtype", "growth", "told"),
    [
        (1, "f16", 2, "moved in 16 bits, twice the bytes, and nothing else differs"),
        (1, "f32", 4, "moved in 32 bits, four times the bytes, and nothing else differs"),
        (1, "f16", 4, "moved in 16 bits"),  # four times the bytes in a type of twice the width
        (1, "f8e4m3fn", 2, "moved in 8 bits"),
        (2, "f64", 4, "moved in 64 bits"),
        (4, "f64", 2, "moved in 64 bits"),
    ],
)
def test_the_width_in_which_an_array_moves_is_told_and_excused_only_with_its_own_bytes(
    itemsize, dtype, growth, told
):
    owed = [Traffic("all-gather", 4096, ROWS, itemsize)]
    moved = [Collective("all-gather", 4096 * growth, dtype, ROWS, ())]
    assert communication.traffic_difference(moved, owed, {}, itemsize).endswith(told)


def test_what_is_summed_in_a_wide_type_already_does_not_grow():
    """A product of bfloat16 that is kept in float32 owes float32, and no more."""
    owed = [Traffic("all-reduce", 4096, ROWS, 4)]
    for growth, good in ((1, True), (2, False)):
        found = [Collective("all-reduce", 4096 * growth, "f32", ROWS, ())]
        assert (communication.traffic_difference(found, owed, {}, 2) == "") is good


def test_a_gradient_may_send_its_theory_with_a_factor():
    case = cases.find(GRADIENT, 8)
    limit = theory.MOST_SENT * sum(theory.by_axes(case).values())
    assert theory.overrun(limit, case) == ""
    assert "and the theory with a factor of 2 is" in theory.overrun(limit + 1, case)


@pytest.mark.parametrize("grown", [False, True])
def test_a_new_release_may_send_no_more_than_the_newest_with_counters(grown):
    case = cases.find(MATMUL, 8)
    program = compiled(case)
    now = sum(map(wire_bytes, collectives(program.as_text(), 8)))
    before = "1 all-reduce 8192B 2x4" if not grown else "1 all-reduce 8188B 2x4"
    assert counters.sent_bytes("1 all-reduce 8192B 2x4") == now
    line = communication.communication(case, program, None, ("0.12.0.1", before))
    assert (line.verdict == "fail") is grown
    assert ("with JAX 0.12.0.1 it sent 12282 B" in line.reason) is grown


GROWN = {
    ("0.11.2", "0.12.0.1"): {
        "all_gather_gradient/*/manual-novma/*": "0.11.2 sent nothing, and its numbers were wrong (a known issue)",
    },
    ("0.10.2", "0.11.2"): {
        "transformed/transform=custom_vjp,group=collectives,*/explicit/*": "an all-to-all became an all-gather",
        "transformed/transform=scan_vjp,group=collectives,*/auto/*": "an all-to-all became an all-gather",
        "transformed/transform=vmap_vjp,group=collectives,*/explicit/*": "an all-to-all became an all-gather",
    },
}
"""What releases send more than the one before, as patterns of case ids with the reason: docs/findings.md tells them."""


def test_no_committed_counters_grow_from_one_release_to_the_next():
    files = sorted(counters.files(), key=lambda path: path.name)
    seen, needed = 0, set()
    for path in files:
        jax_version, backend, devices = path.stem.rsplit("-", 2)
        older = counters.newest_before(jax_version, backend, devices)
        if older is None:
            continue
        was = counters.load(older, backend, devices)
        for case, text in counters.read_counters(path).items():
            if case in was:
                seen += 1
                grown = counters.sent_bytes(text) > counters.sent_bytes(was[case])
                listed = [p for p in GROWN.get((older, jax_version), {}) if fnmatchcase(case, p)]
                assert listed or not grown, case
                needed.update(listed if grown else ())
    assert seen > 5000
    assert needed == {pattern for patterns in GROWN.values() for pattern in patterns}, (
        "a row that no case needs"
    )


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("none", 0),
        ("1 all-reduce 4096B 1x8", 7168),
        ("2 all-gather 4096B 2x4 x3; 1 collective-permute 64B 8 pairs", 2 * 3 * 3072 + 64),
    ],
)
def test_counters_say_the_bytes(text, sent):
    assert counters.sent_bytes(text) == sent
    with pytest.raises(ValueError, match="is not a counted collective"):
        counters.sent_bytes(text + "; nonsense")


# Groups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "groups", "good"),
    [(MATMUL, ROWS, True), (MATMUL, COLUMNS, False), (GRADIENT, COLUMNS, True)],
)
def test_collectives_run_over_the_axes_that_the_computation_needs(name, groups, good):
    case = cases.find(name, 8)
    found = [Collective("all-reduce", 64, "f32", groups, ())]
    assert (theory.stray(found, case) == "") is good


def test_a_permutation_may_use_every_axis_that_it_names():
    case = cases.find("ppermute/axes=z+y,perm=cycles/auto/2x2x2/float32/4KiB", 8)
    assert theory.needed_axes(case) == {"y", "z"}


def test_every_mode_is_checked_for_its_groups():
    case = cases.find(MATMUL, 8)

    def more(text):
        line = next(line for line in text.splitlines() if " all-reduce(" in line)
        name = line.split(" = ")[0].strip().removeprefix("ROOT ")
        other = line.replace("ROOT ", "").replace(name, f"{name}.again", 1)
        other = other.split("replica_groups=")[0] + "replica_groups={{0,4},{1,5},{2,6},{3,7}}"
        return text.replace(line, f"{other}\n{line}", 1)

    line = communication.communication(case, edited(compiled(case), text=more))
    assert (
        line.verdict == "fail"
        and "all-reduce over x, and the computation exchanges data over y alone" in line.reason
    )


# Told by name -----------------------------------------------------------------------------------------------


def test_a_gather_of_all_of_a_sharded_argument_is_told():
    case = cases.find("ppermute/axes=x+y,perm=cycles/auto/2x4/float32/4KiB", 8)
    line = communication.communication(case, compiled(case))
    assert line.verdict == "pass"
    assert line.data["told"] == [
        "gathers all of argument 0 (32768 B) on each device, and the theory needs none"
    ]


def test_a_gather_that_the_theory_needs_is_not_told():
    for name in (
        "all_gather/axes=x+y,dim=0,tiled/auto/2x4/float32/4KiB",
        "reshard/from=xy.-,to=-.-/auto/2x4/float32/4KiB",
    ):
        case = cases.find(name, 8)
        assert "told" not in communication.communication(case, compiled(case)).data


def test_the_compilers_own_words_are_told():
    case = cases.find("reshard/from=xy.-,to=-.x/auto/2x4/float32/4KiB", 8)
    words = f"W spmd_partitioner.cc:666] [SPMD] {theory.REMATERIALIZED}. The compiler cannot go from"
    line = communication.communication(case, compiled(case), words=words)
    assert line.verdict == "pass"
    assert f"the compiler says: {theory.REMATERIALIZED} (1 times)" in line.data["told"]


# Work and memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [MATMUL, PSUM.format("float32"), MATMUL.replace("auto", "manual")])
def test_a_thousandfold_of_operations_or_memory_is_no_pass(name):
    case, million = cases.find(name, 8), 1 << 23
    real = compiled(case)
    assert communication.communication(case, edited(real)).verdict == "pass"
    heavy = communication.communication(case, edited(real, flops=1000.0))
    assert heavy.verdict == "fail" and "operations on a device, and the plan allows" in heavy.reason
    large = communication.communication(case, edited(real, temp_bytes=million))
    assert large.verdict == "fail" and "B for temporaries on a device" in large.reason


def test_scratch_memory_of_a_library_is_not_the_programs_own():
    case, workspace = cases.find(PSUM.format("float32"), 8), 32 << 20
    real = compiled(case)
    call = (
        f"\n  %g = (f32[4,4]{{1,0}}, s8[{workspace}]{{0}}) custom-call(%a, %b),"
        ' custom_call_target="__cublas$gemm"\n}'
    )

    def judged(temp_bytes):
        program = edited(
            real, text=lambda text: text.rstrip().removesuffix("}") + call, temp_bytes=temp_bytes
        )
        return communication.communication(case, program)

    line = judged(workspace)
    assert line.verdict == "pass" and line.data["workspace_bytes"] == workspace
    assert "B for temporaries on a device" in judged(workspace + (8 << 20)).reason


def test_contractions_are_held_to_the_share_of_a_device():
    case = cases.find(MATMUL.replace("auto", "manual"), 8)
    text = compiled(case).as_text()
    assert theory.overwork(case, text, None, None, manual=True) == ""
    dot = next(line for line in text.splitlines() if " dot(" in line)
    copies = "".join(dot.replace("ROOT ", "").replace(" = ", f".{i} = ", 1) + "\n" for i in range(2))
    more = theory.overwork(case, text.replace(dot, copies + dot, 1), None, None, manual=True)
    assert "contractions of" in more


def test_devices_that_compute_the_same_are_counted_as_one():
    case = cases.find(MATMUL, 8)
    plan = case.plan
    alone = SimpleNamespace(
        plan=replace(plan, arguments=tuple(replace(a, spec=(None, None)) for a in plan.arguments)),
        mesh=case.mesh,
    )
    assert theory.copies(case) == 1 and theory.copies(alone) == 4  # the result is sharded over x alone


def test_a_transformation_keeps_the_kinds_that_its_plan_names():
    """An exchange that is made of gathers lacks the kind that manual mode spells."""
    case = cases.find(
        "transformed/transform=scan,group=collectives,axes=x/manual-novma/2x4/float32/64B", num_devices=8
    )
    assert case.plan.kinds == ("collective-permute", "all-to-all")
    pair = Collective("collective-permute", 64, "f32", (), ((0, 1), (1, 0)))
    gather = Collective("all-gather", 64, "f32", ((0, 1),), ())
    exchange = Collective("all-to-all", 64, "f32", ((0, 1),), ())
    assert communication.missing_kind([pair, exchange], case.plan.kinds) == ""
    assert "has no all-to-all" in communication.missing_kind([pair, gather], case.plan.kinds)


# What waits for the host ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        '%c = f32[2] custom-call(%x), custom_call_target="xla_ffi_python_cpu_callback"',
        "%o = token[] outfeed(%x, %t), outfeed_shape=f32[2]",
        "%s = (f32[2], u32[], token[]) send(%x, %t), channel_id=1, is_host_transfer=true",
    ],
)
def test_a_program_that_waits_for_the_host_is_no_pass(line):
    case = cases.find(PSUM.format("float32"), 8)
    program = edited(compiled(case), text=lambda text: f"{text}\n  {line}\n")
    found = communication.communication(case, program)
    assert found.verdict == "fail" and "asks the host" in found.reason


def test_an_operation_that_calls_the_host_may_wait_for_it():
    case = cases.find("transform/transform=pure_callback,axes=x/manual/2x4/float32/4KiB", 8)
    program = compiled(case)
    assert "callback" in program.as_text()
    assert communication.communication(case, program).verdict == "pass"
