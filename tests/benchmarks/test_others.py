# SPDX-License-Identifier: Apache-2.0
"""The comparison with other libraries: its answers, processes and arithmetic. It needs neither torch nor MPI."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.others import __main__ as command
from benchmarks.others import contestants, operations, rounds, tables
from benchmarks.others.groups import Group, Limits, Lost
from meshmark.core import statistics
from meshmark.core.errors import BadInput
from tests.checkout import ROOT
from tests.others_recited import contestant as recited
from tests.waiting import PATIENCE, gone, until

pytestmark = pytest.mark.e2e

JAX = contestants.EVERY[0]


def all_gone(pids):
    return until(lambda: all(map(gone, pids)))


def carried_out(plan):
    lines = []
    well = rounds.Run(plan, lines.extend, lambda line: None).carry_out()
    return lines, well


def of(lines, kind):
    return [line for line in lines if line["kind"] == kind]


# Answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize("operation", operations.OPERATIONS)
def test_answers_are_those_of_the_definitions(operation, processes):
    nbytes = 24 * processes
    length = operations.input_length(operation, nbytes, processes)
    sent = np.stack([operations.values(r, length) for r in range(processes)])
    for rank in range(processes):
        got = operations.expected(operation, nbytes, rank, processes)
        assert got.nbytes == nbytes
        if operation == "all_reduce":
            want = sent.astype(np.float64).sum(axis=0)
        elif operation == "all_gather":
            want = sent.reshape(-1)
        else:  # block r of what rank s sends is block s of what rank r gets
            want = sent.reshape(processes, processes, -1)[:, rank].reshape(-1)
        np.testing.assert_array_equal(got, want)
        assert operations.difference(got, want.astype(np.float32)) is None


def test_no_two_ranks_have_one_number_at_one_place():
    sent = np.stack([operations.values(r, 4096) for r in range(64)])
    assert all(len(set(column)) == 64 for column in sent.T[:600])
    blocks = operations.values(0, 1 << 16).reshape(-1, 1 << 8)
    assert len({block.tobytes() for block in blocks}) == len(blocks)  # nor are two blocks of a rank alike


def test_factors_are_those_of_nccl_tests():
    assert operations.factor("all_reduce", 4) == 1.5
    assert operations.factor("all_gather", 4) == operations.factor("all_to_all", 4) == 0.75


def test_difference_tells_where():
    want = np.arange(4, dtype=np.float32)
    assert "1 of 4 values are wrong, the first at 2: 7, not 2" in operations.difference(
        np.float32([0, 1, 7, 3]), want
    )
    assert "float32 [3]" in operations.difference(want[:3], want)
    assert "nan" in operations.difference(np.full(4, np.nan, np.float32), want)


# Processes --------------------------------------------------------------------------------------------------


def test_jax_over_two_real_processes(tmp_path):
    """Verified samples of every operation, rank by rank; records and tables of them; nothing left behind."""
    file, plot, page = tmp_path / "run.jsonl.gz", tmp_path / "plot.svg", tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    arguments = ["--contestants", "jax", "--sizes", "8,4096", "--most-rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.others", *arguments, "--record", file, "--page", page],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    recorded = tables.read(file)
    [ready] = recorded.of("ready")
    assert ready["facts"]["collectives"] == "gloo" and "jaxlib" in ready["facts"]
    blocks = recorded.of("block")
    assert {(b["operation"], b["nbytes"]) for b in blocks} == {
        (operation, n) for operation in operations.OPERATIONS for n in (8, 4096)
    }
    for block in blocks:
        assert block["wrong"] is None
        assert [len(samples) for samples in block["samples_us"]] == [10, 10]
        assert all(min(late) == 0 for late in zip(*block["late_us"], strict=True))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert (
        "all_to_all: bus bandwidth" in text
        and str(tmp_path) not in gzip.decompress(file.read_bytes()).decode()
    )
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib")
    assert command.main(["--table", str(file), "--plot", str(plot)]) == 0
    assert "<svg" in plot.read_text()


def test_jax_with_a_wrong_program_is_refused():
    """The check is of what came over the wire: JAX's own processes, with other inputs than they should have."""
    wrong = replace(JAX, name="wrong", module="tests.others_wrong_jax")
    lines, well = carried_out(rounds.Plan([wrong], 2, sizes=(64,), most_rounds=1, least_rounds=1))
    assert not well
    assert {line["operation"] for line in of(lines, "refused")} == set(operations.OPERATIONS)
    assert not of(lines, "block")


ALL = set(operations.OPERATIONS)

WRONG = {
    "one value": ALL,
    "missing rank": {"all_reduce"},
    "swapped ranks": {"all_gather", "all_to_all"},
    "stale": ALL,
    "later": ALL,
}
"""Fault of tests/others_recited.py -> the operations that it makes wrong."""


