# SPDX-License-Identifier: Apache-2.0
"""The reviewer: each kind of tampering is caught, and an honest bundle is not (tests.publish.tampering).

Files that do not belong together have tests of their own: a forger leaves them who does not make hashes, totals,
environment and statement again. test_validate_hostile tests hostile input.
"""

import gzip
import json
import re
from dataclasses import replace

import pytest

from meshmark.commands import main as cli
from meshmark.core.verdicts import CHECKS, VERDICTS
from meshmark.devices import chips
from meshmark.levels import counters, known_issues
from meshmark.levels import must_pass as levels
from meshmark.operations import cases
from meshmark.publish import against_table, origin, submit
from meshmark.publish.bundles import Bundle
from meshmark.publish.file_checks import DIRTY
from meshmark.publish.lines import as_records, schema_problem
from meshmark.publish.validate import check_product
from meshmark.records import definition, writing
from meshmark.records import schema as records_schema
from tests import submissions
from tests.checkout import ROOT
from tests.publish.tampering import (
    CASE,
    CATALOGUE,
    CONFORMANCE,
    KNOWN_AS,
    SPREAD,
    TIMING,
    added,
    complaints,
    facts_with,
    lacking,
    of_case,
    on_h200,
    product_with,
    samples,
    set_,
    suite,
    unpacked,
)
from tests.submissions import (
    RUN,
    facts,
    judged,
    level,
    lines_of,
    replaced,
    resealed,
    run_line,
    timed,
    timing,
    write,
)  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CATALOGUE)
def test_tampering_is_caught(honest, name):
    change, message = CATALOGUE[name]
    made = change(honest)
    assert {n: f.data for n, f in made.files.items()} != {n: f.data for n, f in honest.files.items()}
    found = complaints(resealed(made))
    assert any(re.search(message, text) for text in found), found
    assert all("\n" not in text and text.startswith("0.12.0.1/cpu-4") for text in found)


def test_complaints_name_file_and_line(honest):
    text = next(
        t for t in complaints(resealed(of_case("numbers", bits=None)(honest))) if "without `bits`" in t
    )
    lines = lines_of(honest, CONFORMANCE)
    number = 1 + next(i for i, r in enumerate(lines) if r.get("case") == CASE and r["check"] == "numbers")
    assert text.startswith(f"0.12.0.1/cpu-4/{CONFORMANCE}:{number}: ")


