# SPDX-License-Identifier: Apache-2.0
"""Levels: the frozen lists against the table, and the statement that records support."""

import json
import zlib

import pytest

from meshmark.commands import main as cli
from meshmark.levels import counters
from meshmark.levels import must_pass as levels
from meshmark.levels.must_pass import (
    LevelError,
    digest_case_ids,
    find_drift,
    must_pass,
    packed,
    unpacked,
)
from meshmark.levels.statements import Statement, statement
from meshmark.operations import cases
from meshmark.operations.selection import LEVELS, Selection
from meshmark.operations.versions import as_of
from meshmark.publish.lines import as_records
from meshmark.records import closing
from meshmark.records.reading import read_records
from tests.submissions import DEVICES, facts, judged, level, merged_line, over, run_line, write

FROZEN = 13
"""The version of the table of which the newest lists are."""


def test_the_table_and_the_newest_list_are_one():
    """Where this fails, cases were added to or taken out of a level: `meshmark levels --write` freezes a new version,
    and the old one stays. `meshmark levels --check` looks at every count of devices, which takes minutes."""
    places = {(1, 1), *((n, 1) for n in levels.LISTED), (64, 1), *levels.LISTED_OVER, (16, 2)}
    assert find_drift(places=places) == []
    assert levels.find_missing_levels() == () or levels.versions() == (1,), "version 1 is older than L4"


def test_the_lists_are_small_and_every_version_reads_back():
    files = [p for p in levels.DIRECTORY.rglob("*") if p.is_file()]
    packed = zlib.compress(b"".join(p.read_bytes() for p in sorted(files)), 9)
    assert len(packed) < 500_000, "they are part of the wheel, which is compressed"
    for version in levels.versions():
        found = levels.read_must_pass_lists(version)
        assert {level for level, _, _ in found} >= {"L0", "L1", "L2", "L3"}
        for n in levels.LISTED:
            assert all(found[level, n, 1].cases for level in ("L0", "L1", "L2", "L3"))
        if "L4" not in levels.find_missing_levels(version):
            assert all(found["L4", n, processes].cases for n, processes in levels.LISTED_OVER)


@pytest.mark.parametrize(("version", "table"), [(3, 2), (4, 11), (5, 12), (6, FROZEN)])
def test_a_list_is_the_standard_profile_and_holds_nothing_optional(version, table):
    chosen = {c.id: c for c in as_of(table).cases(Selection(), 8)}
    listed = [name for level in levels.names() for name in must_pass(level, 8, version).cases]
    assert sorted(chosen) == sorted(listed)
    assert not any(case.cell.capabilities for case in chosen.values())


def test_the_list_of_several_processes_is_all_of_the_standard_profile_over_them():
    chosen = {c.id: c for c in as_of(FROZEN).cases(Selection(processes=2), 8)}
    listed = must_pass("L4", 8, processes=2).cases
    assert sorted(chosen) == sorted(listed) and {c.level for c in chosen.values()} == {*LEVELS}
    assert any("-interleaved/" in name for name in listed) and any("process_" in name for name in listed)
    assert not any(case.cell.capabilities for case in chosen.values())
    assert set(must_pass("L4", 8, processes=4).cases) != set(listed)
    assert levels.names() == ("L0", "L1", "L2", "L3") and levels.names(2) == ("L4",)


@pytest.mark.parametrize(
    ("level", "devices", "processes", "message"),
    [
        ("L4", 8, 1, "L4 is for several processes: give their number"),
        ("L1", 8, 2, "L1 is for one process: use L4, the only list for several"),
        ("L4", 8, 3, "3 processes can't share 8 devices"),
        ("L4", 4, 8, "8 processes can't share 4 devices"),
    ],
)
def test_a_list_that_there_is_not(level, devices, processes, message):
    with pytest.raises(LevelError, match=message):
        must_pass(level, devices, processes=processes)