def test_wrong_values_are_refused_and_told():
    everyone = [recited(), *(recited(fault, fault) for fault in WRONG)]
    lines, well = carried_out(rounds.Plan(everyone, sizes=(16,), most_rounds=1, least_rounds=1))
    assert not well
    want = {(fault, operation) for fault, wrong in WRONG.items() for operation in wrong}
    assert {(line["contestant"], line["operation"]) for line in of(lines, "refused")} == want
    recorded = tables.Recorded(lines[0], lines[1:])
    figures = tables.Figures(recorded)
    for contestant in everyone:
        for operation in operations.OPERATIONS:
            timed = figures.time(contestant.name, operation, 16) is not None
            assert timed == ((contestant.name, operation) not in want)
    told = [line for line in tables.markdown(recorded) if "wrong values, not timed" in line]
    assert len(told) == len(want)


LOST = {
    "dies": "rank 1 ended",
    "raises": "rank 0: ValueError: no way in <path>",
    "hangs": "no answer in time from rank 0, 1",
    "does not start": "RuntimeError: the door is locked",
}
"""Fault -> what is told of it."""


def test_a_lost_group_costs_itself_alone(tmp_path):
    everyone = [recited(), *(recited(fault, fault, tmp_path) for fault in LOST)]
    plan = rounds.Plan(everyone, sizes=(16,), most_rounds=2, least_rounds=2, limits=Limits(answer=3))
    lines, well = carried_out(plan)
    assert not well
    told = {line["contestant"]: line["reason"] for line in of(lines, "lost")}
    assert told.keys() == LOST.keys()
    assert all(reason in told[fault] for fault, reason in LOST.items()), told
    assert len([b for b in of(lines, "block") if b["contestant"] == "recited"]) == 6
    pids = [int(p.stem) for p in tmp_path.glob("*.json")]
    assert len(pids) in (2 * len(LOST) - 1, 2 * len(LOST)) and all_gone(
        pids
    )  # one may be ended before it says so
    assert of(lines, "end")[0]["rounds"] == 2
    shown = tables.markdown(tables.Recorded(lines[0], lines[1:]))
    assert len([line for line in shown if ": lost, " in line]) == len(LOST)


def test_a_rank_that_never_comes(tmp_path):
    since = time.monotonic()
    with pytest.raises(Lost, match="in time"):
        Group(recited(fault="never comes", place=tmp_path), 2, Limits(start=2.5)).start()
    assert time.monotonic() - since < PATIENCE + 100  # the rank that never comes sleeps for 1000
    assert all_gone([int(p.stem) for p in tmp_path.glob("*.json")])


