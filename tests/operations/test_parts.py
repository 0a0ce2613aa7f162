# SPDX-License-Identifier: Apache-2.0
"""No two devices hold the same part of an argument along a sharded dimension: if a program exchanges two parts, numbers
change."""

from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from meshmark.core import values
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import Argument
from meshmark.operations.cases import whole_argument
from meshmark.operations.functions.contraction import arranged, signs
from meshmark.operations.programs.found.base import nonzero
from meshmark.operations.selection import Selection
from meshmark.operations.versions import as_of

FAMILIES = sorted({operation.family for operation in OPERATIONS.values()})


@cache
def every():
    """The cells of the standard profile on eight devices by family, one of each operation, variant, mesh and dtype."""
    found = defaultdict(dict)
    for case in cases.cases(Selection("standard"), 8):
        request = case.cell.request
        if request.variant.get("fill") is None:  # special values are alike on purpose
            found[case.operation.family].setdefault(
                (case.operation.name, request.variant.options, case.mesh.label, request.dtype), case
            )
    return found


def equal_parts(argument, whole, mesh):
    """The sharded dimensions along which two parts of an argument are equal, with the number of parts."""
    for d, axes in enumerate(argument.spec):
        parts = mesh.product((axes,) if isinstance(axes, str) else axes or ())
        if parts > 1 and whole.size and whole.shape[d] % parts == 0:
            seen = {np.ascontiguousarray(part).tobytes() for part in np.split(whole, parts, d)}
            if len(seen) < parts:
                yield d, parts


@pytest.mark.parametrize("family", FAMILIES)
def test_devices_hold_parts_that_differ(family):
    alike = []
    for case in every()[family].values():
        for number, argument in enumerate(case.plan.arguments):
            whole = np.asarray(whole_argument(argument, 0, number))
            if len(np.unique(whole.view(f"u{whole.itemsize}") if whole.itemsize < 16 else whole)) <= 2:
                continue  # of zeros and ones, two short parts may be equal
            alike += [(case.id, number, *found) for found in equal_parts(argument, whole, case.mesh)]
    assert not alike


def test_equal_parts_are_seen():
    case = cases.find("pipeline/batch=x,stages=y/manual/2x4/float32/n8", 8)
    factors = case.plan.arguments[1]
    whole = np.array(whole_argument(factors, 0, 1))
    assert not list(equal_parts(factors, whole, case.mesh))
    whole[2] = whole[1]
    assert list(equal_parts(factors, whole, case.mesh)) == [(0, 4)]


def test_the_version_before_had_other_numbers_in_these_cases_alone():
    old = as_of(22)
    names = {
        case.operation.name
        for found in every().values()
        for case in found.values()
        if not old.compiles_as_today(case)
    }
    assert {"pipeline", "pipeline_gradient", "stencil", "joined_pads", "feature_groups"} <= names
    assert len(names) < 40
    single = Argument((8, 4), "float32", (), values.plus_minus)
    stack = Argument((3, 8, 4), "float32", (), arranged, {"fill": signs, "groups": [[0], [1], [2]]})
    assert np.array_equal(whole_argument(stack, 0, 0)[0], whole_argument(single, 0, 0))
    few = whole_argument(Argument((15,), "int32", (), nonzero), 0, 0)
    assert len(set(few % 15)) == 15 and few.min() >= 1 and few.max() <= 30
