# SPDX-License-Identifier: Apache-2.0
"""Cases on one device, two and three, where sizes have no factor and blocks are whole arrays."""

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

# A case that some number of devices can never pass would keep a level of such devices out of reach.
ANY = [
    "program_condition/form=orders_of_groups/host/1x1/float32/4KiB",
    "block_form/form=named_places/host/1x1/float32/4KiB",
    "program_feature/form=unreduced_scattered/host/1x1/float32/4KiB",
    "program_feature/form=unreduced_mixed/host/1x1/float32/4KiB",
]


@pytest.mark.parametrize(
    ("number", "case_id"),
    [
        *((1, name) for name in (*ONE, *ANY)),
        *((2, name.replace("1x1", "1x2")) for name in ONE[:4]),
        *((3, name.replace("1x1", "1x3")) for name in ANY),
    ],
)
def test_a_case_passes_on_few_devices(number, case_id):
    lines = Judge(tuple(jax.devices()[:number])).run(cases.find(case_id, number))
    assert {line.verdict for line in lines} == {"pass"}, [line.reason for line in lines]
