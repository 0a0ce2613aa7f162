# SPDX-License-Identifier: Apache-2.0
"""Makes the covering arrays of the case table, or adds rows at their ends.

    python -m tests.studies.covering [FAMILY ...]

Within each family the rows cover every pair of classes that some case on eight devices has, and some triples (see
meshmark.operations.pairs). The operation is one of the coordinates. Classes without an optional capability are covered
first, by rows of their own, because every run has these rows. Existing rows stay, in their order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from itertools import combinations, product

from covertable import make

from meshmark.core import special_values
from meshmark.operations import OPERATIONS, classes, pairs
from meshmark.operations.base import Operation
from meshmark.operations.pairs import Row

DEVICES = 8
STAGES = (("float32", "half", "int", "uint", "bool"), ("complex", "narrow"), ("wide",))
"""The classes of dtypes that each stage adds, at first without empty arrays: they can show little of a pair."""

TRIPLES = (("operation", "dtype", "mode"), ("operation", "fill", "mode"))
"""Coordinates that are covered three at a time: every operation has each of its dtypes and fills in each mode."""

NAMES = tuple(f.name for f in fields(Row))


def possible(operation: Operation) -> set[Row]:
    """Every combination of classes that some case of the operation has."""
    found = set()
    kinds: dict[str, list[str]] = {}
    for dtype in operation.dtypes:
        kinds.setdefault(classes.of_dtype(dtype), []).append(dtype)
    sizes = {classes.of_size(operation, size) for size in operation.sizes}
    for name, members in classes.meshes_by_class(DEVICES).items():
        for mesh in members:
            for variant in operation.filled_variants(mesh, sys.maxsize):
                if variant.capability is not None:
                    continue
                modes = [m for m in operation.modes if operation.absent(m, variant, mesh) is None]
                allowed = variant.get("fill")
                fill = classes.of_fill(allowed)
                spread = pairs.spread(operation, variant, mesh)
                for size_class, (dtype_class, dtypes) in product(sizes, kinds.items()):
                    if any(special_values.allows(allowed, operation.fills, d) for d in dtypes):
                        found |= {
                            Row(operation.name, dtype_class, name, size_class, fill, spread, mode)
                            for mode in modes
                        }
    return found


def projections(rows: Iterable[Row], chosen: Sequence[str]) -> set[tuple[str, ...]]:
    """The combinations of values of these coordinates in the rows."""
    return {tuple(getattr(row, name) for name in chosen) for row in rows}


def covered(allowed: set[Row], before: list[Row]) -> list[Row]:
    """The rows of `before`, and further ones that cover the remaining pairs and triples."""
    factors = {name: sorted({getattr(row, name) for row in {*allowed, *before}}) for name in NAMES}
    known: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for keys in [
        *combinations(NAMES, 2),
        *(("operation", *two) for two in combinations(NAMES[1:], 2)),
        NAMES,
    ]:
        known[keys] = projections({*allowed, *before}, keys)

    def only(keys: tuple[str, ...]) -> dict:
        these = known[keys]
        return {
            "operator": "fn",
            "requires": list(keys),
            "evaluate": lambda row: tuple(row[k] for k in keys) in these,
        }

    presets = [dict(zip(NAMES, astuple(row), strict=True)) for row in before]
    triples = [{"fields": list(three), "strength": 3} for three in TRIPLES]
    made = make(factors, presets=presets, sub_models=triples, constraints=[only(keys) for keys in known])
    found = list(dict.fromkeys([*before, *(Row(**row) for row in made)]))
    for chosen in [*combinations(NAMES, 2), *TRIPLES]:
        missing = projections(allowed, chosen) - projections(found, chosen)
        assert not missing, f"{len(missing)} of {chosen} are not covered, such as {sorted(missing)[0]}"
    return found


def main(families: list[str]) -> None:
    """Extend the arrays of these families, or of all families."""
    by_family: dict[str, list[Operation]] = {}
    for operation in OPERATIONS.values():
        if not operation.processes:
            by_family.setdefault(operation.family, []).append(operation)
    for family, operations in by_family.items():
        if families and family not in families:
            continue
        start = time.monotonic()
        path = pairs.DIRECTORY / f"{family}.tsv"
        found = [Row(*line.split("\t")) for line in path.read_text().splitlines()] if path.is_file() else []
        every = set().union(*(possible(operation) for operation in operations))
        stated = time.monotonic()
        kinds: tuple[str, ...] = ()
        for stage in STAGES:
            kinds += stage
            these = {row for row in every if row.dtype in kinds}
            if not {row.dtype for row in these} & set(stage):
                continue
            for chosen in ({row for row in these if row.size != "empty"}, these):
                found = covered(chosen, found)
            print(f"{family}: {len(found)} rows with {', '.join(kinds)}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{row.text}\n" for row in found))
        print(
            f"{family}: {len(every)} combinations in {stated - start:.0f} s; {time.monotonic() - start:.0f} s"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
