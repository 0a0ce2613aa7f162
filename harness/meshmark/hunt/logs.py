# SPDX-License-Identifier: Apache-2.0
"""The record of a hunt: a head and one JSON line per program. --resume reads it.

A hunt may end at any moment, so the last line may be incomplete. Its program is judged again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from meshmark.core import files, installation
from meshmark.core.errors import BadInput
from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.versions import GENERATOR, vocabulary
from meshmark.program_data.program import ProgramData
from meshmark.records import checking
from meshmark.records.reading import MOST_BYTES


class Line(TypedDict):
    """The line of one program. The fields from `differences` on stand only where the program is wrong in some mode."""

    n: int
    """The number of the program."""
    begins: NotRequired[bool]
    """In a hunt of several processes: whether the line only says that the program begins; it has its data too."""
    s: NotRequired[float]
    """The seconds of judging it."""
    cpu: NotRequired[float]
    """The worker's processor time, in seconds."""
    restart_s: NotRequired[float]
    """The seconds of waiting for a worker."""
    invalid: NotRequired[str]
    """Why the program is no right program, such as one that JAX refuses on one device; it is not judged."""
    not_run: NotRequired[list[str]]
    """The reasons of the modes that were not run."""
    ops: NotRequired[list[str]]
    families: NotRequired[dict[str, str]]
    """The family or form of each operation."""
    transform: NotRequired[str]
    differences: NotRequired[list[DifferenceData]]
    program: NotRequired[ProgramData]
    slow: NotRequired[bool]
    """Whether the program ran out of time once, and not twice."""
    once: NotRequired[bool]
    """Whether a worker died of it without a word once, and not twice."""
    light: NotRequired[bool]
    """Whether the difference does not occur with default compiler options."""
    cures: NotRequired[list[str]]
    group: NotRequired[str]
    """The key of the group that the finding belongs to. The fields below stand only where it was shrunk."""
    shrunk: NotRequired[ProgramData]
    shrunk_difference: NotRequired[DifferenceData]
    tried: NotRequired[int]
    shrink_s: NotRequired[float]
    minute: NotRequired[float]
    """The time since the start of the hunt."""


FORMAT = 1
"""The version of the lines' format. A change that reads older lines differently raises it."""

SAME = {
    "seed": "--seed {}",
    "topology": "--topology {}",
    "devices": "--num-devices {}",
    "backend": "JAX_PLATFORMS={}",
    "ranks": "{} processes",
    "weights": "the weights {}",
    "oracles": "--oracles {}",
    "against": "--against {}",
    "jax": "JAX {}",
    "generator": "version {} of the generator",
    "vocabulary": "the generator that it was drawn by",
}
"""The fields of the head that must be the same when a hunt is resumed, and how to get an older value."""


BEFORE = {"ranks": 1, "weights": {}, "backend": "cpu", "oracles": "turns", "against": ""}
"""The values of fields that older records lack."""


def make_head(
    seed: int,
    topology: str,
    devices: int,
    ranks: int = 1,
    weights: Mapping[str, float] | None = None,
    backend: str = "cpu",
    oracles: str = "turns",
    against: str = "",
) -> dict[str, Any]:
    """The first line of a record: all that decides which program has which number, and how it is judged.

    ranks: how many processes judge each program together. devices: the number of devices of all ranks. against: the
    environment with another release of JAX, as it was named."""
    return {
        "hunt": FORMAT,
        "seed": seed,
        "topology": topology,
        "devices": devices,
        "backend": backend,
        "jax": version("jax"),
        "generator": GENERATOR,
        "vocabulary": vocabulary(),
        "ranks": ranks,
        "weights": dict(weights or {}),
        "oracles": oracles,
        "against": against,
    }


def stamp(now: Mapping[str, Any]) -> dict[str, Any]:
    """A head with the current time in UTC as "started", and the state of the suite as "suite": its version, its commit,
    whether its files are as committed, and their digest."""
    return dict(now) | {"started": _utc(), "suite": installation.suite()}


def mark_resumption() -> dict[str, Any]:
    """The line of a record before the programs of a resumed hunt: the time in UTC, and the state of the suite."""
    return {"resumed": _utc(), "suite": installation.suite()}


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_log(path: Path, now: Mapping[str, Any]) -> tuple[list[Line], int]:
    """(the lines after the head, the number of bytes in whole lines) of a record that a hunt with head `now` resumes.

    BadInput if it is not a record, or if a field of SAME differs."""
    lines, size = _whole(path)
    if not lines:
        raise BadInput(f"{path} is not a record of a hunt: it has no whole line; hunt anew with --record")
    for name, mend in SAME.items():
        before = lines[0].get(name, BEFORE.get(name, ""))
        if before != now[name]:
            was, is_now = ("none" if value in ("", None, {}) else value for value in (before, now[name]))
            raise BadInput(
                f"{path} is of {name} {was} and not {is_now}: go on with {mend.format(was)}, or hunt anew"
            )
    return [cast(Line, line) for line in lines[1:] if "n" in line], size


def read_lines(path: Path) -> list[Line]:
    """The lines after the head of any record of a hunt; BadInput if it is not such a record."""
    return [cast(Line, line) for line in _whole(path)[0][1:] if "n" in line and "begins" not in line]


_check_line = checking.check_of(Line)


def _find_problem(line: Any, first: bool) -> str:
    """The problem with a line of a record; "" if it has none."""
    if not isinstance(line, dict):
        return "is not a JSON object"
    if first and line.get("hunt") != FORMAT:
        return f"must have the field hunt, {FORMAT}"
    return _check_line(line) if "n" in line else ""


def _whole(path: Path) -> tuple[list[dict[str, Any]], int]:
    """(all lines, the number of bytes in whole lines)."""
    try:
        data = files.whole(path, MOST_BYTES)
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}") from None
    whole = data[: data.rfind(b"\n") + 1]
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if problem := _find_problem(line, first=number == 1):
            raise BadInput(
                f"{path} is not a record of a hunt (line {number} {problem}): name a file that --record of"
                " `meshmark hunt` wrote"
            )
        lines.append(line)
    return lines, len(whole)
