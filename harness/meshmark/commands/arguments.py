# SPDX-License-Identifier: Apache-2.0
"""Types of command line arguments: each takes the text and gives the value, or a complaint of one line."""

from __future__ import annotations

import argparse
from pathlib import Path

from packaging.version import InvalidVersion, Version

MOST_DEVICES = 1 << 14
"""The most devices that an option takes; the largest topology of this suite has 8,192."""


def path(text: str) -> Path:
    """A file or directory."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!a} names no file")
    return Path(text)


def natural(text: str) -> int:
    """A number from 0 on."""
    return _parse_number(text, 0)


def positive(text: str) -> int:
    """A number from 1 on."""
    return _parse_number(text, 1)


def devices(text: str) -> int:
    """A number of devices, up to MOST_DEVICES: meshes of more would take for ever to list."""
    return _parse_number(text, 1, MOST_DEVICES)


def release(text: str) -> str:
    """A release of JAX, such as 0.4.30."""
    try:
        return str(Version(text))
    except InvalidVersion:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a release: write one such as 0.4.30"
        ) from None


def _parse_number(text: str, least: int, most: int = 10**9 - 1) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        rest = "on" if most >= 10**9 - 1 else f"to {most}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} {rest}")
    return int(text)


def seconds(text: str) -> float:
    """A number above 0, up to a million."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to 1000000")
    return value
