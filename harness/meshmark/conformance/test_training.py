# SPDX-License-Identifier: Apache-2.0
"""Conformance of training and inference."""

import pytest


@pytest.mark.family("training")
def test_training(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
