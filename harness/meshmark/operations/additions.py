# SPDX-License-Identifier: Apache-2.0
"""The version of the case table that added an operation, or a choice of an option of an older operation.

`data/added.tsv` holds one row per operation: the version and the name. A row with two more columns is a choice that an
older operation got later: the option and its value (`*` stands for every value). What no row names is new: it belongs
to the newest version. `meshmark levels --write`, which freezes the lists, adds the rows of new operations. The row of a
new choice is written by hand, at the end of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from meshmark.operations.base import Variant

PATH = Path(__file__).resolve().parent / "data" / "added.tsv"

EVERY = "*"
"""The value of a row that stands for every value of its option."""


@cache
def read_additions(path: Path = PATH) -> Mapping[str, Mapping[tuple[str, str], int]]:
    """Operation -> (option, value) -> version. The operation itself has the key ("", ""). ValueError for a line of
    another form."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        version, name, *choice = line.split("\t")
        if len(choice) not in (0, 2) or not version.isdecimal():
            raise ValueError(
                f"{path}:{number} is not a version, an operation, and perhaps an option with its value"
            )
        found.setdefault(name, {})[(choice[0], choice[1]) if choice else ("", "")] = int(version)
    return found


def version_that_added(operation: str, variant: Variant, newest: int) -> int:
    """The version of the table that added this variant of an operation. `newest`: the version of what no row names."""
    rows = read_additions().get(operation, {})
    versions = [rows.get(("", ""), newest)]
    for option, value in variant.options:
        if value is not None:
            versions += [rows[key] for key in ((option, str(value)), (option, EVERY)) if key in rows]
    return max(versions)


def append_operations(names: Iterable[str], version: int, path: Path = PATH) -> list[str]:
    """Add a row for each of these operations that has none, and return their names."""
    known = read_additions(path)
    new = sorted(name for name in names if ("", "") not in known.get(name, {}))
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{version}\t{name}\n" for name in new)
    read_additions.cache_clear()
    return new
