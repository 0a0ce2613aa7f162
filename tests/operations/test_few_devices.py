# SPDX-License-Identifier: Apache-2.0
"""Cases on one device and on two, where sizes have no factor and blocks are whole arrays."""

import jax
import pytest

from meshmark.judge.checks import Judge
from meshmark.operations import cases

ONE = [
    "rotary/of=-.x/explicit/1x1/float32/4KiB",
    "rotary_gradient/of=y.x/manual-novma/1x1/float32/4KiB",
    "array_use/form=elements/host/1x1/float32/4KiB",
    "array_use/form=puts/host/1x1/float32/4KiB",
    "function_form/form=matrices_of_derivatives/host/1x1/float32/4KiB",
    "program_condition/form=second_arguments/host/1x1/float32/4KiB",
]


@pytest.mark.parametrize(
    ("number", "case_id"), [*((1, name) for name in ONE), *((2, n.replace("1x1", "1x2")) for n in ONE[:4])]
)
def test_a_case_passes_on_few_devices(number, case_id):
    lines = Judge(tuple(jax.devices()[:number])).run(cases.find(case_id, number))
    assert {line.verdict for line in lines} == {"pass"}, [line.reason for line in lines]
