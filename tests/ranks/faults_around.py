# SPDX-License-Identifier: Apache-2.0
"""Faults around a run: signals to workers and ranks, more processes, two launches, disks, users, places, attacks.

They belong to the catalogue in `tests.ranks.faults`, which runs them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from meshmark.ranks.messages import PROTOCOL, Hello, encode, proof
from tests.checkout import IMPORTS, ROOT
from tests.ranks.faults_between import CRASH, KILLED
from tests.ranks.staging import DEADLINE, STRUCK, Fault, Stage
from tests.waiting import until

OUTSIDE = DEADLINE + 45
"""Seconds within which a process is ended that a guard or a controller has to end from outside."""
WHOLE = 90.0
"""Seconds of a whole run, or of a new worker that goes on."""
TWO = {"JAX_NUM_CPU_DEVICES": "2"}
PASSED = r"3 cases: 3 pass"


# Workers, and runs without them -------------------------------------------------------------------------------


def worker(how: str, *options: str, when: str = "before", **more: Any) -> Callable[[Stage], object]:
    """One worker on two devices, which goes wrong in the second case."""
    plan = {"rank": "all", "when": when, "how": how} | more
    return lambda stage: stage.start(stage.suite("-n", "1", *options), plan, TWO)


def alone(how: str) -> Callable[[Stage], object]:
    """The same without workers."""
    plan = {"rank": "all", "when": "before", "how": how}
    return lambda stage: stage.start(stage.suite("-n", "0"), plan, TWO)


def controller_killed(stage: Stage) -> None:
    """SIGKILL to the controller while its worker sleeps in a case."""
    controller = worker("late", seconds=60)(stage)
    stage.until_struck()
    stage.since = time.monotonic()
    controller.kill()  # type: ignore[attr-defined]


def leftovers(stage: Stage) -> None:
    """A killed controller leaves a temporary directory; a later run removes it."""
    temporary = stage.directory / "tmp"
    temporary.mkdir()
    place = {"TMPDIR": str(temporary)} | TWO
    plan = {"rank": "all", "when": "before", "how": "late", "seconds": 60}
    first = stage.start(stage.suite("-n", "1", record=False), plan, place)
    stage.until_struck()
    first.kill()
    first.wait()
    assert list(temporary.glob("meshmark-*")), "the killed controller left nothing"
    stage.started, stage.outputs = [], []
    stage.mark.unlink()
    stage.start(stage.suite("-n", "1"), None, place).wait()
    assert not list(temporary.glob("meshmark-*/lock")), "a directory is left"


# Ranks --------------------------------------------------------------------------------------------------------


def of(
    size: int, rank: int | str, when: str, how: str, *options: str, **more: Any
) -> Callable[[Stage], None]:
    """So many ranks, one of which goes wrong."""

    def put(stage: Stage) -> None:
        plan = {"rank": rank, "when": when, "how": how} | more
        for number in range(size):
            stage.rank(number, plan, *options, size=size)

    return put


def launched(size: int, plan: dict[str, Any] | None, *options: str) -> Callable[[Stage], object]:
    """So many ranks by `meshmark launch`."""
    return lambda stage: stage.start(launcher(stage, size, *options), plan)


def launcher(stage: Stage, size: int, *options: str) -> list[str]:
    """The command of a launcher."""
    own = ["launch", "-n", str(size), "--devices-per-process", "1", "--grace", "60", "--"]
    return [sys.executable, "-m", "harness", *own, *stage.suite(*options)]


def wrapped(
    text: str, plan: dict[str, Any] | None = None, *options: str, **more: bool
) -> Callable[[Stage], object]:
    """Two ranks, each of which is a command of bash in which "$@" is the command of the suite."""

    def put(stage: Stage) -> object:
        suite = stage.suite(*options, **more)
        return stage.start([*launcher(stage, 2)[: -len(stage.suite())], *shell(text, *suite)], plan)

    return put


def launched_twice(stage: Stage) -> None:
    """A launch of launches."""
    command = launcher(stage, 2)
    stage.start([*command[: -len(stage.suite())], *command], None)


STRUCK_TEST = f"conformance/test_collectives.py::test_collectives[{STRUCK}/1x2/float32/4KiB]"


def side_by_side(plan: dict[str, Any] | None) -> Callable[[Stage], None]:
    """Two launches at once: the plan is for the first."""

    def put(stage: Stage) -> None:
        stage.start(launcher(stage, 2), plan)
        other = stage.directory / "other"
        other.mkdir()
        stage.start([*launcher(stage, 2)[:-2], "--record", str(other / "records.jsonl")], None)

    return put


def launcher_killed_with_children(stage: Stage) -> None:
    """A rank has started a program that left its process group; then the launcher is killed."""
    stage.start(launcher(stage, 2), {"rank": 1, "when": "before", "how": "spawn"})
    stage.until_struck()
    time.sleep(0.5)
    stage.since = time.monotonic()
    stage.started[0].kill()
    until(lambda: not stage.left(), 10)


# Places: disks, users, output -----------------------------------------------------------------------------------


def shell(text: str, *command: str) -> list[str]:
    """A command of bash in which "$@" is the command of the suite."""
    return ["bash", "-c", text, "bash", *command]


def in_shell(text: str, launch: int = 0, plan: dict[str, Any] | None = None) -> Callable[[Stage], object]:
    """The suite, or `launch` ranks of it, inside of a command of bash."""

    def put(stage: Stage) -> object:
        command = launcher(stage, launch) if launch else stage.suite("-n", "1")
        return stage.start(shell(text, *command), plan, {} if launch else TWO)

    return put


def small_disk(free: int, *options: str) -> Callable[[Stage], object]:
    """The records lie on a real file system with so many bytes left."""

    def put(stage: Stage) -> object:
        text = (
            f'mount -t tmpfs -o size=64k,nr_inodes=8 none "{stage.directory}" && head -c {65536 - free} /dev/zero'
            f' > "{stage.directory}/filler"; "$@"; code=$?; cp "{stage.directory}"/records* "$KEEP" 2>/dev/null;'
            " exit $code"
        )
        keep = stage.directory.with_name(f"{stage.directory.name}-kept")
        keep.mkdir()
        command = ["unshare", "--mount", *shell(text, *stage.suite("-n", "1", *options))]
        child = stage.start(command, None, TWO | {"KEEP": str(keep)})
        child.wait()
        for path in keep.glob("records*"):
            shutil.copy(path, stage.directory)
        shutil.rmtree(keep)
        return child

    return put


def no_temporary(stage: Stage) -> object:
    """A file system without room for a temporary directory."""
    place = stage.directory / "tmp"
    place.mkdir()
    text = f'mount -t tmpfs -o size=4k,nr_inodes=1 none "{place}" && TMPDIR="{place}" exec "$@"'
    return stage.start(["unshare", "--mount", *shell(text, *stage.suite("-n", "1"))], None, TWO)


READ_ONLY = f'mount --bind "{ROOT}" "{ROOT}" && mount -o remount,bind,ro "{ROOT}" && cd "{ROOT}" && exec "$@"'


def read_only(stage: Stage) -> object:
    """The checkout is on a file system that can't be written."""
    return stage.start(["unshare", "--mount", *shell(READ_ONLY, *stage.suite("-n", "1"))], None, TWO)


