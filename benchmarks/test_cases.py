# SPDX-License-Identifier: Apache-2.0
"""One benchmark per case of the timed table: `pytest benchmarks --benchmark-only`."""

import pytest


@pytest.mark.filterwarnings("ignore:Benchmark fixture was not used")  # by a case that must not be timed
def test_time(case_id, timed):
    """Isolated calls of one verified program, blocked on."""
    timed(case_id)