def test_ranks_are_gone_when_the_group_is_ended_or_killed(tmp_path):
    ended = Group(recited(place=tmp_path), 3).start()
    pids = ended.pids
    assert len(set(pids)) == 3 and not any(map(gone, pids))
    ended.end()
    assert all_gone(pids)
    stubborn = Group(recited(fault="does not end"), 2, Limits(end=0.5)).start()
    pids, since = stubborn.pids, time.monotonic()
    stubborn.end()
    assert all_gone(pids) and time.monotonic() - since < PATIENCE + 100  # they would sleep for 1000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_leader(number, tmp_path):
    script = (
        "import sys; from benchmarks.others import __main__ as command, contestants;"
        "from tests.others_recited import contestant; contestants.EVERY = (contestant(place=sys.argv[1]),);"
        "sys.exit(command.main(['--seconds', '60', '--sizes', '16']))"
    )
    leader = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in leader.stderr:
        if line.startswith("round 1,"):
            break
    pids = [int(p.stem) for p in tmp_path.glob("*.json")]
    leader.send_signal(number)
    leader.communicate(timeout=PATIENCE)
    assert leader.returncode == {signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert len(pids) == 2 and all_gone(pids)


def test_a_waiting_group_takes_no_core():
    group = Group(recited(), 2).start()
    try:
        group.ask({"do": "rest"})
        time.sleep(0.5)
        for answer in group.ask({"do": "rest"}):
            assert answer["idle_s"] > 0.4
            assert answer["idle_cpu_s"] < 0.1 * answer["idle_s"]
    finally:
        group.end()


def test_absent_contestants_are_named():
    missing = replace(recited("missing"), packages=("no_such_package",))
    lines, well = carried_out(rounds.Plan([recited(), missing], sizes=(16,), most_rounds=1, least_rounds=1))
    assert well  # what is not installed is no failure
    assert of(lines, "absent") == [
        {"kind": "absent", "contestant": "missing", "reason": "no_such_package is not installed"}
    ]
    shown = "\n".join(tables.markdown(tables.Recorded(lines[0], lines[1:])))
    assert "| Missing | not here: no_such_package is not installed |" in shown


def test_mpirun_of_another_mpi(monkeypatch):
    monkeypatch.setattr(contestants, "mpirun", lambda: ("mpirun", "HYDRA build details:"))
    monkeypatch.setattr(contestants.importlib.util, "find_spec", lambda name: object())
    by_name = {c.name: c for c in contestants.EVERY}
    assert by_name["mpi"].absent() is None
    assert by_name["mpi"].commands(2)[0][:3] == ["mpirun", "-n", "2"]
    assert "setting of Open MPI" in by_name["mpi-tcp"].absent()
    monkeypatch.setattr(contestants, "mpirun", lambda: ("", ""))
    assert "no mpirun" in by_name["mpi"].absent()


@pytest.mark.parametrize("name", ["torch", "mpi-tcp", "mpi"])
def test_the_others_where_they_are_installed(name):
    [contestant] = [c for c in contestants.EVERY if c.name == name]
    if why := contestant.absent():
        pytest.skip(why)
    lines, well = carried_out(rounds.Plan([contestant], sizes=(8, 4096), most_rounds=1, least_rounds=1))
    assert well, lines
    assert len(of(lines, "block")) == 6


# Arithmetic -------------------------------------------------------------------------------------------------


def synthetic(count, jax, other, processes=2):
    """A run whose rounds have these times in us of the slowest rank."""
    run = {
        "kind": "run",
        "schema": rounds.SCHEMA,
        "processes": processes,
        "operations": ["all_reduce"],
        "sizes": [1000],
        "contestants": [{"name": "jax", "label": "JAX, gloo"}, {"name": "other", "label": "Other"}],
        "machine": {"cores": 2},
        "time": "2026-01-01T00:00:00+00:00",
    }
    lines = [{"kind": "ready", "contestant": n, "facts": {}} for n in ("jax", "other")]
    for number in range(count):
        for name, figure in (("jax", jax), ("other", other)):
            slow = figure(number)
            lines.append(
                {
                    "kind": "block",
                    "contestant": name,
                    "operation": "all_reduce",
                    "nbytes": 1000,
                    "round": number,
                    # the slowest rank changes; the median over samples of the slowest is `slow`
                    "samples_us": [[slow, slow / 2, slow * 50], [slow / 2, slow * 0.9, slow]],
                    "late_us": [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
                }
            )
    return tables.Recorded(run, [*lines, {"kind": "end", "rounds": count}])


def test_figures_of_known_rounds():
    recorded = synthetic(11, lambda r: 100 + r, lambda r: (100 + r) / 4)
    figures = tables.Figures(recorded)
    time_ = figures.time("jax", "all_reduce", 1000)
    assert [round(1e6 * v, 9) for v in (time_.value, time_.low, time_.high)] == [105, 102.5, 107.5]
    bandwidth = figures.bandwidth("jax", "all_reduce", 1000)  # f = 1 for two processes
    assert bandwidth.value == pytest.approx(1000 / 105e-6) and bandwidth.low == pytest.approx(1000 / 107.5e-6)
    ratio = figures.ratio("jax", "other", "all_reduce", 1000)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((4, 4, 4))
    shown = "\n".join(tables.markdown(recorded))
    assert "105 (102 to 108)" in shown and "4.00 (4.00 to 4.00)" in shown


def test_the_median_of_a_block_is_that_of_the_slowest_rank():
    block = {
        "kind": "block",
        "contestant": "jax",
        "operation": "all_reduce",
        "nbytes": 1000,
        "round": 0,
        "samples_us": [[1.0, 9.0, 5.0], [7.0, 2.0, 3.0]],
        "late_us": [[0.0, 0.0, 2.0], [3.0, 1.0, 0.0]],
    }
    recorded = synthetic(0, None, None)
    figures = tables.Figures(tables.Recorded(recorded.run, [*recorded.others, block]))
    assert figures.rounds("jax", "all_reduce", 1000) == pytest.approx({0: 7e-6})  # of 7, 9 and 5
    # last in at 3, 1, 2; last out at 10, 9, 7
    assert figures.entry("jax", "all_reduce", 1000) == pytest.approx((2e-6, 7e-6))


def test_few_rounds_have_no_middle_half():
    recorded = synthetic(3, lambda r: 100 + r, lambda r: 50 + r)
    assert math.isinf(tables.Figures(recorded).time("jax", "all_reduce", 1000).high)
    assert "101 (too few rounds)" in "\n".join(tables.markdown(recorded))


def test_a_straggler_is_in_the_samples():
    """A rank that takes 2 ms more is what the table shows, though the other rank is done at once."""
    lines, _ = carried_out(
        rounds.Plan([recited(fault="straggler")], sizes=(16,), most_rounds=1, least_rounds=1)
    )
    figures = tables.Figures(tables.Recorded(lines[0], lines[1:]))
    assert figures.time("recited", "all_gather", 16).value > 0.002


def test_more_processes_than_cores_are_marked():
    recorded = synthetic(6, lambda r: 100, lambda r: 50, processes=4)
    assert any(
        line.startswith("**Oversubscribed: 4 processes on 2 cores") for line in tables.markdown(recorded)
    )
    assert not any(
        "Oversubscribed" in line for line in tables.markdown(synthetic(6, lambda r: 1, lambda r: 1))
    )


def test_a_busy_machine_is_marked():
    recorded = synthetic(6, lambda r: 100, lambda r: 50)
    busy = tables.Recorded(
        recorded.run, [*recorded.others[:-1], {"kind": "end", "rounds": 6, "others_cores": 0.8}]
    )
    assert any(line.startswith("**A busy machine") for line in tables.markdown(busy))
    assert not any(line.startswith("**A busy machine") for line in tables.markdown(recorded))


# Bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--processes 1", "--processes 1: use 2 to 64"),
        ("--sizes 12", "--sizes 12: use bytes that are a multiple of 8"),
        ("--sizes 8,x", "--sizes x"),
        ("--operations psum", "choose from all_reduce"),
        ("--contestants nccl", "choose from jax"),
        ("--seconds 0", "--seconds 0"),
        ("--table no/such/file", "can't read no/such/file"),
        ("--page no/such/file", "no such file"),
        ("--record no/such/file", "--record no/such/file"),
    ],
)
def test_bad_input_is_one_line(arguments, said, capsys):
    assert command.main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [], "empty"),
        (lambda lines: [lines[0] | {"schema": "x"}], ":1: no run of"),
        (lambda lines: [lines[0], "{"], ":2: not JSON"),
        (lambda lines: [*lines, lines[0]], "does not belong there"),
        (lambda lines: [lines[0], lines[1] | {"contestant": "who"}], "no contestant of this run"),
        (lambda lines: [lines[0], lines[3] | {"samples_us": [[1.0], [1.0, 2.0]]}], "unequally many"),
        (lambda lines: [lines[0], lines[3] | {"samples_us": [[0, 1, 1], [1, 1, 1]]}], "a time of 0"),
        (lambda lines: [lines[0], lines[3] | {"samples_us": [["1"], [1.0]]}], "no number"),
        (lambda lines: [lines[0] | {"sizes": []}], "'sizes'"),
    ],
)
def test_records_that_are_none(change, said, tmp_path):
    recorded = synthetic(1, lambda r: 1.0, lambda r: 1.0)
    lines = change([recorded.run, *recorded.others])
    file = tmp_path / "run.jsonl"
    file.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    with pytest.raises(BadInput, match=said.replace("(", r"\(")):
        tables.read(file)


