# SPDX-License-Identifier: Apache-2.0
"""`meshmark launch` with small commands: output, exit codes, signals, and no processes left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshmark.commands.main import main
from meshmark.ranks import launch
from meshmark.ranks.group import ENVIRONMENT, coordinates
from meshmark.ranks.launch import Launcher, Shown
from tests.checkout import ROOT
from tests.interrupts import deaf, interruptible
from tests.waiting import PATIENCE, gone, until

pytestmark = pytest.mark.e2e

LAUNCH = [sys.executable, "-m", "harness", "launch"]


def launched(code, size=2, **more):
    """(exit code, output) of `python -c CODE` for each rank."""
    to = io.BytesIO()
    launcher = Launcher([sys.executable, "-c", code], size, 1, **more)
    return launcher.run(to), to.getvalue().decode()


RANK = (
    "import os, signal, sys, time; from pathlib import Path; rank = int(os.environ['MESHMARK_PROCESS_ID']);"
    "here = Path(os.environ['MESHMARK_LAUNCH']);"
    "wait = lambda name: [time.sleep(0.01) for _ in iter((here / name).exists, True)];"
    "say = lambda stream, line: os.write(stream, (line + chr(10)).encode()); "
)
"""What each rank begins with. `say` writes a line at once: print may take several writes, and on a busy machine a pause
between them shows the beginning of a line."""
LONG = "time.sleep(600)"


# Output -----------------------------------------------------------------------------------------------------


def test_every_line_says_its_rank():
    code, text = launched(RANK + "say(1, f'out {rank}'); say(2, f'err {rank}')", 3)
    assert code == 0
    assert sorted(text.splitlines()) == sorted(
        f"[{n}] {what} {n}" for n in range(3) for what in ("out", "err")
    )


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ([(0, "a\n"), (1, "b\n")], "[0] a\n[1] b\n"),
        ([(0, "..."), (0, ".\n")], "[0] ....\n"),
        ([(0, ".."), (1, "b\n"), (0, ".\n")], "[0] ..\n[1] b\n[0] .\n"),
        ([(0, "a\nb\nc")], "[0] a\n[0] b\n[0] c"),
        ([(0, "50%\r"), (0, "100%\n")], "[0] 50%\r[0] 100%\n"),
        ([(0, "")], ""),
    ],
)
def test_pieces_of_lines_stay_with_their_rank(written, shown):
    to = io.BytesIO()
    shower = Shown(to, 2)
    for rank, text in written:
        shower.write(rank, text.encode())
    assert to.getvalue().decode() == shown


def test_the_launcher_s_own_lines_begin_anew():
    to = io.BytesIO()
    shower = Shown(to, 11)
    shower.write(3, b"half")
    shower.line("rank 3 ended")
    assert to.getvalue() == b"[ 3] half\nmeshmark: rank 3 ended\n"


def test_lines_that_come_in_pieces_stay_whole(monkeypatch):
    monkeypatch.setattr(launch, "PAUSE", 60.0)  # on a busy machine a rank may pause anywhere
    pieces = (
        RANK
        + "[(print(rank, end='', flush=True), time.sleep(0.001)) for _ in range(50)]; print('', flush=True)"
    )
    _, text = launched(pieces, 3)
    assert sorted(text.splitlines()) == [f"[{rank}] {str(rank) * 50}" for rank in range(3)]


def test_a_pause_shows_the_beginning_of_a_line():
    pause = RANK + "print('.', end='', flush=True); wait('seen'); print('.', flush=True)"
    to, launcher = io.BytesIO(), Launcher([sys.executable, "-c", pause], 1, 1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher.run, to)
        seen = until(lambda: to.getvalue() == b"[0] .")
        (launcher.directory / "seen").touch()
        assert running.result(60) == 0
    assert seen and to.getvalue() == b"[0] ..\n"


def test_an_unfinished_last_line_is_shown():
    _, text = launched(RANK + "sys.stdout.write('no end')", 1)
    assert text == "[0] no end"


def test_bytes_that_are_no_text_pass():
    to = io.BytesIO()
    Launcher([sys.executable, "-c", r"import os; os.write(1, b'\xff\xfe\n')"], 1, 1).run(to)
    assert to.getvalue() == b"[0] \xff\xfe\n"


def test_much_output_of_all_ranks_comes_whole():
    _, text = launched(RANK + "[say(1, f'{rank} {n} ' + 'x' * 100) for n in range(2000)]", 3)
    assert sorted(text.splitlines()) == sorted(
        f"[{rank}] {rank} {n} {'x' * 100}" for rank in range(3) for n in range(2000)
    )


# What ranks are given ---------------------------------------------------------------------------------------


def test_ranks_get_coordinates_and_devices_of_their_own():
    code = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
    _, text = launched(code, 2)
    environments = [json.loads(line[4:]) for line in sorted(text.splitlines())]
    found = [coordinates(environment) for environment in environments]
    assert [(one.num_processes, one.process_id) for one in found] == [(2, 0), (2, 1)]
    assert found[0].coordinator == found[1].coordinator != found[0].control == found[1].control
    assert [environment["JAX_NUM_CPU_DEVICES"] for environment in environments] == ["1", "1"]
    assert set(ENVIRONMENT.values()) <= environments[0].keys()


# Ends -------------------------------------------------------------------------------------------------------


FIRST = """
if rank:
    (here / f"first{os.getpid()}").touch()
    sys.exit(4)
