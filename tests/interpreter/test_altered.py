# SPDX-License-Identifier: Apache-2.0
"""Attributes, opcodes and types of stored programs, altered at random: nothing unknown passes."""

import functools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from meshmark.interpreter.faults import Fault
from meshmark.interpreter.meanings import WITHOUT_MEANING
from tests.interpreter.modules import ADD, run, text
from tests.interpreter.planted import text as stored
from tests.interpreter.test_planted import PROGRAMS, judged

ANY = settings(max_examples=60, deadline=None)


@functools.cache
def lines(program):
    return stored(program).split("\n")


@functools.cache
def places(program):
    """(line, name, value) of each attribute of a program."""
    found = []
    for number, line in enumerate(lines(program)):
        if line.startswith("  "):
            instruction = Instruction.of(line)
            found += [
                (number, name, value)
                for name, value in instruction.attributes.items()
                if line.count(f", {name}={value}") == 1
            ]
    return found


def verdict(program, number, line):
    """The verdict of the program with another line."""
    return judged(program, "\n".join([*lines(program)[:number], line, *lines(program)[number + 1 :]]))[0]


@st.composite
def attributes(draw):
    program = draw(st.sampled_from(sorted(PROGRAMS)))
    return (program, *draw(st.sampled_from(places(program))))


UNKNOWN = {
    "another name": lambda name, value: f", {name}_x={value}",
    "more at the end": lambda name, value: f", {name}={value}~",
    "twice": lambda name, value: f", {name}={value}, {name}={value}",
    "one beside it": lambda name, value: f", {name}={value}, unheard_of=1",
    "nothing": lambda name, value: f", {name}=",
}


@ANY
@given(attributes(), st.sampled_from(sorted(UNKNOWN)))
def test_an_attribute_of_an_unknown_name_or_form_never_passes(place, change):
    program, number, name, value = place
    line = lines(program)[number].replace(f", {name}={value}", UNKNOWN[change](name, value))
    assert verdict(program, number, line) in ("not_run", "fail")


INDIFFERENT = {
    "channel_id": "only whether there is one has a meaning",
    "output_to_operand_aliasing": "memory that nothing reads again may be shared or not",
    "to_apply": "a program has the same sum under several names",
    "calls": "and the same fusion",
    "replica_groups": "names of axes have numbers in them",
    "iota_dimension": "the places that break ties between rows are not needed where there are none",
    "index": "the pivots and the permutation of a system that needs no exchange of rows are the same",
    "window": "a wider window with as much more padding is the same, where what pads changes nothing",
}
"""Attributes of which another number may be as good, and why."""


@ANY
@given(attributes(), st.data())
def test_another_number_in_an_attribute_is_another_program(place, data):
    program, number, name, value = place
    digits = list(re.finditer(r"\d+", value))
    if not digits or name in WITHOUT_MEANING or name in INDIFFERENT:
        return
    digit = data.draw(st.sampled_from(digits))
    other = int(digit[0]) + data.draw(st.sampled_from([1, 2, 7]))
    new = f"{value[: digit.start()]}{other}{value[digit.end() :]}"
    line = lines(program)[number].replace(f", {name}={value}", f", {name}={new}")
    assert verdict(program, number, line) != "pass", new


@ANY
@given(st.data())
def test_an_unknown_opcode_or_type_is_refused_wherever_it_stands(data):
    program = data.draw(st.sampled_from(sorted(PROGRAMS)))
    inside = [n for n, line in enumerate(lines(program)) if line.startswith("  ")]
    number = data.draw(st.sampled_from(inside))
    line = lines(program)[number]
    instruction = Instruction.of(line)
    opcode = f" {instruction.opcode}("
    if data.draw(st.booleans()):
        line = line.replace(opcode, f" un{opcode[1:]}", 1)
    else:
        line = re.sub(r"= (\(*)(\w+)\[", r"= \1q\2[", line, count=1)
    assert verdict(program, number, line) == "not_run"


# By hand -----------------------------------------------------------------------------------------------------

ONE = "num_partitions=1"
GIVEN = np.array([[[1.0, 2.0], [3.0, 4.0]]], np.float32)
P = "%p = f32[2,2]{1,0} parameter(0)"
NEGATED = "%n = f32[2,2]{1,0} negate(%p)"


@pytest.mark.parametrize(
    "header",
    ["num_partitions=1, wraps=true", "is_scheduled=maybe", "buffer_donor=all", "input_output_alias={0}"],
)
def test_an_unknown_attribute_of_the_module_is_refused(header):
    with pytest.raises(Refused):
        run(P, NEGATED, arguments=[GIVEN], header=header)


@pytest.mark.parametrize(
    "root",
    [
        "%n = f32[2,2]{1,0} slice(%p), slice={[0:2], [0:3]}",
        "%n = f32[2,2]{1,0} slice(%p), slice={[0:2]}",
        "%n = f32[2,2]{1,0} broadcast(%p)",
        "%n = f32[2,2]{1,0} transpose(%p), dimensions={0,0}",
        "%n = f32[2,2]{1,0} negate(%q)",
        "%n = pred[2,2]{1,0} compare(%p, %p), direction=EQ, type=UNSIGNED",
        "%p = f32[2,2]{1,0} negate(%p)",
        "%n = f32[2,2]{1,0} all-gather(%p), channel_id=1, replica_groups={{0}}, dimensions={0,1}",
        "%n = f32[2,2]{0,1} all-reduce(%p), channel_id=1, replica_groups={{0}}, to_apply=%add.1",
        "%n = f32[2,2]{1,0} convolution(%p, %p), dim_labels=b1_io->bf",
    ],
)
def test_what_is_no_whole_instruction_is_refused(root):
    with pytest.raises(Refused):
        run(P, root, arguments=[GIVEN], others=[ADD], header=ONE)


