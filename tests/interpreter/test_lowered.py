# SPDX-License-Identifier: Apache-2.0
"""The values of a lowered program, and the step at which the values of the compiled one differ from them."""

import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from meshmark.core import layout
from meshmark.core.hlo_types import Refused
from meshmark.interpreter import reader
from meshmark.judge import interpreted
from meshmark.judge.explaining import explain_module
from meshmark.judge.lowered import lowered
from meshmark.judge.programs import Program
from meshmark.operations import cases
from tests.interpreter.modules import run

MESH = 'num_partitions=4, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}'
TO_LOCAL, TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"


def call(name, shape, operand, target, dims, manual=r"\"x\", \"y\""):
    side = "in" if target == TO_LOCAL else "out"
    return (
        f'%{name} = {shape} custom-call(%{operand}), custom_call_target="{target}", frontend_attributes={{'
        rf'xla.sdy.{side}_shardings="#sdy.sharding_per_value<[<@mesh, [{dims}]>]>",'
        rf'xla.sdy.manual_axes="#sdy<manual_axes{{{manual}}}>"}}'
    )


GLOBAL = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
PARAMETER = "%p = f32[4,2] parameter(0)"
X, Y, NONE = r"{\"x\"}", r"{\"y\"}", "{}"


def test_a_manual_body_takes_the_blocks_of_its_devices():
    """Rows are cut by x, columns by y: device 3, at (1, 1), holds rows 2 and 3 of the last column."""
    local = call("l", "f32[2,1]", "p", TO_LOCAL, f"{X}, {Y}")
    [seen] = run(PARAMETER, local, arguments=[GLOBAL], header=MESH)
    assert seen[:, :, 0].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    body = f"{local}\n  %n = f32[2,1] negate(%l)"
    [whole] = run(
        PARAMETER, body, call("g", "f32[4,2]", "n", TO_GLOBAL, f"{X}, {Y}"), arguments=[GLOBAL], header=MESH
    )
    assert np.array_equal(whole, np.broadcast_to(-GLOBAL, (4, 4, 2)))
    # Put together with x and y swapped it is another array.
    [other] = run(
        PARAMETER, body, call("g", "f32[4,2]", "n", TO_GLOBAL, f"{Y}, {X}"), arguments=[GLOBAL], header=MESH
    )
    assert other[0].tolist() == [[0, -4], [-2, -6], [-1, -5], [-3, -7]]


def test_an_axis_that_stays_automatic_cuts_nothing():
    """Along x alone each device takes half of the rows, whatever the sharding says of y."""
    local = call("l", "f32[2,2]", "p", TO_LOCAL, f"{X}, {Y}", manual=r"\"x\"")
    [seen] = run(PARAMETER, local, arguments=[GLOBAL], header=MESH)
    assert np.array_equal(seen, GLOBAL.reshape(2, 2, 2)[[0, 0, 1, 1]])
    [whole] = run(
        PARAMETER,
        local,
        call("g", "f32[4,2]", "l", TO_GLOBAL, f"{X}, {NONE}", manual=r"\"x\""),
        arguments=[GLOBAL],
        header=MESH,
    )
    assert np.array_equal(whole, np.broadcast_to(GLOBAL, (4, 4, 2)))


@pytest.mark.parametrize(
    ("dims", "header", "named"),
    [
        (r"{\"x\":(1)2}, {}", MESH, "the sharding"),
        (f"{X}, {{}}", MESH.replace('"y"=2]', '"y"=2], device_ids=[3,2,1,0]'), "a mesh with device_ids"),
    ],
)
def test_a_sharding_of_another_form_is_refused(dims, header, named):
    with pytest.raises(Refused, match=named):
        run(PARAMETER, call("l", "f32[2,2]", "p", TO_LOCAL, dims), arguments=[GLOBAL], header=header)


# Where values part -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["auto", "manual"])
def made(request):
    """A sum over a sharded dimension: compiled for the devices here, and what the program says."""
    case = cases.find(f"psum/axes=y/{request.param}/2x4/float32/4KiB", 8)
    program = Program(case, tuple(jax.devices()))
    handed = program.lower()
    compiled = handed.compile()
    given = interpreted.given(program, compiled, 0)
    return SimpleNamespace(
        mesh=case.mesh,
        hlo=compiled.as_text(),
        arguments=interpreted.arguments(program, compiled, 0),
        parts=parts_of(program),
        says=lowered(handed.as_text(dialect="hlo", debug_info=True), 8, [array for array, _ in given]),
    )


def parts_of(program):
    expected, _ = interpreted.wanted(program.case.cell, 0, 0.0)
    sizes = program.case.mesh.sizes
    return [
        np.stack([whole[i] for i in layout.indices(result.shape, result.spec, sizes)]).astype(whole.dtype)
        for result, whole in zip(program.results, expected, strict=True)
    ]


def told(made, hlo):
    return explain_module(
        reader.parse_module(hlo), made.mesh, made.arguments, made.parts, (0,), {}, {}, made.says
    )


def test_a_right_program_parts_nowhere(made):
    lines = told(made, made.hlo)
    assert not made.says.refused
    assert lines[-1] == "In the end all 8 devices hold their part of result 0."
    assert not any("part from" in line for line in lines)


def test_wrong_groups_are_where_the_values_part(made):
    """The sum runs over pairs of neighbours instead of four: every device has another sum."""
    pairs = r"\1{{0,1},{2,3},{4,5},{6,7}}\2"
    wrong = re.sub(r"(all-reduce\(.*?replica_groups=).*?(, use_global)", pairs, made.hlo)
    assert wrong != made.hlo
    lines = told(made, wrong)
    assert lines[-2].startswith("In the end 8 of 8 devices hold something else than their part of result 0")
    step = next(line for line in lines if re.match(r"\d+\. all-reduce", line)).split(".")[0]
    said = lines[-1]
    assert said.startswith(f"The values first part from the program at step {step}, all-reduce "), said
    assert re.search(r", from jit\(psum\)/\S+, all_reduce\.py:\d+ in Psum\.(auto|manual)", said), said
    assert said.endswith(": 8 of 8 devices hold something else, first (x=0, y=0).")


def test_a_program_that_nothing_is_known_of_says_so(made):
    says = lowered("HloModule m\n\nENTRY main {\n  ROOT p = f32[] surprise()\n}\n", 8, [])
    wrong = made.hlo.replace("add(", "maximum(")
    lines = explain_module(
        reader.parse_module(wrong), made.mesh, made.arguments, made.parts, (0,), {}, {}, says
    )
    assert lines[-1].startswith("Where the values first part from the program is not known: ")
    assert "instruction surprise" in lines[-1]
    assert re.search(r"Result 0 is made at step \d+, all-reduce .*, all_reduce\.py:\d+", lines[-1])
