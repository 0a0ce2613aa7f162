# SPDX-License-Identifier: Apache-2.0
"""Default precision: the probe for floats, and the exact values for integers and complex numbers."""

import numpy as np
import pytest

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.judge import precision
from meshmark.operations import cases

PRODUCT = "matmul/rows=x,inner=y,check=rounded,precision=default/manual/2x4/{}/n64"


@pytest.mark.parametrize("dtype", ["int8", "int32", "complex64"])
def test_products_of_whole_and_complex_numbers_are_exact_at_default_precision(dtype):
    plan = cases.find(PRODUCT.format(dtype), 8).plan
    assert plan.judge == "exact"
    assert precision.format_precision(plan, dtype) == "default"
    assert precision.factor_roundoff(plan, dtype) == 0.0


def test_bfloat16_holds_the_parts_of_complex_factors():
    """A device that rounds the factors of default products to bfloat16 loses nothing."""
    narrow = dtype_of("bfloat16").numpy
    for argument in cases.find(PRODUCT.format("complex64"), 8).plan.arguments:
        given = argument.block(0, tuple(slice(0, n) for n in argument.shape))
        assert given.real.any() and given.imag.any()
        for part in (given.real, given.imag):
            np.testing.assert_array_equal(part.astype(narrow).astype(np.float32), part)


def test_floats_say_what_the_device_rounds_to():
    plan = cases.find(PRODUCT.format("float32"), 8).plan
    assert precision.format_precision(plan, "float32").startswith("default (")
