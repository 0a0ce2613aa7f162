# SPDX-License-Identifier: Apache-2.0
"""Containment, each kind of trouble in a real pytest process: crashes, hangs, interruptions, --resume."""

import errno
import hashlib
import json
import os
import resource
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from meshmark.devices import containment
from meshmark.records import reading, sealing, writing
from tests.interrupts import deaf
from tests.refusals import refusals
from tests.trouble.runs import NO_PROBES, Run, finished, lines, listed, table, unclosed
from tests.waiting import until

ON_ONE_MESH = ("--meshes", "2x4")
SLOW = (*ON_ONE_MESH, "-n", "2")
SLOW_ALONE = (*ON_ONE_MESH, "-n", "1")
"""Of one worker: its start is most of what a run takes."""
SECONDS = {"MESHMARK_PAUSE": "0.2"}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc"),
]


def verdicts(path):
    return {name: judged.verdict for name, judged in reading.read_records(path).cases.items()}


# ------------------------------------------------------------------------------------------ crashes and hangs


@pytest.fixture(scope="module")
def troubles(tmp_path_factory):
    """One run of every trouble: (run, the path of its records)."""
    path = tmp_path_factory.mktemp("troubles") / "records.jsonl"
    with Run(*ON_ONE_MESH, "-n", "2", "--deadline", "4", "--record", path, lists=True) as run:
        run.finish()
        assert run.gone(), "a process is left"
    return run, path


@pytest.fixture(scope="module")
def trouble_lines(troubles):
    bad = ("crash", "hang")
    return {line["operation"]: line for line in lines(troubles[1]) if line.get("verdict") in bad}


DEATHS = {"abort": "SIGABRT", "segmentation_fault": "SIGSEGV", "killed": "SIGKILL", "leaves": "exit code 7"}


@pytest.mark.parametrize(("operation", "how"), DEATHS.items())
def test_a_death_is_a_crash_with_its_signal(trouble_lines, operation, how):
    line = trouble_lines[operation]
    assert (line["verdict"], line["check"], line["signal"]) == ("crash", "execute", how)
    assert line["reason"].startswith(how)


@pytest.mark.parametrize("operation", ["abort", "segmentation_fault"])
def test_a_fatal_signal_keeps_the_stacks(trouble_lines, operation):
    frames = [frame for stack in trouble_lines[operation]["stacks"] for frame in stack]
    assert any(f":{operation}:" in frame for frame in frames)


def test_a_crash_keeps_the_end_of_its_own_standard_error(trouble_lines):
    assert trouble_lines["abort"]["stderr"] == ["last words of the process"]
    assert trouble_lines["killed"]["stderr"] == []


@pytest.mark.parametrize("operation", ["spin", "sleep_with_the_gil", "sleep_without_the_gil", "deadlock"])
def test_what_does_not_return_is_a_hang_with_the_stacks_of_every_thread(trouble_lines, operation):
    line = trouble_lines[operation]
    assert (line["verdict"], line["check"]) == ("hang", "execute")
    assert len(line["stacks"]) > 1
    inner = "api:" if operation == "deadlock" else f"operations:{operation}:"
    assert line["reason"].startswith(f"past its deadline, in {inner}")
    assert line["seconds"] > 3.9, "its deadline is four seconds"


def test_every_other_case_runs_exactly_once(troubles):
    run, path = troubles
    assert set(Counter(finished(path)).values()) == {1}
    found = Counter(verdicts(path).values())
    assert found == {"pass": 15, "crash": 4, "hang": 4}
    assert "23 cases: 15 pass, 4 hang, 4 crash" in table(run.output)


def test_the_run_ends_with_a_full_table_and_exit_code_1(troubles):
    run, _ = troubles
    assert run.code == 1
    assert sum(row.startswith("L0 ") for row in table(run.output)) == 8
    assert "largest worker: " in run.output
    assert "Traceback" not in run.output


def test_records_of_a_crash_hold_no_paths(troubles):
    assert str(Path.home()) not in troubles[1].read_text()
    assert sys.prefix not in troubles[1].read_text()
    assert "operations.py" in Path(f"{troubles[1]}.stderr").read_text(), "the raw text is kept beside them"


def test_a_case_of_many_programs_is_no_hang(tmp_path):
    path = tmp_path / "records.jsonl"
    with Run(
        *ON_ONE_MESH, "-n", "1", "--deadline", "3.5", "--record", path, MESHMARK_TROUBLE="compiles_in_turn"
    ) as run:
        run.finish()
    assert run.code == 0, run.output
    (line,) = [line for line in lines(path) if line.get("mode") == "manual" and "seconds" in line]
    assert line["seconds"] > 6 and set(verdicts(path).values()) == {"pass"}


