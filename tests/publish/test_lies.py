# SPDX-License-Identifier: Apache-2.0
"""The catalogue of lies (tests.lies): most are refused, each by its own check, and few pass."""

import json
import re
from dataclasses import replace

import pytest

from meshmark import __version__
from meshmark.operations.versions import TABLE_VERSION
from meshmark.publish import duplicates, origin, submit
from meshmark.publish.validate import check_product
from tests import lies, submissions
from tests.submissions import RUN, TIMED


@pytest.fixture(scope="module")
def start():
    return lies.whole()


@pytest.fixture(scope="module")
def honest(start, tmp_path_factory):
    """The product that the lies begin with, accepted."""
    made = submissions.bundle(tmp_path_factory.mktemp("honest"), *start)
    report = check_product(made)
    assert report.complaints == [] and report.statement.met == "L0"
    return made


@pytest.fixture
def history(monkeypatch, start):
    """A history of two commits, and one published product."""
    known = {
        submissions.COMMIT: origin.Commit(origin.FIRST, ""),
        "e" * 40: origin.Commit(1_893_456_000, "1" * 16),
        lies.of_rounds.COUNTING: origin.Commit(origin.FIRST, "", counts=True),
        "c" * 40: origin.Commit(origin.FIRST, "", closes=True),
        lies.of_places.TELLS: origin.Commit(origin.FIRST, "", tells=True),
        lies.OF_A_COMMIT: origin.Commit(origin.FIRST, "", __version__, TABLE_VERSION),
    }
    monkeypatch.setattr(origin, "look_up", known.get)
    monkeypatch.setattr(
        duplicates, "published", lambda: [duplicates.prints_of("0.12.0.1/cpu-4", [*start[0], *start[1]])]
    )


def complaints(lie, start, directory):
    """What is said of a lie, by a reviewer of a sealed bundle."""
    conformance, timed = lies.told(lie, start)
    wanted = replace(
        submissions.WANTED, name=lie.name or submissions.WANTED.name, level="L0", mark=True, **lie.product
    )
    files = [
        submissions.write(directory / "a.jsonl", conformance),
        submissions.write(directory / "b.jsonl", timed),
    ]
    try:
        made = submit.bundled(files, wanted)
    except submit.BundleRefused as error:
        return error.complaints
    product = made.files["product.yaml"].data.decode()
    unmarked = re.sub(r"(?m)^marks:\n(- .*\n(  .*\n)*)*", "", product)
    return check_product(
        submissions.resealed(submissions.replaced(made, "product.yaml", unmarked.encode()))
    ).complaints


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", lies.LIES)
def test_a_lie_is_refused_by_the_check_that_is_meant_for_it(name, start, honest, history, tmp_path):
    lie = lies.LIES[name]
    found = complaints(lie, start, tmp_path)
    if lie.answer is None:
        assert found == []
    else:
        assert any(re.search(lie.answer, text) for text in found), found


def test_an_honest_file_with_a_closing_line_is_accepted(start, history, tmp_path):
    assert complaints(lies.Lie(lies.closed(), None), start, tmp_path) == []


def test_an_honest_file_of_timings_with_a_closing_line_is_accepted(start, history, tmp_path):
    assert complaints(lies.Lie(lies.of_places.closed_timings(), None), start, tmp_path) == []


def test_an_honest_file_of_rounds_is_accepted(start, history, tmp_path):
    assert complaints(lies.Lie(lies.of_rounds.counted, None), start, tmp_path) == []


def test_an_honest_comparison_is_accepted(start, history, tmp_path):
    assert complaints(lies.Lie(lies.of_covers.comparing, None), start, tmp_path) == []


def test_few_lies_pass():
    passing = [name for name, lie in lies.LIES.items() if lie.answer is None]
    assert passing == list(lies.on_trust.LIES)
    assert len(passing) <= 22 and len(lies.LIES) >= 360


def test_each_lie_has_a_name_of_its_own():
    assert len(lies.LIES) == sum(map(len, lies.BY_SUBJECT))


def test_lines_of_the_lies_are_of_their_runs(start):
    assert {line["run"] for line in start[0]} == {RUN} and {line["run"] for line in start[1]} == {TIMED}
    assert json.dumps(start)
