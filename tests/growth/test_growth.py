# SPDX-License-Identifier: Apache-2.0
"""Growth: its programs, their theory, the findings, and the output of the command."""

from __future__ import annotations

import builtins
import importlib.util
import itertools
import json
import math
import subprocess
import sys

import pytest

from meshmark.commands import growth as growth_command
from meshmark.commands import main as cli
from meshmark.core import extras, meshes
from meshmark.devices import topologies
from meshmark.growth import curves as growth
from meshmark.growth import documents as growth_report
from meshmark.growth.curves import GrowthError
from tests.checkout import ROOT

COUNTS = (4, 8, 64, 1024)
MESHES = [meshes.preferred(n) for n in COUNTS]


def line(devices, mode="auto", operation="psum", scaling="strong", **values):
    """A growth line as the command writes it, by default all as theory says."""
    theory = {"wire_bytes": 1000.0, "flops": 4096 / devices, "memory_bytes": 64 * 1024 / devices}
    return {
        "schema": 1,
        "kind": "growth",
        "topology": f"v5p:{devices}",
        "chip": "v5p",
        "chips": devices,
        "devices": devices,
        "operation": operation,
        "variant": "axes=x+y",
        "mode": mode,
        "mesh": "2x2",
        "dtype": "float32",
        "size": "4KiB",
        "case": f"{operation}/axes=x+y/{mode}/2x2/float32/4KiB",
        "scaling": scaling,
        "verdict": "pass",
        "reason": "",
        "collectives": [{"kind": "all-reduce", "bytes": 1000, "groups": "1x4", "trips": 1}],
        "collective_runs": 1,
        "compile_s": 0.5,
        "optimal_s": 1.5e-6,
        "projection": {"compute": 1e-9, "memory": 2e-6, "network": 1e-6, "seconds": 2e-6, "limit": "memory"},
        "theory": theory,
        **theory,
        **values,
    }


def found(lines):
    return {(f.series.mode, f.quantity): f for f in growth.find_excess_growth(growth.group_lines(lines))}


# Which programs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", growth.FAMILIES)
def test_a_family_doubles_its_devices(chip):
    numbers = [topologies.parse_topology(name).num_devices for name in growth.family(chip)]
    assert numbers[0] in (4, 8) and numbers[-1] in (256, 8192)
    assert all(b == 2 * a for a, b in itertools.pairwise(numbers))


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("v5e:2x2", "2x2"),
        ("v5e:8x16", "8x16"),
        ("v5p:2x2x1", "2x2"),
        ("v5p:4x4x4", "4x16"),
        ("v5p:16x16x32", "32x256"),
        ("tpu7x:2x2x1", "2x4"),
        ("h100:8", "2x4"),
        ("h100:16", "2x8"),
        ("h100:1024", "128x8"),
    ],
)
def test_meshes_are_dimensions_of_the_topology(name, mesh):
    assert growth.mesh_of(topologies.parse_topology(name)).label == mesh


def test_a_topology_is_itself():
    assert growth.family("v5p:4x4x4") == ["v5p:4x4x4"]


@pytest.mark.parametrize("name", growth.OPERATIONS_BY_DEFAULT)
@pytest.mark.parametrize("scaling", growth.SCALINGS)
def test_scaling_keeps_what_it_says(name, scaling):
    cells = list(growth.series(name, MESHES, scaling))
    assert [c.request.mesh.size for c in cells] == list(COUNTS)
    if name == "data_parallel":
        return  # its batch is never smaller than the number of devices
    if scaling == "strong":
        kept = [growth.whole_bytes(c.plan) for c in cells]
    else:
        kept = [growth.part_bytes(c.plan.arguments, c.request.mesh) for c in cells]
    assert max(kept) <= 2.5 * min(kept), kept


def test_a_variant_can_be_named():
    cell = next(growth.series("mlp/model=x,batch=y", [MESHES[1]], "weak"))
    assert cell.request.variant["model"] == ("x",) and cell.request.size == "n1024"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("psumm", "unknown operation 'psumm'"),
        ("mlp/nothing", "no variant 'nothing'"),
        ("put_get", "put_get compiles in none of"),
    ],
)
def test_unknown_operations_and_variants(name, said):
    with pytest.raises(GrowthError, match=said):
        list(growth.series(name, [MESHES[1]], "weak"))


def test_size_labels():
    assert growth.label_of(2**20, "bytes") == "1MiB" and growth.label_of(64, "bytes") == "64B"
    assert growth.label_of(4096, "bytes") == "4KiB" and growth.label_of(64, "dimension") == "n64"


