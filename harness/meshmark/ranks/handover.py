# SPDX-License-Identifier: Apache-2.0
"""What `meshmark launch` and the ranks that it starts hand each other: two variables, and files in a directory of the
launcher's.

A rank says there which files it writes, and asks for another group where a case has ended this one. The launcher
tells the ranks of the next group how those before them ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

LAUNCHED = "MESHMARK_LAUNCH"
"""The variable that names the launcher's directory."""

ENDED = "MESHMARK_ENDED"
"""The variable that says how the ranks of the group before this one ended, as JSON: rank -> how. It is set where the
launcher goes on after it."""

_AGAIN = "again"


class Marker:
    """A small file, FILE.rankK.at, that names the case that a rank runs. If all ranks die, the run can still name the
    case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def read(self) -> dict[str, Any]:
        """The case, and how often it was begun; {} outside of one."""
        try:
            found = json.loads(os.pread(self._file, 1 << 16, 0) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def set(self, case: str, times: int = 1) -> None:
        """Name a case."""
        data = json.dumps({"case": case, "times": times}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)

    def clear(self) -> None:
        """In no case."""
        os.ftruncate(self._file, 0)

    def remove(self) -> None:
        """Nothing is left to go on with."""
        with suppress(OSError):
            os.close(self._file)
            self.path.unlink()


# A rank's side ----------------------------------------------------------------------------------------------


def launcher_directory() -> Path | None:
    """The directory of the launcher that started this rank; None where something else did."""
    directory = os.environ.get(LAUNCHED)
    return Path(directory) if directory else None


def goes_on() -> bool:
    """Whether the launcher has started this group to go on after another one."""
    return LAUNCHED in os.environ and ENDED in os.environ


def announce(rank: int, marker: Path, record: Path) -> None:
    """Tell the launcher, if there is one, which files this rank writes."""
    if directory := launcher_directory():
        files = {"at": str(marker), "record": str(record)}
        (directory / f"rank{rank}.json").write_text(json.dumps(files))


def ask_for_another_group() -> None:
    """Tell the launcher, if there is one, that a case has ended this group and more may follow."""
    if directory := launcher_directory():
        with suppress(OSError):
            (directory / _AGAIN).touch()


def describe_last_group() -> str:
    """How the ranks of the group before this one ended, in words; "" where there was none."""
    text = os.environ.get(ENDED, "")
    if not text:
        return ""
    try:
        return ", ".join(f"rank {rank} by {how}" for rank, how in json.loads(text).items())
    except (ValueError, AttributeError):
        return "killed"


# The launcher's side ----------------------------------------------------------------------------------------


def of_next_group(ended: Mapping[int, str] | None) -> dict[str, str]:
    """The variable that tells ranks how the group before them ended; {} where there was none."""
    return {} if ended is None else {ENDED: json.dumps(dict(ended))}


def begin_group(directory: Path) -> None:
    """Forget what an earlier group has asked for."""
    (directory / _AGAIN).unlink(missing_ok=True)


def asks_for_another_group(directory: Path) -> bool:
    """Whether a case has ended the group: a rank says so, or all have died in one."""
    return (directory / _AGAIN).exists() or any(_size(files["at"]) > 0 for files in _announced(directory))


def bytes_recorded(directory: Path) -> int:
    """Bytes of the records of all ranks: they grow with each verdict."""
    return sum(_size(files["record"]) for files in _announced(directory))


def _announced(directory: Path) -> list[dict[str, str]]:
    found = []
    for path in directory.glob("rank*.json"):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text()))
    return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
