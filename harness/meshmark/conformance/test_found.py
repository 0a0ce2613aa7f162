# SPDX-License-Identifier: Apache-2.0
"""Conformance of programs that the hunt found."""

import pytest


@pytest.mark.family("found")
def test_found(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
