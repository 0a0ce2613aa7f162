# SPDX-License-Identifier: Apache-2.0
"""The checkout under test."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "harness"
"""The directory that holds the package `meshmark`."""

IMPORTS = os.pathsep.join([str(SOURCE), str(ROOT)])
"""PYTHONPATH for children that import the package and the tests."""