# Theory -----------------------------------------------------------------------------------------------------


def test_theory_of_an_mlp_by_hand():
    """32 rows over x=2, width 64 over y=4: an all-reduce of 16 x 64 float32 over 4 devices."""
    case = growth.cell("mlp", "batch=x,model=y", "2x4", "float32", "n64").case("manual")
    payload = 16 * 64 * 4
    said = growth.theory(case)
    assert said["wire_bytes"] == 2 * 3 / 4 * payload
    assert said["flops"] == 4 * 32 * 64 * 64 / 8
    arguments = 16 * 64 * 4 + 2 * 64 * 16 * 4
    assert said["memory_bytes"] == arguments + payload + payload  # with its result and the collective's


def test_theory_of_a_loop_by_hand():
    """100 steps, each with an all-reduce of 8 float32 over 8 devices."""
    case = growth.cell("data_parallel", "batch=x+y", "2x4", "float32", "n8").case("manual")
    assert growth.theory(case)["wire_bytes"] == 100 * 2 * 7 / 8 * 32


def test_theory_of_a_shift_by_hand():
    cell = next(growth.series("ppermute", [MESHES[1]], "weak"))
    assert growth.theory(cell.case("manual"))["wire_bytes"] == 2**20


# Findings ---------------------------------------------------------------------------------------------------


def test_what_follows_its_theory_is_no_finding():
    assert not found([line(n) for n in COUNTS])


def test_a_planted_growth_is_found():
    lines = [line(n, wire_bytes=1000.0 * n / 4) for n in COUNTS] + [line(n, "manual") for n in COUNTS]
    only = found(lines)
    assert set(only) == {("auto", "wire_bytes")}
    finding = only["auto", "wire_bytes"]
    assert finding.slope == pytest.approx(1.0) and finding.first == 1.0 and finding.last == 256
    assert str(finding) == (
        "bytes sent per device, psum, strong scaling on v5p: 256 times theory on 1,024 devices and once on 4"
        " (n^1.00 beyond theory) in mode auto"
    )


@pytest.mark.parametrize("power", [0.15, 0.5, 2])
def test_slow_growth_is_found_too(power):
    lines = [line(n, memory_bytes=64 * 1024 / n * (n / 4) ** power) for n in COUNTS]
    assert set(found(lines)) == {("auto", "memory_bytes")}


def test_memory_of_a_layer_is_held_against_manual_mode():
    """Its temporaries are the compiler's choice: what manual mode needs too is no finding."""
    both = [line(n, m, "mlp", memory_bytes=1000.0 * n) for n in COUNTS for m in ("auto", "manual")]
    assert not found(both)
    auto = [line(n, "auto", "mlp", memory_bytes=1000.0 * n**1.5) for n in COUNTS]
    assert set(found([*auto, *both[1::2]])) == {("auto", "memory_bytes")}


def test_collectives_are_counted_against_manual_mode():
    ring = [line(n, m, collective_runs=n - 1) for n in COUNTS for m in ("auto", "manual")]
    assert set(found(ring)) == {("manual", "collective_runs")}
    more = [line(n, collective_runs=n) for n in COUNTS] + [
        line(n, "manual", collective_runs=2) for n in COUNTS
    ]
    assert set(found(more)) == {("auto", "collective_runs")}


def test_a_few_percent_beyond_theory_are_no_finding():
    assert not found([line(n, flops=4096 / n * r) for n, r in zip(COUNTS, (0.5, 0.7, 1.0, 1.1), strict=True)])


def test_a_constant_factor_is_no_growth():
    assert not found([line(n, wire_bytes=2000.0, flops=4096 / n * 3) for n in COUNTS])


def test_less_than_theory_is_no_finding():
    assert not found([line(n, wire_bytes=1.0 * math.sqrt(n)) for n in COUNTS])


def test_communication_where_theory_has_none_is_found():
    lines = [line(n, theory={"wire_bytes": 0.0}, wire_bytes=8.0) for n in COUNTS]
    assert ("auto", "wire_bytes") in found(lines)


def test_more_collectives_and_slow_compilation_are_found():
    assert set(found([line(n, collective_runs=n - 1) for n in COUNTS])) == {("auto", "collective_runs")}
    assert set(found([line(n, compile_s=n**1.5) for n in COUNTS])) == {("auto", "compile_s")}
    assert not found([line(n, compile_s=0.01 * n) for n in COUNTS])


