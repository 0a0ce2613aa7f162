# SPDX-License-Identifier: Apache-2.0
"""The steps of stored programs in the output of `meshmark explain`."""

import jax
import numpy as np
import pytest

from meshmark.commands.main import main
from meshmark.core import layout
from meshmark.core.meshes import MeshShape
from meshmark.interpreter import reader
from meshmark.interpreter.sources import source
from meshmark.judge import explaining, interpreted
from meshmark.judge.explaining import explain_module, scheduled
from meshmark.judge.programs import Program
from meshmark.operations import cases
from tests.interpreter import modules, planted_gpu
from tests.interpreter.planted import FAULTS, PROGRAMS, text, with_fault

PSUM = "psum/axes=x+y/manual/2x4/float32/4KiB"


def told(program, hlo, devices=(0, 4)):
    case = cases.find((PROGRAMS | planted_gpu.PROGRAMS)[program], 8)
    made = Program(case, tuple(jax.devices()))
    arrays = interpreted.inputs(case.cell, 0)
    sizes = case.mesh.sizes
    arguments = [
        np.stack(layout.split(made.view(a, x), seen.spec, sizes))
        for a, seen, x in zip(case.plan.arguments, made.arguments, arrays, strict=True)
    ]
    expected, _ = interpreted.wanted(case.cell, 0, 0.0)
    parts = [
        np.stack([made.view(r, e)[i] for i in layout.indices(seen.shape, seen.spec, sizes)]).astype(e.dtype)
        for r, seen, e in zip(case.plan.results, made.results, expected, strict=True)
    ]
    return explain_module(reader.parse_module(hlo), case.mesh, arguments, parts, devices, {})


def test_collectives_are_named_by_mesh_coordinates():
    lines = told("shift_set", text("shift_set"))
    said = "\n".join(lines)
    assert "4 pairs: (x=1, y=0) to (x=0, y=0)" in said and "the partitioner put it there" in said
    assert "along x: 4 groups of 2" in said
    assert lines[-1] == "In the end all 8 devices hold their part of result 0."
    before = next(line for line in lines if "before (x=1, y=0)" in line).split(": ")[1:]
    after = next(line for line in lines if "after  (x=0, y=0)" in line).split(": ")[1:]
    assert before == after  # what device (1, 0) sends is what device (0, 0) gets


def test_a_send_between_devices_is_told_with_what_arrives():
    """The first device sends one micro-batch after the other; in the second turn its neighbour has received it."""
    lines = told("h100_pipeline", text("h100_pipeline"), (0, 1))
    sends = [i for i, line in enumerate(lines) if "send ppermute.3-send" in line]
    assert len(sends) == 2 and "trip 2" in lines[sends[1]]
    said = lines[sends[1] :]
    assert "7 pairs: (x=0, y=0) to (x=0, y=1), (x=0, y=1) to (x=0, y=2)" in "\n".join(said)
    sent = next(line for line in said if "before (x=0, y=0)" in line).split(": ", 1)[1]
    received = next(line for line in said if "after  (x=0, y=1)" in line).split(": ", 1)[1]
    assert sent == received and any(digit in sent.partition(": ")[2] for digit in "123")


def test_a_sum_is_along_its_axis_and_spelled():
    said = "\n".join(told("reduce_scatter", text("reduce_scatter")))
    assert "reduce-scatter reduce_scatter.7 (8 of 8 devices hold their part of result 0)" in said
    assert "along x: 4 groups of 2; the program spells it" in said


@pytest.mark.parametrize(
    ("program", "what", "ending"),
    [
        ("shift_set", "the halo is one row off", "In the end 4 of 8 devices hold something else"),
        ("ppermute", "a pair is lost", "In the end 1 of 8 devices hold something else"),
        ("data_parallel", "each its own number of steps", "here it ends: psum_invariant.11 waits for device"),
    ],
)
def test_a_fault_is_told_at_the_end(program, what, ending):
    fault = next(f for f in FAULTS if (f.program, f.what) == (program, what))
    assert told(program, with_fault(fault))[-1].startswith(ending)


def test_source_lines_in_both_forms():
    table = """HloModule m

FileNames
1 "/somewhere/layers.py"

FunctionNames
1 "Mlp.auto"

FileLocations
1 {file_name_id=1 function_name_id=1 line=40 end_line=40}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY %main (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %n = f32[] negate(%p), metadata={op_name="jit(f)/neg" stack_frame_id=1}
  ROOT %m = f32[] negate(%n), metadata={op_name="jit(f)/neg" source_file="/a/b.py" source_line=7}
}
"""
    module = reader.parse_module(table)
    first, second = (str(source(module, module.entry.by_name[name])) for name in ("n", "m"))
    assert (first, second) == ("jit(f)/neg, layers.py:40 in Mlp.auto", "jit(f)/neg, b.py:7")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([PSUM, "--devices", "one"], "not a list of positions"),
        (["psumm/axes=x/manual/8/float32/4KiB"], "psumm"),
        ([PSUM, "--topology", "v9:1"], "v9"),
        ([PSUM, "--text", "nowhere.hlo"], "the file does not exist"),
    ],
)
def test_bad_input_of_the_command(words, said, capsys):
    assert main(["explain", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1


P = "%p = f32[64,64] parameter(0)"
DOT = "%d = f32[64,64] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
RING = "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7},{7,0}}"
START = f"%s = (f32[64,64], f32[64,64]) collective-permute-start(%p), {RING}"
END = "%e = f32[64,64] collective-permute-done(%s)"
SUM = "%r = f32[64,64] add(%d, %e)"


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ((P, START, DOT, END, SUM), "until e there are 524,288 flop and 49,152 B of other work"),
        ((P, DOT, START, END, SUM), "synchronous after all: nothing is done before e"),
    ],
)
def test_the_schedule_stands_beside_the_start(order, said):
    """The same instructions in two orders: 2 * 64**3 flop and three blocks of 16 KiB, or nothing, in between."""
    hlo = modules.text(*order, header="is_scheduled=true, num_partitions=8")
    blocks = np.ones((8, 64, 64), np.float32)
    steps = explain_module(
        reader.parse_module(hlo), MeshShape((8,)), [blocks], [65 * blocks], (0,), {}, scheduled(hlo, 8)
    )
    start = next(i for i, line in enumerate(steps) if "collective-permute-start s" in line)
    assert said in steps[start + 1] and sum(said in line for line in steps) == 1
    assert steps[-1] == "In the end all 8 devices hold their part of result 0."


def test_a_text_without_a_schedule_says_nothing_of_it():
    assert scheduled(modules.text(P, START, DOT, END, SUM), 8) == {}


def test_a_program_that_does_not_compile_is_one_line(monkeypatch, capsys):
    def refuses(options):
        raise RuntimeError("UNIMPLEMENTED: no such instruction\nand more lines")

    monkeypatch.setattr(explaining, "lines_of", refuses)
    assert explaining.main(["psum/axes=x+y/manual/2x4/float32/4KiB"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert (
        len(told) == 1 and "can't be explained: RuntimeError: UNIMPLEMENTED: no such instruction" in told[0]
    )
