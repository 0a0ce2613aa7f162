# SPDX-License-Identifier: Apache-2.0
"""Conformance of arrays that a program makes by itself."""

from meshmark.conformance.test_creation import test_creation

__all__ = ["test_creation"]
