# SPDX-License-Identifier: Apache-2.0
"""The weather: its programs, the progress of an environment's child, and the differences between releases."""

import gzip
import json
import stat
import subprocess
import sys
import textwrap

import pytest

from meshmark.commands import main
from meshmark.core.errors import BadInput
from meshmark.devices.environment import of_child
from meshmark.operations import OPERATIONS
from meshmark.records import reading
from meshmark.timing.environments import Environment
from meshmark.weather import compiling, documents, history, programs
from tests.checkout import ROOT
from tests.submissions import run_line
from tests.waiting import until

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
    job = {
        "place": "cpu",
        "done": [case for case in every if case != wanted],
        "deadline": 60,
        "compile": True,
    }
    here = Environment("here", sys.executable)
    messages = list(compiling._child(here, job))
    assert messages[0]["facts"]["num_devices"] == 8
    assert messages[0]["programs"] == len(every)
    (line,) = [m["line"] for m in messages if "line" in m]
    assert (line["case"], line["verdict"], line["place"]) == (wanted, "pass", "cpu")
    assert line["collectives"] == {"collective-permute": 1}
    assert line["wire_bytes"] == 2**20
    assert line["scheduled"]
    assert reading.parsed(json.dumps(line | {"run": "0123456789ab"}) + "\n")


HEAD = ("schema", "kind", "place", "level", "seed", "case", "operation", "variant", "mode", "mesh", "dtype")
ALL = (CASE, OTHER, "all_gather/axes=x+y,dim=0,tiled/manual/2x4/float32/1MiB")


def fake(tmp_path, at="", start=""):
    """The interpreter of a made-up environment whose child compiles ALL. `at`: code that runs before a program is
    compiled, and finds its number in `n` and what is done in `job`. `start`: code that runs before everything."""
    facts, *lines = lines_of("0.12.0", place="cpu", cases=ALL)
    script = tmp_path / "python"
    script.write_text(f"""#!{sys.executable}
import json, os, sys, time
job = json.load(sys.stdin)
def say(m): print('{programs.MARK}' + json.dumps(m), flush=True)
facts = json.loads({json.dumps(facts["facts"])!r})
lines = json.loads({json.dumps(lines)!r})
{start}
say({{'facts': facts, 'programs': len(lines)}})
for n, line in enumerate(lines if job['compile'] else ()):
    line['case'] = line['case'].partition('@')[0]
    if line['case'] in job['done']: continue
    head = {{name: line.pop(name) for name in {list(HEAD)!r}}}
    say({{'at': head, 'id': head['case']}})
{textwrap.indent(at, "    ")}
    say({{'line': head | line}})
""")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def recorded(python, directory, said=None):
    """What `record_programs` writes in a made-up environment, read again."""
    where = Environment("fake", python)
    path = compiling.record_programs(where, ["cpu"], directory, [].append if said is None else said.append)
    return reading.read_records(path)


def test_a_program_that_ends_the_compiler_costs_itself_alone(tmp_path):
    found = recorded(fake(tmp_path, at="if n == 1: os.abort()"), tmp_path / "records")
    assert not found.problems
    assert [(line["case"], line["verdict"]) for line in found.schedules] == [
        (ALL[0], "pass"),
        (ALL[1], "crash"),
        (ALL[2], "pass"),
    ]
    assert "signal 6" in found.schedules[1]["reason"]
    assert len(found.runs) == 1


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("sys.exit(3)", "dies \\(exit code 3\\)"),
        ("say({'problem': 'no libtpu'})", "fake: no libtpu"),
        (
            "if job['compile']: say({'at': lines[0], 'id': str(len(job['done']))}); os.abort()",
            "died 11 times",
        ),
    ],
)
def test_an_environment_that_can_not_compile_is_told(tmp_path, start, message):
    with pytest.raises(BadInput, match=message):
        recorded(fake(tmp_path, start=start), tmp_path / "records")


# Interruption ------------------------------------------------------------------------------------------------

KEPT = "0.12.0.jsonl"


def killed(tmp_path):
    """An environment whose compiling was killed at its second program: (its interpreter, the directory of records)."""
    waits = tmp_path / "waits"
    waits.touch()
    python = fake(tmp_path, at=f"while n == 1 and os.path.exists({str(waits)!r}): time.sleep(0.05)")
    records = tmp_path / "records"
    words = [sys.executable, "-m", "meshmark", "weather", python, "--places", "cpu", "--record", str(records)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, env=of_child()) as command:
        assert until(lambda: (records / KEPT).exists() and "schedule" in (records / KEPT).read_text())
        command.kill()
    waits.unlink()
    return python, records


