# SPDX-License-Identifier: Apache-2.0
"""Transformations of many functions: what the grid promises. tests/studies/faults_of_transforms.py holds faults."""

from collections import Counter

import numpy as np
import pytest

from meshmark.operations import OPERATIONS, cases
from meshmark.operations.functions.polynomials import pull, push
from meshmark.operations.selection import Selection
from meshmark.operations.transforms.transformed import TRANSFORMS
from meshmark.operations.transforms.transformed_functions import FUNCTIONS, GROUPS, in_numpy

GRIDS = ("transformed", "transformed_shard_map")


@pytest.fixture(scope="module")
def matrices():
    """An argument and a cotangent of small whole numbers."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 3, (16, 2)).astype(float), rng.integers(0, 3, (16, 2)).astype(float)


def test_differences_are_the_derivatives_of_polynomials(matrices):
    x, y = matrices
    matrix = np.arange(256.0).reshape(16, 16) % 7

    def f(a):
        return a * (matrix @ a)

    np.testing.assert_array_equal(push(f, x, y), y * (matrix @ x) + x * (matrix @ y))
    np.testing.assert_array_equal(pull(f, x, y), y * (matrix @ x) + matrix.T @ (x * y))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_derivatives_of_a_function_agree_and_say_something(matrices, name):
    x, y = matrices
    f, t = in_numpy(name, 4), np.roll(y, 1)
    assert (push(f, x, t) * y).sum() == (pull(f, x, y) * t).sum()
    assert np.abs(pull(f, x, y)).max() > 1
    assert not np.array_equal(f(x), f(x[::-1])), "the place of a row matters"


def test_every_pair_is_in_the_standard_profile_once_and_smoke_has_none():
    chosen = [*cases.cases(Selection(operations=GRIDS, covering=False), 8)]
    pairs = Counter(
        (variant["transform"], variant["group"])
        for variant in (case.cell.request.variant for case in chosen)
        if not variant.get("eager")
    )
    wanted = {(transform, group) for transform in TRANSFORMS for group in GROUPS}
    assert pairs == Counter(wanted | {("vmap_spmd", "collectives")})
    assert len(chosen) <= 80
    assert {case.mode for case in chosen} == {"auto", "explicit", "manual", "manual-novma", "host"}
    assert len({case.mesh.label for case in chosen}) >= 3
    assert not [*cases.cases(Selection("smoke", operations=GRIDS), 8)]


@pytest.mark.parametrize("number", [2, 4])
def test_fewer_devices_have_every_pair_too(number):
    chosen = cases.cases(Selection(operations=GRIDS, covering=False), number)
    pairs = {(c.cell.request.variant["transform"], c.cell.request.variant["group"]) for c in chosen}
    assert {(transform, group) for transform in TRANSFORMS for group in GROUPS} <= pairs


def test_every_result_is_exact_in_float32():
    """Of the whole numbers and of those that a mean divides by eight or less, once or twice."""
    for name in GRIDS:
        for cell, _ in cases.cells(Selection(operations=(name,), covering=False), 8):
            arguments = [a.astype(np.float64) for a in cell.arguments(0)]
            found = OPERATIONS[name].reference(
                *arguments, **{k: cell.plan.options[k] for k in ("transform", "names", "n")}
            )
            for result in found:
                assert np.array_equal(result, result.astype(np.float32)), cell.id
                assert np.abs(result).max() < 2**24, cell.id
