# SPDX-License-Identifier: Apache-2.0
"""Tables of compiled communication: modes by topology, and two releases side by side."""

from __future__ import annotations

import json
import math
import re

import pytest

from meshmark.commands import main as cli
from meshmark.records import reading
from meshmark.records.reading import Records
from meshmark.report import tables, topology_tables
from tests.checkout import ROOT


def case(mode, sent, excess=0.0, place="v5e:2x4", operation="psum_scatter", kind="all-reduce", **more):
    """The communication line of one case as `pytest conformance --topology` writes it."""
    head = f"{operation}/axes=x+y/{mode}/2x4/float32/4KiB"
    found = {
        "schema": 1,
        "kind": "conformance",
        "run": "r",
        "case": f"{head}@{re.sub('[^A-Za-z0-9:._-]', '.', place)}",
        "operation": operation,
        "variant": "axes=x+y",
        "mode": mode,
        "mesh": "2x4",
        "dtype": "float32",
        "level": "L1",
        "seed": 0,
        "check": "communication",
        "verdict": "pass",
        "reason": "",
        "collectives": [{"kind": kind, "bytes": 4096, "groups": "1x8", "trips": 1}] if sent else [],
        "wire_bytes": sent,
        "excess_bytes": excess,
        "flops": 1024.0,
        "temp_bytes": 0,
        "topology": place,
        "layout": "plain",
        "seconds": 0.1,
        **more,
    }
    return {name: value for name, value in found.items() if value is not None}


def written(path, lines, jax="0.12.0.1", libtpu="0.0.52"):
    facts = {"versions": {"jax": jax}, "compiler": {"libtpu": libtpu}, "num_devices": 8}
    run = {"schema": 1, "kind": "run", "run": "r", "facts": facts}
    path.write_text("".join(json.dumps(line) + "\n" for line in [run, *lines]))
    return path


def read(path, lines, **versions) -> Records:
    found = reading.read_records(written(path, lines, **versions))
    assert not found.problems, found.problems
    return found


@pytest.fixture
def run(tmp_path):
    return [
        case("auto", 7168.0, 3584.0),
        case("explicit", 7168.0, 3584.0),
        case("manual", 3584.0, kind="reduce-scatter"),
        case("auto", 7168.0, 3584.0, place="v5p:4x4x4"),
        case("manual", 7168.0, 3584.0, place="v5p:4x4x4"),
        case("auto", 0.0, operation="reshard", excess_bytes=None),
    ]


def test_overview_has_the_factor_of_each_mode(run, tmp_path):
    found = topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", run)])
    places = ["v5e:2x4", "v5p:4x4x4"]
    assert topology_tables.overview(found, places) == [["psum_scatter", "2", "1 / -"]]
    assert topology_tables.beyond_spelling(found, places) == [["psum_scatter", "1", "2"]]


def test_what_differs_is_one_row_for_modes_and_topologies_that_agree(run, tmp_path):
    found = topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", run)])
    assert topology_tables.differing(found) == [
        ["psum_scatter", "axes=x+y", "auto, explicit, manual", "1 all-reduce", "1 to 2", "1 to 2",
         "v5e:2x4, v5p:4x4x4"]
    ]  # fmt: skip


def test_bytes_are_relative_to_what_manual_mode_compiles_to(tmp_path):
    """Where manual mode too sends twice what it spells, auto sends no more than it."""
    lines = [case(mode, 7168.0, 3584.0) for mode in topology_tables.MODES]
    found = topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", lines)])
    assert [(c.times, c.over_spelled) for c in found] == [(1, 2)] * 3
    text = "\n".join(topology_tables.chapter(found))
    assert "| psum_scatter | 1 |" in text and "| times manual | manual over spelled |" in text


def test_without_a_good_manual_case_there_is_no_factor(tmp_path):
    """A case without its manual case, and beside one that fails; and a case that fails itself is left out."""
    lines = [
        case("auto", 7168.0, 3584.0),
        case("auto", 7168.0, 3584.0, operation="psum"),
        case("manual", 3584.0, operation="psum", verdict="fail"),
    ]
    found = topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", lines)])
    assert [c.operation for c in found] == ["psum_scatter", "psum"]
    assert all(math.isnan(c.times) for c in found)
    assert topology_tables.overview(found, ["v5e:2x4"]) == [] == topology_tables.differing(found)


def test_the_largest_finite_factor_comes_first(tmp_path):
    lines = [
        *(case("auto", 64.0, operation="psum"), case("manual", 0.0, operation="psum")),
        *(case("auto", 8.0, operation="pmax"), case("manual", 4.0, operation="pmax")),
        *(case("auto", 64.0, operation="pmin"), case("manual", 4.0, operation="pmin")),
    ]
    found = topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", lines)])
    for rows in (topology_tables.overview(found, ["v5e:2x4"]), topology_tables.differing(found)):
        assert [row[0] for row in rows] == ["pmin", "pmax", "psum"]


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (1.75, "1.75"), (1980.2, "1,980"), (float("inf"), "inf")]
)
def test_factors(value, text):
    assert topology_tables.factor(value) == text


