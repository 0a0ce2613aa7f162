# SPDX-License-Identifier: Apache-2.0
"""Levels: frozen, versioned must-pass lists.

The list of a level on n devices holds the cases that the standard profile selects for that level, without optional
capabilities (`by_rule`). The table grows, so each list is frozen: `data/must_pass/v<version>/<level>.txt` holds every
case for 4, 8 and 16 devices, and the number of cases and a digest for the other counts of DIGESTS. Meshes depend on
the number of devices, so each count has its own list, and one full list takes up to 35 kB. The most common counts
have full lists: their old versions stay available when the table changes. For the other counts of DIGESTS, some version
of the table must give the list of the digest. If none does, the table has drifted from that version of the lists, and
only the suite's commit of that time gives the list. Any other count follows the rule, and a statement names that. Old
versions stay; `write_must_pass_lists` makes a new one.

L4 is the level of several processes. Its list depends on their number too. It holds everything that the standard
profile without optional capabilities selects for these devices and processes: L0 to L3 over processes, and the
operations that need several. A run over several processes can only meet L4, and a run of one process can't meet L4.

meshmark.levels.statements makes the statement that a run's records support.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.core.text import counted
from meshmark.operations import OPERATIONS, additions, cases
from meshmark.operations import versions as table_versions
from meshmark.operations.cases import Case
from meshmark.operations.selection import LEVELS, Selection

DIRECTORY = Path(__file__).resolve().parent / "data" / "must_pass"
LISTED = (4, 8, 16)
"""Numbers of devices with a full frozen list."""

DIGESTS = (*range(1, 17), 24, 32, 36, 48, 64, 72, 128, 256, 512, 1024)
"""Numbers of devices with a frozen digest."""

SEVERAL = "L4"
"""The level of runs over several processes. Its lists depend on the numbers of devices and processes."""

LISTED_OVER = ((8, 2), (8, 4))
"""(devices, processes) with a full frozen list."""

DIGESTS_OVER = tuple(
    sorted(
        (each * processes, processes)
        for each, over in (
            (1, (2, 3, 4, 8, 16)),
            (2, (2, 3, 4, 8)),
            (3, (2,)),
            (4, (2, 3, 4, 8, 16, 32)),
            (8, (2, 4, 8, 16, 32)),
        )
        for processes in over
    )
)
"""(devices, processes) with a frozen digest: in general 1, 2, 4 or 8 devices per process, as hosts have them."""

MOST_DEVICES = 16384
"""The most devices for which a list is made."""

_HEAD = re.compile(r"devices (\d+)(?: over (\d+) processes)?: (\d+) cases, sha256 ([0-9a-f]{64})")


class LevelError(BadInput, ValueError):
    """A list is unavailable, or records support no statement; the message is one line."""


# Lists ------------------------------------------------------------------------------------------------------


def names(processes: int = 1) -> tuple[str, ...]:
    """The levels in the statement of a run over this number of processes, lowest first."""
    if processes > 1:
        return (SEVERAL,)
    return tuple(level for level in LEVELS if level != SEVERAL and _has_cases(level))


@cache
def _has_cases(level: str) -> bool:
    """Whether the table has a case of a level. Every run needs the answer, so this looks for one case, first among the
    operations of the level. It walks the whole table only if a variant alone can have the level."""
    likely = tuple(name for name, operation in OPERATIONS.items() if operation.level == level)
    chosen = Selection(levels=(level,), covering=False)
    return any(
        next(cases.cases(selection, LISTED[0]), None) is not None
        for selection in (replace(chosen, operations=likely), chosen, replace(chosen, covering=True))
    )


def by_rule(level: str, devices: int, processes: int = 1, table: int | None = None) -> list[str]:
    """The case ids that the table gives for a level on these numbers of devices and processes, sorted. `table` is the
    version of the table (by default the newest)."""
    return _by_level(devices, processes, table).get(level, [])


@lru_cache(maxsize=16)
def _by_level(devices: int, processes: int, table: int | None) -> dict[str, list[str]]:
    """The sorted case ids of every level, from one walk of the table."""
    version = table_versions.as_of(table)
    found: dict[str, list[str]] = {}
    for case in filter(version.has, _standard(version.select(Selection(processes=processes)), devices)):
        found.setdefault(case.level if processes == 1 else SEVERAL, []).append(case.id)
    return {level: sorted(ids) for level, ids in found.items()}


@lru_cache(maxsize=3)
def _standard(selection: Selection, devices: int) -> tuple[Case, ...]:
    """The selected cases of the present table. The search for a list that is kept as a digest tries several versions
    of the table, and one walk serves those with the same rules for the choice of cases."""
    return tuple(cases.cases(selection, devices))


def spell_place(devices: int, processes: int = 1) -> str:
    """8 devices, or 8 devices over 2 processes."""
    return counted(devices, "device") + (f" over {processes} processes" if processes > 1 else "")


def digest_case_ids(ids: Iterable[str]) -> str:
    """SHA-256 of the sorted case ids, one per line."""
    return hashlib.sha256("".join(f"{name}\n" for name in sorted(ids)).encode()).hexdigest()


@dataclass(frozen=True)
class Frozen:
    """The entry of one level on one number of devices and processes in a version."""

    count: int
    sha256: str
    cases: tuple[str, ...] = ()
    """Sorted; empty if only the digest is kept."""


@dataclass(frozen=True)
class MustPass:
    """The list of a level on a number of devices and processes."""

    level: str
    devices: int
    version: int
    cases: tuple[str, ...]
    sha256: str
    frozen: bool
    """Whether the version fixes the list; False: the table's rule alone gives it."""
    processes: int = 1


