# SPDX-License-Identifier: Apache-2.0
"""Output streams whose failure does not end the process: a pipe without a reader, a full disk.

A run matters for its records and its exit code. If its output can't be written, it goes on without output.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any


class Steady:
    """A stream whose `write` and `flush` do not raise when the reader is gone or the disk is full. It is otherwise
    the same stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.lost = ""
        """Why nothing is written any more; "" while all is well. A reader that has seen enough is not a problem."""
        self.silent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> int:
        """Write, or drop what can't be written."""
        self._try("write", data)
        return len(data)

    def flush(self) -> None:
        """Flush, or drop what can't be written."""
        self._try("flush")

    def _try(self, what: str, *arguments: Any) -> None:
        if self.silent:
            return
        try:
            getattr(self._stream, what)(*arguments)
        except UnicodeEncodeError:  # a locale without a character
            encoding = getattr(self._stream, "encoding", None) or "ascii"
            (text,) = arguments
            self._try(what, text.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            self.silent = True
            if not isinstance(error, BrokenPipeError):
                self.lost = f"can't write the output: {os.strerror(error.errno or 0)}"
                with suppress(OSError):
                    os.write(2, f"meshmark: {self.lost}\n".encode())
            self._empty()
        except ValueError:  # closed
            self.silent = True

    def _empty(self) -> None:
        """Discard what the stream still holds: Python would try to write it at its end, and fail."""
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            self._stream.flush()


def standard_output() -> Steady:
    """This process's standard output, made steady. Calls `standard_streams` first."""
    standard_streams()
    if not isinstance(sys.stdout, Steady):
        sys.stdout = Steady(sys.stdout)  # type: ignore[assignment]
    return sys.stdout  # type: ignore[return-value]


def standard_streams() -> None:
    """Connect standard streams that were closed before Python began (`>&-`) to the null device. Otherwise the next
    files, such as the records, would get their descriptors, and a library's output would be written there."""
    while (made := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(made, True)
    os.close(made)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