@pytest.mark.parametrize("devices", [1, 2, 6])
def test_packed_lists_unpack_to_the_same_cases(devices):
    lists = [levels.by_rule(name, devices) for name in levels.names()]
    for ids in [*lists, levels.by_rule("L4", 2 * devices, 2)]:
        assert sorted(unpacked(packed(ids))) == ids


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A directory of lists for 2 devices (by digest) and 4 (case by case), and for 2 and 4 over 2 processes."""
    monkeypatch.setattr(levels, "DIGESTS", (2, 4))
    monkeypatch.setattr(levels, "LISTED", (4,))
    monkeypatch.setattr(levels, "DIGESTS_OVER", ((2, 2), (4, 2)))
    monkeypatch.setattr(levels, "LISTED_OVER", ((4, 2),))
    levels.write_must_pass_lists(tmp_path)
    yield tmp_path
    levels.read_must_pass_lists.cache_clear()


def changed(monkeypatch, change):
    """Another table: `change` takes (level, sorted ids) and gives the ids."""
    rule = levels.by_rule
    monkeypatch.setattr(
        levels, "by_rule", lambda level, n, p=1, table=None: sorted(change(level, rule(level, n, p, table)))
    )


def test_a_case_that_comes_or_goes_parts_table_and_list(own, monkeypatch):
    assert find_drift(directory=own) == []
    new = "psum/axes=q/manual/2x2/float32/4KiB"
    changed(monkeypatch, lambda level, ids: [*ids, new] if level == "L1" else ids)
    found = find_drift(directory=own)
    assert len(found) == 2 and all(line.startswith("L1 on ") for line in found)
    assert f"+1 -0, such as {new}" in found[1]


@pytest.mark.parametrize(("devices", "processes"), [(1, 1), (8, 1), (8, 2)])
@pytest.mark.parametrize("ids", [["a"], ["a", "b"]])
def test_the_head_of_an_entry_can_be_read_again(devices, processes, ids):
    found = levels._HEAD.fullmatch(levels._head(devices, processes, ids))
    assert found and (int(found[1]), int(found[2] or 1), int(found[3])) == (devices, processes, len(ids))


def test_lists_of_an_older_table_hold_until_somebody_writes_todays(own, monkeypatch):
    rule, new = levels.by_rule, "psum/axes=q/manual/2x2/float32/4KiB"
    monkeypatch.setattr(
        levels,
        "by_rule",
        lambda level, n, p=1, table=None: sorted([*rule(level, n, p), *([new] if table is None else [])]),
    )
    assert find_drift(directory=own) == []
    assert levels.write_must_pass_lists(own).name == "v2"
    assert new in must_pass("L1", 4, directory=own).cases


def test_a_case_of_several_processes_parts_their_lists_alone(own, monkeypatch):
    new = "process_identity/plain/host/2x2-shuffled/float32/8KiB"
    changed(monkeypatch, lambda level, ids: [*ids, new] if level == "L4" else ids)
    found = find_drift(directory=own)
    assert [line.partition(":")[0] for line in found] == [
        "L4 on 2 devices over 2 processes",
        "L4 on 4 devices over 2 processes",
    ]
    assert f"+1 -0, such as {new}" in found[1]
    assert new not in must_pass("L4", 4, directory=own, processes=2).cases
    with pytest.raises(LevelError, match="has drifted from version 1 of L4 on 2 devices over 2 processes"):
        must_pass("L4", 2, directory=own, processes=2)


def test_a_version_that_is_older_than_a_level_goes_on_for_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(levels, "DIGESTS", (2, 4))
    monkeypatch.setattr(levels, "LISTED", (4,))
    monkeypatch.setattr(levels, "DIGESTS_OVER", ())
    levels.write_must_pass_lists(tmp_path)
    assert not (tmp_path / "v1" / "L4.txt").exists()
    monkeypatch.setattr(levels, "DIGESTS_OVER", ((4, 2),))
    monkeypatch.setattr(levels, "LISTED_OVER", ((4, 2),))
    assert (find_drift(directory=tmp_path), levels.find_missing_levels(directory=tmp_path)) == ([], ("L4",))
    by_rule = must_pass("L4", 4, directory=tmp_path, processes=2)
    assert not by_rule.frozen and by_rule.cases
    levels.write_must_pass_lists(tmp_path)
    assert (find_drift(directory=tmp_path), levels.find_missing_levels(directory=tmp_path)) == ([], ())
    frozen = must_pass("L4", 4, directory=tmp_path, processes=2)
    assert frozen.frozen and frozen.cases == by_rule.cases and frozen.version == 2
    text = (tmp_path / "v2" / "L4.txt").read_text()
    assert f"\ndevices 4 over 2 processes: {len(frozen.cases)} cases, sha256 {frozen.sha256}\n" in text
    assert must_pass("L0", 4, 1, tmp_path).cases == must_pass("L0", 4, 2, tmp_path).cases
    with pytest.raises(LevelError, match="nothing to write"):
        levels.write_must_pass_lists(tmp_path)


def test_a_new_version_leaves_the_old_one(own, monkeypatch):
    with pytest.raises(LevelError, match="nothing to write"):
        levels.write_must_pass_lists(own)
    before = {p: p.read_bytes() for p in own.rglob("*.txt")}
    was = must_pass("L0", 4, directory=own)
    changed(monkeypatch, lambda level, ids: ids[1:])
    levels.write_must_pass_lists(own)
    assert levels.versions(own) == (1, 2)
    assert {p: p.read_bytes() for p in before} == before
    now = must_pass("L0", 4, directory=own)
    assert (now.version, len(now.cases)) == (2, len(was.cases) - 1)
    assert must_pass("L0", 4, 1, own).cases == was.cases
    with pytest.raises(LevelError, match="has drifted from version 1 of L0 on 2 devices"):
        must_pass("L0", 2, 1, own)
    assert must_pass("L0", 2, 2, own).frozen


def test_a_list_that_was_edited_is_no_list(own):
    path = own / "v1" / "L0.txt"
    text = path.read_text()
    path.write_text(text.replace("float32:4KiB", "float32:8KiB", 1))
    levels.read_must_pass_lists.cache_clear()
    with pytest.raises(LevelError, match=r"L0\.txt: .* does not match the lines below it: restore"):
        must_pass("L0", 4, directory=own)
    path.write_text("nonsense\n" + text)
    with pytest.raises(LevelError, match="a line before"):
        must_pass("L0", 4, directory=own)


def test_other_numbers_of_devices_follow_the_rule():
    assert must_pass("L0", 12).frozen
    by_rule = must_pass("L0", 18)
    assert not by_rule.frozen and by_rule.sha256 == digest_case_ids(by_rule.cases)
    for number in (0, 10**9):
        with pytest.raises(LevelError, match=f"no must-pass list for {number} devices"):
            must_pass("L0", number)
    with pytest.raises(LevelError, match="no version 99"):
        must_pass("L0", 4, 99)


# Statements -------------------------------------------------------------------------------------------------


def said(lines) -> Statement:
    """The statement of these lines. Tests of several files and of the command write and read them."""
    return statement(as_records(list(enumerate(lines, 1))))


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


def test_a_whole_run_meets_its_levels(whole):
    found = said(whole)
    number = len(must_pass("L0", 4).cases) + len(must_pass("L1", 4).cases)
    assert found.met == "L1"
    assert found.text == (
        f"L1 on 4 virtual CPU devices, JAX 0.12.0.1; must-pass list {levels.versions()[-1]}, {number} of {number} cases"
    )
    data = json.loads(json.dumps(found.to_json()))
    assert data["levels"]["L2"] == data["levels"]["L2"] | {"pass": 0, "known": 0, "unmet": {}}
    assert data["levels"]["L2"]["missing"] == data["levels"]["L2"]["cases"]


def test_real_devices_are_named(whole):
    real = facts(backend="gpu", device_kind="NVIDIA H200", virtual=False)
    assert said([run_line(facts=real), *whole[1:]]).text.startswith("L1 on 4 devices (NVIDIA H200), JAX")


def test_known_issues_are_met_and_told(whole):
    a, b = must_pass("L1", DEVICES).cases[:2]
    lines = spoiled(whole, a, verdict="known", link="https://a", reason="slow | seen")
    lines = spoiled(lines, b, verdict="known", link="https://a", reason="slow | seen too")
    found = said(lines)
    assert found.met == "L1" and "JAX 0.12.0.1, 1 known issue in 2 cases; must-pass" in found.text
    assert "2 of them known issues" in found.lines()[2]


@pytest.mark.parametrize("verdict", ["unsupported", "not_run", "fail", "error", "crash", "hang"])
def test_any_other_verdict_does_not_meet_the_level(whole, verdict):
    name = first_of("L1")
    found = said(spoiled(whole, name, verdict=verdict))
    assert found.met == "L0"
    assert f"1 {verdict}, such as {name}" in found.lines()[2]


def test_a_level_needs_the_lower_ones(whole):
    found = said(spoiled(whole, first_of("L0"), verdict="fail"))
    assert found.met == "" and found.text.startswith("no level on 4 virtual CPU devices")
    assert found.standings[1].complete


def test_a_case_that_is_missing_or_not_closed(whole):
    name = first_of("L1")
    without = [r for r in whole if r.get("case") != name]
    torn = [{k: v for k, v in r.items() if k != "seconds"} if r.get("case") == name else r for r in whole]
    for lines in (without, torn):
        found = said(lines)
        assert found.met == "L0" and f"1 missing, such as {name}" in found.lines()[2]


def test_the_level_that_a_line_names_is_not_asked(whole):
    assert said([r | {"level": "L3"} if "level" in r else r for r in whole]).met == "L1"


def test_several_files_are_one_statement_and_the_worst_verdict_counts(tmp_path, whole):
    a = read_records(write(tmp_path / "a.jsonl", whole))
    case = cases.find(first_of("L1"), DEVICES)
    again = [run_line("aaaaaaaaaaaa"), *(r | {"run": "aaaaaaaaaaaa"} for r in judged(case))]
    good = read_records(write(tmp_path / "b.jsonl", again))
    bad = read_records(write(tmp_path / "c.jsonl", [again[0], again[1] | {"verdict": "fail"}, *again[2:]]))
    assert statement([a, good]).met == "L1"
    assert statement([a, bad]).met == statement([bad, a]).met == "L0"


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"num_devices": 8}, "num_devices"),
        ({"device_kind": "x"}, "device_kind"),
        ({"versions": {"jax": "0.11.2"}}, "jax"),
        ({"num_processes": 2}, r"num_processes \('1' and '2'\)"),
    ],
)
def test_runs_that_differ_make_no_statement(whole, other, named):
    other_run = run_line("aaaaaaaaaaaa", facts=facts(**other))
    with pytest.raises(LevelError, match=f"the runs differ in {named}"):
        said([*whole, other_run])


@pytest.mark.parametrize(
    ("told", "change"),
    {
        "suite commit": {"suite": facts()["suite"] | {"commit": "f" * 40}},
        "suite clean": {"suite": facts()["suite"] | {"clean": False}},
        "flags.XLA_FLAGS": {"flags": facts()["flags"] | {"XLA_FLAGS": "--x"}},
        "versions.python": {"versions": facts()["versions"] | {"python": "3.13.0"}},
        "host.cores": {"host": facts()["host"] | {"cores": 64}},
    }.items(),
)
def test_failing_cases_that_are_judged_again_elsewhere_make_no_statement(whole, told, change):
    """Their lines are taken out, and another environment's stand in for them."""
    name = first_of("L1")
    kept = [line for line in whole if line.get("case") != name]
    again = [line | {"run": "b" * 12} for line in whole if line.get("case") == name]
    other = run_line("b" * 12, facts=facts() | change)
    with pytest.raises(LevelError, match=f"the runs differ in {told}"):
        said([*kept, other, *again])


