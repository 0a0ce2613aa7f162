# SPDX-License-Identifier: Apache-2.0
"""Conformance of parts of networks."""

import pytest


@pytest.mark.family("networks")
def test_networks(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