INNER = """%inner (a: f32[2,2]) -> f32[2,2] {
  %a = f32[2,2]LAYOUT parameter(0)
  ROOT %n = f32[2,2]{1,0} negate(%a)
}
"""
CALL = "%f = f32[2,2]{1,0} fusion(%p), kind=kLoop, calls=%inner"


@pytest.mark.parametrize(
    ("layout", "message"), [("{0,1}", r"is taken for f32\[2,2\]{0,1}"), ("{1,0:T(2,128)}", r"T\(2,128\)")]
)
def test_memory_that_is_taken_for_another_type_is_a_fault(layout, message):
    with pytest.raises(Fault, match=message):
        run(P, CALL, arguments=[GIVEN], others=[INNER.replace("LAYOUT", layout)], header=ONE)
    [found] = run(P, CALL, arguments=[GIVEN], others=[INNER.replace("LAYOUT", "{1,0}")], header=ONE)
    assert np.array_equal(found, -GIVEN)


def test_a_computation_that_is_called_with_too_many_operands_is_refused():
    with pytest.raises(Refused, match="2 operands for the 1 parameters of inner"):
        run(
            P,
            CALL.replace("(%p)", "(%p, %p)"),
            arguments=[GIVEN],
            others=[INNER.replace("LAYOUT", "")],
            header=ONE,
        )


IN_PLACE = """%inner (q: f32[2,2]) -> f32[2,2] {
  %q = f32[2,2]{1,0} parameter(0)
  ROOT %minus = f32[2,2]{1,0} negate(%q)
}
"""
SHARED = "output_to_operand_aliasing={{}: (0, {})}"


def test_an_operand_that_is_overwritten_may_not_be_read_again():
    call = f"%c = f32[2,2]{{1,0}} fusion(%p), kind=kLoop, {SHARED}, calls=%inner"
    [found] = run(P, call, arguments=[GIVEN], others=[IN_PLACE], header=ONE)
    assert np.array_equal(found, -GIVEN)
    with pytest.raises(Fault, match="nothing wrote"):
        run(P, call, "%s = f32[2,2]{1,0} add(%c, %p)", arguments=[GIVEN], others=[IN_PLACE], header=ONE)


def test_an_operand_that_is_handed_on_as_it_is_may_be_read_again():
    call = f'%c = f32[2,2]{{1,0}} custom-call(%p), custom_call_target="Sharding", {SHARED}'
    [found] = run(P, call, "%s = f32[2,2]{1,0} add(%c, %p)", arguments=[GIVEN], header=ONE)
    assert np.array_equal(found, 2 * GIVEN)


def test_two_roots_and_two_computations_of_a_name_are_refused():
    whole = text(P, NEGATED, header=ONE)
    with pytest.raises(Refused, match="two roots"):
        reader.parse_module(whole.replace("  %p =", "  ROOT %p ="))
    with pytest.raises(Refused, match="two computations"):
        reader.parse_module(whole + whole.split("\n", 2)[2])


LESS = """%less (a: s32[], b: s32[], c: s32[], d: s32[]) -> pred[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  %c = s32[] parameter(2)
  %d = s32[] parameter(3)
  ROOT %l = pred[] compare(%a, %b), direction=LT
}
"""


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("second", [[1, 0, 1, 0], [0, 1, 1, 0]])
def test_equal_elements_keep_their_order_in_a_stable_sort_alone(stable, second):
    """On each device, whether or not it holds what the first one holds: what all hold alike is sorted once."""
    sort = f"sort(%k, %i), dimensions={{0}}, {'is_stable=true, ' * stable}to_apply=%less"
    module = text(
        "%k = s32[4]{0} parameter(0)",
        "%i = s32[4]{0} iota(), iota_dimension=0",
        f"%s = (s32[4]{{0}}, s32[4]{{0}}) {sort}",
        others=[LESS],
        header="num_partitions=2",
    )
    keys, order = interpret(reader.parse_module(module), [np.array([[1, 0, 1, 0], second], np.int32)])
    assert keys.tolist() == [[0, 0, 1, 1]] * 2
    places = {True: [1, 3, 0, 2], False: [3, 1, 2, 0]}, {True: [0, 3, 1, 2], False: [3, 0, 2, 1]}
    assert order.tolist() == [places[0][stable], places[second[0] == 0][stable]]


@pytest.mark.parametrize(
    ("program", "old", "new"),
    [
        ("h100_triangular_solve", '"lower":true', '"lower":true,"upside_down":true'),
        ("h100_kernel_gradient", '"side_input_scale":0', '"side_input_scale":0,"tilted":1'),
        ("h100_cholesky", "{lower = true}", "{lower = true, upper = true}"),
    ],
)
def test_an_unknown_entry_in_the_configuration_of_a_library_call_is_refused(program, old, new):
    assert old in stored(program)
    assert judged(program, stored(program).replace(old, new))[0] == "not_run"


def test_indices_that_are_promised_to_be_sorted_and_are_not_are_refused():
    up = "%iota.5 = s32[32,1]{0,1:T(1,128)} iota(), iota_dimension=0"
    down = (
        up.replace("%iota.5", "%up")
        + "\n  %top = s32[]{:T(128)} constant(31)"
        + "\n  %tops = s32[32,1]{0,1:T(1,128)} broadcast(%top), dimensions={}"
        + "\n  %iota.5 = s32[32,1]{0,1:T(1,128)} subtract(%tops, %up)"
    )
    verdict, reason = judged("strided_set", stored("strided_set").replace(up, down))
    assert verdict == "not_run" and "promised to be sorted" in reason
