# SPDX-License-Identifier: Apache-2.0
"""Counts the floating-point operations of the contractions in a compiled program: dots and convolutions.

The input is optimized HLO text, as for meshmark.core.hlo. A product of two numbers and its addition count two (eight
for complex numbers). A contraction in a loop counts as often as the loop runs it; in a branch of a conditional, as if
it ran.
"""

from __future__ import annotations

import math
import re

from meshmark.core.hlo import Instruction, Module, operands, shapes

_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_LABELS = re.compile(r"dim_labels=\w+_(\w+)->\w+")
_LIBRARY_CALL = re.compile(r'custom_call_target="([^"]*(?:matmul|gemm|dot|conv)[^"]*)"', re.IGNORECASE)


def flops(text: str) -> int | None:
    """Operations of one device in one execution; None where a loop's count is unknown, or a library that the compiler
    calls does a contraction."""
    module = Module(text)
    total = 0
    for computation, lines in module.lines.items():
        if not any(" dot(" in line or " convolution(" in line or "custom-call" in line for line in lines):
            continue
        instructions = module.instructions(computation)
        for name, instruction in instructions.items():
            if name == "ROOT":  # the root is also under its own name
                continue
            if instruction[3] == "custom-call" and _LIBRARY_CALL.search(instruction[4]):
                return None
            if instruction[3] not in ("dot", "convolution"):
                continue
            trips, _ = module.runs(computation)
            if trips is None:
                return None
            total += trips * _of_one(instruction, instructions)
    return total


def _of_one(instruction: Instruction, instructions: dict[str, Instruction]) -> int:
    """The operations of one dot or convolution."""
    dtype, result = shapes(instruction[2])[0]
    left, right = (shapes(instructions[name][2])[0][1] for name in operands(instruction)[:2])
    if instruction[3] == "dot":
        match = _CONTRACTED.search(instruction[4])
        terms = math.prod(left[int(d)] for d in match[1].split(",") if d) if match else 1
    else:  # the kernel without its output features; a window that reaches past the edge counts whole
        match = _LABELS.search(instruction[4])
        kernel = match[1] if match else ""
        terms = math.prod(n for n, label in zip(right, kernel, strict=True) if label != "o")
    return (8 if dtype.startswith("c") else 2) * math.prod(result) * terms
