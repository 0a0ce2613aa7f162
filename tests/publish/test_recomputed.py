# SPDX-License-Identifier: Apache-2.0
"""Recomputed values agree with those of devices: the review finds nothing wrong in lines of programs that ran."""

import math

import jax
import pytest

from meshmark.judge.checks import Judge
from meshmark.operations import cases
from meshmark.publish import against_contract, field_checks, recomputed
from meshmark.publish.review import Review
from tests import submissions

CASES = (
    "psum/axes=x+y/manual/2x4/float32/4KiB",
    "psum/axes=x+y/auto/2x4/int32/4KiB",
    "psum/axes=x/pmap/8/float32/4KiB",
    "all_gather/axes=x+y,dim=0,tiled/explicit/2x4/bfloat16/4KiB",
    "put_get/to=x.y/host/2x4/float32/4KiB",
    "matmul/rows=x,inner=y,check=rounded,precision=highest/manual/2x4/float32/n64",
    "ppermute/axes=x+y,perm=identity/manual/2x4/float32/4KiB",
)
FACTS = submissions.facts(num_devices=8)


def lines(name, seed):
    """The passing lines of a case that runs here, as records have them."""
    case = cases.find(name, 8)
    found = Judge(tuple(jax.devices()), seed).run(case)
    assert {line.verdict for line in found} == {"pass"}, [line.data for line in found]
    return case, [{"check": line.check, "seed": seed} | line.data for line in found]


def problems(case, record):
    if record["check"] == "communication":
        return list(against_contract.find_impossible_traffic(case, record, FACTS))
    return list(recomputed.find_impossible_numbers(case, record, FACTS, recomputed.Tally()))


@pytest.mark.parametrize("name", CASES)
def test_what_ran_has_nothing_wrong_and_its_lies_have(name):
    case, found = lines(name, 3)
    for record in found:
        if record["check"] not in ("numbers", "communication"):
            continue
        assert problems(case, record) == []
        if record["check"] == "numbers" and case.plan.judge == "bound":
            assert problems(case, record | {"error": record["error"] / 3})
            assert problems(case, record | {"bound": record["bound"] * 2})
        elif record["check"] == "numbers":
            assert problems(case, record | {"seed": 4})
            assert problems(case, record | {"bits": "0" * 16})
        elif record["collectives"] and "identity" not in name:
            assert problems(case, record | {"collectives": []})
            assert problems(case, record | {"wire_bytes": record["wire_bytes"] * 2})


def told(tally):
    """(notes, complaints) of what was computed again."""
    review = Review("here")
    tally.tell(review)
    return review.notes, review.complaints


def test_cases_with_zeros_of_another_digest_are_told_and_many_are_refused():
    case, found = lines("psum/axes=x+y/auto/2x2/bfloat16/4KiB", 0)
    record = next(r for r in found if r["check"] == "numbers")
    tally = recomputed.Tally()
    assert problems_in(case, record, tally) == [] and told(tally) == ([], []) and tally.zeros == 1
    assert problems_in(case, record | {"bits": "0" * 16}, tally) == []
    (note,), none = told(tally)
    assert "1 of 2 exact cases with zeros have other digests" in note and none == []
    for _ in range(10):
        assert problems_in(case, record | {"bits": "0" * 16}, tally) == []
    notes, (complaint,) = told(tally)
    assert notes == [] and "11 of 12 exact cases with zeros" in complaint


def problems_in(case, record, tally):
    return list(recomputed.find_impossible_numbers(case, record, FACTS, tally))


# What a run on one H100 has, line by line. Each was refused before.

GPU = submissions.facts(num_devices=1) | {"backend": "gpu", "device_kind": "NVIDIA H100 80GB HBM3"}


@pytest.mark.parametrize(
    ("name", "record", "lie"),
    [
        (
            "matmul/cols=x,check=rounded,precision=default,fill=nan-one/pmap/1/float32/n256",
            {"error": 0.0, "bound": 0.0124465, "precision": "default (11 bits)"},
            {"bound": 0.5},
        ),
        (
            "matmul/rows=x+y,check=rounded,precision=default/auto/1x1/int32/n256",
            {"error": 0.0, "bound": 0.0, "precision": "default", "bits": "6b624344aa41652e"},
            {"precision": "default (11 bits)"},
        ),
        (
            "special_functions/of=x.-,group=kept/manual-novma/1x1/float32/4KiB",
            {"error": 0.0, "bound": 0.0, "bits": "e64f9dd68ca451a4"},
            {"error": 1.0},
        ),
    ],
)
def test_numbers_of_a_gpu_are_believed(name, record, lie):
    case = cases.find(name, 1)
    record = {"check": "numbers", "seed": 0, "precision": case.plan.precision} | record
    assert list(recomputed.find_impossible_numbers(case, record, GPU, recomputed.Tally())) == []
    assert list(recomputed.find_impossible_numbers(case, record | lie, GPU, recomputed.Tally()))


