# SPDX-License-Identifier: Apache-2.0
"""The comparison of two environments: order, looks, budget, losses, counters, files; mostly on replayed processes."""

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
from dataclasses import replace
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
from meshmark.timing import bench, compare, environments, recorded
from meshmark.timing.children import ChildError
from meshmark.timing.compare import FIRST, CompareError, Comparison, incomparable
from meshmark.timing.comparison_report import counter_lines
from meshmark.timing.environments import NoEnvironment
from meshmark.timing.timer import Job
from tests.checkout import ROOT, SOURCE
from tests.interrupts import interruptible
from tests.waiting import PATIENCE, gone, until

CASES = [
    "matmul/rows=x,cols=y,check=exact/auto/2x4/float32/n64",
    "psum/axes=x+y/auto/2x4/float32/4KiB",
    "psum/axes=x+y/manual/2x4/float32/4KiB",
]
CELLS = [CASES[:1], CASES[1:]]
FACTS = {
    "versions": {"jax": "9.9.9", "jaxlib": "9.9.9", "python": "3.12.1"},
    "backend": "cpu",
    "device_kind": "cpu",
    "num_devices": 8,
    "num_processes": 1,
    "virtual": True,
    "host": {"cores": 2},
}


def line(case, seconds, process=0, verdict="pass", reason="", **more):
    operation, variant, mode, mesh, dtype, _ = case.split("/")
    return {
        "schema": 1,
        "kind": "timing",
        "case": case,
        "operation": operation,
        "variant": variant,
        "mode": mode,
        "mesh": mesh,
        "dtype": dtype,
        "cadence": "isolated",
        "process": process,
        "verdict": verdict,
        "reason": reason,
        "communication": [{"kind": "all-reduce", "bytes": 4096, "groups": "1x8", "trips": 1}],
        "wire_bytes": 7168.0,
        "flops": 1024.0,
        "bytes_accessed": 8192.0,
        "temp_bytes": 0,
        "argument_bytes": 4096,
        "output_bytes": 4096,
        "samples_s": [] if verdict != "pass" else [seconds] * 3,
    } | more


class Replayed:
    """Processes without processes: side B takes `change` times as long; each takes 3 s of a clock of its own."""

    def __init__(self, change=1.0, noise=0.003, fault=None):
        self.change, self.noise, self.fault = change, noise, fault or (lambda side, process, line: line)
        self.rng, self.ran, self.now = random.Random(5), [], 0.0

    def run(self, side, job):
        self.ran.append((side, job.process, [i for ids in job.cells for i in ids]))
        self.now += 3.0
        yield {"facts": FACTS}
        for ids in job.cells:
            lines = []
            for case in ids:
                change = self.change.get(case, 1.0) if isinstance(self.change, dict) else self.change
                level = 1e-3 * (change if side == "B" else 1.0) * math.exp(self.rng.gauss(0, self.noise))
                lines.append(self.fault(side, job.process, line(case, level, job.process)))
            yield {"timings": lines, "cell": ids[0]}
        yield {"end": True, "spread": [0.05, 0.1]}

    def comparison(self, **more):
        options = {
            "run": self.run,
            "cells": CELLS,
            "job": Job(cells=[], num_devices=8, cadences=["isolated"], seconds=0.1),
            "budget": 1e6,
            "clock": lambda: self.now,
            "rng": random.Random(7),  # the same order each time: whether a look is clear may hang on it
        }
        return Comparison(**(options | more))


class Alternating(random.Random):
    """A B in every pair: for tests in which it matters which side a process is of."""

    def sample(self, population, k, *, counts=None):
        return list(population)


def timed(replayed, **more):
    made = replayed.comparison(**more)
    made.prepare()
    made.proceed()
    return made


def verdicts(comparison):
    return {case: outcome.verdict for case, outcome in comparison.outcomes.items()}


def test_both_processes_of_a_pair_are_announced_before_one_of_them_runs():
    replayed, told = Replayed(), []
    timed(replayed, looks=(12,), ahead=lambda processes: told.append((len(replayed.ran), dict(processes))))
    sampling = replayed.ran[2:]
    assert len(told) == 12
    for pair, (ran, processes) in enumerate(told):
        assert ran == 2 + 2 * pair
        assert processes == {side: process for side, process, _ in sampling[2 * pair : 2 * pair + 2]}


