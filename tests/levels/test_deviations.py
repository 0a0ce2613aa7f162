# SPDX-License-Identifier: Apache-2.0
"""Rows that allow a result to be that of unsharded JAX instead of NumPy's, and no other value."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from meshmark.core.verdicts import worst
from meshmark.judge.checks import Judge
from meshmark.levels import deviations
from meshmark.levels.deviations import Deviation
from meshmark.operations import OPERATIONS, cases
from tests.studies import faults_of_results

CASE = "pmax/axes=x+y,fill=nan/auto/2x4/float32/4KiB"
ROW = Deviation(("pmax",), "nan", ("*",), ("*",), ">=0.10", "a row of this test")


def test_every_committed_row_names_operations_that_exist():
    for row in deviations.read_deviations():
        assert set(row.operations) <= set(OPERATIONS) and row.why


def test_a_row_without_a_reason_is_refused(tmp_path: Path):
    path = tmp_path / "rows.toml"
    path.write_text('[[deviation]]\noperations = ["pmax"]\n')
    with pytest.raises(ValueError, match="deviation 1 must have the fields"):
        deviations.read_deviations(path)


@pytest.mark.parametrize(
    ("jax_release", "backend", "covered"), [("0.12.0.1", "cpu", True), ("0.9", "cpu", False)]
)
def test_a_row_covers_its_own_cases(jax_release, backend, covered):
    case = cases.find(CASE, 8)
    assert (deviations.find_deviation(case, jax_release, backend, [ROW]) is not None) == covered
    ordinary = cases.find("pmax/axes=x+y/auto/2x4/float32/4KiB", 8)
    assert deviations.find_deviation(ordinary, jax_release, backend, [ROW]) is None


def test_a_row_allows_what_one_device_gives(monkeypatch):
    """A maximum that drops NaNs, on one device as on many: a fail without a row, a pass with one."""
    monkeypatch.setattr(jnp, "max", jnp.nanmax)
    case, judge = cases.find(CASE, 8), Judge(tuple(jax.devices()))
    assert worst(line.verdict for line in judge.run(case)) == "fail"
    monkeypatch.setattr(deviations, "read_deviations", lambda: (ROW,))
    lines = judge.run(case)
    assert worst(line.verdict for line in lines) == "pass"
    assert next(line for line in lines if line.check == "numbers").data["deviation"] == ROW.why


def test_a_row_does_not_allow_a_wrong_shard(monkeypatch):
    monkeypatch.setattr(jnp, "max", jnp.nanmax)
    monkeypatch.setattr(deviations, "read_deviations", lambda: (ROW,))
    with faults_of_results.lost_shard():
        lines = Judge(tuple(jax.devices())).run(cases.find(CASE, 8))
    assert worst(line.verdict for line in lines) == "fail"
