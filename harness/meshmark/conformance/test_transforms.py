# SPDX-License-Identifier: Apache-2.0
"""Conformance of transformations of sharded programs."""

import pytest


@pytest.mark.family("transforms")
def test_transforms(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
