# SPDX-License-Identifier: Apache-2.0
"""Conformance of rearranged arrays."""

import pytest


@pytest.mark.family("shapes")
def test_shapes(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
