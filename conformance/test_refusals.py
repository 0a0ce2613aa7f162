# SPDX-License-Identifier: Apache-2.0
"""Conformance of calls that must be refused."""

from meshmark.conformance.test_refusals import test_refusals

__all__ = ["test_refusals"]
