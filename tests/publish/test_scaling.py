# SPDX-License-Identifier: Apache-2.0
"""The cases of a scaling study have meshes and sizes of their own, and are what its run line gives."""

from meshmark.operations.selection import Selection
from meshmark.operations.versions import TABLE_VERSION
from meshmark.publish import field_checks
from meshmark.timing import bench


def lines_of(scaling: bool) -> list:
    selection = Selection("standard", operations=("psum", "matmul"))
    run = {
        "kind": "run",
        "run": "a",
        "table": TABLE_VERSION,
        "facts": {"num_devices": 8},
        "selection": selection.described() | {"scaling": scaling},
    }
    cells = bench.scaled_cells(selection, 8)
    timed = [
        {"kind": "timing", "run": "a", "case": cell.case(mode).id} for cell, modes in cells for mode in modes
    ]
    assert len(timed) > 20
    return list(enumerate([run, *timed], 1))


def test_the_cases_of_a_scaling_study_are_given_by_its_run():
    assert list(field_checks.of_timed_choice(lines_of(True))) == []


def test_they_are_refused_in_a_run_that_is_none():
    assert any(
        "is not what the selection" in text for _, text in field_checks.of_timed_choice(lines_of(False))
    )


def test_a_case_of_another_size_is_refused_in_a_scaling_study():
    lines = lines_of(True)
    _, record = lines[-1]
    other = record["case"].rpartition("/")[0] + "/n7"
    found = list(field_checks.of_timed_choice([*lines, (99, record | {"case": other})]))
    assert [number for number, _ in found] == [99]
