# SPDX-License-Identifier: Apache-2.0
"""Conformance of random programs."""

from meshmark.conformance.test_generated import test_generated

__all__ = ["test_generated"]
