# SPDX-License-Identifier: Apache-2.0
"""Conformance of random programs (`--generated N`)."""

import pytest


@pytest.mark.generated
def test_generated(generated, judge_generated):
    """One program against itself without sharding."""
    judge_generated(generated)
