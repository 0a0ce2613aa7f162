# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin behind `meshmark test`: it runs the package's suite from any directory.

Test names are those of a checkout, `conformance/test_collectives.py::test_collectives[CASE]`, both on the command line
and in the output.
"""

from __future__ import annotations

from typing import Any

import pytest

from meshmark.core.installation import PACKAGE

SUITE = "conformance"
"""The directory of the suite, in the package and in a checkout."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """pytest's help and complaints name this command."""
    parser.prog = "meshmark test"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Name the whole suite if the command line names no test, and map named parts of the suite to the package. Then
    pytest reads no conftest.py of the working directory."""
    known = early_config.known_args_namespace
    found = {
        one: f"{PACKAGE}/{one}" for one in known.file_or_dir if one.split("::")[0].split("/")[0] == SUITE
    }
    args[:] = [found.get(one, one) for one in args]
    if not known.file_or_dir:
        args.append(str(PACKAGE / SUITE))
    known.file_or_dir = [found.get(one, one) for one in known.file_or_dir] or [str(PACKAGE / SUITE)]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Show test names relative to the package, not to the working directory.

    The working directory itself does not change: pytest returns to its invocation directory before it ends, and files
    that options name belong there.
    """
    config: Any = session.config
    config.cwd_relative_nodeid = lambda nodeid: nodeid
    if reporter := config.pluginmanager.get_plugin("terminalreporter"):
        reporter.startpath = PACKAGE
