# SPDX-License-Identifier: Apache-2.0
"""Conformance of rearranged arrays."""

from meshmark.conformance.test_shapes import test_shapes

__all__ = ["test_shapes"]
