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
    """Why the run can't go on, and what ranks had already found of the case that others did not come out of."""
    found = [
        f"rank {rank} had ended it with {line['verdict']}: {line.get('reason', '')}"
        for rank, given in ending.data.get("said", {}).items()
        for line in (given if isinstance(given, list) else ())
        if isinstance(line, dict) and line.get("verdict", "pass") != "pass"
    ]
    return "; ".join([ending.reason, *found])


def line_of_ending(ending: Ending) -> Line:
    """The line of the case that a run ended in."""
    data = {name: value for name, value in ending.data.items() if name != "said"}
    return Line("execute", ending.verdict, describe_ending(ending), data)


def lost_a_rank(ending: Ending) -> bool:
    """Whether a case or the loss of a rank ended the run, rather than a person or a launcher that ended it on
    purpose."""
    return bool(ending.verdict) or "ended_rank" in ending.data


def abort_late() -> None:
    """Let abort() wait for six seconds, stacks first.

    JAX aborts a process whose coordinator, rank 0, is gone. The channel hears of the same loss in that moment, and
    needs the time to write down the verdict and to leave. sleep(3) as the handler of SIGABRT gets the signal's number
    as its seconds, and may be called from a signal handler (POSIX.1-2017, 2.4.3); faulthandler calls the handler
    that was there before it once it has shown the stacks.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    enabled = faulthandler.is_enabled()
    faulthandler.disable()
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
    if enabled:
        faulthandler.enable(os.dup(2))