# ------------------------------------------------------------------------------------------ interruptions


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, without workers: (run, path)."""
    path = tmp_path_factory.mktemp("whole") / "records.jsonl"
    with Run(*ON_ONE_MESH, "-n", "0", "--record", path, **SECONDS) as run:
        run.finish()
    return run, path


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that is interrupted in every way, and each time resumed: (runs by name, path)."""
    path = tmp_path_factory.mktemp("interrupted") / "records.jsonl"
    runs = {}

    def go_on(name, *, number=None, cases=2, **options):
        before = path.read_bytes() if path.exists() else b""
        done = len(finished(path))
        slow = SLOW if name == "Ctrl-C" else SLOW_ALONE
        with Run(*slow, "--resume" if before else "--record", path, **SECONDS, **options) as run:
            if number is not None:
                assert until(lambda: len(finished(path)) >= done + cases), run.finish().output
                if options.get("started") is deaf:
                    run.kill(signal.SIGINT)
                    assert until(lambda: len(finished(path)) > done + cases), run.finish().output
                run.kill(number)
            run.finish()
            run.left = not run.gone()
        run.kept = path.read_bytes().startswith(unclosed(before))
        run.cases = finished(path)
        runs[name] = run

    go_on("Ctrl-C", number=signal.SIGINT)
    go_on("SIGTERM", number=signal.SIGTERM, started=deaf)
    go_on("kill -9", number=signal.SIGKILL)
    with open(path, "ab") as file:  # as if it had been killed while it wrote
        file.write(b'{"schema":1,"kind":"conformance","case":"slow0/pl')
    go_on("disk full", file_limit=path.stat().st_size + 8000)
    go_on("the rest")
    return runs, path


@pytest.mark.parametrize(
    ("name", "code"), {"Ctrl-C": 2, "SIGTERM": 2, "kill -9": -9, "disk full": 2, "the rest": 0}.items()
)
def test_an_interruption_keeps_what_finished_and_leaves_no_process(interrupted, name, code):
    run = interrupted[0][name]
    assert run.code == code, run.output
    assert not run.left, "a process is left"
    assert run.kept, "what was written before is still there"
    assert "INTERNALERROR" not in run.output
    if name != "kill -9":
        assert table(run.output)[-1].startswith(f"{len(run.cases)} cases: "), "the table is printed too"


def test_a_run_says_where_ctrl_c_would_not_end_it(interrupted):
    told = "Ctrl-C (SIGINT) is ignored here"
    assert [name for name, run in interrupted[0].items() if told in run.output] == ["SIGTERM"]
    run = interrupted[0]["SIGTERM"]
    assert f"end this run with `kill {run.process.pid}` (SIGTERM), which keeps what is finished" in run.output


def test_the_records_of_an_interrupted_run_are_whole(interrupted, whole):
    path = interrupted[1]
    assert path.read_bytes().endswith(b"\n")
    assert not reading.read_records(path).problems
    assert [line["kind"] for line in lines(path)].count("run") == 5
    assert set(Counter(finished(path)).values()) == {1}, "each case ran exactly once, over all the parts"
    assert verdicts(path) == verdicts(whole[1])
    cases = [len(run.cases) for run in interrupted[0].values()]
    assert cases == sorted(cases) and 0 < cases[0] < cases[2] < cases[-1]


def test_a_resumed_run_ends_in_the_table_of_an_uninterrupted_one(interrupted, whole):
    assert table(interrupted[0]["the rest"].output) == table(whole[0].output)
    assert whole[0].code == 0 and "a case that crashes or hangs ends the run" in whole[0].output


def test_a_full_disk_says_what_to_do(interrupted):
    output = interrupted[0]["disk full"].output
    message = "records.jsonl: File too large; what is written is kept: make room and go on with --resume"
    assert message in " ".join(output.split())


