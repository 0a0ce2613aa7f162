# SPDX-License-Identifier: Apache-2.0
"""Removes absolute paths, user names and host names from text that is published."""

from __future__ import annotations

import getpass
import re
import socket
from functools import cache

# XLA names its sources "external/xla+/xla/service/...": no path of this machine.
_PATH = re.compile(
    r"(?<![\w./<])(?<!external/xla\+)(?<!https:/)(?<!http:/)(?<!https:)(?<!http:)"
    r"(?:[A-Za-z]:\\|/)(?:[^\s:'\"<>|,;=()\[\]{}]+[/\\])+[^\s:'\"<>|,;=()\[\]{}]*"
)


@cache
def _names() -> tuple[tuple[re.Pattern[str], str], ...]:
    pairs = []
    for read, mark in ((socket.gethostname, "<host>"), (getpass.getuser, "<user>")):
        try:
            name = read()
        except (OSError, KeyError, ImportError):
            continue
        if len(name) > 1:
            pairs.append((re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), mark))
    return tuple(pairs)


def redact(text: str) -> str:
    """The text with absolute paths, the user and the host replaced by <path>, <user>, <host>."""
    text = _PATH.sub("<path>", text)
    for pattern, mark in _names():
        text = pattern.sub(mark, text)
    return text
