# SPDX-License-Identifier: Apache-2.0
"""Conformance of shapes out of the ordinary."""

from meshmark.conformance.test_extents import test_extents

__all__ = ["test_extents"]
