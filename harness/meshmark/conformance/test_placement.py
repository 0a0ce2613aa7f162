# SPDX-License-Identifier: Apache-2.0
"""Conformance of placing and moving arrays."""

import pytest


@pytest.mark.family("placement")
def test_placement(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
