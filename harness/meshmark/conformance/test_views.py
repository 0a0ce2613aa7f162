# SPDX-License-Identifier: Apache-2.0
"""Conformance of what JAX says of a sharding."""

import pytest


@pytest.mark.family("views")
def test_views(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
