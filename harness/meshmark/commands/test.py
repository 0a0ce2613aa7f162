# SPDX-License-Identifier: Apache-2.0
"""`meshmark test`: the conformance suite of the installed package, under pytest, with all of pytest's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshmark.core.installation import PACKAGE


def add_arguments(add: argparse.ArgumentParser) -> None:
    """Every argument is pytest's, `--help` too: this parser reads none of them."""

    def pass_on(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        return argparse.Namespace(run=run, options=list(args or ())), []

    add.parse_known_args = pass_on  # type: ignore[method-assign,assignment]


def run(arguments: argparse.Namespace) -> int:
    """Run pytest on the suite; gives pytest's exit code.

    Tests have the names that they have in a checkout (see meshmark.pytest_plugin.installed). Files that options name,
    and pytest's cache, belong to the working directory.
    """
    import jax  # noqa: F401  (if JAX is missing, main prints one line; pytest would print a traceback of its plugin)
    import pytest

    own = [
        *("-p", "meshmark.pytest_plugin.plugin", "-p", "meshmark.pytest_plugin.installed"),
        *("-c", str(PACKAGE / "conformance" / "pytest.ini"), "--rootdir", str(PACKAGE)),
        *("-o", f"cache_dir={Path.cwd() / '.pytest_cache'}"),
    ]
    return int(pytest.main([*own, *arguments.options]))
