# SPDX-License-Identifier: Apache-2.0
"""Conformance of forms of arguments."""

import pytest


@pytest.mark.family("forms")
def test_forms(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
