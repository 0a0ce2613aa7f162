# SPDX-License-Identifier: Apache-2.0
"""Conformance of linear algebra and Fourier transforms."""

from meshmark.conformance.test_algebra import test_algebra

__all__ = ["test_algebra"]
