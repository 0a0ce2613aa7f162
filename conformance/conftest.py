# SPDX-License-Identifier: Apache-2.0
"""Loads the plugin that gives `pytest conformance` its options, cases and records."""

import pytest

from meshmark.core.errors import not_installed

try:
    import jax  # noqa: F401
except ModuleNotFoundError as error:
    WHY = f"meshmark: {not_installed(error)}"

    def pytest_addoption():
        """Say it in one line: pytest prints a traceback where a plugin can't be imported."""
        raise pytest.UsageError(WHY)

else:
    pytest_plugins = ["meshmark.pytest_plugin.plugin"]
