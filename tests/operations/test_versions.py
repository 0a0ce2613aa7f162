# SPDX-License-Identifier: Apache-2.0
"""Versions of the case table: the answers of an older version stay available after a change of the table."""

from dataclasses import replace

import pytest

from meshmark.judge import theory
from meshmark.operations import cases, versions
from meshmark.operations.base import Cost, nbytes
from meshmark.operations.selection import Selection, SelectionError
from meshmark.operations.versions import CHANGES, TABLE_VERSION, CaseEntry, TableChange, TableError, as_of

PSUM = "psum/axes=x+y/manual/2x2/float32/64KiB"
PMAX = "pmax/axes=x+y/manual/2x2/float32/64KiB"


@pytest.fixture
def psum():
    return cases.find(PSUM, 4)


@pytest.fixture
def pmax():
    return cases.find(PMAX, 4)


@pytest.fixture
def third(monkeypatch):
    """A table of three versions: 2 mended the cost of psum and added pmin, 3 its size and compiles pmax otherwise."""

    def with_old_cost(case, entry):
        if case.operation.name == "psum":
            return replace(entry, cost=Cost(1, entry.size_bytes, 0.5))
        return entry

    def with_old_size(case, entry):
        return replace(entry, size_bytes=7) if case.operation.name == "psum" else entry

    monkeypatch.setattr(versions, "TABLE_VERSION", 3)
    monkeypatch.setitem(
        CHANGES, 2, TableChange("psum", entry=with_old_cost, new=lambda case: case.operation.name == "pmin")
    )
    monkeypatch.setitem(
        CHANGES,
        3,
        TableChange("psum", entry=with_old_size, recompiled=lambda case: case.operation.name == "pmax"),
    )


def test_every_version_after_the_first_says_what_it_changed():
    assert set(CHANGES) == set(range(2, TABLE_VERSION + 1))
    assert all(change.summary for change in CHANGES.values())


@pytest.mark.parametrize(
    ("name", "flops", "nbytes", "factor"),
    [
        ("pmax/axes=x+y/manual/2x4/float32/64KiB", 131072, 65536, 1.75),
        ("all_gather/axes=x+y,dim=0,tiled/auto/2x4/float32/64KiB", 0, 524288, 0.875),
        ("ragged_all_to_all/axes=x+y/manual/2x4/float32/4KiB", 0, 4096, 0.875),
        ("mlp_gradient/batch=x,model=y/manual/2x4/float32/n64", 1572864, 0, 0.0),
        ("attention_gradient/batch=x,sequence=y/manual/2x4/float32/n32", 786432, 0, 0.0),
        ("attention/batch=x,sequence=y/auto/2x4/float32/n512", 67108864, 0, 0.0),
        ("dense_gradient/batch=x,inner=y/auto/2x4/float32/n64", 786432, 0, 0.0),
    ],
)
def test_the_first_version_has_the_costs_that_its_records_have(name, flops, nbytes, factor):
    """Written down from the code of version 1."""
    assert as_of(1).entry(cases.find(name, 8)).cost == Cost(flops, nbytes, factor)


def test_the_first_version_has_odd_blocks_and_no_cases_of_them():
    names = [f"psum/axes=x+y{odd}/manual/2x4/float32/4KiB" for odd in ("", ",shape=odd")]
    tiled, odd = (cases.find(name, 8) for name in names)
    assert tiled.plan.arguments[0].shape == (8, 1, 8, 128)
    assert as_of(1).plan(tiled).arguments == odd.plan.arguments
    assert odd.plan.arguments[0].shape == (8, 64, 4, 4)
    assert as_of(1).has(tiled) and not as_of(1).has(odd)
    assert not as_of(1).compiles_as_today(tiled)


def test_todays_version_says_what_the_code_says(psum):
    size = sum(nbytes(a, psum.mesh) for a in psum.plan.arguments)
    assert as_of().entry(psum) == CaseEntry(psum.level, size, psum.plan.cost)
    assert as_of(TABLE_VERSION) == as_of() and as_of().compiles_as_today(psum)


def test_an_older_version_goes_back_through_every_change(third, psum, pmax):
    now = as_of(3).entry(psum)
    assert as_of(2).entry(psum) == replace(now, size_bytes=7)
    assert as_of(1).entry(psum) == replace(now, size_bytes=7, cost=Cost(1, 7, 0.5))
    assert as_of(1).entry(pmax) == as_of(3).entry(pmax)


def test_counters_apply_where_the_program_is_todays(third, psum, pmax):
    ppermute = next(cases.cases(Selection(operations=("ppermute",)), 4))
    assert [as_of(n).compiles_as_today(psum) for n in (1, 2, 3)] == [False, False, True]
    assert [as_of(n).compiles_as_today(pmax) for n in (1, 2, 3)] == [False, False, True]
    assert all(as_of(n).compiles_as_today(ppermute) for n in (1, 2, 3))


def test_an_older_version_lacks_the_cases_that_were_added(third):
    chosen = Selection("smoke", operations=("psum", "pmin"))
    found = {n: {case.operation.name for case in as_of(n).cases(chosen, 4)} for n in (1, 2)}
    assert found == {1: {"psum"}, 2: {"psum", "pmin"}}
    name = next(case.id for case in as_of(2).cases(chosen, 4) if case.operation.name == "pmin")
    assert as_of(2).find(name, 4).id == name
    with pytest.raises(SelectionError, match="version 1 of the case table has no case"):
        as_of(1).find(name, 4)


@pytest.mark.parametrize("version", [0, TABLE_VERSION + 1, "1", 1.0, True])
def test_an_unknown_version_is_one_clear_line(version):
    with pytest.raises(TableError, match=r"of the case table is unknown.*use the suite") as raised:
        as_of(version)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("case_id", "before", "since"),
    [
        ("reshard/from=x.y,to=y.x/auto/2x4/float32/4KiB", None, 26),
        ("shift_set/of=y.-,dim=0/manual/2x4/float32/4KiB", {"y": 512.0}, 28),
        ("pipeline_gradient/batch=x,stages=y/manual/2x4/float32/n8", {"y": 4096.0, "x": 256.0}, 27),
    ],
)
def test_a_version_has_the_theory_of_its_time(case_id, before, since):
    """A record of an older version may neither lack its theory nor invent one."""
    case = cases.find(case_id, 8)
    for version in (25, 26, 27):
        found = theory.by_axes(case, as_of(version).plan(case))
        assert (found == before) == (version < since), version
