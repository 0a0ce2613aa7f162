# SPDX-License-Identifier: Apache-2.0
"""`meshmark bench` over several processes: real ranks, started by `meshmark launch`, some of them with faults."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from meshmark.commands.main import main
from meshmark.core.skew import measure_skew, slowest
from meshmark.publish import plausible
from meshmark.ranks import merge
from meshmark.ranks.rank_bench import done, finished
from meshmark.records import reading
from meshmark.records.reading import RecordError, Records
from meshmark.timing import timing_tables
from tests.checkout import IMPORTS, ROOT
from tests.waiting import until

pytestmark = pytest.mark.e2e

PSUM = "psum/axes=x/{}/2/float32/{}"
CHOSEN = ("--operations", "psum", "--meshes", "2", "--seconds", "0.1")
LATE = 0.03


def launched(*options, plans=(), after=lambda launcher: None):
    """(exit code, output) of `meshmark bench` on two processes of one device; `after` is called with the
    launcher once it has started."""
    environment = os.environ | {
        "MESHMARK_SABOTAGE_BENCH": json.dumps(list(plans)),
        "PYTHONPATH": IMPORTS,
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "tests.ranks.sabotaged_bench", *CHOSEN, *map(str, options)]
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "harness",
            "launch",
            "-n",
            "2",
            "--devices-per-process",
            "1",
            "--",
            *command,
        ],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launcher:
        try:
            after(launcher)
            output, _ = launcher.communicate(timeout=600)
        finally:
            launcher.kill()
    return launcher.returncode, output


def by_case(file):
    return {(r["case"], r["cadence"]): r for r in file.timings}


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A run in which rank 1 has a wrong value in one mode, can't compile another, and is late in the third; and one
    mode in which all is well."""
    path = tmp_path_factory.mktemp("ranks") / "records.jsonl"
    plans = [
        {"rank": 1, "case": PSUM.format("auto", "4KiB"), "how": "wrong"},
        {"rank": 1, "case": PSUM.format("explicit", "4KiB"), "how": "compile"},
        {"rank": 1, "case": PSUM.format("manual", "4KiB"), "how": "late", "seconds": LATE},
    ]
    options = ("--modes", "auto,explicit,manual", "--sizes", "4KiB,16KiB", "--record", path)
    code, output = launched(*options, plans=plans)
    assert path.exists(), output
    return code, output, path


def test_the_slowest_rank_is_the_headline(timed):
    _, output, path = timed
    own = [by_case(reading.read_records(file)) for file in merge.rank_files(path, 2)]
    whole = reading.read_records(path)
    good = {key: r for key, r in by_case(whole).items() if r["samples_s"]}
    assert len([key for key in good if key[0].endswith("16KiB") and key[1] == "isolated"]) == 3
    assert any(cadence == "stream" for _, cadence in good)
    for key, record in good.items():
        samples = [rank[key]["samples_s"] for rank in own]
        assert len(samples[0]) == len(samples[1]) >= 10 and samples[0] != samples[1]
        assert record["samples_by_rank"] == samples
        assert record["samples_s"] == [max(pair) for pair in zip(*samples, strict=True)]
        assert own[0][key]["calls"] == own[1][key]["calls"] == record["calls"]
        assert sum(record["skew"]["slowest"]) == len(samples[0])
        assert not list(plausible.find_timing_faults(record, whole.runs[0]["facts"], False))
    assert "skew" in output and "of the slowest rank" in output
    assert not [line for line in output.splitlines() if line.startswith("[1] ")]


def test_a_late_rank_is_the_slowest_by_as_much(timed):
    _, output, path = timed
    late = by_case(reading.read_records(path))[PSUM.format("manual", "4KiB"), "isolated"]
    # The call itself is over on the other rank some microseconds later than it began.
    assert 0.9 * LATE <= late["skew"]["median_s"] < 3 * LATE
    assert late["skew"]["slowest"][1] > 0.7 * len(late["samples_s"])
    assert min(late["samples_s"]) > LATE
    assert re.search(r"psum axes=x 2 float32 4KiB .* [3-9]\S* ms \(rank 1: \d+ %\)", output), output
    well = by_case(reading.read_records(path))[PSUM.format("manual", "16KiB"), "isolated"]
    assert well["skew"]["median_s"] < LATE


def test_what_is_wrong_on_one_rank_is_timed_on_none(timed):
    code, output, path = timed
    assert code == 1
    for file in (path, *merge.rank_files(path, 2)):
        found = by_case(reading.read_records(file))
        wrong = found[PSUM.format("auto", "4KiB"), "isolated"]
        assert (wrong["verdict"], wrong["check"], wrong["verified"]) == ("fail", "numbers", False)
        assert "rank 1: 1 of" in wrong["reason"] and not wrong["samples_s"]
        broken = found[PSUM.format("explicit", "4KiB"), "isolated"]
        assert broken["verdict"] == "error" and not broken["samples_s"]
        assert "rank 1: RuntimeError: sabotaged" in broken["reason"]
        assert (PSUM.format("auto", "4KiB"), "stream") not in found
    assert "fail: psum/axes=x/auto/2/float32/4KiB" in output


