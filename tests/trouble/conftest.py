# SPDX-License-Identifier: Apache-2.0
"""Loads the plugin with the operations that make trouble."""

import os

if os.environ.get("MESHMARK_TROUBLE") == "start" and "PYTEST_XDIST_WORKER" in os.environ:
    raise RuntimeError("this worker does not start")

from meshmark.operations import OPERATIONS
from tests.trouble import operations  # noqa: F401  (registers them)

# The table holds the trouble alone: the controller and each new worker walk it, which takes as long as JAX's import.
for name in [name for name, operation in OPERATIONS.items() if operation.family != "trouble"]:
    del OPERATIONS[name]

pytest_plugins = ["meshmark.pytest_plugin.plugin"]
