# SPDX-License-Identifier: Apache-2.0
"""`meshmark bench`: its children are contained, its runs can be resumed, and its figures are those of the samples."""

import itertools
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from meshmark.commands.main import main
from meshmark.devices import facts as devices
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.cases import Selection, SelectionError
from meshmark.publish.lines import schema_problem
from meshmark.records import reading
from meshmark.timing import bench, derived, figures, footprint, timing_tables
from meshmark.timing.cells import by_cell
from meshmark.timing.children import ChildError, Children
from meshmark.timing.rooflines import Rooflines
from meshmark.timing.timer import Job
from tests.checkout import ROOT
from tests.interrupts import deaf, interruptible
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e

PSUM = [f"psum/axes=x+y/{mode}/2x4/float32/4KiB" for mode in ("auto", "explicit", "manual")]
GATHER = [f"all_gather/axes=x+y,dim=0,tiled/{mode}/2x4/float32/4KiB" for mode in ("auto", "manual")]
SHORT = {"num_devices": 8, "seconds": 0.01, "least": 6}


def run(cells, **options):
    with Children(**{k: options.pop(k) for k in ("module", "environment") if k in options}) as children:
        return list(children.run(Job(cells, **SHORT | options)))


def timings_closed(text):
    """The indices of the lines that end a cell's timing in a record's `text`."""
    return [
        i for i, line in enumerate(text.splitlines()) if '"seconds":' in line and '"kind":"timing"' in line
    ]


def timings(messages):
    return [record for m in messages for record in m.get("timings", [])]


@pytest.fixture(scope="module")
def sound():
    return run([PSUM, GATHER], ceilings=False)


def test_a_child_says_where_it_measures(sound):
    (facts,) = [m["facts"] for m in sound if "facts" in m]
    assert facts["num_devices"] == 8 and facts["virtual"] and facts["versions"]["jax"]
    (end,) = [m for m in sound if "end" in m]
    assert len(end["spread"]) == 2 and end["resident"] > 1e7


def test_every_mode_of_a_cell_is_timed_in_both_cadences_and_in_rounds(sound):
    found = timings(sound)
    assert {(r["case"], r["cadence"]) for r in found} == {
        (case, cadence) for case in PSUM + GATHER for cadence in ("isolated", "stream")
    }
    for record in found:
        assert record["verified"] and record["verdict"] == "pass" and len(record["samples_s"]) >= 6
        assert record["collectives"] == 1 and record["compile_s"] > 0
        peers = [
            r for r in found if (r["operation"], r["cadence"]) == (record["operation"], record["cadence"])
        ]
        assert len({len(r["samples_s"]) for r in peers}) == 1
    assert all(r["calls"] == 1 or r["cadence"] == "stream" for r in found)
    assert any(r["calls"] > 1 for r in found)


@pytest.fixture
def troubled(monkeypatch):
    """The operations that make trouble, in this process too: the parent looks up what its child died of."""
    before = dict(OPERATIONS)
    from tests.trouble import timer

    made = {name: operation for name, operation in OPERATIONS.items() if name not in before}
    for name in list(OPERATIONS):
        if name not in before:
            del OPERATIONS[name]
    made = made or timer_operations
    timer_operations.update(made)
    for name, operation in timer_operations.items():
        monkeypatch.setitem(OPERATIONS, name, operation)
    return timer


timer_operations: dict = {}


def trouble(name, mode="host"):
    return f"{name}/plain/{mode}/2x4/float32/4KiB"


def test_a_death_costs_its_case_alone(troubled):
    cells = [
        [trouble("abort", "auto"), trouble("abort", "manual")],
        [trouble("later")],
        [trouble("spin", "manual"), trouble("spin", "auto")],
        [trouble("wrong")],
        [trouble("fine")],
    ]
    found = timings(run(cells, module="tests.trouble.timer", cadences=["isolated"], deadline=5.0))
    by_case = {r["case"]: r for r in found}
    assert set(by_case) == {case for cell in cells for case in cell} and len(found) == 7
    told = {case: (r["verdict"], r["reason"].split(":")[0]) for case, r in by_case.items()}
    assert told[trouble("abort", "manual")] == ("crash", "while prepared")
    assert told[trouble("later")] == ("crash", "while timed in turns")
    assert by_case[trouble("later")]["signal"] == "SIGKILL"
    assert told[trouble("spin", "manual")] == ("hang", "while prepared")
    assert told[trouble("wrong")] == ("fail", "numbers")
    for case in (trouble("abort", "auto"), trouble("spin", "auto"), trouble("fine")):
        assert by_case[case]["verdict"] == "pass" and by_case[case]["samples_s"]
    assert {schema_problem(r | {"run": "0123456789ab"}) for r in found} == {""}
    for case in (trouble("wrong"), trouble("later")):
        assert not by_case[case]["samples_s"] and not by_case[case]["verified"]