def test_one_run_meets_a_level_and_a_resumed_one_is_one(whole):
    name = first_of("L1")
    kept = [line for line in whole if line.get("case") != name]
    again = [line | {"run": "b" * 12} for line in whole if line.get("case") == name]
    resumed = run_line("b" * 12, started="2026-11-20T11:00:00Z")
    assert said([*kept, resumed, *again]).met == "L1"
    chosen = run_line("b" * 12, selection={"profile": "standard", "operations": ["psum"]})
    found = said([*kept, chosen, *again])
    assert found.met == "L0" and found.standings[1].missing == (name,)


def test_compile_only_meets_no_level(whole):
    compiled = run_line(facts=facts(topology="v5e:2x2", backend="tpu", virtual=False))
    found = said([compiled, *whole[1:]])
    assert (found.met, found.standings) == ("", ())
    assert found.lines() == ["no level on v5e:2x2 (4 devices), JAX 0.12.0.1: compile-only, nothing ran"]


def test_what_is_interpreted_is_named_beside_its_level_and_meets_none():
    def line(name, check, verdict, **more):
        return (
            judged(cases.find(name, 4))[0]
            | {"case": f"{name}@v5e:2x2", "check": check, "verdict": verdict}
            | more
        )

    compiled = run_line(facts=facts(topology="v5e:2x2", backend="tpu", virtual=False))
    names = ["psum/axes=x+y/manual/2x2/float32/4KiB", "psum/axes=x+y/auto/2x2/float32/4KiB"]
    mark, reason = {"interpreted": True, "seconds": 1.0}, {"reason": "nothing can run"}
    lines = [line(name, "execute", "not_run", **reason) for name in names]
    lines += [
        line(names[0], "numbers", "pass", **mark),
        line(names[1], "numbers", "not_run", **mark, **reason),
    ]
    found = said([compiled, *lines])
    assert found.met == "" and found.text.endswith("compile-only, nothing ran")
    of = {one.level: one for one in found.interpreted}
    assert (of["L1"].passed, of["L0"].passed) == (1, 0)
    assert of["L1"].missing == of["L1"].cases - 2 > 10
    assert any(text.startswith("  L1 (interpreted): numbers of 1 of ") for text in found.lines())


