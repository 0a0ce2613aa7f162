# SPDX-License-Identifier: Apache-2.0
"""The weather: its programs, the progress of an environment's child, and the differences between releases."""

import json
import stat
import sys

import pytest

from meshmark.commands import main
from meshmark.operations import OPERATIONS
from meshmark.records import reading
from meshmark.timing.environments import Environment
from meshmark.weather import compiling, documents, history, programs
from meshmark.weather.compiling import WeatherError
from tests.checkout import ROOT
from tests.submissions import run_line

CASE = "psum/axes=x+y/manual/2x4/float32/1MiB"
OTHER = "ppermute/axes=x+y,perm=ring/auto/2x4/float32/1MiB"


# Programs ----------------------------------------------------------------------------------------------------


def test_the_programs_follow_from_the_table():
    mesh = programs.mesh_of("cpu")
    found = list(programs.chosen(mesh))
    assert {case.operation.family for case in found} == set(programs.FAMILIES) & {
        o.family for o in OPERATIONS.values()
    }
    named = {case.operation.name for case in found}
    assert {"psum", "mlp", "attention", "convolution", "fft", "inference"} <= named
    assert {case.mode for case in found if case.operation.name == "mlp"} == {"auto", "explicit", "manual"}
    assert all(case.mesh.label == "2x4" for case in found)
    convolution = next(case for case in found if case.operation.name == "convolution")
    assert convolution.plan.traffic or convolution.plan.connected  # one that must communicate
    assert next(case for case in found if case.operation.name == "matmul").cell.request.size == "n512"


def test_an_operation_that_joins_a_family_joins_the_weather(monkeypatch):
    class Newcomer(type(OPERATIONS["mlp"])):
        """Another layer."""

    newcomer = Newcomer()
    newcomer.__class__.name = "newcomer"
    monkeypatch.setitem(OPERATIONS, "newcomer", newcomer)
    assert "newcomer" in {case.operation.name for case in programs.chosen(programs.mesh_of("v5p:2x2x2"))}


# The child ---------------------------------------------------------------------------------------------------


def test_a_child_compiles_and_counts():
    wanted = "ppermute/axes=x+y,perm=ring/manual/2x4/float32/1MiB"
    every = [case.id for case in programs.chosen(programs.mesh_of("cpu"))]
    job = {"place": "cpu", "done": [case for case in every if case != wanted], "deadline": 60}
    here = Environment("here", sys.executable)
    messages = list(compiling._child(here, job))
    assert messages[0]["facts"]["num_devices"] == 8
    (line,) = [m["line"] for m in messages if "line" in m]
    assert (line["case"], line["verdict"], line["place"]) == (wanted, "pass", "cpu")
    assert line["collectives"] == {"collective-permute": 1}
    assert line["wire_bytes"] == 2**20
    assert line["scheduled"]
    assert reading.parsed(json.dumps(line | {"run": "0123456789ab"}) + "\n")


def fake(tmp_path, code):
    """An environment whose interpreter is this script; it finds what is done in `job`."""
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nimport json, os, sys\njob = json.load(sys.stdin)\n{code}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return Environment("fake", str(script))


SAY = (
    "def say(m): print('meshmark-weather ' + json.dumps(m), flush=True)\nsay({'facts': {'backend': 'cpu'}})\n"
)


def test_a_program_that_ends_the_compiler_costs_itself_alone(tmp_path):
    code = SAY + (
        "for name in ('a', 'b', 'c'):\n"
        "    if name in job['done']: continue\n"
        "    say({'at': {'case': name}, 'id': name})\n"
        "    if name == 'b': os.abort()\n"
        "    say({'line': {'case': name, 'verdict': 'pass', 'reason': ''}})"
    )
    said = []
    lines = compiling.compile_all_programs(fake(tmp_path, code), ["cpu"], "2026-11-22T09:00:00Z", said.append)
    assert [(line.get("case"), line.get("verdict")) for line in lines] == [
        (None, None),
        ("a", "pass"),
        ("b", "crash"),
        ("c", "pass"),
    ]
    assert "signal 6" in lines[2]["reason"]
    assert len({line["run"] for line in lines}) == 1
    assert said[-1].endswith("3 programs")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit(3)", "dies \\(exit code 3\\)"),
        (SAY.replace("{'facts': {'backend': 'cpu'}}", "{'problem': 'no libtpu'}"), "fake: no libtpu"),
        (
            SAY + "say({'at': {'case': str(len(job['done']))}, 'id': str(len(job['done']))})\nos.abort()",
            "died",
        ),
    ],
)
def test_an_environment_that_can_not_compile_is_told(tmp_path, code, message):
    with pytest.raises(WeatherError, match=message):
        compiling.compile_all_programs(
            fake(tmp_path, code), ["cpu"], "2026-11-22T09:00:00Z", lambda text: None
        )


