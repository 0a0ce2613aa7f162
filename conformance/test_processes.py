# SPDX-License-Identifier: Apache-2.0
"""Conformance of what only several processes have."""

from meshmark.conformance.test_processes import test_processes

__all__ = ["test_processes"]
