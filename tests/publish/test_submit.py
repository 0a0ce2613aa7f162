# SPDX-License-Identifier: Apache-2.0
"""Making bundles: refusals, marks, cleaning; and the same records give the same bytes."""

import copy
import gzip
import json
import re
import tarfile
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.commands import main as cli
from meshmark.levels import must_pass as levels
from meshmark.publish import publishable, submit, validate
from meshmark.publish.submit import SubmitError, SubmitRefused, make
from meshmark.records import results
from meshmark.records.reading import read_records
from tests.submissions import COMMIT, WANTED, facts, level, merged_line, over, run_line, timed, timing, write


@pytest.fixture(scope="module")
def lines():
    return level()


@pytest.fixture
def files(tmp_path, lines):
    return [write(tmp_path / "a.jsonl", lines), write(tmp_path / "b.jsonl", timed())]


def test_a_bundle_stands_in_the_layout_of_results(tmp_path, files):
    made = make(files, WANTED, tmp_path / "out", archive=True)
    assert made.path == tmp_path / "out" / "0.12.0.1" / "cpu-4"
    names = ["conformance.jsonl.gz", "environment.json", "manifest.json", "product.yaml", "timing.jsonl.gz"]
    assert sorted(p.name for p in made.path.iterdir()) == names
    [product] = results.find_products(tmp_path / "out")
    assert (product.release, product.name, product.product["level"]) == ("0.12.0.1", "cpu-4", "L0")
    assert product.product["command"] == (
        "meshmark test --profile standard --num-devices 4 --record records.jsonl;"
        " meshmark bench --profile quick --modes manual,auto --cadence isolated,stream --seconds 0.03 --num-devices 4"
        " --record records.jsonl"
    )
    conformance, timings = product.read()
    assert (
        conformance.cases == read_records(files[0]).cases
        and timings.timings == read_records(files[1]).timings
    )
    manifest = json.loads((made.path / "manifest.json").read_bytes())
    assert manifest["statement"]["text"].startswith(
        "L0 on 4 virtual CPU devices, JAX 0.12.0.1; must-pass list"
    )
    assert manifest["totals"]["verdicts"] == {"pass": len(conformance.cases)}
    environment = json.loads((made.path / "environment.json").read_bytes())
    assert environment["runs"][0]["facts"] == facts()
    with tarfile.open(made.archive) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == [f"0.12.0.1/cpu-4/{name}" for name in names]
    assert {(m.uid, m.uname, m.mtime) for m in members} == {(0, "", 0)}


def test_the_same_records_give_the_same_bytes(tmp_path, files):
    packed = []
    for name in ("x", "y"):
        make(files, WANTED, tmp_path / name, archive=True)
        packed.append((tmp_path / name / "cpu-4-0.12.0.1.tar.gz").read_bytes())
    assert packed[0] == packed[1]


def test_packed_records_are_taken_too(tmp_path, lines):
    plain = write(tmp_path / "a.jsonl", lines)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    made = make([tmp_path / "c.jsonl.gz"], WANTED, tmp_path / "out")
    assert read_records(made.path / "conformance.jsonl.gz").cases == read_records(plain).cases


def test_nothing_is_overwritten_and_nothing_is_left_behind(tmp_path, files):
    made = make(files, WANTED, tmp_path / "out")
    before = {p: p.read_bytes() for p in made.path.iterdir()}
    with pytest.raises(SubmitError, match="exists: results are never overwritten"):
        make(files, WANTED, tmp_path / "out")
    assert {p: p.read_bytes() for p in made.path.iterdir()} == before
    assert [p.name for p in (tmp_path / "out" / "0.12.0.1").iterdir()] == ["cpu-4"]
    (tmp_path / "file").write_text("")
    with pytest.raises(SubmitError, match="can't write"):
        make(files, WANTED, tmp_path / "file")


