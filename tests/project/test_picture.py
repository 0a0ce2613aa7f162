# SPDX-License-Identifier: Apache-2.0
"""The pictures of the documentation show the published page, and a stale one is found."""

import gzip
import json
import shutil
import subprocess
import sys

import pytest

from docs import picture
from tests.browser import pictures


@pytest.fixture(scope="module")
def svg():
    return picture.PICTURE.read_text()


def test_the_picture_is_of_the_published_record_as_it_is(svg):
    assert picture.stale(svg) == ""


def test_it_takes_nothing_from_the_network(svg):
    assert "url(http" not in svg and "@import" not in svg


def test_a_long_table_is_cut_and_says_so():
    rows = [f"L1 row{i}  1" for i in range(picture.ROWS + 3)]
    lines = ["operation  auto", "---------  ----", *rows, "", "L1: 1 of 1 pass"]
    cut = picture.folded(lines)
    assert cut == [*lines[: 2 + picture.ROWS], "... and 3 more operations", "", "L1: 1 of 1 pass"]
    assert picture.folded(cut[:5] + cut[-2:]) == cut[:5] + cut[-2:]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A root with a copy of the record file; gives the copy."""
    record = tmp_path / picture.RECORDS
    record.parent.mkdir(parents=True)
    shutil.copy(picture.ROOT / picture.RECORDS, record)
    monkeypatch.setattr(picture, "ROOT", tmp_path)
    return record


def test_a_changed_record_makes_it_stale(svg, copy):
    lines = gzip.decompress(copy.read_bytes()).decode().splitlines()
    judged = next(i for i, line in enumerate(lines) if json.loads(line).get("verdict") == "pass")
    lines[judged] = json.dumps(json.loads(lines[judged]) | {"verdict": "fail", "reason": "changed"})
    copy.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    assert "has changed" in picture.stale(svg)


def test_a_missing_record_or_an_unmarked_picture_is_stale(svg, copy):
    copy.unlink()
    assert "is not there" in picture.stale(svg)
    assert "does not say" in picture.stale("<svg></svg>")


def test_a_summary_that_reads_differently_makes_it_stale(svg, monkeypatch):
    monkeypatch.setattr(picture.summary, "closing", lambda cases: ["another summary"])
    assert "reads differently" in picture.stale(svg)


def test_the_command_says_so_and_exits_1(tmp_path, monkeypatch, capsys):
    old = tmp_path / "summary.svg"
    old.write_text("<svg></svg>")
    monkeypatch.setattr(picture, "PICTURE", old)
    monkeypatch.setattr(sys, "argv", ["picture.py", "--check"])
    assert picture.main() == 1
    assert "run python -m docs.picture" in capsys.readouterr().err


def test_it_runs_as_a_script():
    made = subprocess.run([sys.executable, "-m", "docs.picture", "--check"], cwd=picture.ROOT)
    assert made.returncode == 0


# The published page -----------------------------------------------------------------------------------------


def test_the_pictures_of_the_page_are_of_the_records_that_are_published():
    taken = json.loads((picture.ROOT / "docs" / pictures.SOURCES).read_text())
    mend = "run python -m tests.browser.pictures results/page docs"
    assert taken == pictures.sources(picture.ROOT / "results/page"), mend
    assert all((picture.ROOT / f"docs/{name}.png").is_file() for name, *_ in pictures.PICTURES)