while not (found := list(here.glob("first*"))):
    time.sleep(0.01)
try:
    while True:
        os.kill(int(found[0].name.removeprefix("first")), 0)
        time.sleep(0.01)
except ProcessLookupError:  # the launcher knows of its end
    sys.exit(3)
"""


def test_the_code_is_that_of_the_rank_that_ended_first_and_not_well():
    assert launched(RANK + FIRST, 2, grace=60)[0] == 4
    assert launched(RANK + "sys.exit(5 if rank == 1 else 0)", 2)[0] == 5
    assert launched(RANK + "sys.exit(0)", 2)[0] == 0


def test_a_signal_s_code_is_128_and_its_number():
    code, _ = launched(RANK + "rank or os.kill(os.getpid(), signal.SIGKILL)", 2)
    assert code == 128 + signal.SIGKILL


def test_when_one_rank_ends_badly_the_rest_are_ended_after_their_grace():
    start = time.monotonic()
    code, text = launched(RANK + f"rank and sys.exit(7); {LONG}", 3, grace=0.5)
    assert code == 7
    assert "exit code 7; ending rank" in text
    assert time.monotonic() - start < 300


def test_ranks_that_end_by_themselves_within_the_grace_are_left_to_it():
    code, text = launched(RANK + "rank and sys.exit(7); time.sleep(1); print('written')", 2, grace=60)
    assert code == 7
    assert "[0] written" in text and "ending rank" not in text


def test_who_ignores_term_is_killed(monkeypatch):
    monkeypatch.setattr(launch, "TERMINATE", 1.0)
    start = time.monotonic()
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('stubborn', flush=True); "
    stubborn += f"(here / 'ignores').touch(); {LONG}"
    code, text = launched(RANK + f"rank == 0 and (wait('ignores'), sys.exit(7)); {stubborn}", 2, grace=0.2)
    assert code == 7 and "[1] stubborn" in text
    assert 1.2 < time.monotonic() - start < 300, "TERM, 1 s, KILL"


def test_one_rank_that_ends_well_ends_nobody():
    code, text = launched(RANK + "rank and (time.sleep(1.5), print('went on'))", 2, grace=0.2)
    assert code == 0 and "[1] went on" in text


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_what_a_rank_started_ends_with_it():
    child = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    _, text = launched(RANK + child + "; rank and sys.exit(7)", 2, grace=60)
    pids = [int(line.split()[1]) for line in text.splitlines() if line.startswith("[")]
    assert len(pids) == 2
    assert until(lambda: all(map(gone, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGKILL", -9)])
def test_a_signal_to_the_launcher_reaches_every_rank(number, code):
    say = RANK + f"signal.signal(signal.SIGINT, signal.SIG_DFL); print(os.getpid(), flush=True); {LONG}"
    command = [*LAUNCH, "-n", "2", "--", sys.executable, "-c", say]
    with subprocess.Popen(interruptible(command), cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        pids = [int(child.stdout.readline().split()[1]) for _ in range(2)]
        child.send_signal(getattr(signal, number))
        assert child.wait(PATIENCE) == code
    assert until(lambda: all(map(gone, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_a_launcher_that_ignores_sigint_says_so_and_ends_by_sigterm():
    hears = "signal.signal(signal.SIGINT, lambda *_: os._exit(9))"
    say = RANK + f"{hears}; print(os.getpid(), flush=True); {LONG}"
    command = deaf([*LAUNCH, "-n", "2", "--", sys.executable, "-c", say])
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        pids = [int(child.stdout.readline().split()[1]) for _ in range(2)]
        child.send_signal(signal.SIGINT)
        assert not until(lambda: child.poll() is not None or any(map(gone, pids)), 0.5)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 143
        assert f"end this run with `kill {child.pid}` (SIGTERM)" in child.stderr.read()
    assert until(lambda: all(map(gone, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_a_launcher_that_is_told_to_end_kills_who_does_not(monkeypatch):
    monkeypatch.setattr(launch, "TERMINATE", 1.0)
    say = RANK + f"signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); {LONG}"
    to = io.BytesIO()
    launcher = Launcher([sys.executable, "-c", say], 2, 1)
    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(launcher.run, to)
        assert until(lambda: to.getvalue().count(b"\n") == 2)
        pids = [int(line.split()[1]) for line in to.getvalue().splitlines()]
        launcher.end(signal.SIGTERM)
        assert code.result(60) == 128 + signal.SIGKILL
    assert all(map(gone, pids))


# The roll call ----------------------------------------------------------------------------------------------


def joined(code, size=2, name="meshmark test"):
    """(exit code, the launcher's own lines) of ranks that run this code; the launcher takes them for the suite."""
    to = io.BytesIO()
    before = (
        "from meshmark.ranks import rollcall; import os, sys; rank = int(os.environ['MESHMARK_PROCESS_ID']); "
    )
    launcher = Launcher([sys.executable, "-c", before + code, name], size, 1)
    exit_code = launcher.run(to)
    return exit_code, [line for line in to.getvalue().decode().splitlines() if line.startswith("meshmark: ")]


WELL = "rollcall.join(rank, 2); rollcall.report_exit_code(rank, 0)"
ROLL = {
    "all join and say that all is well": (WELL, 0, ""),
    "nobody joins": ("os._exit(0)", 1, "no rank joined the others: the command ended before the suite began"),
    "one does not join": (f"rank or os._exit(0); {WELL}", 1, "rank 0 of 2 never joined the others"),
    "one says no end": (
        "rollcall.join(rank, 2); rank or os._exit(0); rollcall.report_exit_code(rank, 0)",
        1,
        "rank 0 joined, and ended with exit code 0 before its run did",
    ),
    "a shell hides the code": (
        "rollcall.join(rank, 2); rollcall.report_exit_code(rank, rank)",
        1,
        "the run of rank 1 ended with exit code 1, and its process with 0",
    ),
    "each is a group of its own": (
        "rollcall.join(0, 1); rollcall.report_exit_code(0, 0)",
        1,
        "2 processes joined as rank 0",
    ),
}


@pytest.mark.parametrize(("code", "wanted", "told"), ROLL.values(), ids=ROLL)
def test_an_exit_code_of_0_is_believed_where_every_rank_joined_and_said_its_own(code, wanted, told):
    found, lines = joined(code)
    assert found == wanted
    assert told in "\n".join(lines) if told else lines == []


@pytest.mark.parametrize("name", ["hello", "meshmark devices", "meshmark test --help", "pytest my_tests"])
def test_what_is_no_run_of_the_suite_need_not_join(name):
    assert joined("", name=name) == (0, [])


def test_each_group_has_a_roll_call_of_its_own():
    told = "rollcall.join(rank, 1); rollcall.report_exit_code(rank, 0); here = os.environ['MESHMARK_LAUNCH'];"
    told += " first = not os.path.exists(here + '/been'); open(here + '/been', 'w').close();"
    told += " first and (open(here + '/again', 'w').close(), sys.exit(1))"
    code, lines = joined(told, 1)
    assert code == 0 and len(lines) == 1, "one line says that the group was started again"


@pytest.mark.skipif(sys.platform != "linux", reason="limits the files of a process")
def test_more_ranks_than_files_can_be_opened_are_told_in_one_line():
    limited = ["bash", "-c", 'ulimit -n 40; exec "$@"', "bash", *LAUNCH, "-n", "60", "--", "sleep", "60"]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "can't start 'sleep': Too many open files" in done.stderr and "Traceback" not in done.stderr


def test_a_signal_does_not_make_an_exit_code_of_0_one_that_is_believed():
    to = io.BytesIO()
    code = (
        RANK + "(here / f'up{rank}').touch(); signal.signal(signal.SIGTERM, lambda *_: os._exit(0)); " + LONG
    )
    launcher = Launcher([sys.executable, "-c", code, "meshmark test"], 2, 1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher.run, to)
        assert until(lambda: len(list(launcher.directory.glob("up*"))) == 2)
        time.sleep(0.5)
        launcher.end(signal.SIGTERM)
        assert running.result(60) == 1
    assert b"no rank joined the others" in to.getvalue()


def test_a_launch_inside_of_a_launch_is_refused(monkeypatch, capfd):
    monkeypatch.setenv("MESHMARK_LAUNCH", "/nowhere")
    assert main(["launch", "-n", "2", "--", "true"]) == 2
    assert "this is a rank of a launch already" in capfd.readouterr().err


# Groups that are started again ------------------------------------------------------------------------------

AGAIN = (
    RANK
    + "from pathlib import Path; here = Path(os.environ['MESHMARK_LAUNCH']); record = here / 'record'; "
    + "told = here / f'rank{rank}.json'; "
    + """told.write_text('{"at": "%s", "record": "%s"}' % (here / 'at', record)); """
    + "print('before', os.environ.get('MESHMARK_ENDED')); "
)


def test_a_group_that_a_case_ended_is_started_again_and_knows_how():
    code, text = launched(
        AGAIN + "first = not record.exists(); open(record, 'a').write('x'); (here / 'again').touch();"
        "first and os.kill(os.getpid(), signal.SIGKILL)",
        1,
    )
    assert code == 0
    assert text.splitlines() == [
        "[0] before None",
        "meshmark: rank 0 ended by SIGKILL: starting the group again, to go on with the next case",
        '[0] before {"0": "SIGKILL"}',
    ]


def test_groups_that_come_no_further_are_not_started_for_ever():
    code, text = launched(AGAIN + "record.touch(); (here / 'again').touch(); sys.exit(9)", 1)
    assert code == 9
    assert text.count("starting the group again") == 2
    assert text.splitlines()[-1] == "meshmark: two groups in turn have come no further: not started again"


def test_a_group_that_no_case_ended_is_not_started_again():
    assert launched(RANK + "sys.exit(9)", 2) == (9, "")


# Bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-n", "2"], "nothing to launch: meshmark launch -n 2 -- meshmark test"),
        (["-n", "2", "--"], "nothing to launch"),
        (["-n", "2", "--", "no-such-command"], "can't start 'no-such-command': No such file or directory"),
        (["-n", "2", "--", "/"], "can't start '/': "),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, told, capfd):
    assert main(["launch", *arguments]) == 2
    error = capfd.readouterr().err
    assert told in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_processes_is_told(number, capfd):
    with pytest.raises(SystemExit) as error:
        main(["launch", "-n", number, "--", "true"])
    assert error.value.code == 2
    assert "-n" in capfd.readouterr().err


