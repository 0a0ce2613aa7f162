# SPDX-License-Identifier: Apache-2.0
"""The table of cases judged by interpretation, from records of compile-only runs."""

from meshmark.core.escaping import escape_markdown
from meshmark.report import interpretation_tables, tables
from tests.report.test_topology_tables import case, read


def judged(name, verdict, check="numbers", place="v5p:2x2x2", **more):
    """The numbers line of a case."""
    line = case("manual", None, operation=name, place=place, check=check, verdict=verdict, **more)
    return {key: value for key, value in line.items() if key not in ("collectives", "excess_bytes", "flops")}


def interpreted(name, verdict, **more):
    return judged(name, verdict, interpreted=True, interpret_s=0.5, **more)


def test_every_program_counts_once_by_the_verdict_of_its_numbers(tmp_path):
    reason = "custom call tpu_custom_call"
    lines = [
        interpreted("psum", "pass"),
        judged("psum", "pass", check="compile", compile_s=2.0),
        interpreted("psum", "pass", check="replicas"),
        interpreted("matmul", "fail"),
        interpreted("pmax", "known"),
        interpreted("dense_gradient", "pass", check="gradient"),
        interpreted("ragged_dot", "not_run", refused=reason),
        judged("ppermute", "known", check="execute"),
        interpreted("psum", "pass", place="h100:8"),
    ]
    records = read(tmp_path / "r.jsonl", lines)
    v5p, h100 = interpretation_tables.coverage([records])
    assert v5p.row() == ["v5p:2x2x2", "5", "4 (80.0%)", "2", "1", "1", "1", "2", "2"]
    assert v5p.reasons == {reason: 1}
    assert h100.row() == ["h100:8", "1", "1 (100.0%)", "1", "0", "0", "0", "0", "0"]
    text = tables.as_markdown(tables.frame([records]), [records])
    assert "| v5p:2x2x2 | 5 | 4 (80.0%) | 2 | 1 | 1 | 1 | 2 | 2 |" in text
    assert f"| v5p:2x2x2 | {escape_markdown(reason)} | 1 |" in text


def test_a_program_that_nobody_interpreted_is_not_one_that_did_not_compile(tmp_path):
    communication = [
        judged("pmin", "pass", check="compile", compile_s=2.0),
        judged("pmin", "not_run"),
        judged("pmax", "error", check="execute"),
    ]
    records = read(tmp_path / "r.jsonl", [interpreted("psum", "pass"), *communication])
    [v5p] = interpretation_tables.coverage([records])
    assert (v5p.programs, v5p.uncompiled) == (1, 1)


def test_what_ran_on_devices_is_no_row(tmp_path):
    line = judged("psum", "pass", topology=None)
    line["case"] = line["case"].partition("@")[0]
    records = read(tmp_path / "r.jsonl", [line])
    assert interpretation_tables.coverage([records]) == []
    assert list(interpretation_tables.chapter([])) == []