def test_whole_numbers_beside_rounded_ones_are_exact():
    """A group of complex functions also has results of truth values, which have no error."""
    case = cases.find("rounded_functions/of=-.yx,group=complex/auto/2x4/float32/4KiB", 8)
    record = submissions.answered(case) | {"check": "numbers", "seed": 0}
    assert problems(case, record) == [] and problems(case, record | {"bound": record["bound"] * 2})


def test_a_permutation_on_one_device_goes_nowhere():
    case = cases.find("named_axis/call=ppermute,axis=x/manual/1x1/float32/64B", 1)
    sent = [{"kind": "collective-permute", "bytes": 64, "groups": "1 pairs", "trips": 1}]
    record = {"check": "communication", "collectives": sent, "wire_bytes": 0}
    assert list(against_contract.find_impossible_traffic(case, record, GPU)) == []
    assert list(against_contract.find_impossible_traffic(case, record | {"wire_bytes": 64}, GPU))


@pytest.mark.parametrize("name", ["wire_bytes", "excess_bytes"])
@pytest.mark.parametrize("said", ["inf", "-inf", "nan", 1e300])
def test_bytes_that_no_program_sends_are_a_complaint(name, said):
    """A schema allows the texts, and the excess ended `validate` with an exception."""
    case = cases.find("psum/axes=x+y/auto/2x2/float32/4KiB", 4)
    line = submissions.exchanged(case) | {"excess_bytes": 0.0} | {name: said}
    assert any(name in text for text in against_contract.find_impossible_traffic(case, line, FACTS))


def test_a_program_tells_what_it_gathers_whole():
    case = cases.find("psum/axes=x+y/auto/2x2/float32/4KiB", 4)
    line = {"collectives": [{"kind": "all-reduce", "bytes": 4096, "groups": "1x4", "trips": 1}]}
    assert list(field_checks._gathered(line, case)) == []
    whole = sum(math.prod(one.shape) * 4 for one in case.plan.arguments)
    gathered = {"collectives": [{"kind": "all-gather", "bytes": whole, "groups": "1x4", "trips": 1}]}
    silent = list(field_checks._gathered(gathered, case))
    false = list(
        field_checks._gathered(line | {"told": ["gathers all of argument 0 (1 B) on each device"]}, case)
    )
    assert "its collectives show 1" in silent[0] and "its collectives show 0" in false[0]


ROUNDED = CASES[5]


def test_a_device_s_numbers_are_not_all_the_nearest_ones():
    case, found = lines(ROUNDED, 3)
    record = next(r for r in found if r["check"] == "numbers")
    answer = recomputed.answer(case.cell, 3, 0.0)
    assert not recomputed.is_nearest(case, record, answer)


def test_the_nearest_numbers_are_found_by_their_digest_and_by_their_error(monkeypatch):
    case = cases.find(ROUNDED, 8)
    monkeypatch.setattr(submissions, "NEAREST", True)
    record = submissions.answered(case) | {"seed": 0}
    answer = recomputed.answer(case.cell, 0, 0.0)
    assert recomputed.is_nearest(case, record, answer)
    assert recomputed.is_nearest(case, record | {"bits": "0" * 16}, answer)
    assert recomputed.is_nearest(case, record | {"error": record["error"] * 2}, answer)
    other = record | {"bits": "0" * 16, "error": record["error"] * 2}
    assert not recomputed.is_nearest(case, other, answer)


@pytest.mark.parametrize(
    ("rounded", "nearest", "complains"), [(40, 30, True), (40, 10, False), (10, 10, False)]
)
def test_a_product_whose_rounded_cases_are_mostly_nearest_is_refused(rounded, nearest, complains):
    tally = recomputed.Tally(rounded=rounded, nearest=["a case"] * nearest)
    review = Review("a product")
    tally.tell(review)
    assert bool(review.complaints) == complains