@pytest.mark.parametrize("silent", [(), ("A",), ("B",), ("A", "B")])
def test_processes_start_ahead_where_those_of_both_sides_say_when_they_wait(silent):
    did = []

    class Told:
        def __init__(self, side):
            self.side, self.announces = side, side not in silent

        def begin(self, process):
            did.append(("begin", self.side, process))

        def ready(self):
            did.append(("ready", self.side))

    compare_command.started({side: Told(side) for side in "AB"}, {"B": 4, "A": 5})
    wanted = [("begin", "B", 4), ("begin", "A", 5), ("ready", "B"), ("ready", "A")]
    assert did == ([] if silent else wanted)


def test_pairs_run_in_a_drawn_order_and_stop_at_the_first_clear_look():
    replayed = Replayed({CASES[0]: 1.2, CASES[1]: 0.8})
    made = timed(replayed)
    assert [(side, process) for side, process, _ in replayed.ran[:2]] == [("A", FIRST), ("B", FIRST)]
    sampling = replayed.ran[2:]
    assert [process for _, process, _ in sampling] == list(range(40))
    order = "".join(side for side, _, _ in sampling)
    drawn = [order[i : i + 2] for i in range(0, 40, 2)]
    assert set(drawn) == {"AB", "BA"}  # 20 pairs alike have a probability of 2 in a million
    again = Replayed({CASES[0]: 1.2, CASES[1]: 0.8})
    timed(again, rng=random.Random(1))
    assert "".join(side for side, _, _ in again.ran[2:]) != order, "no two runs have the same order"
    assert verdicts(made) == {CASES[0]: "slower", CASES[1]: "faster", CASES[2]: "no change"}
    assert made.pairs == 20 and "clear" in made.ended
    assert made.outcomes[CASES[0]].change.value == pytest.approx(1.2, rel=0.01)
    assert made.same == (0, 3)


def test_what_is_not_clear_goes_on_to_the_last_look():
    said = []
    made = timed(Replayed(1.028, noise=0.02), say=said.append)
    assert made.pairs == 40 and made.looked == 2 and "40 pairs" in made.ended
    assert "look 1 of 2 at 20 pairs" in said[0] and "inconclusive" in said[0]


def test_the_budget_ends_it_with_the_pairs_that_are_there():
    made = timed(Replayed(1.5), budget=6 + 12 * 6)
    assert made.pairs == 12 and "budget of 78 s" in made.ended
    assert set(verdicts(made).values()) == {"slower"}  # 12 pairs are enough where no look was wasted
    few = timed(Replayed(1.5), budget=6 + 5 * 6)
    assert few.pairs == 5 and set(verdicts(few).values()) == {"inconclusive"}


def test_looks_that_can_find_nothing_are_refused_and_many_cases_get_more():
    with pytest.raises(CompareError, match="5 pairs can find nothing among 3 cases"):
        timed(Replayed(), looks=(5,))
    assert compare.planned((), 10, 0.03).looks == (20, 40)
    many = compare.planned((), 10**6, 0.03)
    assert many.looks[0] == many.needed(10**6) > 20 and many.looks[1] == 2 * many.looks[0]


def test_a_case_that_fails_on_one_side_is_left_out_before_it_is_timed():
    def fault(side, process, line):
        wrong = side == "B" and line["case"] == CASES[1]
        return line | {"verdict": "fail", "reason": "numbers: off", "samples_s": []} if wrong else line

    replayed = Replayed(fault=fault)
    made = timed(replayed)
    assert made.left_out == {CASES[1]: "B: fail: numbers: off"}
    assert all(CASES[1] not in ids for _, process, ids in replayed.ran if process != FIRST)
    assert set(made.outcomes) == {CASES[0], CASES[2]}


