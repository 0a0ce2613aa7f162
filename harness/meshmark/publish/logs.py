# SPDX-License-Identifier: Apache-2.0
"""Logs of a submission: the output of a run, cleaned like records, packed, and hashed in the manifest.

A log is for human readers. It proves nothing, because a person who can forge records can forge a log. The counts at its
end are compared with the records, which finds the log of another run. A log is text of whole lines without control
characters, and names no person, host or place.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from meshmark.core import files
from meshmark.core.errors import BadInput
from meshmark.core.text import printable
from meshmark.core.verdicts import VERDICTS
from meshmark.publish import bundles, publishable
from meshmark.publish.bundles import File, Room

NAME = re.compile(r"log(-[1-9]\d?)?\.txt\.gz")
"""Matches the names of logs in a submission: log.txt.gz, log-2.txt.gz ..."""

MOST = 16 << 20
"""The most bytes of one log, unpacked."""

LONGEST = 2000
"""Characters of the longest line; longer lines are cut."""

LONGER = 2000
"""Characters by which cleaning may lengthen a line: <path> is longer than /a."""

_CLOSING = re.compile(r"(\d{1,9}) cases: (.*)")
"""The last line that a run prints: 5120 cases: 5100 pass, 20 known."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Terminal escape sequences: colours, cursor movements and window titles."""


class LogError(BadInput, ValueError):
    """A log that can't be attached; the message is one line."""


def name(number: int) -> str:
    """The name of the log with this number, from 1 on."""
    return "log.txt.gz" if number == 1 else f"log-{number}.txt.gz"


def pack(path: Path, versions: Collection[str]) -> bytes:
    """The log as a submission holds it: each line cleaned as a record's text, gzip without a time.

    versions: four-part version numbers, which are not addresses. LogError if it can't be read, is empty, or too large.
    """
    try:
        with files.opened(path) as file:
            data = file.read(MOST + 1)
    except OSError as error:
        raise LogError(f"can't read the log {path}: {os.strerror(error.errno or 0)}") from None
    if len(data) > MOST:
        raise LogError(f"the log {path} has more than {MOST >> 20} MiB: attach its end")
    if not data.strip():
        raise LogError(f"the log {path} is empty: attach what the run printed")
    text = _ESCAPE.sub("", data.decode(errors="replace"))
    lines = [line.rpartition("\r")[2] for line in re.split(r"\r?\n", text.rstrip())]
    cleaned = [publishable.clean(printable(line.replace("\t", "    "))[:LONGEST], versions) for line in lines]
    return gzip.compress("".join(line + "\n" for line in cleaned).encode(), 9, mtime=0)


def read_closing_counts(file: File) -> dict[str, int]:
    """What the log's last closing line counts: `cases`, and each verdict that it names. {} if there is no such line; a
    narrow terminal may have cut it."""
    found: dict[str, int] = {}
    for _, data in bundles.whole_lines(file, Room()):
        if isinstance(data, bytes) and (match := _CLOSING.match(data.decode(errors="replace"))):
            verdicts = re.findall(r"(\d{1,9}) (\w+)", match[2].partition("(")[0])
            found = {"cases": int(match[1])} | {name: int(n) for n, name in verdicts if name in VERDICTS}
    return found


def find_wrong_log_lines(file: File, versions: Collection[str], room: Room) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of a submitted log; its bytes are taken from `room`."""
    for number, data in bundles.whole_lines(file, room):
        if isinstance(data, str):
            yield number, data
            continue
        line = data.removesuffix(b"\n").decode(errors="replace")
        if len(line) > LONGEST + LONGER or not line.isprintable():
            yield number, "a line that `submit` does not write: submit again, which cleans the log"
            continue
        for what, hit in publishable.find_private_text(line, versions):
            yield number, f"the log holds {what}: {hit!a}: submit again, which replaces it"
