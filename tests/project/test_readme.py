"""The README says what is there."""

import re

from meshmark.operations import OPERATIONS

from tests.checkout import ROOT
from tests.studies.faults import CATALOGUE

TEXT = (ROOT / "README.md").read_text()


def test_no_placeholder_is_left_and_what_it_names_exists():
    assert not re.search(r"@[A-Z]+@", TEXT)
    for path in re.findall(r"(?:docs|harness|conformance|tests)/[\w./-]*\w", TEXT):
        assert (ROOT / path).exists(), path


def test_every_operation_and_the_number_of_faults_are_in_it():
    assert not [name for name in OPERATIONS if f"{name}" not in TEXT]
    assert f"puts {len(CATALOGUE)} faults" in TEXT


def test_its_table_of_levels_is_that_of_the_published_report():
    report = (ROOT / "results/page/summary.md").read_text()
    table = [line for line in report.split("### Modes")[0].splitlines() if line.startswith("|")]
    assert len(table) > 3 and "\n".join(table) in TEXT
