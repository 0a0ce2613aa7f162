# SPDX-License-Identifier: Apache-2.0
"""Conformance of functions of each element alone."""

from meshmark.conformance.test_elementwise import test_elementwise

__all__ = ["test_elementwise"]
