# SPDX-License-Identifier: Apache-2.0
"""Conformance of array functions across shard boundaries."""

import pytest


@pytest.mark.family("arrays")
def test_arrays(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
