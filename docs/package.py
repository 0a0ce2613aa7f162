# SPDX-License-Identifier: Apache-2.0
"""All that the documentation takes from the package: the pages are made of its parsers, its schema and its table."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "harness"))

from meshmark.commands.main import parser as commands
from meshmark.devices.facts import Facts
from meshmark.operations import OPERATIONS
from meshmark.operations.base import MODES
from meshmark.operations.cases import cases as table
from meshmark.operations.selection import Selection
from meshmark.pytest_plugin import plugin
from meshmark.records import reading
from meshmark.report import summary

SCHEMA = ROOT / "harness/meshmark/records/schema/records.schema.json"
"""The published JSON Schema of records."""

__all__ = ["OPERATIONS", "ROOT", "SCHEMA", "Facts", "commands", "reading", "rows", "summary", "test_options"]


class _Group:
    """Takes the options that a pytest plugin adds, for argparse."""

    def __init__(self, group: argparse._ArgumentGroup) -> None:
        self.addoption = group.add_argument


class _Options:
    """Stands for pytest's parser where a plugin adds its options."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def getgroup(self, name: str, description: str = "", after: str | None = None) -> _Group:
        return _Group(self._parser.add_argument_group(description or name))


def test_options() -> argparse.ArgumentParser:
    """The suite's own options of `meshmark test`; pytest's come beside them."""
    parser = argparse.ArgumentParser(prog="meshmark test", add_help=False)
    plugin.pytest_addoption(_Options(parser))
    return parser


test_options.__test__ = False  # its name is that of a command, and it is no test


@dataclass(frozen=True)
class Row:
    """One operation of the table: what of it the full profile has on eight devices, or what --with would add."""

    name: str
    family: str
    levels: tuple[str, ...]
    modes: tuple[str, ...]
    description: str
    """The first paragraph of its docstring."""


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
