# SPDX-License-Identifier: Apache-2.0
"""Conformance of arrays that a program makes by itself."""

import pytest


@pytest.mark.family("creation")
def test_creation(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