@pytest.mark.parametrize(
    "suite",
    [
        {"version": "0.1.0", "commit": COMMIT, "clean": False},
        {"version": "0.1.0", "commit": COMMIT, "clean": None},
        {"version": "0.1.0", "commit": None, "clean": None},
    ],
)
def test_a_dirty_suite_is_refused_or_marked(tmp_path, lines, suite):
    path = write(tmp_path / "a.jsonl", [run_line(facts=facts(suite=suite)), *lines[1:]])
    with pytest.raises(SubmitRefused, match="run again from a clean checkout"):
        make([path], WANTED, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    made = make([path], replace(WANTED, mark=True), tmp_path / "out")
    [mark] = results.read_product(made.path / "product.yaml")["marks"]
    assert mark.startswith("dirty suite: 1 of 1 runs")


def test_a_level_that_is_not_met_is_refused_or_marked(tmp_path, lines):
    gone = lines[1]["case"]
    path = write(tmp_path / "a.jsonl", [r for r in lines if r.get("case") != gone])
    for wanted, message in (
        (WANTED, f"no level is met .*1 missing, such as {gone}"),
        (replace(WANTED, level="L0"), f"L0 is claimed and not met: .*1 missing, such as {gone}"),
    ):
        with pytest.raises(SubmitRefused, match=message):
            make([path], wanted, tmp_path / "out")
    made = make([path], replace(WANTED, level=""), tmp_path / "none")
    assert "level" not in results.read_product(made.path / "product.yaml")
    made = make([path], replace(WANTED, level="L0", mark=True), tmp_path / "marked")
    product = results.read_product(made.path / "product.yaml")
    assert product["level"] == "L0" and product["marks"][0].startswith("level not met: L0 is claimed")
    with pytest.raises(SubmitError, match="no level 'gold'"):
        make([path], replace(WANTED, level="gold"), tmp_path / "gold")


def test_timings_alone_claim_nothing(tmp_path):
    made = make([write(tmp_path / "b.jsonl", timed())], WANTED, tmp_path / "out")
    product = results.read_product(made.path / "product.yaml")
    assert "level" not in product and product["marks"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-30], r"a\.jsonl:\d+: the last line is cut off"),
        (lambda text: text + "{}\n", "not a record: `kind` must be one of"),
        (lambda text: text.replace('"seed":0', '"seed":NaN', 1), "not strict JSON"),
        (lambda text: text.replace('"verdict":"pass"', '"verdict":"great"', 1), "schema: verdict"),
        (lambda text: text.split("\n", 1)[1], "has no run line above"),
        (lambda text: text.split("\n", 1)[0] + "\n", "nothing but run lines"),
        (
            lambda text: re.sub(r',"seconds":[0-9.]+', "", text, count=1),
            "not judged to the end: continue the run",
        ),
        (
            lambda text: text.replace('"topology":""', '"topology":"v5e:2x2"', 1),
            "belong in results/compile-only",
        ),
        (lambda text: text.replace('"jax":"0.12.0.1"', '"jax":"nightly"', 1), "not a release"),
        (lambda text: "", "nothing but run lines"),
    ],
)
def test_records_that_cannot_be_used(tmp_path, lines, change, message):
    path = write(tmp_path / "a.jsonl", lines)
    text = change(path.read_text())
    path.write_text(text)
    with pytest.raises(SubmitError, match=message) as raised:
        make([path], WANTED, tmp_path / "out")
    assert "\n" not in str(raised.value) and not (tmp_path / "out").exists()


def test_runs_of_two_releases_are_two_products(tmp_path, lines):
    other = facts(versions=facts()["versions"] | {"jax": "0.11.2"})
    paths = [
        write(tmp_path / "a.jsonl", lines),
        write(tmp_path / "b.jsonl", [run_line("aaaaaaaaaaaa", facts=other), *timed()]),
    ]
    with pytest.raises(SubmitError, match="the runs differ in jax"):
        make(paths, WANTED, tmp_path / "out")


