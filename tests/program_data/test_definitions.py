# SPDX-License-Identifier: Apache-2.0
"""Definitions of whole programs: forms, collectives and derivatives, against JAX on one device, and against answers
that are written down."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from meshmark.hunt import differences, generator, oracles
from meshmark.program_data import definitions, lanes, slopes
from meshmark.program_data.building import find_dtypes
from meshmark.program_data.lanes import Lanes
from meshmark.program_data.places import PLACES
from meshmark.program_data.program import Transform
from meshmark.program_data.references import Undefined
from meshmark.program_data.windows import WINDOWS

SEED, COUNT = 2901, 80


@functools.cache
def judged():
    """(program, its results on one device, what NumPy says of them) of drawn programs that have a definition."""
    found = []
    for number in range(COUNT):
        program = generator.draw(SEED, number, meshes=((2, 4), (2, 2, 2)))
        if program.transform.kind:
            inputs = program.inputs[: program.given]
            program = replace(program, transform=Transform(), inputs=inputs)
        try:
            known = oracles.compute_truth(program)
            found.append(
                (program, known, oracles.compare_with_definition(program, known, oracles.rounds(program)))
            )
        except (oracles.Invalid, oracles.Inapplicable):
            continue
    return found


@pytest.mark.one_in(2)
def test_drawn_programs_have_the_results_of_their_definitions():
    assert len(judged()) > 0.8 * COUNT
    assert not [(p.nodes, said) for p, _, said in judged() if said]


@pytest.mark.one_in(2)
def test_drawn_programs_have_every_form():
    drawn = {op for program, _, _ in judged() for op in program.operations}
    assert {"vmap", "remat", "scan", "map", "cond", "fori", "while", "shard_map"} <= drawn
    assert any(op in lanes.COLLECTIVES for op in drawn)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["vmap", "scan", "shard_map", "map", "fori"])
def test_a_form_that_jax_would_get_wrong_is_seen(monkeypatch, form):
    """As if the definition were right and JAX wrong."""
    right = definitions.FORMS[form]

    def shifted(found):
        if isinstance(found, tuple):
            return tuple(map(shifted, found))
        return np.roll(found, 1) if found.dtype == bool else found + found.dtype.type(1)

    with_it = [(p, known) for p, known, said in judged() if form in p.operations and not said]
    monkeypatch.setitem(definitions.FORMS, form, lambda *given: [*map(shifted, right(*given))])
    assert with_it
    said = [oracles.compare_with_definition(p, known, oracles.rounds(p)) for p, known in with_it]
    assert any(said)


# Lanes ----------------------------------------------------------------------------------------------------------

GRID = Lanes({"x": 2, "y": 3})
OWN = [np.array([10 * x + y, 100], np.int32) for x, y in GRID.places]


@pytest.mark.parametrize(
    ("name", "axes", "args", "expected"),
    [
        ("psum", "x", {}, [[10, 200], [12, 200], [14, 200]] * 2),
        ("pmax", "y", {}, [[2, 100]] * 3 + [[12, 100]] * 3),
        ("pmin", ["y", "x"], {}, [[0, 100]] * 6),
        ("pmean", "x", {}, [[5, 100], [6, 100], [7, 100]] * 2),
        ("all_gather", "x", {"axis": 1}, [[[k, 10 + k], [100, 100]] for k in (0, 1, 2)] * 2),
        ("all_gather", "x", {"tiled": True}, [[k, 100, 10 + k, 100] for k in (0, 1, 2)] * 2),
        ("psum_scatter", "x", {}, [10, 12, 14, 200, 200, 200]),
        ("psum_scatter", "x", {"tiled": True}, [[10], [12], [14], [200], [200], [200]]),
        ("pswapaxes", "x", {"axis": 0}, [[k, 10 + k] for k in (0, 1, 2)] + [[100, 100]] * 3),
        ("ppermute", "y", {"perm": [[0, 2]]}, [[0, 0], [0, 0], [0, 100], [0, 0], [0, 0], [10, 100]]),
        (
            "pshuffle",
            "y",
            {"perm": [1, 2, 0]},
            [[1, 100], [2, 100], [0, 100], [11, 100], [12, 100], [10, 100]],
        ),
    ],
)
def test_a_collective_of_lanes_is_as_documented(name, axes, args, expected):
    found = lanes.COLLECTIVES[f"lax.{name}"](GRID, OWN, axes, **args)
    assert [np.asarray(f).tolist() for f in found] == expected


def test_several_axes_are_in_the_order_of_their_names():
    found = lanes.COLLECTIVES["lax.all_gather"](GRID, [o[0] for o in OWN], ["y", "x"])
    assert found[0].tolist() == [0, 10, 1, 11, 2, 12]
    there = lanes.COLLECTIVES["lax.all_to_all"](
        GRID, [np.arange(6) + 10 * k for k in range(6)], ["y", "x"], 0, 0, tiled=True
    )
    assert there[1].tolist() == [2, 32, 12, 42, 22, 52]  # lane (0, 1) is third in the order of (y, x)


@pytest.mark.parametrize("spec", [(("x",), ("y",)), (("y", "x"), ()), ((), ("x",)), ()])
def test_blocks_make_the_whole_again(spec):
    whole = np.arange(72).reshape(12, 6)
    assert np.array_equal(GRID.whole([GRID.block(whole, spec, k) for k in range(6)], spec), whole)


# Windows and places ---------------------------------------------------------------------------------------------


def test_windows_have_their_paddings_and_dilations():
    x = np.arange(1, 6, dtype=np.float32)
    run = functools.partial(WINDOWS["lax.reduce_window"], x, 0, np.add)
    assert run([2], [2], "SAME").tolist() == [3, 7, 5]
    assert run([2], [1], "VALID", window_dilation=[2]).tolist() == [4, 6, 8]
    assert run([2], [1], [(1, 0)], base_dilation=[2]).tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert run([3], [1], [(-1, 1)]).tolist() == [9, 12, 9]


def test_places_outside_are_clipped_filled_or_dropped():
    x = np.arange(4, dtype=np.int32)
    at = np.array([[-1], [2], [4]])
    numbers = {"offset_dims": [], "collapsed_slice_dims": [0], "start_index_map": [0]}
    assert PLACES["lax.gather"](x, at, numbers, [1], mode="clip").tolist() == [0, 2, 3]
    assert PLACES["lax.gather"](x, at, numbers, [1], mode="fill").tolist() == [-(2**31), 2, -(2**31)]
    own = {"update_window_dims": [], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}
    assert PLACES["lax.scatter_add"](x, at, np.array([10, 20, 30]), own, mode="fill").tolist() == [
        0,
        1,
        22,
        3,
    ]
    assert PLACES["lax.scatter_add"](x, at, np.array([10, 20, 30]), own, mode="clip").tolist() == [
        10,
        1,
        22,
        33,
    ]


# Derivatives ----------------------------------------------------------------------------------------------------


def test_slopes_are_those_of_polynomials_and_no_corner_has_one():
    (cubic,) = slopes.find_slopes(lambda t: [np.array([(3 + t) ** 4, 2 - 5 * t])])
    np.testing.assert_allclose(cubic, [108, -5], rtol=1e-9)
    for corner in (np.abs, np.sin, lambda t: np.maximum(t, 0)):
        with pytest.raises(Undefined, match="corner"):
            slopes.find_slopes(lambda t, f=corner: [np.asarray(100 * f(np.float64(t)))])


@pytest.mark.one_in(2)
def test_derivatives_of_drawn_programs_are_those_of_their_definitions():
    compared = 0
    for number in range(60):
        program = generator.draw(SEED + 1, number, meshes=((2, 2),))
        if not program.transform.kind or oracles.rounds(program):
            continue
        try:
            right = slopes.compute_derivatives(program, find_dtypes(program))
            known = oracles.compute_truth(program)
        except (Undefined, oracles.Invalid):
            continue
        assert not differences.first_difference(known.results, right, known, True, "the derivative"), (
            program.nodes
        )
        compared += 1
    assert compared >= 3


def test_dtypes_of_every_operation_are_those_of_jax():
    program = next(
        p for p in (generator.draw(SEED, n, meshes=((2, 4),)) for n in range(COUNT)) if "scan" in p.operations
    )
    dtypes = find_dtypes(program)
    assert len(dtypes) == len(program.operations)
    assert isinstance(dtypes[program.operations.index("scan")], list)
