# SPDX-License-Identifier: Apache-2.0
"""Conformance of parts of an array that are read and written."""

import pytest


@pytest.mark.family("indexing")
def test_indexing(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