def test_the_records_are_by_the_schema(timed):
    pytest.importorskip("jsonschema")
    from meshmark.publish.lines import schema_problem

    for file in (timed[2], *merge.rank_files(timed[2], 2)):
        assert reading.read_records(file).closed, "with a case that fails, and ends nothing"
        for line in file.read_text().splitlines():
            assert schema_problem(json.loads(line)) == ""
    line = next(r for r in reading.read_records(timed[2]).timings if r["samples_s"])
    assert schema_problem(line | {"samples_by_rank": [[0.1], [-0.1]]})
    assert schema_problem(line | {"skew": {"median_s": 0.1}})


def test_a_lost_rank_ends_all_and_the_rest_is_timed_later(tmp_path):
    path = tmp_path / "records.jsonl"
    options = ("--modes", "manual", "--sizes", "4KiB,64KiB,256KiB", "--cadence", "isolated")
    mark = tmp_path / "killed"
    plans = [{"rank": 1, "case": "/64KiB", "how": "kill", "call": 7, "mark": str(mark)}]
    code, output = launched(*options, "--record", path, plans=plans)
    assert code == 137 and time.time() - mark.stat().st_mtime < 60, "JAX itself would wait for minutes"
    case = PSUM.format("*", "64KiB")
    assert f"meshmark: rank 0: {case}: crash: rank 1 ended" in output and "--resume" in output
    assert not path.exists() and main(["merge", str(path)]) == 0
    assert reading.read_records(path).cut.startswith("the run did not end: ")
    before = by_case(reading.read_records(path))
    lost = before[PSUM.format("manual", "64KiB"), "isolated"]
    assert lost["verdict"] == "crash" and not lost["samples_s"]
    kept = {key: r["samples_s"] for key, r in before.items() if r["samples_s"]}
    assert 1 <= len(kept) < 3
    code, output = launched(*options, "--resume", path)
    assert code == 1, output  # the crash is still told of
    assert reading.read_records(path).state == ""
    after = by_case(reading.read_records(path))
    assert len(after) == 3 and [r["verdict"] for r in after.values()].count("pass") == 2
    assert all(after[key]["samples_s"] == samples for key, samples in kept.items())


def test_sigterm_keeps_what_was_timed_also_inside_a_collective(tmp_path):
    path, mark = tmp_path / "records.jsonl", tmp_path / "stuck"
    options = ("--modes", "manual", "--sizes", "4KiB,64KiB", "--cadence", "isolated", "--deadline", "100")
    plans = [{"rank": 1, "case": "/64KiB", "how": "stuck", "call": 7, "mark": str(mark)}]

    def terminate(launcher):
        assert until(mark.exists)
        launcher.send_signal(signal.SIGTERM)

    code, output = launched(*options, "--record", path, plans=plans, after=terminate)
    assert code == 143, output  # of the ranks: neither had to be killed, and none was past its deadline
    told = rf"rank \d: (interrupted|rank \d was ended: (SIGTERM|interrupted)); .* go on with --resume {path}"
    assert re.search(told, output), output
    assert main(["merge", str(path)]) == 0
    found = reading.read_records(path)
    assert not found.problems
    assert [key[0] for key in by_case(found)] == [PSUM.format("manual", "4KiB")]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--scaling"], "--scaling times meshes of 1, 2, 4"),
        (["--processes", "2"], "a number of launches, which a file holds together: add --record"),
        (["--cadence", "device"], "--cadence device reads the profiler of one process"),
        (["--process-id", "2"], "of 2 processes they are 0 to 1"),
        (["--control", "nowhere"], "'nowhere' is not an address"),
    ],
)
def test_what_makes_no_sense_beside_ranks_is_told_at_once(options, told, capsys):
    ranks = ["--coordinator", "127.0.0.1:9", "--num-processes", "2", "--process-id", "0"]
    assert main(["bench", *ranks, *options]) == 2
    assert told in capsys.readouterr().err


# Arithmetic -------------------------------------------------------------------------------------------------


def test_skew_is_the_median_of_slowest_less_fastest():
    by_rank = [[1.0, 2.0, 9.0], [1.5, 2.0, 3.0], [1.2, 1.0, 4.0]]
    assert slowest(by_rank) == [1.5, 2.0, 9.0]
    assert measure_skew(by_rank) == {"median_s": 1.0, "slowest": [2, 1, 0]}
    with pytest.raises(ValueError, match="shorter"):
        slowest([[1.0], [1.0, 2.0]][::-1])
    with pytest.raises(ValueError, match="without samples"):
        measure_skew([[], []])


