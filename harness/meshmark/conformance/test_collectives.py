# SPDX-License-Identifier: Apache-2.0
"""Conformance of the collectives."""

import pytest


@pytest.mark.family("collectives")
def test_collectives(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
