# SPDX-License-Identifier: Apache-2.0
"""Conformance of parts of an array that are read and written."""

from meshmark.conformance.test_indexing import test_indexing

__all__ = ["test_indexing"]
