# SPDX-License-Identifier: Apache-2.0
"""Costs are those of the compiled program: flops of its contractions, and S times f of its collectives."""

import jax
import numpy as np
import pytest

from meshmark.core import contractions
from meshmark.core.hlo import collectives, wire_bytes
from meshmark.core.meshes import parse_mesh
from meshmark.judge.programs import Program
from meshmark.operations import OPERATIONS
from meshmark.operations.base import Request
from meshmark.operations.cases import Case, Cell
from meshmark.operations.collective_base import tiled_block
from meshmark.operations.collectives.permutations import RaggedAllToAll

MESH = parse_mesh("2x4")


def ordinary(operation, size=""):
    """The ordinary cases of an operation on a mesh of 2x4, one for each variant that has manual mode."""
    size = size or next(iter(operation.sizes))
    for variant in operation.variants(MESH):
        if variant.weight or variant.capability or operation.absent("manual", variant, MESH):
            continue
        yield Case(Cell(operation, Request(variant, MESH, operation.dtypes[0], size), 0), "manual")


def compiled(case):
    return Program(case, tuple(jax.devices()[: case.mesh.size])).compile().as_text()


COUNTED = [c for o in OPERATIONS.values() for c in ordinary(o) if c.plan.cost.flops]
MOVED = [c for o in OPERATIONS.values() for c in ordinary(o, "64KiB") if c.plan.cost.factor]


def excess_flops(case, text):
    """The compiled operations of all devices over the model's."""
    return contractions.flops(text) * case.mesh.size / case.plan.cost.flops


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case.id)
def test_flops_are_those_of_the_compiled_contractions(case):
    assert excess_flops(case, compiled(case)) == 1


def test_every_operation_with_contractions_says_so():
    """An operation whose cost has no flops compiles to none."""
    for operation in OPERATIONS.values():
        for case in ordinary(operation):
            if not case.plan.cost.flops and operation.family in (
                "collectives",
                "layers",
                "training",
                "programs",
            ):
                assert contractions.flops(compiled(case)) == 0, case.id


@pytest.mark.parametrize("case", MOVED, ids=lambda case: case.id)
def test_s_times_f_is_what_the_compiled_collectives_send(case):
    cost = case.plan.cost
    assert cost.nbytes * cost.factor == sum(map(wire_bytes, collectives(compiled(case), MESH.size)))


@pytest.mark.parametrize("n", [2, 3, 6, 8])
def test_the_ragged_exchange_counts_the_rows_that_leave_the_busiest_member(n):
    """Counted from its reference: no compiled program shows how many rows move."""
    mesh, operation = parse_mesh(str(n)), OPERATIONS["ragged_all_to_all"]
    variant = next(iter(operation.variants(mesh)))
    cell = Cell(operation, Request(variant, mesh, "float32", "4KiB"), 0)
    operand, output, *tables = cell.arguments(0)
    _, send, *_ = tables
    rows = [sum(int(send[i, j]) for j in range(n) if j != i) for i in range(n)]
    cost = cell.plan.cost
    assert cost.nbytes * cost.factor == max(rows) * operand.shape[1] * 4
    sources = np.repeat(np.arange(n), len(operand) // n)[:, None] * np.ones_like(operand)
    options = {k: cell.plan.options[k] for k in ("sizes", "axes", "in_spec")}
    landed = RaggedAllToAll.reference(sources, np.full_like(output, -1), *tables, **options)
    came = [int(((part[:, 0] >= 0) & (part[:, 0] != i)).sum()) for i, part in enumerate(np.split(landed, n))]
    assert sum(came) == sum(rows)


# Faults that the tests above must catch -----------------------------------------------------------------------


def test_a_contraction_too_many_is_seen():
    case = next(c for c in COUNTED if c.operation.name == "mlp_gradient")
    text = compiled(case)
    dot = next(line for line in text.splitlines() if " dot(" in line)
    again = dot.replace("ROOT ", "").replace(" = ", ".again = ", 1)
    assert excess_flops(case, text.replace(dot, f"{again}\n{dot}", 1)) > 1


def test_a_loop_multiplies_its_contractions():
    x = jax.numpy.ones((4, 4))
    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 7, lambda _, y: y @ x, x)).lower(x).compile().as_text()
    assert contractions.flops(looped) == 7 * 2 * 4**3


