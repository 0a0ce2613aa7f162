# SPDX-License-Identifier: Apache-2.0
"""Conformance of more than one call."""

from meshmark.conformance.test_calls import test_calls

__all__ = ["test_calls"]
