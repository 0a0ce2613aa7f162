# SPDX-License-Identifier: Apache-2.0
"""Rows that allow unsharded JAX to differ from NumPy."""

import pytest

from meshmark.levels import deviations
from meshmark.operations import OPERATIONS


def test_every_committed_row_names_operations_that_exist():
    for row in deviations.read():
        assert set(row.operations) <= set(OPERATIONS) and row.why


def test_a_row_without_a_reason_is_refused(tmp_path):
    path = tmp_path / "rows.toml"
    path.write_text('[[deviation]]\noperations = ["pmax"]\n')
    with pytest.raises(ValueError, match="deviation 1 must have the fields"):
        deviations.read(path)