# Several processes ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both():
    """Every line of the standard profile on two devices over two processes."""
    return over(2, 2)


def test_a_run_over_processes_makes_a_statement_of_l4_alone(both):
    found = said(both)
    number = len(must_pass("L4", 2, processes=2).cases)
    rule = "" if must_pass("L4", 2, processes=2).frozen else " by rule (not frozen)"
    assert [s.must.level for s in found.standings] == ["L4"] and found.met == "L4"
    assert found.text == (
        "L4 on 2 processes of 1 virtual CPU device, JAX 0.12.0.1; must-pass list"
        f" {levels.versions()[-1]}{rule}, {number} of {number} cases"
    )
    assert found.to_json()["processes"] == 2


def test_l4_wants_what_takes_several_processes_and_what_one_has(both):
    for part, lacks in (("process_identity/", True), ("psum/", True), ("nothing/", False)):
        found = said([r for r in both if not r.get("case", "").startswith(part)])
        assert (found.met == "") is lacks
        if lacks:
            assert found.text.startswith("no level on 2 processes of 1 virtual CPU device, JAX 0.12.0.1;")
            assert f"missing, such as {part}" in found.lines()[1]


def test_a_run_of_one_process_has_no_part_in_l4(whole):
    found = said(whole)
    assert [s.must.level for s in found.standings] == ["L0", "L1", "L2", "L3"]
    assert "processes" not in found.text and "processes" not in found.to_json()


