# SPDX-License-Identifier: Apache-2.0
"""The scratch memory of GPU libraries, and no other memory, is read from the compiled text."""

import pytest

from meshmark.core.workspaces import workspace_bytes

GEMM = (
    "  %g = (f32[64,64]{1,0}, s8[33554432]{0}) custom-call(%a, %b), "
    'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1}}'
)
CONV = (
    "  %c = (f32[1,8,8,4]{3,2,1,0}, u8[4096]{0}) custom-call(%a, %b), window={size=3x3 pad=1_1x1_1}, "
    'dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward"'
)


def module(*lines):
    return "\n".join(["HloModule m", "", "ENTRY %main (a: f32[64]) -> f32[64] {", *lines, "}", ""])


def test_the_largest_call_counts():
    assert workspace_bytes(module(GEMM)) == 33554432
    assert workspace_bytes(module(CONV, GEMM, GEMM.replace("%g", "%h"))) == 33554432
    assert workspace_bytes(module(CONV)) == 4096


@pytest.mark.parametrize(
    "line",
    [
        "  %g = (f32[64]{0}, s8[33554432]{0}) fusion(%a), kind=kLoop, calls=%f",
        GEMM.replace("__cublas$gemm", "my_gemm"),
        GEMM.replace(", s8[33554432]{0}", ", f32[33554432]{0}"),
        GEMM.replace("(f32[64,64]{1,0}, s8[33554432]{0})", "s8[33554432]{0}"),
        "",
    ],
)
def test_memory_of_the_program_itself_is_not_taken_off(line):
    assert workspace_bytes(module(line)) == 0
