# SPDX-License-Identifier: Apache-2.0
"""Conformance of placing and moving arrays."""

from meshmark.conformance.test_placement import test_placement

__all__ = ["test_placement"]
