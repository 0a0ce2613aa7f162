# SPDX-License-Identifier: Apache-2.0
"""Finds ports of the loopback address for processes that are about to start."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

QUIET = range(20_000, 30_000)
"""Ports below the ephemeral ports of Linux, macOS and Windows. The system may give an ephemeral port to another
connection before it is used: a group of ranks makes dozens of connections while it starts."""


def free_ports(number: int) -> list[int]:
    """Different ports of the loopback address on which nobody listens at this moment, and which are not ephemeral.
    OSError if there are too few."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(QUIET, len(QUIET)):
            if len(found) == number:
                return found
            one = held.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    raise OSError(f"{number} free ports from {QUIET.start} to {QUIET.stop - 1} were not found")
