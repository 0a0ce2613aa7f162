# SPDX-License-Identifier: Apache-2.0
"""Data of the page beside runs: weather, growth and other libraries, from records with known answers."""

import gzip
import json
import re

from benchmarks.others.tables import number
from meshmark.growth import lines as growth_lines
from meshmark.records import reading
from meshmark.report import context_data, page_data, report
from meshmark.report.context_data import Beside
from tests.browser import records as made_up
from tests.checkout import ROOT
from tests.weather.test_weather import CASE, OTHER, lines_of, write_lines


def weather(tmp_path, *environments):
    found = Beside()
    for lines in environments:
        path = write_lines(lines, tmp_path)
        assert context_data.kind_of(path) == "schedule"
        found.add("schedule", path, path.name, "0" * 64)
    return context_data.build(found)["weather"]


def test_the_weather_has_sums_and_every_change(tmp_path):
    data = weather(
        tmp_path,
        lines_of("0.11.0", "0.0.44", cases=(CASE, OTHER)),
        lines_of("0.12.0", "0.0.50", cases=(CASE, OTHER), memory_bytes=110),
    )
    (place,) = data["places"]
    assert [r["label"] for r in data["releases"]] == [
        "JAX 0.11.0, libtpu 0.0.44",
        "JAX 0.12.0, libtpu 0.0.50",
    ]
    assert place["sums"]["memory"] == [200, 220]
    (step,) = place["steps"]
    memory = [name for name, _ in data["counters"]].index("memory")
    assert (step["programs"], step["changed"]) == (2, 2)
    assert sorted(step["changes"]) == sorted([(CASE, memory, 100, 110), (OTHER, memory, 100, 110)])


def test_a_program_without_a_counter_is_left_out_of_its_sums_and_told(tmp_path):
    old, new = (lines_of(jax, cases=(CASE, OTHER)) for jax in ("0.11.0", "0.12.0"))
    new[1]["exposed_s"] = None
    (place,) = weather(tmp_path, old, new)["places"]
    assert place["sums"]["exposed"] == [1e-6, 1e-6]
    assert place["without"] == {"exposed": 1}


def test_growth_tells_what_grows_faster_than_its_theory():
    line = {"kind": "growth", "chip": "v5p", "variant": "axes=x+y", "mode": "manual", "scaling": "strong"}
    line |= {
        "operation": "psum",
        "verdict": "pass",
        "mesh": "2x2",
        "size": "1MiB",
        "case": "c",
        "topology": "v5p",
        "dtype": "float32",
    }
    sizes = (4, 16, 64)
    fair = [line | {"devices": n, "wire_bytes": 10.0, "theory": {"wire_bytes": 10.0}} for n in sizes]
    steep = [one | {"operation": "all_gather", "wire_bytes": 2.5 * one["devices"]} for one in fair]
    strange = [one | {"operation": "no_such_operation"} for one in fair]
    found = context_data.build(
        Beside(growth=[one for one in (*fair, *steep, *strange) if not growth_lines.problem(one)])
    )["growth"]
    assert [(row["operation"], row["faster"]) for row in found] == [
        ("psum", []),
        ("all_gather", ["wire_bytes"]),
    ]
    assert found[1]["wire_bytes"] == [(4, 10), (16, 40), (64, 160)]
    assert found[1]["wire_bytes_theory"] == [(4, 10), (16, 10), (64, 10)]


def test_the_figures_beside_others_are_those_of_their_own_page():
    """The published records, against the tables that python -m benchmarks.others made of them."""
    found = Beside()
    path = ROOT / "results/others/cpu-2.jsonl.gz"
    found.add(context_data.kind_of(path), path, path.name, "0" * 64)
    (data,) = context_data.build(found)["others"]
    page = (ROOT / "docs/others.md").read_text(encoding="utf-8")
    times = page.partition("**all_reduce: time of a call, us")[2]
    expected = re.search(r"\| 4 KiB \| ([\d,.]+) \(([\d,.]+) to ([\d,.]+)\)", times)
    row = next(r for r in data["rows"] if (r["operation"], r["bytes"]) == ("all_reduce", 4096))
    assert [number(1e6 * t) for t in row["times"]["jax"]] == list(expected.groups())
    ratios = page.partition("**all_reduce: time of JAX, gloo over that of the others")[2]
    expected = re.search(r"\| 4 KiB \| ([\d.]+) \(([\d.]+) to ([\d.]+)\)", ratios)
    assert [number(t) for t in row["ratios"]["torch"]] == list(expected.groups())