def test_one_crash_costs_its_pair_and_three_leave_the_case_out():
    def fault(times):
        def crash(side, process, line):
            dies = line["case"] == CASES[1] and process in times
            return line | {"verdict": "crash", "reason": "SIGSEGV", "samples_s": []} if dies else line

        return crash

    one = timed(Replayed(1.2, fault=fault([5])), rng=Alternating())
    assert one.outcomes[CASES[1]].pairs == 19 and one.outcomes[CASES[0]].pairs == 20 and not one.left_out
    assert one.sporadic() == [f"{CASES[1]}: B: lost in 1 of its processes: crash: SIGSEGV"]
    three = timed(Replayed(1.2, fault=fault([1, 5, 7, 9, 11])), rng=Alternating())
    assert three.left_out[CASES[1]] == "B: crash: SIGSEGV (in 3 of 4 processes)"
    assert set(verdicts(three)) == {CASES[0], CASES[2]}
    assert three.pairs == 20


def test_a_lost_process_costs_its_pair_and_three_in_a_row_end_it():
    class Dying(Replayed):
        def run(self, side, job):
            if job.process in self.dying:
                self.ran.append((side, job.process, []))
                raise ChildError("children die before they time anything: no memory")
            yield from super().run(side, job)

    one = Dying(1.2)
    one.dying = {7}
    made = timed(one)
    assert made.pairs == 20 and 7 not in made.complete and one.ran[-1][1] == 41
    assert {outcome.pairs for outcome in made.outcomes.values()} == {20}
    dead = Dying()
    dead.dying = {4, 5, 6}
    with pytest.raises(ChildError, match="no memory"):
        timed(dead)
    first = Dying()
    first.dying = {FIRST}
    with pytest.raises(ChildError, match="A: children die"):
        timed(first)


def test_everything_left_out_is_told():
    made = timed(Replayed(fault=lambda s, p, x: x | {"verdict": "error", "reason": "no", "samples_s": []}))
    assert not made.outcomes and len(made.left_out) == 3 and "nothing is left" in made.ended


def test_an_environment_that_changes_meanwhile_is_an_error():
    class Changing(Replayed):
        def run(self, side, job):
            for message in super().run(side, job):
                if "facts" in message and job.process > 1 and side == "B":
                    message = {"facts": FACTS | {"versions": {"jax": "10.0"}}}
                yield message

    with pytest.raises(CompareError, match="B changed while it was compared: its versions"):
        timed(Changing())


def test_counters_are_compared_exactly():
    def fault(side, process, line):
        if side == "B" and line["case"] == CASES[2]:
            line["communication"] *= 2
            line["temp_bytes"] = 1
        return line

    made = Replayed(fault=fault).comparison()
    found = made.prepare()
    assert [(d.case, d.counter, d.a, d.b) for d in found] == [
        (CASES[2], "collectives", "1 all-reduce 4096B 1x8", "2 all-reduce 4096B 1x8"),
        (CASES[2], "temp_bytes", 0, 1),
    ]
    assert "2 differ, in 1 of 3 programs" in "\n".join(counter_lines(found, 3))
    assert Replayed().comparison().prepare() == []


def test_a_stream_is_compared_apart():
    def run(side, job):
        for message in Replayed(1.2).run(side, job):
            for x in list(message.get("timings", ())):
                message["timings"].append(x | {"cadence": "stream", "samples_s": [1e-4]})
            yield message

    job = Job(cells=[], num_devices=8, cadences=["isolated", "stream"], seconds=0.1)
    made = timed(Replayed(), run=run, job=job)
    assert verdicts(made)[CASES[0]] == "slower" and verdicts(made)[f"{CASES[0]} (stream)"] == "no change"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": "gpu", "device_kind": "H200", "virtual": False}, ["virtual devices and B real", "H200"]),
        ({"num_devices": 4}, ["number of devices is 8 in A and 4 in B"]),
        ({"host": {"cores": 64}}, ["unlike machines (2 and 64)"]),
    ],
)
def test_what_is_not_comparable(change, words):
    found = "; ".join(incomparable(FACTS, FACTS | change))
    assert all(word in found for word in words), found
    with pytest.raises(CompareError, match="--anyway"):
        compare_command.refuse([found], anyway=False)
    compare_command.refuse([found], anyway=True)
    assert not incomparable(FACTS, dict(FACTS, versions={}, topology=""))


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
        monkeypatch.setattr(environments, "facts", lambda e, variables: by_side[e.python] | full)

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
    kept = reading.read(path)
    assert not kept.problems and {r["environment"] for r in kept.runs} == {"A", "B"}
    assert {x["process"] for x in kept.timings} == set(range(13)) and len(kept.timings) == 39
    assert all(
        {x["environment"] for x in kept.timings if x["process"] in (i, i + 1)} == {"A", "B"}
        for i in range(0, 12, 2)
    )

    replayed.by = interrupts.Terminated()  # SIGTERM does the same
    assert Command(monkeypatch, replayed)("--record", str(tmp_path / "terminated.jsonl")) == 143
    assert "after 6 pairs" in capsys.readouterr().err
    assert len(reading.read(tmp_path / "terminated.jsonl").timings) == 39

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
    kept = reading.read(path)
    assert not kept.problems
    found = {x["case"]: x for x in kept.comparisons if x["what"] == "verdict"}
    assert {x["verdict"] for x in found.values()} == {"slower"} and found[CASES[0]]["pairs"] == 20
    times = {x["process"] for x in kept.timings}
    assert times == {*range(13), *range(16, 44)}

    assert command("--resume", str(path), "--budget", "0") == 0  # nothing more is timed
    assert [p for _, p, _ in replayed.ran[-2:]] == [FIRST, FIRST]
    assert "a look that was not planned" in capsys.readouterr().err