OTHER_USER = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
READS = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
"""The other user may read what only root can, such as an interpreter in root's home."""


def other_user(stage: Stage) -> object:
    """Neither root nor anybody with a name and a home."""
    os.chown(stage.directory, 65534, 65534)
    for path in (stage.directory, *stage.directory.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    return stage.start([*OTHER_USER, *READS, *stage.suite("-n", "1")], None, TWO | {"HOME": "/nonexistent"})


def unicode_place(stage: Stage) -> object:
    """LC_ALL=C, in a directory and with a file whose names ASCII lacks."""
    place = stage.directory / "Größe ☃"
    place.mkdir()
    own = [sys.executable, "-m", "meshmark", "test", *stage.suite("-n", "1", record=False)[4:]]
    record = ["--record", str(stage.record), "--basetemp", str(place / "Zwischenlager ☃")]
    child = stage.start([*own, *record], None, TWO | {"LC_ALL": "C", "PYTHONPATH": IMPORTS}, cwd=place)
    child.wait()
    return child


def mounts() -> str:
    """Why there can be no mounts here, or ""."""
    if sys.platform != "linux" or os.geteuid():
        return "mounting takes root on Linux"
    found = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
    )
    return "" if found.returncode == 0 else "no mounts can be made here"


def users() -> str:
    """Why no other user can run this here, or ""."""
    if sys.platform != "linux" or os.geteuid():
        return "becoming another user takes root on Linux"
    found = subprocess.run([*OTHER_USER, *READS, sys.executable, "-c", "import jax"], capture_output=True)
    return "" if found.returncode == 0 else "no other user can start this Python here"


