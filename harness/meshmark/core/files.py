# SPDX-License-Identifier: Apache-2.0
"""Reading a file that somebody names, of a bounded size: a device such as /dev/zero has no end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meshmark.core.errors import BadInput

MOST = 64 << 20
"""Bytes of the largest file that is read whole."""

PART = 1 << 20


def parts(path: Path, most: int = MOST) -> Iterator[bytes]:
    """The bytes of a file, piece by piece; OSError where it can't be read, BadInput where it has more than these."""
    size = 0
    with open(path, "rb") as file:
        while data := file.read(PART):
            size += len(data)
            if size > most:
                raise BadInput(
                    f"{path} has more than {most >> 20} MiB, which is the most that is read: name another file"
                )
            yield data


def whole(path: Path, most: int = MOST) -> bytes:
    """The same in one piece."""
    return b"".join(parts(path, most))


def text(path: Path, most: int = MOST, errors: str = "strict") -> str:
    """The same as text of UTF-8, each line ended by \\n; ValueError where it is none."""
    return whole(path, most).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")
