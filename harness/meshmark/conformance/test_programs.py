# SPDX-License-Identifier: Apache-2.0
"""Conformance of whole programs."""

import pytest


@pytest.mark.family("programs")
def test_programs(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
