# SPDX-License-Identifier: Apache-2.0
"""Reads files that a user names, with bounds of size and time: a device such as /dev/zero never ends, and a pipe
without a writer never begins."""

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
    """The file, opened to read bytes; OSError if it can't be read. `open` alone would wait for ever for a writer of a
    pipe. Here a pipe that no writer opens within WRITER seconds is an OSError."""
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
    """The bytes of a file in pieces; OSError if it can't be read, BadInput if it has more than `most` bytes."""
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
    """All bytes of a file; raises what `parts` raises."""
    return b"".join(parts(path, most))


def read_text(path: Path, most: int = MOST, errors: str = "strict") -> str:
    """The text of a UTF-8 file, with \\n as the only end of line. Raises what `parts` raises, and ValueError if it is
    not UTF-8."""
    return whole(path, most).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")
