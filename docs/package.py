# SPDX-License-Identifier: Apache-2.0
"""What the documentation imports from the package: pages are made from its parsers, its schema and its case table."""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "harness"))

from docs import gradients
from meshmark.commands.main import parser as commands
from meshmark.core import meshes
from meshmark.devices.facts import Facts
from meshmark.operations import OPERATIONS, names
from meshmark.operations.base import MODES, Operation, Request
from meshmark.operations.cases import cases as table
from meshmark.operations.selection import CAPABILITIES, Selection
from meshmark.operations.transforms.transformed import Grid
from meshmark.operations.transforms.transformed_functions import GROUPS
from meshmark.operations.transforms.transforms import TRANSFORMS
from meshmark.pytest_plugin import plugin
from meshmark.records import reading
from meshmark.report import summary

SCHEMA = ROOT / "harness/meshmark/records/schema/records.schema.json"
"""The published JSON Schema of records."""

__all__ = [
    "APART",
    "GROUPS",
    "MODES",
    "OPERATIONS",
    "ROOT",
    "SCHEMA",
    "Coverage",
    "Facts",
    "commands",
    "coverage",
    "names",
    "reading",
    "rows",
    "summary",
    "test_options",
    "transformed",
    "transforms",
]


class _Group:
    """Collects the options that a pytest plugin adds, for argparse."""

    def __init__(self, group: argparse._ArgumentGroup) -> None:
        self.addoption = group.add_argument


class _Options:
    """Stands in for pytest's parser when a plugin adds its options."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def getgroup(self, name: str, description: str = "", after: str | None = None) -> _Group:
        return _Group(self._parser.add_argument_group(description or name))


def test_options() -> argparse.ArgumentParser:
    """The suite's own options of `meshmark test`, without those of pytest."""
    parser = argparse.ArgumentParser(prog="meshmark test", add_help=False)
    plugin.pytest_addoption(_Options(parser))
    return parser


test_options.__test__ = False  # it is named after a command and is not a test


@dataclass(frozen=True)
class Row:
    """One operation of the table: its part of the full profile on eight devices, or what --with would add."""

    name: str
    family: str
    levels: tuple[str, ...]
    modes: tuple[str, ...]
    description: str
    """The first paragraph of its docstring."""


@cache
def rows() -> list[Row]:
    """A row for each operation, on eight devices of one process and of two."""
    cases = [case for processes in (1, 2) for case in table(Selection("full", processes=processes), 8)]
    levels: dict[str, set[str]] = {}
    modes: dict[str, set[str]] = {}
    for case in cases:
        if case.cell.request.processes == 1 or case.operation.processes:
            levels.setdefault(case.operation.name, set()).add(case.level)
            modes.setdefault(case.operation.name, set()).add(case.mode)
    return [
        Row(
            name,
            operation.family,
            tuple(sorted(levels.get(name, {operation.level}))),
            tuple(mode for mode in MODES if mode in modes.get(name, operation.modes)),
            " ".join((type(operation).__doc__ or "").strip().split("\n\n")[0].split()),
        )
        for name, operation in OPERATIONS.items()
    ]


APART = ("transform", *(name for name, operation in OPERATIONS.items() if isinstance(operation, Grid)))
"""The operations with their own tables, by transformation."""


@dataclass(frozen=True)
class Coverage:
    """The cases of one operation on eight devices, in the full profile with every capability."""

    name: str
    cases: dict[str, int]
    """The number of cases in each mode."""
    reasons: dict[str, str]
    """Why there is no case, for each mode without one and for `gradient`."""
    gradient: int
    """The number of cases of its gradient."""


@cache
def coverage() -> list[Coverage]:
    """The coverage of each operation that one process can run."""
    selection = Selection("full", capabilities=tuple(CAPABILITIES))
    counts = Counter((case.operation.name, case.mode) for case in table(selection, 8))
    found = []
    for name, operation in OPERATIONS.items():
        if operation.processes or name in APART:
            continue
        cases = {mode: counts[name, mode] for mode in MODES}
        differentiated = _differentiated(operation)
        gradient = sum(
            counts[own, mode] for own in (f"{name}_gradient", name)[: 1 + differentiated] for mode in MODES
        )
        reasons = {mode: _absence(operation, mode) for mode, count in cases.items() if not count}
        if not gradient:
            reasons["gradient"] = _plain_reason(operation) or gradients.reason(name)
        found.append(Coverage(name, cases, reasons, gradient))
    return found


def transforms() -> dict[str, dict[str, int]]:
    """The number of cases of each transformation in each mode."""
    counts: dict[str, dict[str, int]] = {name: dict.fromkeys(MODES, 0) for name in TRANSFORMS}
    for case in table(Selection("full", operations=("transform",)), 8):
        counts[case.cell.request.variant["transform"]][case.mode] += 1
    return counts


def transformed() -> dict[str, dict[str, int]]:
    """The number of cases of each transformation on each group of functions, over both operations."""
    grids = [operation for operation in OPERATIONS.values() if isinstance(operation, Grid)]
    counts: dict[str, dict[str, int]] = {
        name: dict.fromkeys(GROUPS, 0) for o in grids for name in o.transforms
    }
    for case in table(Selection("full", operations=tuple(o.name for o in grids)), 8):
        variant = case.cell.request.variant
        counts.setdefault(variant["transform"], dict.fromkeys(GROUPS, 0))[variant["group"]] += 1
    return counts


def _ordinary(operation: Operation) -> Request:
    """Its ordinary cell on the preferred mesh."""
    mesh = meshes.preferred(8)
    variant = min(operation.variants(mesh), key=lambda v: v.weight)
    return Request(variant, mesh, operation.dtypes[0], min(operation.sizes, key=operation.sizes.__getitem__))


def _differentiated(operation: Operation) -> bool:
    """Whether its own programs are gradients."""
    return bool(operation.plan(_ordinary(operation)).wrt)


def _absence(operation: Operation, mode: str) -> str:
    """Why an operation has no case in a mode: the reason of its first variant, without its own name."""
    mesh = meshes.preferred(8)
    reason = operation.absent(mode, next(iter(operation.variants(mesh))), mesh)
    if mode not in operation.modes:
        if operation.modes == ("host",):
            return "it is a call from the host, and no program"
        return (
            "its calls from the host belong to other operations"
            if mode == "host"
            else "not spelled in this mode"
        )
    return reason or "its cases weigh more than the full profile takes: `--case` runs one"


def _plain_reason(operation: Operation) -> str:
    """The reason that the plan of an operation gives for having no gradient; "" if it gives none."""
    plan = operation.plan(_ordinary(operation))
    if operation.modes == ("host",):
        return "it is a call from the host, and no program"
    if not plan.arguments:
        return "it has no argument"
    if not any(kind.startswith(("float", "bfloat", "complex")) for kind in (r.dtype for r in plan.results)):
        return "its result is no real number"
    return ""