def test_a_killed_run_leaves_what_it_compiled_and_goes_on(tmp_path):
    python, records = killed(tmp_path)
    assert [line["case"] for line in reading.read_records(records / KEPT).schedules] == [ALL[0]]
    said = []
    found = recorded(python, records, said)
    assert not found.problems
    assert [line["case"] for line in found.schedules] == list(ALL)
    assert "has 1 programs" in said[0]
    assert not (records / KEPT).exists()  # it is packed


def test_an_interrupted_run_tells_where_its_programs_are(tmp_path, monkeypatch):
    def interrupt(steps, what):
        raise KeyboardInterrupt

    said = []
    with monkeypatch.context() as patch:
        patch.setattr(compiling.Steps, "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            recorded(fake(tmp_path), tmp_path / "records", said)
    assert said == [f"what is compiled is in {tmp_path / 'records' / KEPT}: the same command goes on with it"]
    assert len(reading.read_records(tmp_path / "records" / KEPT).schedules) == 1


def test_a_line_that_was_cut_off_is_compiled_again(tmp_path):
    python, records = killed(tmp_path)
    text = (records / KEPT).read_text()
    (records / KEPT).write_text(text[:-20])
    found = recorded(python, records)
    assert not found.problems
    assert [line["case"] for line in found.schedules] == list(ALL)


def test_what_another_environment_compiled_is_not_continued(tmp_path):
    python, records = killed(tmp_path)
    with pytest.raises(BadInput, match=r"differs from this run in selection\.topology"):
        compiling.record_programs(Environment("fake", python), ["cpu", "v5e:2x4"], records, print)
    script = (tmp_path / "python").read_text()
    (tmp_path / "python").write_text(script.replace('"cores": 2', '"cores": 3'))
    with pytest.raises(BadInput, match=r"differs from this run in host\.cores"):
        recorded(python, records)


def test_a_complete_environment_is_not_compiled_again(tmp_path):
    python, said = fake(tmp_path), []
    recorded(python, tmp_path / "records")
    script = (tmp_path / "python").read_text()
    (tmp_path / "python").write_text(script.replace("for n,", "if job['compile']: sys.exit(9)\nfor n,"))
    assert len(recorded(python, tmp_path / "records", said).schedules) == len(ALL)
    assert said[-1].endswith("is complete")
    with pytest.raises(BadInput, match=r"selection\.topology"):
        compiling.record_programs(
            Environment("fake", python), ["cpu", "cpu"], tmp_path / "records", said.append
        )


def test_progress_is_told_on_standard_error(tmp_path, capsys):
    recorded(fake(tmp_path), tmp_path / "records")
    assert "fake: cpu: 3 of 3" in capsys.readouterr().err


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


def write_lines(lines, directory):
    """Write these lines into the packed file of their environment, and give its path."""
    directory.mkdir(exist_ok=True)
    facts = [line["facts"] for line in lines if line["kind"] == "run"]
    path = directory / (compiling.name_of(facts) + compiling.PACKED)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return path


def history_of(tmp_path, *environments):
    files = [write_lines(lines, tmp_path) for lines in environments]
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


def test_a_counter_is_summed_over_the_programs_that_have_it_in_every_release(tmp_path):
    third = "all_gather/axes=x+y,dim=0,tiled/manual/2x4/float32/1MiB"
    old, new = (lines_of(jax, cases=(CASE, OTHER, third)) for jax in ("0.12.0", "0.12.1"))
    old[1]["exposed_s"], new[2]["exposed_s"], new[3]["exposed_s"] = 5e-6, None, 3e-6
    releases = history_of(tmp_path, old, new)
    known = history.known(releases, "v5e:2x4", "exposed")
    assert known == [CASE, third]
    sums = [history.total(release, "v5e:2x4", known, "exposed") for release in releases]
    assert sums == pytest.approx([6e-6, 4e-6])
    text = "\n".join(documents.page_lines(releases))
    assert "| projected exposed time, s (2 of 3 programs) |" in text
    assert "1 program has no projected exposed time in some release" in text


def test_a_counter_that_no_program_has_has_no_sum(tmp_path):
    (release,) = history_of(tmp_path, lines_of("0.12.0", exposed_s=None))
    known = history.known([release], "v5e:2x4", "exposed")
    assert history.total(release, "v5e:2x4", known, "exposed") is None
    assert "has no projected" not in "\n".join(documents.page_lines([release]))


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
        write_lines(lines, tmp_path / "records")
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
