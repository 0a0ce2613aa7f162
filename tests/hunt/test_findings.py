# SPDX-License-Identifier: Apache-2.0
"""Kept findings are complete (data, script, report), and the page and pytest read them."""

import ast
import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from docs import found_page
from meshmark.commands.main import main
from meshmark.hunt import findings, reports
from meshmark.hunt.findings import FindingError
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.workers import Answer
from meshmark.levels import known_issues
from meshmark.program_data.program import walk_nodes
from tests.checkout import ROOT
from tests.studies import hunt_records

STORE = found_page.STORE
EVERY = findings.read_findings(STORE)
ids = pytest.mark.parametrize("finding", EVERY, ids=lambda f: f.name)


@ids
def test_the_script_is_that_of_the_data(finding):
    assert findings.read_script(finding.name, STORE) == reports.script_of(finding)


@ids
def test_the_script_is_short_and_imports_jax_and_numpy_alone(finding):
    text = findings.read_script(finding.name, STORE)
    assert len([line for line in text.splitlines() if line.strip()]) < 30
    names = {
        a.name.split(".")[0] for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for a in n.names
    }
    names |= {n.module.split(".")[0] for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
    assert names <= {"jax", "numpy", "sys"}


@ids
def test_what_is_known_is_complete(finding):
    assert finding.severity in findings.SEVERITIES and finding.title and finding.sentence and finding.groups
    assert "Python Code Location" not in finding.seen
    assert len([n for n in finding.data().nodes if n.op not in ("item", "constrain")]) <= 3
    assert (STORE / finding.name / "report.md").read_text(encoding="utf-8") == reports.report_of(
        finding, findings.read_script(finding.name, STORE)
    )


@ids
def test_the_suite_knows_it(finding):
    """A known issue of the table names it, or the report of it: the suite stays red or known for it."""
    issues = known_issues.read_known_issues()
    assert any(f"/{finding.name}" in i.link + i.why or i.link == finding.reported for i in issues)
    links = [i.link for i in issues if i.link.startswith("results/")]
    assert all((found_page.ROOT / link).is_file() for link in links)


def test_the_package_has_every_finding():
    """`python -m meshmark.hunt.packing` makes the file."""
    assert findings.PACKED.read_text(encoding="utf-8") == findings.pack(EVERY)
    assert findings.read_findings(findings.PACKED) == EVERY


def test_a_store_in_one_file_gives_findings_and_scripts(capsys, tmp_path):
    """An installation has only this file."""
    for finding in EVERY:
        assert findings.find_finding(finding.name, findings.PACKED) == finding
        made = reports.read_or_write_script(finding, finding.name, findings.PACKED)
        assert made == findings.read_script(finding.name, STORE)
    packed = ["--known", str(findings.PACKED)]
    assert main(["hunt", "--replay", "reshard-onto-one-dimensions", *packed]) == 2
    assert "did you mean reshard-onto-one-dimension?" in capsys.readouterr().err
    assert main(["bisect", EVERY[0].name, "--write", *packed]) == 2
    assert "is one file: name a directory" in capsys.readouterr().err
    for text in ("{}", "[{}]", "[3]", "["):
        (tmp_path / "packed.json").write_text(text)
        with pytest.raises(FindingError, match="is not a"):
            findings.read_findings(tmp_path / "packed.json")


def test_findings_are_known_in_every_directory(capsys, monkeypatch, tmp_path):
    """The store does not depend on the working directory: a nightly job of a plugin runs somewhere else."""
    monkeypatch.chdir(tmp_path)
    assert findings.read_findings() == EVERY
    assert main(["hunt", "--replay", "reshard-onto-one-dimensions"]) == 2
    assert "did you mean reshard-onto-one-dimension?" in capsys.readouterr().err


def test_a_store_without_findings_is_told(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(Hunt, "run", lambda *_: None)
    assert main(["hunt", "--known", str(tmp_path / "none")]) == 0
    said = capsys.readouterr().err
    assert "none does not exist: every finding is reported as new" in said
    assert main(["hunt", "--known", str(tmp_path)]) == 0
    assert "has no findings: every finding is reported as new" in capsys.readouterr().err
    assert main(["hunt"]) == 0
    assert "is reported as new" not in capsys.readouterr().err


def test_no_two_findings_explain_one_group():
    groups = [g for f in EVERY for g in f.groups]
    assert len(groups) == len(set(groups))


def test_the_page_has_every_finding():
    text = found_page.page()
    assert all(f.title in text for f in EVERY)


def test_releases_are_told_as_spans():
    told = found_page.spans(
        {"0.4.30": "right", "0.4.38": "right", "0.5.3": "wrong", "0.6.2": "wrong", "0.7.2": "right"}
    )
    assert told == "0.4.30 to 0.4.38 right, 0.5.3 to 0.6.2 wrong, 0.7.2 right"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer([], "", [], {}, {}), "right"),
        (Answer([{"kind": "numbers"}], "", [], {}, {}), "wrong"),
        (Answer([{"kind": "oracles"}], "", [], {}, {}), "wrong"),
        (Answer([{"kind": "crash"}], "", [], {}, {}), "crash"),
        (Answer([{"kind": "refused"}], "", ["custom call x"], {}, {}), "refused"),
        (Answer([], "no gradient", [], {}, {}), "inexpressible"),
        (Answer([], "", ["custom call x"], {}, {}), "not judged: custom call x"),
    ],
)
def test_the_outcome_of_a_replay(answer, outcome):
    assert reports.outcome_of(answer) == outcome


