# SPDX-License-Identifier: Apache-2.0
"""Conformance of reductions and running reductions."""

import pytest


@pytest.mark.family("reductions")
def test_reductions(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
