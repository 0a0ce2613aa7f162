# SPDX-License-Identifier: Apache-2.0
"""The committed rows cover their pairs, always give the same cases, and give no case twice."""

from dataclasses import replace

import pytest

from meshmark.operations import OPERATIONS, cases, classes, pairs
from meshmark.operations.pairs import Row, picked, read_pairs
from meshmark.operations.selection import Selection


def test_rows_name_operations_and_classes_that_exist():
    for path in pairs.DIRECTORY.glob("*.tsv"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(set(lines))
        for line in lines:
            row = Row(*line.split("\t"))
            assert (
                OPERATIONS[row.operation].family == path.stem and row.mode in OPERATIONS[row.operation].modes
            )


def test_every_row_gives_a_case_of_its_classes_on_eight_devices():
    found = picked(8)
    assert len(found) >= 0.99 * len(read_pairs())
    for one in found[::7]:
        request, operation = one.request, one.operation
        row = Row(
            operation.name,
            classes.of_dtype(request.dtype),
            classes.of_mesh(request.mesh, 8),
            classes.of_size(operation, request.size),
            classes.of_fill(request.variant.get("fill")),
            pairs.spread(operation, request.variant, request.mesh),
            one.mode,
        )
        assert row in read_pairs()


def test_members_of_a_class_take_turns():
    dtypes = {one.request.dtype for one in picked(8)}
    assert {"bfloat16", "float16", "int8", "int32", "uint8", "bool"} <= dtypes
    labels = {one.request.mesh.label for one in picked(8)}
    assert {"8", "4x2", "2x2x2", "1x8", "8x1", "2x4-shuffled", "3", "6"} <= labels


@pytest.mark.parametrize("mode", ["manual-novma", "pjit"])
def test_lesser_modes_leave_the_ordinary_mesh(mode):
    meshes = {one.request.mesh.label for one in picked(8) if one.mode == mode}
    assert len(meshes) > 6


def test_fewer_devices_have_what_their_meshes_allow():
    assert 0 < len(picked(1)) < len(picked(2)) < len(picked(8))
    assert all(one.request.mesh.size <= 2 for one in picked(2))


def test_profiles_take_them_once_and_smoke_does_not():
    smoke = [case.id for case in cases.cases(Selection("smoke"), 8)]
    without = [case.id for case in cases.cases(Selection("smoke", covering=False), 8)]
    assert smoke == without
    narrowed = Selection("standard", operations=("psum", "sort"))
    ids = [case.id for case in cases.cases(narrowed, 8)]
    assert (
        len(ids)
        == len(set(ids))
        > len([*cases.cases(Selection(operations=("psum", "sort"), covering=False), 8)])
    )


def test_a_selection_narrows_them():
    chosen = [*cases.cases(Selection(dtypes=("uint8",), modes=("pjit",)), 8)]
    assert chosen and {(c.cell.request.dtype, c.mode) for c in chosen} == {("uint8", "pjit")}
    assert not [c for c in cases.cases(Selection(), 8) if c.cell.capabilities]


def test_their_ids_are_found_again():
    for case in list(cases.cases(Selection(operations=("all_gather",)), 8))[-3:]:
        assert cases.find(case.id, 8).id == case.id


def test_the_first_version_of_the_table_has_none_of_them():
    from meshmark.operations.versions import as_of

    selection = Selection(operations=("psum",))
    first = {case.id for case in as_of(1).cases(selection, 8)}
    assert first < {case.id for case in cases.cases(replace(selection, turning=False), 8)}
    assert not any("fill=nan" in name for name in first)
