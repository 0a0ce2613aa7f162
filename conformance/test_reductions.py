# SPDX-License-Identifier: Apache-2.0
"""Conformance of reductions and running reductions."""

from meshmark.conformance.test_reductions import test_reductions

__all__ = ["test_reductions"]
