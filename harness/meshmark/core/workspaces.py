# SPDX-License-Identifier: Apache-2.0
"""Reads the scratch memory that GPU libraries ask for from the optimized HLO text of a program.

XLA gives cuBLAS, cuDNN and CUB scratch memory of a size that they choose: 32 MiB for each product on an H100, for any
size of product (openxla/xla, xla/service/gpu/matmul_utils.h, GemmConfig::kHopperWorkspace). The compiler's memory
analysis counts it among the temporaries, although it says nothing about the partitioned program.
"""

from __future__ import annotations

import re

from meshmark.core.hlo import payload

_CALL = re.compile(
    r"= \((?:[^()]|\([^()]*\))*?(?P<last>[su]8\[\d+\])(?:\{[^{}]*\})?\) custom-call\("
    r'.*custom_call_target="__cu(?:blas|dnn|b|solver)\$'
)
"""A call of such a library whose last result is a row of bytes: its scratch memory."""


def workspace_bytes(text: str) -> int:
    """The largest scratch memory of one library call, in bytes; 0 if there is none.

    Calls run one after the other, and the next one takes the memory of the one before.
    """
    found = (_CALL.search(line) for line in text.split("\n") if "__cu" in line)
    return max((payload(call["last"])[1] for call in found if call), default=0)
