"""The pytest plugin behind `meshmark test`: pytest runs in the package, wherever the user is.

So the names of tests are those of a checkout, `conformance/test_collectives.py::test_collectives[CASE]`, on the command
line as in the output, and without a name the whole suite runs (`testpaths` of conformance/pytest.ini).
"""

from __future__ import annotations

import pytest

from meshmark.core.installation import PACKAGE


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Find and show tests relative to the package. The process stays where it is, and with it the files that options
    name; no conftest.py of the working directory is read."""
    given = early_config.invocation_params
    early_config.invocation_params = pytest.Config.InvocationParams(
        args=given.args, plugins=given.plugins, dir=PACKAGE
    )
