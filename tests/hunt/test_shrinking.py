# SPDX-License-Identifier: Apache-2.0
"""Shrinking keeps the signature and gives the operation that causes the difference."""

import json

import pytest

from meshmark.hunt import grouping, shrinking
from meshmark.hunt.generator import draw
from meshmark.hunt.rules import RULES, measure_weight
from meshmark.hunt.workers import Answer
from meshmark.program_data.program import Body, Input, Node, Program, from_json, list_problems, to_json
from tests.hunt.stubs import StubSlot

WRONG = {"mode": "auto", "kind": "numbers", "what": "values", "text": "", "data": {}}


class Judge(StubSlot):
    """Stands for a worker: a program is wrong where it has this operation."""

    def __init__(self, op):
        super().__init__()
        self.op, self.asked = op, 0

    def judge(self, program, modes):
        self.asked += 1
        return Answer([WRONG] if self.op in program.operations else [])


def test_what_is_left_is_the_operation():
    shrunk = 0
    for number in range(120):
        program = draw(11, number)
        tops = [n.op for n in program.nodes]
        if "lax.pad" not in tops or len(tops) < 3:
            continue
        found = shrinking.shrink(
            program, shrinking.Signature("auto", "numbers", ""), Judge("lax.pad"), WRONG, 20
        )
        assert [n.op for n in found.program.nodes] == ["lax.pad"]
        assert not found.program.transform.kind
        assert grouping.make_key(found.program, WRONG) == "numbers: lax.pad"
        shrunk += 1
        if shrunk == 3:
            return
    raise AssertionError("too few programs with a pad")


def test_a_body_is_taken_out():
    """What fails inside a loop fails alone."""
    row = Node("lax.slice", ({"v": 1}, [0], [1]))
    inputs = (Input((2, 2), "float32", (("x",), ())),)
    rows = Node("scan", ({"v": 1}, {"v": 0}), {}, (Body(2, (row,), (0, 2)),))
    program = Program(
        (("x", 2),), inputs, (Node("jnp.sum", ({"v": 0},)), rows, Node("item", ({"v": 2}, 1))), (3,), (None,)
    )
    found = shrinking.shrink(
        program, shrinking.Signature("auto", "numbers", ""), Judge("lax.slice"), WRONG, 20
    )
    assert found.program.operations == ["lax.slice"]


def test_a_known_group_is_not_made_smaller_any_more():
    pads = [
        n for n in range(120) if "lax.pad" in [m.op for m in draw(11, n).nodes] and len(draw(11, n).nodes) > 2
    ]
    signature = shrinking.Signature("auto", "numbers", "")
    alone, known = Judge("lax.pad"), Judge("lax.pad")
    small = shrinking.shrink(draw(11, pads[0]), signature, alone, WRONG, 20)
    early = shrinking.shrink(
        draw(11, pads[0]), signature, known, WRONG, 20, known={grouping.make_key(small.program, WRONG)}
    )
    assert grouping.make_key(early.program, WRONG) == grouping.make_key(small.program, WRONG)
    assert known.asked < alone.asked


def test_what_was_compiled_lightly_is_shrunk_so():
    asked = []

    class Light(StubSlot):
        def judge(self, job, modes):
            asked.append(job["light"])
            return Answer([WRONG] if "lax.pad" in from_json(job["program"]).operations else [])

    pad = next(p for p in (draw(11, n) for n in range(120)) if "lax.pad" in p.operations and len(p.nodes) > 1)
    shrinking.shrink(pad, shrinking.Signature.of(WRONG, "auto", light=True), Light(), WRONG, 20)
    assert asked and all(asked)


def test_another_kind_of_failure_is_not_taken():
    signature = shrinking.Signature.of({"kind": "crash", "what": "a.cc: Check failed"}, "auto")
    assert signature.matches({"kind": "crash", "what": "a.cc: Check failed"})
    assert not signature.matches({"kind": "crash", "what": "b.cc: Check failed"})
    assert not signature.matches(WRONG)


@pytest.mark.parametrize(
    ("what", "same", "other"),
    [
        ("a NaN is lost", "a NaN is lost", "values"),
        ("factor 8", "factor 2", "moved"),
        ("factor 10", "factor 4", "factor 0.5"),
        ("values", "zeros", None),
        ("factor 1.02", "values", None),
    ],
)
def test_wrong_numbers_that_name_a_cause_stay_of_that_kind(what, same, other):
    """Otherwise a smaller program may show another cause in the place of the one that was met."""
    signature = shrinking.Signature.of(WRONG | {"what": what}, "auto")
    assert signature.matches(WRONG | {"what": same})
    assert other is None or not signature.matches(WRONG | {"what": other})


