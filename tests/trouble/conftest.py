# SPDX-License-Identifier: Apache-2.0
"""Loads the plugin with the operations that make trouble."""

import os

if os.environ.get("MESHMARK_TROUBLE") == "start" and "PYTEST_XDIST_WORKER" in os.environ:
    raise RuntimeError("this worker does not start")

from tests.trouble import operations  # noqa: F401  (registers them)

pytest_plugins = ["meshmark.pytest_plugin.plugin"]