def test_a_contestant_with_a_wrong_value_is_left_out():
    run = {
        "kind": "run",
        "schema": context_data.OTHERS,
        "contestants": [{"name": n, "label": n} for n in ("jax", "mpi")],
    }
    block = {
        "kind": "block",
        "operation": "all_reduce",
        "nbytes": 8,
        "samples_us": [[1.0], [3.0]],
        "wrong": None,
    }
    lines = [run, *(block | {"contestant": n, "round": r} for n in ("jax", "mpi") for r in range(6))]
    (row,) = context_data._others(lines)["rows"]
    assert row["times"]["jax"][0] == 3e-6  # the slowest rank's
    lines[-1] |= {"wrong": "the sum"}
    (row,) = context_data._others(lines)["rows"]
    assert set(row["times"]) == {"jax"}
    assert context_data._of_others([run | {"contestants": [3]}, {"kind": "block"}]) is None


def test_interpreted_numbers_have_a_mark_of_their_own(tmp_path):
    lines = made_up.judged(topology="v5e:2x4")
    for line in lines:
        if line["check"] == "numbers" and line["mode"] == "manual":
            line |= {"verdict": "pass", "reason": "", "interpreted": True}
    execute = [
        {k: v for k, v in line.items() if k != "interpreted"} | {"check": "execute", "verdict": "not_run"}
        for line in lines
        if line["check"] == "numbers"
    ]
    made_up.file(tmp_path / "one.jsonl", made_up.run("aaaa", topology="v5e:2x4"), [*lines, *execute])
    data = page_data.build(report.find_records([tmp_path]).sources)
    judged = data["runs"][0]["judged"]
    modes = [data["strings"][data["cases"]["mode"][c]] for c in judged["case"]]
    shown = {(m, data["verdicts"][v]) for m, v in zip(modes, judged["verdict"], strict=True)}
    assert shown == {("auto", "not_run"), ("explicit", "not_run"), ("manual", "interpreted")}


def test_orders_and_controls_come_from_enough_processes(tmp_path):
    """Twenty processes resolve a mode that takes 1.2 times as long; its control stays unresolved."""
    lines = []
    for process in range(20):
        for line in made_up.timed():
            if line["kind"] == "timing" and line["mesh"] == "8" and line["case"].endswith("/1MiB"):
                swing = 1 + 0.001 * ((7 * process) % 5 - 2)
                own = [swing * s for s in line["samples_s"]]
                twin = [s * (1 + 0.0005 * ((3 * process) % 7 - 3)) for s in own]
                lines.append(line | {"process": process, "samples_s": own})
                if line["mode"] == "manual":
                    lines[-1]["control_s"] = twin
    made_up.file(tmp_path / "one.jsonl", made_up.run("aaaa"), lines)
    timings = page_data.build(report.find_records([tmp_path]).sources)["runs"][0]["timings"]
    assert set(timings["order"]) == {None, 0, 1}
    controls = page_data.build(report.find_records([tmp_path]).sources)["runs"][0]["controls"]
    assert controls and {c["order"] for c in controls} == {0}


def test_a_file_is_known_by_its_first_lines(tmp_path):
    for name, first, second, kind in (
        ("a.jsonl", {"kind": "run"}, {"kind": "conformance"}, ""),
        ("b.jsonl", {"kind": "run"}, {"kind": "growth"}, "growth"),
        ("c.jsonl.gz", {"kind": "run"}, {"kind": "schedule"}, "schedule"),
    ):
        opened = gzip.open if name.endswith("gz") else open
        with opened(tmp_path / name, "wt") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in (first, second))
        assert context_data.kind_of(tmp_path / name) == kind
    assert "schedule" in reading.KINDS


def test_a_line_that_is_left_out_is_told_with_its_place(tmp_path):
    line = {"kind": "growth", "chip": "v5p", "operation": "psum", "variant": "axes=x", "mode": "manual"}
    line |= {"scaling": "strong", "verdict": "pass", "devices": 4, "mesh": "4", "size": "1MiB", "case": "c"}
    line |= {"topology": "v5p", "dtype": "float32", "wire_bytes": 10.0}
    lacking = {k: v for k, v in line.items() if k != "devices"}
    path = tmp_path / "growth.jsonl"
    lines = [{"kind": "run"}, line, lacking, line | {"operation": "no_such_operation"}]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines) + "{\n[]\n")
    found = Beside()
    told = found.add("growth", path, path.name, "0" * 64)
    assert found.growth == [line]
    assert [one.partition(": ")[0] for one in told] == [f"{path}:{n}" for n in (5, 6, 3, 4)]
    assert "must have 'devices'" in told[2] and "unknown operation" in told[3]


def test_others_that_can_t_be_shown_are_told(tmp_path):
    path = tmp_path / "others.jsonl"
    path.write_text('{"schema": "meshmark-others-1"}\n')
    (told,) = Beside().add("others", path, path.name, "0" * 64)
    assert told.startswith(f"{path}: no times of others")
