# SPDX-License-Identifier: Apache-2.0
"""Which answers a review computes again: all of them, or an unpredictable choice and no claim of a level."""

import gzip
import hashlib
import json
import random

import pytest

from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import nbytes
from meshmark.publish import badges, bundles, recomputed, workload
from meshmark.publish.against_table import Lookup
from meshmark.publish.review import Review
from meshmark.publish.validate import check_product
from meshmark.publish.workload import Answered, Workload
from meshmark.records import closing
from tests import submissions
from tests.checkout import ROOT

FACTS = submissions.facts(num_devices=8)
NAMES = (
    "psum/axes=x+y/manual/2x4/float32/4KiB",
    "psum/axes=x+y/auto/2x4/int32/4KiB",
    "all_gather/axes=x+y,dim=0,tiled/explicit/2x4/bfloat16/4KiB",
    "all_gather/axes=x+y,dim=0,tiled/explicit/2x4/float32/4KiB",
    "ppermute/axes=x+y,perm=identity/manual/2x4/float32/4KiB",
)


def line(name, **other):
    """A passing line of a case, with the answer of the reference."""
    case = cases.find(name, 8)
    record = submissions.answered(case) | {"check": "numbers", "seed": 0} | other
    return Answered("conformance.jsonl.gz", 7, case, record, FACTS)


def reviewed(lines, **facts):
    """What a review says of these lines."""
    review, work = Review("here"), Workload(**facts)
    for one in lines:
        work.add(one)
    work.compute(review)
    return review


COSTS = [line(name).cost for name in NAMES]


@pytest.mark.parametrize("false", NAMES)
def test_below_the_limit_every_answer_is_computed_again(false):
    lines = [line(name, **({"bits": "0" * 16} if name == false else {})) for name in NAMES]
    review = reviewed(lines, most=workload.PART * sum(COSTS))
    assert review.left_out == 0
    [complaint] = review.complaints
    assert false in complaint and "are not those of seed 0" in complaint


def test_modes_of_a_cell_count_once():
    names = [NAMES[0], NAMES[0].replace("/manual/", "/explicit/")]
    assert reviewed(map(line, names), most=workload.PART * COSTS[0]).left_out == 0


def test_a_claim_with_answers_beyond_the_limit_is_refused():
    review = reviewed(map(line, NAMES), claimed="L4", most=0)
    assert review.left_out == len(NAMES)
    [complaint] = review.complaints
    assert "5 of 5 passing cases were not computed again, and the claim L4 needs 5 of them" in complaint
    assert "--recompute" in complaint


def test_a_challenge_with_answers_beyond_the_limit_is_refused():
    [complaint] = reviewed(map(line, NAMES), demanded=[NAMES[1]], most=0).complaints
    assert f"the challenge needs 1 of them, such as {NAMES[1]}" in complaint


def test_without_a_claim_it_is_a_note_and_there_is_no_badge():
    review = reviewed(map(line, NAMES), most=0)
    assert review.complaints == [] and "5 of 5 passing cases were not computed again" in review.notes[0]
    assert badges.spell_badge(review) == ""


def test_a_large_cell_is_left_out_although_the_limit_has_room():
    review = reviewed(map(line, NAMES), most=workload.PART * max(COSTS) - workload.PART)
    assert review.left_out >= 1


def test_what_is_left_out_differs_from_review_to_review(monkeypatch):
    """A submitter can't know which answers nobody computes: reviews with half of the work choose different ones."""
    monkeypatch.setattr(workload, "PART", 1)
    false = [line(name, bits="0" * 16) for name in NAMES]
    found = {
        tuple(reviewed(false, most=sum(COSTS) // 2, draw=random.Random(seed)).complaints)
        for seed in range(10)
    }
    assert len(found) > 1


def test_a_claim_s_answers_come_first(monkeypatch):
    """With room for one cell, that of the challenge is computed in every review."""
    monkeypatch.setattr(workload, "PART", 1)
    false = [line(name, bits="0" * 16) for name in NAMES]
    for seed in range(10):
        review = reviewed(false, demanded=[NAMES[2]], most=COSTS[2], draw=random.Random(seed))
        assert NAMES[2] in review.complaints[0] and "are not those" in review.complaints[0]


def test_an_answer_without_a_reference_is_left_out(monkeypatch):
    def fail(*_):
        raise MemoryError("too large")

    monkeypatch.setattr(recomputed, "answer", fail)
    [complaint] = reviewed([line(NAMES[0])], claimed="L4").complaints
    assert "there is no reference here: MemoryError: too large" in complaint


FORMER = 1 << 30
"""Bytes of arguments and results on all devices: what an earlier version computed again of one product."""


def forged(product):
    """A published product in which the exact digests beyond FORMER are made up, with hashes and closing line to fit;
    and how many there are."""
    bundle = bundles.open_bundles(ROOT / "results" / product)[0]
    name, room, seen, made_up = "conformance.jsonl.gz", FORMER, set(), 0
    account, lines = closing.Account(), []
    table = Lookup(FACTS, False, set(OPERATIONS))
    for text in gzip.decompress(bundle.files[name].data).splitlines():
        record = json.loads(text)
        if record["kind"] == "end":
            record |= account.end(record["exit_code"]) | {"ended": record["ended"]}
        elif record.get("check") == "numbers" and record["verdict"] == "pass" and "bits" in record:
            case = table.get(record["case"])
            cell = case.cell.id
            if cell not in seen:
                seen.add(cell)
                parts = (*case.plan.arguments, *case.plan.results)
                room -= sum(nbytes(part, case.mesh) for part in parts) * case.mesh.size
            if room < 0 and case.plan.judge in ("exact", "bits"):
                record["bits"] = hashlib.sha256(f"{cell} {record['bits']}".encode()).hexdigest()[:16]
                made_up += 1
        account.add(record)
        lines.append(json.dumps(record, separators=(",", ":")) + "\n")
    return submissions.resealed(submissions.with_lines(bundle, name, lines)), made_up


@pytest.mark.e2e
@pytest.mark.thorough
def test_made_up_digests_in_large_cases_are_refused():
    """The forger keeps the honest answers of the cases that an earlier version computed again."""
    made, number = forged("0.12.0.1/cpu-8-virtual")
    assert number > 1000
    report = check_product(made)
    assert report.left_out == 0 and badges.spell_badge(report) == ""
    assert any("are not those of seed 0" in text for text in report.complaints)
    assert not any("manifest" in text or "closing" in text for text in report.complaints)
    assert any("exact cases with zeros have other digests" in text for text in report.complaints)