# Attacks on the channel ------------------------------------------------------------------------------------------

GARBAGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01 garbage\n",
    b'{"kind":"hello","protocol":"meshmark-ranks 3","rank":1,"size":2,"run":""}\n',
    b'{"kind":"hello","protocol":"meshmark-ranks 3","rank":1,"size":9,"run":"x"}\n',
    b'{"kind":"hello","protocol":"meshmark-ranks 3","rank":1,"size":2,"run":"\\u00e9"}\n',
    b'{"kind":"hello","protocol":"meshmark-ranks 3","rank":' + b"9" * 4000 + b',"size":2,"run":"x"}\n',
    b'{"kind":"bye","reason":"\\u001b[2J"}\n',
    b"[" * 50_000 + b"\n",
    b"x" * 100_000,
)


def attacked(
    packets: Sequence[bytes], many: int, early: bool, secret: str = "ours"
) -> Callable[[Stage], None]:
    """Connections that send these packets, and stay: before the ranks join, or while they run."""

    def put(stage: Stage) -> None:
        environment = {"MESHMARK_CONTROL_SECRET": secret} if secret else {}
        plan = {"rank": 1, "when": "before", "how": "late", "seconds": 3.0}
        stage.rank(0, plan, "--deadline", "30", environment=environment)
        connections = stage.held

        def attack() -> None:
            for number in range(many):
                with suppress(OSError):
                    one = connections.enter_context(
                        socket.create_connection(("127.0.0.1", stage.ports[1]), 5)
                    )
                    one.sendall(packets[number % len(packets)] if packets else b"")

        if early:
            until(lambda: _listens(stage.ports[1]))
            attack()
        stage.rank(1, plan, "--deadline", "30", environment=environment)
        if not early:
            stage.until_struck()
            thread = threading.Thread(target=attack)
            thread.start()
            thread.join()

    return put


def dripped(stage: Stage) -> None:
    """While a case runs: the greeting of rank 1, as it was said before, byte by byte over many connections."""
    environment = {"MESHMARK_CONTROL_SECRET": "ours"}
    plan = {"rank": 1, "when": "before", "how": "late", "seconds": 3.0}
    for number in range(2):
        stage.rank(number, plan, "--deadline", "30", environment=environment)
    stage.until_struck()
    greeting = encode(Hello(PROTOCOL, 1, 2, proof("ours", "1 of 2")))
    where = "127.0.0.1", stage.ports[1]
    many = [stage.held.enter_context(socket.create_connection(where, 5)) for _ in range(40)]
    for byte in greeting:
        for one in many:
            with suppress(OSError):
                one.sendall(bytes([byte]))
        time.sleep(0.01)


def _listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def another_run(stage: Stage) -> None:
    """A rank of another run takes rank 1's place: it is turned away, and the run goes on."""
    stage.rank(0, None, environment={"MESHMARK_CONTROL_SECRET": "ours"})
    until(lambda: _listens(stage.ports[1]))
    stage.rank(1, None, environment={"MESHMARK_CONTROL_SECRET": "another"}, record=False).wait()
    stage.rank(1, None, environment={"MESHMARK_CONTROL_SECRET": "ours"})