def test_what_was_recorded_is_not_overwritten(monkeypatch, capsys, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("")
    command = Command(monkeypatch, Replayed())
    assert command("--record", str(path)) == 2
    assert command("--resume", str(path)) == 2
    assert command("--record", str(path), "--resume", str(path)) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def bench_file(path, processes, level, noise=0.004, facts=FACTS, seed=1, **more):
    rng = random.Random(seed)
    writer = writing.Writer.create(path, {"facts": facts})
    for process in range(processes):
        for case in CASES:
            seconds = level.get(case, 1e-3) * math.exp(rng.gauss(0, noise))
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


def test_one_process_a_side_gives_the_ratio_and_no_verdict(capsys, tmp_path):
    a = bench_file(tmp_path / "a.jsonl", 1, {})
    b = bench_file(tmp_path / "b.jsonl", 1, {CASES[0]: 2e-3}, seed=2)
    assert cli.main(["compare", a, b]) == 0
    seen = capsys.readouterr()
    assert "2.0" in next(x for x in seen.out.splitlines() if x.startswith("matmul"))
    assert (
        "3 inconclusive" in seen.out
        and "one process a side cannot tell machine noise from change" in seen.err
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
        found = recorded.compare({"x": (np.exp(a), np.exp(b))})["x"]
        told = stats.mannwhitneyu(a, b, method="exact")
        assert found.p == pytest.approx(told.pvalue, rel=1e-9)
        assert math.log(found.change.value) == pytest.approx(float(np.median(np.subtract.outer(b, a))))
        assert found.change.low < found.change.value < found.change.high
    normal = recorded._below(60, 60)
    assert normal[1500] == pytest.approx(stats.norm.cdf((1500.5 - 1800) / math.sqrt(36300)), rel=1e-9)
    assert recorded._below(60, 41)[-1] == pytest.approx(1, abs=1e-6)


def test_the_unpaired_rule_raises_few_false_alarms_and_covers():
    rng = np.random.default_rng(4)
    flagged = covered = 0
    for i in range(200):
        a, b = np.exp(rng.normal(0, 0.03, (2, 10)))
        found = recorded.compare({"x": (a, b)}, resamples=200, seed=i)["x"]
        flagged += found.verdict in ("slower", "faster")
        covered += found.change.low <= 1 <= found.change.high
    assert flagged <= 6 and covered >= 180
    found = recorded.compare({"x": ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])})["x"]
    assert found.verdict == "inconclusive" and found.p == 1 and found.change == Estimate(1.0, 0.0, math.inf)


# Environments -----------------------------------------------------------------------------------------------


def resolve(text, tmp_path, python=sys.executable):
    return environments.resolve(text, python, tmp_path, lambda _: None)


def test_interpreters_and_virtual_environments(tmp_path):
    assert resolve(sys.executable, tmp_path).python == os.path.abspath(sys.executable)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    for text, words in (
        (str(tmp_path / "venv"), "no bin/python"),
        (str(tmp_path / "nowhere"), "there is no"),
        (str(ROOT / "README.md"), "can't be run"),
        ("", "names nothing"),
        ("a\0b", "names nothing"),
        ("~nobody-of-this-name/venv", "there is no"),
        ("commit:no-such-ref", "no commit of this checkout"),
        ("commit:--all", "no commit of this checkout"),
    ):
        with pytest.raises(NoEnvironment, match=words):
            resolve(text, tmp_path)
    os.symlink(sys.executable, tmp_path / "venv" / "bin" / "python")
    assert resolve(str(tmp_path / "venv"), tmp_path).python == str(tmp_path / "venv" / "bin" / "python")


