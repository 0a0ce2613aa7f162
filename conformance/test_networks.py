# SPDX-License-Identifier: Apache-2.0
"""Conformance of parts of networks."""

from meshmark.conformance.test_networks import test_networks

__all__ = ["test_networks"]
