# SPDX-License-Identifier: Apache-2.0
"""The communication between `meshmark launch` and its ranks: two variables, and files in the launcher's directory.

A rank writes there which files it uses. It asks there for another group if a case has ended this one. The launcher
tells the ranks of the next group how the previous ones ended.
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
"""The variable that has the ends of the previous group's ranks, as a JSON object from rank to text. It is set if the
launcher starts another group after one that ended."""

_AGAIN = "again"


class Marker:
    """A small file, FILE.rankK.at, that names the case that a rank runs. If all ranks die, it still names the case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def read(self) -> dict[str, Any]:
        """{"case": its name, "times": how often it was begun}; {} if the rank is in no case."""
        try:
            found = json.loads(os.pread(self._file, 1 << 16, 0) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def set(self, case: str, times: int = 1) -> None:
        """Write the case that begins, and how often it was begun."""
        data = json.dumps({"case": case, "times": times}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)

    def clear(self) -> None:
        """Note that the rank is in no case."""
        os.ftruncate(self._file, 0)

    def remove(self) -> None:
        """Remove the file, because the run is complete."""
        with suppress(OSError):
            os.close(self._file)
            self.path.unlink()


# A rank's side ----------------------------------------------------------------------------------------------


def launcher_directory() -> Path | None:
    """The directory of the launcher that started this rank; None if it was not started by the launcher."""
    directory = os.environ.get(LAUNCHED)
    return Path(directory) if directory else None


def goes_on() -> bool:
    """Whether the launcher has started this group to continue after another one."""
    return LAUNCHED in os.environ and ENDED in os.environ


def announce(rank: int, marker: Path, record: Path) -> None:
    """Tell the launcher, if there is one, the paths of the files that this rank writes."""
    if directory := launcher_directory():
        files = {"at": str(marker), "record": str(record)}
        (directory / f"rank{rank}.json").write_text(json.dumps(files))


def ask_for_another_group() -> None:
    """Tell the launcher, if there is one, that a case has ended this group and more may follow."""
    if directory := launcher_directory():
        with suppress(OSError):
            (directory / _AGAIN).touch()


def describe_last_group() -> str:
    """A text on how the ranks of the previous group ended; "" if there was none."""
    text = os.environ.get(ENDED, "")
    if not text:
        return ""
    try:
        return ", ".join(f"rank {rank} by {how}" for rank, how in json.loads(text).items())
    except (ValueError, AttributeError):
        return "killed"


# The launcher's side ----------------------------------------------------------------------------------------


def of_next_group(ended: Mapping[int, str] | None) -> dict[str, str]:
    """The variable that tells ranks how the previous group ended; {} if there was none."""
    return {} if ended is None else {ENDED: json.dumps(dict(ended))}


def begin_group(directory: Path) -> None:
    """Remove the request of an earlier group."""
    (directory / _AGAIN).unlink(missing_ok=True)


def asks_for_another_group(directory: Path) -> bool:
    """Whether a case has ended the group: a rank has asked for another group, or a rank's marker still names a case."""
    return (directory / _AGAIN).exists() or any(
        _file_size(files["at"]) > 0 for files in _announced(directory)
    )


def bytes_recorded(directory: Path) -> int:
    """The size of all ranks' records in bytes. It grows with each verdict."""
    return sum(_file_size(files["record"]) for files in _announced(directory))


def _announced(directory: Path) -> list[dict[str, str]]:
    found = []
    for path in directory.glob("rank*.json"):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text()))
    return found


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
