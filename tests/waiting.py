# SPDX-License-Identifier: Apache-2.0
"""Waits for events, for as long as a busy machine may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0
"""Seconds: nothing that a test waits for takes as long, also where many others share the cores."""


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Wait until the condition holds; False where it did not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody has waited for yet has too. Linux only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