def test_a_report_says_what_a_finding_shows_elsewhere(tmp_path):
    finding = replace(EVERY[0], name="x", elsewhere={"v5e:2x4, interpreted": "wrong", "2 processes": "right"})
    reports.refresh(finding, tmp_path)
    assert findings.read_finding(tmp_path / "x").elsewhere == finding.elsewhere
    text = (tmp_path / "x" / "report.md").read_text()
    assert "## Elsewhere" in text and "| 2 processes | right |" in text


def test_an_unknown_finding_is_named(capsys, tmp_path):
    assert main(["hunt", "--replay", "nothing", "--known", str(tmp_path)]) == 2
    assert "unknown finding 'nothing'" in capsys.readouterr().err
    assert main(["hunt", "--replay", "reshard-onto-one-dimensions"]) == 2
    assert "did you mean reshard-onto-one-dimension?" in capsys.readouterr().err
    with pytest.raises(FindingError, match="is not a finding"):
        (tmp_path / "finding.json").write_text("{}")
        findings.read_finding(tmp_path)


def test_the_published_records_of_hunts_give_the_table_of_the_documents():
    """`python -m tests.studies.hunt_records` prints it. Nothing in them names this machine."""
    text = (ROOT / "docs" / "hunt-evidence.md").read_text(encoding="utf-8")
    assert hunt_records.table() in text
    for path in hunt_records.RECORDS.glob("*.jsonl.gz"):
        head, lines = hunt_records.read(path)
        assert head["suite"]["clean"] and len(head["suite"]["commit"]) == 40
        assert len({line["n"] for line in lines}) == len(lines) > 100
        assert not re.search(r"/(?:home|root|tmp|Users)/", json.dumps(lines))


def test_the_table_of_short_programs_is_that_of_the_store():
    text = (ROOT / "docs" / "hunt-evidence.md").read_text(encoding="utf-8")
    counted = Counter(sum(n.op != "item" for n in walk_nodes(finding.data().nodes)) for finding in EVERY)
    for operations, number in counted.items():
        assert f"| {operations or 'none: a new sharding alone'} | {number} |" in text
    lengths = [
        len([line for line in findings.read_script(f.name, STORE).splitlines() if line.strip()])
        for f in EVERY
    ]
    assert f"of the {len(EVERY)} kept findings have {min(lengths)} to {max(lengths)} lines" in text