AROUND = (
    Fault("a worker is killed", worker("kill"), (1,), "crash", r"crash: SIGKILL", "pass", limit=WHOLE),
    Fault("TERM to a worker", worker("terminate"), (1,), "crash", r"crash: SIGTERM", "pass", limit=WHOLE),
    Fault(
        *("INT to a worker: the terminal sends it to all", worker("interrupt")),
        *((0,), "pass", PASSED, "pass"),
        limit=WHOLE,
    ),
    Fault(
        *("a worker is stopped (SIGSTOP)", worker("stop"), (1,), "hang"),
        *(r"hang: past its deadline, in unknown, and ended from outside", "pass"),
        limit=OUTSIDE + WHOLE,
    ),
    Fault(
        *("a worker leaves with exit code 0", worker("leave")),
        *((1,), "crash", r"crash: exit code 0", "pass"),
        limit=WHOLE,
    ),
    Fault(
        *("the case of a worker raises SystemExit", worker("system exit")),
        *((1,), "error", r"SystemExit", "pass"),
        limit=WHOLE,
    ),
    Fault(
        *("a worker's own timer is cancelled", worker("python", cancelled=True), (1,), "hang"),
        *(
            r"hang: past its deadline, in sabotage:",
            "pass",
        ),  # the watchdog does without it, or the controller ends it
        limit=OUTSIDE + WHOLE,
    ),
    Fault("a controller is killed", controller_killed, (KILLED,), "", r"", limit=5),
    Fault("a killed controller's temporary files", leftovers, (0,), "pass", PASSED, "pass", limit=2 * WHOLE),
    Fault("no workers: the process is killed", alone("kill"), (1,), "crash", r"crash: SIGKILL"),
    Fault("no workers: it leaves with exit code 0", alone("leave"), (1,), "crash", r"crash: exit code 0"),
    Fault(
        *("no workers: the process is stopped (SIGSTOP)", alone("stop"), (1,), "hang"),
        r"hang: past its deadline, in unknown, and ended from outside",
        limit=OUTSIDE,
    ),
    Fault(
        *("a rank is stopped (SIGSTOP)", of(2, 1, "before", "stop"), (1, KILLED), "hang"),
        r"past its deadline of .* rank 1 does not answer",
        limit=OUTSIDE,
    ),
    Fault("a rank raises SystemExit", of(2, 1, "before", "system exit"), (1, 1), "hang", r"SystemExit: 0"),
    Fault(
        *("a rank ends in an internal error while pytest starts", of(2, 1, "session", "raise"), (2, 3), ""),
        r"rank 1 was ended: an internal error of pytest or a plugin",
        first="",
        limit=60,
        ci=True,
    ),
    Fault(
        "3 processes: a rank is killed", of(3, 2, "before", "kill"), (1, 1, KILLED), "crash", CRASH.format(2)
    ),
    Fault(
        *(
            "4 processes: a rank sleeps in Python",
            of(4, 3, "before", "late", seconds=60),
            (1, 1, 1, 1),
            "hang",
        ),
        r"past its deadline of .* rank 3 in sabotage:",
    ),
    Fault("launch: 3 processes", launched(3, None), (0,), "pass", PASSED, "pass", limit=WHOLE),
    Fault(
        "launch: 4 processes, one is killed",
        launched(4, {"rank": 3, "when": "before", "how": "kill"}),
        *((1,), "crash", r"starting the group again", "pass"),
        groups=1,
    ),
    Fault(
        "launch: all ranks leave with exit code 0 in one case",
        launched(2, {"rank": "all", "when": "before", "how": "leave"}),
        *((1,), "crash", r"starting the group again", "pass"),
        groups=1,
    ),
    Fault(
        "launch: all ranks leave with exit code 0 before the suite begins",
        launched(2, {"rank": "all", "when": "start", "how": "leave"}),
        *((1,), "", r"no rank joined the others: .* nothing was run", "", ""),
        limit=WHOLE,
    ),
    Fault(
        "launch: each rank is made a run of its own",
        wrapped(
            'unset ${!MESHMARK_CO*} ${!MESHMARK_NUM*} ${!MESHMARK_PROC*}; exec "$@"',
            None,
            "-n",
            "1",
            record=False,
        ),
        *((1,), "", r"no rank joined the others", "", ""),
        limit=WHOLE,
    ),
    Fault(
        "launch: a shell hides that a case fails",
        wrapped('"$@" || true', {"rank": 1, "when": "before", "how": "wrong"}),
        *((1,), "fail", r"the run of rank 0 ended with exit code 1, and its process with 0", "pass"),
        limit=WHOLE,
    ),
    Fault(
        "launch: an option takes a case away from one rank",
        wrapped(f'((MESHMARK_PROCESS_ID)) && set -- "$@" --deselect "{STRUCK_TEST}"; exec "$@"'),
        *((4,), "", r"the ranks differ in cases that pytest has left: rank 0: 3 .* rank 1: 2 ", "", ""),
        limit=WHOLE,
    ),
    Fault(
        "launch: a launch of launches",
        *(launched_twice, (2,), "", r"this is a rank of a launch already", "", ""),
        limit=WHOLE,
    ),
    Fault("two launches side by side", side_by_side(None), (0, 0), "pass", PASSED, "pass", limit=WHOLE),
    Fault(
        "two launches side by side, a rank of one is killed",
        side_by_side({"rank": 1, "when": "before", "how": "kill"}),
        *((1, 0), "crash", r"starting the group again", "pass"),
        groups=1,
    ),
    Fault(
        "launch: the launcher is killed, and a rank's child has left its group",
        *(launcher_killed_with_children, (KILLED,), "", r""),
        limit=15,
    ),
    Fault(
        "launch: its reader closes the pipe (| head -1)",
        in_shell('"$@" | head -1; exit ${PIPESTATUS[0]}', 2),
        *((0,), "pass", r"^\[0\] ", "pass"),
        limit=WHOLE,
    ),
    Fault(
        "launch: its reader closes the pipe, and a case fails",
        in_shell(
            '"$@" | head -1 >&2; exit ${PIPESTATUS[0]}', 2, {"rank": 1, "when": "before", "how": "wrong"}
        ),
        *((1,), "fail", r"^\[0\] ", "pass"),
        limit=WHOLE,
        quiet=True,
    ),
    Fault(
        "launch: a full disk under its output (/dev/full)",
        in_shell('"$@" > /dev/full', 2),
        *((2,), "pass", r"can't write the output: No space left on device", "pass"),
        limit=WHOLE,
    ),
    Fault(
        "the reader of a run goes (| head -1)",
        in_shell('"$@" 2>&1 | head -1; exit ${PIPESTATUS[0]}'),
        *((0,), "pass", r"^\.|workers|nodes", "pass"),
        limit=WHOLE,
    ),
    Fault(
        "a full disk under the output of a run (/dev/full)",
        in_shell('"$@" > /dev/full'),
        *((1,), "pass", r"can't write the output: No space left on device", "pass"),
        limit=WHOLE,
    ),
    Fault(
        "a full disk under the records (tmpfs)",
        *(small_disk(4096), (2,), "", r"can't write records to .*: No space left on device"),
        limit=WHOLE,
        missing=mounts,
    ),
    Fault(
        "a full disk under the records of six cases (tmpfs): what is missing is named",
        small_disk(8192, "--operations", "psum,pmax"),
        *((2,), "pass", r"no verdict: (psum|pmax)/\S+/manual/", "pass"),
        limit=WHOLE,
        missing=mounts,
    ),
    Fault(
        "no room for temporary files in TMPDIR (tmpfs): another place is taken",
        *(no_temporary, (0,), "pass", PASSED, "pass"),
        limit=WHOLE,
        missing=mounts,
    ),
    Fault("a read-only checkout", read_only, (0,), "pass", PASSED, "pass", limit=WHOLE, missing=mounts),
    Fault("another user than root", other_user, (0,), "pass", PASSED, "pass", limit=WHOLE, missing=users),
    Fault("LC_ALL=C in a Unicode path", unicode_place, (0,), "pass", PASSED, "pass", limit=WHOLE),
    Fault(
        "an attack on the channel: 60 silent connections before the ranks join",
        *(attacked((), 60, early=True), (0, 0), "pass", PASSED, "pass"),
        limit=WHOLE,
    ),
    Fault(
        "an attack on the channel: garbage and greetings of strangers before the ranks join",
        *(attacked(GARBAGE, 70, early=True), (0, 0), "pass", PASSED, "pass"),
        limit=WHOLE,
    ),
    Fault(
        "an attack on the channel: the same while a case runs",
        *(attacked(GARBAGE, 300, early=False), (0, 0), "pass", PASSED, "pass"),
        limit=WHOLE,
    ),
    Fault(
        "an attack on the channel: garbage while a case runs, without a secret",
        *(attacked(GARBAGE, 70, early=False, secret=""), (0, 0), "pass", PASSED, "pass"),
        limit=WHOLE,
    ),
    Fault(
        "an attack on the channel: the greeting of rank 1 again, byte by byte, while a case runs",
        *(dripped, (0, 0), "pass", PASSED, "pass"),
        limit=WHOLE,
    ),
    Fault(
        "a rank of another run comes first",
        *(another_run, (0, 4, 0), "pass", r"it is of another run", "pass"),
        limit=120,
    ),
)
