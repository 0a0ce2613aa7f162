# SPDX-License-Identifier: Apache-2.0
"""Reading a file that somebody names, of a bounded size and in a bounded time: a device such as /dev/zero has no end,
and a pipe into which nobody writes has no beginning."""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from meshmark.core.errors import BadInput

MOST = 64 << 20
"""Bytes of the largest file that is read whole."""

PART = 1 << 20

WRITER = 5.0
"""Seconds in which somebody has to begin to write into a pipe."""


def opened(path: Path | str) -> BinaryIO:
    """The file, to be read as bytes; OSError where it can't be read. A pipe is waited for as long as somebody has it
    open to write, and not for ever where nobody has: `open` alone would wait for one."""
    if not hasattr(os, "O_NONBLOCK"):  # Windows, where no path names such a pipe
        return open(path, "rb")
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    try:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            _wait_for_writer(file)
        os.set_blocking(file.fileno(), True)
    except BaseException:
        file.close()
        raise
    return file


def _wait_for_writer(file: BinaryIO) -> None:
    looking = select.poll()
    looking.register(file, select.POLLIN)
    if looking.poll(1000 * WRITER):
        return
    with suppress(BlockingIOError):  # somebody has it open, and has written nothing yet
        os.read(file.fileno(), 1)
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))


def parts(path: Path, most: int = MOST) -> Iterator[bytes]:
    """The bytes of a file, piece by piece; OSError where it can't be read, BadInput where it has more than these."""
    size = 0
    with opened(path) as file:
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
    """The same as text of UTF-8, each line ended by \\n; ValueError if it is not UTF-8."""
    return whole(path, most).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")
