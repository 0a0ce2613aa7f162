# SPDX-License-Identifier: Apache-2.0
"""Reads the scratch memory that GPU libraries ask for from the optimized HLO text of a program.

XLA gives cuBLAS, cuDNN and CUB scratch memory of a size that they choose: 32 MiB for each product on an H100, for any
size of product (openxla/xla, xla/service/gpu/matmul_utils.h, GemmConfig::kHopperWorkspace). The compiler's memory
analysis counts it among the temporaries, although it says nothing about the partitioned program.
"""

from __future__ import annotations

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_reader import read_module
from meshmark.core.hlo_types import Shape, TupleShape

_LIBRARIES = ("__cublas$", "__cudnn$", "__cub$", "__cusolver$")
"""How the targets of calls of such libraries begin. If the last of several results is a row of bytes, it is the
scratch memory."""


def workspace_bytes(text: str) -> int:
    """The largest scratch memory of one library call, in bytes; 0 if there is none.

    Calls run one after the other, and the next one takes the memory of the one before.
    """
    if "__cu" not in text:
        return 0
    lines = (line for c in read_module(text).computations.values() for line in c.lines if "__cu" in line)
    return max((_scratch(call) for line in lines if (call := Instruction.of(line))), default=0)


def _scratch(call: Instruction) -> int:
    """The scratch memory of a call, in bytes; 0 for any other instruction."""
    shape = call.logical_shape
    if not call.target.startswith(_LIBRARIES) or not isinstance(shape, TupleShape):
        return 0
    last = shape.parts[-1]
    row = isinstance(last, Shape) and last.dtype in ("s8", "u8") and len(last.dims) == 1
    return last.nbytes if row and isinstance(last, Shape) else 0
