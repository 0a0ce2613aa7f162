# SPDX-License-Identifier: Apache-2.0
"""Conformance of linear algebra and Fourier transforms."""

import pytest


@pytest.mark.family("algebra")
def test_algebra(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
