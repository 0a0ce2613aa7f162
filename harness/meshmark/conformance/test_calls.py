# SPDX-License-Identifier: Apache-2.0
"""Conformance of more than one call."""

import pytest


@pytest.mark.family("calls")
def test_calls(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
