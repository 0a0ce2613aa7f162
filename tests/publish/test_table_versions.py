# SPDX-License-Identifier: Apache-2.0
"""Records are compared with the version of the case table that their run line names."""

import re
from dataclasses import replace

import pytest

from meshmark.levels import counters, must_pass
from meshmark.levels.must_pass import LevelError
from meshmark.levels.statements import statement
from meshmark.operations import cases, versions
from meshmark.operations.versions import CHANGES, TableChange
from meshmark.publish import submit
from meshmark.publish.validate import check_product
from meshmark.records.reading import Records
from tests import submissions
from tests.submissions import facts, judged, level, resealed, run_line, timed, timing, with_lines

TIMING = "timing.jsonl.gz"
NEXT = versions.TABLE_VERSION + 1


@pytest.fixture
def second(monkeypatch):
    """A table with one more version and no other. It mended the factor of psum, which was three times as large."""

    def with_old_factor(case, entry):
        if case.operation.name != "psum":
            return entry
        return replace(entry, cost=replace(entry.cost, factor=3 * entry.cost.factor))

    monkeypatch.setattr(versions, "TABLE_VERSION", NEXT)
    for number in range(2, NEXT):
        monkeypatch.setitem(CHANGES, number, TableChange("nothing"))
    monkeypatch.setitem(CHANGES, NEXT, TableChange("psum: the factor", entry=with_old_factor))


def product(tmp_path, version, factor=1.0):
    """What is wrong with a product whose timings name this version of the table, and have so many times today's factor;
    None: a run line without a version."""
    lines = []
    for line in timed():
        if line["kind"] == "run":
            own = line["facts"] | {"suite": line["facts"]["suite"] | {"commit": submissions.ANOTHER}}
            line = {k: v for k, v in (line | {"table": version, "facts": own}).items() if v is not None}
        if line["kind"] == "timing":
            line = line | {"cost": line["cost"] | {"factor": factor * line["cost"]["factor"]}}
        lines.append(line)
    return check_product(resealed(with_lines(submissions.bundle(tmp_path), TIMING, lines))).complaints


@pytest.mark.parametrize(
    ("version", "factor", "good"),
    [
        (None, 3.0, True),
        (NEXT - 1, 3.0, True),
        (NEXT, 1.0, True),
        (None, 1.0, False),
        (NEXT - 1, 1.0, False),
        (NEXT, 3.0, False),
    ],
)
def test_costs_are_those_of_the_version(tmp_path, second, version, factor, good):
    found = product(tmp_path, version, factor)
    assert (found == []) is good, found
    assert good or all(re.search(r"cost factor is [\d.]+ in the table, not", text) for text in found)


def test_a_newer_version_than_this_suite_knows_is_refused(tmp_path):
    [text] = product(tmp_path, versions.TABLE_VERSION + 1)
    number = versions.TABLE_VERSION + 1
    assert text.startswith(f"0.12.0.1/cpu-4/{TIMING}:1: version {number} of the case table is unknown")
    assert "use the suite that wrote the records, or a newer one" in text


def test_a_version_that_is_none_is_refused_by_the_schema(tmp_path):
    for version in (0, "1", 1.5):
        assert any("schema: table: " in text for text in product(tmp_path, version))


def test_counters_are_not_held_against_an_older_program(tmp_path, monkeypatch):
    """Committed counters are of today's programs, so that a record of an older version may have others."""
    name = "psum/axes=x+y/manual/2x4/float32/4KiB"
    lines = judged(cases.find(name, 8))
    assert name in counters.load("0.12.0.1", "cpu", 8)
    lines[0] |= {"collectives": [], "wire_bytes": 0.0}
    monkeypatch.setattr(versions, "TABLE_VERSION", 2)
    for recompiled in (False, True):
        monkeypatch.setitem(CHANGES, 2, TableChange("psum", recompiled=lambda case, found=recompiled: found))
        for version in (1, 2):
            run = run_line(facts=facts(num_devices=8), table=version)
            path = submissions.write(tmp_path / f"{recompiled}{version}.jsonl", [run, *lines])
            found = check_product(
                submit.bundled([path], replace(submissions.WANTED, name="cpu-8", level=""))
            ).complaints
            assert (found == []) is (recompiled and version == 1), found


# Levels -----------------------------------------------------------------------------------------------------


def records(*files):
    """Each list of lines as the records of one file."""
    found = [Records() for _ in files]
    for one, lines in zip(found, files, strict=True):
        for line in lines:
            one.add(line)
    return found


def as_of(version, lines):
    return [line | {"table": version} if line["kind"] == "run" else line for line in lines]


def test_a_level_list_that_is_kept_as_a_digest_is_that_of_the_version_that_gives_it(monkeypatch):
    was = must_pass.must_pass("L0", 5)
    assert was.frozen and not must_pass.read_must_pass_lists(was.version)["L0", 5, 1].cases
    frozen = versions.TABLE_VERSION
    monkeypatch.setattr(versions, "TABLE_VERSION", frozen + 1)
    gone = {was.cases[0]}
    monkeypatch.setitem(CHANGES, frozen + 1, TableChange("a case", new=lambda case: case.id in gone))
    assert must_pass.must_pass("L0", 5, table=frozen) == must_pass.must_pass("L0", 5) == was
    monkeypatch.setitem(CHANGES, frozen + 1, TableChange("nothing"))
    real = must_pass.by_rule

    def mended(level, devices, processes=1, table=None):
        found = real(level, devices, processes, table)
        return found if table == frozen else [*found, "new"]

    monkeypatch.setattr(must_pass, "by_rule", mended)
    assert must_pass.must_pass("L0", 5) == was
    monkeypatch.setattr(must_pass, "by_rule", lambda *_: ["new"])
    with pytest.raises(LevelError, match="the case table has drifted from version"):
        must_pass.must_pass("L0", 5)


def test_a_statement_follows_the_rule_of_the_runs_version(monkeypatch):
    """17 devices have no frozen list: the statement asks the rule, as of the version that the run names."""
    lines = level("L0", 17)
    dropped = lines[-1]["case"]
    kept = [line for line in lines if line.get("case") != dropped]
    monkeypatch.setattr(versions, "TABLE_VERSION", 2)
    monkeypatch.setitem(CHANGES, 2, TableChange("one more case", new=lambda case: case.id == dropped))
    assert statement(records(as_of(1, kept))).met == "L0"
    assert statement(records(as_of(2, kept))).met == ""
    assert statement(records(as_of(2, lines))).met == "L0"


def test_a_statement_is_of_one_known_version(monkeypatch):
    lines = level("L0", 4)
    with pytest.raises(LevelError, match=f"version {NEXT} of the case table is unknown"):
        statement(records(as_of(NEXT, lines)))
    other = [run_line("ba9876543210", table=2), *judged(cases.find(lines[1]["case"], 4), "ba9876543210")]
    with pytest.raises(LevelError, match="the runs are of versions 1, 2 of the case table"):
        statement(records(as_of(1, lines), other))
    timings = [run_line("ba9876543210", table=2), timing(run="ba9876543210")]
    assert statement(records(as_of(1, lines), timings)).met == "L0"
