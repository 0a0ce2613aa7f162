# SPDX-License-Identifier: Apache-2.0
"""Conformance of what only several processes have."""

import pytest


@pytest.mark.family("processes")
def test_processes(case, verdict):
    """Every check of one case of this family."""
    verdict(case)
