# SPDX-License-Identifier: Apache-2.0
"""Types of command line arguments: each takes the text and gives the value, or a complaint of one line."""

from __future__ import annotations

import argparse
from pathlib import Path


def path(text: str) -> Path:
    """A file or directory."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!a} names no file")
    return Path(text)


def natural(text: str) -> int:
    """A number from 0 on."""
    return _number(text, 0)


def positive(text: str) -> int:
    """A number from 1 on."""
    return _number(text, 1)


def _number(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no such number: use one from {least} on")
    return int(text)


def seconds(text: str) -> float:
    """A number above 0, up to a million."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no such number: use one above 0")
    return value
