# SPDX-License-Identifier: Apache-2.0
"""Reads environment variables as the libraries under JAX read them.

`os.environ` is a copy that Python makes when it starts. `os.putenv` and a library's `setenv` change what code in C
reads, and not the copy. XLA reads its flags in C, and takes them from a file where the variable names one.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from meshmark.core.errors import BadInput

OF_LIBRARIES = ("NCCL_", "TPU_", "ROCR_", "HIP_")
"""Prefixes of the variables that libraries of an accelerator may set for themselves."""

FILE_OF_FLAGS = "XLA_FLAGS"
"""The variable that may name a file with flags."""

ELSEWHERE = re.compile(r"(?:^|\s)--?(?:flagfile|fromenv|tryfromenv)\b")
"""Matches the options by which a compiler takes further flags from a file, or from other variables."""

BLANKS = " \t\r\n"
"""What separates flags for XLA."""


def as_c_reads() -> dict[str, str]:
    """The variables of this process as code in C reads them; those of `os.environ` where that can't be asked."""
    try:
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            asked = library._NSGetEnviron
            asked.restype = ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p))
            entries = asked().contents
        else:
            entries = ctypes.POINTER(ctypes.c_char_p).in_dll(library, "environ")
    except (OSError, TypeError, ValueError, AttributeError):  # Windows
        return dict(os.environ)
    found: dict[str, str] = {}
    for number in range(1 << 20):
        entry = entries[number] if entries else None
        if entry is None:
            break
        name, sign, value = entry.partition(b"=")
        if sign:
            found.setdefault(os.fsdecode(name), os.fsdecode(value))
    return found


def hidden(prefixes: tuple[str, ...]) -> Iterator[str]:
    """A line for each variable with one of these prefixes that code in C reads otherwise than `os.environ` shows it.
    Those that an accelerator's libraries may set are left out."""
    here = as_c_reads()
    for name in sorted({*here, *os.environ}):
        if name.startswith(prefixes) and not name.startswith(OF_LIBRARIES):
            read, shown = here.get(name), os.environ.get(name)
            if read != shown:
                yield (
                    f"{name} is {_told(read)} for libraries, and {_told(shown)} in os.environ: set it before Python"
                    " starts"
                )


def _told(value: str | None) -> str:
    return "not set" if value is None else repr(value)[:200]


def flags_in(value: str) -> str:
    """The flags that XLA takes from a value of XLA_FLAGS: the value, or what is in the file that it names. XLA takes a
    value for a file if it does not begin with `-`. BadInput if the file can't be read a second time."""
    if not value or value.lstrip(BLANKS).startswith("-"):
        return value
    path = Path(value)
    try:
        if not path.is_file():
            raise BadInput(
                "XLA_FLAGS names a file of flags that is missing, or is no plain file: put the flags into the variable"
            )
        text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"XLA_FLAGS names a file of flags that can't be read ({why})") from None
    return " ".join(word for word in re.split(f"[{BLANKS}]+", text) if word)
