# SPDX-License-Identifier: Apache-2.0
"""Conformance of the contractions."""

import pytest


@pytest.mark.family("contraction")
def test_contraction(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