def test_a_release_is_made_once_and_pip_complains_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    installed = []

    def pip(python, wanted, say):
        installed.append(wanted)
        if wanted == "jax==0.0.99":
            raise NoEnvironment("pip could not install jax==0.0.99: No matching distribution")

    def said(command):
        if "venv" in command:
            os.makedirs(os.path.join(command[-1], "bin"))
            os.symlink(sys.executable, os.path.join(command[-1], "bin", "python"))
        return "cpython-399 x86_64"

    monkeypatch.setattr(environments, "_pip", pip)
    monkeypatch.setattr(environments, "_said", said)
    first = resolve("0.11.2", tmp_path)
    assert resolve("jax==0.11.2", tmp_path).python == first.python and installed == ["jax==0.11.2"]
    assert first.jax == "0.11.2" and str(tmp_path / "cache") in first.python
    with pytest.raises(NoEnvironment, match=r"0\.0\.99"):
        resolve("0.0.99", tmp_path)
    assert [p.name for p in environments.cache().iterdir()] == ["jax-0.11.2-cpython-399-x86_64"]


def test_another_release_than_asked_for_is_refused(tmp_path):
    made = replace(resolve(sys.executable, tmp_path), jax="0.0.99")
    with pytest.raises(NoEnvironment, match="comes first on its path"):
        environments.facts(made)


def test_an_interpreter_without_jax_is_told(tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(NoEnvironment, match=r"can't time: .* -m pip install jax"):
        environments.facts(resolve(str(bare), tmp_path))


def test_jax_alone_is_enough_to_time():
    """A bare environment has what `pip install jax` brings: jaxlib, ml_dtypes, numpy, opt_einsum, scipy."""
    absent = [
        "packaging",
        "pytest",
        "xdist",
        "_pytest",
        "pandas",
        "rich",
        "tabulate",
        "hypothesis",
        "matplotlib",
    ]
    script = f"import sys; sys.modules.update(dict.fromkeys({absent})); import meshmark.timing.timer"
    subprocess.run([sys.executable, "-c", script + ", meshmark.devices.probe"], cwd=SOURCE, check=True)


def test_a_commit_is_copied_and_knows_its_own_table(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    def git(*arguments):
        options = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(checkout)]
        return subprocess.run(
            ["git", *options, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    (checkout / "a").write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    subprocess.run(["cp", "-r", str(ROOT / "harness"), str(checkout)], check=True)
    git("add", ".")
    git("commit", "-qm", "two")
    monkeypatch.setattr(environments, "CHECKOUT", checkout)
    with pytest.raises(NoEnvironment, match="choose a later commit"):
        resolve("commit:HEAD~1", tmp_path)
    made = resolve("commit:HEAD", tmp_path)
    assert made.commit == git("rev-parse", "HEAD").strip()
    assert (made.path / "meshmark" / "timing" / "timer.py").exists() and made.layout == environments.TODAY
    gone = CASES[1].replace("psum", "no_such_operation")
    assert environments.missing(made, [CASES[0], gone], 8) == {gone}
    assert environments.missing(replace(made, commit=""), [gone], 8) == set()


def test_commits_before_the_rooms_are_started_by_their_old_names(tmp_path):
    """A commit whose package is a flat harness/ times itself through harness.timer, beside its pyproject.toml."""
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "timer.py").touch()
    assert environments.layout_of(tmp_path, "commit:x") == environments.BEFORE_ROOMS
    (tmp_path / "harness" / "meshmark" / "timing").mkdir(parents=True)
    (tmp_path / "harness" / "meshmark" / "timing" / "timer.py").touch()
    assert environments.layout_of(tmp_path, "commit:x") == environments.TODAY


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
    sides = Counter(x["environment"] for x in reading.read(path).comparisons if x["what"] == "process")
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
    kept = reading.read(path)
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
