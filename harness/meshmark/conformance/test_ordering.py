# SPDX-License-Identifier: Apache-2.0
"""Conformance of orders and counts."""

import pytest


@pytest.mark.family("ordering")
def test_ordering(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
