# SPDX-License-Identifier: Apache-2.0
"""A vendor's own known issues and counters: reading, use, output, and refusal in one line if they can't be used."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from meshmark.commands.main import main
from meshmark.levels import counters, known_issues, statements
from meshmark.levels.counters import CountersError
from meshmark.levels.expectations import Expectations
from meshmark.levels.known_issues import KnownIssuesError
from meshmark.records.reading import Records

FACTS = {
    "versions": {"jax": "0.12.0.1"},
    "backend": "cpu",
    "device_kind": "cpu",
    "num_devices": 8,
    "num_processes": 1,
}
ISSUE = """[[issue]]
cases = ["psum/*"]
modes = ["auto"]
checks = ["communication"]
jax = ">=0.10"
backends = ["cpu"]
link = "https://example.org/acme/1"
why = "the plugin sends everything twice"
expires = "9"
verdicts = ["fail"]
symptom = "committed counters"
"""
CASE = "psum/axes=x+y/auto/2x4/float32/4KiB"
COUNTERS = f"{CASE}\t7 all-reduce 4096B 1x8\n"


@pytest.fixture
def issues(tmp_path):
    path = tmp_path / "acme.toml"
    path.write_text(ISSUE)
    return path


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "acme"
    path.mkdir()
    (path / "0.12.0.1-cpu-8.tsv").write_text(COUNTERS)
    return path


def test_a_vendor_s_issues_stand_behind_the_suite_s(issues):
    suite, both = Expectations().issues(FACTS), Expectations([issues]).issues(FACTS)
    assert len(both) == len(suite) + 1
    assert both[-1].link == "https://example.org/acme/1"
    assert (
        Expectations().given_issues(FACTS) == [] and Expectations([issues]).given_issues(FACTS) == both[-1:]
    )


def test_several_files_are_taken(issues, tmp_path):
    (tmp_path / "more.toml").write_text(ISSUE.replace("acme/1", "acme/2"))
    links = [issue.link for issue in Expectations([issues, tmp_path / "more.toml"]).issues(FACTS)]
    assert links[-2:] == ["https://example.org/acme/1", "https://example.org/acme/2"]


def test_a_vendor_s_counters_go_before_the_suite_s_and_only_where_it_has_any(directory):
    expected = Expectations(directory=directory)
    assert expected.committed(FACTS) == {CASE: "7 all-reduce 4096B 1x8"}
    older = FACTS | {"versions": {"jax": "0.10.2"}}
    assert expected.committed(older) == counters.load("0.10.2", "cpu", 8) != {}


def test_the_header_says_what_is_used(issues, directory):
    assert list(Expectations().lines(FACTS)) == ["counters: 0.12.0.1-cpu-8 of the suite"]
    nobody = list(Expectations().lines(FACTS | {"backend": "acme"}))
    assert nobody == ["counters: none committed for 0.12.0.1-acme-8: the contract alone judges"]
    own = list(Expectations([issues], directory).lines(FACTS))
    assert own[0] == f"counters: 0.12.0.1-cpu-8 of {directory}"
    assert own[1] == f"known issues: {len(known_issues.read_known_issues())} of the suite, 1 of acme.toml"


def test_the_run_line_names_them_with_a_digest_of_what_they_say(issues, directory):
    assert Expectations().described == {}
    before = Expectations([issues], directory).described
    assert [before["known_issues"][0]["file"], before["counters"]["directory"]] == ["acme.toml", "acme"]
    issues.write_text(ISSUE.replace("twice", "once"))
    after = Expectations([issues], directory).described
    assert after["known_issues"] != before["known_issues"] and after["counters"] == before["counters"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[issue", "can't be read as TOML"),
        (ISSUE.replace("[[issue]]", "[[issues]]"), "only tables [[issue]]"),
        (ISSUE.replace('why = "the plugin sends everything twice"\n', ""), "issue 1: `why` is missing"),
        (ISSUE + ISSUE + 'owner = "x"\n', "issue 2: unknown field `owner`"),
        (ISSUE.replace('["psum/*"]', '"psum/*"'), "`cases` must be a list of texts"),
        (ISSUE.replace('["psum/*"]', "[]"), "`cases` must be a list of texts"),
        (ISSUE.replace('modes = ["auto"]\n', ""), "issue 1: `modes` is missing"),
        (ISSUE.replace('["auto"]', '["automatic"]'), "unknown mode 'automatic': choose from auto, explicit"),
        (ISSUE.replace('"communication"', '"comunication"'), "unknown check 'comunication'"),
        (ISSUE.replace('["fail"]', '["failure"]'), "unknown verdict 'failure'"),
        (ISSUE.replace('"committed counters"', '"("'), "`symptom` is not a regular expression"),
        (ISSUE.replace('"committed counters"', '".*"'), "`symptom` fits anything"),
        (ISSUE.replace('"committed counters"', '"differ|"'), "`symptom` fits anything"),
        (ISSUE.replace('">=0.10"', '"0.10 and later"'), "`jax` holds releases such as"),
        (ISSUE.replace('"9"', '"soon"'), "`expires` one release"),
        (ISSUE.replace('"9"', "9"), "`expires` must be one line of text"),
        (ISSUE + 'processes = "yes"\n', "`processes` must be true or false"),
    ],
)
def test_a_bad_file_of_known_issues_is_one_line(issues, text, said):
    issues.write_text(text)
    with pytest.raises(KnownIssuesError) as error:
        Expectations([issues])
    assert said in str(error.value) and str(issues) in str(error.value) and "\n" not in str(error.value)


def test_a_bad_directory_of_counters_is_one_line(directory, tmp_path):
    (directory / "0.12.0.1-cpu-4.tsv").write_text(f"{CASE} 7 all-reduce\n")
    for path, said in (
        (directory, "0.12.0.1-cpu-4.tsv:1 is not a case id, a tab"),
        (tmp_path, "it holds no file"),
        (tmp_path / "absent", "No such file or directory"),
    ):
        with pytest.raises(CountersError) as error:
            Expectations(directory=path)
        assert said in str(error.value) and "\n" not in str(error.value)


def test_a_package_without_its_counters_or_known_issues_is_an_error(monkeypatch, tmp_path):
    """Once a missing directory made the check of the counters do nothing, and nothing said so."""
    monkeypatch.setattr(counters, "DIRECTORY", tmp_path / "absent")
    with pytest.raises(CountersError, match=r"no counters in .*absent"):
        Expectations().committed(FACTS)
    assert known_issues.FILE.is_file() and counters.files(known_issues.FILE.parent / "counters")
    with pytest.raises(KnownIssuesError, match="there is no file"):
        known_issues.read_known_issues(tmp_path / "absent.toml")


def test_a_level_statement_names_a_vendor_s_known_issues(issues):
    run = {"run": "0" * 12, "facts": FACTS}
    plain = statements.statement(Records(runs=[run]))
    own = statements.statement(Records(runs=[run | {"selection": Expectations([issues]).described}]))
    assert "own" not in plain.to_json() and "beside" not in plain.text
    assert own.to_json()["own"] == [own.own[0]] and own.own[0].startswith("acme.toml (")
    assert f"known issues beside the suite's: {own.own[0]}; must-pass" in own.text


@pytest.mark.parametrize(
    "command", [["bench"], ["validate", "x"], ["submit", "x", "--product", "a", "--by", "b", "--output", "o"]]
)
def test_commands_refuse_a_file_that_is_not_there(command, tmp_path, capsys):
    assert main([*command, "--known-issues", str(tmp_path / "absent.toml")]) == 2
    said = capsys.readouterr().err
    mine = [line for line in said.splitlines() if "absent.toml" in line]
    assert len(mine) == 1 and all(line.startswith("meshmark: ") for line in said.splitlines())


def run_suite(tmp_path, *options):
    """The exit code and records of one case under these options."""
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    chosen = ["--profile", "smoke", "--operations", "psum", "--modes", "auto", "-n", "1", "-q"]
    command = [sys.executable, "-m", "meshmark", "test", *chosen, "--record", str(path), *map(str, options)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return done, lines


@pytest.mark.e2e
def test_a_run_is_judged_by_them_in_its_workers(issues, directory, tmp_path):
    """Counters that the program does not have fail it; the known issue that names them excuses it."""
    (directory / f"{version('jax')}-cpu-8.tsv").write_text(COUNTERS)
    failed, lines = run_suite(tmp_path, "--counters", directory)
    assert failed.returncode == 1 and "the committed counters are 7 all-reduce" in failed.stdout
    assert lines[0]["selection"]["counters"]["directory"] == "acme"
    excused, lines = run_suite(tmp_path, "--counters", directory, "--known-issues", issues)
    assert excused.returncode == 0, excused.stdout
    known = [line for line in lines if line.get("verdict") == "known"]
    assert [line["link"] for line in known] == ["https://example.org/acme/1"]
    assert lines[0]["selection"]["known_issues"][0]["file"] == "acme.toml"
    refused, lines = run_suite(tmp_path, "--counters", tmp_path / "absent")
    assert refused.returncode == 4 and lines == []
    assert refused.stderr.strip().count("\n") == 0 and "absent" in refused.stderr
