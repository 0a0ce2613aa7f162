# SPDX-License-Identifier: Apache-2.0
"""Every fault of the catalogue is caught, and every program without one passes."""

from types import SimpleNamespace

import jax
import pytest

from meshmark.core.verdicts import BAD, worst
from meshmark.devices import chips
from meshmark.interpreter import reader
from meshmark.judge import interpreted
from meshmark.judge.programs import Program, sharding
from meshmark.operations import cases
from tests.interpreter import planted, planted_gpu
from tests.interpreter.planted import text, with_fault

PROGRAMS = planted.PROGRAMS | planted_gpu.PROGRAMS
FAULTS = planted.FAULTS + planted_gpu.FAULTS


def judged(program, hlo):
    """The verdict of a text in the place of what a case compiles to."""
    case = cases.find(PROGRAMS[program], 8)
    wanted = Program(case, tuple(jax.devices()))
    every = [True] * len(case.plan.arguments)
    memory = SimpleNamespace(argument_size_in_bytes=0, output_size_in_bytes=0, temp_size_in_bytes=0)
    compiled = SimpleNamespace(
        as_text=lambda: hlo,
        input_shardings=(every,),
        memory_analysis=lambda: memory,
        output_shardings=[sharding(wanted.mesh, result.spec) for result in wanted.results],
    )
    chip = chips.CHIPS["h100" if program in planted_gpu.PROGRAMS else "v5e"]
    lines = interpreted.judged(wanted, compiled, chips.factor_bits(chip), 0)
    return worst(line.verdict for line in lines), "; ".join(line.reason for line in lines)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_that_was_compiled_passes(program):
    assert judged(program, text(program)) == ("pass", "; ")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.program}: {f.what}")
def test_a_planted_fault_is_caught(fault):
    verdict, reason = judged(fault.program, with_fault(fault))
    assert verdict in BAD, reason


def test_every_kind_of_instruction_between_devices_has_a_fault():
    assert len({(f.program, f.what) for f in FAULTS}) == len(FAULTS) >= 40
    opcodes = {
        i.opcode
        for p in PROGRAMS
        for c in reader.parse_module(text(p)).computations.values()
        for i in c.instructions
    }
    between = {
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "collective-permute-start",
        "partition-id",
        # As a GPU has them.
        "all-reduce-start",
        "all-gather-start",
        "all-to-all-start",
        "fusion-start",
        "collective-broadcast",
        "ragged-all-to-all",
        "send",
        "recv",
    }
    assert between <= opcodes
