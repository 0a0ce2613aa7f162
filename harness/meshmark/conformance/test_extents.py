# SPDX-License-Identifier: Apache-2.0
"""Conformance of shapes out of the ordinary."""

import pytest


@pytest.mark.family("extents")
def test_extents(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
