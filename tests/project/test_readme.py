# SPDX-License-Identifier: Apache-2.0
"""The statements of the README are true."""

import re

import jax
import pytest

from meshmark.devices import probe
from meshmark.judge.checks import Judge
from meshmark.operations import cases
from meshmark.pytest_plugin.controller import message
from meshmark.pytest_plugin.trials import Trial
from tests.checkout import ROOT
from tests.headings import anchors
from tests.studies.faults import load_families
from tests.studies.faults_of_functions import psum_forgets_the_last_device
from tests.studies.planting import CATALOGUE

TEXT = (ROOT / "README.md").read_text()


def test_it_is_short_and_has_no_placeholder():
    assert len(TEXT.splitlines()) < 130
    assert not re.search(r"@[A-Z]+@", TEXT)


def test_the_two_commands_stand_in_it():
    for environment in ("report", "tests"):
        command = f"python3 -m venv .venv && .venv/bin/pip install tox && .venv/bin/tox run -e {environment}"
        assert f"    {command}\n" in TEXT


def test_every_file_that_it_names_is_there():
    for path in re.findall(r"(?<![\w/])(?:docs|harness|conformance|tests)/[\w./-]*\w", TEXT):
        assert (ROOT / path).exists(), path
    for link in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (ROOT / link).exists(), link


def test_every_link_to_a_heading_has_its_heading():
    for path, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", TEXT):
        assert anchor in anchors((ROOT / (path or "README.md")).read_text()), anchor


def test_the_number_of_faults_is_that_of_the_catalogue():
    load_families()
    assert f"of the {len(CATALOGUE)} faults in its [catalogue]" in TEXT


def test_its_table_of_levels_is_that_of_the_published_report():
    report = (ROOT / "results/page/summary.md").read_text()
    table = [line for line in report.split("### What is wrong")[0].splitlines() if line.startswith("|")]
    assert len(table) > 3 and "\n".join(table) in TEXT


@pytest.mark.skipif(jax.__version__ != "0.12.0.1", reason="releases name devices differently")
def test_its_failure_is_one_that_the_suite_prints():
    """A psum that forgets the last device fails with the very lines of the README."""
    case = cases.find("psum/axes=x+y/manual/2x4/float32/4KiB", 8)
    with psum_forgets_the_last_device():
        lines = Judge(tuple(jax.devices())).run(case)
    printed = message(Trial(case, probe.probe()), lines, 0)
    assert "".join(f"    {line}\n" for line in printed.splitlines()) in TEXT
    for page in ("verdicts.md", "tutorials/accelerator.md"):
        assert "\n".join(printed.splitlines()[:2]) in (ROOT / "docs" / page).read_text(), page
