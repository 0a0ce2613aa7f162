# SPDX-License-Identifier: Apache-2.0
"""`meshmark compare`: exit codes, refusals, interruption and resuming, record files; once with real processes."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from meshmark.commands import compare as compare_command
from meshmark.commands import main as cli
from meshmark.commands.compare import case_ids
from meshmark.core import interrupts
from meshmark.core.statistics import Estimate
from meshmark.records import reading, writing
from meshmark.timing import bench, environments, file_comparison
from meshmark.timing.compare import FIRST
from tests.checkout import ROOT
from tests.interrupts import interruptible
from tests.timing.replayed import CASES, FACTS, Replayed, line
from tests.waiting import PATIENCE, gone, until

pytestmark = pytest.mark.e2e


def test_case_ids_hold_commas():
    assert case_ids(f"{CASES[0]},{CASES[1]}, {CASES[0]}") == tuple(CASES[:2])
    assert case_ids("psum,matmul") == ("psum,matmul",)  # which is told to be no case


# Records ----------------------------------------------------------------------------------------------------


class Command:
    """The command with replayed processes: environments are not asked."""

    def __init__(self, monkeypatch, replayed, facts=(FACTS, FACTS), busy=False):
        self.replayed = replayed
        by_side = dict(zip("AB", facts, strict=True))

        class Children:
            raw = ()
            announces = False

            def __init__(self, python, path, module, environment):
                self.side = python

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def run(self, job):
                return replayed.run(self.side, job)

        full = {"devices": [], "flags": {}, "suite": {}}
        monkeypatch.setattr(compare_command, "Children", Children)
        monkeypatch.setattr(bench, "load", lambda: ["busy: load average 9"] if busy else [])
        monkeypatch.setattr(
            environments, "resolve", lambda text, *_: environments.Environment(text, text.upper())
        )
        monkeypatch.setattr(environments, "read_facts", lambda e, variables: by_side[e.python] | full)

    def __call__(self, *arguments):
        return cli.main(["compare", "a", "b", "--cases", ",".join(CASES), *arguments])


def test_fail_on_gives_the_exit_code(monkeypatch, capsys):
    command = Command(monkeypatch, Replayed({CASES[0]: 1.2}))
    assert command() == 0
    out = capsys.readouterr().out
    first = next(x for x in out.splitlines() if x.startswith("matmul"))
    assert first.endswith("slower") and "3 compared: 1 slower, 2 no change; 0 compiled counters differ" in out
    assert "0 of 3 unchanged cases flagged" in out
    assert command("--fail-on", "slower") == 1
    assert command("--fail-on", "faster,counters,inconclusive,failed") == 0
    capsys.readouterr()
    assert command("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outcomes"][CASES[0]]["verdict"] == "slower" and found["counters"] == []


def test_a_noisy_machine_is_told_with_its_figure(monkeypatch, capsys):
    class Noisy(Replayed):
        def run(self, side, job):
            for message in super().run(side, job):
                yield message | ({"spread": [0.1, 0.6]} if "end" in message and job.process == 3 else {})

    assert Command(monkeypatch, Noisy(), busy=True)() == 0
    err = capsys.readouterr().err
    assert "load average 9" in err
    assert (
        "in 1 of 40 processes a fixed piece of work varied by more than 25 %" in err and "up to 60 %" in err
    )


def test_an_unknown_name_is_refused_before_environments_are_made(monkeypatch, capsys):
    monkeypatch.setattr("meshmark.timing.environments.resolve", lambda *_: pytest.fail("too late"))
    assert cli.main(["compare", "0.11.2", "0.12.0.1", "--operations", "psmu"]) == 2
    assert "unknown operation 'psmu': did you mean psum?" in capsys.readouterr().err


def test_an_unlike_environment_is_refused_in_one_line(monkeypatch, capsys):
    other = FACTS | {"backend": "gpu", "device_kind": "H200", "virtual": False}
    replayed = Replayed()
    assert Command(monkeypatch, replayed, (FACTS, other))() == 2
    seen = capsys.readouterr()
    assert not seen.out and len(seen.err.splitlines()) == 1 and "--anyway" in seen.err and not replayed.ran


def test_an_interrupted_comparison_goes_on(monkeypatch, capsys, tmp_path):
    class Interrupted(Replayed):
        at, by = 13, KeyboardInterrupt()

        def run(self, side, job):
            if job.process == self.at:
                raise self.by
            yield from super().run(side, job)

    path, replayed = tmp_path / "r.jsonl", Interrupted(1.2)
    command = Command(monkeypatch, replayed)
    assert command("--record", str(path)) == 130
    assert "after 6 pairs" in (err := capsys.readouterr().err) and f"--resume {path}" in err
    kept = reading.read_records(path)
    assert not kept.problems and {r["environment"] for r in kept.runs} == {"A", "B"}
    assert {x["process"] for x in kept.timings} == set(range(13)) and len(kept.timings) == 39
    assert all(
        {x["environment"] for x in kept.timings if x["process"] in (i, i + 1)} == {"A", "B"}
        for i in range(0, 12, 2)
    )

    replayed.by = interrupts.Terminated()  # SIGTERM does the same
    assert Command(monkeypatch, replayed)("--record", str(tmp_path / "terminated.jsonl")) == 143
    assert "after 6 pairs" in capsys.readouterr().err
    assert len(reading.read_records(tmp_path / "terminated.jsonl").timings) == 39

    with open(path, "a") as file:  # a process that was cut off in the midst
        file.write(writing.dumps(line(CASES[0], 9.0, 13) | {"run": "x", "environment": "B"}) + '\n{"schema"')
    assert command("--resume", str(path), "--pairs", "19") == 2  # another plan
    assert "pairs" in capsys.readouterr().err
    other = FACTS | {"versions": {"jax": "1"}}
    assert Command(monkeypatch, replayed, (FACTS, other))("--resume", str(path)) == 2
    assert "versions of B" in capsys.readouterr().err
    command = Command(monkeypatch, replayed)
    replayed.at, before = None, len(replayed.ran)
    assert command("--resume", str(path)) == 0
    # Both sides are prepared anew, and another block of two pairs begins; process 12 stays without its partner.
    assert [p for _, p, _ in replayed.ran[before:]] == [FIRST, FIRST, *range(16, 44)]
    kept = reading.read_records(path)
    assert not kept.problems
    found = {x["case"]: x for x in kept.comparisons if x["what"] == "verdict"}
    assert {x["verdict"] for x in found.values()} == {"slower"} and found[CASES[0]]["pairs"] == 20
    times = {x["process"] for x in kept.timings}
    assert times == {*range(13), *range(16, 44)}

    assert command("--resume", str(path), "--budget", "0") == 0  # nothing more is timed
    assert [p for _, p, _ in replayed.ran[-2:]] == [FIRST, FIRST]
    assert "a look that was not planned" in (err := capsys.readouterr().err)
    assert "1 / 2 of the error" in err
    assert command("--resume", str(path), "--budget", "0") == 0
    assert "1 / 4 of the error" in capsys.readouterr().err


def test_what_was_recorded_is_not_overwritten(monkeypatch, capsys, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("")
    command = Command(monkeypatch, Replayed())
    assert command("--record", str(path)) == 2
    assert command("--resume", str(path)) == 2
    assert command("--record", str(path), "--resume", str(path)) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def bench_file(path, processes, level, facts=FACTS, seed=1, **more):
    rng = random.Random(seed)
    writer = writing.Writer.create(path, {"facts": facts})
    for process in range(processes):
        for case in CASES:
            seconds = level.get(case, 1e-3) * math.exp(rng.gauss(0, 0.004))
            writer.write([line(case, seconds, process, **more)])
    writer.close()
    return str(path)


def test_record_files_are_compared_by_process_medians(capsys, tmp_path):
    a = bench_file(tmp_path / "a.jsonl", 10, {})
    b = bench_file(tmp_path / "b.jsonl", 10, {CASES[0]: 1.2e-3, CASES[1]: 0.8e-3}, seed=2, temp_bytes=64)
    assert cli.main(["compare", a, b, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [o["verdict"] for o in found["outcomes"].values()] == ["slower", "faster", "no change"]
    assert {(d["counter"], d["a"], d["b"]) for d in found["counters"]} == {("temp_bytes", 0, 64)}
    assert any("two times" in x for x in found["notes"])
    assert cli.main(["compare", a, b, "--fail-on", "counters"]) == 1


def test_copied_processes_are_refused(capsys, tmp_path):
    """The rule counts processes: two that were measured, four times each, are not eight."""
    rng = random.Random(3)
    taken = [[1e-3 * math.exp(rng.gauss(0, 0.01)) for _ in range(20)] for _ in range(2)]
    for name, measured in (("a", taken), ("b", 4 * taken)):
        writer = writing.Writer.create(tmp_path / f"{name}.jsonl", {"facts": FACTS})
        for process, samples in enumerate(measured):
            writer.write([line(CASES[0], 1e-3, process, samples_s=samples)])
        writer.close()
    a, b = (str(tmp_path / f"{name}.jsonl") for name in "ab")
    assert cli.main(["compare", a, a]) == 0
    capsys.readouterr()
    assert cli.main(["compare", a, b]) == 2
    said = capsys.readouterr().err
    assert "b.jsonl: " in said and "each process must be measured" in said


def test_one_process_a_side_gives_the_ratio_and_no_verdict(capsys, tmp_path):
    a = bench_file(tmp_path / "a.jsonl", 1, {})
    b = bench_file(tmp_path / "b.jsonl", 1, {CASES[0]: 2e-3}, seed=2)
    assert cli.main(["compare", a, b]) == 0
    seen = capsys.readouterr()
    assert "2.0" in next(x for x in seen.out.splitlines() if x.startswith("matmul"))
    assert (
        "3 inconclusive" in seen.out
        and "one process per side cannot tell machine noise from change" in seen.err
    )
    assert "--processes" in seen.err


def test_unlike_or_empty_files_are_refused(capsys, tmp_path):
    a = bench_file(tmp_path / "a.jsonl", 1, {})
    b = bench_file(tmp_path / "b.jsonl", 1, {}, facts=FACTS | {"num_devices": 4})
    empty = writing.Writer.create(tmp_path / "empty.jsonl", {"facts": FACTS})
    empty.close()
    for arguments, words in (
        ([a, b], ["number of devices is 8 in A and 4 in B", "--anyway"]),
        ([a, str(tmp_path / "empty.jsonl")], ["empty.jsonl", "no times"]),
        ([a, str(tmp_path / "none.jsonl")], ["none.jsonl"]),
        ([a, sys.executable], ["is a record file"]),
        ([a, a, "--record", str(tmp_path / "new")], ["--record"]),
    ):
        assert cli.main(["compare", *arguments]) == 2
        seen = capsys.readouterr()
        assert not seen.out and len(seen.err.splitlines()) == 1 and all(w in seen.err for w in words), (
            seen.err
        )
    assert cli.main(["compare", a, b, "--anyway"]) == 0


def test_strange_files_give_no_traceback(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "parsed", lambda text: None)  # as a program wrote them that does not look
    facts = {"versions": [], "host": 3, "suite": "x", "virtual": True}
    strange = bench_file(tmp_path / "a.jsonl", 2, {}, facts=facts, communication=[{"kind": 1}, 3], flops={})
    with open(strange, "a") as file:
        file.write(writing.dumps(line(CASES[0], 1e-3) | {"run": "x"}).replace("0.001", "1e999") + "\n")
    other = bench_file(tmp_path / "b.jsonl", 2, {}, facts=facts | {"host": 4})
    assert cli.main(["compare", strange, strange]) == 2  # the reader says which field is wrong
    assert "`versions`, which must be an object" in capsys.readouterr().err.replace("\n", " ")
    assert cli.main(["compare", strange, other]) == 2


def test_the_unpaired_rule_against_scipy():
    rng = np.random.default_rng(3)
    for n, m in ((4, 7), (9, 9), (12, 5)):
        a, b = rng.normal(size=n), rng.normal(0.8, size=m)
        found = file_comparison.compare_times({"x": (np.exp(a), np.exp(b))})["x"]
        told = stats.mannwhitneyu(a, b, method="exact")
        assert found.p == pytest.approx(told.pvalue, rel=1e-9)
        assert math.log(found.change.value) == pytest.approx(float(np.median(np.subtract.outer(b, a))))
        assert found.change.low < found.change.value < found.change.high
    normal = file_comparison._cumulative_probabilities(60, 60)
    assert normal[1500] == pytest.approx(stats.norm.cdf((1500.5 - 1800) / math.sqrt(36300)), rel=1e-9)
    assert file_comparison._cumulative_probabilities(60, 41)[-1] == pytest.approx(1, abs=1e-6)


def test_the_unpaired_rule_raises_few_false_alarms_and_covers():
    rng = np.random.default_rng(4)
    flagged = covered = 0
    for i in range(200):
        a, b = np.exp(rng.normal(0, 0.03, (2, 10)))
        found = file_comparison.compare_times({"x": (a, b)}, resamples=200, seed=i)["x"]
        flagged += found.verdict in ("slower", "faster")
        covered += found.change.low <= 1 <= found.change.high
    assert flagged <= 6 and covered >= 180
    found = file_comparison.compare_times({"x": ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])})["x"]
    assert found.verdict == "inconclusive" and found.p == 1 and found.change == Estimate(1.0, 0.0, math.inf)


@pytest.mark.parametrize(("quiet", "noisy"), [(40, 8), (16, 16), (10, 10)])
def test_a_noisier_day_is_no_change(quiet, noisy):
    """Forty cases of one median, on a quiet day and on a noisy one: by the rank-sum test alone half of the runs of 40
    against 8 processes flagged something. The interval of the ratio holds 1 as often as it says."""
    rng = np.random.default_rng(3)
    flagged = missed = 0
    for _ in range(12):
        files = {
            str(i): (np.exp(rng.normal(0, 0.02, quiet)), np.exp(rng.normal(0, 0.3, noisy))) for i in range(40)
        }
        found = file_comparison.compare_times(files, resamples=20).values()
        flagged += any(o.verdict in ("slower", "faster") for o in found)
        missed += sum(not o.change.low <= 1 <= o.change.high for o in found)
    assert flagged == 0 and missed <= 0.05 * 12 * 40


def test_a_change_between_files_parts_them():
    a = np.exp(np.linspace(-0.02, 0.02, 10))
    cases = {str(i): (a, a) for i in range(39)}

    def of(b):
        return file_comparison.compare_times({**cases, "x": (a, b)}, resamples=50)["x"].verdict

    assert of(1.5 * a) == "slower" and of(a / 1.5) == "faster"
    assert of(1.5 * a**4) == "inconclusive", (
        "too few for medians of 40 cases, and B spreads four times as wide"
    )
    assert of(np.r_[1.5 * a[:-1], 1.0]) == "inconclusive"
    few = file_comparison.compare_times({"x": (a[:5], 1.5 * a[:5])}, resamples=50)["x"]
    assert (few.change.low, few.change.high) == (0.0, math.inf), "five processes have no interval"


def test_all_cases_that_go_one_way_are_told():
    def of(*changes):
        cases = {str(i): (np.full(6, 1.0), np.full(6, x)) for i, x in enumerate(changes)}
        return file_comparison.common_shift(file_comparison.compare_times(cases, resamples=20))

    assert "12 of 12 cases are slower in B, by 20 % in the middle" in of(*[1.2] * 12)
    assert "11 of 12 cases are faster in B, by 25 %" in of(*[0.8] * 11, 1.1)
    assert of(*[1.2] * 9) == of(*[1.2] * 10, 0.8, 0.9) == of(*[1.01] * 12) == ""


# Real processes ---------------------------------------------------------------------------------------------


def meshmark(*arguments):
    return [sys.executable, "-m", "harness", "compare", sys.executable, sys.executable, *arguments]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_real_processes_interrupted_and_judged(tmp_path):
    """One pair of real processes, Ctrl-C in the next, and a look at what there is."""
    path = tmp_path / "r.jsonl"
    options = ["--cases", ",".join(CASES[:2]), "--seconds", "0.01"]
    command = interruptible(meshmark(*options, "--record", str(path)))
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 600
        while time.monotonic() < end and process.poll() is None:
            paired = path.exists() and path.read_text().count('"what":"process"') >= 2
            if paired and (timers := list(_timers(process.pid))):
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    # A child whose start was interrupted is nobody's yet: it ends once it finds that no job can come.
    assert until(lambda: all(map(gone, timers)))
    sides = Counter(
        x["environment"] for x in reading.read_records(path).comparisons if x["what"] == "process"
    )
    pairs = min(sides["A"], sides["B"])
    # One, unless the machine was so busy that another one ended before the signal came.
    assert f"interrupted after {pairs} pair" in err and pairs and f"--resume {path}" in err
    assert "compiled counters: the same in all 2" in err and out.startswith("A: ")

    done = subprocess.run(
        meshmark(*options, "--resume", str(path), "--budget", "0", "--json"),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["counters"] == [] and found["counters_compared"] == 2 and not found["left_out"]
    assert {(o["pairs"], o["verdict"]) for o in found["outcomes"].values()} == {(pairs, "inconclusive")}
    kept = reading.read_records(path)
    assert Counter(x["environment"] for x in kept.comparisons if x["what"] == "process") == sides
    assert all(x["verdict"] == "pass" and x["samples_s"] for x in kept.timings)
    assert len(kept.timings) == 2 * sides.total()
    assert "/" not in kept.runs[0]["named"].replace("<path>", "")


def _timers(parent):
    """Process ids of the timing children of a process."""
    for task in os.listdir(f"/proc/{parent}/task"):
        with suppress(OSError):  # it has just ended
            for pid in Path(f"/proc/{parent}/task/{task}/children").read_text().split():
                if "meshmark.timing.timer" in Path(f"/proc/{pid}/cmdline").read_text():
                    yield int(pid)
