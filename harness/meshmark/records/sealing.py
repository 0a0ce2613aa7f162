# SPDX-License-Identifier: Apache-2.0
"""Tells whether the lines of a record file are those that its run wrote, also if the run did not end.

A run that is killed leaves no closing line, and a resumed run closes the file as it finds it. So each piece that is
written ends with a *seal*: the last field of its last line is a digest of every byte of the file up to there. A line
that was changed, removed, added or moved does not fit the seals after it. A file that is cut after a seal looks like
that of a run that was killed there.

A seal is a plain digest. It shows mistakes and edits by hand. It is not a protection against a person who computes new
seals."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

FIELD = "so_far"
"""The field that holds the digest."""

DIGITS = 16

_SEAL = re.compile(rf',"{FIELD}":"([0-9a-f]{{{DIGITS}}})"\}}\n')

LENGTH = len(f',"{FIELD}":""') + DIGITS + len("}\n")
"""Characters of a seal, at the end of its line."""

UNLIKE = "not as the run wrote: the file was changed; use it as it was written"

UNSEALED = (
    f"has no `{FIELD}`, and its run seals what it writes: the file was changed; use it as it was written"
)


def seal(before: Any, texts: Sequence[str]) -> bytes:
    """The bytes of these lines, with a seal on the last one. `before`: the hashlib object of all bytes before them,
    which is not changed."""
    data = "".join(texts).encode()
    assert data.endswith(b"}\n")
    data = data[: -len(b"}\n")]
    digest = before.copy()
    digest.update(data)
    return data + f',"{FIELD}":"{digest.hexdigest()[:DIGITS]}"}}\n'.encode()


def seal_of(text: str) -> str:
    """The digest in the seal of a line of text; "" if it has none."""
    found = _SEAL.fullmatch(text[-LENGTH:])
    return found[1] if found else ""


class Seals:
    """Checks the seals of one file, line by line from its beginning."""

    def __init__(self) -> None:
        self.promised = False
        """Whether the last run line is sealed: then each piece of its run is."""
        self.every = True
        """Whether each run line is."""
        self._digest = hashlib.sha256()
        self._number = 0
        self._good = 0
        """The number of the last line up to which all is as it was written."""
        self._told = False

    def add(self, text: str, record: Mapping[str, Any] | None) -> str:
        """Check one line; `record` is None if it could not be read. Gives the first problem of the file, once, else
        ""."""
        self._number += 1
        seal = seal_of(text)
        head, tail = (text[:-LENGTH], text[-LENGTH:]) if seal else (text, "")
        self._digest.update(head.encode())
        said, problem = record or {}, ""
        if seal:
            if self._digest.hexdigest()[:DIGITS] == seal:
                self._good = self._number
            else:
                first = self._good + 1
                some = f"lines {first} to {self._number} are" if first < self._number else "this line is"
                problem = f"{some} {UNLIKE}"
        elif self.promised and closes(said):
            problem = f"this line {UNSEALED}"
        if said.get("kind") == "run":
            self.promised = bool(seal)
            self.every = self.every and self.promised
        self._digest.update(tail.encode())
        if self._told:
            return ""
        self._told = bool(problem)
        return problem


def closes(record: Mapping[str, Any]) -> bool:
    """Whether a line is always the last one of a piece: a closing line, or the closing line of a case."""
    kind = record.get("kind")
    return kind == "end" or (kind == "conformance" and "seconds" in record)
