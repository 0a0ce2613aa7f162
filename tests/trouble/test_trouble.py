# SPDX-License-Identifier: Apache-2.0
"""The suite that makes trouble."""

import pytest


@pytest.mark.family("trouble")
def test_trouble(case, verdict):
    verdict(case)
