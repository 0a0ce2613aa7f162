# SPDX-License-Identifier: Apache-2.0
"""Conformance of whole programs."""

from meshmark.conformance.test_programs import test_programs

__all__ = ["test_programs"]