def test_without_pathless_python_the_launcher_s_own_is_found():
    to = io.BytesIO()
    code = Launcher(["python", "-c", "import sys; print(sys.executable)"], 1, 1).run(to)
    assert code == 0
    assert os.path.dirname(to.getvalue().decode()[4:].strip()) == os.path.dirname(sys.executable)


def test_a_rank_that_ended_with_a_failed_check_says_which():
    """A known issue names the words of the check, and the next group knows nothing else of how this one ended."""
    shown = Shown(io.BytesIO(), 2)
    said = (
        "test_placement.py ..F1123 19:51:27 738 hlo_sharding_util.cc:3007] Check failed: sliced.has_value()\n"
        "*** Check failure stack trace: ***\n    @     0x7f0b  absl::LogMessageFatal\n"
        'Fatal Python error: Aborted\n\nThread 0x01 (most recent call first):\n  File "/a/checks.py", line 3 in run\n'
    )
    shown.write(1, said[:70].encode())
    shown.write(0, b"......\n")
    shown.write(1, said[70:].encode())
    assert shown.describe_end(0, "SIGKILL") == "SIGKILL"
    told = shown.describe_end(1, "SIGABRT")
    assert told.startswith("SIGABRT: test_placement.py ..F1123") and told.endswith("sliced.has_value()")
    shown.begin()
    assert shown.describe_end(1, "SIGABRT") == "SIGABRT"
