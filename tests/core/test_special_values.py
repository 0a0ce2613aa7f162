# SPDX-License-Identifier: Apache-2.0
"""Special values: their places, and the dtypes that have them."""

import warnings

import numpy as np
import pytest

from meshmark.core import special_values, values
from meshmark.core.dtypes import DTYPES, as_bits
from meshmark.core.special_values import MANY, ONE, has, replaced
from meshmark.judge.numbers import without_subnormals
from meshmark.operations.base import Argument

KINDS = (*ONE, *MANY)


def made(kind, dtype="float32", shape=(12, 10), block=None, base=values.distinct, **options):
    argument = Argument(shape, dtype, (), replaced, {"kind": kind, "base": base, **options})
    return argument.block(3, block or values.whole(shape))


@pytest.mark.parametrize(("kind", "dtype"), [(k, d) for k in KINDS for d in DTYPES if has(d, k)])
def test_a_block_equals_the_same_block_of_the_whole(kind, dtype):
    whole = made(kind, dtype)
    assert whole.dtype == DTYPES[dtype].numpy
    part = made(kind, dtype, block=(slice(4, 8), slice(5, 10)))
    np.testing.assert_array_equal(as_bits(part), as_bits(whole[4:8, 5:10]))


def test_one_is_one_and_stands_where_it_says():
    for kind, where in (("nan-one", None), ("nan-first", 0), ("nan-last", 119), ("inf-one", None)):
        strange = np.flatnonzero(~np.isfinite(made(kind)).ravel())
        assert len(strange) == 1 and where in (None, strange[0])


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("nan", np.isnan),
        ("inf", lambda x: (x == np.inf) | (x == -np.inf)),
        ("zeros", lambda x: x == 0),
        ("subnormal", lambda x: (np.abs(x) < np.finfo(np.float32).tiny) & (x != 0)),
        ("extreme", lambda x: x == np.finfo(np.float32).max),
    ],
)
def test_many_are_many_and_not_all(kind, found):
    share = found(made(kind, shape=(100, 100))).mean()
    assert 0.02 < share < 0.7


def test_both_signs_of_infinity_and_zero_are_there_and_the_largest_has_one_sign():
    assert {np.inf, -np.inf} <= set(made("inf", shape=(100, 100)).ravel().tolist())
    zeros = made("zeros", shape=(100, 100))
    assert {False, True} == set(np.signbit(zeros[zeros == 0]).tolist())
    assert (made("extreme", shape=(100, 100)) > -1e30).all()


def test_the_real_part_of_a_complex_number_is_special():
    seen = made("nan-one", "complex64")
    assert np.isnan(seen.real).sum() == 1 and np.isfinite(seen.imag).all()


def test_an_empty_complex_array_is_made():
    """Its last dimension is one element long, and another one is empty."""
    assert made("extreme", "complex64", (0, 1)).shape == (0, 1)


def test_values_of_the_base_stay_beside_the_special_ones():
    seen = made("nan", base=values.summands, terms=8)
    plain = Argument((12, 10), "float32", (), values.summands, {"terms": 8}).block(3, values.whole((12, 10)))
    kept = ~np.isnan(seen)
    np.testing.assert_array_equal(seen[kept], plain[kept])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_sum_with_the_largest_is_exact_in_any_order(dtype):
    """Ordinary summands are below half a unit of the largest number."""
    kind = DTYPES[dtype].numpy
    column = made("extreme", dtype, shape=(8, 200), base=values.summands, terms=8)
    with np.errstate(over="ignore"):
        forward, backward = column[0], column[-1]
        for row in range(1, 8):
            forward = (forward + column[row]).astype(kind)
            backward = (backward + column[-1 - row]).astype(kind)
    np.testing.assert_array_equal(forward.astype(np.float64), backward.astype(np.float64))


def test_dtypes_without_a_value_do_not_have_the_kind():
    assert not has("float8_e4m3fn", "inf") and not has("float4_e2m1fn", "nan") and not has("bool", "extreme")
    assert not has("float16", "extreme") and has("int8", "extreme") and has("bool", "ties")


def test_what_only_moves_has_special_values_where_its_dtype_does():
    for dtype in ("bool", "int8", "complex64", "float8_e4m3fn"):
        Argument((12, 10), dtype, (), values.special).block(3, values.whole((12, 10)))


def test_an_empty_array_has_no_subnormals():
    empty = np.zeros((8, 0, 2), np.float32)
    assert without_subnormals(empty).shape == empty.shape


@pytest.mark.parametrize(
    "kind", [d for d in DTYPES.values() if d.kind in ("int", "uint")], ids=lambda d: d.name
)
def test_the_ends_of_each_integer_dtype_are_its_own(kind):
    """The largest uint64 too, which NumPy would make a double beside 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ends = special_values.special_values(kind.numpy, "extreme").astype(object)
    assert [int(end) for end in ends] == [-(2**kind.digits) if kind.kind == "int" else 0, 2**kind.digits - 1]
