# SPDX-License-Identifier: Apache-2.0
"""Conformance of array functions across shard boundaries."""

from meshmark.conformance.test_arrays import test_arrays

__all__ = ["test_arrays"]
