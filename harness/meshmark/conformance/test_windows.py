# SPDX-License-Identifier: Apache-2.0
"""Conformance of convolutions and windows."""

import pytest


@pytest.mark.family("windows")
def test_windows(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