def test_communication_where_manual_mode_spells_none(tmp_path):
    lines = [case("auto", 64.0, 64.0), case("manual", 0.0)]
    found = topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", lines)])
    assert [c.times for c in found] == [float("inf"), 1.0]


def test_a_loop_counts_its_runs(tmp_path):
    looped = case(
        "auto", 8.0, collectives=[{"kind": "all-reduce", "bytes": 1, "groups": "1x8", "trips": 100}]
    )
    (one,) = topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", [looped])])
    assert one.kinds == "100 all-reduce"


def test_cases_of_real_devices_are_no_topology(tmp_path):
    lines = [case("auto", 64.0)]
    del lines[0]["topology"]
    assert topology_tables.find_compiled_cases([read(tmp_path / "r.jsonl", lines)]) == []


def test_the_tables_command_shows_it(run, tmp_path, capsys):
    pytest.importorskip("pandas", reason="pandas is not installed")
    assert cli.main(["tables", str(written(tmp_path / "r.jsonl", run))]) == 0
    shown = capsys.readouterr().out
    assert "## Modes by topology" in shown and "| psum_scatter | 2 | 1 / - |" in shown


def test_what_only_compiled_is_no_failure(tmp_path):
    pytest.importorskip("pandas", reason="pandas is not installed")
    lines = [
        case("auto", 64.0, verdict="not_run", reason="nothing can run"),
        case("manual", 1.0, verdict="fail"),
    ]
    files = [read(tmp_path / "r.jsonl", lines)]
    files[0].runs[0]["facts"]["topology"] = "v5e:2x4"
    text = tables.make_tables(files, ["md"])["md"]
    assert "## JAX 0.12.0.1 compiled for v5e:2x4" in text
    listed = text.partition("### What does not pass")[2].partition("###")[0]
    assert "psum_scatter/axes=x+y/manual" in listed and "psum_scatter/axes=x+y/auto" not in listed


def test_the_document_has_the_tables_of_the_published_records():
    names = ("v5e.2x4", "v5p.4x4x4", "v6e.16x16", "tpu7x.2x2x1", "h100.8", "h100.1024")
    of = ROOT / "results" / "compile-only" / "0.12.0.1"
    files = [reading.read_records(of / f"{name}.jsonl") for name in names]
    chapter = "\n".join(topology_tables.chapter(topology_tables.find_compiled_cases(files)))
    assert chapter in (ROOT / "docs" / "topologies.md").read_text()


def test_no_topology_no_chapter(tmp_path):
    pytest.importorskip("pandas", reason="pandas is not installed")
    lines = [case("auto", 64.0)]
    del lines[0]["topology"]
    files = [read(tmp_path / "r.jsonl", lines)]
    assert "Modes by topology" not in tables.make_tables(files, ["md"])["md"]


def test_markdown_is_escaped(tmp_path):
    found = topology_tables.find_compiled_cases(
        [
            read(
                tmp_path / "r.jsonl",
                [case("auto", 8.0, 4.0, place="<b>|x"), case("manual", 4.0, place="<b>|x")],
            )
        ]
    )
    text = "\n".join(topology_tables.chapter(found))
    assert "<b>" not in text and "\\|x" in text


def test_differences_are_exact(tmp_path):
    old = read(tmp_path / "old.jsonl", [case("auto", 64.0), case("manual", 8.0), case("explicit", 8.0)])
    changed = case("auto", 65.0, kind="all-gather")
    new = read(tmp_path / "new.jsonl", [changed, case("manual", 8.0), case("pjit", 1.0)], jax="0.13")
    found, compared = topology_tables.compare_counters(old, new)
    assert compared == 2
    assert [(d.quantity, d.old, d.new) for d in found] == [
        ("collectives", "1 all-reduce 4096B 1x8", "1 all-gather 4096B 1x8"),
        ("wire_bytes", "64", "65"),
    ]


def test_the_diff_command_shows_them(tmp_path, capsys):
    old = written(tmp_path / "old.jsonl", [case("auto", 64.0)], jax="0.11.2", libtpu="0.0.48.1")
    new = written(tmp_path / "new.jsonl", [case("auto", 32.0)])
    assert cli.main(["diff", str(old), str(new), "--compiled"]) == 0
    shown = capsys.readouterr().out
    assert "old: jax 0.11.2, libtpu 0.0.48.1" in shown and "new: jax 0.12.0.1, libtpu 0.0.52" in shown
    assert "1 case compiled in both; different: wire_bytes of 1" in shown
    assert cli.main(["diff", str(old), str(old), "--compiled"]) == 0
    assert "different: nothing" in capsys.readouterr().out
