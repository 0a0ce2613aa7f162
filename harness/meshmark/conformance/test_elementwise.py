# SPDX-License-Identifier: Apache-2.0
"""Conformance of functions of each element alone."""

import pytest


@pytest.mark.family("elementwise")
def test_elementwise(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