def test_a_full_disk_in_the_middle_of_a_case_cuts_that_case_off(tmp_path):
    path = tmp_path / "records.jsonl"
    writer = writing.Writer.create(path, {"facts": {}})
    before = path.read_bytes()

    class Full:
        """A file on a disk that has room for half of what comes."""

        def __init__(self, file):
            self.file, self.tell, self.truncate, self.close = file, file.tell, file.truncate, file.close
            self.room = True

        def write(self, data):
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room = False
            return self.file.write(data[: len(data) // 2])

    writer._file = Full(writer._file)
    with pytest.raises(OSError, match="No space left"):
        writer.write([{"kind": "growth", "case": "x"}] * 3)
    assert path.read_bytes() == before
    writer.close()


def test_a_full_disk_at_the_start_leaves_no_empty_file(tmp_path):
    path = tmp_path / "records.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(reading.RecordError, match="File too large"):
            writing.Writer.create(path, {"facts": {}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_worker_that_holds_the_gil_ends_with_its_controller(tmp_path, number):
    path, flag = tmp_path / "records.jsonl", tmp_path / "flag"
    options = (*ON_ONE_MESH, "-n", "1", "--deadline", "100", "--record", path)
    with Run(*options, MESHMARK_TROUBLE="sleep_with_the_gil", MESHMARK_FLAG=str(flag)) as run:
        assert until(flag.exists), run.finish().output
        assert len(run.workers()) == 1
        run.kill(number)
        assert until(lambda: not run.workers(), 8), (
            "it waits neither for the case nor for xdist's ten seconds"
        )
        assert run.gone()
        assert run.finish().code == (2 if number == signal.SIGINT else -number)
    assert set(verdicts(path).values()) == {"pass"} and len(finished(path)) == 2


def test_ctrl_c_in_a_terminal_reaches_all_processes_and_makes_no_crash(tmp_path):
    path = tmp_path / "records.jsonl"
    with Run(*SLOW, "--record", path, **SECONDS) as run:
        assert until(lambda: len(finished(path)) >= 3), run.finish().output
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.finish().code == 2
        assert run.gone()
    assert set(verdicts(path).values()) == {"pass"}


def test_a_worker_killed_from_outside_is_a_crash_of_its_case_alone(tmp_path):
    path, flag = tmp_path / "records.jsonl", tmp_path / "flag"
    options = (*ON_ONE_MESH, "-n", "1", "--operations", "slow1,slow2", "--record", path)
    with Run(*options, MESHMARK_PAUSE="3", MESHMARK_FLAG=str(flag)) as run:
        assert until(flag.exists), run.finish().output
        run.kill(signal.SIGKILL, *run.workers())
        assert run.finish().code == 1
        assert run.gone()
    assert Counter(verdicts(path).values()) == {"pass": 5, "crash": 1}
    (crash,) = [line for line in lines(path) if line.get("verdict") == "crash"]
    assert (crash["signal"], crash["mode"]) == ("SIGKILL", "manual")
    assert set(Counter(finished(path)).values()) == {1}


# ------------------------------------------------------------------------------------------ options


def test_resume_refuses_another_run_in_one_line(whole, tmp_path):
    path = whole[1]
    other, changed = tmp_path / "other.jsonl", tmp_path / "changed.jsonl"
    changed.write_text(path.read_text().replace('"jax":"', '"jax":"9.', 1))
    first = changed.read_text().splitlines(keepends=True)[0]
    first = first.replace(f',"{sealing.FIELD}":"{sealing.seal_of(first)}"', "")
    other.write_bytes(sealing.seal(hashlib.sha256(), [first]))
    before = path.read_bytes()
    options = {
        "seed": ("--seed", "7", "--resume", path),
        "selection": ("--operations", "slow0", "--resume", path),
        "can't read": ("--resume", tmp_path / "missing.jsonl"),
        "versions": ("--resume", other),
        "the file was changed": ("--resume", changed),
        "one file each": ("--resume", path, "--record", tmp_path / "new.jsonl"),
    }
    given = [(*ON_ONE_MESH, *NO_PROBES, "-n", "1", *arguments) for arguments in options.values()]
    seen = refusals("tests/trouble", given, MESHMARK_FACTS=listed(), **SECONDS)
    for name, (code, told) in zip(options, seen, strict=True):
        assert code == 4, told
        (error,) = told
        assert error.startswith("ERROR: ") and name in error
    assert path.read_bytes() == before


def test_resume_of_a_finished_run_gives_its_table_and_its_exit_code(troubles):
    run, path = troubles
    before = path.read_bytes()
    with Run(*ON_ONE_MESH, "-n", "1", "--deadline", "4", "--resume", path) as again:
        again.finish()
    assert again.code == 1, again.output
    assert table(again.output) == table(run.output)
    assert path.read_bytes().startswith(unclosed(before))
    more = path.read_bytes()[len(unclosed(before)) :].splitlines()
    assert [json.loads(line)["kind"] for line in more] == ["run", "chosen", "end"]


def test_workers_are_the_default_and_x_stops_after_the_first_crash(tmp_path):
    path = tmp_path / "records.jsonl"
    with Run(*ON_ONE_MESH, "-x", "--operations", "leaves,abort", "--record", path) as run:
        run.finish()
        assert run.gone()
    assert run.code == 1, run.output
    assert "workers [6 items]" in run.output or "worker [6 items]" in run.output
    assert "stopping after 1 failures" in run.output
    assert list(verdicts(path).values()).count("crash") == 1


def test_workers_that_never_start_end_the_run():
    with Run(*ON_ONE_MESH, "-n", "1", MESHMARK_TROUBLE="start") as run:
        run.finish()
        assert run.gone()
    assert run.code == 3
    (line,) = [line for line in run.output.splitlines() if "workers die before they run a case" in line]
    assert "this worker does not start" in line


# ------------------------------------------------------------------------------------------ in this process


@pytest.mark.parametrize(
    ("first", "deadline"), [(0.0, 20.0), (1.0, 20.0), (0.2, 20.0), (2.0, 40.0), (6.0, 50.0)]
)
def test_a_slow_first_compile_stretches_the_deadline(first, deadline):
    assert containment.stretched(20.0, first) == deadline


def test_the_cause_of_a_process_that_is_no_child_is_unknown(tmp_path):
    (tmp_path / "gw0.pid").write_text("1")
    assert containment.cause(tmp_path, "gw0") == "the process died"
    assert containment.cause(tmp_path, "gw1") == "the process died"


def test_a_dump_of_any_length_is_a_hang(tmp_path):
    frame = '  File "/somewhere/deep.py", line 3 in f\n'
    thread = "Thread 0x00007f (most recent call first):\n" + frame * 100
    words = "a\x1b[31mword\nTimeout (odd)\n"
    (tmp_path / "gw0.stderr").write_text(f"{words}Timeout (0:00:04)!\n{thread * 40}")
    line, _ = containment.post_mortem(tmp_path, "gw0")
    assert (line.verdict, line.reason) == ("hang", "past its deadline, in deep:f:3")
    assert len(line.data["stacks"]) == 40
    assert line.data["stderr"] == ["a[31mword", "Timeout (odd)"]


def test_the_reason_of_a_crash_is_no_frame_of_a_native_stack(tmp_path):
    words = "F1121 rendezvous.cc] Termination timeout\n*** Check failure stack trace: ***\n  @  0x7f  f()\n"
    (tmp_path / "gw0.stderr").write_text(f"{words}Fatal Python error: Aborted\n\n")
    line, raw = containment.post_mortem(tmp_path, "gw0")
    assert line.reason == "the process died: F1121 rendezvous.cc] Termination timeout"
    assert "f()" in raw


def test_the_reason_of_a_crash_is_the_failed_check_and_not_the_address_of_its_stack():
    raw = (
        "F1124 09:21:58.658338   26296 statusor.cc:89] Attempting to fetch value instead of handling error\n"
        "https://symbolize.example/r/?trace=7fbb1f39ef93,7fbb1f39ef57\n"
        "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n"
        '  File "jax/_src/compiler.py", line 381 in backend_compile_and_load\n'
    )
    line = containment.line_of_death("SIGABRT", raw)
    assert line.reason.startswith("SIGABRT: F1124 09:21:58.658338   26296 statusor.cc:89] Attempting")
    assert any("symbolize" in told for told in line.data["stderr"]), "the rest is kept"


def test_the_reason_of_a_crash_that_wrote_nothing_is_where_it_was():
    dump = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "jax/_src/compiler.py", line 381 in backend_compile_and_load\n'
    )
    reason = containment.line_of_death("SIGSEGV", dump).reason
    assert reason == "SIGSEGV, in compiler:backend_compile_and_load:381"
    assert containment.line_of_death("SIGSEGV", "").reason == "SIGSEGV"


def test_end_workers_leaves_processes_alone_that_are_no_children(tmp_path):
    (tmp_path / "gw0.pid").write_text(str(os.getppid()))
    (tmp_path / "gw1.pid").write_text("no number")
    containment.end_workers(tmp_path)
    os.kill(os.getppid(), 0)


def test_lines_are_strict_json(whole):
    assert all(json.loads(json.dumps(line, allow_nan=False)) == line for line in lines(whole[1]))