def test_paths_hosts_and_addresses_are_cleaned(tmp_path, lines):
    dirty = (
        "read /home/bob/x.py at 10.1.2.3, fe80::1:2, 00:1a:2b:3c:4d:5e, bob@corp.example, n7.cluster.internal"
    )
    case = lines[2]["case"]
    lines = [
        *lines[:2],
        lines[2] | {"verdict": "error", "reason": f"{dirty} in {case}, JAX 0.12.0.1"},
        *lines[3:],
    ]
    lines[0] = run_line(
        facts=facts(flags={"XLA_FLAGS": "--xla_dump_to=/home/bob/dump", "JAX_NUM_CPU_DEVICES": "4"})
    )
    wanted = replace(WANTED, level="")
    made = make([write(tmp_path / "secret-host.jsonl", lines)], wanted, tmp_path / "out")
    text = gzip.decompress((made.path / "conformance.jsonl.gz").read_bytes()).decode()
    published = (
        text + (made.path / "environment.json").read_text() + (made.path / "manifest.json").read_text()
    )
    for secret in ("bob", "10.1.2.3", "fe80", "00:1a", "internal", "secret-host"):
        assert secret not in published
    more = json.loads(text.splitlines()[2])["reason"]
    assert more == (f"read <path> at <ip>, <ip>, <address>, <email>, <host> in {case}, JAX 0.12.0.1")


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("command", "/home/bob/venv/bin/python -m pytest conformance", "command holds an absolute path"),
        ("hardware", "node 10.0.0.7", "hardware holds an IP address"),
        ("by", "bob@example.com", "by holds an e-mail address"),
        ("name", "../x", "`name`: use lower-case"),
        ("by", "", "`by` must be one line"),
        ("title", "a\nb", "`title` must be one line"),
    ],
)
def test_what_is_said_of_a_product_is_checked(tmp_path, files, field, text, message):
    with pytest.raises(Exception, match=message):
        make(files, replace(WANTED, **{field: text}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_a_reviewer_would_refuse_is_refused(tmp_path):
    fast = [*timed()[:3], timing(samples_s=[1e-9] * 12)]
    with pytest.raises(SubmitRefused, match="no program takes less than"):
        make([write(tmp_path / "b.jsonl", fast)], WANTED, tmp_path / "out")


def test_the_command_of_a_run_is_made_from_its_line():
    run = run_line(
        selection={"profile": "full", "levels": ["L0", "L1"], "capabilities": ["x64"], "meshes": ["2x2"],
                   "known_issues": [{"file": "a.toml", "digest": "0"}, {"file": "b c.toml", "digest": "1"}],
                   "counters": {"directory": "acme", "digest": "2"}},
        seed=3, repeat=5, facts=facts(backend="gpu"),
    )  # fmt: skip
    assert submit.find_repeating_command(run, {"run", "conformance"}) == (
        "meshmark test --profile full --level L0,L1 --with x64 --meshes 2x2"
        " --known-issues a.toml --known-issues 'b c.toml' --counters acme --repeat 5 --seed 3"
        " --record records.jsonl"
    )


@pytest.mark.parametrize(
    ("changed", "command"),
    [
        (
            {},
            "meshmark launch -n 2 --devices-per-process 5 -- meshmark test --profile standard",
        ),
        (
            {"group": {"devices": 5, "detected": True, "transport": "gloo"}},
            "meshmark test --profile standard --num-devices 5 --distributed",
        ),
        (
            {"backend": "gpu", "group": {"devices": 5, "detected": False}},
            "meshmark test --profile standard --coordinator HOST:PORT --num-processes 2 --process-id I",
        ),
    ],
)
def test_the_command_of_a_run_over_processes(changed, command):
    run = merged_line(2, 10)
    run["facts"] |= changed
    assert submit.find_repeating_command(run, {"run", "conformance"}) == f"{command} --record records.jsonl"


def test_a_bundle_over_processes_claims_l4_where_its_list_is_met(tmp_path, monkeypatch, capsys):
    lines = over(2, 10, "process_identity", "pmin")
    listed = sorted({r["case"] for r in lines[1:]})
    monkeypatch.setattr(
        levels, "by_rule", lambda level, n, p=1, table=None: listed if (n, p) == (10, 2) else 1 / 0
    )
    path = write(tmp_path / "a.jsonl", lines)
    given = ["submit", str(path), "--product", "cpu-2x5-virtual", "--by", "me"]
    assert cli.main([*given, "--output", str(tmp_path / "out")]) == 0
    said = f"L4 on 2 processes of 5 virtual CPU devices, JAX 0.12.0.1; must-pass list {levels.versions()[-1]} by rule"
    assert (
        f"accepted; {len(listed)} cases ({len(listed)} pass); 0 timings of 0 samples; {said}"
        in capsys.readouterr().out
    )
    [product] = results.find_products(tmp_path / "out")
    assert (product.name, product.product["level"]) == ("cpu-2x5-virtual", "L4")
    assert json.loads((product.path / "manifest.json").read_bytes())["statement"]["processes"] == 2
    assert cli.main(["validate", str(product.path)]) == 0
    capsys.readouterr()

    short = write(tmp_path / "b.jsonl", [r for r in lines if r.get("case") != listed[0]])
    assert cli.main([*given[:1], str(short), *given[2:], "--output", str(tmp_path / "short")]) == 1
    message = (
        f"no level is met (L4: {len(listed) - 1} of {len(listed)} cases met; 1 missing, such as {listed[0]})"
    )
    assert message in capsys.readouterr().err
    assert cli.main([*given, "--level", "L3", "--output", str(tmp_path / "l3")]) == 2
    assert "no level 'L3' of 2 processes: choose from L4, or none" in capsys.readouterr().err


def test_the_file_of_one_rank_is_no_submission(tmp_path):
    run = {k: v for k, v in merged_line(2, 10).items() if k != "ranks"} | {"rank": 1}
    path = write(tmp_path / "a.jsonl.rank1", [run, *over(2, 10, "process_identity")[1:]])
    with pytest.raises(SubmitError, match="records of rank 1 alone: use the merged file"):
        make([path], WANTED, tmp_path / "out")


def test_the_command_line(tmp_path, files, capsys):
    out = tmp_path / "out"
    said = ["--product", "cpu-4", "--by", "me", "--output", str(out)]
    assert cli.main(["submit", *map(str, files), *said, "--note", "peak=counted twice", "--archive"]) == 0
    shown = capsys.readouterr().out
    assert "accepted" in shown and "note about peak: counted twice" in shown
    assert cli.main(["validate", str(out), str(out / "cpu-4-0.12.0.1.tar.gz")]) == 0
    assert "2 products, 0 refused" in capsys.readouterr().out
    assert cli.main(["submit", *map(str, files), *said]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(["submit", str(files[0]), *said[:5], str(tmp_path / "z"), "--level", "L1"]) == 1
    assert "L1 is claimed and not met" in capsys.readouterr().err
    assert cli.main(["submit", *map(str, files), *said, "--note", "nonsense"]) == 2


def test_a_bundle_that_was_made_is_accepted(tmp_path, files):
    assert validate.check_product(submit.bundled(files, WANTED)).complaints == []


@pytest.mark.parametrize(
    "text", ["a", "a@", "a.", "1.", ":", "a:", "/a", "-/-", "00:", "a/b/auto/1/", "C:\\", ",/a", "é"]
)
def test_no_text_makes_the_search_slow(text):
    """Twenty thousand characters, the most that is read: none of the patterns goes back and forth over them."""
    long = (text * 20_000)[:20_000]
    start = time.process_time()
    publishable.clean(long)
    publishable.find_private_text(long)
    assert time.process_time() - start < 0.5


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("aZ09./\\:@-_~<> \n%é"), max_size=60))
def test_what_is_cleaned_is_clean_and_stays_so(text):
    once = publishable.clean(text)
    assert publishable.find_private_text(once) == [] and publishable.clean(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "JAX 0.12.0.1 at 13:47:25", "libtpu 0.0.50.1", "psum/axes=-.-,to=-.-/host/2x4/float32/4KiB differs",
        "4KiB@v5e:2x4", "https://github.com/jax-ml/jax/issues/18434", "127.0.0.1", "README.md#x", "[0:1, 0:8]",
    ],
)  # fmt: skip
def test_what_looks_alike_is_left_alone(text):
    assert publishable.find_private_text(text) == [] and publishable.clean(text) == text


