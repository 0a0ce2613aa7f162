# SPDX-License-Identifier: Apache-2.0
"""Conformance of forms of arguments."""

from meshmark.conformance.test_forms import test_forms

__all__ = ["test_forms"]
