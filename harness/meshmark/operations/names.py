# SPDX-License-Identifier: Apache-2.0
"""Lists which of JAX's public functions the table has, name by name.

`data/names.tsv` has a row for each public function of these modules on each tested release: the name, a kind, and a
detail. Kind `case` names a case whose program takes the function from its public module. `python -m
tests.studies.names` finds these cases while it traces the programs of the table. The other kinds come from a
closed list and are written by hand.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_origin

MODULES = (
    "jax.lax",
    "jax.numpy",
    "jax.nn",
    "jax.random",
    "jax.sharding",
    "jax.experimental.multihost_utils",
)

PATH = Path(__file__).resolve().parent / "data" / "names.tsv"

COVERED = {
    "case": "a program of the table takes it, or a call from the host does",
    "processes": "an operation that takes several processes calls it",
    "alias": "the same object as another name",
}
"""The kinds that say where the table has a function: a case, an operation, another name."""

OUTSIDE = {
    "no arrays": "it works on shapes, dtypes, meshes, keys' kinds or settings, and on no element of an array",
    "imported": "the module imports it for itself, from Python or from inside JAX",
}
"""The kinds of names that are not functions of arrays."""

REASONS = {
    "host only": "it works on values that the host holds: files, text, shapes that depend on values",
    "deprecated": "JAX is about to remove it, or discourages its use",
    "not implemented": "it always raises NotImplementedError",
    "backend": "it needs a kind of device that the suite does not ask for",
    "not covered": "nothing speaks against it; the table does not have it yet",
}
"""The kinds that say why the table has no program of a function of arrays."""

KINDS = {**COVERED, **OUTSIDE, **REASONS}

LIMIT = 0.1
"""The largest share of the functions of arrays that may have a reason instead of a case."""


@dataclass(frozen=True)
class Row:
    """What the table says of one public function."""

    name: str
    kind: str
    detail: str = ""


@cache
def read_names(path: Path = PATH) -> dict[str, Row]:
    """The rows by name. ValueError for a line that is not a row."""
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 3 or fields[1] not in KINDS or not fields[2]:
            raise ValueError(
                f"{path.name}:{number} is not a name, a kind of {', '.join(KINDS)}, and a detail"
            )
        found[fields[0]] = Row(*fields)
    return found


def functions() -> Iterator[tuple[str, Any]]:
    """Each public function of the modules that this release has, with its name."""
    for module in map(importlib.import_module, MODULES):
        for name in dir(module):
            value = getattr(module, name)
            kind = inspect.isclass(value) or get_origin(value) is not None
            if not name.startswith("_") and callable(value) and not kind:
                yield f"{module.__name__}.{name}", value


def find_unlisted(listed: dict[str, Row]) -> list[str]:
    """The public functions of this release that have no row."""
    return [name for name, _ in functions() if name not in listed]


def of_arrays(listed: Sequence[Row]) -> list[Row]:
    """The rows of functions that take or give arrays."""
    return [row for row in listed if row.kind not in OUTSIDE]


def find_reasoned(listed: Sequence[Row]) -> list[Row]:
    """The rows of functions of arrays that have a reason instead of a case."""
    return [row for row in listed if row.kind in REASONS]
