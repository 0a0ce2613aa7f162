# SPDX-License-Identifier: Apache-2.0
"""Conformance of transformations of sharded programs."""

from meshmark.conformance.test_transforms import test_transforms

__all__ = ["test_transforms"]
