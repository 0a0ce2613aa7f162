# SPDX-License-Identifier: Apache-2.0
"""Products and selections by a GPU's libraries, as XLA of jaxlib 0.12.0.1 writes them for H100: computed by hand."""

import json

import numpy as np
import pytest

from meshmark.core.hlo_types import Refused
from meshmark.interpreter.contraction import TF32, factors
from meshmark.interpreter.faults import Fault
from tests.interpreter.modules import run

ONE = "num_partitions=1"
PRODUCT = {
    "alpha_real": 1,
    "alpha_imag": 0,
    "beta": 0,
    "dot_dimension_numbers": {
        "lhs_contracting_dimensions": ["1"],
        "rhs_contracting_dimensions": ["0"],
        "lhs_batch_dimensions": [],
        "rhs_batch_dimensions": [],
    },
    "precision_config": {"operand_precision": ["DEFAULT", "DEFAULT"], "algorithm": "ALG_UNSET"},
    "epilogue": "DEFAULT",
    "lhs_stride": "4",
    "rhs_stride": "4",
    "damax_output": False,
}
A, B, C = (
    np.array(rows, np.complex64) for rows in ([[1, 2j], [3, 4]], [[1, -1], [1j, 5]], [[10, 0], [0, -20]])
)


def product(*given, element=0, bits=None, target="__cublas$lt$matmul", **changes):
    """One result of a call on one device."""
    kind = "c64" if given[0].dtype.kind == "c" else "f32"
    config = json.dumps({"gemm_backend_config": PRODUCT | changes})
    names = ", ".join(f"%p{n}" for n in range(len(given)))
    call = f'custom-call({names}), custom_call_target="{target}", backend_config={config}'
    result = f"{kind}[2,2]" if element == 0 else "s8[64]"
    lines = [f"%p{n} = {kind}[2,2] parameter({n})" for n in range(len(given))]
    lines += [f"%c = ({kind}[2,2], s8[64]) {call}", f"%r = {result} get-tuple-element(%c), index={element}"]
    [found] = run(*lines, arguments=[g[None] for g in given], header=ONE, factor_bits=bits)
    return found[0]


@pytest.mark.parametrize("target", ["__cublas$lt$matmul", "__cublas$gemm"])
def test_a_product(target):
    assert np.array_equal(product(A, B, target=target), A @ B)
    assert np.array_equal(product(A, B, target=target, scale_mode=0), A @ B)


def test_a_scaled_product_and_an_addend():
    assert np.array_equal(product(A, B, C, alpha_real=2, alpha_imag=1, beta=3), (2 + 1j) * (A @ B) + 3 * C)
    transposed = PRODUCT["dot_dimension_numbers"] | {"rhs_contracting_dimensions": ["1"]}
    assert np.array_equal(product(A, B, dot_dimension_numbers=transposed), A @ B.T)
    real = product(A.real.copy(), B.real.copy(), C.real.copy(), beta=1, epilogue="RELU")
    assert np.array_equal(real, np.maximum(A.real @ B.real + C.real, 0))


def test_ties_in_tf32_go_away_from_zero():
    """As cvt.rna.tf32.f32 has it, and as an H100 does; in other types they go to even."""
    tie, one = 1 + 2.0**-11, 2.0**-10
    data = np.array([tie, -tie, tie + one, 1 + 2.0**-12, np.inf, -0.0])
    np.testing.assert_array_equal(factors(data, TF32), [1 + one, -1 - one, 1 + 2 * one, 1.0, np.inf, -0.0])
    np.testing.assert_array_equal(factors(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), 8), [1.0, 1 + 2.0**-6])


def test_its_factors_are_rounded_as_it_asks():
    """1 + 2**-12 is 1 in TF32."""
    a, b = np.array([[1 + 2.0**-12, 0], [0, 1]], np.float32), np.eye(2, dtype=np.float32)
    highest = {"operand_precision": ["HIGHEST", "HIGHEST"], "algorithm": "ALG_UNSET"}
    tf32 = {"operand_precision": ["HIGHEST", "HIGHEST"], "algorithm": "ALG_DOT_TF32_TF32_F32"}
    assert product(a, b, bits={"default": 11})[0, 0] == 1
    assert product(a, b, bits={"default": 11}, precision_config=highest)[0, 0] == a[0, 0]
    assert product(a, b, precision_config=tf32)[0, 0] == 1


@pytest.mark.parametrize(
    ("given", "changes", "why"),
    [
        ((A, B), {"epilogue": "GELU_AUX"}, "epilogue GELU_AUX"),
        ((A, B), {"damax_output": True}, "epilogue"),
        ((A, B, C), {}, "3 operands with beta 0"),
        ((A, B), {"beta": 1}, "2 operands with beta 1"),
        (
            (A, B),
            {
                "dot_dimension_numbers": PRODUCT["dot_dimension_numbers"]
                | {"lhs_batch_dimensions": ["0"], "rhs_batch_dimensions": ["0"]},
                "lhs_stride": "0",
                "rhs_stride": "7",
            },
            "rhs_stride 7",
        ),
    ],
)
def test_what_is_not_known_is_refused(given, changes, why):
    with pytest.raises(Refused, match=why):
        product(*given, **changes)


def test_the_memory_of_the_library_is_not_read():
    with pytest.raises(Fault, match="nothing wrote"):
        product(A, B, element=1)


def test_the_largest_elements_in_the_total_order():
    """-0 comes after 0, the first of equal ones first, and a negative NaN last."""
    negative = -np.array(np.nan, np.float32)
    given = np.array([[-0.0, 0.0, 3, 3, negative]], np.float32)
    call = 'custom-call(%p), custom_call_target="__gpu$TopK", backend_config={config}'
    lines = (
        "%p = f32[1,5] parameter(0)",
        f"%c = (f32[1,4], s32[1,4]) {call}",
        "%r = s32[1,4] get-tuple-element(%c), index=1",
    )

    def places(config):
        chosen = [line.replace("{config}", config) for line in lines]
        return run(*chosen, arguments=[given[None]], header=ONE)[0].ravel().tolist()

    assert places('{is_stable = true, order = "TOTAL"}') == [2, 3, 1, 0]
    with pytest.raises(Refused, match="TopK with"):
        places('{is_stable = false, order = "TOTAL"}')


@pytest.mark.parametrize("changes", [{"scale_mode": "2"}, {"tilted": True}])
def test_a_product_that_says_what_nobody_knows_is_refused(changes):
    with pytest.raises(Refused, match=f"a product of cuBLAS with {min(changes)}"):
        product(A, B, **changes)
    dims = PRODUCT["dot_dimension_numbers"] | {"lhs_ragged_dimensions": ["0"]}
    with pytest.raises(Refused, match="with lhs_ragged_dimensions"):
        product(A, B, dot_dimension_numbers=dims)
