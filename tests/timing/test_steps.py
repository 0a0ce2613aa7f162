# SPDX-License-Identifier: Apache-2.0
"""Figures of the decoder's steps: tokens/s, MFU, payload by collective, memory."""

import pytest

from meshmark.operations import cases
from meshmark.records.reading import Records
from meshmark.timing import steps, timing_tables

STAGED = "staged_decoder/stages=x,model=y/{}/2x4/float32/n16"
DECODER, DECODE = (
    "decoder/batch=x,model=y/{}/2x4/float32/n16",
    "decode_step/batch=x,model=y,at=middle/{}/2x4/float32/n16",
)


def record(case, mode, seconds, **more):
    operation, variant, _, mesh, dtype, _ = case.split("/")
    return {
        "case": case.format(mode), "operation": operation, "variant": variant, "mode": mode, "mesh": mesh,
        "dtype": dtype, "cadence": "isolated", "process": 0, "verdict": "pass", "check": "execute", "reason": "",
        "verified": True, "samples_s": [seconds] * 9, "devices": 8,
        "cost": {"flops": 8 * 10**6, "nbytes": 0, "factor": 0.0},
        "communication": [{"kind": "all-reduce", "bytes": 100, "groups": "2x4", "trips": 3},
                          {"kind": "all-gather", "bytes": 50, "groups": "2x4", "trips": None},
                          {"kind": "all-reduce", "bytes": 7, "groups": "1x8", "trips": 1}],
        "argument_bytes": 1000, "output_bytes": 200, "temp_bytes": 30,
    } | more  # fmt: skip


def of(*timings):
    ceiling = {"name": "largest matmul", "dtype": "float32", "value": 8e10, "unit": "FLOP/s", "devices": 8}
    facts = {"device_kind": "cpu", "virtual": True, "devices": []}
    return Records([{"facts": facts}], {}, list(timings), [ceiling], [])


def test_tokens_are_those_of_one_call():
    """The forward pass takes 4 sequences of 16 tokens, a decode step one token of each of the 4."""
    forward, decode = steps.step_rows(of(record(DECODER, "auto", 1e-3), record(DECODE, "manual", 1e-3)))
    assert forward["tokens_per_s"] == pytest.approx(64e3) and decode["tokens_per_s"] == pytest.approx(4e3)
    assert forward["mfu"] == pytest.approx(8e6 / 8e10 / 1e-3) and "measured here" in forward["peak"]
    assert forward["sent"] == {"all-gather": 50, "all-reduce": 307} and forward["memory"] == 1230


def test_mfu_leaves_out_the_idle_stages_of_a_pipeline():
    """Two stages with two micro-batches compute in three ticks each, of which two are needed."""
    cost = cases.find(STAGED.format("manual"), 8).plan.cost
    (row,) = steps.step_rows(
        of(record(STAGED, "manual", 1e-3, cost={"flops": cost.flops, "nbytes": 0, "factor": 0.0}))
    )
    assert row["mfu"] == pytest.approx((cost.flops - cost.idle) / 8e10 / 1e-3)
    assert 0.5 < (cost.flops - cost.idle) / cost.flops < 1


def test_wrong_values_and_unknown_cases_have_no_row():
    wrong = record(DECODER, "auto", 1e-3, verified=False)
    unknown = record("decoder/batch=q/{}/2x4/float32/n16", "auto", 1e-3)
    assert not list(steps.step_rows(of(wrong, unknown, record(DECODER, "manual", 1e-3, samples_s=[]))))


def test_the_terminal_shows_modes_side_by_side():
    found = "\n".join(
        timing_tables.table_lines(of(record(DECODER, "auto", 1e-3), record(DECODER, "manual", 2e-3)))
    )
    assert "steps of the decoder" in found and "64,000" in found and "32,000" in found
