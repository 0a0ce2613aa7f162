"""Levels: the frozen lists against the table, and the statement that records amount to."""

import json

import pytest

from harness import cases, cli, levels
from harness.levels import LevelError, Statement, digest, must_pass, packed, parted, statement, unpacked
from harness.records import read
from tests.submissions import DEVICES, facts, judged, level, run_line, write


def test_the_table_and_the_newest_list_are_one():
    """Where this fails, cases were added to or taken out of a level: `meshmark levels --write` freezes a new version,
    and the old one stays."""
    assert parted() == []


def test_the_lists_are_small_and_every_version_reads_back():
    files = [p for p in levels.DIRECTORY.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 300_000
    for version in levels.versions():
        found = levels.read(version)
        assert {level for level, _ in found} >= {"L0", "L1", "L2", "L3"}
        for n in levels.LISTED:
            assert all(found[level, n].cases for level in ("L0", "L1", "L2", "L3"))


def test_a_list_is_the_standard_profile_and_holds_nothing_optional():
    chosen = {c.id: c for c in cases.cases(cases.Selection(), 8)}
    listed = [name for level in levels.names() for name in must_pass(level, 8).cases]
    assert sorted(chosen) == sorted(listed)
    assert not any(case.cell.capabilities for case in chosen.values())


@pytest.mark.parametrize("devices", [1, 2, 6])
def test_packed_lists_unpack_to_the_same_cases(devices):
    for name in levels.names():
        ids = levels.by_rule(name, devices)
        assert sorted(unpacked(packed(ids))) == ids


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A directory of lists for 2 devices (by digest) and 4 (case by case)."""
    monkeypatch.setattr(levels, "DIGESTS", (2, 4))
    monkeypatch.setattr(levels, "LISTED", (4,))
    levels.write(tmp_path)
    yield tmp_path
    levels.read.cache_clear()


def changed(monkeypatch, change):
    """Another table: `change` takes (level, sorted ids) and gives the ids."""
    rule = levels.by_rule
    monkeypatch.setattr(levels, "by_rule", lambda level, n: sorted(change(level, rule(level, n))))


def test_a_case_that_comes_or_goes_parts_table_and_list(own, monkeypatch):
    assert parted(directory=own) == []
    new = "psum/axes=q/manual/2x2/float32/4KiB"
    changed(monkeypatch, lambda level, ids: [*ids, new] if level == "L1" else ids)
    found = parted(directory=own)
    assert len(found) == 2 and all(line.startswith("L1 on ") for line in found)
    assert f"+1 -0, such as {new}" in found[1]


def test_a_new_version_leaves_the_old_one(own, monkeypatch):
    with pytest.raises(LevelError, match="nothing to write"):
        levels.write(own)
    before = {p: p.read_bytes() for p in own.rglob("*.txt")}
    was = must_pass("L0", 4, directory=own)
    changed(monkeypatch, lambda level, ids: ids[1:])
    levels.write(own)
    assert levels.versions(own) == (1, 2)
    assert {p: p.read_bytes() for p in before} == before
    now = must_pass("L0", 4, directory=own)
    assert (now.version, len(now.cases)) == (2, len(was.cases) - 1)
    assert must_pass("L0", 4, 1, own).cases == was.cases
    with pytest.raises(LevelError, match="has parted from version 1 of L0 on 2 devices"):
        must_pass("L0", 2, 1, own)
    assert must_pass("L0", 2, 2, own).frozen


def test_a_list_that_was_edited_is_no_list(own):
    path = own / "v1" / "L0.txt"
    text = path.read_text()
    path.write_text(text.replace("float32:4KiB", "float32:8KiB", 1))
    levels.read.cache_clear()
    with pytest.raises(LevelError, match=r"L0\.txt: .* is not what follows it: restore"):
        must_pass("L0", 4, directory=own)
    path.write_text("nonsense\n" + text)
    with pytest.raises(LevelError, match="a line before"):
        must_pass("L0", 4, directory=own)


def test_other_numbers_of_devices_follow_the_rule():
    assert must_pass("L0", 12).frozen
    by_rule = must_pass("L0", 18)
    assert not by_rule.frozen and by_rule.sha256 == digest(by_rule.cases)
    for number in (0, 10**9):
        with pytest.raises(LevelError, match=f"no must-pass list for {number} devices"):
            must_pass("L0", number)
    with pytest.raises(LevelError, match="no version 99"):
        must_pass("L0", 4, 99)


# Statements -------------------------------------------------------------------------------------------------


def said(tmp_path, lines, name="r.jsonl") -> Statement:
    return statement(read(write(tmp_path / name, lines)))


@pytest.fixture(scope="module")
def whole():
    """Every line of L0 and L1 on four devices."""
    return [*level("L0"), *level("L1")[1:]]


def spoiled(lines, name, **fields):
    """The lines with other fields in the first line of the case."""
    first = next(i for i, r in enumerate(lines) if r.get("case") == name)
    return [*lines[:first], lines[first] | fields, *lines[first + 1 :]]


def first_of(level):
    return must_pass(level, DEVICES).cases[0]


def test_a_whole_run_meets_its_levels(tmp_path, whole):
    found = said(tmp_path, whole)
    number = len(must_pass("L0", 4).cases) + len(must_pass("L1", 4).cases)
    assert found.met == "L1"
    assert found.text == (
        f"L1 on 4 virtual CPU devices, JAX 0.12.0.1; must-pass list {levels.versions()[-1]}, {number} of {number} cases"
    )
    data = json.loads(json.dumps(found.to_json()))
    assert data["levels"]["L2"] == data["levels"]["L2"] | {"pass": 0, "known": 0, "unmet": {}}
    assert data["levels"]["L2"]["missing"] == data["levels"]["L2"]["cases"]


def test_real_devices_are_named(tmp_path, whole):
    real = facts(backend="gpu", device_kind="NVIDIA H200", virtual=False)
    assert said(tmp_path, [run_line(facts=real), *whole[1:]]).text.startswith(
        "L1 on 4 devices (NVIDIA H200), JAX"
    )


def test_known_issues_are_met_and_told(tmp_path, whole):
    a, b = must_pass("L1", DEVICES).cases[:2]
    lines = spoiled(whole, a, verdict="known", link="https://a", reason="slow | seen")
    lines = spoiled(lines, b, verdict="known", link="https://a", reason="slow | seen too")
    found = said(tmp_path, lines)
    assert found.met == "L1" and "JAX 0.12.0.1, 1 known issue in 2 cases; must-pass" in found.text
    assert "2 of them known issues" in found.lines()[2]


@pytest.mark.parametrize("verdict", ["unsupported", "not_run", "fail", "error", "crash", "hang"])
def test_any_other_verdict_does_not_meet_the_level(tmp_path, whole, verdict):
    name = first_of("L1")
    found = said(tmp_path, spoiled(whole, name, verdict=verdict))
    assert found.met == "L0"
    assert f"1 {verdict}, such as {name}" in found.lines()[2]


def test_a_level_needs_the_lower_ones(tmp_path, whole):
    found = said(tmp_path, spoiled(whole, first_of("L0"), verdict="fail"))
    assert found.met == "" and found.text.startswith("no level on 4 virtual CPU devices")
    assert found.standings[1].complete


def test_a_case_that_is_missing_or_not_closed(tmp_path, whole):
    name = first_of("L1")
    without = [r for r in whole if r.get("case") != name]
    torn = [{k: v for k, v in r.items() if k != "seconds"} if r.get("case") == name else r for r in whole]
    for lines in (without, torn):
        found = said(tmp_path, lines)
        assert found.met == "L0" and f"1 missing, such as {name}" in found.lines()[2]


def test_the_level_that_a_line_names_is_not_asked(tmp_path, whole):
    assert said(tmp_path, [r | {"level": "L3"} if "level" in r else r for r in whole]).met == "L1"


def test_several_files_are_one_statement_and_the_worst_verdict_counts(tmp_path, whole):
    a = read(write(tmp_path / "a.jsonl", whole))
    case = cases.find(first_of("L1"), DEVICES)
    again = [run_line("aaaaaaaaaaaa"), *(r | {"run": "aaaaaaaaaaaa"} for r in judged(case))]
    good = read(write(tmp_path / "b.jsonl", again))
    bad = read(write(tmp_path / "c.jsonl", [again[0], again[1] | {"verdict": "fail"}, *again[2:]]))
    assert statement([a, good]).met == "L1"
    assert statement([a, bad]).met == statement([bad, a]).met == "L0"


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"num_devices": 8}, "num_devices"),
        ({"device_kind": "x"}, "device_kind"),
        ({"versions": {"jax": "0.11.2"}}, "jax"),
    ],
)
def test_runs_that_differ_make_no_statement(tmp_path, whole, other, named):
    other_run = run_line("aaaaaaaaaaaa", facts=facts(**other))
    with pytest.raises(LevelError, match=f"the runs differ in {named}"):
        said(tmp_path, [*whole, other_run])


def test_compile_only_meets_no_level(tmp_path, whole):
    compiled = run_line(facts=facts(topology="v5e:2x2", backend="tpu", virtual=False))
    found = said(tmp_path, [compiled, *whole[1:]])
    assert (found.met, found.standings) == ("", ())
    assert found.lines() == [
        "no level on v5e:2x2, 4 devices that are not there, JAX 0.12.0.1: compile-only, nothing ran"
    ]


def test_a_list_by_rule_is_told_as_such(tmp_path):
    found = said(tmp_path, level("L0", 18))
    assert found.met == "L0" and " by rule (not frozen), " in found.text


def test_the_command(tmp_path, whole, capsys):
    path = write(tmp_path / "r.jsonl", whole)
    assert cli.main(["levels", str(path)]) == 0
    assert capsys.readouterr().out.startswith("L1 on 4 virtual CPU devices")
    assert cli.main(["levels", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["met"] == "L1"
    assert cli.main(["levels", str(write(tmp_path / "bad.jsonl", whole[:2]))]) == 1
    capsys.readouterr()
    assert cli.main(["levels", "--cases", "L0", "--num-devices", "4"]) == 0
    assert capsys.readouterr().out.splitlines() == list(must_pass("L0", 4).cases)
    assert cli.main(["levels"]) == 0
    assert "L0 on 8 devices: 129 cases, case by case" in capsys.readouterr().out
    for bad in (["--cases", "L9"], ["--check", "--write"], [str(path), "--list-version", "99"]):
        assert cli.main(["levels", *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
