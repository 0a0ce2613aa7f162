# SPDX-License-Identifier: Apache-2.0
"""Conformance of layers."""

import pytest


@pytest.mark.family("layers")
def test_layers(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
