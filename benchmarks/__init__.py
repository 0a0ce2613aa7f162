# SPDX-License-Identifier: Apache-2.0
"""Benchmarks for asv and pytest-benchmark: thin modules that choose from the case table.

The modules of asv are timing, compiling and starting; their parameters are case ids (benchmarks.table). Importing this
package asks no device and starts no backend, because asv imports it to list the benchmarks too. It sets the number of
virtual devices before JAX is imported; benchmarks.environment checks it.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout that holds this package."""

NUM_DEVICES = 8
"""The number of devices for which the case ids are listed. It is constant, because asv addresses parameters by their
index, so they must be the same on every machine. With fewer devices the benchmarks are skipped."""

os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(NUM_DEVICES))
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a cached compile would not be measured

SOURCE = ROOT / "harness"
"""The directory of the checkout that holds the package."""

# In an environment that asv made for a commit of Meshmark, the package is that commit's, installed; asv keeps the
# checkout off sys.path. Everywhere else (an existing interpreter, pytest, the commits of JAX) it is the checkout's.
if os.environ.get("ASV_PROJECT") != "meshmark" and str(SOURCE) not in sys.path:
    sys.path.insert(0, str(SOURCE))
