# SPDX-License-Identifier: Apache-2.0
"""The bytes that the modes send, relative to manual mode as it was compiled."""

import math

import pytest

from meshmark.records.reading import Judged
from meshmark.report import sent, summary, tables


def judged(mode, wire, verdict="pass", operation="shift_set", place="", dtype="bfloat16", **more):
    case = f"{operation}/dim=0/{mode}/8/{dtype}/4KiB" + (f"@{place}" if place else "")
    head = {"case": case, "operation": operation, "mode": mode, "level": "L2", "reason": ""}
    line = head | {"check": "communication", "verdict": verdict, "wire_bytes": wire} | more
    return case, Judged(case, [line])


def test_the_factor_is_of_what_manual_mode_compiles_to_not_of_its_contract():
    """A backend that widens bfloat16 sends twice the contract in manual mode too."""
    cases = dict(
        [judged("manual", 184.0, excess_bytes=92.0), judged("auto", 16_376.0, excess_bytes=16_284.0)]
    )
    (one,) = sent.beside_manual(cases)
    assert (one.bytes, one.least, one.times) == (16_376, 184, 89)
    assert summary.communication(cases) == [
        "shift_set in mode auto sends up to 89 times the bytes of manual mode (1 case)"
    ]
    assert tables.excess(sent.beside_manual(cases), "manual")[1][0][2:6] == [1, "89", "16376", "184"]


@pytest.mark.parametrize("verdict", ["fail", "error", "crash", "hang"])
@pytest.mark.parametrize("wrong", ["auto", "manual"])
def test_a_bad_case_says_nothing_about_its_mode(verdict, wrong):
    cases = dict(judged(m, 8.0, verdict if m == wrong else "pass") for m in ("auto", "manual"))
    assert sent.beside_manual(cases) == []


def test_a_mode_that_was_not_judged_is_not_said_to_send_no_more():
    alone = dict([judged("manual", 184.0)])
    assert sent.beside_manual(alone) == [] and summary.communication(alone) == []
    (_, rows), empty = tables.excess(sent.beside_manual(alone), "manual"), tables._no_excess(alone)
    assert rows == [] and empty == "No automatic or explicit case stands beside a manual one."
    same = dict([judged("manual", 184.0), judged("auto", 184.0)])
    assert tables._no_excess(same) == "Nowhere: 1 case compared."


def test_where_manual_mode_sends_nothing_the_bytes_are_given():
    cases = dict([judged("manual", 0.0), judged("explicit", 64.0)])
    assert math.isinf(sent.beside_manual(cases)[0].times)
    assert "sends up to 64 B per device, and manual mode sends nothing" in summary.communication(cases)[0]


def test_the_manual_case_of_a_topology_is_that_of_the_same_place():
    here = [judged("manual", 10.0, place="v5e:2x4"), judged("auto", 20.0, place="v5e:2x4")]
    there = [judged("manual", 20.0, place="v5p:2x2x2")]
    (one,) = sent.beside_manual(dict(here + there))
    assert one.times == 2


@pytest.mark.parametrize("wire", ["many", None, True, math.nan, math.inf])
def test_a_record_that_says_no_bytes_gives_no_factor(wire):
    assert sent.beside_manual(dict([judged("manual", 1.0), judged("auto", wire)])) == []


def test_a_variant_without_a_manual_case_is_compared_with_what_it_must_send():
    theory = {"x": 1024.0, "y": 512.0}
    wide = {"dtype": "float32", "theory": theory}
    cases = dict(
        [
            judged("auto", 6144.0, operation="reshard", **wide),
            judged("auto", 6144.0, operation="reshard", theory=theory),  # a backend may send wider elements
            judged("explicit", 1536.0, operation="reshard", **wide),
            judged("auto", 64.0, operation="transpose", dtype="float32", theory={}),
            judged("manual", 184.0, **wide),
            judged("auto", 9999.0, **wide),
        ]
    )
    assert [(one.judged.case.split("/")[0], one.times) for one in sent.beside_theory(cases)] == [
        ("reshard", 4.0),
        ("reshard", 1.0),
        ("transpose", math.inf),
    ]
    assert summary.communication(cases)[1:] == [
        "transpose in mode auto sends up to 64 B per device, and it must send nothing (1 case)",
        "reshard in mode auto sends up to 4.0 times the bytes that it must send (1 case)",
    ]
    header, rows = tables.excess(sent.beside_theory(cases), "theory")
    assert header[3] == "times theory" and [row[3] for row in rows] == ["theory: none", "4"]