def test_all_that_is_wrong_is_said_at_once(tmp_path, lines, capsys):
    torn = tmp_path / "torn.jsonl"
    torn.write_text("no record\n")
    said = [
        "--product",
        "Not A Name",
        "--by",
        "us",
        "--hardware",
        "a box at 10.1.2.3",
        "--output",
        str(tmp_path),
    ]
    assert cli.main(["submit", str(torn), str(tmp_path / "missing.jsonl"), *said]) == 2
    told = capsys.readouterr().err
    assert all(
        part in told for part in ("torn.jsonl", "missing.jsonl", "hardware holds", "`name`: use lower")
    )
    assert told.count("\n") == 4


def test_bad_options_are_said_with_bad_records(tmp_path, lines, capsys):
    """Notes, a level, a log, a key and known issues, whether the records can be read or not."""
    said = ["--product", "Not A Name", "--by", "", "--level", "L9", "--note", "nonsense", "--note", "peak="]
    said += ["--log", "no.log", "--sign", "no-key", "--known-issues", "no.toml", "--output", str(tmp_path)]
    told = ("'nonsense' is not a note", "'peak=' is not", "`name`: use lower", "`by` must be", "no.toml")
    told += ("no level 'L9'", "no.log", "no-key")
    for records in (tmp_path / "missing.jsonl", write(tmp_path / "a.jsonl", lines)):
        assert cli.main(["submit", str(records), *said]) == 2
        printed = capsys.readouterr().err
        assert [part for part in told if part not in printed] == []


def test_counters_and_output_are_said_before_answers_are_computed(tmp_path, files, capsys, monkeypatch):
    """Answers take minutes, and a submission with a bad output would be lost after them."""
    work = []
    check = validate.check_product
    monkeypatch.setattr(
        "meshmark.publish.validate.check_product",
        lambda *given, most_work: work.append(most_work) or check(*given, most_work=most_work),
    )
    (tmp_path / "file").write_text("")
    said = ["--product", "cpu-8", "--by", "us", "--counters", str(tmp_path / "none")]
    words = [*map(str, files), *said, "--known-issues", "no.toml", "--output", str(tmp_path / "file" / "x")]
    assert cli.main(["submit", *words]) == 2 and work == [0]
    printed = capsys.readouterr().err
    assert all(part in printed for part in ("no counters in", "no.toml", "is not a directory; name another"))


def test_input_and_refusals_are_said_together(tmp_path, lines, capsys):
    lines = copy.deepcopy(lines)
    lines[0]["facts"]["suite"]["clean"] = False
    path = write(tmp_path / "a.jsonl", lines)
    output = tmp_path / "results"
    target = output / lines[0]["facts"]["versions"]["jax"] / "name"
    target.mkdir(parents=True)
    said = ["--product", "name", "--by", "us", "--level", "none", "--output", str(output)]
    assert cli.main(["submit", str(path), *said]) == 2
    told = capsys.readouterr().err
    assert "results are never overwritten" in told and "run again from a clean checkout" in told
