# SPDX-License-Identifier: Apache-2.0
"""The page of coverage: one row per operation, and a reason for each missing case."""

import re
from dataclasses import replace

import pytest

from docs import coverage_page, package


@pytest.fixture(scope="module")
def rows():
    return package.coverage()


def test_every_operation_has_a_row_and_every_absence_a_reason(rows):
    assert {row.name for row in rows} == {
        name for name, o in package.OPERATIONS.items() if not o.processes and name not in package.APART
    }
    for row in rows:
        for mode, count in row.cases.items():
            assert bool(count) == (not row.reasons.get(mode)), (row.name, mode)
        assert bool(row.gradient) == (not row.reasons.get("gradient")), row.name


def test_letters_stand_for_reasons(rows):
    lines = coverage_page.by_operation(rows)
    said = {line[4] for line in lines if line.startswith("- **")}
    used = {
        sign for line in lines if line.startswith("| `") for sign in re.findall(r"\| ([a-z]) (?=\|)", line)
    }
    assert used == said


def test_what_is_taken_away_is_not_counted(rows):
    psum = next(row for row in rows if row.name == "psum")
    without = replace(
        psum, cases={**psum.cases, "auto": 0}, reasons={**psum.reasons, "auto": "it was taken away"}
    )
    line = next(line for line in coverage_page.by_operation([without]) if line.startswith("| `psum`"))
    assert re.match(r"\| `psum` \| [a-z] \| [1-9]", line)
    assert any("it was taken away" in line for line in coverage_page.by_operation([without]))


def test_the_page_has_every_kind_of_reason_and_every_transformation():
    text = coverage_page.page()
    for kind in (*package.names.REASONS, *package.names.OUTSIDE):
        assert f"| {kind} |" in text
    for name in package.transforms():
        assert f"| `{name}` |" in text


def test_every_transformation_meets_every_group_of_functions():
    counts = package.transformed()
    assert {"jvp", "vjp", "scan_remat", "custom_vjp", "vmap_spmd"} <= set(counts)
    assert all(count for by_group in counts.values() for count in by_group.values())
    lines = "\n".join(coverage_page.by_function())
    assert f"| `jvp` | {' | '.join(str(counts['jvp'][group]) for group in package.GROUPS)} |" in lines
