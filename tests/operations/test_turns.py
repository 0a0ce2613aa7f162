# SPDX-License-Identifier: Apache-2.0
"""Turns of the main modes: each mode comes up, the turn does not depend on the selection, and nothing else is lost."""

from collections import defaultdict
from dataclasses import replace

import pytest

from meshmark.operations import cases
from meshmark.operations.selection import Selection
from meshmark.operations.turns import MAIN_MODES
from meshmark.operations.versions import as_of

STANDARD = Selection(operations=("psum", "all_gather", "matmul", "sort", "mlp"))


def by_cell(selection, devices=8):
    found = defaultdict(set)
    for case in cases.cases(selection, devices):
        found[case.cell.id].add(case.mode)
    return found


def test_every_cell_stays_and_no_mode_is_new():
    turning, all_modes = by_cell(STANDARD), by_cell(replace(STANDARD, turning=False))
    assert turning.keys() == all_modes.keys()
    assert all(modes <= all_modes[cell] for cell, modes in turning.items())
    assert sum(map(len, turning.values())) < sum(map(len, all_modes.values()))


def test_a_variant_of_the_ordinary_mesh_and_size_has_all_of_its_modes():
    cells = by_cell(STANDARD)
    whole = by_cell(replace(STANDARD, turning=False))
    assert all(cells[cell] == whole[cell] for cell in cells if cell.endswith("/2x4/float32/4KiB"))


def test_each_mode_comes_up_once_over_three_meshes():
    cells = by_cell(Selection(operations=("all_gather",), covering=False))
    for options in ("axes=x,dim=1", "axes=x+y,dim=1"):
        seen = [cells[f"all_gather/{options}/*/{mesh}/float32/4KiB"] for mesh in ("8", "4x2", "2x2x2")]
        main = [modes & {*MAIN_MODES} for modes in seen if modes]
        assert all(len(modes) == 1 for modes in main)
        assert len(set().union(*main)) == len(main)


@pytest.mark.parametrize("processes", [1, 2])
def test_modes_have_equal_shares(processes):
    shares = defaultdict(int)
    whole = by_cell(Selection(turning=False, covering=False, processes=processes))
    for cell, modes in by_cell(Selection(covering=False, processes=processes)).items():
        if {*MAIN_MODES} <= whole[cell] != modes:
            for mode in modes & {*MAIN_MODES}:
                shares[mode] += 1
    assert min(shares.values()) > 0.28 * sum(shares.values())


def test_naming_a_mode_or_a_mesh_does_not_change_a_turn():
    ids = {case.id for case in cases.cases(STANDARD, 8)}
    for narrowed in (replace(STANDARD, modes=("explicit",)), replace(STANDARD, meshes=("4x2",))):
        named = {case.id for case in cases.cases(narrowed, 8)}
        assert named and named <= ids


def test_the_full_profile_holds_the_standard_one_in_all_modes():
    full = {case.id for case in cases.cases(replace(STANDARD, profile="full"), 8)}
    assert {case.id for case in cases.cases(replace(STANDARD, turning=False), 8)} <= full


def test_a_demanded_capability_takes_no_turns():
    demanded = Selection(operations=("matmul",), dtypes=("float64",), capabilities=("x64",), covering=False)
    assert by_cell(demanded) == by_cell(replace(demanded, turning=False))


def test_any_case_is_still_found_by_its_id():
    left_out = {case.id for case in cases.cases(replace(STANDARD, turning=False), 8)}
    left_out -= {case.id for case in cases.cases(STANDARD, 8)}
    for name in sorted(left_out)[:5]:
        assert cases.find(name, 8).id == name


def test_older_versions_of_the_table_take_no_turns():
    assert {case.id for case in as_of(12).cases(STANDARD, 8)} == {
        case.id for case in cases.cases(replace(STANDARD, turning=False), 8)
    }
