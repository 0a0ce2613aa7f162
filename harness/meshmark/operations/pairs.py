# SPDX-License-Identifier: Apache-2.0
"""Cases that cover pairs of classes: some faults need two unusual coordinates together.

`data/pairs/<family>.tsv` holds one row per case: an operation, and a class of each other coordinate (see
meshmark.operations.classes). Within a family the rows cover every pair of classes that some case of the table has,
the operation being one of the coordinates. The file is made by `python -m tests.studies.covering`, and extended only
by appending. A row always gives the same case on the same devices: its text decides which member of each class it
takes, so that the members of a class take turns. If a class has no member, the row gives no case.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from meshmark.core import special_values
from meshmark.core.meshes import MeshShape
from meshmark.operations import OPERATIONS, classes
from meshmark.operations.base import Operation, Request, Variant, owners_of

DIRECTORY = Path(__file__).resolve().parent / "data" / "pairs"


@dataclass(frozen=True)
class Row:
    """One row of a covering array."""

    operation: str
    dtype: str
    mesh: str
    size: str
    fill: str
    input: str
    mode: str

    @cached_property
    def text(self) -> str:
        """The row as a line of its file."""
        return "\t".join(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Picked:
    """The case of one row on these devices: a cell of the table, and a mode."""

    operation: Operation
    request: Request
    mode: str


@cache
def read_pairs() -> tuple[Row, ...]:
    """The rows of every family, in the order of their files. ValueError for a line without seven columns."""
    found = []
    for path in sorted(DIRECTORY.glob("*.tsv")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(columns := line.split("\t")) != 7:
                raise ValueError(f"{path}:{number} is not an operation and six classes: make the file again")
            found.append(Row(*columns))
    return tuple(found)


def picked(num_devices: int, processes: int = 1, operations: Sequence[str] = ()) -> list[Picked]:
    """The cases that the rows of these operations (default: all) give on these devices."""
    names = operations or _rows_by_operation()
    return [one for name in names for one in _picked_of(name, num_devices, processes)]


@lru_cache(maxsize=1024)
def _picked_of(operation: str, num_devices: int, processes: int) -> tuple[Picked, ...]:
    by_class = classes.meshes_by_class(num_devices, processes)
    rows_of = _rows_by_operation().get(operation, [])
    found = (_pick(row, by_class, num_devices, processes) for row in rows_of)
    return tuple(one for one in found if one is not None)


@cache
def _rows_by_operation() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in read_pairs():
        found.setdefault(row.operation, []).append(row)
    return found


def turned(items: Sequence[Any], row: Row, what: str) -> list[Any]:
    """The items, rotated by a hash of `what` and the row's text."""
    start = zlib.crc32(f"{what} {row.text}".encode()) % len(items) if items else 0
    return [*items[start:], *items[:start]]


def _pick(row: Row, by_class: dict[str, list[MeshShape]], num_devices: int, processes: int) -> Picked | None:
    operation = OPERATIONS.get(row.operation)
    if operation is None or (operation.processes and processes == 1) or row.mode not in operation.modes:
        return None
    sizes = turned([s for s in operation.sizes if classes.of_size(operation, s) == row.size], row, "size")
    dtypes = turned([*classes.find_dtypes(operation, row.dtype)], row, "dtype")
    for mesh in turned(by_class.get(row.mesh, []), row, "mesh"):
        owners = owners_of(mesh, num_devices, processes)
        for variant in turned(variants_with(row.fill, operation, mesh), row, "variant"):
            if operation.absent(row.mode, variant, mesh) is not None:
                continue
            if processes > 1 and operation.refuses(variant, mesh, owners):
                continue
            for dtype in dtypes:
                if not special_values.allows(variant.get("fill"), operation.fills, dtype):
                    continue
                for size in sizes:
                    if spread(operation, variant, mesh) == row.input:
                        return Picked(operation, Request(variant, mesh, dtype, size, processes), row.mode)
    return None


@lru_cache(maxsize=8192)
def variants_with(fill: str, operation: Operation, mesh: MeshShape) -> tuple[Variant, ...]:
    """The variants without an optional capability whose values are in the class `fill`."""
    kinds = [kind for kind in operation.fills if classes.of_fill(kind) == fill]
    found: list[Variant] = []
    for variant in operation.variants(mesh):
        if variant.capability is None:
            if classes.of_fill(variant.get("fill")) == fill:
                found.append(variant)
            found += operation.with_fills(variant, kinds)
    return tuple(found)


@lru_cache(maxsize=65536)
def spread(operation: Operation, variant: Variant, mesh: MeshShape) -> str:
    """The class of a variant's inputs (meshmark.operations.classes.of_input). Dtype and size do not change it."""
    plain = Variant(tuple((k, v) for k, v in variant.options if k != "fill"), variant.weight)
    if plain.options != variant.options:
        return spread(operation, plain, mesh)
    size = next(size for size, weight in operation.sizes.items() if not weight)
    return classes.of_input(operation.plan(Request(plain, mesh, operation.dtypes[0], size)), mesh)