def test_programs_that_failed_are_left_out():
    lines = [line(n) for n in COUNTS] + [line(9, verdict="crash", wire_bytes=1e9)]
    (one,) = growth.group_lines(lines)
    assert [item["devices"] for item in one.lines] == list(COUNTS)


# Tables and plots -------------------------------------------------------------------------------------------


def shown(lines):
    return growth_report.write_markdown(
        growth.group_lines(lines), lines, [{"facts": {"versions": {"jax": "0.12.0.1"}}}]
    )


def test_markdown_says_what_is_found_and_what_differs():
    lines = [line(n, m, wire_bytes=2000.0 if m == "auto" else 1000.0) for n in COUNTS for m in growth.MODES]
    text = shown([*lines, line(8, "manual", verdict="crash", reason="signal 6")])
    assert "What grows faster than its theory\n\nNothing." in text
    assert "| psum | strong | auto | 2 | 1 | all | all-reduce |" in text
    assert "2000 / 1000 / 1000" in text and "2 us (memory)" in text and "jax 0.12.0.1" in text
    assert "crash, signal 6" in text


def test_bytes_are_relative_to_what_manual_mode_compiles_to():
    """Where manual mode too sends twice what it spells, the other modes send no more than it."""
    lines = [line(n, m, wire_bytes=2000.0 if n > 16 else 1000.0) for n in COUNTS for m in growth.MODES]
    many = ", ".join(f"{n:,}" for n in COUNTS if n > 16)
    assert f"| psum | strong | auto, explicit, manual | 1 | 2 | {many} | all-reduce |" in shown(lines)
    alone = shown([line(n, wire_bytes=2000.0) for n in COUNTS])
    assert "than it spells\n\nNothing." in alone, "there is no factor without manual mode"


@pytest.mark.parametrize(
    ("chip", "names"),
    [("v5p", ("v5p-strong", "v5p-weak", "v5p-8192-layers")), ("h100", ("h100",))],
)
def test_the_documents_are_of_the_published_records(chip, names):
    of = ROOT / "results" / "compile-only" / "0.12.0.1" / "growth"
    lines, runs = growth_command.read_growth_lines([of / f"{name}.jsonl" for name in names])
    text = growth_report.write_markdown(growth.group_lines(lines), lines, runs)
    published = (ROOT / "docs" / f"growth-{chip}.md").read_text(encoding="utf-8")
    assert text.partition("Made by Meshmark")[0] == published.partition("Made by Meshmark")[0]


def test_markdown_escapes_what_records_say():
    text = shown([line(4, variant="<b>|x`"), line(8, variant="<b>|x`")])
    assert "<b>" not in text and "\\|x" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1.25, "1.25"),
        (9999, "9999"),
        (12345, "12.3k"),
        (2.5e6, "2.5M"),
        (None, "-"),
        ("x", "-"),
    ],
)
def test_short_numbers(value, text):
    assert growth_report.short(value) == text


def test_plot_has_logarithmic_axes_labels_and_a_legend():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    lines = [line(n, m, o) for n in COUNTS for m in growth.MODES for o in ("psum", "mlp")]
    drawn = growth_report.draw_curves(growth.group_lines(lines), "v5p, strong scaling")
    assert len(drawn.axes) == 2 * len(growth_report.PLOTTED)
    assert all(ax.get_xscale() == ax.get_yscale() == "log" for ax in drawn.axes)
    assert drawn.axes[0].get_ylabel() == "psum" and drawn.axes[-1].get_xlabel() == "devices"
    assert [t.get_text() for t in drawn.legends[0].get_texts()] == [*growth.MODES, "theory"]
    assert all(len(ax.get_yticks()) >= 2 for ax in drawn.axes)


