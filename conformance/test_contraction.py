# SPDX-License-Identifier: Apache-2.0
"""Conformance of the contractions."""

from meshmark.conformance.test_contraction import test_contraction

__all__ = ["test_contraction"]