def test_known_issues_of_several_processes_are_told_and_real_devices_named(both):
    real = facts(num_devices=2, num_processes=2, backend="gpu", device_kind="NVIDIA H200", virtual=False)
    name = must_pass("L4", 2, processes=2).cases[0]
    lines = [both[0] | {"facts": real}, *both[1:]]
    found = said(spoiled(lines, name, verdict="known", link="https://a", reason="slow"))
    assert found.text.startswith(
        "L4 on 2 processes of 1 device (NVIDIA H200), JAX 0.12.0.1, 1 known issue in 1 case;"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 1}, "records of rank 1 alone: use the merged file"),
        ({"ranks": 3}, "without the results of all of them"),
        ({"ranks": None}, "without the results of all of them"),
    ],
)
def test_what_not_all_ranks_found_makes_no_statement(change, message):
    run = {k: v for k, v in (merged_line(2, 2) | change).items() if v is not None}
    case = cases.find("psum/axes=x/manual/2/float32/4KiB", 2, 2)
    with pytest.raises(LevelError, match=message):
        said([run, *judged(case)])


def test_the_hosts_of_a_topology_are_no_processes_of_a_run():
    compiled = run_line(facts=facts(num_processes=2, topology="v5e:2x2", backend="tpu", virtual=False))
    lines = [compiled, *judged(cases.find("psum/axes=x+y/manual/2x2/float32/4KiB", 4))]
    assert said(lines).text.startswith("no level on v5e:2x2 (4 devices), ")


