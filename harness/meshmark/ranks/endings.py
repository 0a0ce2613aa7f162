# SPDX-License-Identifier: Apache-2.0
"""The early end of a run of several ranks: its record line, its message, and the time to write both."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

from meshmark.core.verdicts import Line
from meshmark.ranks.channel import Ending


def describe_ending(ending: Ending) -> str:
    """The reason why the run can't continue, and the bad findings that some ranks already had about its last case."""
    found = [
        f"rank {rank} had ended it with {line['verdict']}: {line.get('reason', '')}"
        for rank, given in ending.data.get("said", {}).items()
        for line in (given if isinstance(given, list) else ())
        if isinstance(line, dict) and line.get("verdict", "pass") != "pass"
    ]
    return "; ".join([ending.reason, *found])


def line_of_ending(ending: Ending) -> Line:
    """The record line of the case in which a run ended."""
    data = {name: value for name, value in ending.data.items() if name != "said"}
    return Line("execute", ending.verdict, describe_ending(ending), data)


def lost_a_rank(ending: Ending) -> bool:
    """Whether a case or the loss of a rank ended the run, and not a person or a launcher on purpose."""
    return bool(ending.verdict) or "ended_rank" in ending.data


def abort_late() -> None:
    """Make abort() print the stacks and then wait for six seconds.

    JAX aborts a process whose coordinator, rank 0, is gone. The channel notices the same loss at that moment. It needs
    the time to record the verdict and to leave. sleep(3) is set as the handler of SIGABRT. It takes the signal's
    number, 6, as its seconds, and may be called from a signal handler (POSIX.1-2017, 2.4.3). faulthandler prints the
    stacks, and then calls the handler that was set before it.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    enabled = faulthandler.is_enabled()
    faulthandler.disable()
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
    if enabled:
        faulthandler.enable(os.dup(2))
