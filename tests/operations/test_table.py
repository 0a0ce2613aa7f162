# SPDX-License-Identifier: Apache-2.0
"""The case table and the arithmetic under it."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark import operations
from meshmark.core import layout, meshes, values
from meshmark.core.dtypes import DTYPES, as_bits
from meshmark.core.meshes import MeshShape
from meshmark.levels import counters
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import MODES, parse_size
from meshmark.operations.collectives.gather_scatter import REASONS, public_collectives
from meshmark.operations.collectives.permutations import permutation
from meshmark.operations.selection import CAPABILITIES, LEVELS, Selection, SelectionError

SHAPES = [m for n in (1, 2, 3, 6, 8) for m in meshes.weighted(n)]


def test_every_public_collective_has_an_operation_or_a_reason():
    missing = [name for name in public_collectives() if name not in OPERATIONS and name not in REASONS]
    assert not missing, f"give {missing} an Operation, or a reason in gather_scatter.REASONS"
    assert not set(REASONS) & set(OPERATIONS)


def test_public_collectives_are_found_by_their_signature():
    assert {"psum", "all_gather", "ppermute", "axis_index", "ragged_all_to_all"} <= set(public_collectives())
    assert "add" not in public_collectives()


def test_every_operation_is_described_and_spelled():
    for operation in OPERATIONS.values():
        assert operation.__doc__ and operation.family and operation.level in LEVELS
        for mesh in meshes.weighted(8):
            for variant in operation.variants(mesh):
                for mode in MODES:
                    if operation.absent(mode, variant, mesh) is None:
                        spelled = {"manual-novma": "manual", "pmap": "manual", "pjit": "auto"}.get(mode, mode)
                        assert callable(getattr(operation, spelled)), (operation.name, mode)


@pytest.mark.parametrize(
    ("profile", "number"), [("smoke", 8), ("full", 8), *(("standard", n) for n in (1, 2, 3, 4, 5, 6, 7, 16))]
)
def test_plans_of_a_profile_are_sound(profile, number):
    capabilities = tuple(CAPABILITIES)
    for cell, _ in cases.cells(Selection(profile, capabilities=capabilities), number):
        plan, sizes = cell.plan, cell.request.mesh.sizes
        for item in (*plan.arguments, *plan.results, *plan.forward):
            layout.local_shape(item.shape, item.spec, sizes)  # divides
            used = [a for e in item.spec for a in layout.axes_of(e)]
            assert len(used) == len(set(used)), cell.id
            assert item.dtype in DTYPES


def test_case_ids_are_distinct_and_found_again():
    ids = [case.id for case in cases.cases(Selection(), 8)]
    assert len(ids) == len(set(ids)) >= 2000
    for case_id in ids[:: len(ids) // 40]:
        assert cases.find(case_id, 8).id == case_id


def test_profiles_contain_each_other():
    smoke, standard = ({c.id for c in cases.cases(Selection(p), 8)} for p in ("smoke", "standard"))
    assert smoke < standard


@pytest.mark.parametrize("number", [1, 2, 3, 6])
def test_fewer_devices_still_have_cases(number):
    chosen = list(cases.cases(Selection("standard"), number))
    assert len(chosen) > 100
    assert all(case.mesh.size <= number for case in chosen)


@pytest.mark.parametrize(
    ("narrowed", "named"),
    [
        ({"profile": "every"}, "smoke, quick, standard, full"),
        ({"operations": ("psumm",)}, "psum"),
        ({"modes": ("automatic",)}, "auto"),
        ({"dtypes": ("float31",)}, "float32"),
        ({"sizes": ("5KiB",)}, "4KiB"),
        ({"levels": ("L9",)}, "L0"),
        ({"capabilities": ("magic",)}, "x64"),
        ({"meshes": ("4x4",)}, "2x4"),
        ({"meshes": ("2x0",)}, "2x4"),
        ({"meshes": ("axb",)}, "2x4"),
    ],
)
def test_an_unknown_choice_is_an_error_that_lists_the_valid_ones(narrowed, named):
    with pytest.raises(SelectionError, match=named):
        Selection(**narrowed).checked(8)


@settings(deadline=None)  # a busy machine is slow at times
@given(st.sampled_from(SHAPES), st.data())
def test_blocks_of_an_array_give_it_back(mesh: MeshShape, data):
    axes = data.draw(st.permutations(mesh.names))
    cut = data.draw(st.integers(0, len(axes)))
    spec = (tuple(axes[:cut]) or None, tuple(axes[cut:]) or None)
    shape = (2 * mesh.product(tuple(axes[:cut])), 3 * mesh.product(tuple(axes[cut:])))
    array = np.arange(math.prod(shape)).reshape(shape)
    blocks = layout.split(array, spec, mesh.sizes)
    assert len(blocks) == mesh.size
    np.testing.assert_array_equal(layout.assemble(blocks, spec, mesh.sizes), array)


@pytest.mark.parametrize("mesh", [m for m in SHAPES if m.size == 8], ids=str)
def test_layout_agrees_with_jax(mesh):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from meshmark.judge.programs import mesh_over

    real = mesh_over(tuple(jax.devices()), mesh)
    for names in itertools.permutations(mesh.names):
        spec = (names[0], None, names[1:] or None)
        shape = (8, 3, 8)
        ours = layout.indices(shape, spec, mesh.sizes)
        theirs = NamedSharding(real, PartitionSpec(*spec)).devices_indices_map(shape)
        for device, index in zip(real.devices.flat, ours, strict=True):
            assert (
                tuple(slice(*i.indices(n)[:2]) for i, n in zip(theirs[device], shape, strict=True)) == index
            )


@given(st.integers(1, 24))
def test_factorizations_multiply_to_n(n):
    for axes in (1, 2, 3):
        found = list(meshes.factorizations(n, axes))
        assert len(found) == len(set(found))
        assert all(math.prod(f) == n for f in found)


def test_all_ordered_factorizations_are_meshes():
    labels = [m.label for m in meshes.weighted(8)]
    assert {"8", "1x8", "8x1", "2x4", "4x2", "2x2x2", "1x1x8", "4x1x2", "2x4-shuffled", "3", "6"} <= set(
        labels
    )


def test_a_shuffled_mesh_moves_every_device_but_few():
    ordinals = MeshShape((2, 4), "shuffled").ordinals.ravel()
    assert sorted(ordinals) == list(range(8))
    assert sum(ordinals == np.arange(8)) <= 1


FILLS = {
    "distinct": (values.distinct, {}, list(DTYPES)),
    "summands": (
        values.summands,
        {"terms": 8},
        [d.name for d in DTYPES.values() if d.digits > 3 and d.name not in ("bool", "uint4")],
    ),
    "special": (values.special, {}, ["float32", "bfloat16", "float16", "float64"]),
    "odd_rows": (values.odd_rows, {}, ["float32", "bfloat16", "float16", "int32"]),
    "uniform": (values.uniform, {}, ["float32", "bfloat16", "float16"]),
}


@pytest.mark.parametrize(("fill", "dtype"), [(f, d) for f, (_, _, ds) in FILLS.items() for d in ds])
def test_a_block_equals_the_same_block_of_the_whole(fill, dtype):
    from meshmark.operations.base import Argument

    function, options, _ = FILLS[fill]
    argument = Argument((12, 10), dtype, (), function, options)
    whole = argument.block(3, values.whole(argument.shape))
    part = argument.block(3, (slice(4, 8), slice(5, 10)))
    np.testing.assert_array_equal(as_bits(part), as_bits(whole[4:8, 5:10]))
    assert whole.dtype == DTYPES[dtype].numpy
    other = argument.block(4, values.whole(argument.shape))
    assert (as_bits(other) != as_bits(whole)).mean() > 0.1


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("most", [1, 7, 40, 119])
def test_an_array_that_is_made_in_pieces_is_the_same(monkeypatch, fill, most):
    from meshmark.operations.base import Argument

    function, options, dtypes = FILLS[fill]
    argument = Argument((12, 2, 5), dtypes[0], (), function, options)
    part = (slice(1, 12), slice(0, 2), slice(1, 4))
    whole, some = argument.block(3, values.whole(argument.shape)), argument.block(3, part)
    monkeypatch.setattr(values, "AT_ONCE", most)
    assert all(math.prod(s.stop - s.start for s in piece) <= most for piece in values.pieces((12, 2, 5)))
    np.testing.assert_array_equal(as_bits(argument.block(3, values.whole(argument.shape))), as_bits(whole))
    np.testing.assert_array_equal(as_bits(argument.block(3, part)), as_bits(some))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "int8", "uint8"])
@pytest.mark.parametrize("terms", [2, 3, 8])
def test_summands_are_exact_in_any_order_and_need_the_whole_type(dtype, terms):
    from meshmark.operations.base import Argument

    kind = DTYPES[dtype].numpy
    block = Argument((terms, 500), dtype, (), values.summands, {"terms": terms}).block(
        0, values.whole((terms, 500))
    )
    exact = block.astype(np.float64).sum(axis=0)
    for order in ([*range(terms)], [*reversed(range(terms))]):
        total = block[order[0]]
        for i in order[1:]:
            total = (total + block[i]).astype(kind)
        np.testing.assert_array_equal(total.astype(np.float64), exact)
    narrower = {"float32": ml_dtypes.bfloat16, "float16": ml_dtypes.float8_e5m2, "int32": np.float32}.get(
        dtype
    )
    if narrower:
        assert (block.astype(narrower).astype(np.float64) != block.astype(np.float64)).mean() > 0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_exact_contractions_are_exact_and_feel_rounding(dtype):
    from meshmark.operations.base import Argument

    kind = DTYPES[dtype].numpy
    a = Argument((16, 64), dtype, (), values.odd_rows).block(1, values.whole((16, 64))).astype(np.float64)
    b = Argument((64, 64), dtype, (), values.plus_minus).block(2, values.whole((64, 64))).astype(np.float64)
    assert np.abs(b).sum(axis=0).tolist() == [2] * 64 and b.sum(axis=0).tolist() == [0] * 64
    assert (np.abs(b).sum(axis=1) > 0).all(), "every row of the contracted dimension counts"
    product = a @ b
    np.testing.assert_array_equal(product.astype(kind).astype(np.float64), product)
    bits = {"float32": 13, "bfloat16": 3, "float16": 5}[dtype]
    rounded = np.round(a / 2**bits) * 2**bits
    assert (rounded @ b != product).mean() > 0.7


@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
def test_named_permutations(n):
    for kind in ("ring", "reverse", "partial", "cycles", "identity"):
        pairs = permutation(kind, n)
        if pairs:
            assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
            assert len(pairs) == n - (kind == "partial")
    if n > 3:
        assert dict(permutation("cycles", n))[0] == 1 and dict(permutation("cycles", n))[1] == 0


def test_sizes():
    assert [parse_size(s) for s in ("0B", "64B", "4KiB", "1MiB", "n64")] == [0, 64, 4096, 2**20, 64]
    with pytest.raises(ValueError, match="is not a size"):
        parse_size("big")


def test_every_bound_is_far_below_what_it_judges():
    """A bound near the size of the values could not fail anything."""
    for cell, _ in cases.cells(Selection("standard", capabilities=("x64",)), 8):
        if cell.plan.judge == "bound":
            expected, bounds = cell.expected(cell.arguments(0))
            for value, bound in zip(expected, bounds, strict=True):
                if bound is not None and np.isfinite(value).any():
                    finite = np.isfinite(value)  # the judge compares the others by position
                    assert bound[finite].max() < 0.1 * np.abs(value[finite]).max(), cell.id


@pytest.mark.parametrize("path", sorted(counters.DIRECTORY.glob("*-8.tsv")), ids=lambda path: path.stem)
def test_committed_counters_are_of_cases_that_exist(path):
    every, current = (  # cases of mode host have no program
        {case.id for case in cases.cases(Selection(turning=turning), 8) if case.mode != "host"}
        for turning in (False, True)
    )
    committed = {line.split("\t")[0] for line in path.read_text().splitlines()}
    assert committed <= every
    assert len(committed & current) > 0.95 * len(current), (
        "most programs of the standard profile have counters"
    )


def test_two_operations_of_one_name_are_refused():
    """The second would hide the first, whose cases then leave every list."""
    psum = type(OPERATIONS["psum"])
    second = type("Second", (), {"name": "psum"})
    with pytest.raises(ValueError, match="and Second are both named 'psum'"):
        operations._by_name([psum, second])


def test_every_profile_times_a_mesh_that_is_named():
    steps = ("decoder", "staged_decoder")
    timed = Selection("quick", operations=steps, meshes=("2x2x2",), timed=True)
    assert {case.operation.name for case in cases.cases(timed, 8)} == set(steps)