def versions(directory: Path = DIRECTORY) -> tuple[int, ...]:
    """The available versions, oldest first; LevelError if there is none."""
    found = sorted(int(p.name[1:]) for p in directory.glob("v*") if re.fullmatch(r"v[1-9]\d{0,5}", p.name))
    if not found:
        raise LevelError(f"no must-pass list in {directory}: use a checkout of the suite")
    return tuple(found)


@cache
def read_must_pass_lists(version: int, directory: Path = DIRECTORY) -> dict[tuple[str, int, int], Frozen]:
    """The lists of a version by (level, devices, processes); LevelError if a file was changed after it was written."""
    if version not in versions(directory):
        known = ", ".join(map(str, versions(directory)))
        raise LevelError(f"no version {version} of the must-pass lists: choose from {known}")
    found: dict[tuple[str, int, int], Frozen] = {}
    for path in sorted((directory / f"v{version}").glob("L*.txt")):
        sections: list[tuple[str, list[str]]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("devices "):
                sections.append((line, []))
            elif line and not line.startswith("#"):
                if not sections:
                    raise LevelError(f"{path}: a line before `devices N: ...`: restore the file")
                sections[-1][1].append(line)
        for head, lines in sections:
            match = _HEAD.fullmatch(head)
            listed = tuple(sorted(unpacked(lines)))
            if not match or (listed and (len(listed), digest_case_ids(listed)) != (int(match[3]), match[4])):
                raise LevelError(f"{path}: {head[:60]!r} does not match the lines below it: restore the file")
            found[path.stem, int(match[1]), int(match[2] or 1)] = Frozen(int(match[3]), match[4], listed)
    return found


def must_pass(
    level: str,
    devices: int,
    version: int | None = None,
    directory: Path = DIRECTORY,
    processes: int = 1,
    table: int | None = None,
) -> MustPass:
    """The list of a level on these numbers of devices and processes, of the newest version or the named one.

    If a version keeps only a digest, the list comes from the version of the case table that gives this digest. A list
    that is not frozen follows the rule of version `table` of the case table (by default the newest).

    LevelError for a level that such a run does not have, for devices that the processes can't share equally, and if no
    known version of the case table gives the digest.
    """
    if not 1 <= devices <= MOST_DEVICES:
        raise LevelError(f"no must-pass list for {devices} devices: use 1 to {MOST_DEVICES}")
    if level == SEVERAL and processes < 2:
        raise LevelError(f"{SEVERAL} is for several processes: give their number (--processes)")
    if level != SEVERAL and processes > 1:
        raise LevelError(f"{level} is for one process: use {SEVERAL}, the only list for several")
    if devices % processes:
        raise LevelError(f"{processes} processes can't share {devices} devices equally")
    version = versions(directory)[-1] if version is None else version
    frozen = read_must_pass_lists(version, directory).get((level, devices, processes))
    if frozen is not None and (frozen.cases or not frozen.count):
        return MustPass(level, devices, version, frozen.cases, frozen.sha256, True, processes)
    newest = table_versions.TABLE_VERSION
    for number in dict.fromkeys((newest if table is None else table, *range(newest, 0, -1))):
        listed = tuple(by_rule(level, devices, processes, number))
        sha256 = digest_case_ids(listed)
        if frozen is None or frozen.sha256 == sha256:
            return MustPass(level, devices, version, listed, sha256, frozen is not None, processes)
    raise LevelError(
        f"the case table has drifted from version {version} of {level} on {spell_place(devices, processes)}, of which"
        " only a digest is kept: use the suite's commit of that version, or name a newer version"
    )


def kept() -> tuple[tuple[str, int, int], ...]:
    """(level, devices, processes) of every list that a new version keeps, in its order."""
    return (
        *((level, devices, 1) for level in names() for devices in DIGESTS),
        *((SEVERAL, devices, processes) for devices, processes in DIGESTS_OVER),
    )


def find_missing_levels(version: int | None = None, directory: Path = DIRECTORY) -> tuple[str, ...]:
    """The levels without any list in a version (by default the newest), because they are newer than it."""
    version = versions(directory)[-1] if version is None else version
    held = {level for level, _, _ in read_must_pass_lists(version, directory)}
    return tuple(dict.fromkeys(level for level, _, _ in kept() if level not in held))


def find_drift(
    version: int | None = None,
    directory: Path = DIRECTORY,
    places: Collection[tuple[int, int]] | None = None,
    older: bool = True,
) -> list[str]:
    """How the table has drifted from a version (by default the newest), one line per list that neither the present
    table nor an older version of it gives.

    places: the (devices, processes) to look at; by default all that a version keeps, which takes minutes.
    older: whether an older version of the table may give a list. A new version of the lists needs the present table.
    Levels that the version lacks (`find_missing_levels`) are not included."""
    version = versions(directory)[-1] if version is None else version
    frozen, found = read_must_pass_lists(version, directory), []
    late = find_missing_levels(version, directory)
    for level, devices, processes in sorted({*kept(), *frozen}, key=lambda key: (key[1:], key[0])):
        if level in late or (places is not None and (devices, processes) not in places):
            continue
        was, now = frozen.get((level, devices, processes)), by_rule(level, devices, processes)
        where = f"{level} on {spell_place(devices, processes)}"
        if was is None:
            found.append(f"{where}: not in version {version}")
        elif was.sha256 != digest_case_ids(now) and was.sha256 not in (
            digest_case_ids(by_rule(level, devices, processes, table))
            for table in range(table_versions.TABLE_VERSION - 1 if older else 0, 0, -1)
        ):
            new, gone = sorted({*now} - {*was.cases}), sorted({*was.cases} - {*now})
            named = f" (+{len(new)} -{len(gone)}, such as {(new or gone)[0]})" if was.cases else ""
            found.append(
                f"{where}: {counted(len(now), 'case')} instead of {was.count} of version {version}{named}"
            )
    return found


def write_must_pass_lists(directory: Path = DIRECTORY) -> Path:
    """Write the table's lists as a new version and return its directory. LevelError if nothing has changed.

    The operations of the lists get the version of the table that added them (meshmark.operations.additions)."""
    try:
        newest = versions(directory)[-1]
    except LevelError:
        newest = 0
    if (
        newest
        and not find_missing_levels(newest, directory)
        and not find_drift(newest, directory, older=False)
    ):
        raise LevelError(f"version {newest} of the must-pass lists is up to date: nothing to write")
    files: dict[str, list[str]] = {}
    for level, devices, processes in sorted(kept(), key=lambda key: key[1:]):
        ids = by_rule(level, devices, processes)
        lines = files.setdefault(level, _comment(level, newest + 1))
        lines.append(_head(devices, processes, ids))
        if devices in LISTED if processes == 1 else (devices, processes) in LISTED_OVER:
            lines += packed(ids)
    made = directory / f"v{newest + 1}"
    made.mkdir(parents=True)
    for level, lines in files.items():
        (made / f"{level}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    read_must_pass_lists.cache_clear()
    read_must_pass_lists(newest + 1, directory)
    if directory == DIRECTORY:
        additions.append_operations(OPERATIONS, table_versions.TABLE_VERSION)
    return made


def _head(devices: int, processes: int, ids: list[str]) -> str:
    """The line before the cases of one entry: a format of its own, that `_HEAD` reads."""
    over = f" over {processes} processes" if processes > 1 else ""
    return f"devices {devices}{over}: {len(ids)} cases, sha256 {digest_case_ids(ids)}"


def _comment(level: str, version: int) -> list[str]:
    return [
        f"# Must-pass list of {level}, version {version}: frozen. meshmark.levels.must_pass says what it means; never",
        "# edit it, `meshmark levels --write` makes a new version. A line: operation, variants, modes, meshes,",
        "# dtype:size; every combination is a case.",
    ]


def packed(ids: Sequence[str]) -> list[str]:
    """Case ids as lines of factors (see `unpacked`). Ids that differ in only one part are put together, first
    by mode, then by dtype and size, by mesh and by variant."""
    rows = []
    for name in ids:
        operation, variant, mode, mesh, dtype, size = name.split("/")
        rows.append((operation, (variant,), (mode,), (mesh,), (f"{dtype}:{size}",)))
    for part in (2, 4, 3, 1):
        merged: dict[tuple[Any, ...], list[str]] = {}
        for row in rows:
            merged.setdefault((*row[:part], *row[part + 1 :]), []).extend(row[part])
        rows = [(*k[:part], tuple(v), *k[part:]) for k, v in merged.items()]  # type: ignore[misc]
    return sorted(" ".join([row[0], *(";".join(column) for column in row[1:])]) for row in rows)


def unpacked(lines: Iterable[str]) -> Iterator[str]:
    """The case ids of the lines of `packed`; LevelError for a line of another form."""
    for line in lines:
        columns = line.split(" ")
        if len(columns) != 5:
            raise LevelError(f"{line[:60]!r} is not a line of a must-pass list: restore the file")
        operation, variants, modes, meshes, kinds = columns
        for variant in variants.split(";"):
            for mode in modes.split(";"):
                for mesh in meshes.split(";"):
                    for kind in kinds.split(";"):
                        yield "/".join([operation, variant, mode, mesh, *kind.split(":")])
