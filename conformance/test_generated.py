# SPDX-License-Identifier: Apache-2.0
"""Conformance of programs that nobody wrote."""

from meshmark.conformance.test_generated import test_generated

__all__ = ["test_generated"]