def test_the_cause_that_was_met_is_shrunk_and_not_a_smaller_one_beside_it():
    """Planted: each slice loses a NaN, and each pad has other wrong values."""

    class Two(StubSlot):
        def judge(self, program, modes):
            kinds = {"lax.slice": "a NaN is lost", "lax.pad": "values"}
            return Answer([WRONG | {"what": kinds[op]} for op in program.operations if op in kinds])

    cut = Node("lax.slice", ({"v": 0}, [0, 0], [2, 1]))
    zero = {"call": "jnp.array", "kwargs": {"object": 0, "dtype": "float32"}}
    inputs = (Input((2, 2), "float32", (("x",), ())),)
    both = Program(
        (("x", 2),), inputs, (cut, Node("lax.pad", ({"v": 1}, zero, [[0, 0, 0], [0, 1, 0]]))), (2,), (None,)
    )
    met = WRONG | {"what": "a NaN is lost"}
    found = shrinking.shrink(both, shrinking.Signature.of(met, "auto"), Two(), met, 20)
    assert found.program.operations == ["lax.slice"]


def test_candidates_are_smaller_programs_that_jax_accepts():
    """Each rule gives programs in a right form; those that pass `valid` survive JSON."""
    seen = 0
    for number in range(25):
        program = draw(12, number)
        for rule in RULES:
            for candidate in rule(program):
                candidate = shrinking.fit_transform(candidate)
                if next(list_problems(candidate), None) or measure_weight(candidate) >= measure_weight(
                    program
                ):
                    continue
                seen += 1
                assert from_json(json.loads(json.dumps(to_json(candidate)))).name == candidate.name
    assert seen > 300


def test_convolutions_into_another_layout_and_of_several_features_are_groups_of_their_own():
    def key(numbers, inside=1):
        node = Node(
            "lax.conv_general_dilated",
            ({"v": 0}, {"v": 1}),
            {
                "window_strides": [1],
                "padding": "VALID",
                "dimension_numbers": numbers,
                "feature_group_count": 2,
            },
        )
        inputs = (
            Input((2 * inside, 1, 1), "float32", (("x",), (), ())),
            Input((inside, 2, 1), "float32", ((), (), ())),
        )
        return grouping.make_key(Program((("x", 2),), inputs, (node,), (2,), (None,)), {"kind": "numbers"})

    assert key(["CHN", "IOH", "CHN"]) == "numbers: lax.conv_general_dilated[groups]"
    assert key(["CHN", "IOH", "HNC"]) == "numbers: lax.conv_general_dilated[groups, relaid]"
    assert key(["CHN", "IOH", "CHN"], 2) == "numbers: lax.conv_general_dilated[groups of several]"


def test_a_slice_is_one_operation_in_both_spellings():
    """x[1::3] and lax.slice are one; x[::-1] and an index are others."""

    def key(*index):
        node = Node("getitem", ({"v": 0}, list(index)), {})
        program = Program((("x", 2),), (Input((4,), "float32", (("x",),)),), (node,), (1,), (None,))
        return grouping.make_key(program, {"kind": "numbers"})

    assert key({"slice": [1, None, 3]}) == key({"slice": [0, 2, None]}) == "numbers: lax.slice"
    assert key({"slice": [None, None, -1]}) == key(2) == "numbers: getitem"


def test_messages_that_differ_in_rank_or_axes_are_one():
    checks = [
        f"Check failed: tile assignment: devices={shape}<=[N,N]T(N,N)" for shape in ("[N,N,N]", "[N,N,N,N]")
    ]
    assert len({*map(grouping.normalize_message, checks)}) == 1
    told = [f"ManualAxisType(varying=frozenset({{{axes}}}))" for axes in ("'x'", "'y', 'z'")]
    assert len({*map(grouping.normalize_message, told)}) == 1
    assert grouping.normalize_message("devices=[N]") != grouping.normalize_message("devices=(N)")


def test_what_the_verifier_says_is_told_apart_by_the_instruction():
    """A transpose and a slice of another shape are two places in the compiler, and one message."""
    what = "INTERNAL: during context [hlo verifier]: Expected instruction to have shape equal to f32[2]:"
    keys = {
        grouping.describe_place(
            {"kind": "internal", "what": what, "text": f"{what}\n%a.{n} = f32[1]{{0}} {op}(%b), more"}
        )
        for n, op in enumerate(("slice", "transpose", "slice"))
    }
    assert len(keys) == 2


def test_what_a_copy_copies_tells_it_apart():
    """A copy stands behind any operation: a sort and a scatter behind it are two places."""
    what = "INTERNAL: during context [hlo verifier]: Expected instruction to have shape equal to f32[2]:"
    text = f"{what}\n%a.1 = f32[1]{{0}} copy(%NAME.7), more"
    told = {"kind": "internal", "what": what}
    keys = [
        grouping.describe_place(told | {"text": text.replace("NAME", name)})
        for name in ("sort", "scatter", "sort")
    ]
    assert keys[0] == keys[2] != keys[1] and keys[0].endswith("(copy of sort)")


def test_an_exception_without_a_word_is_known_by_its_operations():
    """A bare AssertionError of another operation is another root cause."""
    bare = {"kind": "internal", "what": "AssertionError:", "text": "AssertionError:"}
    one, other = (
        next(p for p in (draw(11, n) for n in range(99)) if op in p.operations)
        for op in ("lax.pad", "jnp.sum")
    )
    assert grouping.make_key(one, bare) != grouping.make_key(other, bare)
    assert "lax.pad" in grouping.make_raw_key(bare, one)
    assert grouping.make_key(one, bare | {"what": "AssertionError: x"}) == grouping.make_key(
        other, bare | {"what": "AssertionError: x"}
    )
