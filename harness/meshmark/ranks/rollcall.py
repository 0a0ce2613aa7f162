# SPDX-License-Identifier: Apache-2.0
"""The roll call of `meshmark launch`: which ranks joined the group, and the exit code of each rank's run.

A process that ends with exit code 0 may have run nothing: Python, a plugin or a shell can end it before the suite
begins, or hide the suite's exit code. So each rank writes two files into the launcher's directory: one after joining,
and one with the exit code of its run. The launcher trusts exit codes of 0 only if every rank has both files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from meshmark.ranks.handover import launcher_directory

_JOINED, _ENDED = "joined", "ended"

_RUNS = re.compile(r"\b(meshmark|harness)\s+(test|bench|hunt)\b|\bpytest\b.*\bconformance\b", re.DOTALL)
"""Commands that run the suite. Other commands may be launched too, and need not join."""

_ASKS = re.compile(
    r"(?:^|\s)(-h|--help|-V|--version|--fixtures|--funcargs|--fixtures-per-test|--markers)(?=\s|$)"
)
"""Options with which a command only prints a text, so that no rank joins."""


def join(rank: int, size: int) -> None:
    """Tell the launcher, if there is one, that this process has joined as rank `rank` of `size`."""
    _write(_JOINED, {"rank": rank, "size": size})


def report_exit_code(rank: int, code: int) -> None:
    """Tell the launcher, if there is one, the exit code of this rank's run."""
    _write(_ENDED, {"rank": rank, "code": code})


def _write(what: str, said: dict[str, int]) -> None:
    if directory := launcher_directory():
        with suppress(OSError):  # the launcher reports a missing file
            (directory / f"{what}.{os.getpid()}").write_text(json.dumps(said))


def clear_rollcall(directory: Path) -> None:
    """Remove the files of the previous group. The launcher calls it."""
    for what in (_JOINED, _ENDED):
        for path in directory.glob(f"{what}.*"):
            path.unlink(missing_ok=True)


def find_untrusted_endings(directory: Path, size: int, command: Sequence[str]) -> list[str]:
    """The reasons why the launcher does not trust exit codes of 0, one line each; [] if it trusts them."""
    joined, ended = _read(directory, _JOINED), _read(directory, _ENDED)
    if not joined:
        told = "no rank joined the others: the command ended before the suite began, and nothing was run"
        return [told] if _runs(command) else []
    return [*_of_joining(joined, size), *_of_ends(joined, ended)]


def _runs(command: Sequence[str]) -> bool:
    text = " ".join(command)
    return bool(_RUNS.search(text)) and not _ASKS.search(text)


def _of_joining(joined: Sequence[dict[str, Any]], size: int) -> Iterator[str]:
    numbers = [one["rank"] for one in joined]
    if missing := [str(rank) for rank in range(size) if rank not in numbers]:
        yield f"rank{'s' * (len(missing) > 1)} {', '.join(missing)} of {size} never joined the others"
    for one in joined:
        if one["size"] != size:
            yield f"rank {one['rank']} joined a group of {one['size']} processes, and {size} were started"
    for rank in dict.fromkeys(rank for rank in numbers if numbers.count(rank) > 1):
        yield f"{numbers.count(rank)} processes joined as rank {rank}"


def _of_ends(joined: Sequence[dict[str, Any]], ended: Sequence[dict[str, Any]]) -> Iterator[str]:
    for rank in sorted({one["rank"] for one in joined}):
        codes = [one["code"] for one in ended if one["rank"] == rank]
        if not codes:
            yield f"rank {rank} joined, and ended with exit code 0 before its run did"
        elif any(codes):
            yield f"the run of rank {rank} ended with exit code {max(codes)}, and its process with 0"


def _read(directory: Path, what: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted(directory.glob(f"{what}.*")):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text()))
    return sorted(found, key=lambda one: (one["rank"], one.get("size", 0)))
