"""All that the documentation takes from the package: the pages are made of its parsers, its schema and its table."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "harness"))

from meshmark.commands import main as cli
from meshmark.devices.facts import Facts
from meshmark.operations import OPERATIONS
from meshmark.operations.cases import Selection
from meshmark.operations.cases import cases as table
from meshmark.pytest_plugin import plugin
from meshmark.records import files as records
from meshmark.report import summary

SCHEMA = ROOT / "harness/meshmark/records/schema/records.schema.json"
"""The published JSON Schema of records."""

__all__ = ["OPERATIONS", "ROOT", "SCHEMA", "Facts", "commands", "records", "rows", "summary", "test_options"]


def commands() -> argparse.ArgumentParser:
    """The parser of all commands."""
    return cli.parser()


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


def rows() -> list[dict]:
    """A row for each operation of the full profile, on eight devices of one process and of two."""
    found: dict[str, dict] = {}
    for processes in (1, 2):
        selection = Selection("full", processes=processes)
        for row in cli.operations(table(selection, 8)):
            found.setdefault(row["operation"], row)
    return [found.get(name) or _unchosen(name) for name in OPERATIONS]


def _unchosen(name: str) -> dict:
    """The row of an operation that only --with chooses."""
    operation = OPERATIONS[name]
    return {
        "operation": name,
        "family": operation.family,
        "levels": [operation.level],
        "modes": list(operation.modes),
        "dtypes": list(operation.dtypes),
        "description": cli.description(operation),
    }
