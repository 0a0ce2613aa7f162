# SPDX-License-Identifier: Apache-2.0
"""Passing cases that fail in every published run of the same releases on the same kind of machine."""

import copy

import pytest

from meshmark.publish import contrary, duplicates
from meshmark.publish.validate import check_product
from meshmark.records import reading
from tests import submissions
from tests.checkout import ROOT

PUBLISHED = ROOT / "results/0.12.0.1/cpu-8-virtual/conformance.jsonl.gz"


@pytest.fixture(scope="module")
def records():
    """Of a published run, the cases that fail, and its run line."""
    every = [record for _, record in reading.each(PUBLISHED) if isinstance(record, dict)]
    failing = {record["case"] for record in every if record.get("was") == "fail"}
    return [record for record in every if record["kind"] == "run" or record.get("case") in failing]


def turned_to_passes(records, most):
    """The records with so many failed answers of known issues called passed."""
    turned = set()
    for record in copy.deepcopy(records):
        if record.get("was") == "fail" and (record["case"] in turned or len(turned) < most):
            turned.add(record["case"])
            record |= {"verdict": "pass", "reason": ""}
        yield record


@pytest.mark.parametrize("most", [1, 40])
def test_failures_that_were_turned_into_passes_are_found(records, most):
    published = duplicates.prints_of("0.12.0.1/cpu-8-virtual", records)
    own = duplicates.prints_of("0.12.0.1/cpu-mine", turned_to_passes(records, most))
    found = contrary.find_contrary(own, [published])
    assert 0 < len(found) <= most and (most == 1 or len(found) > most // 2)
    text, refused = contrary.describe_contrary(found, explained=False)
    assert refused == (len(found) > contrary.FEW) and found[0] in text
    assert not contrary.describe_contrary(found, explained=True)[1]


def test_a_run_that_fails_as_the_published_one_is_not_contrary(records):
    published = duplicates.prints_of("0.12.0.1/cpu-8-virtual", records)
    assert contrary.find_contrary(duplicates.prints_of("0.12.0.1/cpu-mine", records), [published]) == []


@pytest.mark.parametrize("change", [{"backend": "tpu"}, {"versions": {"jax": "0.13"}}, {"num_devices": 4}])
def test_other_environments_are_not_compared(records, change):
    published = duplicates.prints_of("0.12.0.1/cpu-8-virtual", records)
    own = duplicates.prints_of("0.12.0.1/cpu-mine", turned_to_passes(records, 40))
    for name, line in own.lines.items():
        own.lines[name] = line | {"facts": line["facts"] | change}
    assert contrary.find_contrary(own, [published]) == []


@pytest.mark.parametrize("passes_elsewhere", [False, True])
def test_a_product_with_contrary_passes_is_refused(tmp_path, monkeypatch, passes_elsewhere):
    lines = submissions.level()
    honest = submissions.bundle(tmp_path, lines)
    failing = duplicates.prints_of("0.12.0.1/cpu-4", lines)
    failing.failed = set(sorted(failing.seconds)[:5])
    failing.seconds = {name: seconds * 1.3 for name, seconds in failing.seconds.items()}
    failing.runs.clear()
    passing = copy.deepcopy(failing)
    passing.place, passing.failed = "0.12.0.1/cpu-4-again", set()
    published = [failing, passing] if passes_elsewhere else [failing]
    monkeypatch.setattr(duplicates, "published", lambda: published)
    found = [text for text in check_product(honest).complaints if "fail in every published run" in text]
    assert len(found) == (0 if passes_elsewhere else 1)