def test_children_that_never_start_end_the_run():
    with pytest.raises(ChildError, match=r"before they time anything: .*no_such_platform"):
        run([PSUM], environment={"JAX_PLATFORMS": "no_such_platform"})


def test_no_child_is_left_behind():
    with Children() as children:
        messages = children.run(Job([PSUM] * 50, **SHORT))
        next(messages)
        pid = children._child.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not children.directory.exists()


def processor_seconds(pid):
    """User and system time of a process, in clock ticks."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def test_a_child_that_is_started_ahead_waits_without_work_and_takes_the_job():
    with Children() as children:
        assert not children.announces
        children.begin(3)
        children.ready()
        pid = children._waiting.pid
        if Path("/proc").exists():
            before = processor_seconds(pid)
            time.sleep(0.3)
            assert processor_seconds(pid) == before
        messages = list(children.run(Job([PSUM], process=3, **SHORT)))
        assert children.announces and children._waiting is None
        assert {r["process"] for r in timings(messages)} == {3} and "end" in messages[-1]
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_child_that_dies_while_it_waits_is_replaced_and_none_is_left_behind():
    with Children() as children:
        children.begin(0)
        children._waiting.kill()
        children.ready()
        assert {r["verdict"] for r in timings(children.run(Job([PSUM[:1]], **SHORT)))} == {"pass"}
        children.begin(1)
        pid = children._waiting.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# The command ------------------------------------------------------------------------------------------------

QUICK = [
    "bench",
    "--operations",
    "psum",
    "--meshes",
    "2x4",
    "--sizes",
    "4KiB,64KiB,256KiB",
    "--seconds",
    "0.01",
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "run.jsonl"
    assert main([*QUICK, "--processes", "2", "--record", str(path)]) == 0
    return path


def test_a_run_is_told_in_tables(recorded, capsys):
    file = reading.read_records(recorded)
    assert not file.problems and len(file.timings) == 3 * 3 * 3 * 2 and len(file.ceilings) == 3
    assert file.state == "" and file.ends[0]["timings"] == 54 and file.chosen[0]["cases"] == 9
    text = "\n".join(timing_tables.table_lines(file))
    assert "auto/manual" in text and "GB/s bus" in text and "largest matmul float32" in text
    assert "t = alpha + S / beta" in text and "of 2 processes: a single run" in text
    assert "dispatch (isolated minus stream), median of 9 cases: " in text  # also where noise hides it
    rows = timing_tables.timing_rows(file)
    assert len(rows) == 27 + 3 and all(row["processes"] == 2 and row["verified"] for row in rows)
    controls = [row for row in rows if row["mode"] == "control"]
    assert {(row["cadence"], row["case"]) for row in controls} == {
        (cadence, "psum/axes=x+y/manual/2x4/float32/64KiB") for cadence in ("plain", "isolated", "stream")
    }
    assert text.count("control, ") == 3 and all(row["order"] == "not resolved" for row in controls)
    assert all(row["low_s"] is None and row["interval"] == "single run" for row in rows)
    manual = next(
        r for r in rows if r["mode"] == "manual" and r["size"] == "64KiB" and r["cadence"] == "stream"
    )
    assert manual["busbw"] == pytest.approx(65536 / manual["median_s"] * 2 * 7 / 8)
    assert manual["share"] is None  # of virtual devices: their messages stay in caches
    auto = next(r for r in rows if r["mode"] == "auto" and r["size"] == "64KiB" and r["cadence"] == "stream")
    assert auto["ratio"] > 0 and auto["ratio_low"] is None and auto["order"] == "not resolved"
    assert auto["nbytes"] == 65536 and auto["p10_s"] <= auto["p50_s"] <= auto["p90_s"]


def test_an_interrupted_run_is_resumed(recorded, tmp_path, capsys):
    cut = tmp_path / "cut.jsonl"
    text = recorded.read_text().splitlines(keepends=True)
    closed = timings_closed("".join(text))
    cut.write_text("".join(text[: closed[1] + 3]) + text[-1][:40])  # two cells, half of a third, a torn line
    assert main([*QUICK, "--processes", "2", "--resume", str(cut)]) == 0
    file = reading.read_records(cut)
    assert not file.problems and len(file.timings) == 54 and len(file.ceilings) == 3 and len(file.runs) == 2
    assert file.state == "" and len(file.ends) == 1
    assert main([*QUICK, "--processes", "3", "--resume", str(cut)]) == 2
    assert "differs from this run in repeat" in capsys.readouterr().err


@pytest.mark.parametrize(("started", "number"), [(interruptible, signal.SIGINT), (deaf, signal.SIGTERM)])
def test_an_interruption_keeps_what_was_timed(tmp_path, started, number):
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "harness", *QUICK[:-1], "0.05", "--processes", "50", "--no-ceilings"]
    process = subprocess.Popen(
        started([*command, "--record", str(path)]),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def timed(cells):  # the line of what was chosen names seconds too
        return until(lambda: path.exists() and len(timings_closed(path.read_text())) >= cells)

    try:
        assert timed(2)
        if started is deaf:
            process.send_signal(signal.SIGINT)
            assert timed(4), "SIGINT is ignored here, and the run goes on"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 128 + number and "go on with --resume" in err and "auto/manual" in out
    assert not reading.read_records(path).problems
    told = f"end this run with `kill {process.pid}` (SIGTERM), which keeps what is finished"
    assert (told in err) == (started is deaf)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--profile", "huge"], "unknown profile 'huge': choose from quick, standard, full, sweep"),
        (["--operations", "psumm"], "unknown operation 'psumm'"),
        (["--cadence", "walk"], "unknown cadence 'walk': choose from plain, isolated, stream, device"),
        (["--sizes", "5 apples"], "'5 apples' is not a size"),
        (
            ["--sizes", "5KiB"],
            "5KiB is no size of whole tiles: use a multiple of 4KiB, or a power of two below it",
        ),
        (
            ["--operations", "matmul", "--sizes", "n3"],
            "n3 is no dimension of whole tiles: use a multiple of 8",
        ),
        (["--operations", "library_form"], "library_form is judged and not timed: `meshmark bench` without"),
        (["--operations", "psum", "--sizes", "64GiB"], "GB are available: name a smaller size"),
        (["--operations", "axis_index", "--scaling"], "axis_index is not timed over sizes: choose from psum"),
        (["--seconds", "0"], "is not a number above 0"),
        (["--operations", "psum", "--record", "{tmp}/no/where.jsonl"], "can't write records to"),
        (["--operations", "psum", "--record", "a", "--resume", "b"], "name one file each"),
    ],
)
def test_bad_input_is_one_line(argv, message, tmp_path, capsys):
    try:
        code = main(["bench", *(a.format(tmp=tmp_path) for a in argv)])
    except SystemExit as ended:
        code = ended.code
    err = capsys.readouterr().err
    assert code == 2 and message in err and len(err.strip().splitlines()) == 1


def test_a_noisy_machine_is_told(capsys):
    with patch.object(os, "getloadavg", lambda: (8.0 * os.cpu_count(), 0, 0)):
        assert next(bench.load()) == (
            "the machine is busy: load average 8.00 per core in the last minute, before this run"
        )
    with patch.object(os, "getloadavg", lambda: (0.0, 0, 0)):
        assert not list(bench.load())
    progress = bench.Progress(1)
    bench._take({"end": True, "spread": [0.1, 0.5]}, lambda lines: None, (), progress)
    assert list(bench.noise(progress)) == [
        "a noisy machine: a fixed piece of work varied by up to 50 % (90th percentile over the fastest)"
    ]
    assert not list(bench.noise(bench.Progress(1)))


# What is chosen, and figures --------------------------------------------------------------------------------


def test_the_quick_profile_is_every_collective_in_three_modes():
    found = list(cases.cases(Selection("quick", timed=True), 8))
    assert {c.mode for c in found} == {"auto", "explicit", "manual"}
    assert {c.mesh.label for c in found} == {"2x4", "8"}
    assert {c.cell.request.size for c in found} == {"4KiB", "64KiB", "1MiB"}
    collectives = {o.name for o in OPERATIONS.values() if o.family == "collectives" and o.timed}
    collectives -= {"pbroadcast", "ragged_all_to_all"}  # capabilities that are asked for by name
    assert (
        {c.operation.name for c in found} == collectives >= {"psum", "all_gather", "psum_scatter", "ppermute"}
    )


def test_the_standard_profile_has_what_people_choose_between():
    found = {c.operation.name for c in cases.cases(Selection("standard", timed=True), 8)}
    assert found >= {
        "matmul",
        "mlp",
        "attention",
        "data_parallel",
        "reshard",
        "device_put",
        "put_get",
        "psum",
    }


def test_a_sweep_doubles_from_eight_bytes_to_what_memory_allows():
    chosen = Selection(
        "sweep", timed=True, operations=("psum", "psum_scatter"), meshes=("8",), modes=("manual",)
    )
    with patch.object(footprint, "available_bytes", lambda: 10**9):
        todo, left_out = bench.select_cells(chosen, FACTS)
    sizes = {}
    for cell, _ in todo:
        sizes.setdefault(cell.operation.name, []).append(cell.plan.cost.nbytes)
    assert (
        sizes["psum"][:4] == [8, 16, 32, 64] and sizes["psum_scatter"][0] == 32
    )  # one element for each device
    assert all(b == 2 * a for own in sizes.values() for a, b in itertools.pairwise(own))
    assert len(left_out) == 2 and all("needs about" in why for why in left_out)
    assert not list(cases.cases(Selection("sweep", timed=True, operations=("matmul",)), 8))


def test_every_timed_case_is_found_by_its_id():
    for case in list(cases.cases(Selection("standard", timed=True), 8))[::37]:
        assert cases.find(case.id, 8).id == case.id
    assert cases.find("psum/axes=x+y/auto/2x4/float32/3MiB", 8).cell.request.size == "3MiB"


def test_timed_modes_of_a_new_operation_need_no_other_edit(troubled):
    OPERATIONS["fine"].timed = {"4KiB": 0}
    try:
        found = [c.id for c in cases.cases(Selection("quick", timed=True, operations=("fine",)), 8)]
    finally:
        del OPERATIONS["fine"].timed
    assert [case for case in found if "/4x2/" not in case and "/2x2x2/" not in case] == [
        "fine/plain/host/2x4/float32/4KiB",
        "fine/plain/host/8/float32/4KiB",
    ]


FACTS = devices.Facts({}, "cpu", "cpu", 8, 1, [], {}, {})


def test_scaling_keeps_the_work_or_the_work_a_device():
    todo, left_out = bench.scaling(
        Selection(timed=True, operations=("psum", "matmul", "data_parallel")), FACTS
    )
    assert not left_out
    sizes = {}
    for cell, modes in todo:
        assert modes == ["auto", "explicit", "manual"]
        sizes.setdefault((cell.operation.name, cell.request.mesh.size), []).append(cell)
    assert {n for name, n in sizes if name == "psum"} == {2, 4, 8}
    assert {n for name, n in sizes if name == "matmul"} == {1, 2, 4, 8}
    assert {c.request.size for c in sizes["psum", 4]} == {"2048KiB", "1024KiB"}

    def flops(cell):
        return cell.plan.cost.flops / cell.request.mesh.size

    one = min(map(flops, sizes["matmul", 1]))
    for n in (2, 4, 8):
        assert any(c.request.size == "n1024" for c in sizes["matmul", n])
        assert min(abs(flops(c) / one - 1) for c in sizes["matmul", n]) < 0.05


def timing(case, seconds, cadence="stream", process=0, **cost):
    operation, variant, mode, mesh, dtype, _ = case.split("/")
    return {
        "case": case, "operation": operation, "variant": variant, "mode": mode, "mesh": mesh, "dtype": dtype,
        "cadence": cadence, "process": process, "samples_s": seconds, "cost": cost, "devices": 8,
    }  # fmt: skip


def test_figures_are_of_the_median():
    record = timing(PSUM[2], [1e-3] * 50 + [2e-3] * 49 + [1.0], nbytes=4096, factor=1.75)
    found = figures.figures_of(record)
    assert found["median_s"] == 1.5e-3 and found["least_s"] == 1e-3 and found["samples"] == 100
    assert found["algbw"] == pytest.approx(4096 / 1.5e-3) == found["busbw"] / 1.75
    assert found["flops_per_s"] is None and found["share"] is None and found["p99_s"] > 2e-3
    assert figures.figures_of(timing(PSUM[2], [1e-3] * 99))["p99_s"] is None
    assert figures.figures_of(timing(PSUM[2], [])) == {}


def test_shares_are_of_a_published_peak_or_of_a_measured_ceiling():
    matmul = "matmul/rows=x,check=exact/auto/8/bfloat16/n64"
    record = timing(matmul, [1e-3] * 10, flops=4e9) | {"precision": "highest", "devices": 2}
    published = figures.figures_of(record, Rooflines("TPU v5p"))
    assert published["share"] == pytest.approx(4e12 / (2 * 459e12)) and "published" in published["share_of"]
    ceiling = {"name": "largest matmul", "dtype": "bfloat16", "value": 8e12, "unit": "FLOP/s", "devices": 8}
    measured = figures.figures_of(record, Rooflines("new", False, [ceiling]))
    assert measured["share"] == pytest.approx(4e12 / 2e12) and "measured here" in measured["share_of"]
    assert figures.figures_of(record, Rooflines("cpu", True, [ceiling]))["share"] == pytest.approx(0.5)
    assert figures.figures_of(record, Rooflines("new"))["share"] is None
    copied = {"name": "copy bandwidth", "dtype": "float32", "value": 8e9, "unit": "B/s", "devices": 8}
    message = timing(PSUM[2], [1e-3] * 10, nbytes=10**5, factor=1.75)
    of_new = figures.figures_of(message, Rooflines("new", False, [copied]))
    assert of_new["share"] == pytest.approx(0.175) and of_new["share_of"] == "copy bandwidth measured here"
    assert figures.figures_of(message, Rooflines("cpu", True, [copied]))["share"] is None


def test_modes_are_compared_by_rounds_of_one_process():
    manual = [timing(PSUM[2], [1.0, 2.0, 4.0] * 4, process=0), timing(PSUM[2], [10.0] * 6, process=1)]
    auto = [timing(PSUM[0], [2.0, 4.0, 8.0] * 4, process=0), timing(PSUM[0], [20.0] * 9, process=1)]
    assert figures.ratios(auto, manual) == pytest.approx([2, 2])
    assert figures.ratios(auto, [timing(PSUM[2], [1.0], process=7)]) == []


def processes(case, seconds, **more):
    return [timing(case, [t] * 9, process=i) | more for i, t in enumerate(seconds)]


def test_the_process_is_the_replicate():
    """However many samples: one process, or five, give no interval; six give that of their medians."""
    assert figures.pooled([timing(PSUM[0], [1.0, 1.1] * 500)]).relative == math.inf
    assert figures.pooled(processes(PSUM[0], [1.0, 2.0, 4.0, 2.0, 2.0])).relative == math.inf
    found = figures.pooled(processes(PSUM[0], [1.0, 2.0, 4.0, 2.0, 2.0, 2.0]))
    assert (found.value, found.low, found.high) == (2.0, 1.0, 4.0)
    assert figures.pooled([timing(PSUM[0], [])]) is None


def test_intervals_hold_as_often_as_they_say():
    """Six processes 10 percent apart, 1,000 samples each within 1 percent: the interval holds the truth in 97 percent,
    where that of the samples held it in a tenth."""
    rng = np.random.default_rng(0)
    held = sum(
        (e := figures.pooled(processes(PSUM[0], np.exp(rng.normal(0, 0.1, 6))))).low <= 1 <= e.high
        for _ in range(400)
    )
    assert held >= 0.93 * 400


def test_old_records_are_single_runs_and_new_ones_have_controls():
    manual = processes(PSUM[2], [1.0, 1.1, 0.9, 1.0, 1.2, 1.0], verdict="pass", reason="", verified=True)
    auto = processes(PSUM[0], [2.0, 2.2, 1.8, 2.0, 2.4, 2.1], verdict="pass", reason="", verified=True)
    for record in manual:
        record["control_s"] = record["samples_s"]

    def rows(timings):
        file = reading.Records()
        for line in ({"kind": "run", "run": "x", "facts": {}}, *({**t, "kind": "timing"} for t in timings)):
            file.add(line)
        return {row["mode"]: row for row in timing_tables.timing_rows(file)}

    found = rows(manual + auto)
    assert found["auto"]["interval"] == "95 % over processes" and found["auto"]["low_s"] == 1.8
    assert (
        found["auto"]["ratio_low"] == pytest.approx(2) and found["auto"]["order"] == "not resolved"
    )  # of two
    assert found["control"]["ratio"] == 1 and found["control"]["order"] == "not resolved"
    old = rows([manual[0], auto[0]])
    assert old["auto"]["interval"] == "single run" and old["auto"]["ratio_low"] is None


def test_tails_are_of_processes():
    assert figures.tails([timing(PSUM[0], [1.0] * 99)])["p99_s"] is None
    found = figures.tails([timing(PSUM[0], [t] * 100, process=i) for i, t in enumerate((1.0, 2.0, 9.0))])
    assert {found[f"{q}_s"] for q in ("p10", "p50", "p90", "p99")} == {2.0}
    assert {found[f"{q}_{end}_s"] for q in ("p10", "p50", "p90", "p99") for end in ("low", "high")} == {None}
    six = figures.tails([timing(PSUM[0], [float(i)] * 100, process=i) for i in range(1, 7)])
    assert (six["p90_low_s"], six["p90_s"], six["p90_high_s"]) == (1.0, 3.5, 6.0), "over processes"


def test_the_rest_is_estimated_by_what_was_timed():
    progress = bench.Progress(4, left={"a": 2, "b": 2})
    assert progress.rest() is None
    progress.take("a", 10.0)
    assert progress.rest() == 10 + 2 * 10
    progress.take("b", 2.0)
    assert progress.rest() == 10 + 2 and progress.done == 2


def test_a_sweep_is_fitted_and_scaling_judged():
    ids = [f"psum/axes=x/manual/8/float32/{size}" for size in ("4KiB", "64KiB", "1MiB")]
    timed = [
        timing(case, [1e-4 + s / 1e9] * 9, nbytes=s, factor=1.75)
        for case, s in zip(ids, (4096, 65536, 2**20), strict=True)
    ]
    (row,) = timing_tables._fits(by_cell(timed))
    assert row[4:6] == ["100 us", "1.00 GB/s"] and set(row[6].split()) <= {"+0%", "-0%"}
    matmuls = [
        timing(f"matmul/rows=x,check=exact/manual/{n}/float32/n64", [t] * 9, flops=1000)
        for n, t in ((1, 8.0), (2, 4.0), (4, 4.0), (8, 1.0))
    ]
    (series,) = derived.scaling(by_cell(matmuls))
    assert series["kind"] == "strong"
    assert [round(e.value, 3) for _, _, e in series["points"]] == [1, 1, 0.5, 1]


def test_memory_is_estimated_first():
    cell = next(c for c, _ in cases.cells(Selection("quick", timed=True, operations=("psum",)), 8))
    with patch.object(footprint, "available_bytes", lambda: 1000):
        assert "needs about" in footprint.refusal(cell, FACTS)
        with pytest.raises(SelectionError, match="name a smaller size"):
            bench.select_cells(Selection("quick", timed=True, operations=("psum",)), FACTS)
    assert footprint.refusal(cell, FACTS) == ""
    h200 = devices.Facts({}, "gpu", "NVIDIA H200", 8, 1, [], {}, {})
    (big,) = cases.cells(
        Selection("quick", timed=True, operations=("psum",), meshes=("8",), sizes=("32GiB",)), 8
    )
    with patch.object(footprint, "available_bytes", lambda: 2**60):
        assert "per device, and h200 has 141 GB" in footprint.refusal(big[0], h200)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5, "1.5 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 us"), (3e-9, "3 ns"), (-2e-3, "-2 ms")],
)
def test_times_for_people(value, text):
    assert timing_tables.spell_time(value) == text
