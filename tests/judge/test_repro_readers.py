# SPDX-License-Identifier: Apache-2.0
"""Each short reader of compiled text passes what keeps its contract, and fails what breaks it."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from meshmark.judge.repro import contracts
from meshmark.judge.repro.printer import NAMES
from meshmark.judge.repro.sources import Bundle
from meshmark.operations import cases

ALL = "replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add"
ROWS = "replica_groups={{0,4},{1,5},{2,6},{3,7}}, to_apply=%add"
COLUMNS = "replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add"
MANUAL, AUTO = "psum/axes=x/manual/2x4/float32/4KiB", "psum/axes=x/auto/2x4/float32/4KiB"
ALONE = "matmul/rows=x+y,check=exact/auto/2x4/float32/n64"
NOTHING = "%a = f32[1] copy(%b)"


def reduced(groups, count=1024):
    return f"%s = f32[{count}] all-reduce(%a), {groups}"


READS = {
    "kinds": (MANUAL, reduced(ROWS), "%g = f32[2048] all-gather(%a), replica_groups={{0,4}}, dimensions={0}"),
    "none": (ALONE, NOTHING, reduced(ROWS)),
    "host": (
        MANUAL,
        reduced(ROWS),
        '%c = () custom-call(%a), custom_call_target="xla_python_cpu_callback"',
    ),
    "groups": (MANUAL, reduced(ROWS), reduced(ALL)),
    "bytes": (MANUAL, reduced(ROWS), reduced(ROWS, 2048)),
    "connected": (AUTO, reduced(ROWS), reduced(COLUMNS)),
    "axes": (AUTO, reduced(ROWS), reduced(ALL)),
    "payloads": (MANUAL, reduced(ROWS), reduced(ROWS, 512)),
    "total": (AUTO, reduced(ROWS), reduced(ROWS, 10**6)),
}
"""Reader -> a case, a text that keeps its contract, and one that breaks it."""


def judge(reader, case_id, text="", flops=0, held=0):
    bundle = Bundle(reserved=NAMES)
    case = cases.find(case_id, 8)
    contract = contracts.contract(case, bundle, reader)
    compiled = SimpleNamespace(
        as_text=lambda: text,
        cost_analysis=lambda: {"flops": flops},
        memory_analysis=lambda: SimpleNamespace(temp_size_in_bytes=held),
    )
    names = {"re": re, "math": math, "np": np, "compiled": compiled, "good": True}
    exec("\n\n".join(bundle.parts) + "\n" + "\n".join(contract.code), names)
    return bool(names["good"])


@pytest.mark.parametrize("reader", READS)
def test_a_reader_tells_a_kept_contract_from_a_broken_one(reader):
    case_id, kept, broken = READS[reader]
    assert judge(reader, case_id, kept)
    assert not judge(reader, case_id, broken)


def test_the_work_and_the_memory_of_a_device_have_limits():
    assert judge("operations", MANUAL) and not judge("operations", MANUAL, flops=1e9)
    assert judge("memory", MANUAL) and not judge("memory", MANUAL, held=1e9)
    with pytest.raises(AssertionError, match="library"):
        judge("memory", MANUAL, 'custom_call_target="lapack"')


@pytest.mark.parametrize("reader", ["bytes", "payloads", "total"])
def test_bytes_of_a_loop_are_refused(reader):
    with pytest.raises(AssertionError, match="loop"):
        judge(reader, READS[reader][0], "%w = (s32[]) while(%t), body=%b")


@pytest.mark.parametrize("reader", ["bytes", "payloads", "total", "payloads of loops", "total of loops"])
def test_bytes_of_a_chain_are_refused(reader):
    """Each fusion of a chain prints the collective that they run together."""
    case_id = AUTO if "total" in reader else MANUAL
    with pytest.raises(AssertionError, match="chain"):
        judge(reader, case_id, reduced(ROWS) + ', frontend_attributes={chain_id="1"}')


def test_the_bytes_of_an_asynchronous_collective_are_those_of_its_result():
    case, groups = "all_gather/axes=x,dim=0,tiled/manual/2x4/float32/4KiB", ROWS.partition(", to")[0]

    def gathered(count):
        start = f"%s = (f32[1024], f32[{count}]) all-gather-start(%a), {groups}, dimensions={{0}}"
        return f"{start}\n%d = f32[{count}] all-gather-done(%s)"

    for reader in ("bytes", "payloads"):
        assert judge(reader, case, gathered(2048)) and not judge(reader, case, gathered(4096))


def looping(turns, note="known_trip_count"):
    """A program that reduces 256 elements over the rows in each turn of its loop."""
    loop = f'while(%x), condition=%test, body=%body, backend_config={{"{note}":{{"n":"{turns}"}}}}'
    return (
        f"%body (p: f32[256]) -> f32[256] {{\n  {reduced(ROWS, 256)}\n}}\n\n"
        "%test (p: f32[256]) -> pred[] {\n  %t = pred[] constant(true)\n}\n\n"
        "%add (p: f32[], q: f32[]) -> f32[] {\n  %t = f32[] add(%p, %q)\n}\n\n"
        f"ENTRY %main (x: f32[256]) -> f32[256] {{\n  %w = f32[256] {loop}\n}}\n"
    )


@pytest.mark.parametrize(("reader", "case_id"), [("payloads of loops", MANUAL), ("total of loops", AUTO)])
def test_the_bytes_of_a_loop_are_those_of_all_its_turns(reader, case_id):
    assert judge(reader, case_id, looping(4)) and not judge(reader, case_id, looping(4000))
    with pytest.raises(ValueError, match="unknown length"):
        judge(reader, case_id, looping(4, "unknown"))


def test_a_collective_of_one_member_sends_nothing():
    alone = "%s = f32[7] all-reduce(%a), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add"
    assert judge("payloads", MANUAL, reduced(ROWS) + "\n" + alone)


@pytest.mark.parametrize("case_id", [MANUAL, AUTO, ALONE])
def test_every_reader_of_a_case_ends_in_a_statement_of_good(case_id):
    """The printer begins a script without other checks at the first of them."""
    for reader in contracts.readers(cases.find(case_id, 8)):
        code = contracts.contract(cases.find(case_id, 8), Bundle(reserved=NAMES), reader).code
        assert any(line.startswith("good &= ") for line in code), reader


def test_all_readers_are_tried_here():
    others = {"operations", "memory", "payloads of loops", "total of loops"}
    assert {*READS, *others} == {*contracts.READERS}