LINE = {
    "case": "psum/axes=x/manual/2/float32/4KiB",
    "operation": "psum",
    "cadence": "isolated",
    "process": 0,
    "verdict": "pass",
    "verified": True,
    "reason": "",
    "dtype": "float32",
    "devices": 2,
    "cost": {"flops": 0, "nbytes": 4096, "factor": 1.0},
    "mode": "manual",
}


def test_ranks_lines_become_one():
    ranks = {
        0: LINE | {"samples_s": [0.1, 0.4], "compile_s": 0.2, "seconds": 1.0},
        1: LINE | {"samples_s": [0.3, 0.2], "compile_s": 0.5, "seconds": 0.9},
    }
    line = merge.merge_timing(ranks, 2)
    assert line["samples_s"] == [0.3, 0.4] and line["samples_by_rank"] == [[0.1, 0.4], [0.3, 0.2]]
    assert line["skew"] == {"median_s": 0.2, "slowest": [1, 1]}
    assert (line["compile_s"], line["seconds"]) == (0.5, 1.0)
    ranks[1] = LINE | {"samples_s": [], "verdict": "crash", "reason": "rank 0 ended"}
    line = merge.merge_timing(ranks, 2)
    assert line["verdict"] == "crash" and line["samples_s"] == [] and "skew" not in line
    with pytest.raises(RecordError, match="the ranks have 1, 2 samples"):
        merge.merge_timing({0: LINE | {"samples_s": [0.1]}, 1: LINE | {"samples_s": [0.1, 0.2]}}, 2)


MERGED = merge.merge_timing({i: LINE | {"samples_s": [0.1 + i / 100, 0.2, 0.3]} for i in range(2)}, 2)
FACTS = {"device_kind": "cpu", "num_processes": 2}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"samples_s": [0.1, 0.2, 0.3]}, "sample 0 of samples_s is not that of the slowest"),
        ({"samples_by_rank": [[0.1, 0.2, 0.3]]}, "samples_by_rank of 1 ranks, and the run has 2"),
        ({"samples_by_rank": [[0.1, 0.2, 0.3], [0.11, 0.2]]}, r"samples_by_rank has \[3, 2\] samples"),
        ({"skew": {"median_s": 0.5, "slowest": [2, 1]}}, "skew .* is not that of samples_by_rank"),
        ({"skew": {"median_s": 0.0, "slowest": [0, 3]}}, "skew .* is not that of samples_by_rank"),
        ({"samples_by_rank": None}, "merge the ranks' files"),
    ],
)
def test_samples_that_are_not_the_slowest_ranks_are_told(change, told):
    assert not list(plausible.find_timing_faults(MERGED, FACTS, False))
    complaints = list(plausible.find_timing_faults(MERGED | change, FACTS, False))
    assert len(complaints) == 1 and re.search(told, complaints[0])


def test_only_several_ranks_have_a_skew_column():
    run = {"facts": {"device_kind": "cpu", "virtual": True}}
    one = Records(runs=[run], timings=[LINE | {"samples_s": [0.1] * 8}])
    text = "\n".join(timing_tables.table_lines(one))
    assert "skew" not in text and "skew_s" not in timing_tables.timing_rows(one)[0]
    several = Records(runs=[run], timings=[MERGED])
    text = "\n".join(timing_tables.table_lines(several))
    assert re.search(r"skew\s*$", text.splitlines()[3]) and "0 ns (rank 0: 67 %)" in text
    (row,) = timing_tables.timing_rows(several)
    assert (row["ranks"], row["skew_s"], row["slowest_rank"]) == (2, 0.0, 0)


def test_a_cell_is_finished_where_all_ranks_have_finished_it_together():
    def file(*cells):
        lines = [
            LINE
            | {"case": f"psum/axes=x/manual/2/float32/{size}", "run": run, "verdict": verdict, "seconds": 1.0}
            for size, run, verdict in cells
        ]
        return Records(runs=[{"run": r, "group": f"group {r}"} for r in ("a", "b")], timings=lines)

    first = done(
        file(("1KiB", "a", "pass"), ("2KiB", "a", "pass"), ("4KiB", "b", "pass"), ("8KiB", "a", "crash"))
    )
    second = done(file(("1KiB", "a", "pass"), ("4KiB", "a", "pass")))
    cell = "psum/axes=x/*/2/float32/{}".format
    assert finished([first, second]) == {cell("1KiB"), cell("8KiB")}
    assert finished([second, first]) == {cell("1KiB"), cell("8KiB")}


def test_each_launch_has_its_own_cells_to_finish():
    """What one launch finished is not done in the next, which is another process of the same file."""
    records = Records()
    records.runs.append({"run": "r", "group": "a"})
    line = {"run": "r", "case": PSUM.format("manual", "4KiB"), "verdict": "pass", "seconds": 1.0}
    records.timings.append(line | {"process": 0})
    assert finished([done(records, 0)] * 2) == {PSUM.format("*", "4KiB")}
    assert finished([done(records, 1)] * 2) == set()