# The history -------------------------------------------------------------------------------------------------


def lines_of(jax, compiler="", place="v5e:2x4", cases=(CASE,), **counters):
    """The lines of an environment with one run."""
    run = run_line()
    run["facts"] |= {
        "topology": place,
        "compiler": {"libtpu": compiler} if compiler else {},
        "versions": run["facts"]["versions"] | {"jax": jax},
    }
    head = {"schema": 1, "kind": "schedule", "run": run["run"], "place": place, "level": "L1", "seed": 0}
    found = [run]
    for case in cases:
        operation, variant, mode, mesh, dtype, _ = case.split("/")
        line = head | {"case": f"{case}@{place}", "operation": operation, "variant": variant, "mode": mode}
        line |= {"mesh": mesh, "dtype": dtype, "size_bytes": 8, "verdict": "pass", "reason": ""}
        pair = {"kind": "all-gather", "trips": 1, "synchronous": False, "bytes": 64}
        line |= {"wire_bytes": 64.0, "memory_bytes": 100, "pairs": [pair], "loops": [], "exposed_s": 1e-6}
        found.append(line | counters)
    return found


def history_of(tmp_path, *environments):
    files = [compiling.write_weather_lines(lines, tmp_path) for lines in environments]
    return history.releases([reading.read_records(file) for file in files])


def test_what_changed_is_found_exactly(tmp_path):
    old, new = history_of(
        tmp_path,
        lines_of("0.12.0", "0.0.50", cases=(CASE, OTHER)),
        lines_of("0.9.2", "0.0.37", cases=(CASE,), memory_bytes=101, exposed_s=0.0),
    )
    assert (old.jax, new.jax) == ("0.9.2", "0.12.0")  # by number, not by letter
    found = {change.counter: (change.was, change.now) for change in history.changes(old, new)}
    assert found == {"memory": (101, 100), "exposed": (0, 1e-6)}
    assert all(change.case == CASE for change in history.changes(old, new))


@pytest.mark.parametrize(
    ("planted", "counter"),
    [
        ({"wire_bytes": 65.0}, "sent"),
        ({"pairs": [{"kind": "all-gather", "trips": 1, "synchronous": True, "bytes": 64}]}, "hidden"),
        ({"pairs": []}, "asynchronous"),
        ({"loops": [3]}, "loops"),
        ({"memory_bytes": 99}, "memory"),
    ],
)
def test_a_planted_difference_is_a_change(tmp_path, planted, counter):
    old, new = history_of(tmp_path, lines_of("0.12.0"), lines_of("0.12.1", **planted))
    assert counter in {change.counter for change in history.changes(old, new)}


def test_the_same_counters_are_no_change(tmp_path):
    old, new = history_of(tmp_path, lines_of("0.12.0"), lines_of("0.12.1"))
    assert not list(history.changes(old, new))
    assert "No counter of any program changed." in "\n".join(documents.page_lines([old, new]))


def test_a_program_that_no_longer_compiles_is_told_and_not_compared(tmp_path):
    broken = lines_of("0.12.1", cases=(CASE, OTHER))
    broken[1] |= {"verdict": "crash", "reason": "the compiler ended the process (signal 6)"}
    old, new = history_of(tmp_path, lines_of("0.12.0", cases=(CASE, OTHER)), broken)
    assert [case for _, case, *_ in history.verdicts(old, new)] == [CASE]
    assert history.common([old, new], "v5e:2x4") == [OTHER]
    text = "\n".join(documents.page_lines([old, new]))
    assert "no longer compiles: crash" in text
    assert len(new.broken) == 1


def test_the_page_and_its_plot_are_the_same_each_time(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    releases = [lines_of("0.11.0", "0.0.44"), lines_of("0.12.0", "0.0.50", wire_bytes=128.0)]
    for lines in releases:
        compiling.write_weather_lines(lines, tmp_path / "records")
    made = []
    for name in ("one", "two"):
        words = ["weather", "--from", str(tmp_path / "records"), "--output", str(tmp_path / name)]
        assert main.main(words) == 0
        made.append([(tmp_path / name / file).read_bytes() for file in (documents.PAGE, documents.PLOT)])
    assert made[0] == made[1]
    assert b"64 to 128" in made[0][0]
    assert capsys.readouterr().out.count("wrote") == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name environments"),
        (["--from", "nowhere.jsonl"], "can't read"),
        ([sys.executable, "--places", "v9:2"], "v9:2"),
        (["no-such-environment"], "no-such-environment"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert main.main(["weather", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_the_published_page_is_what_the_published_records_give():
    files = sorted((ROOT / "results/weather").glob("*.jsonl.gz"))
    releases = history.releases([reading.read_records(file) for file in files])
    assert len(releases) >= 6
    assert documents.page(releases) == (ROOT / "docs" / documents.PAGE).read_text(encoding="utf-8")
