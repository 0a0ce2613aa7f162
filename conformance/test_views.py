# SPDX-License-Identifier: Apache-2.0
"""Conformance of what JAX says of a sharding."""

from meshmark.conformance.test_views import test_views

__all__ = ["test_views"]
