# SPDX-License-Identifier: Apache-2.0
"""Conformance of the collectives."""

from meshmark.conformance.test_collectives import test_collectives

__all__ = ["test_collectives"]
