# SPDX-License-Identifier: Apache-2.0
"""Conformance of layers."""

from meshmark.conformance.test_layers import test_layers

__all__ = ["test_layers"]