def test_counters_of_so_many_devices_are_those_of_one_process(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(counters, "DIRECTORY", tmp_path / "counters")
    name = "psum/axes=x/manual/2/float32/4KiB"
    for processes, code in ((2, 2), (1, 0)):
        run = merged_line(2, 2) if processes == 2 else run_line(facts=facts(num_devices=2))
        path = write(tmp_path / f"{processes}.jsonl", [run, *judged(cases.find(name, 2, processes))])
        assert cli.main(["counters", str(path)]) == code
        assert list(tmp_path.glob("counters/*")) == (
            [tmp_path / "counters" / "0.12.0.1-cpu-2.tsv"] if code == 0 else []
        )
    assert (
        "is a run over several processes: counters are made from a run of one process"
        in capsys.readouterr().err
    )


def test_the_command_over_processes(tmp_path, both, capsys):
    assert cli.main(["levels", "--cases", "L4", "--num-devices", "2", "--processes", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == list(must_pass("L4", 2, processes=2).cases)
    assert cli.main(["levels", str(write(tmp_path / "r.jsonl", both))]) == 0
    assert capsys.readouterr().out.startswith("L4 on 2 processes of 1 virtual CPU device, ")
    for bad in (["--cases", "L4"], ["--cases", "L0", "--processes", "2"]):
        assert cli.main(["levels", *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_check_tells_of_a_level_without_lists(own, monkeypatch, capsys):
    monkeypatch.setattr(levels, "find_missing_levels", lambda version=None: ("L4",))
    monkeypatch.setattr(levels, "find_drift", lambda version=None: [])
    assert cli.main(["levels", "--check"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "L4: in no list yet"


def test_a_list_by_rule_is_told_as_such():
    found = said(level("L0", 18))
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
    assert "L0 on 8 devices: 145 cases, case by case" in capsys.readouterr().out
    for bad in (["--cases", "L9"], ["--check", "--write"], [str(path), "--list-version", "99"]):
        assert cli.main(["levels", *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_lost_a_line_makes_no_clean_statement(tmp_path, capsys):
    """What can't be read may be the line of a failure: without it the case passes."""
    lines = level()
    path = write(tmp_path / "r.jsonl", lines)
    assert cli.main(["levels", str(path)]) == 0
    text = path.read_text().splitlines()
    at = next(i for i, line in enumerate(text) if '"check":"replicas"' in line)
    text[at] = text[at].replace('"verdict":"pass"', '"verdict":"fial"')
    path.write_text("\n".join(text) + "\n")
    capsys.readouterr()
    assert cli.main(["levels", str(path)]) == 2
    assert f"r.jsonl:{at + 1}: not a record: `verdict` is unknown: 'fial'" in capsys.readouterr().err


def test_a_statement_names_what_is_not_as_jax_comes():
    lines = level()
    lines[0]["facts"]["surroundings"] = {"jax_default_matmul_precision": "float32"}
    lines[0]["facts"]["flags"]["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=true"
    text = said(lines).text
    told = "jax_default_matmul_precision = float32, XLA_FLAGS = --xla_cpu_enable_fast_math=true"
    assert text.startswith(f"L0 on 4 virtual CPU devices, JAX 0.12.0.1 with {told}; must-pass list")


def test_what_is_red_beside_the_lists_is_named(tmp_path, whole, capsys):
    """A level is met without it, and nobody should take the run for a green one."""
    red = [line | {"case": line["case"].replace("/4KiB", "/5KiB")} for line in whole if "case" in line][:1]
    lines = [*whole, red[0] | {"verdict": "crash", "reason": "SIGSEGV", "seconds": 1.0}]
    path = write(tmp_path / "r.jsonl", lines)
    assert cli.main(["levels", str(path)]) == 0
    told = capsys.readouterr().err
    assert (
        f"1 cases that no must-pass list asks for have a bad verdict, such as {red[0]['case']} (crash)"
        in told
    )


def test_an_exit_code_that_no_verdict_explains_is_named(tmp_path, whole, capsys):
    lines = [whole[0] | closing.CLOSES, *whole[1:]]
    lines.insert(
        1, closing.make_chosen_line({r["case"] for r in whole if "case" in r}) | {"run": whole[0]["run"]}
    )
    account = closing.Account()
    for line in lines:
        account.add(line)
    path = write(tmp_path / "r.jsonl", [*lines, account.end(1) | {"run": whole[0]["run"]}])
    assert cli.main(["levels", str(path)]) == 0
    assert "ended with exit code 1, and no case has a bad verdict" in capsys.readouterr().err