def test_missing_matplotlib_is_one_line(monkeypatch, tmp_path, capsys):
    def without(name, *rest):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without)
    path = tmp_path / "growth.jsonl"
    path.write_text(json.dumps(line(4)) + "\n")
    assert cli.main(["growth", "--from", str(path), "--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and extras.command("plot") in said
    assert not (tmp_path / "out").exists()


def test_files_are_written(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "growth.jsonl"
    path.write_text("".join(json.dumps(line(n, m)) + "\n" for n in COUNTS for m in growth.MODES))
    assert cli.main(["growth", "--from", str(path), "--output", str(tmp_path / "out")]) == 0
    written = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert written == ["growth-v5p-strong-collectives.svg", "growth-v5p.md"]
    assert (tmp_path / "out" / written[0]).read_text().startswith("<?xml")


# The command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name chips or topologies"),
        (["v9"], "unknown chip 'v9'"),
        (["v5e:2by4"], "is not a topology"),
        (["v5e:2x2", "--operations", "nothing"], "unknown operation 'nothing'"),
        (["v5e:2x2", "--operations", "mlp/x;psum"], "no variant 'x'"),
        (["v5e:2x4", "v5e:4x2"], "another one has 8 devices too"),
        (["v5e:2x2", "--modes", "pmap"], "unknown mode 'pmap'"),
        (["v5e:2x2", "--scaling", "up"], "unknown scaling 'up'"),
        (["v5e:2x2", "--dtype", "int4"], "no dtype int4"),
        (["--from", "missing.jsonl"], "can't read missing.jsonl"),
        (["v5e", "--from", "missing.jsonl"], "--from compiles nothing"),
    ],
)
def test_bad_input_is_one_line(arguments, said, capsys):
    assert cli.main(["growth", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no growth"),
        ("not json\n", ":1 is not a record"),
        ("[1]\n", ":1 is not a record"),
        ('{"kind": "conformance"}\n', "holds no growth"),
        ('{"kind": "growth", "topology": "v5e:2x2"}\n', "is not a growth record"),
    ],
)
def test_files_that_hold_no_growth(text, said, tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    assert cli.main(["growth", "--from", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_compiler_is_one_line(monkeypatch, capsys):
    def missing(topology):
        raise topologies.TopologyError(f"topology {topology} needs libtpu")

    monkeypatch.setattr(topologies, "compiler", missing)
    assert cli.main(["growth", "v5e:2x2", "--operations", "psum"]) == 2
    assert "needs libtpu" in capsys.readouterr().err


def entries(count):
    return [{"case": f"case{i}", "mode": "auto"} for i in range(count)]


def test_a_dying_compiler_costs_one_program(monkeypatch):
    """The first child dies of a signal at its second program, the second one of the deadline at its first."""
    scripts = iter(
        [
            [{"facts": {}}, {"at": 0}, {"done": 0, "verdict": "pass"}, {"at": 1}, {"code": -6}],
            [{"facts": {}}, {"at": 2}, {"code": 1}],
            [{"facts": {}}, {"at": 3}, {"done": 3, "verdict": "pass"}, {"code": 0}],
        ]
    )
    monkeypatch.setattr(growth_command, "_child", lambda *_: iter(next(scripts)))
    said = [
        m
        for m in growth_command.children(topologies.parse_topology("v5e:2x2"), entries(4), "plain")
        if "case" in m
    ]
    assert [(m["case"], m["verdict"]) for m in said] == [
        ("case0", "pass"), ("case1", "crash"), ("case2", "hang"), ("case3", "pass"),
    ]  # fmt: skip
    assert "signal 6" in said[1]["reason"] and said[0]["devices"] == 4


def test_a_child_that_never_starts_is_an_error(monkeypatch):
    monkeypatch.setattr(growth_command, "_child", lambda *_: iter([{"code": 1}]))
    with pytest.raises(GrowthError, match="exit code 1"):
        list(growth_command.children(topologies.parse_topology("v5e:2x2"), entries(1), "plain"))


def test_a_topology_that_the_compiler_does_not_know(monkeypatch):
    monkeypatch.setattr(growth_command, "_child", lambda *_: iter([{"problem": "does not know it"}]))
    with pytest.raises(topologies.TopologyError, match="does not know it"):
        list(growth_command.children(topologies.parse_topology("v5e:2x2"), entries(1), "plain"))


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_growth_on_tpu_slices(tmp_path):
    path = tmp_path / "growth.jsonl"
    command = [
        sys.executable,
        "-m",
        "harness",
        "growth",
        "v5e:2x2",
        "v5e:2x4",
        "--operations",
        "psum_scatter",
    ]
    done = subprocess.run(
        [*command, "--scaling", "strong", "--record", str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines, runs = growth_command.read_growth_lines([path])
    assert len(lines) == 6 and "libtpu" in runs[0]["facts"]["versions"]
    for one in lines:
        assert one["verdict"] == "pass" and one["layout"] == "physical" and one["compile_s"] > 0
        n = one["devices"]
        assert one["theory"]["wire_bytes"] == 2**26 / n * (n - 1) / n
        assert one["wire_bytes"] >= one["theory"]["wire_bytes"]  # psum_scatter may compile to an all-reduce
        assert one["projection"]["seconds"] > 0
    assert meshes.parse_mesh(lines[-1]["mesh"]).size == 8
