# SPDX-License-Identifier: Apache-2.0
"""The comparison of numbers: values that are not finite are compared first, and no rule passes a wrong value."""

from unittest.mock import patch

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.judge import checks
from meshmark.judge.checks import Judge
from meshmark.judge.numbers import ROUNDING, find_worst_element, unlike, within_rounding, without_subnormals
from meshmark.operations import cases
from meshmark.operations.selection import Selection

NAN, INF = np.nan, np.inf


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_exact_wants_a_nan_where_the_reference_has_one_and_nowhere_else(kind):
    want = np.array([1, NAN, INF, -INF, 0.0], kind)
    assert find_worst_element("exact", want.copy(), want, None) is None
    for position, wrong in ((0, NAN), (1, 1.0), (1, INF), (2, -INF), (2, NAN), (3, INF), (0, INF)):
        seen = want.copy()
        seen[position] = wrong
        found = find_worst_element("exact", seen, want, None)
        assert found is not None and found[0] == INF and found[3] == (position,) and found[4] == 1


def test_another_nan_is_a_nan_unless_bits_are_compared():
    want, seen = f32(NAN), -f32(NAN)
    seen.view(np.uint32)[0] ^= 1
    assert find_worst_element("exact", seen, want, None) is None
    assert find_worst_element("bits", seen, want, None) is not None


def test_the_sign_of_a_zero_is_free_unless_bits_are_compared():
    assert find_worst_element("exact", f32(-0.0), f32(0.0), None) is None
    assert find_worst_element("bits", f32(-0.0), f32(0.0), None) is not None


def test_what_is_not_finite_is_told_first():
    found = find_worst_element("exact", f32(9, 1, NAN), f32(1, 1, 1), None)
    assert found is not None and found[3] == (2,) and found[4] == 1


@pytest.mark.parametrize("wrong", [NAN, INF, 3.0])
def test_the_bound_judge_compares_what_is_not_finite_first(wrong):
    want, bound = np.array([1.0, NAN, -INF]), np.array([0.5, NAN, INF])
    assert find_worst_element("bound", f32(1.25, NAN, -INF), want, bound)[:3] == (0.5, 0.25, 0.5)
    assert find_worst_element("bound", f32(wrong, NAN, -INF), want, bound)[0] > 1
    assert find_worst_element("bound", f32(1.0, NAN, INF), want, bound)[0] == INF
    assert find_worst_element("bound", f32(1.0, 0.0, -INF), want, bound)[0] == INF


def test_a_finite_reference_without_a_finite_bound_is_a_faulty_case():
    with pytest.raises(ValueError, match="no finite bound"):
        find_worst_element("bound", f32(1.0), np.array([1.0]), np.array([INF]))


def test_both_parts_of_a_complex_number_are_compared():
    want = np.array([complex(NAN, 1), complex(INF, -2)], np.complex64)
    assert find_worst_element("exact", want.copy(), want, None) is None
    for wrong in (complex(NAN, 2), complex(1, 1), complex(NAN, NAN)):
        assert find_worst_element("exact", np.array([wrong, want[1]], np.complex64), want, None) is not None
    assert unlike(want, want[::-1]).all()


def test_large_integers_are_compared_as_integers():
    want = np.array([2**62 + 1])
    assert find_worst_element("exact", want - 1, want, None) is not None


def test_flushed_subnormals_are_zeros_and_nothing_else_is():
    tiny = float(np.finfo(np.float32).tiny)
    want = f32(tiny / 2, tiny, -tiny / 4)
    assert find_worst_element("exact", f32(0, tiny, 0), want, None) is not None
    assert find_worst_element("exact", f32(0, tiny, 0), want, None, flushed=True) is None
    assert find_worst_element("exact", f32(0, 0, 0), want, None, flushed=True) is not None
    assert find_worst_element("bits", f32(0, tiny, 0), want, None, flushed=True) is not None
    np.testing.assert_array_equal(without_subnormals(want), f32(0, tiny, 0))
    assert without_subnormals(want).dtype == want.dtype