# Several processes ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """An accepted bundle of ten devices over two processes that claims no level: what takes several processes among
    it, a verdict by rank, a crash, a hang and a known issue of one rank."""
    lines = submissions.over(2, 10, "process_identity", "pmin")
    names = list(dict.fromkeys(r["case"] for r in lines[1:]))
    ends = {
        names[0]: {"verdict": "crash", "reason": "rank 1 ended: signal 9", "ended_rank": 1},
        names[1]: {
            "verdict": "hang",
            "reason": "past its deadline",
            "stacks": {"0": ["a:b:1"], "1": ["waits"]},
        },
        names[2]: {"verdict": "fail", "reason": "rank 1: 3 differ", "ranks": {"0": "pass", "1": "fail"}},
    }
    for name, line in ends.items():
        first = next(r for r in lines if r.get("case") == name)
        lines = [r for r in lines if r.get("case") != name]
        lines.append(first | {"check": "execute", "seconds": 0.0} | line)
    path = write(tmp_path_factory.mktemp("spread") / "a.jsonl", lines)
    made = submit.bundled([path], replace(submissions.WANTED, name="cpu-2x5-virtual", level=""))
    report = check_product(made)
    assert report.complaints == [] and report.statement.met == ""
    assert report.statement.text.startswith(
        "no level on 2 processes of 5 virtual CPU devices, JAX 0.12.0.1; "
    )
    return made


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SPREAD)
def test_tampering_with_processes_is_caught(spread, name):
    change, message = SPREAD[name]
    found = complaints(resealed(change(spread)))
    assert any(re.search(message, text) for text in found), found


def test_the_cases_of_many_processes_are_looked_up_together(spread, monkeypatch):
    monkeypatch.setattr(against_table, "MOST_SOUGHT", 0)
    assert complaints(spread) == []


def test_one_process_has_no_case_of_several(honest):
    case = cases.find("process_identity/plain/host/2x2/float32/4KiB", 4, 2)
    found = complaints(resealed(added(CONFORMANCE, *judged(case))(honest)))
    assert any("the table has no case process_identity/plain/host/2x2/float32/4KiB" in text for text in found)


def test_one_process_claims_no_level_of_several(honest):
    found = complaints(resealed(product_with(level="L4")(honest)))
    assert len(found) == 1 and "claims 'L4', which has no must-pass list for one process" in found[0]


def test_a_known_issue_of_several_processes_excuses_nothing_in_one(honest, spread, tmp_path, monkeypatch):
    """The same line, listed for several processes alone: let through there, refused here."""
    listed = tmp_path / "known.toml"
    listed.write_text(
        '[[issue]]\ncases = ["p*"]\nmodes = ["auto", "explicit", "manual", "manual-novma"]\n'
        'checks = ["numbers"]\njax = ">=0.10"\nbackends = ["cpu"]\nprocesses = true\n'
        f'link = "{KNOWN_AS}"\nwhy = "it is"\nexpires = "99"\nverdicts = ["fail"]\nsymptom = "differ"\n'
    )
    load = known_issues.load
    monkeypatch.setattr(
        known_issues, "load", lambda jax, backend, path, *rest: load(jax, backend, listed, *rest)
    )

    def excused(made):
        lines = lines_of(made, CONFORMANCE)
        number = next(
            i for i, r in enumerate(lines) if r.get("check") == "numbers" and r["operation"].startswith("p")
        )
        return resealed(
            set_(CONFORMANCE, number, verdict="known", was="fail", link=KNOWN_AS, reason="it is | 3 differ")(
                made
            )
        )

    assert complaints(excused(spread)) == []
    assert any("does not list for it" in text for text in complaints(excused(honest)))


def test_runs_of_one_and_of_several_processes_are_no_product(honest, spread):
    other = [r | {"run": "ffffffffffff"} for r in lines_of(spread, CONFORMANCE)]
    text = "".join(writing.dumps(line) + "\n" for line in other)
    mixed = replaced(honest, "conformance-2.jsonl.gz", gzip.compress(text.encode(), mtime=0))
    assert any("no level statement: the runs differ in num_" in text for text in complaints(resealed(mixed)))


# What a forger who does not reseal leaves behind -------------------------------------------------------------


def edited(made, name, change):
    found = json.loads(made.files[name].data)
    change(found)
    return replaced(made, name, json.dumps(found).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_(TIMING, 4, seed=1), "timing.jsonl.gz: SHA-256 or size is not the manifest's"),
        (product_with(by="someone else"), "product.yaml: SHA-256 or size"),
        (
            lambda m: edited(m, "environment.json", lambda e: e["runs"][0].update(seed=9)),
            "environment.json: not what the run lines say",
        ),
        (
            lambda m: edited(m, "manifest.json", lambda e: e["totals"]["verdicts"].update({"pass": 10**6})),
            "totals differ from the records in verdicts",
        ),
        (
            lambda m: edited(m, "manifest.json", lambda e: e.update(totals=3)),
            "has `totals`, which must be an object",
        ),
        (
            lambda m: edited(m, "manifest.json", lambda e: e["statement"].update(met="L3")),
            "the statement differs from the records in met; they say 'L0 on 4",
        ),
        (
            lambda m: edited(m, "manifest.json", lambda e: e.pop("totals")),
            "no manifest, because it must have 'totals'",
        ),
        (
            lambda m: edited(m, "manifest.json", lambda e: e.update(statement=None)),
            "has `statement`, which must be an",
        ),
        (
            lambda m: edited(m, "manifest.json", lambda e: e["files"][TIMING].update(bytes="9")),
            "has `bytes`, which must be a whole number",
        ),
        (lambda m: edited(m, "manifest.json", lambda e: e["statement"].update(list=99)), "no version 99"),
        (
            lambda m: edited(m, "manifest.json", lambda e: e["files"].pop(TIMING)),
            "timing.jsonl.gz: not in the manifest",
        ),
        (
            lambda m: edited(
                m, "manifest.json", lambda e: e["files"].update({"x.jsonl": {"sha256": "", "bytes": 0}})
            ),
            "names 'x.jsonl', which is missing",
        ),
        (lambda m: edited(m, "manifest.json", lambda e: e.update(schema=2)), "schema is not 1"),
        (lambda m: replaced(m, "manifest.json", b"[" * 100_000), "manifest.json: no manifest"),
        (lambda m: replaced(m, "manifest.json", b"\xff"), "manifest.json: no manifest"),
        (lambda m: replaced(m, "environment.json", b"\xff"), "environment.json: not strict JSON"),
        (lambda m: replaced(m, "product.yaml", b"a: &b c"), "product.yaml.*anchors"),
        (lacking("manifest.json"), "manifest.json: missing"),
        (lacking("product.yaml"), "product.yaml: missing"),
        (lacking("environment.json"), "environment.json: missing"),
        (lacking(".gz"), "no records"),
    ],
)
def test_files_that_do_not_belong_together(honest, change, message):
    found = complaints(change(honest))
    assert any(re.search(message, text) for text in found), found


# What is allowed --------------------------------------------------------------------------------------------


def test_a_mark_lets_through_what_it_says_and_strict_does_not(honest, tmp_path, capsys):
    dirty = suite(clean=False)(honest)
    marked = resealed(product_with(marks=[f"{DIRTY}: a local patch"])(dirty))
    report = check_product(marked)
    assert report.complaints == [] and f"marked: {DIRTY}: a local patch" in report.notes
    path = unpacked(marked, tmp_path)
    assert cli.main(["validate", str(path)]) == 0
    assert cli.main(["validate", str(path), "--strict"]) == 1
    assert "marked: dirty suite" in capsys.readouterr().out


def test_a_seed_that_somebody_chose_is_told(honest):
    """With enough seeds a case that fails now and then passes."""
    notes = {seed: check_product(resealed(set_(CONFORMANCE, 0, seed=seed)(honest))).notes for seed in (0, 7)}
    told = {seed: [text for text in found if "seed" in text] for seed, found in notes.items()}
    assert told[0] == [] and len(told[7]) == 1 and "of seed 7, and runs have seed 0" in told[7][0]


def test_a_command_names_the_main_branch_that_it_asks(honest, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(origin, "describe_reviewer", lambda: ["commits are looked up in main"])
    assert cli.main(["validate", str(unpacked(honest, tmp_path)), "--json"]) == 0
    said = capsys.readouterr()
    assert "commits are looked up in main" in said.err and json.loads(said.out)[0]["accepted"]


def test_a_note_explains_a_rate_above_the_peak(honest):
    change, _ = CATALOGUE["bandwidth above the peak"]
    noted = product_with(notes=[{"about": "peak", "text": "the switch adds up"}])(change(honest))
    assert not [text for text in complaints(resealed(noted)) if "peak" in text]


def test_a_note_does_not_explain_every_rate(honest):
    faster = on_h200(lambda r: r | {"samples_s": samples(3e-8)} if r["kind"] == "timing" else r)
    noted = product_with(notes=[{"about": "peak", "text": "the switch adds up"}])(faster(honest))
    assert any("a note explains a factor of 2 at most" in text for text in complaints(resealed(noted)))


def test_a_program_fits_into_the_memory_of_its_chip(honest):
    held = on_h200(lambda r: r | {"temp_bytes": 200 * 10**9} if r["kind"] == "timing" else r)(honest)
    text = "its arguments and temporaries take 2e.11 B, and a device of h200 has 1.551e.11 B at most"
    assert any(re.search(text, one) for one in complaints(resealed(held)))


def test_the_list_is_not_older_than_the_commit(honest, monkeypatch):
    newest = levels.versions()[-1]
    old = json.loads(honest.files["manifest.json"].data)
    read = [submissions.statements.statement(_records(honest, name), 1) for name in (CONFORMANCE,)]
    old["statement"] = read[0].to_json()
    made = replaced(honest, "manifest.json", json.dumps(old).encode())
    for lists, refused in ((0, False), (1, False), (newest, True)):
        monkeypatch.setattr(origin, "look_up", lambda _, n=lists: origin.Commit(origin.FIRST, "", lists=n))
        told = [text for text in check_product(made).complaints if "must-pass list" in text]
        assert bool(told) is refused
        assert not refused or f"must-pass list 1, and the commit that judged has list {newest}" in told[0]


def _records(made, name):
    return as_records(list(enumerate(lines_of(made, name), 1)))


def test_a_manifest_says_no_more_than_who_made_it(honest):
    said = json.loads(honest.files["manifest.json"].data) | {"made_by": "a laboratory that certifies"}
    made = replaced(honest, "manifest.json", json.dumps(said).encode())
    assert any("`made_by` is 'a laboratory" in text for text in check_product(made).complaints)


def test_a_published_run_is_not_dated_anew(honest, monkeypatch):
    before = {name: file.data for name, file in honest.files.items() if name.endswith(".gz")}
    monkeypatch.setattr(origin, "files_before", lambda place: before)
    assert check_product(honest).complaints == []
    for change, told in (
        (lambda r: r | {"started": "2026-11-21T10:00:00Z"} if r["kind"] == "run" else r, "another started"),
        (lambda r: r | {"run": r["run"][::-1]}, "took the same time, to the microsecond"),
    ):
        made = honest
        for name in (CONFORMANCE, TIMING):
            made = submissions.with_lines(made, name, [change(line) for line in lines_of(made, name)])
        assert any(told in text for text in complaints(resealed(made))), told


def test_products_that_are_submitted_together_are_not_copies(honest, tmp_path, capsys):
    unpacked(honest, tmp_path)
    other = product_with(name="mine")(honest)
    unpacked(resealed(Bundle(other.release, "mine", other.files)), tmp_path)
    assert cli.main(["validate", str(tmp_path)]) == 1
    assert "2 products, 1 refused" in capsys.readouterr().out


def test_a_rate_below_the_peak_is_no_complaint(tmp_path):
    made = submissions.bundle(tmp_path, wanted=replace(submissions.WANTED, name="h200-4"))
    assert complaints(resealed(on_h200()(made))) == []


def test_known_issues_that_are_listed_are_accepted(tmp_path):
    name = "all_gather/axes=x,dim=0,tiled/manual/4/float32/0B"
    case = cases.find(name, 4)
    line = case_lines_known(case)
    made = submissions.bundle(tmp_path, [*level(), line])
    report = check_product(made)
    assert report.complaints == [] and report.totals["verdicts"]["known"] == 1


def case_lines_known(case):
    """The one line of a case that does not lower, as the plugin writes it."""
    return submissions.case_head(case, 0, "conformance") | {
        "check": "execute", "verdict": "known", "was": "error",
        "reason": "it is | ValueError: Cannot lower jaxpr with verifier errors:",
        "link": "https://openxla.org/stablehlo/spec#all_gather", "seconds": 0.1, "run": RUN,
    }  # fmt: skip


def test_collectives_are_held_against_the_committed_counters(tmp_path):
    committed = counters.load("0.12.0.1", "cpu", 8)
    name = "psum/axes=x+y/manual/2x4/float32/4KiB"
    case = cases.find(name, 8)
    right = [{"kind": "all-reduce", "bytes": 4096, "groups": "1x8", "trips": 1}]
    assert counters.format_collectives(right) == committed[name]
    run = run_line(facts=facts(num_devices=8))
    for collectives, good in ((right, True), ([], False)):
        lines = judged(case)
        lines[0]["collectives"] = collectives
        path = write(tmp_path / f"{good}.jsonl", [run, *lines])
        made = submit.bundled([path], replace(submissions.WANTED, name="cpu-8", level=""))
        found = complaints(made)
        assert (found == []) is good
        assert good or "and the committed counters have '1 all-reduce 4096B 1x8'" in found[0]


def test_an_older_suite_may_have_other_cases(honest):
    extra = [r | {"case": CASE.replace("4KiB", "5KiB")} for r in judged(cases.find(CASE, 4))]
    made = added(CONFORMANCE, *extra)(honest)
    made = suite(version="0.0.9")(made)
    report = check_product(resealed(made))
    assert report.complaints == [] and any("not checked against it (suite 0.0.9)" in n for n in report.notes)
    fast = timing(samples_s=samples(1e-10)) | {"case": timing()["case"].replace("64KiB", "n5")}
    made = facts_with(TIMING, suite={**facts()["suite"], "version": "0.0.9"})(made)
    found = complaints(resealed(added(TIMING, fast)(made)))
    assert any("no program takes less than" in text for text in found)


# The schema -------------------------------------------------------------------------------------------------


def test_the_schema_is_one_and_says_what_the_reader_says():
    from jsonschema import Draft202012Validator

    schema = json.loads(records_schema.FILE.read_text())
    Draft202012Validator.check_schema(schema)
    assert tuple(schema["properties"]["kind"]["enum"]) == definition.KINDS
    assert tuple(schema["$defs"]["verdict"]["enum"]) == VERDICTS
    assert tuple(schema["$defs"]["check"]["enum"]) == CHECKS
    whole = Draft202012Validator(schema)
    lines = [*level(), *timed()]
    assert all(whole.is_valid(line) and not schema_problem(line) for line in lines)
    broken = [{k: v for k, v in line.items() if k != "run"} for line in lines[:3]]
    assert not any(whole.is_valid(line) for line in broken) and all(map(schema_problem, broken))


def test_published_records_fit_the_schema():
    files = sorted((ROOT / "results" / "compile-only").glob("*/*.jsonl"))
    assert files
    for path in files[:2]:
        for line in path.read_text().splitlines()[:50]:
            assert schema_problem(json.loads(line)) == ""


def test_every_kind_of_device_that_has_peaks_is_found():
    assert all(chips.chip_of(kind) for chip in chips.CHIPS.values() for kind in chip.device_kinds)
