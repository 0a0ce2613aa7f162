# SPDX-License-Identifier: Apache-2.0
"""Findings of compilers without their hardware, and findings on hardware: a script, what it wrote, and a report.

They are not programs of the hunt, so they have no `finding.json`."""

import ast
import runpy

import jax
import pytest

from meshmark.hunt import findings
from meshmark.levels import known_issues
from tests.checkout import ROOT

STORE = ROOT / findings.STORE
EVERY = sorted(path.parent for path in STORE.glob("*/evidence.txt"))
ids = pytest.mark.parametrize("directory", EVERY, ids=lambda d: d.name)
ON_HARDWARE = sorted(path.parent for path in STORE.glob("*/hardware.txt"))


def imported(text):
    """The modules that a script imports, by the first part of their names."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {a.name.split(".")[0] for n in nodes if isinstance(n, ast.Import) for a in n.names}
    return names | {n.module.split(".")[0] for n in nodes if isinstance(n, ast.ImportFrom)}


def test_every_directory_is_of_one_kind():
    kept = [path.parent for path in STORE.glob("*/finding.json")]
    assert EVERY and ON_HARDWARE
    assert sorted([*kept, *EVERY, *ON_HARDWARE]) == sorted(path for path in STORE.iterdir() if path.is_dir())


@ids
def test_the_report_has_the_script_and_the_outcome_of_each_release(directory):
    script, report = ((directory / name).read_text(encoding="utf-8") for name in ("repro.py", "report.md"))
    assert f"```python\n{script}```\n" in report
    told = (directory / "evidence.txt").read_text(encoding="utf-8")
    for release in ("0.10.2", "0.11.2", "0.12.0.1"):
        assert f"| {release} | " in report and f"JAX {release}, " in told


@ids
def test_what_the_report_shows_is_in_the_evidence_or_ends_a_stack(directory):
    report = (directory / "report.md").read_text(encoding="utf-8")
    shown = report.split("Seen on JAX 0.12.0.1:\n\n")[1].split("\n\n## Releases")[0].splitlines()
    told = (directory / "evidence.txt").read_text(encoding="utf-8")
    assert shown and all(line in told for line in shown)


@ids
def test_the_script_imports_jax_and_numpy_alone_and_runs_nothing(directory):
    text = (directory / "repro.py").read_text(encoding="utf-8")
    assert imported(text) <= {"jax", "numpy", "os", "sys"}
    assert "get_topology_desc" in text and ".compile()" in text
    assert len([line for line in text.splitlines() if line.strip()]) < 45


@pytest.mark.parametrize("directory", ON_HARDWARE, ids=lambda d: d.name)
def test_a_finding_on_hardware_shows_what_its_script_wrote_there(directory):
    script, report, told = (
        (directory / name).read_text(encoding="utf-8") for name in ("repro.py", "report.md", "hardware.txt")
    )
    assert f"```python\n{script}```\n" in report and imported(script) <= {"jax", "numpy", "os", "sys"}
    shown = (
        report.split("Exit code 0 means that all is right. Seen on ")[1].split("\n## ")[0].splitlines()[2:]
    )
    shown = [line.strip() for line in shown if line.strip()]
    assert shown and all(line in told for line in shown)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is wrong on other devices")
@pytest.mark.parametrize("directory", ON_HARDWARE, ids=lambda d: d.name)
def test_the_script_of_a_finding_on_hardware_is_right_on_cpu(directory, capsys):
    runpy.run_path(str(directory / "repro.py"))
    assert capsys.readouterr().out.endswith("right\n")


@pytest.mark.parametrize("directory", [*EVERY, *ON_HARDWARE], ids=lambda d: d.name)
def test_the_page_of_findings_links_to_it(directory):
    page = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    assert f"(../results/findings/{directory.name}/report.md)" in page


def test_the_known_issues_that_it_explains_link_to_it():
    linked = {
        issue.link.split("/")[2] for issue in known_issues.read_known_issues() if "/findings/" in issue.link
    }
    told = {directory.name for directory in (*EVERY, *ON_HARDWARE)}
    # A sum over six chips is in no profile, and a promise is not a wrong number.
    assert told - linked == {"sum-over-six-chips", "sorted-promise-in-a-quantile-gradient"}