def test_sizes_that_four_processes_can_not_share_are_left_out():
    options = command.parser().parse_args(["--processes", "4"])
    assert 8 not in command.plan(options).sizes and 64 in command.plan(options).sizes


# What is published ------------------------------------------------------------------------------------------


def test_the_page_is_that_of_the_published_records():
    page, file = ROOT / "docs" / "others.md", ROOT / "results" / "others" / "cpu-2.jsonl.gz"
    text = page.read_text(encoding="utf-8")
    assert tables.paged(text, tables.markdown(tables.read(file)), page) == text
    machine = os.uname().nodename
    assert not any(
        word in gzip.decompress(file.read_bytes()).decode()
        for word in (f'"{machine}"', "/tmp/", f"{Path.home()}/")
    )


def test_modules_import_neither_jax_nor_the_others():
    """asv imports every module below benchmarks/ to list what it can time."""
    names = [p.stem for p in (ROOT / "benchmarks" / "others").glob("*.py") if p.stem != "__init__"]
    script = (
        f"import sys, importlib; [importlib.import_module('benchmarks.others.' + n) for n in {names!r}];"
        "sys.exit(any(n in sys.modules for n in ('jax', 'torch', 'mpi4py', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=PATIENCE).returncode == 0


def test_statistics_are_the_projects_own():
    values = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 7.0]
    recorded = synthetic(7, lambda r: values[r], lambda r: 1.0)
    want = statistics.middle_half([1e-6 * v for v in values])
    got = tables.Figures(recorded).time("jax", "all_reduce", 1000)
    assert (got.value, got.low, got.high) == pytest.approx((want.value, want.low, want.high))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (5.0, "5.00"),
        (12345.6, "12,346"),
        (0.012345, "0.0123"),
        (0.0000271, "2.71e-05"),
        (math.inf, "?"),
    ],
)
def test_numbers_are_shown_in_three_digits(value, shown):
    assert tables.number(value) == shown
