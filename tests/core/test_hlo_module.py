# SPDX-License-Identifier: Apache-2.0
"""The one reader of HLO text: lenient for counting, strict for interpreting."""

import pytest

from meshmark.core import contractions
from meshmark.core.hlo import collectives
from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_reader import read_module
from meshmark.core.hlo_types import Refused, parse_logical_type
from meshmark.interpreter import reader

TEXT = """HloModule m, is_scheduled=true, num_partitions=8

%body (b: (s32[], f32[8])) -> (s32[], f32[8]) {
  %b = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = f32[8] get-tuple-element(%b), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %sum = f32[8] all-reduce(%x), channel_id=1, replica_groups=[2,4]<=[8], to_apply=%plus
  ROOT %out = (s32[], f32[8]) tuple(%next, %sum)
}

%condition (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%c), index=0
  %stop = s32[] constant(7)
  ROOT %less = pred[] compare(%j, %stop), direction=LT
}

%plus (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %plus.1 = f32[] add(%l, %r)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %zero = s32[] constant(2)
  %start = (s32[], f32[8]) tuple(%zero, %p)
  %loop = (s32[], f32[8]) while(%start), condition=%condition, body=%body
  ROOT %result = f32[8]{0} get-tuple-element(%loop), index=1
}
"""


def test_a_loop_runs_its_body_from_its_start_to_its_stop():
    module = read_module(TEXT)
    assert module.runs("body") == (5, False)
    assert module.runs("condition") == (6, False)
    assert module.runs("plus") == (5, False)
    (found,) = collectives(TEXT)
    assert (found.kind, found.trips, found.reduction, found.nbytes) == ("all-reduce", 5, "add", 32)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("direction=LT", "direction=GT"),
        ("%stop = s32[] constant(7)", "%stop = s32[] parameter(1)"),
        ("ROOT %less = pred[] compare(%j, %stop)", "ROOT %less = pred[] compare(%stop, %j)"),
        ("%next = s32[] add(%i, %one)", "%next = s32[] multiply(%i, %one)"),
        ("tuple(%next, %sum)", "tuple(%i, %sum)"),
    ],
)
def test_a_loop_that_does_not_count_has_no_known_number_of_turns(right, wrong):
    assert right in TEXT
    assert read_module(TEXT.replace(right, wrong)).runs("body") == (None, False)


STRANGE = {
    "a line in a computation": ("%zero = s32[]", "!! strange\n  %zero = s32[]"),
    "a line outside": ("ENTRY", "!! strange\n\nENTRY"),
    "a layout": ("%p = f32[8]{0}", "%p = f32[8]{0:Q(4)}"),
    "an attribute": ("constant(2)", "constant(2), !strange"),
    "the header": ("is_scheduled=true", "is_scheduled"),
    "a second root": ("%zero = s32[]", "ROOT %zero = s32[]"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_counting_does_not_need_does_not_stop_it_and_is_refused_for_interpretation(what):
    right, wrong = STRANGE[what]
    assert right in TEXT
    text = TEXT.replace(right, wrong, 1)
    reader.parse_module(TEXT)
    assert [c.kind for c in collectives(text)] == ["all-reduce"]
    with pytest.raises(Refused):
        reader.parse_module(text)


def test_two_computations_of_a_name_are_refused_for_counting_too():
    text = TEXT.replace("ENTRY", "%body (l: f32[]) -> f32[] {\n  ROOT %l = f32[] parameter(0)\n}\n\nENTRY")
    for read in (collectives, reader.parse_module):
        with pytest.raises(Refused, match="two computations body"):
            read(text)


def test_a_text_that_ends_inside_a_computation_is_not_a_module():
    assert read_module(TEXT[:-3]).unfinished == "main"
    with pytest.raises(reader.NotHlo):
        reader.parse_module(TEXT[:-3])


def test_names_of_axes_may_have_brackets_and_commas():
    line = "%g = f32[8] all-gather(%p), replica_groups=mesh['x'=2,'a] {b,'=4] {'a] {b,'}, dimensions={0}"
    found = Instruction.of(line)
    assert found and found.attributes["dimensions"] == "{0}"
    assert not found.unread


def test_a_changed_instruction_leaves_the_first_one_alone():
    first = Instruction.of("  ROOT %f = (f32[8], f32[4]) fusion(%p, %q), kind=kLoop, calls=%c")
    assert first and first.calls == (("calls", "c"),)
    second = first.changed(opcode="fusion-start", shape=parse_logical_type("f32[4]"))
    assert (second.opcode, str(second.shape), second.operands) == ("fusion-start", "f32[4]", ("p", "q"))
    assert (first.opcode, str(first.shape)) == ("fusion", "(f32[8], f32[4])")


def test_a_module_over_more_partitions_is_the_same_program():
    module = read_module(TEXT)
    assert module.over(64).num_devices == 64
    assert module.num_devices == 8
    assert module.over(64).entry is module.entry


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f32[4,8]{1,0:T(8,128)S(1)}", "f32[4,8]"),
        ("f32[<=8]{0:Q(7)}", "f32[8]"),
        ("(f32[2]{0}, /*index=1*/(bf16[], token[]))", "(f32[2], (bf16[], token[]))"),
        ("()", "()"),
    ],
)
def test_a_logical_type_has_elements_and_dimensions_alone(text, said):
    assert str(parse_logical_type(text)) == said


def test_a_product_in_the_loop_counts_each_turn():
    product = "%sum = f32[8,8] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = TEXT.replace("%next =", "%y = f32[4,8] constant({...})\n  %next =")
    lines = [product if line.lstrip().startswith("%sum") else line for line in text.split("\n")]
    text = "\n".join(lines).replace(
        "f32[8] get-tuple-element(%b), index=1", "f32[8,4] get-tuple-element(%b), index=1"
    )
    assert contractions.flops(text) == 5 * 2 * 8 * 8 * 4
