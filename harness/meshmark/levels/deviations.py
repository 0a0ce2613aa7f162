# SPDX-License-Identifier: Apache-2.0
"""Committed rows of operations in which unsharded JAX itself differs from NumPy on special values.

NumPy stays the reference. If a row covers a case, a result that differs from NumPy's is compared with the same function
on one device, unsharded, and must be equal to it. A difference that no row covers is a `fail`.

The rows are in `harness/meshmark/levels/data/deviations.toml`, one table [[deviation]] each:

    operations  names of operations
    fill        the kind of values, as the variant names it
    dtypes      dtypes, or ["*"]
    backends    backends, or ["*"]
    jax         releases, as a version specifier (">=0.10")
    why         the reason, one line
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from meshmark.operations.cases import Case

FILE = Path(__file__).resolve().parent / "data" / "deviations.toml"


@dataclass(frozen=True)
class Deviation:
    """One row."""

    operations: Sequence[str]
    fill: str
    dtypes: Sequence[str]
    backends: Sequence[str]
    jax: str
    why: str

    def covers(self, case: Case, jax: str, backend: str) -> bool:
        """Whether the row covers this case on this release and backend."""
        from packaging.specifiers import SpecifierSet  # where only JAX is installed, `compare` still times
        from packaging.version import Version

        request = case.cell.request
        return (
            case.operation.name in self.operations
            and request.variant.get("fill") == self.fill
            and any(d in ("*", request.dtype) for d in self.dtypes)
            and any(b in ("*", backend) for b in self.backends)
            and SpecifierSet(self.jax, prereleases=True).contains(Version(jax))
        )


@cache
def read_deviations(path: Path = FILE) -> tuple[Deviation, ...]:
    """All rows of a file; ValueError if the fields of a row are not those above."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("deviation", [])
    wanted = {f.name for f in fields(Deviation)}
    for number, row in enumerate(rows, 1):
        if set(row) != wanted:
            raise ValueError(f"{path}: deviation {number} must have the fields {', '.join(sorted(wanted))}")
    return tuple(Deviation(**row) for row in rows)


def find_deviation(
    case: Case, jax: str, backend: str, rows: Sequence[Deviation] | None = None
) -> Deviation | None:
    """The row that covers the case; None if there is none."""
    if case.cell.request.variant.get("fill") is None:
        return None
    return next(
        (row for row in (read_deviations() if rows is None else rows) if row.covers(case, jax, backend)), None
    )
