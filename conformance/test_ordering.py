# SPDX-License-Identifier: Apache-2.0
"""Conformance of orders and counts."""

from meshmark.conformance.test_ordering import test_ordering

__all__ = ["test_ordering"]