def test_what_ordinary_numbers_take_in_is_lost_or_not():
    """An H100 keeps subnormal numbers, and adds in another order than NumPy: 0 and three of them are right alike."""
    tiny = float(np.finfo(np.float32).tiny)
    want = f32(-tiny / 4, 1, tiny * 9)
    assert find_worst_element("exact", f32(0, 1, 0), want, None) is not None
    assert find_worst_element("exact", f32(0, 1, 0), want, None, flushed=1.0) is not None
    assert find_worst_element("exact", f32(0, 1, 0), want, None, flushed=2048.0) is None
    assert find_worst_element("exact", f32(0, 0, 0), want, None, flushed=2048.0) is not None
    assert find_worst_element("exact", f32(0, 1, 1e-30), want, None, flushed=2048.0) is not None
    half = np.array([0.25, 1, 2], np.float16)
    assert without_subnormals(half, 1e9).tolist() == [0, 1, 2]


def test_sums_of_subnormal_and_ordinary_numbers_depend_on_their_order(monkeypatch):
    monkeypatch.setattr(checks.precision, "flushes", lambda dtype: False)
    name = "cumsum/of=-.x,dim=1,fill={}/pmap/1/bfloat16/4KiB"
    cell = cases.find(name.format("subnormal"), 1).cell
    assert checks.flushed(cell) == cell.plan.arguments[0].options["terms"] > 1
    assert checks.flushed(cases.find(name.format("nan"), 1).cell) == 0.0
    monkeypatch.setattr(checks.precision, "flushes", lambda dtype: True)
    assert checks.flushed(cases.find(name.format("subnormal"), 1).cell) == 1.0


@pytest.mark.parametrize("flushes", [True, False])
def test_sums_of_the_smallest_normal_number_depend_on_their_order(monkeypatch, flushes):
    """Two processes added a bfloat16 in another order: 1 - 1 + tiny is tiny, and 1 + tiny - 1 is 0."""
    monkeypatch.setattr(checks.precision, "flushes", lambda dtype: flushes)
    name = "psum_scatter/axes=y+x,dim=0,tiled,fill=extreme/manual/2x2x2/{}/512KiB"
    cell = cases.find(name.format("bfloat16"), 8).cell
    assert checks.flushed(cell) == cell.plan.arguments[0].options["terms"] == 4
    assert checks.flushed(cases.find(name.format("int32"), 8).cell) == float(flushes)
    moved = "all_gather/axes=x+y,dim=0,tiled,fill=extreme/manual/2x4/float32/4KiB"
    assert checks.flushed(cases.find(moved, 8).cell) == 0.0


@pytest.mark.parametrize("flushes", [True, False])
def test_no_ordinary_number_counts_as_zero(monkeypatch, flushes):
    """The ordinary numbers are whole. In float16 a thousand times the smallest normal number is near one of them."""
    monkeypatch.setattr(checks.precision, "flushes", lambda dtype: flushes)
    chosen = Selection("full", operations=("psum", "pmean", "psum_scatter", "cumsum", "rank_reduction"))
    taken = [
        checks.flushed(case.cell) * tiny
        for case in cases.cases(chosen, 6)
        if (tiny := dtype_of(case.cell.request.dtype).tiny) and checks.has_special_values(case.cell)
    ]
    assert len(taken) > 100 and 0 < max(taken) < 1e-2


def test_a_rounding_is_within_four_units_in_the_last_place_of_the_largest():
    want = np.array([1.0, -1024.0, NAN, INF])
    assert within_rounding(1024 * 2.0**-21, want, "float32")
    for error in (1024 * 2.0**-20, 1.0, INF, NAN):
        assert not within_rounding(error, want, "float32")
    assert not within_rounding(0.0, want, "int32")


@pytest.mark.parametrize(("factor", "rounded"), [(1 + 2.0**-22, True), (1 + 2.0**-12, False), (2.0, False)])
def test_a_failure_says_whether_it_is_a_rounding(factor, rounded):
    """It fails all the same: what is exact must be equal."""
    case, psum = cases.find("psum/axes=x+y/manual/2x4/float32/4KiB", 8), lax.psum
    with patch.object(lax, "psum", lambda *a, **k: psum(*a, **k) * np.float32(factor)):
        lines = {line.check: line for line in Judge(tuple(jax.devices())).run(case)}
    assert lines["numbers"].verdict == "fail"
    assert (ROUNDING in lines["numbers"].reason) is rounded
