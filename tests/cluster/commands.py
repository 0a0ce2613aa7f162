# SPDX-License-Identifier: Apache-2.0
"""Runs one command of a test with a time limit, and checks that it leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.checkout import ROOT

MARK = "MESHMARK_CLUSTER_MARK"  # in the environment of a command and of all that it starts
GONE = 15.0  # seconds that the ranks of a command which ended may take to be gone


@dataclass
class Done:
    """How a command ended."""

    code: int | None
    """The exit code; None: it was past its limit and killed."""
    text: str
    """Standard output and error, as they came."""
    seconds: float
    left: list[str] = field(default_factory=list)
    """What was left behind (and then killed): the command line of each process."""


def run(command: Sequence[str], environment: Mapping[str, str], limit: float, after=None) -> Done:
    """Run a command from the root of the repository for at most `limit` seconds.

    `after(mark, ended)`, if given, is called once the command has started: it may look for marked processes and end
    some. `ended()` says whether the command has ended. An AssertionError of it has what the command said as a note.
    """
    mark = uuid.uuid4().hex
    kept = {k: v for k, v in environment.items() if not k.startswith(("PYTEST_", "COV_"))}
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT, env=kept | {MARK: mark}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    try:
        if after is not None:
            after(mark, lambda: process.poll() is not None)
        text, _ = process.communicate(timeout=limit - (time.monotonic() - start))
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code, text = None, _rest(process)
    except AssertionError as error:
        process.kill()
        error.add_note(_rest(process))
        raise
    except BaseException:
        process.kill()
        raise
    finally:
        seconds = time.monotonic() - start
        left = _left(mark)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    return Done(code, text, seconds, list(left.values()))


def marked(mark: str) -> dict[int, str]:
    """Processes that carry a mark: the command line of each by its id; zombies have no environment and don't count."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                found[int(entry.name)] = b" ".join(words).decode(errors="replace")
    return found


def _left(mark: str) -> dict[int, str]:
    end = time.monotonic() + GONE
    while (found := marked(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _rest(process: subprocess.Popen) -> str:
    """What a killed command had written; a descendant may still hold the pipe."""
    try:
        return process.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace") if isinstance(error.stdout, bytes) else ""
