# SPDX-License-Identifier: Apache-2.0
"""Conformance of programs that the hunt found."""

from meshmark.conformance.test_found import test_found

__all__ = ["test_found"]
