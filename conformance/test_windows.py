# SPDX-License-Identifier: Apache-2.0
"""Conformance of convolutions and windows."""

from meshmark.conformance.test_windows import test_windows

__all__ = ["test_windows"]
