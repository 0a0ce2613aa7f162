# SPDX-License-Identifier: Apache-2.0
"""Loads the plugin with the operations that make trouble."""

import json
import os

if os.environ.get("MESHMARK_TROUBLE") == "start" and "PYTEST_XDIST_WORKER" in os.environ:
    raise RuntimeError("this worker does not start")

from meshmark.devices import probe
from meshmark.devices.facts import Facts
from meshmark.operations import OPERATIONS
from tests.trouble import operations  # noqa: F401  (registers them)

# The table holds the trouble alone: the controller and each new worker walk it, which takes as long as JAX's import.
for name in [name for name, operation in OPERATIONS.items() if operation.family != "trouble"]:
    del OPERATIONS[name]

# The devices of all runs are the same. The process that lists them takes a third of a short run (see Run).
if listed := os.environ.get("MESHMARK_FACTS"):
    _FACTS = Facts.from_json(json.loads(listed))
    probe.probe = lambda variables=None, timeout=300.0: _FACTS

pytest_plugins = ["meshmark.pytest_plugin.plugin"]
