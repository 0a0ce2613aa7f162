# SPDX-License-Identifier: Apache-2.0
"""Faults between ranks: one rank dies, hangs, is wrong, differs or is absent; signals; launchers; links between hosts.

They belong to the catalogue in `tests.ranks.faults`, which runs them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.checkout import ROOT, SOURCE
from tests.ranks import network
from tests.ranks.staging import SLACK, STRUCK, Fault, Stage


def sabotaged(rank: int | str, when: str, how: str, *options: str, **more: Any) -> Callable[[Stage], None]:
    """Both ranks, one of which goes wrong."""
    return lambda stage: stage.ranks({"rank": rank, "when": when, "how": how} | more, *options)


def launched(rank: int | str, when: str, how: str, *options: str) -> Callable[[Stage], object]:
    """The same under `meshmark launch`."""
    return lambda stage: stage.launch({"rank": rank, "when": when, "how": how}, *options)


def one_alone(number: int) -> Callable[[Stage], object]:
    """One rank, the other of which never comes."""
    return lambda stage: stage.rank(number, None, "--join", "3")


def unlike(*options: str, **environment: str) -> Callable[[Stage], None]:
    """Rank 1 has other options, or another environment."""

    def put(stage: Stage) -> None:
        stage.rank(0)
        stage.rank(1, None, *options, environment=environment)

    return put


def other_release(stage: Stage) -> None:
    """Rank 1 has the metadata of another JAX release before it."""
    info = stage.directory / "other" / "jax-0.0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.0.1\n")
    stage.rank(0)
    stage.rank(1, environment={"PYTHONPATH": os.pathsep.join([str(info.parent), str(SOURCE)])})


def other_sources(stage: Stage) -> None:
    """Rank 1 runs a copy of the suite in which a comment is changed."""
    copy = stage.directory / "copy"
    for name in ("harness", "conformance", "tests/ranks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    with open(copy / "harness" / "meshmark" / "core" / "errors.py", "a", encoding="utf-8") as file:
        file.write("# changed\n")
    stage.rank(0)
    # An installed suite must not come before the copy.
    stage.rank(1, cwd=copy, environment={"PYTHONPATH": str(copy / "harness")})


def taken(which: int) -> Callable[[Stage], None]:
    """Another program listens on the coordinator's port (0) or the channel's (1)."""

    def put(stage: Stage) -> None:
        stage.held.enter_context(socket.create_server(("127.0.0.1", stage.ports[which])))
        stage.ranks(None, "--join", "5")

    return put


def wrong_number(stage: Stage) -> None:
    """Rank 1 says that there are three."""
    stage.rank(0, None, "--join", "10")
    stage.rank(1, None, "--join", "10", size=3)


def same_id(number: int, size: int) -> Callable[[Stage], None]:
    """Two processes say that they are one rank, and one is missing."""

    def put(stage: Stage) -> None:
        for own in (0, 1) if number else (0,):
            stage.rank(own, None, "--join", "10", size=size)
        stage.rank(number, None, "--join", "10", size=size)

    return put


def signalled(number: int, to: Sequence[int]) -> Callable[[Stage], None]:
    """A signal to some of the ranks while rank 1 sleeps and the other waits for it in the collective."""

    def put(stage: Stage) -> None:
        stage.ranks({"rank": 1, "when": "before", "how": "late", "seconds": 60})
        stage.until_struck()
        time.sleep(0.5)
        stage.since = time.monotonic()
        for one in to:
            stage.started[one].send_signal(number)

    return put


def launcher_signalled(number: int) -> Callable[[Stage], None]:
    """A signal to the launcher while one rank sleeps and the other waits for it in the collective."""

    def put(stage: Stage) -> None:
        launcher = stage.launch({"rank": 1, "when": "before", "how": "late", "seconds": 60})
        stage.until_struck()
        time.sleep(0.5)
        stage.since = time.monotonic()
        launcher.send_signal(number)

    return put


def resumed_by_hand(stage: Stage) -> None:
    """A case kills all ranks, twice; --resume goes on, as a batch script under Slurm would."""
    plan = {"rank": "all", "when": "before", "how": "kill"}
    stage.ranks(plan)
    stage.again()
    stage.ranks(plan, "--resume", str(stage.record), record=False)
    stage.again()
    stage.since = time.monotonic()
    stage.ranks(plan, "--resume", str(stage.record), record=False)


def workers(stage: Stage) -> None:
    """-n beside --distributed."""
    stage.start(stage.suite("--distributed", "-n", "2"), None)


def hosts(
    delay: float, act: Callable[[Stage, tuple[network.Host, network.Host]], None]
) -> Callable[[Stage], None]:
    """One rank on each of two hosts."""

    def put(stage: Stage) -> None:
        both = stage.held.enter_context(network.joined(delay))
        plan = {"rank": 1, "when": "before", "how": "late", "seconds": 1.0}
        for number, host in enumerate(both):
            stage.rank(number, plan, "--deadline", "30", inside=host.inside, host=both[0].address)
        stage.until_struck()
        act(stage, both)

    return put


def _cut(stage: Stage, both: tuple[network.Host, network.Host]) -> None:
    both[0].unplug()
    stage.since = time.monotonic()


CRASH = re.escape(STRUCK) + r"\S+: crash: rank {} ended: its connection closed"
KILLED = -signal.SIGKILL
BETWEEN = (
    Fault(
        "a rank is killed before a collective",
        sabotaged(1, "before", "kill"),
        (1, KILLED),
        "crash",
        CRASH.format(1),
    ),
    Fault(
        "a rank is killed inside a collective",
        sabotaged(1, "inside", "kill"),
        (1, KILLED),
        "crash",
        CRASH.format(1),
        ci=True,
    ),
    Fault(
        "a rank is killed after a collective",
        sabotaged(1, "after", "kill"),
        (1, KILLED),
        "crash",
        CRASH.format(1),
    ),
    Fault(
        "a rank is killed between two cases",
        sabotaged(1, "between", "kill"),
        (1, KILLED),
        "",
        r"rank 1 ended: its connection closed; go on with --resume",
    ),
    Fault(
        "rank 0, JAX's coordinator, is killed before a collective",
        sabotaged(0, "before", "kill"),
        (KILLED, 1),
        "crash",
        CRASH.format(0),
    ),
    Fault(
        "rank 0 is killed inside a collective",
        sabotaged(0, "inside", "kill"),
        (KILLED, 1),
        "crash",
        CRASH.format(0),
    ),
    Fault("a rank leaves with exit code 7", sabotaged(1, "before", "exit"), (1, 7), "crash", CRASH.format(1)),
    Fault("a rank never comes", one_alone(0), (4,), "", r"rank 1 of 2 did not come within 3 s", first=""),
    Fault(
        "rank 0 never comes", one_alone(1), (4,), "", r"rank 1 found no rank 0 at \S+ within 3 s", first=""
    ),
    Fault(
        "a rank dies before the ranks come together",
        sabotaged(1, "start", "kill", "--join", "5"),
        (4, KILLED),
        "",
        r"rank 1 of 2 did not come within 5 s",
        first="",
    ),
    Fault(
        "a rank dies while JAX's cluster starts",
        sabotaged(1, "cluster", "kill"),
        (4, KILLED),
        "",
        r"rank 1 ended: its connection closed",
        first="",
    ),
    Fault(
        "a rank fails to start JAX's cluster",
        sabotaged(1, "cluster", "raise"),
        (4, 4),
        "",
        r"rank 1 could not start JAX's cluster: .*sabotaged",
        first="",
    ),
    Fault(
        "a rank is stuck in Python",
        sabotaged(1, "after", "python"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 1 in sabotage:",
        ci=True,
    ),
    Fault(
        "a rank is stuck in Python, the other in the collective",
        sabotaged(1, "before", "python"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 1 in sabotage:",
    ),
    Fault(
        "a rank is stuck in native code that holds the GIL",
        sabotaged(1, "after", "native"),
        (1, -signal.SIGABRT),
        "hang",
        r"past its deadline of .* rank 1 does not answer",
    ),
    Fault(
        "rank 0 is stuck in native code that holds the GIL",
        sabotaged(0, "after", "native"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 0 does not answer",
    ),
    Fault(
        "a rank never enters the collective, and goes on",
        sabotaged(1, "before", "skip"),
        (1, 1),
        "hang",
        r"past its deadline of .* rank 0 in .* rank 1 had ended it with fail",
    ),
    Fault(
        "a rank is late by 3 s",
        sabotaged(1, "before", "late", "--deadline", "30", seconds=3.0),
        (0, 0),
        "pass",
        r"3 cases: 3 pass",
        "pass",
        ci=True,
    ),
    Fault(
        "a rank compiles another program",
        sabotaged(1, "compile", "program"),
        (1, 1),
        "error",
        r"rank 1 compiled other collectives",
        "pass",
        ci=True,
    ),
    Fault(
        "a rank raises while the others compile",
        sabotaged(1, "compile", "raise"),
        (1, 1),
        "error",
        r"rank 1: RuntimeError: sabotaged",
        "pass",
    ),
    Fault(
        "a wrong shard on one rank",
        sabotaged(1, "before", "wrong"),
        (1, 1),
        "fail",
        r"numbers: fail: .*rank 1: ",
        "pass",
        ci=True,
    ),
    Fault(
        "-x: all ranks stop at the same case",
        sabotaged(1, "before", "wrong", "-x"),
        (1, 1),
        "fail",
        r"stopping after 1 failures",
    ),
    Fault(
        "a rank has other cases",
        unlike("--operations", "pmax"),
        (4, 4),
        "",
        r"the ranks differ in options: rank 0: \{'operations': 'psum'\}; rank 1: \{'operations': 'pmax'\}",
        first="",
    ),
    Fault(
        "a rank has another JAX release",
        other_release,
        (4, 4),
        "",
        r"the ranks differ in JAX release: rank 0: .*; rank 1: jax 0\.0\.1",
        first="",
    ),
    Fault(
        "a rank has other flags",
        unlike(XLA_FLAGS="--xla_cpu_enable_fast_math=false"),
        (4, 4),
        "",
        r"the ranks differ in flags: .*fast_math",
        first="",
    ),
    Fault(
        "a rank has another commit",
        other_sources,
        (4, 4),
        "",
        r"the ranks differ in suite (commit|sources): ",
        first="",
    ),
    Fault(
        "a rank has another number of devices",
        unlike(JAX_NUM_CPU_DEVICES="2"),
        (4, 4),
        "",
        r"the ranks differ in flags: .*JAX_NUM_CPU_DEVICES': '2'",
        first="",
    ),
    Fault(
        "the channel's port is taken",
        taken(1),
        (4, 4),
        "",
        r"rank 0 can't listen on 127\.0\.0\.1:\d+ for the other ranks .*--control",
        first="",
    ),
    Fault(
        "the coordinator's port is taken",
        taken(0),
        (4, 4),
        "",
        r"rank 0 can't start JAX's coordinator at .*--coordinator",
        first="",
    ),
    Fault(
        "a wrong number of processes",
        wrong_number,
        (4, 4),
        "",
        r"rank 1 says 3 processes and rank 0 says 2",
        first="",
    ),
    Fault(
        "two ranks with one id",
        same_id(1, 3),
        (4, 4, 4),
        "",
        r"two processes say that they are rank 1 of 3",
        first="",
        ci=True,
    ),
    Fault(
        "two ranks with id 0",
        same_id(0, 2),
        (4, 4),
        "",
        r"rank 0 can't listen on .*: is another process rank 0 too",
        first="",
    ),
    Fault(
        "TERM to a rank that sleeps",
        signalled(signal.SIGTERM, [1]),
        (2, 2),
        "",
        r"rank 1 was ended: (SIGTERM|its session was interrupted)",
    ),
    Fault(
        "TERM to a rank inside a collective",
        signalled(signal.SIGTERM, [0]),
        (2, 2),
        "",
        r"rank 0 was ended: SIGTERM",
    ),
    Fault(
        "Ctrl-C to all ranks",
        signalled(signal.SIGINT, [0, 1]),
        (2, 2),
        "",
        r"interrupted; go on with --resume|was ended: SIGINT",
    ),
    Fault(
        "-n beside --distributed",
        workers,
        (4,),
        "",
        r"-n starts workers of one machine: leave it out",
        first="",
    ),
    Fault(
        "resumed by hand after a case that kills all ranks",
        resumed_by_hand,
        (1, 1),
        "crash",
        r"before: crash .*: the ranks ended in this case: in two runs",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: all ranks die in one case",
        launched("all", "before", "kill"),
        (1,),
        "crash",
        r"starting the group again, to go on with the next case",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: a rank is killed",
        launched(1, "inside", "kill"),
        (1,),
        "crash",
        r"starting the group again, to go on with the next case",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: a rank leaves with exit code 7",
        launched(1, "before", "exit"),
        (1,),
        "crash",
        r"rank 1 ended by exit code 7.*: starting the group again",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: a rank is stopped (SIGSTOP)",
        launched(1, "before", "stop"),
        (1,),
        "hang",
        r"past its deadline of .* rank 1 does not answer",
        "pass",
        groups=1,
    ),
    Fault(
        "launch: a rank dies before the ranks come together",
        launched(1, "start", "exit"),
        (7,),
        "",
        r"rank 1 ended by exit code 7; ending rank 0",
        first="",
    ),
    Fault(
        "launch: TERM to the launcher",
        launcher_signalled(signal.SIGTERM),
        (2,),
        "",
        r"interrupted|was ended: SIGTERM",
    ),
    Fault("launch: Ctrl-C", launcher_signalled(signal.SIGINT), (2,), "", r"interrupted|was ended: SIGINT"),
    Fault("launch: the launcher is killed", launcher_signalled(signal.SIGKILL), (KILLED,), "", r"", limit=5),
    Fault(
        "a link between two hosts is cut",
        hosts(0.0, _cut),
        (1, 1),
        "crash",
        r"crash: rank \d can't be reached any more: ",
        limit=30 + SLACK,
        missing=network.missing,
        ci=True,
    ),
    Fault(
        "a link between two hosts is 50 ms late each way",
        hosts(0.05, lambda stage, both: None),
        (0, 0),
        "pass",
        r"3 cases: 3 pass",
        "pass",
        limit=60,
        missing=lambda: network.missing(delayed=True),
    ),
)
