# SPDX-License-Identifier: Apache-2.0
"""Conformance of calls that must be refused."""

import pytest


@pytest.mark.family("refusals")
def test_refusals(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
