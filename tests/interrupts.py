# SPDX-License-Identifier: Apache-2.0
"""Child processes that handle SIGINT as at a terminal, also where the tests ignore it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

_EXEC = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.{}); os.execvp(sys.argv[1], sys.argv[1:])"
)


def interruptible(command: Sequence[str]) -> list[str]:
    """The command, started with the default disposition of SIGINT.

    Children inherit an ignored SIGINT, and the tests may run under nohup or in the background of a script. Whatever
    sends SIGINT to a child starts it with this. The process id stays: the command takes the place of what sets it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return [sys.executable, "-c", _EXEC.format("SIG_DFL"), *map(str, command)]
    return list(map(str, command))


def deaf(command: Sequence[str]) -> list[str]:
    """The command, started where SIGINT is ignored, as by nohup."""
    return [sys.executable, "-c", _EXEC.format("SIG_IGN"), *map(str, command)]
