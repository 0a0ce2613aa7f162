# SPDX-License-Identifier: Apache-2.0
"""The reader against XLA's own parser, and texts that are not a module."""

import pytest

from meshmark.core.errors import BadInput
from meshmark.core.hlo_types import Refused
from meshmark.interpreter import reader
from tests.interpreter.planted import PROGRAMS, text


def described(module):
    """Everything of a module that changes values; channels have numbers of their own in XLA's print."""
    return {
        (c.name, i.name): (i.opcode, str(i.shape), i.operands, literal(i), i is c.root, kept(i))
        for c in module.computations.values()
        for i in c.instructions
    }


def literal(instruction):
    """The literal without spaces; XLA reads -0 and prints 0."""
    return "0" if instruction.literal == "-0" else instruction.literal.replace(" ", "")


def kept(instruction):
    return {name: value for name, value in instruction.attributes.items() if name != "channel_id"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_xla_reads_and_prints_again_is_the_same_module(program):
    hlo = pytest.importorskip("jaxlib._hlo")
    parsed = hlo.hlo_module_from_text(text(program))
    options = hlo.HloPrintOptions()
    options.print_metadata = False
    options.print_large_constants = True
    again = reader.parse_module(parsed.to_string(options))
    own = reader.parse_module(text(program))
    assert (again.partitions, again.replicas) == (own.partitions, own.replicas) == (8, 1)
    assert again.entry.name == own.entry.name
    assert described(again) == described(own)


@pytest.mark.parametrize(
    "broken", ["", "HloModule m\n", "nothing at all", text("psum").replace("ENTRY ", "")]
)
def test_what_is_no_module_is_bad_input(broken):
    with pytest.raises((BadInput, Refused)):
        reader.parse_module(broken)


def test_a_quoted_name_may_hold_anything():
    line = '%n = f32[] negate(%p), metadata={op_name="a, b={c} )(\\" d"}, backend_config={"x":[1,{"y":"}"}]}'
    hlo = f"HloModule m\n\nENTRY %main (p: f32[]) -> f32[] {{\n  %p = f32[] parameter(0)\n  ROOT {line}\n}}\n"
    negate = reader.parse_module(hlo).entry.root
    assert (negate.operands, dict(negate.attributes)) == (("p",), {})
    assert negate.backend_config == '{"x":[1,{"y":"}"}]}'