def test_complex_numbers_and_convolutions_count():
    a, b = (jax.numpy.ones((3, 5), "complex64"), jax.numpy.ones((5, 2), "complex64"))
    assert contractions.flops(jax.jit(lambda a, b: a @ b).lower(a, b).compile().as_text()) == 8 * 30
    text = """HloModule m
ENTRY %main (a: f32[2,16,5], k: f32[3,5,7]) -> f32[2,14,7] {
  %a = f32[2,16,5]{2,1,0} parameter(0)
  %k = f32[3,5,7]{2,1,0} parameter(1)
  ROOT %c = f32[2,14,7]{2,1,0} convolution(%a, %k), window={size=3}, dim_labels=b0f_0io->b0f
}
"""
    assert contractions.flops(text) == 2 * (2 * 14 * 7) * 15


@pytest.mark.parametrize(
    ("window", "rows", "length", "met"),
    [
        ("size=3", 16, 14, 3 * 14),
        ("size=3 pad=2_0", 14, 14, 12 + 13 + 14),
        ("size=3 pad=1_1 stride=2", 13, 7, 6 + 7 + 6),
        ("size=3 pad=2_2 lhs_dilate=2", 7, 15, 7 + 7 + 7),
        ("size=3 pad=2_2 rhs_dilate=2", 8, 8, 6 + 8 + 6),
    ],
)
def test_products_with_padding_do_not_count(window, rows, length, met):
    """`met`: how many positions of the input each of three taps meets."""
    text = f"""HloModule m
ENTRY %main (a: f32[1,{rows},1], k: f32[3,1,2]) -> f32[1,{length},2] {{
  %a = f32[1,{rows},1]{{2,1,0}} parameter(0)
  %k = f32[3,1,2]{{2,1,0}} parameter(1)
  ROOT %c = f32[1,{length},2]{{2,1,0}} convolution(%a, %k), window={{{window}}}, dim_labels=b0f_0io->b0f
}}
"""
    assert contractions.flops(text) == 2 * 2 * met


def test_what_a_library_computes_is_not_guessed():
    text = """HloModule m
ENTRY %main (a: f32[4,4]) -> f32[4,4] {
  %a = f32[4,4]{1,0} parameter(0)
  ROOT %c = f32[4,4]{1,0} custom-call(%a, %a), custom_call_target="__cublas$gemm"
}
"""
    assert contractions.flops(text) is None


# Payloads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, o in OPERATIONS.items() if getattr(o, "shaped", False)])
@pytest.mark.parametrize("mesh", ["8", "2x4", "4"])
def test_what_is_timed_is_whole_tiles(name, mesh):
    """From a tile for each member on, a block's last dimensions are multiples of 8 and 128, and its size is exact."""
    operation, mesh = OPERATIONS[name], parse_mesh(mesh)
    for variant in operation.timed_variants(mesh):
        for size in ("64KiB", "1MiB"):
            plan = operation.plan(Request(variant, mesh, "float32", size))
            [argument] = plan.arguments
            *_, rows, lanes = (
                length // mesh.product(axes or ())
                for length, axes in zip(argument.shape, argument.spec, strict=True)
            )
            odd = variant.get("shape") == "odd"
            assert odd or (rows % 8, lanes % 128) == (0, 0), (variant.label, argument.shape)
            assert not odd or lanes == 4


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(
    ("elements", "parts", "blocks"),
    [
        (2**18, 8, ([256, 8, 128], [1, 2048, 128])),
        (1024, 8, ([8, 1, 128], [1, 8, 128])),
        (1024, 1, ([1, 8, 128], [1, 8, 128])),
        (16, 8, ([8, 1, 2], [1, 8, 2])),
        (1024, 3, ([3, 2, 128], [1, 6, 128])),
        (0, 8, ([0, 1, 1], [1, 0, 1])),
    ],
)
def test_a_block_divides_into_contiguous_parts(elements, parts, blocks, dim):
    found = tiled_block(elements, dim, parts)
    assert found == blocks[dim] and found[dim] % parts == 0
